//! Source of hints: one edge-triggered epoll instance, in which each descriptor is registered once,
//! for all events of select(2).
//!
//! A generation distinguishes a reused number from its predecessor, because a file that lives on
//! under another descriptor continues to announce itself under the old number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::epoll::{Event, EventFlags};

use crate::readiness::kernel::{EpollSet, Kernel};

/// Maximum number of hints per call.
const EVENTS_MAX: usize = 4096;

/// All events of select(2) (`POLLIN_SET`, `POLLOUT_SET`, `POLLEX_SET` in fs/select.c), so that an
/// event's flags are a complete answer. The end of the peer's bytes is IN there too.
const ASKED: EventFlags = EventFlags::IN
    .union(EventFlags::RDNORM)
    .union(EventFlags::RDBAND)
    .union(EventFlags::OUT)
    .union(EventFlags::WRNORM)
    .union(EventFlags::WRBAND)
    .union(EventFlags::PRI)
    .union(EventFlags::ET);

/// A hint, with the state that the kernel found when it was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hint {
    pub fd: RawFd,
    /// Poll(2) bits.
    pub revents: u32,
}

/// The hints for one set of descriptors.
pub(super) struct Hints<K: Kernel> {
    epoll: K::Epoll,
    events: Vec<Event>,
    numbers: Vec<Number>,
    /// Hints for descriptors that had gone.
    pub stale: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Number {
    generation: u32,
    registered: bool,
}

impl<K: Kernel> Hints<K> {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            epoll: K::Epoll::open()?,
            events: Vec::with_capacity(EVENTS_MAX),
            numbers: Vec::new(),
            stale: 0,
        })
    }

    pub(super) fn is_registered(&self, fd: RawFd) -> bool {
        self.numbers.get(fd as usize).is_some_and(|number| number.registered)
    }

    /// Registers a descriptor. Returns false when no hint can ever come: epoll refuses files
    /// without a poll function of their own, such as regular files and directories.
    pub(super) fn register(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let data = self.data(fd.as_raw_fd());
        let added = self.epoll.add(fd, data, ASKED);
        self.registered(fd.as_raw_fd(), added, |epoll| epoll.modify(fd, data, ASKED))
    }

    /// Registers a descriptor by number, like [`register`](Self::register).
    pub(super) fn register_raw(&mut self, fd: RawFd) -> io::Result<bool> {
        let data = self.data(fd);
        let added = self.epoll.add_raw(fd, data, ASKED);
        self.registered(fd, added, |epoll| epoll.modify_raw(fd, data, ASKED))
    }

    /// Processes the result of a registration. The same file may still be registered under this
    /// number from before the number was closed, if it lived on under another: then it gets the new
    /// generation.
    fn registered(
        &mut self,
        fd: RawFd,
        added: io::Result<()>,
        modify: impl FnOnce(&K::Epoll) -> io::Result<()>,
    ) -> io::Result<bool> {
        let announced = match added {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                modify(&self.epoll)?;
                true
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
            Err(error) => return Err(error),
        };
        self.number(fd).registered = true;
        Ok(announced)
    }

    /// Ends the association of a number with its present file.
    pub(super) fn forget(&mut self, fd: RawFd) {
        let number = self.number(fd);
        number.generation = number.generation.wrapping_add(1);
        number.registered = false;
    }

    /// Removes a descriptor whose file may live on elsewhere.
    pub(super) fn delete(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.delete(fd)
    }

    /// Waits up to `timeout` for a hint, and takes all available ones. Returns whether there may be
    /// more.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        self.epoll.wait(&mut self.events, timeout)?;
        Ok(self.events.len() == EVENTS_MAX)
    }

    /// Number of hints taken by the last wait.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns a hint taken by the last wait; `None` if its descriptor had gone.
    pub(super) fn get(&mut self, index: usize) -> Option<Hint> {
        let Event { data, flags } = self.events[index];
        let (fd, generation) = (data.u64() as u32, (data.u64() >> 32) as u32);
        let number = self.numbers.get(fd as usize)?;
        if !number.registered || number.generation != generation {
            self.stale += 1;
            return None;
        }
        Some(Hint { fd: fd as RawFd, revents: flags.bits() })
    }

    fn data(&mut self, fd: RawFd) -> u64 {
        u64::from(self.number(fd).generation) << 32 | u64::from(fd as u32)
    }

    fn number(&mut self, fd: RawFd) -> &mut Number {
        let index = fd as usize;
        if index >= self.numbers.len() {
            self.numbers.resize(index + 1, Number::default());
        }
        &mut self.numbers[index]
    }
}
