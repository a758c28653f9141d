//! Messages to a service manager: that the server is ready, reloads, stops, lives, or has a
//! successor (sd_notify(3)). Without a manager, nothing is sent.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Number of signs of life within the time after which the manager gives the server up.
const SIGNS: u32 = 3;

/// Process id of the first process of a PID namespace, with which all others of it end
/// (pid_namespaces(7)).
const FIRST_OF_ALL: u32 = 1;

/// Returns whether a service manager knows the successors of this process, so that this one may end
/// before them.
pub(crate) fn follows_successors() -> bool {
    follows(std::env::var_os("NOTIFY_SOCKET").is_some(), std::process::id())
}

/// Returns whether a manager that `wants_to_be_told`, or not, follows the successors of a process.
fn follows(wants_to_be_told: bool, pid: u32) -> bool {
    wants_to_be_told && pid != FIRST_OF_ALL
}

/// Says that the server serves, and what.
pub(crate) fn tell_ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says that the server begins to reload (Type=notify-reload, systemd.service(5)).
pub(crate) fn tell_reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
}

/// Says that another process is the server now, and serves.
pub(crate) fn tell_succeeded(pid: u32) {
    tell(&[NotifyState::MainPid(pid), NotifyState::Ready]);
}

/// Says what the server serves, once it is the main process for the manager, which listens to no
/// other one (NotifyAccess=main, systemd.service(5)).
pub(crate) fn tell_status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// Says that the server is stopping.
pub(crate) fn tell_stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Says something. A manager that does not listen is no reason not to serve.
fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

/// The times at which the manager expects a sign of life (WatchdogSec=, systemd.service(5)).
#[derive(Debug)]
pub(crate) struct Watchdog {
    interval: Duration,
    next: Instant,
}

impl Watchdog {
    /// Returns the watchdog; `None` if there is no manager, or it watches another process.
    pub(crate) fn find() -> Option<Self> {
        let interval = sd_notify::watchdog_enabled()? / SIGNS;
        Some(Self { interval, next: Instant::now() + interval })
    }

    /// Returns the time of the next sign.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// Returns the time between two signs.
    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Gives a sign of life, unless `is_alive` is false, and puts off the next.
    pub(crate) fn tell(&mut self, is_alive: bool) {
        if is_alive {
            tell(&[NotifyState::Watchdog]);
        }
        self.next = Instant::now() + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_container_stays_whether_there_is_a_manager_or_not() {
        assert!(follows(true, 4711));
        assert!(!follows(false, 4711));
        assert!(!follows(true, 1) && !follows(false, 1));
    }
}
