//! Known readiness of each socket where the kernel reports only changes: the state that turns edges
//! into level semantics. Makes no call, and depends on no mechanism.
//!
//! The invariant. For each member, `known` is a subset of what the kernel would grant, and the
//! kernel will still announce whatever is missing from it:
//!
//! * an edge sets its bit; `blocked` clears the bit of its direction, because the call that
//!   returned EWOULDBLOCK, or moved fewer bytes than requested, emptied (or filled) the socket, and
//!   anything later is a new edge;
//! * the end of the peer's bytes is announced once, perhaps together with the last of them, and a
//!   short read would hide it: after it, or after a hang-up or an error, the bits are `stuck`, and
//!   `blocked` no longer clears them;
//! * a member known to be ready for its interest is in `again`, exactly once, and is reported at
//!   every wait until its readiness or its interest changes; while `again` has such members the
//!   wait must not sleep.
//!
//! A mechanism that cannot rely on the announcement polls the kernel itself, and passes the result
//! to [`Edges::learn`].

use super::contract::{Interest, PerSlot, Token};

const READ: u8 = 1;
const WRITE: u8 = 2;

/// Events of a descriptor as reported by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Bytes or connections are available.
    pub read: bool,
    /// Space to write is available.
    pub write: bool,
    /// No more bytes will come (EPOLLRDHUP).
    pub end: bool,
    /// A hang-up or an error: permanently ready for any interest.
    pub trouble: bool,
}

/// Readiness of every member.
#[derive(Debug, Default)]
pub(super) struct Edges {
    states: PerSlot<State>,
    again: Vec<Token>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    generation: u32,
    wanted: u8,
    known: u8,
    stuck: u8,
    queued: bool,
    /// Level-triggered: the kernel keeps the state, and repeats its reports.
    level: bool,
}

impl State {
    fn is_ready(self) -> bool {
        self.wanted & self.known != 0
    }
}

fn bits(interest: Interest) -> u8 {
    match interest {
        Interest::Nothing => 0,
        Interest::Read | Interest::Accept => READ,
        Interest::Write => WRITE,
        Interest::Either => READ | WRITE,
    }
}

impl Edges {
    /// Adds a member of which nothing is known. For a `level` member nothing is ever kept: each
    /// event of it is reported, once.
    pub(super) fn add(&mut self, token: Token, interest: Interest, level: bool) {
        let (generation, wanted) = (token.generation, bits(interest));
        *self.states.at(token.slot) = State { generation, wanted, level, ..State::default() };
    }

    /// Presumes a member writable, whether it is or not: its first write shows which.
    pub(super) fn presume_room(&mut self, token: Token) {
        self.states.at(token.slot).known |= WRITE;
        self.queue(token);
    }

    pub(super) fn change(&mut self, token: Token, interest: Interest) {
        self.states.at(token.slot).wanted = bits(interest);
        self.queue(token);
    }

    pub(super) fn remove(&mut self, token: Token) {
        // A generation not yet in use: anything left in `again`, or arriving late, is stale.
        let nobody = State { generation: token.generation.wrapping_add(1), ..State::default() };
        *self.states.at(token.slot) = nobody;
    }

    pub(super) fn blocked(&mut self, token: Token, direction: Interest) {
        let state = self.states.at(token.slot);
        state.known &= !bits(direction) | state.stuck;
    }

    /// Returns whether a member is known to be ready for its interest.
    pub(super) fn is_ready(&mut self, token: Token) -> bool {
        let state = self.states.at(token.slot);
        state.generation == token.generation && state.is_ready()
    }

    /// Returns whether a slot's tenant is level-triggered, so that the kernel keeps its state.
    pub(super) fn is_level(&mut self, slot: u32) -> bool {
        self.states.at(slot).level
    }

    /// Records the events reported by the kernel, and reports the member unless it is known to be
    /// ready already. Returns false when the member has gone.
    pub(super) fn learn(&mut self, token: Token, seen: Seen, ready: &mut Vec<Token>) -> bool {
        let state = self.states.at(token.slot);
        if state.generation != token.generation {
            return false;
        }
        if state.level {
            ready.push(token);
            return true;
        }
        if seen.trouble {
            state.stuck = READ | WRITE;
        }
        if seen.end {
            state.stuck |= READ;
        }
        if seen.read {
            state.known |= READ;
        }
        if seen.write {
            state.known |= WRITE;
        }
        state.known |= state.stuck;
        if self.queue(token) {
            ready.push(token);
        }
        true
    }

    /// Reports the members still ready from before, and forgets the others. Returns whether there
    /// are any.
    pub(super) fn report_known(&mut self, ready: &mut Vec<Token>) -> bool {
        let before = ready.len();
        let states = &mut self.states;
        self.again.retain(|token| {
            let state = states.at(token.slot);
            let current = state.generation == token.generation;
            let keep = current && state.is_ready();
            if current {
                state.queued = keep;
            }
            if keep {
                ready.push(*token);
            }
            keep
        });
        ready.len() > before
    }

    /// Queues a member that is ready for its interest for the next wait. Returns false if it is
    /// queued already, or not ready.
    fn queue(&mut self, token: Token) -> bool {
        let state = self.states.at(token.slot);
        let joins = state.is_ready() && !state.queued;
        if joins {
            state.queued = true;
            self.again.push(token);
        }
        joins
    }
}
