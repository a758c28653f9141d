//! The listening sockets as an acceptor waits for them, with the bells that may interrupt the wait.
//! Accepts no connection itself, and holds no lock while it waits.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use weir_sys::poll::{POLLIN, PollFd};
use weir_sys::waker::Waker;

use super::group::Group;
use super::wait::sleep;

/// Result of a wait for the listeners.
#[derive(Default)]
pub(crate) struct Knocks {
    /// Indices of the listeners with a pending connection.
    pub(crate) listeners: Vec<usize>,
    /// Number of getevents-phases.
    pub(crate) rounds: u64,
    /// Number of descriptors reported ready.
    pub(crate) ready: u64,
    /// True if connections had already been pending before the wait.
    pub(crate) at_once: bool,
}

impl Knocks {
    /// Waits by calling `sleep`, which returns the number of ready descriptors. If the last
    /// accept-phase left connections pending (`glances`), looks first without waiting: whether
    /// connections are still pending tells a queue from arrivals one by one, which the policies
    /// rely on.
    pub(crate) fn wait(
        &mut self,
        glances: bool,
        timeout: Option<Duration>,
        mut sleep: impl FnMut(Option<Duration>) -> usize,
    ) {
        let glanced = if glances { sleep(Some(Duration::ZERO)) } else { 0 };
        self.at_once = glanced > 0;
        self.rounds = if glances && !self.at_once { 2 } else { 1 };
        self.ready = if self.at_once { glanced } else { sleep(timeout) } as u64;
    }
}

/// Descriptors that an acceptor waits for, and the result of the wait.
pub(crate) struct Doors {
    /// The bells, followed by the watched listeners.
    fds: Vec<PollFd>,
    bells: usize,
    /// Indices of the watched listeners.
    listeners: Vec<usize>,
    timeout: Option<Duration>,
    glances: bool,
    pub(crate) knocks: Knocks,
}

impl Doors {
    pub(crate) fn new(bells: &[&Waker]) -> Self {
        Self {
            fds: bells.iter().map(|bell| entry(bell.as_fd().as_raw_fd())).collect(),
            bells: bells.len(),
            listeners: Vec::new(),
            timeout: None,
            glances: false,
            knocks: Knocks::default(),
        }
    }

    /// Notes which listeners are watched now, for a wait of no more than `timeout`.
    pub(crate) fn plan(&mut self, group: &Group, timeout: Option<Duration>) {
        self.fds.truncate(self.bells);
        self.listeners.clear();
        for (index, listener) in group.floor.listeners.iter().enumerate() {
            if listener.watched {
                self.fds.push(entry(listener.fd().as_raw_fd()));
                self.listeners.push(index);
            }
        }
        self.timeout = timeout;
        self.glances = group.undrained;
    }

    /// Waits for a listener, a bell or the timeout.
    pub(crate) fn wait(&mut self) {
        let fds = &mut self.fds;
        self.knocks.wait(self.glances, self.timeout, |timeout| sleep(fds, timeout));
        let watched = self.fds.iter().skip(self.bells).zip(&self.listeners);
        let knocked = watched.filter(|(entry, _)| entry.revents != 0).map(|(_, &index)| index);
        self.knocks.listeners.clear();
        self.knocks.listeners.extend(knocked);
    }

    /// Returns whether a bell rang, given its index among those passed to [`Doors::new`].
    pub(crate) fn rang(&self, bell: usize) -> bool {
        bell < self.bells && self.fds.get(bell).is_some_and(|entry| entry.revents != 0)
    }
}

fn entry(fd: RawFd) -> PollFd {
    PollFd { fd, events: POLLIN, revents: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_before_the_wait_tells_whether_somebody_had_been_waiting() {
        for (glanced, expected) in [(1, (1, 1, true)), (0, (2, 5, false))] {
            let mut knocks = Knocks::default();
            knocks.wait(true, None, |timeout| if timeout.is_some() { glanced } else { 5 });
            assert_eq!((knocks.rounds, knocks.ready, knocks.at_once), expected);
        }
    }

    #[test]
    fn a_bell_is_heard_and_no_listener_has_knocked() {
        let (first, second) = (Waker::new().unwrap(), Waker::new().unwrap());
        let mut doors = Doors::new(&[&first, &second]);
        second.wake();
        doors.wait();
        assert!(!doors.rang(0) && doors.rang(1) && !doors.rang(2));
        let Knocks { listeners, rounds, ready, at_once } = &doors.knocks;
        assert_eq!((listeners.len(), *rounds, *ready, *at_once), (0, 1, 1, false));
    }
}
