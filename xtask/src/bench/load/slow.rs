//! A server that answers slowly, at known times: the head of its reply comes a while after the
//! request, and the body as long after that. A client's times can be held against it, and against
//! those of another client that rounds its times. Knows no client.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use rustix::net::{Shutdown, listen, shutdown};

use super::quiet::BACKLOG;
use crate::bench::SERVER_CORE;
use crate::bench::process::free_address;
use crate::bench::stage::stay_on;

/// From the request to the head, and from the head to the body.
pub(super) const DELAY: Duration = Duration::from_millis(20);

/// How many connections are served at once.
const THREADS: usize = 256;

const STACK_BYTES: usize = 64 << 10;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n";

/// The server; dropping it stops it.
pub(super) struct Slow {
    pub(super) address: SocketAddr,
    listener: Arc<TcpListener>,
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Slow {
    /// Starts it on the server's core.
    pub(super) fn start(first_port: u16) -> Result<Self> {
        let address = free_address(first_port)?;
        let listener = Arc::new(TcpListener::bind(address)?);
        listen(&listener, BACKLOG)?;
        let (stopped, threads) = (Arc::default(), Vec::new());
        let mut slow = Self { address, listener, stopped, threads };
        for _ in 0..THREADS {
            let (listener, stopped) = (Arc::clone(&slow.listener), Arc::clone(&slow.stopped));
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            slow.threads.push(thread.spawn(move || serve(&listener, &stopped))?);
        }
        Ok(slow)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Every accept that waits ends at this.
        let _ = shutdown(&self.listener, Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stopped: &AtomicBool) {
    // Where it may not, the server is slower still, and so for every client.
    let _ = stay_on(SERVER_CORE);
    while !stopped.load(Ordering::Relaxed) {
        // A client that goes early is its own business.
        let _ = listener.accept().and_then(|(connection, _)| answer(connection));
    }
}

fn answer(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        let read = connection.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(buffer.get(..read).unwrap_or_default());
    }
    for part in [HEAD, b"x"] {
        thread::sleep(DELAY);
        connection.write_all(part)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_in_two_parts_and_the_server_can_be_stopped() {
        let slow = Slow::start(19_100).unwrap();
        let mut connection = TcpStream::connect(slow.address).unwrap();
        connection.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut reply = Vec::new();
        connection.read_to_end(&mut reply).unwrap();
        assert_eq!(reply, [HEAD, b"x"].concat());
        drop(slow);
    }
}
