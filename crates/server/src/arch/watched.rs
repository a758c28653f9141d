//! The part of a loop that works with an event mechanism: ready connections, and what each
//! connection and listener is watched for. Knows neither when connections are accepted nor how they
//! are served.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use weir_dispatch::readiness::settings::Tunable;
use weir_dispatch::readiness::{Counts, Interest, Mechanism, Token};

use super::floor::{BELL, FIRST_LISTENER, Floor};
use super::listener::{Listener, Socket};
use crate::close_reason::CloseReason;
use crate::control::Control;
use crate::helpers::Helpers;
use crate::link::{Link, Next};
use crate::service::Service;

/// Option: threads that wait for disks in the loop's place, by default and with AMPED.
pub(crate) const HELPERS: Tunable = Tunable {
    name: "helpers",
    help: "threads that bring files from a disk, for a loop; 0: the loop waits for the disk itself",
    default: 0,
    min: 0,
    max: 256,
};
pub(crate) const AMPED_HELPERS: Tunable = Tunable { default: 8, min: 1, ..HELPERS };

const BELL_TOKEN: Token = Token { slot: BELL, generation: 0 };

/// Owner of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Bell,
    /// A listener, by its index.
    Listener(usize),
    /// A connection, which may have been closed since.
    Connection,
}

/// Returns a mechanism's counts, in the order of [`weir_stats::Counters::set_mechanism`].
fn values(counts: Counts) -> [u64; 8] {
    let Counts { notices, overflows, swept, stale, coalesced, checked, rearmed, batched } = counts;
    [notices, overflows, swept, stale, coalesced, checked, rearmed, batched]
}

/// State of a loop whose connections are watched by a mechanism.
pub(super) struct Watched<M> {
    pub(super) floor: Floor<Link>,
    mechanism: M,
    /// Tokens that the last getevents-phase found ready.
    pub(super) ready: Vec<Token>,
    /// Threads that wait for disks, if the loop does not.
    helpers: Option<Helpers>,
    /// Buffer for connections whose fetch a helper has ended, by packed token.
    fetched: Vec<u64>,
    /// Connections that yielded and could continue, longest waiting first.
    yielded: VecDeque<Token>,
}

impl<M: Mechanism> Watched<M> {
    /// Opens the mechanism, and watches the bell and the listeners.
    pub(super) fn open(
        service: Service,
        sockets: Vec<Socket>,
        control: Arc<Control>,
        open_max: usize,
    ) -> io::Result<Self> {
        let mut mechanism = M::open(&service.config.mechanism_settings)?;
        mechanism.add(control.bell.as_fd(), BELL_TOKEN, Interest::Accept)?;
        let floor = Floor::new(service, sockets, control, open_max);
        for listener in &floor.listeners {
            mechanism.add(listener.fd(), listener.token, Interest::Accept)?;
        }
        let helpers = start_helpers(&floor)?;
        Ok(Self {
            floor,
            mechanism,
            ready: Vec::new(),
            helpers,
            fetched: Vec::new(),
            yielded: VecDeque::new(),
        })
    }

    /// Polls the mechanism and begins a round. If nothing is ready, sleeps until something is due,
    /// unless a connection has yielded.
    pub(super) fn getevents_phase(&mut self) {
        let has_yielded = !self.yielded.is_empty();
        let timeout = if has_yielded { Some(Duration::ZERO) } else { self.floor.sleep_max() };
        self.ready.clear();
        let may_sleep = timeout != Some(Duration::ZERO);
        // Whether it sleeps is known for sure only by a look before.
        let looks = !may_sleep || self.floor.is_alert();
        let mut reported = if looks { self.wait(Some(Duration::ZERO)) } else { 0 };
        let sleeps = may_sleep && reported == 0;
        let began_ns = self.floor.service.read_clock_ns();
        if sleeps {
            self.floor.open_before_sleep();
            reported = self.wait(timeout);
        }
        let ready = if looks { self.connections_ready() + self.yielded.len() as u64 } else { 0 };
        let floor = &mut self.floor;
        floor.ready = ready;
        floor.begin_round();
        if sleeps {
            floor.note_sleep(began_ns);
        }
        floor.service.counters.getevents_ready.add(reported as u64);
    }

    fn wait(&mut self, timeout: Option<Duration>) -> usize {
        let floor = &mut self.floor;
        floor.service.counters.getevents_calls.one();
        self.mechanism.wait(timeout, &mut self.ready).unwrap_or_else(|error| {
            // Only want of memory can be the reason, and pass: the set is ours and sound.
            (floor.service.config.tell)(&format!("waiting for events: {error}"));
            std::thread::sleep(Duration::from_millis(10));
            0
        })
    }

    /// Returns the number of connections reported ready.
    fn connections_ready(&self) -> u64 {
        let is_connection = |token: &&Token| !self.floor.table.is_reserved(**token);
        self.ready.iter().filter(is_connection).count() as u64
    }

    /// Returns the owner of a token.
    pub(super) fn member(&self, token: Token) -> Member {
        if token == BELL_TOKEN {
            Member::Bell
        } else if self.floor.table.is_reserved(token) {
            Member::Listener((token.slot - FIRST_LISTENER) as usize)
        } else {
            Member::Connection
        }
    }

    /// Returns whether a token names a connection that is still open.
    pub(super) fn is_served(&self, token: Token) -> bool {
        self.member(token) == Member::Connection && self.floor.table.is_current(token)
    }

    /// Tells the mechanism that the bell was answered.
    pub(super) fn bell_is_quiet(&mut self) {
        self.mechanism.blocked(BELL_TOKEN, Interest::Accept);
    }

    /// Adds the connections whose fetch a helper has ended to the ready ones. The bell must have
    /// been answered before.
    pub(super) fn take_fetched(&mut self, ready: &mut Vec<Token>) {
        if let Some(helpers) = &mut self.helpers {
            helpers.done(&mut self.fetched);
            ready.extend(self.fetched.drain(..).map(Token::unpack));
        }
    }

    /// Has a helper fetch what a connection waits for.
    fn ask_helper(&mut self, slot: u32) {
        let token = self.floor.table.token(slot);
        if let (Some(helpers), Some(link)) = (&mut self.helpers, self.floor.table.conn(slot))
            && let Some(fetch) = link.fetch()
        {
            helpers.ask(token.pack(), fetch);
        }
    }

    /// Runs `act` on a connection; `None` if it is closed.
    pub(super) fn with(
        &mut self,
        slot: u32,
        act: impl FnOnce(&mut Link, &mut Service) -> Next,
    ) -> Option<Next> {
        let link = self.floor.table.conn(slot)?;
        Some(act(link, &mut self.floor.service))
    }

    /// Updates the mechanism and the timers for what a connection now waits for. Returns false if
    /// it is to be closed: it waits for nothing any more, or cannot be watched.
    pub(super) fn settle(&mut self, slot: u32, next: Next) -> bool {
        let interest = match next {
            Next::Read => Interest::Read,
            Next::Write => Interest::Write,
            Next::Fetch => Interest::Nothing,
            Next::Yield => {
                self.put_last(slot);
                return true;
            }
            Next::Close => return false,
        };
        if next == Next::Fetch {
            self.ask_helper(slot);
        }
        let token = self.floor.table.token(slot);
        let Some(link) = self.floor.table.conn(slot) else { return true };
        self.floor.timers.arm(slot, link.deadline_ns());
        if interest == Interest::Nothing && link.registered.is_none() {
            return true;
        }
        let watched = tell(&mut self.mechanism, link, token, interest);
        match watched {
            Ok(()) => link.registered = Some(interest),
            Err(error) => {
                link.note_close(CloseReason::Failed);
                self.floor.tell(&format!("a connection cannot be watched: {error}"));
                return false;
            }
        }
        true
    }

    /// Has a connection wait until others were served, without changing what it is watched for.
    fn put_last(&mut self, slot: u32) {
        let token = self.floor.table.token(slot);
        let Some(link) = self.floor.table.conn(slot) else { return };
        if !std::mem::replace(&mut link.has_yielded, true) {
            self.yielded.push_back(token);
        }
        self.floor.timers.arm(slot, link.deadline_ns());
        if let Some(was) = link.registered {
            // Nothing changes, so there is nothing to fail.
            let _ = tell(&mut self.mechanism, link, token, was);
        }
    }

    /// Number of connections that yielded.
    pub(super) fn yielded(&self) -> usize {
        self.yielded.len()
    }

    /// Removes and returns the yielded connection that has waited longest; `None` when this round's
    /// turn is over.
    pub(super) fn resume_next(&mut self) -> Option<Token> {
        while !self.floor.service.turn.is_over() {
            let token = self.yielded.pop_front()?;
            if self.is_served(token)
                && let Some(link) = self.floor.table.conn(token.slot)
            {
                link.has_yielded = false;
                return Some(token);
            }
        }
        None
    }

    /// Returns whether a token names a connection that is to be served when it is ready: it is
    /// open, and has not yielded.
    pub(super) fn is_served_when_ready(&mut self, token: Token) -> bool {
        self.is_served(token)
            && self.floor.table.conn(token.slot).is_some_and(|link| !link.has_yielded)
    }

    /// Stops watching a connection before it is closed.
    pub(super) fn forget(&mut self, link: &Link, token: Token) {
        if link.registered.is_some() {
            // It was a member, so there is nothing to fail.
            let _ = self.mechanism.remove(link.fd(), token);
        }
    }

    /// Tells the mechanism that an accept found a listener's queue empty.
    pub(super) fn nobody_waits(&mut self, index: usize) {
        let token = self.floor.listeners[index].token;
        self.mechanism.blocked(token, Interest::Accept);
    }

    /// Starts or stops watching a listener.
    pub(super) fn watch(&mut self, index: usize, wanted: bool) -> io::Result<()> {
        let interest = if wanted { Interest::Accept } else { Interest::Nothing };
        let listener = &self.floor.listeners[index];
        self.mechanism.change(listener.fd(), listener.token, interest)
    }

    /// Stops watching a listener, and closes it.
    pub(super) fn leave(&mut self, listener: Listener) {
        let _ = self.mechanism.remove(listener.fd(), listener.token);
        listener.close();
    }

    /// Adds the counts of the mechanism and the helpers to the counters.
    pub(super) fn count(&mut self) {
        let counts = values(self.mechanism.counts());
        let counters = &mut self.floor.service.counters;
        counters.set_mechanism(&counts);
        if let Some(helpers) = &self.helpers {
            let counts = helpers.counts();
            counters.set_helpers(&[counts.asked, counts.done, counts.waiting_max, counts.busy_ns]);
        }
    }
}

/// Tells the mechanism which of a connection's last calls would have blocked, and what it waits for
/// now.
fn tell<M: Mechanism>(
    mechanism: &mut M,
    link: &mut Link,
    token: Token,
    interest: Interest,
) -> io::Result<()> {
    let (read_blocked, write_blocked) = link.blocked();
    let Some(was) = link.registered else { return mechanism.add(link.fd(), token, interest) };
    if read_blocked {
        mechanism.blocked(token, Interest::Read);
    }
    if write_blocked {
        mechanism.blocked(token, Interest::Write);
    }
    if was == interest { Ok(()) } else { mechanism.change(link.fd(), token, interest) }
}

/// Starts the helpers that the architecture or an option asks for. They ring the loop's bell.
fn start_helpers(floor: &Floor<Link>) -> io::Result<Option<Helpers>> {
    let config = &floor.service.config;
    let count = config.arch.helpers(&config.arch_settings);
    let control = Arc::clone(&floor.control);
    let start = || Helpers::start(count, "weir-helper", move || control.bell.wake());
    (count > 0).then(start).transpose()
}
