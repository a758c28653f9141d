//! A socket that exists only here: the check decides what has come and what is taken of what goes
//! out. Knows nothing of what the bytes say.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use weir_server::by_hand::Socket;

/// How the client's side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was shut, behind what has come.
    Shut,
    /// It was reset.
    Reset,
}

/// One connection's socket, as the kernel has it.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    /// What has come and was not read.
    pub inbox: RefCell<VecDeque<u8>>,
    /// What was read to be understood, and not to be thrown away.
    pub taken: RefCell<Vec<u8>>,
    pub end: Cell<Option<End>>,
    /// What was written.
    pub outbox: RefCell<Vec<u8>>,
    /// Bytes that there is room for.
    pub room: Cell<usize>,
    /// The most that one call writes.
    pub write_max: Cell<usize>,
    /// A full socket takes none, and does not say that it would block.
    pub takes_none: Cell<bool>,
    /// Of the bytes written, those that the client never acknowledges.
    pub unacknowledged: Cell<u64>,
    pub is_shut: Cell<bool>,
    pub resets: Cell<bool>,
    /// Calls that may still be made before it counts as a loop without end.
    pub calls_left: Cell<usize>,
    /// A write was refused because the client has gone.
    pub has_failed: Cell<bool>,
}

impl Kernel {
    /// Whether a read would not block.
    pub(super) fn is_readable(&self) -> bool {
        !self.inbox.borrow().is_empty() || self.end.get().is_some()
    }

    /// Whether a write would not block.
    pub(super) fn is_writable(&self) -> bool {
        self.room.get() > 0 || self.end.get() == Some(End::Reset)
    }

    /// Resets the connection, which loses what was not read.
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

    /// How many of so many bytes are taken.
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

/// The server's hold of a socket.
#[derive(Clone)]
pub(super) struct Wire(pub Rc<Kernel>);

impl Socket for Wire {
    fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let received = self.0.receive(buffer.capacity() - buffer.len())?;
        buffer.extend_from_slice(&received);
        self.0.taken.borrow_mut().extend_from_slice(&received);
        Ok(received.len())
    }

    fn read_slice(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = self.0.receive(buffer.len())?;
        buffer[..received.len()].copy_from_slice(&received);
        Ok(received.len())
    }

    fn write(&self, bytes: &[u8], _more: bool) -> io::Result<usize> {
        let admitted = self.0.admit(bytes.len(), self.0.takes_none.get())?;
        self.0.outbox.borrow_mut().extend_from_slice(&bytes[..admitted]);
        Ok(admitted)
    }

    fn write_two(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        assert!(!first.is_empty() && !second.is_empty(), "two pieces, of which one is none");
        self.write(&[first, second].concat(), false)
    }

    fn send_file(&self, file: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize> {
        // None would be the end of the file.
        let mut bytes = vec![0; self.0.admit(count, false)?];
        File::from(file.try_clone_to_owned()?).read_exact_at(&mut bytes, offset)?;
        self.0.outbox.borrow_mut().extend_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn shutdown_write(&self) -> io::Result<()> {
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
