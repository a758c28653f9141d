//! Client sockets: non-blocking TCP connects and their socket options.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use crate::profile::{Call, timed};
use crate::socket::NEW;
use crate::{file, set_option};

/// Outcome of starting a non-blocking connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connecting {
    /// The connection is established.
    Done,
    /// The connect is in progress (EINPROGRESS). The next write succeeds or reports why it failed.
    Begun,
}

/// Creates a TCP socket of the family of `address`, non-blocking and close-on-exec.
///
/// # Errors
/// EMFILE, ENFILE, ENOBUFS, ENOMEM: socket(2).
pub fn stream(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let open = || rustix::net::socket_with(family, SocketType::STREAM, NEW, None);
    Ok(timed(Call::Socket, open)?)
}

/// Binds to a source address and leaves the choice of port to connect(2), which can then reuse a
/// port already taken towards another destination (IP_BIND_ADDRESS_NO_PORT, ip(7)).
///
/// # Errors
/// EADDRNOTAVAIL when the address is not local to this machine: bind(2).
pub fn bind_source(fd: BorrowedFd<'_>, source: IpAddr) -> io::Result<()> {
    timed(Call::Setsockopt, || {
        set_option(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &1_i32)
    })?;
    Ok(timed(Call::Bind, || rustix::net::bind(fd, &SocketAddr::new(source, 0)))?)
}

/// Starts to connect.
///
/// # Errors
/// EADDRNOTAVAIL when no port is left; ECONNREFUSED, ENETUNREACH, EHOSTUNREACH: connect(2).
pub fn connect(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<Connecting> {
    match timed(Call::Connect, || rustix::net::connect(fd, address)) {
        Ok(()) => Ok(Connecting::Done),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Connecting::Begun),
        Err(errno) => Err(errno.into()),
    }
}

/// Creates a Unix socket, non-blocking and close-on-exec, and connects it.
///
/// # Errors
/// EAGAIN when the other side's queue is full; ECONNREFUSED, ENOENT, EACCES: connect(2).
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let open = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, NEW, None);
    let fd = timed(Call::Socket, open)?;
    let address = SocketAddrUnix::new(path)?;
    timed(Call::Connect, || rustix::net::connect(&fd, &address))?;
    Ok(fd)
}

/// Returns whether an error of connecting says only that this process or machine lacks something:
/// descriptors or memory.
pub fn is_own_lack(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    errno.is_some_and(|errno| file::is_lack(errno) || errno == libc::ENOBUFS)
}

/// Returns whether an error of connecting says that this machine has no address to connect from:
/// all ports towards the other are in use, which passes; or there is no way to its kind of address,
/// such as `[::1]` without IPv6, which stays (EADDRNOTAVAIL, connect(2)). The two look alike.
pub fn has_no_address(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EADDRNOTAVAIL)
}

/// Returns whether an error of connecting says that nobody listens at the address: it is refused
/// (ECONNREFUSED), or there is no such Unix socket (ENOENT; connect(2), unix(7)).
pub fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// Takes the pending error of a connect that was started; `None` if there is none (SO_ERROR,
/// socket(7)).
///
/// # Errors
/// EBADF, ENOTSOCK: getsockopt(2).
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let state = timed(Call::Getsockopt, || sockopt::socket_error(fd))?;
    Ok(state.err().map(io::Error::from))
}

/// Disables Nagle's algorithm, so that small segments are sent at once (TCP_NODELAY, tcp(7)).
///
/// # Errors
/// ENOTSOCK: setsockopt(2).
pub fn send_at_once(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(timed(Call::Setsockopt, || sockopt::set_tcp_nodelay(fd, true))?)
}

/// Requests a receive buffer of about `bytes`, so that the peer soon notices a slow reader. Must
/// precede the connect (SO_RCVBUF, socket(7); the kernel doubles the value and enforces a minimum).
///
/// # Errors
/// ENOTSOCK: setsockopt(2).
pub fn limit_receive_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    Ok(timed(Call::Setsockopt, || sockopt::set_socket_recv_buffer_size(fd, bytes))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket;
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::fd::AsFd;

    #[test]
    fn a_lack_of_addresses_may_be_of_one_server_only() {
        let error = io::Error::from_raw_os_error;
        for own in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            assert!(is_own_lack(&error(own)) && !has_no_address(&error(own)), "{own}");
        }
        let none = error(libc::EADDRNOTAVAIL);
        assert!(has_no_address(&none) && !is_own_lack(&none));
        assert!(!is_own_lack(&error(libc::ECONNREFUSED)));
    }

    #[test]
    fn a_chosen_source_address_is_the_one_the_server_sees() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let fd = stream(&address).unwrap();
        let source = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77));
        bind_source(fd.as_fd(), source).unwrap();
        connect(fd.as_fd(), &address).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip(), source);
        assert!(take_error(fd.as_fd()).unwrap().is_none());
    }

    #[test]
    fn a_refused_connect_is_told_at_once_or_by_the_socket() {
        // It has its port, which no other test can be given, and does not listen.
        let bound = socket::bind_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = socket::local_address(bound.as_fd()).unwrap().unwrap();
        let fd = stream(&address).unwrap();
        let error = match connect(fd.as_fd(), &address) {
            Ok(_) => take_error(fd.as_fd()).unwrap().unwrap(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_foreign_source_address_is_refused() {
        let address = "127.0.0.1:1".parse().unwrap();
        let fd = stream(&address).unwrap();
        let error = bind_source(fd.as_fd(), "192.0.2.1".parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }
}
