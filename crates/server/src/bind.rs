//! The listening sockets, bound before any loop starts, so that errors are reported at once.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use weir_sys::socket_file::SocketFile;
use weir_sys::{process, socket};

use crate::config::{Address, Config, Error};
use crate::worker::listener::Socket;

/// The listeners of every loop, and their addresses.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub per_loop: Vec<Vec<Socket>>,
    pub addresses: Vec<Address>,
    /// Socket files to remove at the end.
    pub files: Vec<SocketFile>,
}

/// Binds and listens. For TCP each loop has a socket of its own (SO_REUSEPORT), unless the loops
/// are to share it; a Unix socket, whose path can be bound only once, is always shared.
/// Notes the port of the first address with TLS.
pub(crate) fn open(config: &mut Config) -> Result<Listeners, Error> {
    let mut listeners = Listeners {
        per_loop: (0..config.workers).map(|_| Vec::new()).collect(),
        addresses: Vec::new(),
        files: Vec::new(),
    };
    if config.inherited > 0 {
        listeners.inherit(config)?;
        return Ok(listeners);
    }
    for address in &config.listen {
        let bound = match address {
            Address::Tcp(address) => listeners.add_tcp(*address, false, config),
            Address::Tls(address) => listeners.add_tcp(*address, true, config),
            Address::Unix(path) => listeners.add_unix(path, config),
        };
        bound.map_err(|error| Error(format!("cannot listen on {address}: {error}")))?;
    }
    config.tls_port = listeners.tls_port();
    Ok(listeners)
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

    fn add_tcp(
        &mut self,
        address: SocketAddr,
        is_tls: bool,
        config: &Config,
    ) -> std::io::Result<()> {
        // Without SO_REUSEPORT, a bind fails where another server listens.
        let exclusive = socket::bind_tcp(address, false)?;
        let address = socket::local_address(exclusive.as_fd())?.unwrap_or(address);
        self.addresses.push(if is_tls { Address::Tls(address) } else { Address::Tcp(address) });
        if let [only] = &mut self.per_loop[..] {
            socket::listen(exclusive.as_fd(), config.listenq)?;
            only.push(Socket { fd: Arc::new(exclusive), own: true, is_tls });
            return Ok(());
        }
        if config.share_listener {
            socket::listen(exclusive.as_fd(), config.listenq)?;
            return self.share(&exclusive, is_tls);
        }
        drop(exclusive);
        for each in &mut self.per_loop {
            let own = socket::bind_tcp(address, true)?;
            socket::listen(own.as_fd(), config.listenq)?;
            each.push(Socket { fd: Arc::new(own), own: true, is_tls });
        }
        Ok(())
    }

    fn add_unix(&mut self, path: &Path, config: &Config) -> std::io::Result<()> {
        let shared = socket::bind_unix(path)?;
        socket::listen(shared.as_fd(), config.listenq)?;
        self.files.push(SocketFile::new(path));
        self.addresses.push(Address::Unix(path.into()));
        self.share(&shared, false)
    }

    /// Takes over the sockets that a service manager opened (sd_listen_fds(3)); they already
    /// listen.
    fn inherit(&mut self, config: &Config) -> Result<(), Error> {
        let error =
            |error: std::io::Error| Error(format!("cannot use the sockets of LISTEN_FDS: {error}"));
        for fd in process::inherited_sockets(config.inherited).map_err(error)? {
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
            self.share(&fd, false).map_err(error)?;
        }
        Ok(())
    }

    fn share(&mut self, fd: &OwnedFd, is_tls: bool) -> std::io::Result<()> {
        for each in &mut self.per_loop {
            each.push(Socket { fd: Arc::new(fd.try_clone()?), own: false, is_tls });
        }
        Ok(())
    }
}
