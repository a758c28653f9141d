//! A connection in a slot of the ring, with its operations under way.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use weir_content::OpenFile;
use weir_sys::listener::{self, Arrival};
use weir_sys::pipe::Pipe;
use weir_sys::ring::server::{Op, SendBuffer};
use weir_sys::socket;

use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::http::connection::Connection;
use crate::http::connection_io::ConnectionIo;
use crate::http::forward_io::ClientIo;
use crate::http::send::SendOutcome;
use crate::upstream::ring_io::{self, ReceiveRun};

/// A connection and its operations under way.
#[derive(Debug)]
pub(crate) struct RingConnection {
    conn: Connection,
    /// The socket while it has no slot in the ring: the connection was inspected, or is deferred.
    pub fd: Option<OwnedFd>,
    /// The receive under way.
    pub receive: Option<Op>,
    /// True if the receive was cancelled, and may be begun again.
    pub is_cancelled: bool,
    /// The course of the receive.
    pub run: ReceiveRun,
    /// Result that ended the input before it was wanted: 0, or a negative errno.
    pub ended: Option<i32>,
    /// The output operation in progress; there is at most one.
    pub send: Option<Send>,
    /// True if the close follows the send in one chain.
    pub closes_in_chain: bool,
    /// True if the connection is to be closed when that chain has ended.
    pub close_after_chain: bool,
    /// True once the kernel has refused to send without a copy.
    pub copies: bool,
    /// The range of a file that is read for the send.
    pub reading: Option<FileRead>,
    /// True if the close is to be a reset.
    pub resets: Cell<bool>,
}

/// Two buffers with the range of each to be sent; the second may be empty.
pub(crate) type BufferPair = [(SendBuffer, Range<usize>); 2];

/// An output operation on one buffer or two.
#[derive(Debug)]
pub(crate) struct Send {
    /// The operation under way; `None` while it is queued.
    pub op: Option<Op>,
    pub first: Range<usize>,
    pub second: Range<usize>,
    pub purpose: OutputOp,
    /// The buffers of a send without a copy. Its operation returns them when all has arrived, and
    /// what it leaves is sent before that.
    pub shared: Option<[SendBuffer; 2]>,
}

/// Purpose of an output operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputOp {
    /// Sends a reply.
    Reply,
    /// Shuts down the sending side.
    Shutdown,
    /// Reads a range of a file that is to be sent, if it is in memory.
    Read,
    /// Waits to read a range that is not in memory.
    Wait,
    /// Has a worker of the kernel read it.
    ReadInWorker,
}

/// A range of a file that is to be sent.
#[derive(Debug)]
pub(crate) struct FileRead {
    pub file: Arc<OpenFile>,
    /// The range, bytes.
    pub range: Range<u64>,
    /// Bytes to be sent before it, while it waits.
    pub bytes: Vec<u8>,
}

impl FileRead {
    /// Returns the number of bytes in it.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl Send {
    /// Creates an operation without bytes.
    pub(crate) fn of(op: Option<Op>, purpose: OutputOp) -> Self {
        Self { op, first: 0..0, second: 0..0, purpose, shared: None }
    }

    /// Returns the number of bytes to send.
    pub(crate) fn bytes(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// Returns what is left of the ranges after the first `bytes`.
    pub(crate) fn after(&self, bytes: usize) -> (Range<usize>, Range<usize>) {
        (skip(&self.first, bytes), skip(&self.second, bytes.saturating_sub(self.first.len())))
    }
}

/// Returns a range without its first `bytes`.
fn skip(range: &Range<usize>, bytes: usize) -> Range<usize> {
    range.start + bytes.min(range.len())..range.end
}

impl RingConnection {
    /// Creates a connection that is already in a slot of the ring.
    pub(crate) fn in_slot(peer: SocketAddr, context: &WorkerContext) -> Self {
        Self {
            conn: Connection::new(peer, false, context),
            fd: None,
            receive: None,
            is_cancelled: false,
            run: ReceiveRun::default(),
            ended: None,
            send: None,
            closes_in_chain: false,
            close_after_chain: false,
            copies: false,
            reading: None,
            resets: Cell::new(false),
        }
    }
}

impl Deref for RingConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.conn
    }
}

impl DerefMut for RingConnection {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.conn
    }
}

impl ConnectionIo for RingConnection {
    /// There is no TLS on a ring.
    fn new(fd: OwnedFd, peer: SocketAddr, _is_tls: bool, context: &WorkerContext) -> Self {
        Self { fd: Some(fd), ..Self::in_slot(peer, context) }
    }

    fn arrival(&self) -> Option<Arrival> {
        listener::arrival(self.fd.as_ref()?.as_fd()).ok()
    }

    fn reset_on_close(&self) {
        match &self.fd {
            Some(fd) => socket::reset_on_close(fd.as_fd()),
            None => self.resets.set(true),
        }
    }

    fn discard_unread(&self, scratch: &mut [u8]) {
        if let Some(fd) = &self.fd {
            let _ = socket::read_slice(fd.as_fd(), scratch);
        }
    }

    fn close(mut self, reason: CloseReason, context: &mut WorkerContext) {
        if self.conn.end(reason, context) {
            self.reset_on_close();
        }
        if let Some(fd) = self.fd {
            socket::close(fd);
        }
    }
}

/// What is received is in the input before a forwarded request looks for it, and its output is sent
/// once it waits for that.
impl ClientIo for RingConnection {
    fn splices(&self) -> bool {
        false
    }

    fn is_read_blocked(&self) -> bool {
        false
    }

    fn fill(&mut self, _context: &mut WorkerContext) -> io::Result<usize> {
        ring_io::end_of_input(self.ended)
    }

    fn write(&mut self, _context: &mut WorkerContext) -> SendOutcome {
        SendOutcome::Blocked
    }

    fn in_flight_bytes(&self) -> usize {
        self.send.as_ref().map_or(0, Send::bytes)
    }

    fn fill_pipe(
        &mut self,
        _pipe: &mut Pipe,
        _count: usize,
        _context: &mut WorkerContext,
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn drain_pipe(&mut self, _pipe: &mut Pipe, _context: &mut WorkerContext) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The kernel tells it by a completion only.
    fn unacknowledged(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_skipped_than_the_range_has() {
        assert_eq!(skip(&(2..10), 0), 2..10);
        assert_eq!(skip(&(2..10), 3), 5..10);
        assert_eq!(skip(&(2..10), 8), 10..10);
        assert_eq!(skip(&(2..10), 9), 10..10);
    }
}
