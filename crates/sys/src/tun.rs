//! A TUN link whose other end is this process: it reads the packets that the kernel sends, and the
//! kernel receives those that it writes (the kernel's Documentation/networking/tuntap.rst).

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::check;

/// A device, which exists until its descriptor is closed.
#[derive(Debug)]
pub struct Tun {
    /// Descriptor of the device. A read returns the next packet, a write sends one; neither has an
    /// extra header.
    pub fd: OwnedFd,
    /// The interface's name.
    pub name: String,
}

/// Creates a device in the calling thread's network namespace, without an address and down. The
/// kernel chooses its name.
///
/// # Errors
/// ENOENT without /dev/net/tun, EPERM without CAP_NET_ADMIN.
pub fn open() -> io::Result<Tun> {
    let fd = OwnedFd::from(OpenOptions::new().read(true).write(true).open("/dev/net/tun")?);
    // SAFETY: all zeroes is a value of this structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the kernel reads and writes one structure, which is there.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    let name: Vec<u8> = request.ifr_name.iter().map(|&byte| byte as u8).collect();
    let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
    Ok(Tun { fd, name: name.to_string_lossy().into_owned() })
}
