//! The part of a loop that works with an event mechanism: ready connections, and what each
//! connection and listener is watched for. Knows neither when connections are accepted nor how they
//! are served.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use weir_dispatch::readiness::{Counts, Interest, Mechanism, Token};

use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::helpers::Helpers;
use crate::http::connection::Action;
use crate::http::connection_io::ConnectionIo;
use crate::http::socket_connection::SocketConnection;
use crate::upstream::sockets::{Change, UpstreamSocket};
use crate::worker::connection_table::ConnectionTable;
use crate::worker::core::{FIRST_LISTENER, LoopCore, WAKER_SLOT};
use crate::worker::listener::Listener;
use crate::worker::phase_times::LoopPhase;
use crate::worker::{Model, Worker};

/// State of a loop whose connections are watched for readiness.
type Core = LoopCore<SocketConnection>;

const WAKER_TOKEN: Token = Token { slot: WAKER_SLOT, generation: 0 };

/// Owner of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenOwner {
    Waker,
    /// A listener, by its index.
    Listener(usize),
    /// A connection, which may have been closed since.
    Connection,
    /// A connection to an upstream, which may have been closed since; its own token.
    Upstream(Token),
}

/// Returns the owner of a token.
pub(super) fn owner(table: &ConnectionTable<SocketConnection>, token: Token) -> TokenOwner {
    if token == WAKER_TOKEN {
        TokenOwner::Waker
    } else if table.is_reserved(token) {
        TokenOwner::Listener((token.slot - FIRST_LISTENER) as usize)
    } else if token.slot >= table.slots() {
        TokenOwner::Upstream(Token { slot: token.slot - table.slots(), ..token })
    } else {
        TokenOwner::Connection
    }
}

/// Returns whether a token names a connection that is still open.
fn is_open_connection(core: &Core, token: Token) -> bool {
    owner(&core.table, token) == TokenOwner::Connection && core.table.is_current(token)
}

/// Returns a mechanism's counts, in the order of [`weir_stats::Counters::set_mechanism`].
fn values(counts: Counts) -> [u64; 13] {
    [
        counts.notices,
        counts.overflows,
        counts.swept,
        counts.stale,
        counts.coalesced,
        counts.checked,
        counts.rearmed,
        counts.batched,
        counts.deleted,
        counts.discarded,
        counts.takes,
        counts.taken_max,
        counts.fallbacks,
    ]
}

/// An event mechanism with what it watches and has reported.
pub(crate) struct ReadinessDriver<M> {
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

impl<M: Mechanism> ReadinessDriver<M> {
    /// Opens the mechanism, and watches the waker and the listeners.
    pub(super) fn open(core: &Core) -> io::Result<Self> {
        let mut mechanism = M::open(&core.context.config.mechanism_settings)?;
        mechanism.add(core.control.waker.as_fd(), WAKER_TOKEN, Interest::Accept)?;
        for listener in &core.listeners {
            mechanism.add(listener.fd(), listener.token, Interest::Accept)?;
        }
        Ok(Self {
            mechanism,
            ready: Vec::new(),
            helpers: start_helpers(core)?,
            fetched: Vec::new(),
            yielded: VecDeque::new(),
        })
    }

    /// Polls the mechanism and begins an iteration. If nothing is ready, sleeps until something is
    /// due, unless a connection has yielded.
    pub(super) fn getevents_phase(&mut self, core: &mut Core) {
        core.enter_phase(LoopPhase::Getevents);
        let has_grants = core.context.upstreams.as_ref().is_some_and(|all| all.has_grants());
        let has_yielded = !self.yielded.is_empty() || has_grants;
        let timeout = if has_yielded { Some(Duration::ZERO) } else { core.sleep_max() };
        self.ready.clear();
        let may_sleep = timeout != Some(Duration::ZERO);
        // Only a poll without waiting shows whether a wait would sleep.
        let polls_first = !may_sleep || core.is_alert();
        let mut reported = if polls_first { self.wait(core, Some(Duration::ZERO)) } else { 0 };
        let sleeps = may_sleep && reported == 0;
        let began_ns = core.context.read_clock_ns();
        if sleeps {
            core.lift_refusals();
            reported = self.wait(core, timeout);
        }
        let ready =
            if polls_first { self.connections_ready(core) + self.yielded.len() as u64 } else { 0 };
        core.ready = ready;
        self.note_waiting_handshakes(core);
        core.begin_iteration();
        self.note_reported(core);
        if sleeps {
            core.note_sleep(began_ns);
        }
        core.context.counters.getevents_ready.add(reported as u64);
    }

    fn wait(&mut self, core: &mut Core, timeout: Option<Duration>) -> usize {
        core.context.counters.getevents_calls.one();
        self.mechanism.wait(timeout, &mut self.ready).unwrap_or_else(|error| {
            // Lack of memory, which passes: the set itself is valid.
            core.context.config.errors.warn(&format!("waiting for events: {error}"));
            std::thread::sleep(Duration::from_millis(10));
            0
        })
    }

    /// Has the upstreams know which of their connections are ready before a client's turn comes.
    fn note_reported(&self, core: &mut Core) {
        let (table, now_ns) = (&core.table, core.context.now_ns());
        if let Some(upstreams) = &mut core.context.upstreams {
            let reported = self.ready.iter().filter_map(|&token| match owner(table, token) {
                TokenOwner::Upstream(own) => Some(own),
                _ => None,
            });
            upstreams.sockets.note_reported(reported, self.mechanism.has_reported_all(), now_ns);
        }
    }

    /// Returns whether the mechanism has every waiting connection accepted in this iteration.
    pub(super) fn accepts_all(&self) -> bool {
        self.mechanism.accepts_all()
    }

    /// Returns the number of connections reported ready.
    fn connections_ready(&self, core: &Core) -> u64 {
        let is_connection = |token: &&Token| !core.table.is_reserved(**token);
        self.ready.iter().filter(is_connection).count() as u64
    }

    /// Counts the connections that yielded before their TLS handshake began.
    pub(super) fn note_waiting_handshakes(&self, core: &mut Core) {
        if core.context.config.tls.is_none() {
            return;
        }
        let waits = |core: &mut Core, token: Token| {
            core.table.conn_of(token).is_some_and(|conn| conn.awaits_handshake())
        };
        let waiting = self.yielded.iter().filter(|&&token| waits(core, token)).count();
        core.context.tls_work.waiting = waiting as u64;
    }

    /// Tells the mechanism that the waker was answered.
    pub(super) fn waker_cleared(&mut self) {
        self.mechanism.blocked(WAKER_TOKEN, Interest::Accept);
    }

    /// Adds the connections whose fetch a helper has ended to the ready ones. The waker must have
    /// been answered before.
    pub(super) fn take_fetched(&mut self, ready: &mut Vec<Token>) {
        if let Some(helpers) = &mut self.helpers {
            helpers.take_done(&mut self.fetched);
            ready.extend(self.fetched.drain(..).map(Token::unpack));
        }
    }

    /// Submits the fetch that a connection waits for to the helpers.
    fn submit_fetch(&mut self, core: &mut Core, slot: u32) {
        let token = core.table.token(slot);
        if let (Some(helpers), Some(conn)) = (&mut self.helpers, core.table.conn(slot))
            && let Some(fetch) = conn.fetch()
        {
            helpers.submit(token.pack(), fetch);
        }
    }

    /// Updates the mechanism and the timers for what a connection now waits for. Fails if it is to
    /// be closed: it is over, or cannot be watched.
    pub(super) fn settle(
        &mut self,
        core: &mut Core,
        slot: u32,
        action: Action,
    ) -> Result<(), CloseReason> {
        let interest = match action {
            Action::Read | Action::Discard => Interest::Read,
            Action::Write | Action::Shutdown => Interest::Write,
            Action::Fetch | Action::Forward | Action::Pause => Interest::Nothing,
            Action::Yield => {
                self.yield_to_others(core, slot);
                return Ok(());
            }
            Action::Close(reason) => return Err(reason),
        };
        if action == Action::Fetch {
            self.submit_fetch(core, slot);
        }
        let token = core.table.token(slot);
        let Some(conn) = core.table.conn(slot) else { return Ok(()) };
        core.timers.arm(slot, conn.deadline_ns());
        // A client may send all it has before it takes anything.
        let takes_both = interest == Interest::Write && conn.takes_content();
        let interest = if takes_both { Interest::Either } else { interest };
        if interest == Interest::Nothing && conn.registered.is_none() {
            return Ok(());
        }
        if let Err(error) = watch(&mut self.mechanism, conn, token, interest) {
            core.tell(&format!("a connection cannot be watched: {error}"));
            return Err(CloseReason::Failed);
        }
        conn.registered = Some(interest);
        Ok(())
    }

    /// Tells the mechanism what has changed about connections to upstreams.
    pub(super) fn settle_upstreams(&mut self, core: &mut Core) {
        let base = core.table.slots();
        let Some(upstreams) = &mut core.context.upstreams else { return };
        while let Some(change) = upstreams.sockets.next_change() {
            match change {
                Change::Closed(token, socket) => {
                    let token = Token { slot: base + token.slot, ..token };
                    if socket.registered.is_some() {
                        // It is a member of the set, so this cannot fail.
                        let _ = self.mechanism.remove(socket.fd(), token);
                    }
                }
                Change::Watch(token) => {
                    let Some(socket) = upstreams.sockets.get(token.slot) else { continue };
                    let token = Token { slot: base + token.slot, ..token };
                    if watch_upstream(&mut self.mechanism, socket, token).is_err() {
                        // Out of memory: its deadline ends it.
                        let errors = &core.context.config.errors;
                        errors.warn("a connection to an upstream is not watched");
                    }
                }
            }
        }
    }

    /// Queues a connection until others have been served, without changing its interest.
    fn yield_to_others(&mut self, core: &mut Core, slot: u32) {
        let token = core.table.token(slot);
        let Some(conn) = core.table.conn(slot) else { return };
        if !std::mem::replace(&mut conn.has_yielded, true) {
            self.yielded.push_back(token);
        }
        core.timers.arm(slot, conn.deadline_ns());
        if let Some(was) = conn.registered {
            // The interest does not change, so this cannot fail.
            let _ = watch(&mut self.mechanism, conn, token, was);
        }
    }

    /// Number of connections that yielded.
    pub(super) fn yielded(&self) -> usize {
        self.yielded.len()
    }

    /// Removes and returns the yielded connection that has waited longest; `None` when this
    /// iteration's write budget is spent.
    pub(super) fn resume_next(&mut self, core: &mut Core) -> Option<Token> {
        let is_spent = core.context.tls_budget.is_spent();
        for _ in 0..self.yielded.len() {
            if core.context.write_budget.is_spent() {
                break;
            }
            let token = self.yielded.pop_front()?;
            if is_open_connection(core, token)
                && let Some(conn) = core.table.conn(token.slot)
            {
                if is_spent && conn.awaits_handshake() {
                    self.yielded.push_back(token);
                    continue;
                }
                conn.has_yielded = false;
                return Some(token);
            }
        }
        None
    }

    /// Returns whether a token names a connection that is to be served when it is ready: it is
    /// open, and has not yielded.
    pub(super) fn may_be_served(&mut self, core: &mut Core, token: Token) -> bool {
        is_open_connection(core, token)
            && core.table.conn(token.slot).is_some_and(|conn| !conn.has_yielded)
    }

    /// Stops watching a connection before it is closed.
    pub(super) fn forget(&mut self, conn: &SocketConnection, token: Token) {
        if conn.registered.is_some() {
            // It is a member of the set, so this cannot fail.
            let _ = self.mechanism.remove(conn.fd(), token);
        }
    }

    /// Tells the mechanism that an accept found a listener's queue empty.
    pub(super) fn listener_drained(&mut self, core: &Core, index: usize) {
        let token = core.listeners[index].token;
        self.mechanism.blocked(token, Interest::Accept);
    }

    /// Starts or stops watching a listener.
    pub(super) fn watch_listener(
        &mut self,
        core: &Core,
        index: usize,
        wanted: bool,
    ) -> io::Result<()> {
        let interest = if wanted { Interest::Accept } else { Interest::Nothing };
        let listener = &core.listeners[index];
        self.mechanism.change(listener.fd(), listener.token, interest)
    }

    /// Stops watching a listener, and closes it.
    pub(super) fn close_listener(&mut self, listener: Listener) {
        let _ = self.mechanism.remove(listener.fd(), listener.token);
        listener.close();
    }

    /// Adds the counts of the mechanism and the helpers to the counters.
    pub(super) fn count(&mut self, core: &mut Core) {
        let counts = values(self.mechanism.counts());
        let counters = &mut core.context.counters;
        counters.set_mechanism(&counts);
        if let Some(helpers) = &self.helpers {
            let counts = helpers.counts();
            counters.set_helpers(&[
                counts.submitted,
                counts.done,
                counts.waiting_max,
                counts.busy_ns,
            ]);
        }
    }
}

/// Model whose connections are watched by a driver.
pub(crate) trait Driven: Model<Connection = SocketConnection> {
    /// Event mechanism of the driver.
    type Mechanism: Mechanism;

    /// Returns the driver.
    fn driver(&mut self) -> &mut ReadinessDriver<Self::Mechanism>;
}

impl<D: Driven> Worker<D> {
    /// Lets a connection do something, and then watches it for what it waits for, or closes it.
    /// Returns whether the connection is over.
    pub(super) fn act(
        &mut self,
        slot: u32,
        operation: impl FnOnce(&mut SocketConnection, &mut WorkerContext) -> Action,
    ) -> bool {
        let Some((conn, context)) = self.core.serve(slot) else { return false };
        let action = operation(conn, context);
        self.settle(slot, action);
        if self.core.context.upstreams.is_some() {
            self.model.driver().settle_upstreams(&mut self.core);
        }
        matches!(action, Action::Close(_))
    }

    /// Updates the mechanism and the timers for what a connection now waits for; closes it if it
    /// has ended or cannot be watched.
    pub(super) fn settle(&mut self, slot: u32, action: Action) {
        if let Err(reason) = self.model.driver().settle(&mut self.core, slot, action) {
            D::close(self, slot, reason);
        }
    }

    /// Takes a connection out of its slot, stops watching it and closes it; returns whether there
    /// was one.
    pub(super) fn forget_and_close(&mut self, slot: u32, reason: CloseReason) -> bool {
        let Some((conn, token)) = self.vacate(slot) else { return false };
        self.model.driver().forget(&conn, token);
        conn.close(reason, &mut self.core.context);
        if self.core.context.upstreams.is_some() {
            self.model.driver().settle_upstreams(&mut self.core);
        }
        true
    }
}

/// Tells the mechanism which of a connection's last calls would have blocked, and what it waits for
/// now.
fn watch<M: Mechanism>(
    mechanism: &mut M,
    conn: &mut SocketConnection,
    token: Token,
    interest: Interest,
) -> io::Result<()> {
    let (read_blocked, write_blocked) = conn.blocked();
    let Some(was) = conn.registered else { return mechanism.add(conn.fd(), token, interest) };
    if read_blocked {
        mechanism.blocked(token, Interest::Read);
    }
    if write_blocked {
        mechanism.blocked(token, Interest::Write);
    }
    if was == interest { Ok(()) } else { mechanism.change(conn.fd(), token, interest) }
}

/// Tells the mechanism what a connection to an upstream waits for now.
fn watch_upstream<M: Mechanism>(
    mechanism: &mut M,
    socket: &mut UpstreamSocket,
    token: Token,
) -> io::Result<()> {
    let [read_blocked, write_blocked] = std::mem::take(&mut socket.blocked);
    let wanted = socket.wanted;
    let was = socket.registered.replace(wanted);
    match was {
        None => return mechanism.add(socket.fd(), token, wanted),
        Some(_) if read_blocked => mechanism.blocked(token, Interest::Read),
        Some(_) => {}
    }
    if write_blocked {
        mechanism.blocked(token, Interest::Write);
    }
    if was == Some(wanted) { Ok(()) } else { mechanism.change(socket.fd(), token, wanted) }
}

/// Starts the helpers that the architecture or an option asks for. They wake the loop.
fn start_helpers(core: &Core) -> io::Result<Option<Helpers>> {
    let config = &core.context.config;
    let count = config.arch.helpers(&config.arch_settings);
    let control = Arc::clone(&core.control);
    let start = || Helpers::start(count, "weir-helper", move || control.waker.wake());
    (count > 0).then(start).transpose()
}
