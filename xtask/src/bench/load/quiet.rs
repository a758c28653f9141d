//! Servers that say nothing: one never accepts, and one accepts and never answers. Knows no client.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::Result;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::listen;

use crate::bench::SERVER_CORE;
use crate::bench::process::free_address;
use crate::bench::stage::stay_on;

/// The listen backlog, as the servers that answer have it.
pub(super) const BACKLOG: i32 = 4096;

/// How long the loop goes without looking whether it is to stop.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

const EVENTS: usize = 1024;

/// Not a descriptor.
const LISTENER: u64 = u64::MAX;

/// How a server is quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NeverAccepts,
    NeverAnswers,
}

/// A server that says nothing; dropping it stops it.
pub(super) struct Quiet {
    pub(super) address: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    /// Where there is no thread that has it.
    _listener: Option<TcpListener>,
}

impl Quiet {
    /// Starts it, on the server's core as far as it does anything.
    pub(super) fn start(kind: Kind, first_port: u16) -> Result<Self> {
        let address = free_address(first_port)?;
        let listener = TcpListener::bind(address)?;
        listen(&listener, BACKLOG)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let (listener, thread) = match kind {
            Kind::NeverAccepts => (Some(listener), None),
            Kind::NeverAnswers => {
                let mut held = Held::new(listener)?;
                let stopped = Arc::clone(&stopped);
                (None, Some(thread::spawn(move || held.run(&stopped))))
            }
        };
        Ok(Self { address, stopped, thread, _listener: listener })
    }

    /// Stops it, and says how it went.
    pub(super) fn stop(mut self) -> Result<()> {
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        self.stopped.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        ended.unwrap_or(Ok(Ok(()))).unwrap_or_else(|_| anyhow::bail!("the quiet server fell over"))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// Connections held until their clients close them: what a client gives up must not cost the server
/// a descriptor for ever.
struct Held {
    epoll: OwnedFd,
    listener: TcpListener,
    /// By descriptor.
    connections: HashMap<u64, TcpStream>,
}

impl Held {
    fn new(listener: TcpListener) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
        Ok(Self { epoll, listener, connections: HashMap::new() })
    }

    fn run(&mut self, stopped: &AtomicBool) -> Result<()> {
        stay_on(SERVER_CORE)?;
        let mut events = Vec::with_capacity(EVENTS);
        while !stopped.load(Ordering::Relaxed) {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&TICK)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    closed => drop(self.connections.remove(&closed)),
                }
            }
        }
        Ok(())
    }

    /// Accepts all that wait, or as many as there are descriptors.
    fn accept(&mut self) -> Result<()> {
        while let Ok((connection, _)) = self.listener.accept() {
            let number = u64::try_from(connection.as_raw_fd())?;
            let data = epoll::EventData::new_u64(number);
            // Not IN: requests are never read, and would be reported over and over.
            epoll::add(&self.epoll, &connection, data, epoll::EventFlags::RDHUP)?;
            self.connections.insert(number, connection);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::time::Duration;

    #[test]
    fn neither_answers_and_both_can_be_stopped() {
        for (kind, port) in [(Kind::NeverAccepts, 19_200), (Kind::NeverAnswers, 19_300)] {
            let quiet = Quiet::start(kind, port).unwrap();
            let mut connection = TcpStream::connect(quiet.address).unwrap();
            connection.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            connection.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let error = connection.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{kind:?}");
            quiet.stop().unwrap();
        }
    }

    #[test]
    fn a_connection_that_is_given_up_is_let_go() {
        let quiet = Quiet::start(Kind::NeverAnswers, 19_400).unwrap();
        let mut connection = TcpStream::connect(quiet.address).unwrap();
        connection.write_all(b"x").unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        // The server closes too, which with an unread byte is a reset or an end: not silence.
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let read = connection.read(&mut [0]);
        assert!(!read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
}
