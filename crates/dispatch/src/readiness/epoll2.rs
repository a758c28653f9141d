//! `epoll2`: level-triggered epoll, registered once for both reading and writing. Two epoll_ctl
//! calls per connection, whatever it does; the price is that an idle connection, being writable, is
//! reported at every wait (gammo-epoll §3 and fig. 5), so that a wait never sleeps while one is
//! open.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use weir_sys::epoll::{Event, EventFlags};

use super::deletions::Deletions;
use super::epoll_lt::EVENTS_MAX;
use super::kernel::{EpollSet, Kernel, Linux};
use super::settings::Settings;
use super::{Counts, Interest, Mechanism, PerSlot, Token};

/// The interest set, kept by the kernel, and the actual interest of each member.
pub struct Epoll2<K: Kernel = Linux> {
    epoll: K::Epoll,
    events: Vec<Event>,
    wanted: PerSlot<(u32, Interest)>,
    deletions: Deletions,
}

impl<K: Kernel> Epoll2<K> {
    /// Returns whether a member waits for an event; the kernel does not know.
    fn concerns(&mut self, token: Token, flags: EventFlags) -> bool {
        let (generation, interest) = *self.wanted.at(token.slot);
        let trouble = EventFlags::ERR | EventFlags::HUP;
        generation == token.generation
            && match interest {
                Interest::Nothing => false,
                Interest::Read | Interest::Accept => flags.intersects(EventFlags::IN | trouble),
                Interest::Write => flags.intersects(EventFlags::OUT | trouble),
                Interest::Either => !flags.is_empty(),
            }
    }
}

impl<K: Kernel> Mechanism for Epoll2<K> {
    fn open(_: &Settings) -> io::Result<Self> {
        Ok(Self {
            epoll: K::Epoll::open()?,
            events: Vec::with_capacity(EVENTS_MAX),
            wanted: PerSlot::default(),
            deletions: Deletions::default(),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        // A member that is never written to must not be registered for writing: an eventfd is
        // always writable, and a loop without connections would spin.
        let out = if interest == Interest::Accept { EventFlags::empty() } else { EventFlags::OUT };
        self.epoll.add(fd, token.pack(), EventFlags::IN | out)?;
        self.change(fd, token, interest)
    }

    fn change(&mut self, _: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        *self.wanted.at(token.slot) = (token.generation, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        *self.wanted.at(token.slot) = (token.generation, Interest::Nothing);
        // The second of the two calls, for connections too.
        self.deletions.remove(&self.epoll, fd, true)
    }

    fn blocked(&mut self, _: Token, _: Interest) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        self.epoll.wait(&mut self.events, timeout)?;
        for index in 0..self.events.len() {
            let Event { data, flags } = self.events[index];
            let token = Token::unpack(data.u64());
            if self.concerns(token, flags) {
                ready.push(token);
            }
        }
        Ok(self.events.len())
    }

    fn counts(&self) -> Counts {
        self.deletions.counts()
    }
}
