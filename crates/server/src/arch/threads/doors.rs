//! The listening sockets as whoever accepts waits for them, with the bells that may call it away.
//! Accepts nobody, and holds no lock while it waits.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use weir_sys::event::Bell;
use weir_sys::poll::{POLLIN, PollFd};

use super::group::Group;
use super::wait::sleep;

/// What a wait for the listeners has told.
#[derive(Default)]
pub(crate) struct Knocks {
    /// The listeners at which somebody waits, by their index.
    pub(crate) listeners: Vec<usize>,
    /// Getevents-phases.
    pub(crate) rounds: u64,
    /// Descriptors they reported.
    pub(crate) ready: u64,
    /// Somebody had been waiting.
    pub(crate) at_once: bool,
}

impl Knocks {
    /// Waits by `sleep`, which says how many descriptors are ready. Where the last accept-phase
    /// left some (`glances`) it looks without waiting first: whether they have been waiting since
    /// is what tells a queue from one caller after the other, and the policies go by it.
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

/// What whoever accepts waits for, and what came of it.
pub(crate) struct Doors {
    /// The bells first, then the listeners that are watched.
    fds: Vec<PollFd>,
    bells: usize,
    /// Which listeners, by their index.
    listeners: Vec<usize>,
    timeout: Option<Duration>,
    glances: bool,
    pub(crate) knocks: Knocks,
}

impl Doors {
    pub(crate) fn new(bells: &[&Bell]) -> Self {
        Self {
            fds: bells.iter().map(|bell| entry(bell.as_fd().as_raw_fd())).collect(),
            bells: bells.len(),
            listeners: Vec::new(),
            timeout: None,
            glances: false,
            knocks: Knocks::default(),
        }
    }

    /// Takes down which listeners are watched now, to be waited for no longer than `timeout`.
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

    /// Waits.
    pub(crate) fn wait(&mut self) {
        let fds = &mut self.fds;
        self.knocks.wait(self.glances, self.timeout, |timeout| sleep(fds, timeout));
        let watched = self.fds.iter().skip(self.bells).zip(&self.listeners);
        let knocked = watched.filter(|(entry, _)| entry.revents != 0).map(|(_, &index)| index);
        self.knocks.listeners.clear();
        self.knocks.listeners.extend(knocked);
    }

    /// Whether a bell rang, by its place among those given at the beginning.
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
        let (first, second) = (Bell::new().unwrap(), Bell::new().unwrap());
        let mut doors = Doors::new(&[&first, &second]);
        second.ring();
        doors.wait();
        assert!(!doors.rang(0) && doors.rang(1) && !doors.rang(2));
        let Knocks { listeners, rounds, ready, at_once } = &doors.knocks;
        assert_eq!((listeners.len(), *rounds, *ready, *at_once), (0, 1, 1, false));
    }
}
