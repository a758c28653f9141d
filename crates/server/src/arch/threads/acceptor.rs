//! The first thread of a group: it accepts, hands each connection to a thread of its own, keeps the
//! time and answers the main thread. It serves nobody.
//!
//! It begins an accept-phase only when those accepted in the last one have had their first turn. A
//! thread that accepts whenever it runs would move the whole queue into the server, each with a
//! thread; so the queue stays in the kernel, where its length is known and refusing is cheap, and
//! what happens between two accept-phases is the work-phase that the policies know.

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

/// How long a thread with nothing to do is kept.
const PATIENCE: Duration = Duration::from_secs(10);

/// The main thread's bell, among those that call the acceptor away; the other is the group's own.
const BELL: usize = 0;

/// Accepts until it is over. `starts`: threads may be started for those accepted.
pub(super) fn preside(monitor: &Monitor, hands: &mut Hands, starts: bool) {
    let mut doors = Doors::new(&[&monitor.control.bell, &monitor.knock]);
    let mut asked = 0;
    while monitor.turn(|group| plan(group, &mut doors)) {
        doors.wait();
        monitor.knock.hush();
        asked = look_at_threads(monitor, asked);
        let unmanned = monitor.turn_when_calm(|group| round(group, &doors));
        for token in unmanned {
            man(monitor, hands, token, starts);
        }
        hands.join_ended();
    }
}

/// Lets go of everything, and tells what was counted.
pub(super) fn end(monitor: &Monitor, hands: Hands) {
    monitor.turn(|group| {
        group.floor.service.draining = true;
        let all = group.floor.table.find(0, usize::MAX, |_| true);
        all.into_iter().for_each(|slot| group.close(slot));
    });
    hands.dismiss();
    monitor.turn(Housekeeping::end);
}

/// Notes what the threads have used so far if a report is asked for that comes after `asked`. Not
/// under the lock: there may be many. Which report is asked for.
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

/// One round. Those for whom a thread has to be started.
fn round(group: &mut Group, doors: &Doors) -> Vec<Token> {
    group.keeper_woke();
    if doors.rang(BELL) {
        group.answer_bell();
    }
    group.accept_phase(&doors.knocks);
    group.keep_time();
    group.assign()
}

/// Starts a thread for a connection. When none can be had accepting rests, and it waits.
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

/// A thread's life: a connection, and then others, until there is none for a while.
fn serve(monitor: &Monitor, id: Id, first: Token) {
    let wake = Arc::new(Condvar::new());
    let mut next = Some(first);
    while let Some(token) = next {
        stay(monitor, token, News::First);
        next = monitor.park(id, &wake, Some(PATIENCE));
    }
}
