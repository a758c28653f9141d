//! The loop that drives the connections of one server: events from epoll(7), timers from a heap.
//!
//! Connections are edge-triggered and registered once. A step does all that can be done, so no edge
//! is missed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, ErrorKind, PipeReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::connection::{Connection, Next};
use super::script::Script;

const STOP: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

/// Counters of a server.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) accepted: AtomicU64,
    pub(super) requests: AtomicU64,
}

/// Event loop of a server.
pub(super) struct Loop {
    epoll: OwnedFd,
    listener: TcpListener,
    /// Read end of a pipe whose other end is closed when the server is dropped.
    _stop: PipeReader,
    scripts: Vec<Script>,
    counters: Arc<Counters>,
    start: Instant,
    /// Connections by number, from 0 in the order they were accepted.
    connections: HashMap<u64, Connection>,
    /// Times and connections to wake. A connection that has gone may still be in it.
    timers: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Loop {
    /// Creates a loop for the connections of a non-blocking listener.
    pub(super) fn new(
        listener: TcpListener,
        stop: PipeReader,
        scripts: Vec<Script>,
        counters: Arc<Counters>,
    ) -> io::Result<Loop> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)?;
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, epoll::EventFlags::IN)?;
        Ok(Loop {
            epoll,
            listener,
            _stop: stop,
            scripts,
            counters,
            start: Instant::now(),
            connections: HashMap::new(),
            timers: BinaryHeap::new(),
        })
    }

    /// Serves until the server is dropped.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        loop {
            self.wait()?;
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&Timespec::default()))?;
            for event in &events {
                match event.data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    number => self.step(number),
                }
            }
            while let Some(Reverse((at, number))) = self.timers.peek().copied()
                && at <= Instant::now()
            {
                self.timers.pop();
                self.step(number);
            }
        }
    }

    /// Waits for an event or the next timer, by ppoll(2), which counts nanoseconds where
    /// epoll_wait(2) counts milliseconds.
    fn wait(&self) -> io::Result<()> {
        let timeout = self.timers.peek().map(|Reverse((at, _))| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Accepts all waiting connections.
    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            let number = self.counters.accepted.fetch_add(1, Ordering::Relaxed);
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let script = self.scripts[number as usize % self.scripts.len()];
            let connection = Connection::new(stream, script);
            let interest = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(number);
            epoll::add(&self.epoll, connection.stream(), data, interest)?;
            self.connections.insert(number, connection);
            self.step(number);
        }
    }

    /// Lets a connection do what it can, and drops it when it is over.
    fn step(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        match connection.step(self.start, Instant::now(), &self.counters.requests) {
            Next::Wake(Some(at)) => self.timers.push(Reverse((at, number))),
            Next::Wake(None) => {}
            Next::Gone => _ = self.connections.remove(&number),
        }
    }
}
