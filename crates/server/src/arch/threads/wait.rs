//! The rest of a connection between two turns, and the one place where its thread sleeps: poll(2)
//! on its own socket, with its own deadline. Knows nothing of requests, and holds no lock.

use std::os::fd::RawFd;
use std::time::Duration;

use weir_content::Fetch;
use weir_sys::poll::{self, PollFd};

/// Next step of a connection after its turn.
pub(crate) enum Rest {
    /// The connection waits, and then has another turn.
    Wait(Wait),
    /// The connection needs something from a disk, and then has another turn.
    Fetch(Fetch),
    /// The connection has another turn after others that wait now.
    Yield,
    /// The connection is closed.
    Gone,
}

/// Event with which a connection's turn begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The connection has not been tried yet.
    First,
    /// The connection was tried when it was accepted, and has to wait.
    Tried,
    /// Its socket is ready.
    Ready,
    /// Its fetch from a disk has ended.
    Fetched,
    /// Others were served after it yielded.
    Resumed,
    /// Its deadline has come.
    Late,
}

/// A wait for a socket, with a timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    fd: RawFd,
    events: i16,
    timeout: Option<Duration>,
}

impl Wait {
    /// Creates a wait. `fd` stays open until this thread has had its next turn.
    pub(crate) fn new(fd: RawFd, events: i16, timeout: Option<Duration>) -> Self {
        Self { fd, events, timeout }
    }

    /// Sleeps until the socket is ready or the time is up.
    pub(crate) fn sleep(self) -> News {
        let mut fds = [self.entry()];
        if sleep(&mut fds, self.timeout) > 0 { News::Ready } else { News::Late }
    }

    /// Returns the socket as an entry for poll(2), for a caller that waits for more besides.
    pub(crate) fn entry(&self) -> PollFd {
        PollFd { fd: self.fd, events: self.events, revents: 0 }
    }

    /// Time until the deadline; `None` waits forever.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

/// Waits for any of `fds`; returns the number of those ready.
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
    use weir_sys::poll::POLLIN;
    use weir_sys::waker::Waker;

    #[test]
    fn a_wait_ends_with_what_is_waited_for_or_with_the_time() {
        let bell = Waker::new().unwrap();
        let wait = |timeout| Wait::new(bell.as_fd().as_raw_fd(), POLLIN, timeout).sleep();
        assert_eq!(wait(Some(Duration::from_millis(1))), News::Late);
        bell.wake();
        assert_eq!(wait(None), News::Ready);
    }
}
