//! A link whose other end is this process: packets that the kernel sends on it are read, and what
//! is written is received by the kernel (the kernel's Documentation/networking/tuntap.rst).
//!
//! Nothing here knows what a packet is.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// A device, which is there until its descriptor is closed.
#[derive(Debug)]
pub struct Tun {
    /// A read takes the next packet, a write is a packet; neither has a header of its own.
    pub fd: OwnedFd,
    /// The interface's name.
    pub name: String,
}

/// Makes a device in the network of the calling thread, without an address and down. The kernel
/// chooses its name.
///
/// # Errors
/// ENOENT without /dev/net/tun, EPERM without CAP_NET_ADMIN.
pub fn open() -> io::Result<Tun> {
    let fd = OwnedFd::from(OpenOptions::new().read(true).write(true).open("/dev/net/tun")?);
    // SAFETY: all zeroes is a value of this structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the kernel reads and writes one structure, which is there.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let name: Vec<u8> = request.ifr_name.iter().map(|&byte| byte as u8).collect();
    let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
    Ok(Tun { fd, name: name.to_string_lossy().into_owned() })
}
