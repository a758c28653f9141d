//! A pool: each thread accepts as many connections as the policy allows, serves them one after the
//! other, and accepts again when all are served (the script of Knot-C's threads, pariag-accept
//! section 3.3). There each thread keeps what it accepted. Here an idle thread takes connections
//! that no thread has begun, so that none waits behind a client that is slow, or only keeps its
//! connection open, while threads have nothing to do.
//!
//! One thread at a time has the accept-turn and waits for the listeners; the others wait for the
//! turn, so that one connection wakes one thread (Apache serialises its accepts for that reason).
//! The turn ends with the first connection to serve, before that is served.
//!
//! The group's first thread serves no connection: it keeps the time and answers the main thread.
//! When the server stops, it takes the turn and accepts the rest, and the pool serves what it is
//! handed.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Condvar;
use weir_dispatch::readiness::Token;
use weir_sys::poll::POLLIN;

use super::acceptor::look_at_threads;
use super::crew::Id;
use super::doors::Doors;
use super::monitor::Monitor;
use super::stay;
use super::wait::{News, Wait};
use crate::arch::Housekeeping;
use crate::arch::accepting::Accepting;
use crate::control::Phase;

/// Runs a thread of the pool.
pub(super) fn serve(monitor: &Monitor, id: Id) {
    let mut doors = Doors::new(&[&monitor.knock]);
    while let Some((token, news)) = next(monitor, &mut doors) {
        stay(monitor, token, news);
    }
    let wake = Arc::new(Condvar::new());
    while let Some(token) = monitor.park(id, &wake, None) {
        stay(monitor, token, News::First);
    }
}

/// Runs the first thread until the server stops. Pending connections are then accepted, and the
/// listeners closed.
pub(super) fn preside(monitor: &Monitor) {
    let mut asked = 0;
    loop {
        let timeout = monitor.turn(|group| group.sleep(false));
        let bell = &monitor.control.bell;
        let news = Wait::new(bell.as_fd().as_raw_fd(), POLLIN, timeout).sleep();
        if monitor.control.phase() > Phase::Run {
            return close_doors(monitor);
        }
        asked = look_at_threads(monitor, asked);
        monitor.turn(|group| {
            group.keeper_woke();
            if news == News::Ready {
                group.answer_bell();
            }
            group.consult();
            group.keep_time();
        });
    }
}

/// Takes the accept-turn, so that no thread waits for a listener that is closed.
fn close_doors(monitor: &Monitor) {
    monitor.knock.wake();
    let _turn = monitor.accept_turn.lock();
    monitor.turn_when_calm(|group| {
        group.serves = false;
        group.answer_bell();
    });
}

/// Returns the next connection to serve, accepted earlier or now; `None` once accepting has ended.
fn next(monitor: &Monitor, doors: &mut Doors) -> Option<(Token, News)> {
    let accepted = monitor.turn(|group| group.begun.pop_front());
    accepted.or_else(|| accept(monitor, doors))
}

/// Takes the accept-turn, and waits for a connection to accept.
fn accept(monitor: &Monitor, doors: &mut Doors) -> Option<(Token, News)> {
    let _turn = monitor.accept_turn.lock();
    loop {
        let accepted = monitor.turn(|group| {
            let timeout = (!group.floor.deferred.is_empty()).then_some(Duration::ZERO);
            doors.plan(group, timeout);
            group.begun.pop_front()
        });
        if accepted.is_some() || monitor.is_closing() {
            return accepted;
        }
        doors.wait();
        if doors.rang(0) {
            monitor.knock.clear();
        }
        monitor.turn_when_calm(|group| group.accept_phase(&doors.knocks));
    }
}
