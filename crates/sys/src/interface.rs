//! Network interfaces: number, address, MTU and the networks that are on the link, and their
//! configuration (netdevice(7), getifaddrs(3)).

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::check;

/// An Ethernet interface of the calling thread's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// The kernel's addresses on it, each with the length of its network's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Finds an Ethernet interface by its name.
///
/// # Errors
/// ENODEV when there is none; `InvalidInput` when it is not of Ethernet, as loopback and TUN are
/// not; errors of socket(2) and getifaddrs(3).
pub fn find(name: &str) -> io::Result<Interface> {
    let socket = control_socket(AddressFamily::INET)?;
    // SAFETY: each member of the union is plain data, which the call before has filled as named.
    let index = unsafe { request(&socket, name, libc::SIOCGIFINDEX)?.ifr_ifru.ifru_ifindex };
    // SAFETY: likewise.
    let mtu = unsafe { request(&socket, name, libc::SIOCGIFMTU)?.ifr_ifru.ifru_mtu };
    // SAFETY: likewise.
    let hardware = unsafe { request(&socket, name, libc::SIOCGIFHWADDR)?.ifr_ifru.ifru_hwaddr };
    if hardware.sa_family != libc::ARPHRD_ETHER {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut mac = [0; 6];
    for (byte, from) in mac.iter_mut().zip(hardware.sa_data) {
        *byte = from as u8;
    }
    Ok(Interface { index: index as u32, mac, mtu: mtu as u32, addresses: addresses(name)? })
}

/// Finds every Ethernet interface that has an address.
///
/// # Errors
/// Those of socket(2) and getifaddrs(3). An interface that goes away meanwhile is left out.
pub fn all() -> io::Result<Vec<Interface>> {
    // A second address of an interface may have a label for its name: getifaddrs(3).
    let names = all_addresses()?.into_iter().map(|(name, ..)| name);
    let names: BTreeSet<_> = names.map(|name| unlabelled(&name).to_owned()).collect();
    Ok(names.iter().filter_map(|name| find(name).ok()).collect())
}

/// Returns the name of an interface without a label.
fn unlabelled(name: &str) -> &str {
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// Gives an interface without an address its address, in a network with a prefix of `prefix` bits,
/// and room for `queue` packets that wait to be sent, and brings it up.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN over the network namespace; ENODEV when there is no such interface;
/// others of netdevice(7).
pub fn bring_up(name: &str, address: IpAddr, prefix: u8, queue: u16) -> io::Result<()> {
    let socket = control_socket(AddressFamily::INET)?;
    let about = about(name)?;
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
            set_address(&socket, about, libc::SIOCSIFADDR, address)?;
            set_address(&socket, about, libc::SIOCSIFNETMASK, mask.into())?;
        }
        IpAddr::V6(address) => set_address_v6(&socket, about, address, prefix)?,
    }
    let mut with_queue = about;
    // The union has no member of this name; this one is an int as well.
    with_queue.ifr_ifru.ifru_metric = queue.into();
    control(&socket, libc::SIOCSIFTXQLEN, &mut with_queue)?;
    let mut with_flags = about;
    control(&socket, libc::SIOCGIFFLAGS, &mut with_flags)?;
    // SAFETY: a member of plain data, which the call has filled.
    let flags = unsafe { with_flags.ifr_ifru.ifru_flags };
    with_flags.ifr_ifru.ifru_flags = flags | libc::IFF_UP as i16;
    control(&socket, libc::SIOCSIFFLAGS, &mut with_flags)
}

fn set_address(
    socket: &OwnedFd,
    mut about: libc::ifreq,
    request: libc::Ioctl,
    address: Ipv4Addr,
) -> io::Result<()> {
    // SAFETY: all zeroes is a value of this structure of numbers.
    let mut value: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    value.sin_family = libc::AF_INET as libc::sa_family_t;
    value.sin_addr.s_addr = address.to_bits().to_be();
    // SAFETY: both are structures of plain data, of 16 bytes.
    about.ifr_ifru.ifru_addr =
        unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(value) };
    control(socket, request, &mut about)
}

fn set_address_v6(
    socket: &OwnedFd,
    mut about: libc::ifreq,
    address: Ipv6Addr,
    prefix: u8,
) -> io::Result<()> {
    control(socket, libc::SIOCGIFINDEX, &mut about)?;
    let value = libc::in6_ifreq {
        ifr6_addr: libc::in6_addr { s6_addr: address.octets() },
        ifr6_prefixlen: prefix.into(),
        // SAFETY: a member of plain data, which the call has filled.
        ifr6_ifindex: unsafe { about.ifr_ifru.ifru_ifindex },
    };
    let socket = control_socket(AddressFamily::INET6)?;
    // SAFETY: the kernel reads one structure, which is there.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR, &raw const value) })
}

fn control_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

/// Makes a request of netdevice(7) about an interface.
fn request(socket: &OwnedFd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    let mut about = about(name)?;
    control(socket, request, &mut about)?;
    Ok(about)
}

/// Makes a request of netdevice(7).
fn control(socket: &OwnedFd, request: libc::Ioctl, about: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the kernel reads and writes one structure, which is there.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut *about) })
}

/// Returns a request's structure, with the name alone.
pub(crate) fn about(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeroes is a value of this structure of numbers.
    let mut about: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    if name.is_empty() || name.len() >= about.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (place, byte) in about.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    Ok(about)
}

/// Returns the addresses of an interface, with the lengths of their prefixes.
fn addresses(name: &str) -> io::Result<Vec<(IpAddr, u8)>> {
    let all = all_addresses()?.into_iter();
    Ok(all
        .filter(|(of, ..)| unlabelled(of) == name)
        .map(|(_, address, prefix)| (address, prefix))
        .collect())
}

/// Returns every address of an interface, with the interface's name and the length of the address's
/// prefix.
fn all_addresses() -> io::Result<Vec<(String, IpAddr, u8)>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the call sets the pointer to a list that is freed below.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the list is unchanged until it is freed; each entry is valid or the pointer is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: a name is a string with an end; an address is null or as long as its family says.
        unsafe {
            if let Some(address) = address(entry.ifa_addr)
                && let Some(mask) = address_like(entry.ifa_netmask, entry.ifa_addr)
            {
                let name = CStr::from_ptr(entry.ifa_name).to_string_lossy();
                found.push((name.into_owned(), address, prefix(mask)));
            }
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and nothing points into it any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Returns the address behind a pointer, if it is one of the Internet.
///
/// # Safety
/// The pointer is null, or points to an address as long as its family says.
unsafe fn address(from: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    unsafe { address_of_family(from, i32::from(from.as_ref()?.sa_family)) }
}

/// Returns the mask behind a pointer, whose family some leave out: it is that of `address`.
///
/// # Safety
/// As for [`address`], of both pointers.
unsafe fn address_like(
    mask: *const libc::sockaddr,
    address: *const libc::sockaddr,
) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    unsafe { address_of_family(mask, i32::from(address.as_ref()?.sa_family)) }
}

/// Returns the address of a family behind a pointer.
///
/// # Safety
/// The pointer is null, or points to an address of that family.
unsafe fn address_of_family(from: *const libc::sockaddr, family: i32) -> Option<IpAddr> {
    match family {
        libc::AF_INET => {
            // SAFETY: an address of this family is this structure.
            let address = unsafe { from.cast::<libc::sockaddr_in>().as_ref() }?;
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family is this structure.
            let address = unsafe { from.cast::<libc::sockaddr_in6>().as_ref() }?;
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

fn prefix(mask: IpAddr) -> u8 {
    let bits = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    bits as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_not_of_ethernet_and_others_do_not_exist() {
        assert_eq!(find("lo").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        for name in ["", "nothing0", "a-name-that-is-too-long", "a\0b"] {
            assert_eq!(find(name).unwrap_err().raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }

    #[test]
    fn an_address_has_the_prefix_of_its_mask() {
        let found = addresses("lo").unwrap();
        let ours = (IpAddr::from([127, 0, 0, 1]), 8);
        assert!(found.contains(&ours), "{found:?}");
    }
}
