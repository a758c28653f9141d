//! Network interfaces: number, address, MTU and the networks that are on the link (netdevice(7),
//! getifaddrs(3)).

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
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
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

/// Makes a request of netdevice(7) about an interface.
fn request(socket: &OwnedFd, name: &str, request: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: all zeroes is a value of this structure of numbers.
    let mut about: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    if name.is_empty() || name.len() >= about.ifr_name.len() || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (place, byte) in about.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    // SAFETY: the kernel reads and writes one structure, which is there.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut about) })?;
    Ok(about)
}

/// Returns the addresses of an interface, with the lengths of their prefixes.
fn addresses(name: &str) -> io::Result<Vec<(IpAddr, u8)>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: the call sets the pointer to a list that is freed below.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the list is unchanged until it is freed; each entry is valid or the pointer is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: a name is a string with an end; an address is null or as long as its family says.
        unsafe {
            if CStr::from_ptr(entry.ifa_name).to_bytes() == name.as_bytes()
                && let Some(address) = address(entry.ifa_addr)
                && let Some(mask) = address_like(entry.ifa_netmask, entry.ifa_addr)
            {
                found.push((address, prefix(mask)));
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
