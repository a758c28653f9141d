//! How a thread parks: poll(2) on its connection's socket until a deadline, or on the listeners. It
//! holds no lock meanwhile.

use std::os::fd::RawFd;
use std::time::Duration;

use weir_content::Fetch;
use weir_sys::poll::PollFd;

/// A descriptor that poll(2) passes over.
pub(crate) const NO_FD: RawFd = -1;

/// Next step of a connection's thread, once it has made as much progress as it can.
pub(crate) enum Park {
    /// Waits for the socket, then serves it again.
    Wait(Wait),
    /// Fetches from a disk, then serves it again.
    Fetch(Fetch),
    /// Lets other threads run first, then serves it again.
    Yield,
    /// The connection is closed.
    Gone,
}

/// Reason for which a connection is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
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

/// Result of a wait for the listeners.
#[derive(Default)]
pub(crate) struct PollResult {
    /// Indices of the listeners with a pending connection.
    pub(crate) listeners: Vec<usize>,
    /// Number of getevents-phases.
    pub(crate) iterations: u64,
    /// Number of descriptors reported ready.
    pub(crate) ready: u64,
    /// True if connections had already been pending before the wait.
    pub(crate) was_pending: bool,
}

impl PollResult {
    /// Waits by calling `sleep`, which returns the number of ready descriptors. If the last
    /// accept-phase left connections pending (`polls_first`), polls first without waiting: whether
    /// connections are still pending distinguishes a queue from single arrivals, which the policies
    /// rely on.
    pub(crate) fn wait(
        &mut self,
        polls_first: bool,
        timeout: Option<Duration>,
        mut sleep: impl FnMut(Option<Duration>) -> usize,
    ) {
        let ready = if polls_first { sleep(Some(Duration::ZERO)) } else { 0 };
        self.was_pending = ready > 0;
        self.iterations = if polls_first && !self.was_pending { 2 } else { 1 };
        self.ready = if self.was_pending { ready } else { sleep(timeout) } as u64;
    }
}

/// A wait for a socket, with a timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    fd: RawFd,
    events: i16,
    timeout: Option<Duration>,
}

impl Wait {
    /// Creates a wait. `fd` stays open until this thread next has the lock.
    pub(crate) fn new(fd: RawFd, events: i16, timeout: Option<Duration>) -> Self {
        Self { fd, events, timeout }
    }

    /// Sleeps until the socket is ready or the time is up.
    pub(crate) fn sleep(self) -> WakeReason {
        let mut fds = [self.entry()];
        if poll(&mut fds, self.timeout) > 0 { WakeReason::Ready } else { WakeReason::Late }
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
pub(crate) fn poll(fds: &mut [PollFd], timeout: Option<Duration>) -> usize {
    weir_sys::poll::poll(fds, timeout).unwrap_or_else(|_| {
        // Lack of memory, which passes.
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
    fn a_poll_before_the_wait_tells_whether_connections_were_pending() {
        for (ready, expected) in [(1, (1, 1, true)), (0, (2, 5, false))] {
            let mut result = PollResult::default();
            result.wait(true, None, |timeout| if timeout.is_some() { ready } else { 5 });
            assert_eq!((result.iterations, result.ready, result.was_pending), expected);
        }
    }

    #[test]
    fn a_wait_ends_when_the_descriptor_is_ready_or_the_time_is_up() {
        let waker = Waker::new().unwrap();
        let wait = |timeout| Wait::new(waker.as_fd().as_raw_fd(), POLLIN, timeout).sleep();
        assert_eq!(wait(Some(Duration::from_millis(1))), WakeReason::Late);
        waker.wake();
        assert_eq!(wait(None), WakeReason::Ready);
    }
}
