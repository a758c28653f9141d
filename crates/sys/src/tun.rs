//! TUN links whose other end is this process: it reads the packets that the kernel sends, and the
//! kernel receives those that it writes (the kernel's Documentation/networking/tuntap.rst).

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::check;
use crate::poll::wait_readable;

/// A device, which exists until its descriptor is closed.
#[derive(Debug)]
pub struct Tun {
    /// Descriptor of the device, which does not block. A read returns the next packet, a write
    /// sends one; neither has an extra header.
    pub fd: OwnedFd,
    /// The interface's name.
    pub name: String,
}

/// Creates a device in the calling thread's network namespace, without an address and down. In
/// `name` the kernel puts the next free number for `%d`.
///
/// # Errors
/// ENOENT without /dev/net/tun, EPERM without CAP_NET_ADMIN, EBUSY when the name is taken.
pub fn open(name: &str) -> io::Result<Tun> {
    let fd = OwnedFd::from(OpenOptions::new().read(true).write(true).open("/dev/net/tun")?);
    rustix::io::ioctl_fionbio(&fd, true)?;
    let mut request = crate::interface::about(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the kernel reads and writes one structure, which is there.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    let name: Vec<u8> = request.ifr_name.iter().map(|&byte| byte as u8).collect();
    let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
    Ok(Tun { fd, name: name.to_string_lossy().into_owned() })
}

impl Tun {
    /// Receives the next packet that the kernel sends; returns its length, or `None` if none waits.
    ///
    /// # Errors
    /// EIO when the interface is down or gone; others of read(2).
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Has the kernel receive a packet.
    ///
    /// # Errors
    /// EINVAL for what is no IP packet, EIO when the interface is down or gone, ENOMEM: write(2).
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.fd, packet)?;
        Ok(())
    }
}

/// Waits until a device has a packet, at most for `timeout`, or until a signal comes.
pub fn wait(tuns: [&Tun; 2], timeout: Duration) {
    wait_readable(tuns.map(|tun| tun.fd.as_fd()), timeout);
}
