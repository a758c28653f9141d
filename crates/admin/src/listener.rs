//! The socket of the admin address, and the thread that answers on it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::exchange;
use super::{Lifecycle, Resources};

/// Time limit of a read or a write of a client: one that says nothing holds up the next for no
/// longer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after a failed accept: most often there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Mode of a Unix socket: its owner and group may connect.
const MODE: u32 = 0o660;

/// A socket that listens on an admin address.
#[derive(Debug)]
pub struct AdminListener {
    socket: Socket,
    /// True if programs of this machine alone can reach it, browsers among them.
    checks_host: bool,
    /// The file of a Unix socket.
    file: SocketFile,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AdminListener {
    /// Listens on a TCP address.
    ///
    /// # Errors
    /// The address is in use, or is not this machine's.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::Tcp(TcpListener::bind(address)?);
        let file = SocketFile::default();
        Ok(Self { socket, checks_host: address.ip().is_loopback(), file })
    }

    /// Listens on a Unix socket, in place of one that a server has left behind.
    ///
    /// # Errors
    /// Another file is there, or the socket cannot be made.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let is_left_behind = fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket())
            && UnixStream::connect(path).is_err();
        if is_left_behind {
            fs::remove_file(path)?;
        }
        let socket = Socket::Unix(UnixListener::bind(path)?);
        let file = SocketFile(Some(path.to_path_buf()));
        fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
        Ok(Self { socket, checks_host: false, file })
    }

    /// Returns the address with its port, as a URL.
    pub fn url(&self) -> String {
        match &self.socket {
            Socket::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("http://{address}"),
                Err(_) => "http://?".into(),
            },
            Socket::Unix(_) => {
                let path = self.file.0.as_deref().unwrap_or(Path::new("?"));
                format!("unix:{}", path.display())
            }
        }
    }

    /// Begins to answer, until the process ends. Returns a guard that removes a Unix socket's file.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(mut self, lifecycle: &Lifecycle) -> io::Result<SocketFile> {
        let file = std::mem::take(&mut self.file);
        let mut resources = Resources::new(lifecycle.clone());
        thread::Builder::new().name("admin".to_owned()).spawn(move || {
            loop {
                if self.answer_next(&mut resources).is_err() {
                    thread::sleep(PAUSE);
                }
            }
        })?;
        Ok(file)
    }

    /// Accepts a connection and answers one request on it. A client that goes, or is slow, gets
    /// nothing: it is not the server's.
    fn answer_next(&self, resources: &mut Resources) -> io::Result<()> {
        let mut stream = self.accept()?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        if let Some(bytes) = exchange::answer(&mut stream, resources, self.checks_host)
            && stream.write_all(&bytes).is_ok()
            && stream.shutdown(Shutdown::Write).is_ok()
        {
            // A close before what the client still sends is read would reset the reply.
            let _ = stream.read(&mut [0; 4096]);
        }
        Ok(())
    }

    /// Accepts a connection. Reads, writes, time limits and shutdowns are the same on both kinds.
    fn accept(&self) -> io::Result<TcpStream> {
        match &self.socket {
            Socket::Tcp(listener) => Ok(listener.accept()?.0),
            Socket::Unix(listener) => Ok(TcpStream::from(OwnedFd::from(listener.accept()?.0))),
        }
    }
}

/// File of a Unix socket, removed when dropped.
#[derive(Debug, Default)]
pub struct SocketFile(Option<PathBuf>);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(mut stream: impl Read + Write, request: &str) -> String {
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    #[test]
    fn it_answers_on_tcp_and_on_unix_sockets() {
        let lifecycle = Lifecycle::default();
        let tcp = AdminListener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let address = tcp.url().strip_prefix("http://").unwrap().to_owned();
        let _tcp = tcp.start(&lifecycle).unwrap();
        let stream = TcpStream::connect(&address).unwrap();
        let reply = ask(stream, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\nready\n"));

        let folder = std::env::temp_dir().join(format!("weir-admin-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("admin.sock");
        for _ in 0..2 {
            let unix = AdminListener::unix(&path).unwrap();
            assert_eq!(unix.url(), format!("unix:{}", path.display()));
            let file = unix.start(&lifecycle).unwrap();
            let reply = ask(UnixStream::connect(&path).unwrap(), "GET /healthz HTTP/1.0\r\n\r\n");
            assert!(reply.ends_with("\r\n\r\nok\n"), "{reply}");
            drop(file);
            assert!(!path.exists());
        }
        fs::write(&path, "not a socket").unwrap();
        assert!(AdminListener::unix(&path).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
