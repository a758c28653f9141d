//! A simulated socket: the check decides which bytes have arrived and how many outgoing bytes are
//! taken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use rustix::io::Errno;
use weir_server::test_support::Socket;

/// End of the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Shut down, behind the bytes that have arrived.
    Shut,
    /// Reset.
    Reset,
}

/// A connection's socket in the kernel.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// Bytes that have arrived and were not read.
    pub inbox: RefCell<VecDeque<u8>>,
    /// Bytes read to be parsed, and not to be discarded.
    pub taken: RefCell<Vec<u8>>,
    pub end: Cell<Option<End>>,
    /// Bytes written.
    pub outbox: RefCell<Vec<u8>>,
    /// Number of bytes there is room for.
    pub room: Cell<usize>,
    /// Maximum number of bytes per write.
    pub write_max: Cell<usize>,
    /// True if a full socket accepts zero bytes instead of returning EWOULDBLOCK.
    pub takes_none: Cell<bool>,
    /// Number of written bytes that the client never acknowledges.
    pub unacknowledged: Cell<u64>,
    pub is_corked: Cell<bool>,
    pub is_shut: Cell<bool>,
    pub resets: Cell<bool>,
    /// Number of calls left before it counts as an endless loop.
    pub calls_left: Cell<usize>,
    /// True once a write failed because the client has gone.
    pub has_failed: Cell<bool>,
    /// True if no file can be read any more.
    pub has_disk_failed: Cell<bool>,
}

impl Kernel {
    /// Returns whether a read would not block.
    pub(super) fn is_readable(&self) -> bool {
        !self.inbox.borrow().is_empty() || self.end.get().is_some()
    }

    /// Returns whether a write would not block.
    pub(super) fn is_writable(&self) -> bool {
        self.room.get() > 0 || self.end.get() == Some(End::Reset)
    }

    /// Resets the connection, which discards unread bytes.
    pub(super) fn reset(&self) {
        self.inbox.borrow_mut().clear();
        self.end.set(Some(End::Reset));
    }

    fn count_call(&self) {
        let left = self.calls_left.get().checked_sub(1);
        self.calls_left.set(left.expect("fewer calls: this has no end"));
    }

    fn receive(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        self.count_call();
        assert!(bytes_max > 0, "a read without room looks like the end");
        let mut inbox = self.inbox.borrow_mut();
        let bytes = bytes_max.min(inbox.len());
        match self.end.get() {
            _ if bytes > 0 => Ok(inbox.drain(..bytes).collect()),
            Some(End::Shut) => Ok(Vec::new()),
            Some(End::Reset) => Err(ErrorKind::ConnectionReset.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Returns how many of `bytes` are accepted.
    fn admit(&self, bytes: usize, takes_none: bool) -> io::Result<usize> {
        self.count_call();
        assert!(bytes > 0, "a write of nothing");
        assert!(!self.is_shut.get(), "a write after the shutdown");
        if self.end.get() == Some(End::Reset) {
            self.has_failed.set(true);
            return Err(ErrorKind::BrokenPipe.into());
        }
        let admitted = bytes.min(self.room.get()).min(self.write_max.get());
        if admitted == 0 && !takes_none {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.room.set(self.room.get() - admitted);
        Ok(admitted)
    }
}

/// The server's handle of a socket.
#[derive(Clone)]
pub(super) struct FakeSocket(pub Rc<Kernel>);

impl Socket for FakeSocket {
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let received = self.0.receive(buffer.capacity() - buffer.len())?;
        buffer.extend_from_slice(&received);
        self.0.taken.borrow_mut().extend_from_slice(&received);
        Ok(received.len())
    }

    fn read_slice(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = self.0.receive(buffer.len())?;
        buffer[..received.len()].copy_from_slice(&received);
        Ok(received.len())
    }

    fn write(&mut self, bytes: &[u8], _more: bool) -> io::Result<usize> {
        let admitted = self.0.admit(bytes.len(), self.0.takes_none.get())?;
        self.0.outbox.borrow_mut().extend_from_slice(&bytes[..admitted]);
        Ok(admitted)
    }

    fn set_cork(&self, on: bool) {
        self.0.count_call();
        assert!(self.0.is_corked.replace(on) != on, "a cork that changes nothing");
    }

    fn write_two(&mut self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        assert!(!first.is_empty() && !second.is_empty(), "two pieces, of which one is none");
        self.write(&[first, second].concat(), false)
    }

    fn send_file(&mut self, file: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize> {
        if self.0.has_disk_failed.get() {
            return Err(Errno::IO.into());
        }
        // None would be the end of the file.
        let mut bytes = vec![0; self.0.admit(count, false)?];
        File::from(file.try_clone_to_owned()?).read_exact_at(&mut bytes, offset)?;
        self.0.outbox.borrow_mut().extend_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.0.count_call();
        assert!(!self.0.is_shut.replace(true), "a second shutdown");
        match self.0.end.get() {
            Some(End::Reset) => Err(ErrorKind::NotConnected.into()),
            _ => Ok(()),
        }
    }

    fn reset_on_close(&self) {
        self.0.resets.set(true);
    }

    fn unacknowledged(&self) -> io::Result<u64> {
        Ok(self.0.unacknowledged.get().min(self.0.outbox.borrow().len() as u64))
    }
}
