//! The listening sockets, bound before any loop starts, so that errors are reported at once, or
//! taken over from a service manager or from the server whose place this one takes.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use weir_sys::socket_file::SocketFile;
use weir_sys::{process, socket, syn_filter};

use crate::config::{Address, Config, Error};
use crate::succession::{KeptSocket, PassedSocket, Predecessor, SocketOrigin};
use crate::worker::listener::Socket;

/// The listeners of every loop, and their addresses.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub per_loop: Vec<Vec<Socket>>,
    pub addresses: Vec<Address>,
    /// Socket files to remove at the end.
    pub files: Vec<SocketFile>,
    /// Socket files of a predecessor, which goes on with them if this server fails.
    pub held_files: Vec<SocketFile>,
    /// The sockets, for a successor.
    pub kept: Vec<KeptSocket>,
}

/// Binds TCP sockets, and opens all others. For TCP each loop has a socket of its own
/// (SO_REUSEPORT), unless the loops are to share it; a Unix socket, whose path can be bound only
/// once, is always shared. What is bound listens after [`listen`].
///
/// Sockets that a predecessor passes are taken first, and stay as they are until it has closed
/// them ([`renew`]). Those for which there is no address any more end with it. Notes the port of
/// the first address with TLS.
pub(crate) fn open(
    config: &mut Config,
    predecessor: Option<&mut Predecessor>,
) -> Result<Listeners, Error> {
    let mut listeners = Listeners {
        per_loop: (0..config.workers).map(|_| Vec::new()).collect(),
        addresses: Vec::new(),
        files: Vec::new(),
        held_files: Vec::new(),
        kept: Vec::new(),
    };
    let (mut passed, is_successor) = (Vec::new(), predecessor.is_some());
    if let Some(predecessor) = predecessor {
        passed = std::mem::take(&mut predecessor.passed);
        listeners.take_or_leave(config, &mut passed)?;
        predecessor.leave_rest(passed);
    } else if config.inherited > 0 {
        listeners.inherit(config, Vec::new())?;
    } else {
        listeners.take_or_leave(config, &mut passed)?;
    }
    config.tls_port = listeners.tls_port();
    let is_own = |socket: &&KeptSocket| !(is_successor && socket.listens);
    set_user_timeouts(listeners.kept.iter().filter(is_own), config);
    Ok(listeners)
}

/// Lets the TCP sockets that were bound here listen. From then on the kernel puts connections into
/// their queues, also where other sockets listen on the same address (SO_REUSEPORT): those come
/// last, because connections are lost there if another fails.
pub(crate) fn listen(kept: &mut [KeptSocket], listenq: i32) -> Result<(), Error> {
    let shared: Vec<Address> =
        kept.iter().filter(|each| each.listens).map(|each| each.address.clone()).collect();
    for is_shared in [false, true] {
        let is_next =
            |each: &&mut KeptSocket| !each.listens && shared.contains(&each.address) == is_shared;
        for KeptSocket { address, fd, listens, .. } in kept.iter_mut().filter(is_next) {
            socket::listen(fd.as_fd(), listenq)
                .map_err(|error| Error(format!("cannot listen on {address}: {error}")))?;
            *listens = true;
        }
    }
    Ok(())
}

/// Lifts what the last owner of a socket has left there: a filter, and the bound of its queue. A
/// service manager's socket is left alone.
pub(crate) fn renew(kept: &[KeptSocket], config: &Config) {
    for socket in kept.iter().filter(|socket| socket.origin == SocketOrigin::Bound) {
        // Most often there is no filter, and the bound is the same.
        let _ = syn_filter::detach(socket.fd.as_fd());
        let _ = socket::listen(socket.fd.as_fd(), config.listenq);
    }
}

/// Sets the time limit for acknowledgements, which accepted connections inherit.
pub(crate) fn set_user_timeouts<'a>(
    sockets: impl Iterator<Item = &'a KeptSocket>,
    config: &Config,
) {
    // Less than a millisecond is not nothing.
    let timeout_ms = config.timeouts.user_ns.div_ceil(1_000_000);
    let timeout_ms = u32::try_from(timeout_ms).unwrap_or(u32::MAX);
    for KeptSocket { fd, .. } in sockets {
        socket::set_user_timeout(fd.as_fd(), timeout_ms);
    }
}

/// Returns whether a socket has the address that is wanted; port 0 is any. Whether clients speak
/// TLS there may change.
fn is_bound_for(has: &Address, wanted: &Address) -> bool {
    match (has, wanted) {
        (Address::Tcp(has) | Address::Tls(has), Address::Tcp(wanted) | Address::Tls(wanted)) => {
            has.ip() == wanted.ip() && (has.port() == wanted.port() || wanted.port() == 0)
        }
        (Address::Unix(has), Address::Unix(wanted)) => has == wanted,
        _ => false,
    }
}

/// Takes the sockets for an address out of those passed. Where any port is wanted, they are those
/// of one port.
fn take_for(wanted: &Address, passed: &mut Vec<PassedSocket>) -> Vec<OwnedFd> {
    let found = passed.iter().find(|each| is_bound_for(&each.address, wanted));
    let Some(address) = found.map(|each| each.address.clone()) else { return Vec::new() };
    passed.extract_if(.., |each| each.address == address).map(|each| each.fd).collect()
}

impl Listeners {
    /// Returns the port of the first address with TLS; 0 if there is none.
    fn tls_port(&self) -> u16 {
        let port = |address: &Address| match address {
            Address::Tls(address) => Some(address.port()),
            Address::Tcp(_) | Address::Unix(_) => None,
        };
        self.addresses.iter().find_map(port).unwrap_or_default()
    }

    /// Opens the sockets, or leaves no file behind.
    fn take_or_leave(
        &mut self,
        config: &Config,
        passed: &mut Vec<PassedSocket>,
    ) -> Result<(), Error> {
        let taken = self.take_all(config, passed);
        if taken.is_err() {
            self.files.iter().for_each(SocketFile::remove);
        }
        taken
    }

    /// Opens a socket for each address, unless those passed are a service manager's.
    fn take_all(&mut self, config: &Config, passed: &mut Vec<PassedSocket>) -> Result<(), Error> {
        let managed: Vec<_> =
            passed.extract_if(.., |each| each.origin == SocketOrigin::Manager).collect();
        if !managed.is_empty() && config.tls.is_some() {
            return Err(Error("sockets passed by a service manager speak no TLS".into()));
        }
        if !managed.is_empty() {
            return self.inherit(config, managed.into_iter().map(|each| each.fd).collect());
        }
        for address in &config.listen {
            let theirs = take_for(address, passed);
            let bound = match address {
                Address::Tcp(address) => self.add_or_take(*address, Address::Tcp, theirs, config),
                Address::Tls(address) => self.add_or_take(*address, Address::Tls, theirs, config),
                Address::Unix(path) => self.add_unix(path, theirs.into_iter().next(), config),
            };
            bound.map_err(|error| Error(format!("cannot listen on {address}: {error}")))?;
        }
        Ok(())
    }

    /// Takes over the sockets of an address, or binds. `kind`: whether its clients speak TLS.
    fn add_or_take(
        &mut self,
        address: SocketAddr,
        kind: fn(SocketAddr) -> Address,
        theirs: Vec<OwnedFd>,
        config: &Config,
    ) -> std::io::Result<()> {
        if theirs.is_empty() {
            self.add_tcp(address, kind, config)
        } else {
            self.take_tcp(theirs, kind, config)
        }
    }

    fn add_tcp(
        &mut self,
        address: SocketAddr,
        kind: fn(SocketAddr) -> Address,
        config: &Config,
    ) -> std::io::Result<()> {
        // Without SO_REUSEPORT, a bind fails where another server listens.
        let exclusive = socket::bind_tcp(address, false)?;
        let address = socket::local_address(exclusive.as_fd())?.unwrap_or(address);
        self.addresses.push(kind(address));
        if self.per_loop.len() == 1 {
            self.add_own(0, exclusive, false);
        } else if config.share_listener {
            self.share(SocketOrigin::Bound, exclusive, false)?;
        } else {
            drop(exclusive);
            self.bind_for_rest(0, address)?;
        }
        Ok(())
    }

    /// Binds a socket for each loop from the one with index `from` on.
    fn bind_for_rest(&mut self, from: usize, address: SocketAddr) -> std::io::Result<()> {
        for index in from..self.per_loop.len() {
            self.add_own(index, socket::bind_tcp(address, true)?, false);
        }
        Ok(())
    }

    /// Takes over the sockets of one address from a predecessor. Each has a queue, so that none is
    /// left out where there are fewer loops than sockets.
    fn take_tcp(
        &mut self,
        theirs: Vec<OwnedFd>,
        kind: fn(SocketAddr) -> Address,
        config: &Config,
    ) -> std::io::Result<()> {
        let (sockets, loops) = (theirs.len(), self.per_loop.len());
        let address = theirs.first().map(|fd| socket::local_address(fd.as_fd())).transpose()?;
        let Some(address) = address.flatten() else {
            return Err(std::io::Error::other("it is no TCP socket"));
        };
        self.addresses.push(kind(address));
        for (index, fd) in theirs.into_iter().enumerate() {
            if loops > 1 && config.share_listener {
                self.share(SocketOrigin::Bound, fd, true)?;
            } else {
                if sockets < loops {
                    // Only a bind beside it depends on that.
                    socket::set_shared(fd.as_fd())?;
                }
                self.add_own(index % loops, fd, true);
            }
        }
        if config.share_listener { Ok(()) } else { self.bind_for_rest(sockets, address) }
    }

    /// Gives a loop a socket of its own. `is_held`: a predecessor still has it, and it listens;
    /// otherwise it was bound here, and does not listen yet.
    fn add_own(&mut self, index: usize, fd: OwnedFd, is_held: bool) {
        let fd = Arc::new(fd);
        self.keep(SocketOrigin::Bound, &fd, is_held);
        let is_tls = self.is_tls();
        self.per_loop[index].push(Socket { fd, own: true, is_tls, is_held, tokens: None });
    }

    fn add_unix(
        &mut self,
        path: &Path,
        theirs: Option<OwnedFd>,
        config: &Config,
    ) -> std::io::Result<()> {
        let (shared, files) = match theirs {
            Some(fd) => (fd, &mut self.held_files),
            None => {
                let fd = socket::bind_unix(path)?;
                // At once: one that does not listen is taken for one that was left behind.
                socket::listen(fd.as_fd(), config.listenq)?;
                (fd, &mut self.files)
            }
        };
        files.push(SocketFile::new(path));
        self.addresses.push(Address::Unix(path.into()));
        self.share(SocketOrigin::Bound, shared, true)
    }

    /// Takes over the sockets that a service manager opened (sd_listen_fds(3)), from it or from a
    /// predecessor; they already listen.
    fn inherit(&mut self, config: &Config, mut fds: Vec<OwnedFd>) -> Result<(), Error> {
        let error =
            |error: std::io::Error| Error(format!("cannot use the sockets of LISTEN_FDS: {error}"));
        if fds.is_empty() {
            fds = process::inherited_sockets(config.inherited).map_err(error)?;
        }
        for fd in fds {
            if !socket::is_listener(fd.as_fd()).map_err(error)? {
                return Err(error(std::io::Error::other("one is not a listening stream socket")));
            }
            socket::set_nonblocking(fd.as_fd()).map_err(error)?;
            let address = match socket::local_address(fd.as_fd()).map_err(error)? {
                Some(address) => {
                    socket::set_nodelay(fd.as_fd());
                    Address::Tcp(address)
                }
                None => Address::Unix("(inherited)".into()),
            };
            self.addresses.push(address);
            self.share(SocketOrigin::Manager, fd, true).map_err(error)?;
        }
        Ok(())
    }

    /// Gives a socket to all loops together.
    fn share(&mut self, origin: SocketOrigin, fd: OwnedFd, listens: bool) -> std::io::Result<()> {
        let is_tls = self.is_tls();
        for each in &mut self.per_loop {
            let fd = Arc::new(fd.try_clone()?);
            each.push(Socket { fd, own: false, is_tls, is_held: false, tokens: None });
        }
        self.keep(origin, &Arc::new(fd), listens);
        Ok(())
    }

    /// Returns whether the clients of the address that was added last speak TLS.
    fn is_tls(&self) -> bool {
        matches!(self.addresses.last(), Some(Address::Tls(_)))
    }

    /// Keeps a socket of the address that was added last.
    fn keep(&mut self, origin: SocketOrigin, fd: &Arc<OwnedFd>, listens: bool) {
        let Some(address) = self.addresses.last().cloned() else { return };
        self.kept.push(KeptSocket { origin, address, fd: Arc::clone(fd), listens });
    }
}
