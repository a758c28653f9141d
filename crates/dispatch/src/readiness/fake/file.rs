//! Fake files: sockets, listening sockets and bells, with what poll(2) says of each. A change of
//! one gives back the wake-up it causes; who hears it is not known here.

use std::os::fd::RawFd;

use super::{ERR, HUP, IN, OUT, RDHUP};

/// How many bytes a send buffer takes. It counts as writable with a third of them free, as TCP's.
pub(in crate::readiness) const ROOM_MAX: usize = 6;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::readiness) enum Kind {
    /// A connection.
    Stream,
    /// A listening socket.
    Listener,
    /// An eventfd, which can send no signals.
    Bell,
}

/// Why a call did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::readiness) enum Refused {
    /// EWOULDBLOCK.
    Blocked,
    /// ECONNRESET, EPIPE.
    Broken,
}

/// What those who watch a file are woken with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    /// The poll bits that may have changed; 0 for any.
    pub key: u32,
    /// What a signal would tell, if one is sent.
    pub band: Option<u32>,
}

/// One open file.
#[derive(Debug)]
pub(super) struct File {
    pub kind: Kind,
    /// How many descriptors refer to it, those of other processes among them.
    pub descriptors: u32,
    /// Nobody refers to it.
    pub gone: bool,
    /// A Unix socket tells of room whether or not it was seen to be full; but a signal of it needs
    /// a write that fell short while signals were on.
    unix: bool,
    /// Whose signals it sends, and as which descriptor.
    pub owner: Option<(usize, RawFd)>,
    /// Bytes to read, connections to accept, or rings.
    pub waiting: usize,
    room: usize,
    /// No more bytes will come.
    end: bool,
    /// We have ended our side.
    shut: bool,
    error: bool,
    /// It was found full (SOCK_NOSPACE): room will be announced.
    full: bool,
    /// The same while signals were on (SOCKWQ_ASYNC_NOSPACE): a signal will tell.
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

    /// What poll(2) says. Asking is not without effect: a socket seen to be full will tell when it
    /// no longer is.
    pub(super) fn poll(&mut self) -> u32 {
        if self.kind != Kind::Stream {
            let out = if self.kind == Kind::Bell { OUT } else { 0 };
            return if self.waiting > 0 { IN | out } else { out };
        }
        if !self.shut && !self.unix && !self.is_writable() {
            self.find_full();
        }
        self.bits()
    }

    /// The same without effect.
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

    /// Bytes, connections or rings come.
    pub(super) fn arrive(&mut self, count: usize) -> Option<Wake> {
        if self.end {
            return None;
        }
        self.waiting += count;
        Some(Wake { key: IN, band: Some(IN) })
    }

    /// The peer ends its side: a signal tells it like bytes, unless ours has ended before.
    pub(super) fn finish(&mut self) -> Option<Wake> {
        if self.end {
            return None;
        }
        self.end = true;
        let band = if self.shut { HUP | ERR } else { IN };
        Some(Wake { key: 0, band: Some(band) })
    }

    /// A Unix peer closes its socket: nothing can be sent either.
    pub(super) fn hang_up(&mut self) -> Option<Wake> {
        if self.end && self.shut {
            return None;
        }
        (self.end, self.shut) = (true, true);
        Some(Wake { key: 0, band: Some(HUP | ERR) })
    }

    /// The peer resets the connection; what was not read is lost.
    pub(super) fn reset(&mut self) -> Option<Wake> {
        if self.end && self.shut {
            return None;
        }
        (self.end, self.shut, self.error, self.waiting) = (true, true, true, 0);
        Some(Wake { key: ERR, band: Some(ERR) })
    }

    /// The peer takes bytes in.
    pub(super) fn drain(&mut self, count: usize) -> Option<Wake> {
        self.room = ROOM_MAX.min(self.room + count);
        if !(self.full || self.unix) || !self.is_writable() || self.shut {
            return None;
        }
        let band = self.full_async.then_some(OUT);
        (self.full, self.full_async) = (false, false);
        Some(Wake { key: OUT, band })
    }

    /// We end our side; no signal comes of it.
    pub(super) fn shut(&mut self) -> Wake {
        self.shut = true;
        Wake { key: 0, band: None }
    }

    /// read(2), accept(2).
    pub(super) fn take(&mut self, count: usize) -> Result<usize, Refused> {
        if std::mem::take(&mut self.error) {
            return Err(Refused::Broken);
        }
        if self.waiting == 0 && !self.end {
            return Err(Refused::Blocked);
        }
        let taken = count.min(self.waiting);
        self.waiting -= taken;
        Ok(taken)
    }

    /// write(2).
    pub(super) fn put(&mut self, count: usize) -> Result<usize, Refused> {
        if self.shut {
            return Err(Refused::Broken);
        }
        let put = count.min(self.room);
        self.room -= put;
        if put < count {
            self.find_full();
        }
        if put == 0 { Err(Refused::Blocked) } else { Ok(put) }
    }
}
