//! What is known of each socket where the kernel speaks only of changes: the state that makes level
//! semantics of edges. Makes no call, and knows no mechanism.
//!
//! The invariant. For each member, `known` is a subset of what the kernel would grant, and whatever
//! is missing from it the kernel will still announce:
//!
//! * an edge sets its bit; `blocked` clears the bit of its direction, because the call that said
//!   EWOULDBLOCK, or moved less than asked, emptied (or filled) the socket, and anything later is a
//!   new edge;
//! * the end of the peer's bytes is announced once, perhaps together with the last of them, and a
//!   short read would hide it: after it, a hang-up or an error the bits are `stuck`, and `blocked`
//!   no longer clears them;
//! * a member that is known to be ready for its interest stands in `again`, exactly once, and is
//!   reported at every wait until one of the two changes; while `again` has such members the wait
//!   must not sleep.
//!
//! A mechanism that cannot promise the announcement asks the kernel itself, and tells what it saw
//! with [`Edges::learn`].

use super::contract::{Interest, PerSlot, Token};

const READ: u8 = 1;
const WRITE: u8 = 2;

/// What the kernel said of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// There are bytes, or connections.
    pub read: bool,
    /// There is room.
    pub write: bool,
    /// No more bytes will come (EPOLLRDHUP).
    pub end: bool,
    /// A hang-up or an error: ready for anything, for good.
    pub trouble: bool,
}

/// The readiness of every member.
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
    /// Level-triggered: the kernel keeps its state, and repeats itself.
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
    }
}

impl Edges {
    /// A new member of which nothing is known. Of one that is `level` nothing ever will be: what is
    /// learnt of it is reported, once.
    pub(super) fn add(&mut self, token: Token, interest: Interest, level: bool) {
        let (generation, wanted) = (token.generation, bits(interest));
        *self.states.at(token.slot) = State { generation, wanted, level, ..State::default() };
    }

    /// Takes a member for writable, whether it is or not: its first try will tell.
    pub(super) fn presume_room(&mut self, token: Token) {
        self.states.at(token.slot).known |= WRITE;
        self.queue(token);
    }

    pub(super) fn change(&mut self, token: Token, interest: Interest) {
        self.states.at(token.slot).wanted = bits(interest);
        self.queue(token);
    }

    pub(super) fn remove(&mut self, token: Token) {
        // The generation of nobody yet: what still stands in `again`, or comes late, is stale.
        let nobody = State { generation: token.generation.wrapping_add(1), ..State::default() };
        *self.states.at(token.slot) = nobody;
    }

    pub(super) fn blocked(&mut self, token: Token, direction: Interest) {
        let state = self.states.at(token.slot);
        state.known &= !bits(direction) | state.stuck;
    }

    /// Whether a member is known to be ready for what it waits for.
    pub(super) fn is_ready(&mut self, token: Token) -> bool {
        let state = self.states.at(token.slot);
        state.generation == token.generation && state.is_ready()
    }

    /// Whether the kernel keeps the state of a slot's tenant.
    pub(super) fn is_level(&mut self, slot: u32) -> bool {
        self.states.at(slot).level
    }

    /// Takes in what the kernel said, and reports the member unless it is known to be ready
    /// already. False when the member it was for has gone.
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

    /// Reports the members still ready from before, and forgets the others. Whether there are any.
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

    /// Puts a member that is ready for its interest where the next wait will find it. False when it
    /// stands there already, or is not ready.
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
