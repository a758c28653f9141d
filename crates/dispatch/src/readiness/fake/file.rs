//! Fake files: sockets, listening sockets and wakers, with their poll(2) state. A change of a file
//! returns the wake-up that it causes; delivery is left to the world.

use std::os::fd::RawFd;

use super::bits::{ERR, HUP, IN, OUT, RDHUP};

/// Size of a send buffer, bytes. It counts as writable with a third of them free, as TCP's.
pub(in crate::readiness) const ROOM_MAX: usize = 6;

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::readiness) enum Kind {
    /// A connection.
    Stream,
    /// A listening socket.
    Listener,
    /// An eventfd, which can send no signals.
    Waker,
}

/// Reason why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::readiness) enum CallFailure {
    /// EWOULDBLOCK.
    Blocked,
    /// ECONNRESET, EPIPE.
    Broken,
}

/// Wake-up of the watchers of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    /// The poll bits that may have changed; 0 for any.
    pub key: u32,
    /// Poll bits carried by a signal, if one is sent.
    pub band: Option<u32>,
}

/// An open file.
#[derive(Debug)]
pub(super) struct File {
    pub kind: Kind,
    /// Number of descriptors that refer to the file, including those of other processes.
    pub descriptors: u32,
    /// True if nothing refers to the file.
    pub gone: bool,
    /// True for a Unix socket. It announces space whether or not it was seen to be full; but a
    /// signal of it needs a short write while signals were on.
    unix: bool,
    /// Queue that receives its signals, and the descriptor number that they carry.
    pub owner: Option<(usize, RawFd)>,
    /// Number of bytes to read, connections to accept, or rings.
    pub waiting: usize,
    room: usize,
    /// True if no more bytes will come.
    end: bool,
    /// True if the server's side has shut down writing.
    shut: bool,
    error: bool,
    /// True if the file was found full (SOCK_NOSPACE): space will be announced.
    full: bool,
    /// True if the same happened while signals were on (SOCKWQ_ASYNC_NOSPACE): a signal will
    /// announce it.
    full_async: bool,
}

impl File {
    pub(super) fn new(kind: Kind, unix: bool) -> Self {
        Self {
            kind,
            unix,
            descriptors: 1,
            gone: false,
            owner: None,
            waiting: 0,
            room: ROOM_MAX,
            end: false,
            shut: false,
            error: false,
            full: false,
            full_async: false,
        }
    }

    /// Returns the poll(2) bits. The query has an effect: a socket seen to be full will announce
    /// when it no longer is.
    pub(super) fn poll(&mut self) -> u32 {
        if self.kind != Kind::Stream {
            let out = if self.kind == Kind::Waker { OUT } else { 0 };
            return if self.waiting > 0 { IN | out } else { out };
        }
        if !self.shut && !self.unix && !self.is_writable() {
            self.find_full();
        }
        self.bits()
    }

    /// Returns the poll(2) bits without that effect.
    pub(super) fn bits(&self) -> u32 {
        let mut bits = 0;
        let mut set = |bit, on| bits |= if on { bit } else { 0 };
        set(IN, self.waiting > 0 || self.end);
        set(OUT, self.kind != Kind::Listener && (self.shut || self.is_writable()));
        set(RDHUP, self.end);
        set(HUP, self.end && self.shut);
        set(ERR, self.error);
        bits
    }

    fn is_writable(&self) -> bool {
        self.room * 3 >= ROOM_MAX
    }

    fn find_full(&mut self) {
        self.full = true;
        self.full_async = self.owner.is_some();
    }

    /// Adds bytes, connections or rings.
    pub(super) fn arrive(&mut self, count: usize) -> Option<Wake> {
        if self.end {
            return None;
        }
        self.waiting += count;
        Some(Wake { key: IN, band: Some(IN) })
    }

    /// Ends the peer's side: signalled like bytes, unless ours has ended before.
    pub(super) fn finish(&mut self) -> Option<Wake> {
        if self.end {
            return None;
        }
        self.end = true;
        let band = if self.shut { HUP | ERR } else { IN };
        Some(Wake { key: 0, band: Some(band) })
    }

    /// Closes a Unix peer's socket: nothing can be sent either.
    pub(super) fn hang_up(&mut self) -> Option<Wake> {
        if self.end && self.shut {
            return None;
        }
        (self.end, self.shut) = (true, true);
        Some(Wake { key: 0, band: Some(HUP | ERR) })
    }

    /// Resets the connection by the peer; unread bytes are lost.
    pub(super) fn reset(&mut self) -> Option<Wake> {
        if self.end && self.shut {
            return None;
        }
        (self.end, self.shut, self.error, self.waiting) = (true, true, true, 0);
        Some(Wake { key: ERR, band: Some(ERR) })
    }

    /// Drains bytes on the peer's side.
    pub(super) fn drain(&mut self, count: usize) -> Option<Wake> {
        self.room = ROOM_MAX.min(self.room + count);
        if !(self.full || self.unix) || !self.is_writable() || self.shut {
            return None;
        }
        let band = self.full_async.then_some(OUT);
        (self.full, self.full_async) = (false, false);
        Some(Wake { key: OUT, band })
    }

    /// Ends our side; sends no signal.
    pub(super) fn shut(&mut self) -> Wake {
        self.shut = true;
        Wake { key: 0, band: None }
    }

    /// read(2), accept(2).
    pub(super) fn take(&mut self, count: usize) -> Result<usize, CallFailure> {
        if std::mem::take(&mut self.error) {
            return Err(CallFailure::Broken);
        }
        if self.waiting == 0 && !self.end {
            return Err(CallFailure::Blocked);
        }
        let taken = count.min(self.waiting);
        self.waiting -= taken;
        Ok(taken)
    }

    /// write(2).
    pub(super) fn put(&mut self, count: usize) -> Result<usize, CallFailure> {
        if self.shut {
            return Err(CallFailure::Broken);
        }
        let put = count.min(self.room);
        self.room -= put;
        if put < count {
            self.find_full();
        }
        if put == 0 { Err(CallFailure::Blocked) } else { Ok(put) }
    }
}
