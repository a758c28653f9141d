//! Fake epoll(7): a list of items that may be ready, rechecked on delivery, so that a closed file
//! is never reported.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::epoll::{Event, EventData, EventFlags};
use weir_sys::ring::Change;

use super::super::kernel::EpollSet;
use super::bits::{ALWAYS, EBADF, EEXIST, EINVAL, ENOENT, ENOMEM, IN, OUT, errno};
use super::epoll_set::{Item, Set};
use super::world::{World, world};

/// A set, by its number in the world.
#[derive(Debug)]
pub(in crate::readiness) struct FakeEpoll(pub(super) usize);

impl World {
    /// Performs epoll_ctl(2); returns 0 or an errno.
    pub(super) fn epoll_ctl(
        &mut self,
        set: usize,
        change: Change,
        number: RawFd,
        (data, flags): (u64, EventFlags),
    ) -> i32 {
        let Some(&file) = self.numbers.get(&number) else { return EBADF };
        let place = self.epolls[set].place(number, file);
        let item = Item { number, file, data, flags, listed: true };
        match (change, place) {
            (Change::Add, None) => self.epoll_add(set, item),
            (Change::Add, Some(_)) => EEXIST,
            (_, None) => ENOENT,
            (Change::Modify, Some(at)) => self.epoll_modify(set, at, item),
            (Change::Delete, Some(at)) => {
                self.epolls[set].items.remove(at);
                0
            }
        }
    }

    fn epoll_add(&mut self, set: usize, item: Item) -> i32 {
        let excluded = EventFlags::RDHUP | EventFlags::ONESHOT;
        if item.flags.contains(EventFlags::EXCLUSIVE) && item.flags.intersects(excluded) {
            return EINVAL;
        }
        if self.misbehaves(32) {
            return ENOMEM;
        }
        self.files[item.file].poll();
        self.epolls[set].items.push(item);
        0
    }

    fn epoll_modify(&mut self, set: usize, at: usize, item: Item) -> i32 {
        let exclusive = EventFlags::EXCLUSIVE;
        let before = &mut self.epolls[set].items[at];
        if before.flags.contains(exclusive) || item.flags.contains(exclusive) {
            return EINVAL;
        }
        *before = item;
        self.files[item.file].poll();
        0
    }

    /// Delivers up to `max` events. Unless `patient`, some are held back for later.
    fn epoll_events(&mut self, set: usize, max: usize, patient: bool) -> Option<Vec<Event>> {
        let mut order: Vec<usize> = (0..self.epolls[set].items.len()).collect();
        if !self.honest {
            self.rng.shuffle(&mut order);
        }
        let max = if self.misbehaves(4) { 1 } else { max };
        let mut events = Vec::new();
        for at in order {
            let hold = !patient && self.rng.one_in(4);
            if hold || events.len() == max {
                continue;
            }
            events.extend(self.epoll_event(set, at));
        }
        // The next check begins where this one ended, so that no item is passed over for ever.
        self.epolls[set].items.rotate_left(usize::from(!events.is_empty()));
        (!events.is_empty()).then_some(events)
    }

    fn epoll_event(&mut self, set: usize, at: usize) -> Option<Event> {
        let item = self.epolls[set].items[at];
        let asked = item.flags.bits() & 0xffff | ALWAYS;
        let mut bits = 0;
        if item.listed {
            bits = self.files[item.file].poll() & asked;
            let edge = item.flags.contains(EventFlags::ET);
            self.epolls[set].items[at].listed = bits != 0 && !edge;
        }
        if self.misbehaves(64) {
            bits |= (IN | OUT) & asked;
        }
        let once = item.flags.contains(EventFlags::ONESHOT) && bits != 0;
        if once {
            self.epolls[set].items[at].flags = EventFlags::ONESHOT;
        }
        let flags = EventFlags::from_bits_retain(bits);
        (bits != 0).then(|| Event { flags, data: EventData::new_u64(item.data) })
    }
}

impl FakeEpoll {
    fn ctl(&self, change: Change, fd: RawFd, asked: (u64, EventFlags)) -> io::Result<()> {
        errno(world(|w| w.epoll_ctl(self.0, change, fd, asked)))
    }
}

impl EpollSet for FakeEpoll {
    fn open() -> io::Result<Self> {
        world(|w| {
            w.epolls.push(Set::default());
            Ok(Self(w.epolls.len() - 1))
        })
    }

    fn add(&self, fd: BorrowedFd<'_>, data: u64, flags: EventFlags) -> io::Result<()> {
        self.add_raw(fd.as_raw_fd(), data, flags)
    }

    fn modify(&self, fd: BorrowedFd<'_>, data: u64, flags: EventFlags) -> io::Result<()> {
        self.modify_raw(fd.as_raw_fd(), data, flags)
    }

    fn delete(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.delete_raw(fd.as_raw_fd())
    }

    fn add_raw(&self, fd: RawFd, data: u64, flags: EventFlags) -> io::Result<()> {
        self.ctl(Change::Add, fd, (data, flags))
    }

    fn modify_raw(&self, fd: RawFd, data: u64, flags: EventFlags) -> io::Result<()> {
        self.ctl(Change::Modify, fd, (data, flags))
    }

    fn delete_raw(&self, fd: RawFd) -> io::Result<()> {
        self.ctl(Change::Delete, fd, (0, EventFlags::empty()))
    }

    fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        let max = events.capacity();
        let attempt = |w: &mut World, patient| w.epoll_events(self.0, max, patient);
        events.extend(world(|w| w.wait(timeout, attempt)).unwrap_or_default());
        Ok(())
    }
}
