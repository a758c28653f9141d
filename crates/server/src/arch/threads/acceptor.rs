//! The first thread of a group: accepts, hands each connection to a thread of its own, keeps the
//! time and answers the main thread. It serves no connection.
//!
//! It begins an accept-phase only when the connections accepted in the last one have had their
//! first turn. A thread that accepts whenever it runs would move the whole queue into the server,
//! with a thread for each connection. So the queue stays in the kernel, where its length is known
//! and refusing is cheap, and the time between two accept-phases is the work-phase that the
//! policies know.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Condvar;
use weir_dispatch::readiness::Token;

use super::crew::{Id, Spent};
use super::doors::Doors;
use super::group::Group;
use super::hands::Hands;
use super::monitor::Monitor;
use super::stay;
use super::wait::News;
use crate::arch::accepting::Accepting;
use crate::arch::{Architecture, Housekeeping};

/// Time for which an idle thread is kept.
const PATIENCE: Duration = Duration::from_secs(10);

/// Index of the main thread's bell among the bells that interrupt the acceptor; the other is the
/// group's own.
const BELL: usize = 0;

/// Accepts until the server stops. `starts`: threads may be started for accepted connections.
pub(super) fn preside(monitor: &Monitor, hands: &mut Hands, starts: bool) {
    let mut doors = Doors::new(&[&monitor.control.bell, &monitor.knock]);
    let mut asked = 0;
    while monitor.turn(|group| plan(group, &mut doors)) {
        doors.wait();
        monitor.knock.clear();
        asked = look_at_threads(monitor, asked);
        let unmanned = monitor.turn_when_calm(|group| round(group, &doors));
        for token in unmanned {
            man(monitor, hands, token, starts);
        }
        hands.join_ended();
    }
}

/// Closes every connection, ends the threads, and reports the counters.
pub(super) fn end(monitor: &Monitor, hands: Hands) {
    monitor.turn(|group| {
        group.floor.service.draining = true;
        let all = group.floor.table.find(0, usize::MAX, |_| true);
        all.into_iter().for_each(|slot| group.close(slot));
    });
    hands.dismiss();
    monitor.turn(Housekeeping::end);
}

/// Measures the usage of all threads if a report later than number `asked` is requested, and
/// returns the number of the last request. The threads may be many, so they are measured without
/// the lock.
pub(super) fn look_at_threads(monitor: &Monitor, asked: u64) -> u64 {
    let question = monitor.control.question();
    if question > asked {
        look(monitor);
    }
    question
}

fn look(monitor: &Monitor) {
    let live = monitor.turn(|group| group.crew.live.clone());
    let seen = live.into_iter().map(|(id, thread)| (id, Spent::of(thread))).collect();
    monitor.turn(|group| {
        group.crew.seen = seen;
        let live = &group.crew.live;
        group.crew.seen.retain(|id, _| live.contains_key(id));
    });
}

fn plan(group: &mut Group, doors: &mut Doors) -> bool {
    let timeout = group.sleep(true);
    doors.plan(group, timeout);
    !group.floor.is_over()
}

/// Runs one round. Returns the connections that need a new thread.
fn round(group: &mut Group, doors: &Doors) -> Vec<Token> {
    group.keeper_woke();
    if doors.rang(BELL) {
        group.answer_bell();
    }
    group.accept_phase(&doors.knocks);
    group.keep_time();
    group.assign()
}

/// Starts a thread for a connection. If none is available, accepting pauses, and the connection
/// waits.
fn man(monitor: &Monitor, hands: &mut Hands, token: Token, starts: bool) {
    if !starts {
        return monitor.turn(|group| group.put_off(token));
    }
    if let Err(error) = hands.start(move |monitor, id| serve(monitor, id, token)) {
        let error = io::Error::other(format!("no thread can be had: {error}"));
        monitor.turn(|group| {
            group.put_off(token);
            group.rest_for(&error);
        });
    }
}

/// Runs a thread: serves one connection, and then others, until there is none for [`PATIENCE`].
fn serve(monitor: &Monitor, id: Id, first: Token) {
    let wake = Arc::new(Condvar::new());
    let mut next = Some(first);
    while let Some(token) = next {
        stay(monitor, token, News::First);
        next = monitor.park(id, &wake, Some(PATIENCE));
    }
}
