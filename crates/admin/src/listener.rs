//! The socket of the admin address, and the thread that answers on it.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use weir_observe::OwnPage;
use weir_sys::socket;
use weir_sys::socket_file::SocketFile;

use super::connections::Connections;
use super::sampler::Sampler;
use super::{Lifecycle, Resources};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Mode of a Unix socket: its owner alone may connect.
const MODE: u32 = 0o600;

/// A socket that listens on an admin address.
#[derive(Debug)]
pub struct AdminListener {
    socket: OwnedFd,
    url: String,
    guard: SocketGuard,
}

impl AdminListener {
    /// Listens on a TCP address.
    ///
    /// # Errors
    /// The address is in use, or is not this machine's.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let socket = socket::bind_tcp(address, false)?;
        socket::listen(socket.as_fd(), BACKLOG)?;
        let address = socket::local_address(socket.as_fd())?.unwrap_or(address);
        let guard = SocketGuard { file: None, is_armed: true };
        Ok(Self { socket, url: format!("http://{address}"), guard })
    }

    /// Listens on a Unix socket, in place of one that a server has left behind.
    ///
    /// # Errors
    /// The socket there is in use, another file is there, or the socket cannot be made.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let socket = socket::bind_unix(path)?;
        let guard = SocketGuard { file: Some(SocketFile::new(path)), is_armed: true };
        // Nobody can connect before it listens.
        fs::set_permissions(path, Permissions::from_mode(MODE))?;
        socket::listen(socket.as_fd(), BACKLOG)?;
        Ok(Self { socket, url: format!("unix:{}", path.display()), guard })
    }

    /// Listens on a socket that a predecessor has opened. `path`: of its file, if it is a Unix
    /// socket. The file stays until [`SocketGuard::arm`]: if this server fails, the predecessor
    /// goes on with it.
    ///
    /// # Errors
    /// It is no socket that listens.
    pub fn adopt(socket: OwnedFd, path: Option<&Path>) -> io::Result<Self> {
        if !socket::is_listener(socket.as_fd())? {
            return Err(io::Error::other("the last server's socket does not listen"));
        }
        let url = match (path, socket::local_address(socket.as_fd())?) {
            (Some(path), _) => format!("unix:{}", path.display()),
            (None, Some(address)) => format!("http://{address}"),
            (None, None) => {
                return Err(io::Error::other("the last server's socket has no address"));
            }
        };
        let guard = SocketGuard { file: path.map(SocketFile::new), is_armed: false };
        Ok(Self { socket, url, guard })
    }

    /// Returns another descriptor of the socket, for a successor.
    ///
    /// # Errors
    /// EMFILE: fcntl(2).
    pub fn try_clone_socket(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// Returns the address with its port, as a URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Begins to answer, from the page of this process's server, until the process ends or another
    /// one answers.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(self, lifecycle: &Lifecycle, page: OwnPage) -> io::Result<SocketGuard> {
        let Self { socket, guard, .. } = self;
        let resources = Resources::new(lifecycle.clone(), page, Sampler::default());
        let connections = Connections::new(socket, resources);
        thread::Builder::new().name("admin".to_owned()).spawn(move || connections.serve())?;
        Ok(guard)
    }
}

/// Guard of a Unix socket's file, which is removed when it is dropped.
#[derive(Debug)]
pub struct SocketGuard {
    file: Option<SocketFile>,
    /// False while the file is a predecessor's too.
    is_armed: bool,
}

impl SocketGuard {
    /// Takes the file over from a predecessor, which has left it.
    pub fn arm(&mut self) {
        self.is_armed = true;
    }

    /// Leaves the file to a successor.
    pub fn leave(&mut self) {
        self.file = None;
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.is_armed) {
            file.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::fixtures;

    /// Starts to answer for a server with a loop.
    fn start(listener: AdminListener) -> SocketGuard {
        let page = fixtures::Page::new(1);
        page.publish(0, &fixtures::this_thread(), &[]);
        listener.start(&Lifecycle::default(), page.observed()).unwrap()
    }

    fn ask(mut stream: impl Read + Write, request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    /// Returns a folder of a test's own.
    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn on_loopback_no_other_name_is_answered_whatever_is_bound() {
        for address in [([127, 0, 0, 1], 0).into(), ([0, 0, 0, 0], 0).into()] {
            let tcp = AdminListener::tcp(address).unwrap();
            let url = tcp.url().strip_prefix("http://").unwrap();
            let port = url.parse::<SocketAddr>().unwrap().port();
            let _guard = start(tcp);
            let status_for = |host: &str| {
                let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let request = format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\n\r\n");
                ask(stream, &request)[..13].to_owned()
            };
            assert_eq!(status_for("localhost"), "HTTP/1.1 200 ");
            assert_eq!(status_for("rebound.example"), "HTTP/1.1 421 ", "bound to {address}");
        }
    }

    #[test]
    fn a_client_that_has_ended_its_side_is_answered() {
        let tcp = AdminListener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let address = tcp.url().strip_prefix("http://").unwrap().to_owned();
        let _guard = start(tcp);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(ask(stream, "").ends_with("\r\n\r\nok\n"));
    }

    #[test]
    fn a_unix_socket_is_its_owners_and_is_removed_with_its_server() {
        let folder = folder("admin-unix");
        let path = folder.join("admin.sock");
        for _ in 0..2 {
            let unix = AdminListener::unix(&path).unwrap();
            assert_eq!(unix.url(), format!("unix:{}", path.display()));
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            let guard = start(unix);
            let request = "GET /healthz HTTP/1.1\r\nHost: weir.example\r\n\r\n";
            let reply = ask(UnixStream::connect(&path).unwrap(), request);
            assert!(reply.ends_with("\r\n\r\nok\n"), "{reply}");
            drop(guard);
            assert!(!path.exists());
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_was_taken_over_stays_until_its_server_has_left_it() {
        let folder = folder("admin-adopted");
        let path = folder.join("admin.sock");
        let mut last = AdminListener::unix(&path).unwrap();
        let adopt = || AdminListener::adopt(last.try_clone_socket().unwrap(), Some(&path)).unwrap();
        drop(adopt());
        assert!(path.exists(), "a successor has failed");
        let mut next = adopt();
        next.guard.arm();
        last.guard.leave();
        drop(last);
        assert!(path.exists());
        drop(next);
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_socket_in_use_is_left_and_one_that_was_left_is_replaced() {
        let folder = folder("admin-stale");
        let path = folder.join("admin.sock");
        let in_use = UnixListener::bind(&path).unwrap();
        assert_eq!(AdminListener::unix(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).is_ok(), "it is as it was");
        drop(in_use);
        let guard = AdminListener::unix(&path).unwrap();
        // Another takes its place, and stays.
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(guard);
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "not a socket").unwrap();
        assert!(AdminListener::unix(&path).is_err() && path.exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
