//! Stream sockets: listening, accepting, transferring bytes, closing.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags,
    SocketType, sockopt,
};

use crate::check;
use crate::profile::{Call, timed};

pub(crate) const NEW: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Binds a TCP socket without listening on it.
///
/// `shared` sets SO_REUSEPORT, so that several loops may each bind their own socket. Without it,
/// the bind fails if another socket listens on the address, which is how a second server on the
/// same port is detected. TCP_NODELAY is set here because accepted sockets inherit it.
///
/// # Errors
/// EADDRINUSE, EADDRNOTAVAIL, EACCES: bind(2).
pub fn bind_tcp(address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let fd = rustix::net::socket_with(family, SocketType::STREAM, NEW, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    if shared {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    rustix::net::bind(&fd, &address)?;
    Ok(fd)
}

/// Lets others bind the address of a TCP socket too (SO_REUSEPORT, socket(7)): those of this user
/// that set the same.
///
/// # Errors
/// EBADF, ENOTSOCK: setsockopt(2).
pub fn set_shared(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseport(fd, true)?)
}

/// Binds a Unix socket. Replaces a socket file left behind by a server that died, but not one in
/// use, nor any other file.
///
/// # Errors
/// EADDRINUSE, EACCES, ENOENT: bind(2).
pub fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let new = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, NEW, None);
    let fd = new()?;
    // A dead socket refuses a connect, but so does an ordinary file.
    let is_dead = || -> io::Result<bool> {
        let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
        let refused = rustix::net::connect(&new()?, &address) == Err(Errno::CONNREFUSED);
        Ok(is_socket && refused)
    };
    match rustix::net::bind(&fd, &address) {
        Err(Errno::ADDRINUSE) if is_dead()? => {
            std::fs::remove_file(path)?;
            rustix::net::bind(&fd, &address)?;
        }
        other => other?,
    }
    Ok(fd)
}

/// Starts to listen, or changes the backlog of a socket that is already listening.
///
/// # Errors
/// EADDRINUSE, EOPNOTSUPP: listen(2).
pub fn listen(fd: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(fd, backlog)?)
}

/// Returns whether a descriptor is a listening stream socket.
///
/// # Errors
/// EBADF, ENOTSOCK: getsockopt(2).
pub fn is_listener(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(sockopt::socket_acceptconn(fd)? && sockopt::socket_type(fd)? == SocketType::STREAM)
}

/// Makes non-blocking a descriptor that this crate did not open.
///
/// # Errors
/// EBADF: fcntl(2).
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// Returns the TCP address that a socket is bound to; `None` for a Unix socket.
///
/// # Errors
/// EBADF, ENOTSOCK: getsockname(2).
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<Option<SocketAddr>> {
    Ok(SocketAddr::try_from(rustix::net::getsockname(fd)?).ok())
}

/// Sets TCP_NODELAY on an inherited listener; does nothing on a Unix socket.
pub fn set_nodelay(fd: BorrowedFd<'_>) {
    let _ = timed(Call::Setsockopt, || sockopt::set_tcp_nodelay(fd, true));
}

/// Sets the time after which a connection ends whose peer acknowledges nothing of what was sent,
/// milliseconds (TCP_USER_TIMEOUT, tcp(7)); 0 is the kernel's own. Connections accepted from a
/// listener inherit it. Does nothing on a Unix socket.
pub fn set_user_timeout(fd: BorrowedFd<'_>, timeout_ms: u32) {
    let _ = timed(Call::Setsockopt, || sockopt::set_tcp_user_timeout(fd, timeout_ms));
}

/// Accepts a connection, non-blocking and close-on-exec, and returns it with its peer's address.
///
/// # Errors
/// EAGAIN when none is queued; ECONNABORTED; EMFILE, ENFILE, ENOBUFS, ENOMEM: accept4(2).
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let (fd, peer) = timed(Call::Accept, || rustix::net::acceptfrom_with(listener, NEW))?;
    Ok((fd, peer.map_or(UNKNOWN_PEER, peer_address)))
}

/// Returns whether a failed accept(2) concerns only one connection and not the listener: the
/// connection was already gone, or had a pending network error (accept(2), "Error handling").
pub fn is_lost_connection(error: &io::Error) -> bool {
    let lost = [
        libc::ECONNABORTED,
        libc::EINTR,
        libc::EPROTO,
        libc::EPERM,
        libc::ENETDOWN,
        libc::ENOPROTOOPT,
        libc::EHOSTDOWN,
        libc::ENONET,
        libc::EHOSTUNREACH,
        libc::EOPNOTSUPP,
        libc::ENETUNREACH,
    ];
    error.raw_os_error().is_some_and(|errno| lost.contains(&errno))
}

/// Placeholder address for a peer without an IP address.
pub const UNKNOWN_PEER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn peer_address(peer: SocketAddrAny) -> SocketAddr {
    SocketAddr::try_from(peer).unwrap_or(UNKNOWN_PEER)
}

/// Appends available bytes to `buffer`, at most its spare capacity. Uses recv(2), which avoids the
/// file-position lock of read(2).
///
/// # Errors
/// EAGAIN, ECONNRESET: recv(2).
pub fn read(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let receive = || rustix::net::recv(fd, spare_capacity(buffer), RecvFlags::empty());
    Ok(timed(Call::Read, receive)?.0)
}

/// Reads into a slice whose content is discarded.
///
/// # Errors
/// EAGAIN, ECONNRESET: recv(2).
pub fn read_slice(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(timed(Call::Read, || rustix::net::recv(fd, buffer, RecvFlags::empty()))?.0)
}

/// Writes bytes. `more` announces that others follow at once, so that the kernel holds back a
/// partial segment (MSG_MORE: the effect of TCP_CORK without its two extra calls).
///
/// # Errors
/// EAGAIN, EPIPE, ECONNRESET: send(2).
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8], more: bool) -> io::Result<usize> {
    let flags = if more { SendFlags::MORE | SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL };
    Ok(timed(Call::Write, || rustix::net::send(fd, bytes, flags))?)
}

/// Holds back partial segments while `on`, and sends what was held back when that ends (TCP_CORK:
/// tcp(7)). What is held back for 200 ms is sent regardless. Does nothing on a Unix socket, which
/// has no segments.
pub fn set_cork(fd: BorrowedFd<'_>, on: bool) {
    let _ = timed(Call::Setsockopt, || sockopt::set_tcp_cork(fd, on));
}

/// Writes two pieces in one call.
///
/// # Errors
/// EAGAIN, EPIPE, ECONNRESET: writev(2).
pub fn write_two(fd: BorrowedFd<'_>, first: &[u8], second: &[u8]) -> io::Result<usize> {
    let pieces = [IoSlice::new(first), IoSlice::new(second)];
    Ok(timed(Call::Writev, || rustix::io::writev(fd, &pieces))?)
}

/// Writes any number of pieces in one call.
///
/// # Errors
/// EAGAIN, EPIPE, ECONNRESET: writev(2).
pub fn write_pieces(fd: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(timed(Call::Writev, || rustix::io::writev(fd, pieces))?)
}

/// Shuts down the write side; the peer's bytes can still be read.
///
/// # Errors
/// ENOTCONN: shutdown(2).
pub fn shutdown_write(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(timed(Call::Shutdown, || rustix::net::shutdown(fd, Shutdown::Write))?)
}

/// Shuts down both directions. A poll(2) on the socket wakes up, and the descriptor keeps its
/// number until it is closed. Does nothing to a socket whose peer has gone.
pub fn shutdown_both(fd: BorrowedFd<'_>) {
    let _ = timed(Call::Shutdown, || rustix::net::shutdown(fd, Shutdown::Both));
}

/// Returns whether there are bytes to read now (FIONREAD, tcp(7), unix(7)).
pub fn has_unread(fd: BorrowedFd<'_>) -> bool {
    timed(Call::Ioctl, || rustix::io::ioctl_fionread(fd)).is_ok_and(|bytes| bytes > 0)
}

/// Returns whether the peer has sent nothing that is unread, and has not ended either: recv(2) with
/// MSG_PEEK would block.
pub fn is_quiet(fd: BorrowedFd<'_>) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let seen = timed(Call::Read, || rustix::net::recv(fd, &mut [0_u8; 1], flags));
    matches!(seen, Err(rustix::io::Errno::AGAIN))
}

/// Closes a descriptor: an ordinary close, counted by the profile.
pub fn close(fd: OwnedFd) {
    timed(Call::Close, || drop(fd));
}

/// Makes the subsequent close a reset, which frees the data that the kernel still holds for the
/// peer.
pub fn reset_on_close(fd: BorrowedFd<'_>) {
    let _ = timed(Call::Setsockopt, || sockopt::set_socket_linger(fd, Some(Duration::ZERO)));
}

/// Returns the number of bytes written that the peer has not acknowledged: SIOCOUTQ, tcp(7).
///
/// # Errors
/// EINVAL on a listening socket.
pub fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ, writes one int to the pointer, which outlives the call.
    check(timed(Call::Ioctl, || unsafe {
        libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes)
    }))?;
    Ok(bytes.max(0) as u64)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_is_quiet_until_its_peer_says_something_or_ends() {
        let (near, mut far) = UnixStream::pair().unwrap();
        assert!(is_quiet(near.as_fd()) && !has_unread(near.as_fd()));
        far.write_all(b"x").unwrap();
        assert!(!is_quiet(near.as_fd()) && has_unread(near.as_fd()));
        assert_eq!(read_slice(near.as_fd(), &mut [0; 8]).unwrap(), 1);
        assert!(is_quiet(near.as_fd()));
        drop(far);
        assert!(!is_quiet(near.as_fd()) && !has_unread(near.as_fd()));
    }

    #[test]
    fn what_is_accepted_inherits_the_time_limit_for_acknowledgements() {
        let listener = bind_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        set_user_timeout(listener.as_fd(), 12_345);
        listen(listener.as_fd(), 1).unwrap();
        let address = local_address(listener.as_fd()).unwrap().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = accept(listener.as_fd()).unwrap();
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 12_345);
    }
}
