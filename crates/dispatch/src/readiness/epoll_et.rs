//! `epoll-et`: edge-triggered epoll. A descriptor is registered once, for everything; the kernel
//! speaks only of changes, so the state of each socket is kept here.
//!
//! The invariant. For each member, `known` is a subset of what the kernel would grant, and whatever
//! is missing from it the kernel will still announce:
//!
//! * an edge sets its bit; `blocked` clears the bit of its direction, because the call that said
//!   EWOULDBLOCK, or moved less than asked, emptied (or filled) the socket, and anything later is a
//!   new edge. Adding a descriptor announces what is ready already;
//! * the end of the peer's bytes is announced once, perhaps together with the last of them, and a
//!   short read would hide it: after EPOLLRDHUP, EPOLLHUP or EPOLLERR the bits are `stuck`, and
//!   `blocked` no longer clears them;
//! * a member that is known to be ready for its interest stands in `again`, exactly once, and is
//!   reported at every wait until one of the two changes; while `again` has such members the wait
//!   does not sleep.
//!
//! A listening socket is the exception: it is registered level-triggered, because an edge would
//! have to be exhausted by an accept that fails, and a failing accept costs the kernel nearly as
//! much as one that succeeds (it makes the socket first).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use weir_sys::epoll::{self, Event, EventFlags};

use super::epoll_lt::EVENTS_MAX;
use super::{Interest, Mechanism, PerSlot, Token};

const READ: u8 = 1;
const WRITE: u8 = 2;

/// The interest set, kept by the kernel, and the readiness of each member, kept here.
pub struct EpollEt {
    epoll: OwnedFd,
    events: Vec<Event>,
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
    /// A listening socket, level-triggered: the kernel keeps its state.
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

impl EpollEt {
    /// Puts a member that is ready for its interest where the next wait will find it.
    fn queue(&mut self, token: Token) {
        let state = self.states.at(token.slot);
        if state.is_ready() && !state.queued {
            state.queued = true;
            self.again.push(token);
        }
    }

    /// Reports the members still ready from before, and forgets the others.
    fn report_known(&mut self, ready: &mut Vec<Token>) {
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
    }

    /// Takes in an event, and reports it unless the member is known to be ready already.
    fn learn(&mut self, token: Token, flags: EventFlags, ready: &mut Vec<Token>) {
        let state = self.states.at(token.slot);
        if state.generation != token.generation {
            return;
        }
        if state.level {
            ready.push(token);
            return;
        }
        if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            state.stuck = READ | WRITE;
        }
        if flags.contains(EventFlags::RDHUP) {
            state.stuck |= READ;
        }
        if flags.contains(EventFlags::IN) {
            state.known |= READ;
        }
        if flags.contains(EventFlags::OUT) {
            state.known |= WRITE;
        }
        state.known |= state.stuck;
        let waiting = self.again.len();
        self.queue(token);
        if self.again.len() > waiting {
            ready.push(token);
        }
    }
}

impl Mechanism for EpollEt {
    fn open() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create()?,
            events: Vec::with_capacity(EVENTS_MAX),
            states: PerSlot::default(),
            again: Vec::new(),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let level = interest == Interest::Accept;
        let edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let flags = if level { EventFlags::IN } else { edges };
        epoll::add(self.epoll.as_fd(), fd, token.pack(), flags)?;
        let (generation, wanted) = (token.generation, bits(interest));
        *self.states.at(token.slot) = State { generation, wanted, level, ..State::default() };
        Ok(())
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let state = self.states.at(token.slot);
        state.wanted = bits(interest);
        if state.level {
            let wanted = interest == Interest::Accept;
            let flags = if wanted { EventFlags::IN } else { EventFlags::empty() };
            return epoll::modify(self.epoll.as_fd(), fd, token.pack(), flags);
        }
        self.queue(token);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let state = self.states.at(token.slot);
        let level = state.level;
        // The generation of nobody yet: what still stands in `again`, or comes late, is stale.
        *state = State { generation: token.generation.wrapping_add(1), ..State::default() };
        // A close takes a connection out. A listening socket may have other descriptors, in other
        // loops or processes, that keep it open.
        if level { epoll::delete(self.epoll.as_fd(), fd) } else { Ok(()) }
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        let state = self.states.at(token.slot);
        state.known &= !bits(direction) | state.stuck;
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let before = ready.len();
        self.report_known(ready);
        let timeout = if ready.len() > before { Some(Duration::ZERO) } else { timeout };
        epoll::wait(self.epoll.as_fd(), &mut self.events, timeout)?;
        for index in 0..self.events.len() {
            let Event { data, flags } = self.events[index];
            self.learn(Token::unpack(data.u64()), flags, ready);
        }
        Ok(self.events.len())
    }
}
