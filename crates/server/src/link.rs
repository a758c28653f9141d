//! A connection on a socket watched for readiness: makes the calls that the connection machine
//! wants, as long as they do not block. Knows neither requests nor the mechanism that watches the
//! socket.

use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weir_content::Fetch;
use weir_dispatch::readiness::Interest;
use weir_sys::listener::{self, Arrival};
use weir_sys::socket;

use crate::arch::Tenant;
use crate::close_reason::CloseReason;
use crate::conn::{Conn, Want};
use crate::output::Sent;
use crate::service::Service;
use crate::socket::Socket;

/// Event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Bytes from the client.
    Read,
    /// Room to write.
    Write,
    /// Others to be served first: it could continue at once.
    Yield,
    /// Something to be fetched from a disk.
    Fetch,
    /// Nothing: the connection is over.
    Close,
}

/// Maximum number of reads of discarded bytes in a row before others have their turn.
const LINGER_READS: usize = 16;

/// Maximum number of reads in a row, under full-read, before others have their turn.
const READS_MAX: usize = 64;

/// A connection with its socket.
#[derive(Debug)]
pub(crate) struct Link<S = OwnedFd> {
    conn: Conn,
    socket: S,
    /// Interest for which the mechanism was last told to watch it; `None` if it is not watched.
    pub registered: Option<Interest>,
    /// True if it has yielded: it is then served after others, and not because it is ready.
    pub has_yielded: bool,
    read_blocked: bool,
    write_blocked: bool,
}

impl<S> Deref for Link<S> {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.conn
    }
}

impl<S> DerefMut for Link<S> {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

impl Tenant for Link {
    fn new(fd: OwnedFd, peer: SocketAddr, service: &Service) -> Self {
        Self::on(fd, peer, service)
    }

    fn arrival(&self) -> Option<Arrival> {
        listener::arrival(self.socket.as_fd()).ok()
    }

    fn reset_on_close(&self) {
        self.socket.reset_on_close();
    }

    fn close(self, service: &mut Service) {
        socket::close(self.part(service));
    }
}

impl Link {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<S: Socket> Link<S> {
    /// Creates a connection on a socket that was just accepted.
    pub(crate) fn on(socket: S, peer: SocketAddr, service: &Service) -> Self {
        Self {
            conn: Conn::new(peer, service),
            socket,
            registered: None,
            has_yielded: false,
            read_blocked: false,
            write_blocked: false,
        }
    }

    /// Releases everything but the socket, whose close ends the connection.
    pub(crate) fn part(mut self, service: &mut Service) -> S {
        if self.conn.end(service) {
            self.socket.reset_on_close();
        }
        self.socket
    }

    /// Returns whether the last read of this turn left the socket empty, and whether the last write
    /// left it full; clears both.
    pub(crate) fn blocked(&mut self) -> (bool, bool) {
        (std::mem::take(&mut self.read_blocked), std::mem::take(&mut self.write_blocked))
    }

    /// Makes what progress it can, after the mechanism reported it ready, or right after the accept
    /// if reads are eager.
    pub(crate) fn proceed(&mut self, service: &mut Service) -> Next {
        let next = match self.conn.want() {
            Want::Read => self.read(service),
            Want::Discard => self.linger(service),
            Want::Fetch => {
                let want = self.conn.fetched(service);
                self.follow(want, service, true)
            }
            Want::Yield => {
                let want = self.conn.resume(service);
                self.follow(want, service, service.config.strategy.eager_write)
            }
            want => self.follow(want, service, true),
        };
        self.conn.rest(service);
        next
    }

    /// Returns the fetch it waits for, after [`Next::Fetch`]; once that is done, it may proceed.
    pub(crate) fn fetch(&mut self) -> Option<Fetch> {
        self.conn.fetch().cloned().or_else(|| self.conn.output()?.take_fetch())
    }

    /// Refuses the connection with a 503, whatever it asks for.
    pub(crate) fn turn_away(&mut self, service: &mut Service) -> Next {
        match self.fill(service) {
            Ok(0) => return self.close_for(CloseReason::ClientClosed),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return self.close_for(CloseReason::ClientReset),
        }
        let want = self.conn.turn_away(service);
        let next = self.follow(want, service, true);
        self.conn.rest(service);
        next
    }

    fn close_for(&mut self, reason: CloseReason) -> Next {
        self.conn.note_close(reason);
        Next::Close
    }

    /// Handles its deadline: ends or prolongs what the connection does.
    pub(crate) fn expire(&mut self, service: &mut Service) -> Next {
        let unacknowledged = if self.wants_to_write() { self.unacknowledged() } else { None };
        match self.conn.expire(unacknowledged, service) {
            Some(want) => self.follow(want, service, true),
            None => Next::Write,
        }
    }

    fn wants_to_write(&self) -> bool {
        self.conn.want() == Want::Write
    }

    fn read(&mut self, service: &mut Service) -> Next {
        for _ in 0..READS_MAX {
            let result = self.fill(service);
            if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return Next::Read;
            }
            let want = self.conn.received(&result, service);
            let next = self.follow(want, service, service.config.strategy.eager_write);
            let reads_on = next == Next::Read && self.conn.want() == Want::Read;
            if !reads_on || !service.config.strategy.full_read {
                return next;
            }
        }
        Next::Read
    }

    fn fill(&mut self, service: &mut Service) -> io::Result<usize> {
        service.counters.reads.one();
        let input = self.conn.room(service);
        let room = input.capacity() - input.len();
        let result = self.socket.read(input);
        match &result {
            Ok(bytes) => self.read_blocked = *bytes < room,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.read_blocked = true;
                service.counters.read_would_block.one();
            }
            Err(_) => {}
        }
        result
    }

    /// Does what the connection wants until it must wait. `writes`: a reply may be written now;
    /// further replies may be if writes are eager.
    fn follow(&mut self, mut want: Want, service: &mut Service, mut writes: bool) -> Next {
        loop {
            want = match want {
                Want::Read | Want::Discard => return Next::Read,
                Want::Close => return Next::Close,
                Want::Fetch => return Next::Fetch,
                Want::Yield => return Next::Yield,
                Want::Write if !writes => return Next::Write,
                Want::Write => {
                    writes = service.config.strategy.eager_write;
                    match self.write(service) {
                        Sent::Turn => return Next::Yield,
                        Sent::Blocked => return Next::Write,
                        Sent::Cold => return Next::Fetch,
                        sent => self.conn.sent(sent, service),
                    }
                }
                Want::Shutdown => {
                    let shut = self.socket.shutdown_write().is_ok();
                    self.conn.shut(shut, service)
                }
            };
        }
    }

    fn write(&mut self, service: &mut Service) -> Sent {
        let Some(output) = self.conn.output() else { return Sent::Gone };
        let sent = output.send(&self.socket, service);
        output.full_since_ns = (sent == Sent::Blocked).then(|| service.now_ns());
        self.write_blocked |= sent == Sent::Blocked;
        if matches!(sent, Sent::Blocked | Sent::Turn) && self.conn.wants_acknowledged() {
            let unacknowledged = self.unacknowledged();
            self.conn.note_acknowledged(unacknowledged.unwrap_or(0));
        }
        sent
    }

    fn linger(&mut self, service: &mut Service) -> Next {
        for _ in 0..LINGER_READS {
            match self.socket.read_slice(&mut service.scratch) {
                Ok(bytes) if self.conn.discarded(bytes) == Want::Close => return Next::Close,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.read_blocked = true;
                    return Next::Read;
                }
                Err(_) => return Next::Close,
            }
        }
        Next::Read
    }

    /// Returns the number of bytes written that have not reached the client's side. Unknown for a
    /// Unix socket, whose queue the kernel measures in memory and not in bytes.
    fn unacknowledged(&self) -> Option<u64> {
        let is_tcp = self.conn.peer() != socket::UNKNOWN_PEER;
        is_tcp.then(|| self.socket.unacknowledged().ok()).flatten()
    }
}
