//! The listening sockets as an acceptor waits for them, with the wakers that may interrupt the
//! wait. Accepts no connection itself, and holds no lock while it waits.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use weir_sys::poll::{POLLIN, PollFd};
use weir_sys::waker::Waker;

use super::model::GroupWorker;
use super::park::{PollResult, poll};

/// Descriptors that an acceptor waits for, and the result of the wait.
pub(crate) struct ListenerPoll {
    /// The wakers, followed by the watched listeners.
    fds: Vec<PollFd>,
    wakers: usize,
    /// Indices of the watched listeners.
    listeners: Vec<usize>,
    timeout: Option<Duration>,
    polls_first: bool,
    pub(crate) result: PollResult,
}

impl ListenerPoll {
    pub(crate) fn new(wakers: &[&Waker]) -> Self {
        Self {
            fds: wakers.iter().map(|waker| entry(waker.as_fd().as_raw_fd())).collect(),
            wakers: wakers.len(),
            listeners: Vec::new(),
            timeout: None,
            polls_first: false,
            result: PollResult::default(),
        }
    }

    /// Notes which listeners are watched now, for a wait of no more than `timeout`.
    pub(crate) fn plan(&mut self, worker: &GroupWorker, timeout: Option<Duration>) {
        self.fds.truncate(self.wakers);
        self.listeners.clear();
        for (index, listener) in worker.core.listeners.iter().enumerate() {
            if listener.watched {
                self.fds.push(entry(listener.fd().as_raw_fd()));
                self.listeners.push(index);
            }
        }
        self.timeout = timeout;
        self.polls_first = worker.model.undrained;
    }

    /// Waits for a listener, a waker or the timeout.
    pub(crate) fn wait(&mut self) {
        let fds = &mut self.fds;
        self.result.wait(self.polls_first, self.timeout, |timeout| poll(fds, timeout));
        let watched = self.fds.iter().skip(self.wakers).zip(&self.listeners);
        let ready = watched.filter(|(entry, _)| entry.revents != 0).map(|(_, &index)| index);
        self.result.listeners.clear();
        self.result.listeners.extend(ready);
    }

    /// Returns whether a waker was woken, given its index among those passed to
    /// [`ListenerPoll::new`].
    pub(crate) fn was_woken(&self, waker: usize) -> bool {
        waker < self.wakers && self.fds.get(waker).is_some_and(|entry| entry.revents != 0)
    }
}

fn entry(fd: RawFd) -> PollFd {
    PollFd { fd, events: POLLIN, revents: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_ends_the_wait_and_no_listener_is_ready() {
        let (first, second) = (Waker::new().unwrap(), Waker::new().unwrap());
        let mut listener_poll = ListenerPoll::new(&[&first, &second]);
        second.wake();
        listener_poll.wait();
        assert!(
            !listener_poll.was_woken(0)
                && listener_poll.was_woken(1)
                && !listener_poll.was_woken(2)
        );
        let PollResult { listeners, iterations, ready, was_pending } = &listener_poll.result;
        assert_eq!((listeners.len(), *iterations, *ready, *was_pending), (0, 1, 1, false));
    }
}
