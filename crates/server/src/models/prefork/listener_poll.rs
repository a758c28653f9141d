//! The wait of a child for the listening sockets that it shares with its siblings: epoll(7) with
//! EPOLLEXCLUSIVE, so that a connection wakes one of the sleeping children and not all of them.
//! Accepts no connection itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use weir_sys::epoll::{self, Event, EventFlags};
use weir_sys::poll::{POLLIN, PollFd};

use crate::models::thread_per_connection::model::GroupWorker;
use crate::models::thread_per_connection::park::{PollResult, poll};

/// Event data of the channel; that of a listener is its index.
const CHANNEL: u64 = u64::MAX;

const SHARED: EventFlags = EventFlags::IN.union(EventFlags::EXCLUSIVE);

/// The listeners and the channel to the master.
pub(super) struct SharedListenerPoll {
    epoll: OwnedFd,
    events: Vec<Event>,
    /// True if the next wait is to report each listener, and not to sleep.
    looks_at_all: bool,
    pub(super) result: PollResult,
}

impl SharedListenerPoll {
    /// Registers the listeners of a worker, which stay registered until the server stops.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM, ENOSPC: epoll_create1(2), epoll_ctl(2).
    pub(super) fn new(worker: &GroupWorker, channel: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create()?;
        epoll::add(epoll.as_fd(), channel, CHANNEL, EventFlags::IN)?;
        for (index, listener) in (0..).zip(&worker.core.listeners) {
            epoll::add(epoll.as_fd(), listener.fd(), index, SHARED)?;
        }
        let events = Vec::with_capacity(1 + worker.core.listeners.len());
        Ok(Self { epoll, events, looks_at_all: false, result: PollResult::default() })
    }

    /// Has each listener tried once though nothing wakes this child: a connection may have woken a
    /// predecessor instead, which has left it in the queue.
    pub(super) fn look_at_all(&mut self) {
        self.looks_at_all = true;
    }

    /// Waits until a listener is ready or the channel has a message; returns whether the channel
    /// has one. Waits for the channel alone while accepting is paused.
    pub(super) fn wait(
        &mut self,
        worker: &GroupWorker,
        channel: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> bool {
        self.result.listeners.clear();
        if worker.core.listeners.iter().any(|listener| listener.watched) {
            return self.wait_for_all(worker, timeout);
        }
        let mut fds = [PollFd { fd: channel.as_raw_fd(), events: POLLIN, revents: 0 }];
        self.result.wait(false, timeout, |timeout| poll(&mut fds, timeout));
        fds[0].revents != 0
    }

    fn wait_for_all(&mut self, worker: &GroupWorker, timeout: Option<Duration>) -> bool {
        let looks_at_all = std::mem::take(&mut self.looks_at_all);
        let timeout = if looks_at_all { Some(Duration::ZERO) } else { timeout };
        let (epoll, events) = (self.epoll.as_fd(), &mut self.events);
        self.result.wait(worker.model.undrained, timeout, |timeout| {
            if epoll::wait(epoll, events, timeout).is_err() {
                // Lack of memory, which passes.
                std::thread::sleep(Duration::from_millis(10));
            }
            events.len()
        });
        let woken = self.events.iter().map(|event| event.data.u64());
        let ready = woken.filter_map(|index| usize::try_from(index).ok());
        self.result.listeners.extend(ready.filter(|&index| index as u64 != CHANNEL));
        if looks_at_all {
            self.result.listeners = (0..worker.core.listeners.len()).collect();
        }
        self.events.iter().any(|event| event.data.u64() == CHANNEL)
    }
}
