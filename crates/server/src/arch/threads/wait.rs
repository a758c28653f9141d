//! What a connection does between two turns, and the one place where its thread sleeps: poll(2) on
//! its own socket, with its own deadline. Knows nothing of requests, and holds no lock.

use std::os::fd::RawFd;
use std::time::Duration;

use weir_content::Fetch;
use weir_sys::poll::{self, PollFd};

/// What a connection does after its turn.
pub(crate) enum Rest {
    /// It waits, and then has another turn.
    Wait(Wait),
    /// Something has to come from a disk; then it has another turn.
    Fetch(Fetch),
    /// It has another turn when those who wait now have had theirs.
    Yield,
    /// It is over.
    Gone,
}

/// What a thread knows when its connection's turn begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It has not been tried yet.
    First,
    /// It was tried when it was accepted, and has to wait.
    Tried,
    /// Its socket is ready.
    Ready,
    /// What was to come from a disk has come.
    Fetched,
    /// Others were served.
    Resumed,
    /// The time is up.
    Late,
}

/// A socket that is waited for, until a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    fd: RawFd,
    events: i16,
    timeout: Option<Duration>,
}

impl Wait {
    /// `fd` stays open until this thread has had its next turn.
    pub(crate) fn new(fd: RawFd, events: i16, timeout: Option<Duration>) -> Self {
        Self { fd, events, timeout }
    }

    /// Sleeps until the socket is ready or the time is up.
    pub(crate) fn sleep(self) -> News {
        let mut fds = [self.entry()];
        if sleep(&mut fds, self.timeout) > 0 { News::Ready } else { News::Late }
    }

    /// The socket as an entry for poll(2), for who waits for more than it.
    pub(crate) fn entry(&self) -> PollFd {
        PollFd { fd: self.fd, events: self.events, revents: 0 }
    }

    /// How long until the deadline; `None` is for ever.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

/// Waits for any of `fds`, and says how many are ready.
pub(crate) fn sleep(fds: &mut [PollFd], timeout: Option<Duration>) -> usize {
    poll::poll(fds, timeout).unwrap_or_else(|_| {
        // Only want of memory can be the reason, and pass.
        std::thread::sleep(Duration::from_millis(10));
        0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd};
    use weir_sys::event::Bell;
    use weir_sys::poll::POLLIN;

    #[test]
    fn a_wait_ends_with_what_is_waited_for_or_with_the_time() {
        let bell = Bell::new().unwrap();
        let wait = |timeout| Wait::new(bell.as_fd().as_raw_fd(), POLLIN, timeout).sleep();
        assert_eq!(wait(Some(Duration::from_millis(1))), News::Late);
        bell.ring();
        assert_eq!(wait(None), News::Ready);
    }
}
