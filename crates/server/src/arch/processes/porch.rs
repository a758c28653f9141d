//! The wait of a child for the listening sockets that it shares with its siblings: epoll(7) with
//! EPOLLEXCLUSIVE, so that a connection wakes one of the sleeping children and not all of them.
//! Accepts no connection itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use weir_sys::epoll::{self, Event, EventFlags};
use weir_sys::poll::{POLLIN, PollFd};

use crate::arch::threads::doors::Knocks;
use crate::arch::threads::group::Group;
use crate::arch::threads::wait::sleep;

/// Event data of the line; that of a listener is its index.
const LINE: u64 = u64::MAX;

const SHARED: EventFlags = EventFlags::IN.union(EventFlags::EXCLUSIVE);

/// The listeners and the line to the keeper.
pub(super) struct Porch {
    epoll: OwnedFd,
    events: Vec<Event>,
    pub(super) knocks: Knocks,
}

impl Porch {
    /// Registers the listeners of a group, which stay until the server stops.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM, ENOSPC: epoll_create1(2), epoll_ctl(2).
    pub(super) fn new(group: &Group, line: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create()?;
        epoll::add(epoll.as_fd(), line, LINE, EventFlags::IN)?;
        for (index, listener) in (0..).zip(&group.floor.listeners) {
            epoll::add(epoll.as_fd(), listener.fd(), index, SHARED)?;
        }
        let events = Vec::with_capacity(1 + group.floor.listeners.len());
        Ok(Self { epoll, events, knocks: Knocks::default() })
    }

    /// Waits until a listener is ready or the line has a message; returns whether the line has one.
    /// Waits for the line alone while accepting is paused.
    pub(super) fn wait(
        &mut self,
        group: &Group,
        line: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> bool {
        self.knocks.listeners.clear();
        if group.floor.listeners.iter().any(|listener| listener.watched) {
            return self.wait_for_all(group.undrained, timeout);
        }
        let mut fds = [PollFd { fd: line.as_raw_fd(), events: POLLIN, revents: 0 }];
        self.knocks.wait(false, timeout, |timeout| sleep(&mut fds, timeout));
        fds[0].revents != 0
    }

    fn wait_for_all(&mut self, glances: bool, timeout: Option<Duration>) -> bool {
        let (epoll, events) = (self.epoll.as_fd(), &mut self.events);
        self.knocks.wait(glances, timeout, |timeout| {
            if epoll::wait(epoll, events, timeout).is_err() {
                // Only want of memory can be the reason, and pass.
                std::thread::sleep(Duration::from_millis(10));
            }
            events.len()
        });
        let called = self.events.iter().map(|event| event.data.u64());
        let knocked = called.filter_map(|index| usize::try_from(index).ok());
        self.knocks.listeners.extend(knocked.filter(|&index| index as u64 != LINE));
        self.events.iter().any(|event| event.data.u64() == LINE)
    }
}
