//! The other servers to which requests are forwarded, as one loop sees them: its connections to
//! them, and what became of its requests that waited for a place.

pub(crate) mod buffers;
mod caching;
pub(crate) mod checker;
mod health;
mod pace;
pub(crate) mod ring_io;
pub(crate) mod shared;
pub(crate) mod sockets;
mod transport;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use weir_accept::Limit;
use weir_accept::upstream::{Arrived, Asked, Departure, Granted, Load, Outcome, Reason, Ticket};
use weir_dispatch::readiness::Token;
use weir_stats::Counters;
use weir_sys::client;
use weir_sys::heap::{Charged, Part};
use weir_sys::listener;
use weir_sys::pipe::Pipe;
use weir_sys::waker::Waker;
use weir_tls::client::ClientSession;

use crate::config::{Config, UpstreamAddress, UpstreamServer};
use buffers::BufferPool;
use health::Fault;
use shared::{Grant, Landing, SharedUpstreams, Whose};
use sockets::Sockets;

/// Time between two searches for idle connections that have become old, nanoseconds.
const SEARCH_NS: u64 = 1_000_000_000;

/// Time between two messages about what is lacking here, nanoseconds.
const TELL_NS: u64 = 1_000_000_000;

/// Size of a pipe, bytes.
const PIPE_BYTES: usize = 256 << 10;

/// Maximum number of pipes kept.
const PIPES_MAX: usize = 16;

/// Connections that are kept, of which a request may have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// None.
    Never,
    /// Connections on which the server has said nothing and that it has not ended, as a look at the
    /// socket shows, which costs a system call.
    Looked,
    /// Connections that a look shows to be so, and without one those that were known to be so a
    /// moment before: if the server ends one meanwhile, the request can be sent again.
    Repeatable,
}

/// The upstreams of one loop. Times are nanoseconds on the loop's clock.
pub(crate) struct Upstreams {
    shared: Arc<SharedUpstreams>,
    config: Arc<Config>,
    loop_index: usize,
    /// From the loop's clock to the one that all loops share, nanoseconds.
    offset_ns: u64,
    /// Connections to the servers.
    pub sockets: Sockets,
    /// Requests whose wait is over, or that lose their place.
    grants: VecDeque<Grant>,
    /// Requests whose wait for the reply to another is over.
    landings: VecDeque<Landing>,
    /// Earliest time at which a request may have become stale, or may lose its place.
    due_ns: Option<u64>,
    search_ns: u64,
    /// Time at which the operator was last told of a lack, nanoseconds.
    lack_told_ns: Option<u64>,
    serial: u64,
    /// Pipes for large content that are not in use, all empty.
    pipes: Vec<Pipe>,
}

impl Upstreams {
    /// Creates the upstreams of a loop. `now_ns`: its clock.
    pub(crate) fn new(
        shared: Arc<SharedUpstreams>,
        config: Arc<Config>,
        loop_index: usize,
        waker: Arc<Waker>,
        now_ns: u64,
    ) -> Self {
        shared.register(loop_index, waker);
        let offset_ns = shared.now_ns().saturating_sub(now_ns);
        let servers = config.upstreams.iter().map(|each| each.servers.len());
        let sockets = Sockets::new(config.slots, servers);
        Self {
            shared,
            config,
            loop_index,
            offset_ns,
            sockets,
            grants: VecDeque::new(),
            landings: VecDeque::new(),
            due_ns: None,
            search_ns: 0,
            lack_told_ns: None,
            serial: 0,
            pipes: Vec::new(),
        }
    }

    /// Takes an empty pipe; `None` if the kernel has none.
    pub(crate) fn take_pipe(&mut self) -> Option<Pipe> {
        self.pipes.pop().or_else(|| Pipe::new(PIPE_BYTES).ok())
    }

    /// Gives back a pipe. One that is not empty is closed.
    pub(crate) fn give_pipe(&mut self, pipe: Pipe) {
        if pipe.held() == 0 && self.pipes.len() < PIPES_MAX {
            self.pipes.push(pipe);
        }
    }

    /// Returns the memory in which replies wait for slow clients.
    pub(crate) fn buffers(&self) -> &Arc<BufferPool> {
        &self.shared.buffers
    }

    /// Returns a number for a request, unlike that of any before.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Admits a request to an upstream, queues it or refuses it.
    pub(crate) fn arrive(
        &mut self,
        upstream: usize,
        asked: Asked,
        client: Token,
        serial: u64,
        now_ns: u64,
    ) -> Arrived {
        let shared_ns = now_ns + self.offset_ns;
        let whose = Whose { loop_index: self.loop_index, token: client, serial };
        let arrived = self.shared.admission(upstream).arrive(shared_ns, asked, whose);
        if matches!(arrived, Arrived::Waits(_)) {
            let due_ns = now_ns + self.config.upstreams[upstream].admission.target_ns;
            self.due_ns = Some(self.due_ns.map_or(due_ns, |earlier| earlier.min(due_ns)));
            self.hand_out(upstream, now_ns);
        }
        arrived
    }

    /// Returns whether the number of requests in flight at an upstream is limited.
    pub(crate) fn is_limited(&self, upstream: usize) -> bool {
        self.config.upstreams[upstream].admission.limit != Limit::Inf
    }

    /// Withdraws a request that waits; returns whether it did. If not, it has been given a place,
    /// or was refused, and the loop is about to learn it.
    pub(crate) fn withdraw(&mut self, upstream: usize, ticket: Ticket) -> bool {
        self.shared.admission(upstream).withdraw(ticket)
    }

    /// Has a request keep its place whose client has gone, after a wait of `waited_ns`. `token`:
    /// its own from now on. Returns how long it may.
    pub(crate) fn depart(
        &mut self,
        upstream: usize,
        token: Token,
        serial: u64,
        waited_ns: u64,
        now_ns: u64,
    ) -> Departure {
        let whose = Whose { loop_index: self.loop_index, token, serial };
        let shared_ns = now_ns + self.offset_ns;
        let mut departure = self.shared.admission(upstream).depart(shared_ns, waited_ns, whose);
        self.hand_out(upstream, now_ns);
        departure.until_ns = departure.until_ns.saturating_sub(self.offset_ns);
        departure
    }

    /// Returns what comes to an upstream, and what it does with it.
    pub(crate) fn load(&self, upstream: usize) -> Load {
        self.shared.admission(upstream).load()
    }

    /// Records that a request whose client had gone is to lose its place no longer: it may have
    /// ended.
    pub(crate) fn end_departure(&self, upstream: usize, departure: Departure) {
        self.shared.admission(upstream).end_departure(departure);
    }

    /// Gives back a place.
    pub(crate) fn complete(
        &mut self,
        upstream: usize,
        took_ns: u64,
        outcome: Outcome,
        now_ns: u64,
    ) {
        self.shared.admission(upstream).complete(now_ns + self.offset_ns, took_ns, outcome);
        self.hand_out(upstream, now_ns);
    }

    /// Tells those whose wait is over, or that lose their place, in whatever loop they are; and
    /// records when the next is to lose its place. What has just ended may have lowered the limit.
    fn hand_out(&mut self, upstream: usize, now_ns: u64) {
        let shared_ns = now_ns + self.offset_ns;
        loop {
            let mut admission = self.shared.admission(upstream);
            let Some(granted) = admission.next(shared_ns) else {
                let recall_ns = admission.recall_ns();
                drop(admission);
                let due_ns = recall_ns.map(|recall_ns| recall_ns.saturating_sub(self.offset_ns));
                self.due_ns = self.due_ns.into_iter().chain(due_ns).min();
                return;
            };
            drop(admission);
            let grant = Grant { upstream, granted };
            let loop_index = granted.whose().loop_index;
            if loop_index == self.loop_index {
                self.grants.push_back(grant);
                continue;
            }
            let is_sent = self.shared.send(loop_index, grant);
            if !is_sent && matches!(granted, Granted::Place(_)) {
                // Its loop has just ended.
                self.shared.admission(upstream).complete(shared_ns, 0, Outcome::Abandoned);
            }
        }
    }

    /// Gives back the places that were handed out to a loop that ends. None of its requests may be
    /// left.
    pub(crate) fn end(&mut self, now_ns: u64) {
        self.shared.take_last_mail(self.loop_index, &mut self.grants);
        while let Some(Grant { upstream, granted }) = self.grants.pop_front() {
            if matches!(granted, Granted::Place(_)) {
                self.complete(upstream, 0, Outcome::Abandoned, now_ns);
            }
        }
    }

    /// Takes what other loops have handed out to this one.
    pub(crate) fn take_mail(&mut self) {
        self.shared.take_mail(self.loop_index, &mut self.grants);
        self.shared.take_landings(self.loop_index, &mut self.landings);
    }

    /// Removes and returns a request whose wait is over, or that loses its place.
    pub(crate) fn next_grant(&mut self) -> Option<Grant> {
        self.grants.pop_front()
    }

    /// Returns whether the wait of a request is over, or one loses its place.
    pub(crate) fn has_grants(&self) -> bool {
        !(self.grants.is_empty() && self.landings.is_empty())
    }

    /// Returns when [`Upstreams::poll`] is due.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let search_ns = self.sockets.has_idle().then_some(self.search_ns);
        self.due_ns.into_iter().chain(search_ns).min()
    }

    /// Refuses requests that have become stale, takes back places, and closes connections that were
    /// idle for long.
    pub(crate) fn poll(&mut self, now_ns: u64) {
        if self.due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            for upstream in 0..self.config.upstreams.len() {
                self.hand_out(upstream, now_ns);
            }
            let due_ns = (0..self.config.upstreams.len())
                .filter_map(|upstream| self.shared.admission(upstream).due_ns())
                .min();
            self.due_ns =
                due_ns.map(|due_ns| due_ns.saturating_sub(self.offset_ns).max(now_ns + 1));
        }
        if self.search_ns <= now_ns {
            self.search_ns = now_ns + SEARCH_NS;
            for upstream in 0..self.config.upstreams.len() {
                self.close_unkept(upstream);
                let idle_ns = self.config.upstreams[upstream].idle_ns;
                self.sockets.close_older(upstream, now_ns.saturating_sub(idle_ns));
            }
        }
    }

    /// Returns a connection to a server of an upstream, for one client: one that is kept, if there
    /// is one that it may have, or a new one on which a connect has begun. A server without an
    /// address here is passed over. `tried`: servers that come after others, since no connection to
    /// them could be made; more are added.
    ///
    /// # Errors
    /// No server can be reached now: connect(2), socket(2).
    pub(crate) fn connect(
        &mut self,
        upstream: usize,
        client: Token,
        reuse: Reuse,
        tried: &mut Vec<usize>,
        now_ns: u64,
        counters: &mut Counters,
    ) -> io::Result<u32> {
        let shared_ns = now_ns + self.offset_ns;
        let mut last = io::Error::from(io::ErrorKind::NotConnected);
        let unlooked_ns = (reuse == Reuse::Repeatable).then_some(now_ns);
        self.close_unkept(upstream);
        let servers = self.config.upstreams[upstream].servers.len();
        for _ in 0..servers.saturating_sub(tried.len()).max(1) {
            let server = self.shared.choose(upstream, tried, shared_ns);
            if reuse != Reuse::Never
                && let Some(slot) = self.sockets.take_idle(upstream, server, client, unlooked_ns)
            {
                counters.upstream_reused.one();
                self.note_taken(slot, now_ns);
                return Ok(slot);
            }
            counters.upstream_connects.one();
            let target = &self.config.upstreams[upstream].servers[server];
            match open(&target.address).and_then(|fd| Ok((fd, session(target)?))) {
                Ok((fd, tls)) => {
                    let slot = self.sockets.add(fd, upstream, server, client, tls);
                    self.note_taken(slot, now_ns);
                    return Ok(slot);
                }
                // What is lacking here is not the server's fault.
                Err(error) if client::is_own_lack(&error) => {
                    self.tell_lack(upstream, &error, now_ns);
                    return Err(error);
                }
                // Nor this, but another may be reached. If one failed, that is told.
                Err(error) if client::has_no_address(&error) => {
                    self.tell_lack(upstream, &error, now_ns);
                    if tried.is_empty() {
                        last = error;
                    }
                }
                Err(error) => {
                    // A Unix socket whose queue is full belongs to a server that lives.
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.note_failure_of(upstream, server, Fault::of(&error), now_ns);
                    }
                    last = error;
                }
            }
            if !tried.contains(&server) {
                tried.push(server);
            }
        }
        Err(last)
    }

    /// Records that a request has got a connection.
    fn note_taken(&mut self, slot: u32, now_ns: u64) {
        let Some(socket) = self.sockets.get(slot) else { return };
        socket.taken_ns = now_ns;
        let (upstream, server) = socket.server();
        self.shared.begin(upstream, server, now_ns + self.offset_ns);
    }

    /// Tells the operator what is lacking here for a connection, at most once per second.
    fn tell_lack(&mut self, upstream: usize, error: &io::Error, now_ns: u64) {
        if self.lack_told_ns.is_none_or(|told_ns| told_ns + TELL_NS <= now_ns) {
            self.lack_told_ns = Some(now_ns);
            let name = &self.config.upstreams[upstream].name;
            self.config.errors.warn(&format!("upstream {name}: cannot connect: {error}"));
        }
    }

    /// Returns whether an upstream has a server that is up, and not among those `tried`.
    pub(crate) fn has_others(&self, upstream: usize, tried: &[usize]) -> bool {
        self.shared.has_others(upstream, tried)
    }

    /// Returns whether the checks find every server of an upstream down.
    pub(crate) fn is_down(&self, upstream: usize) -> bool {
        self.shared.is_down(upstream)
    }

    /// Returns whether connections to an upstream are kept for other requests now.
    pub(crate) fn keeps(&self, upstream: usize) -> bool {
        let decided = self.config.upstreams[upstream].keeps();
        decided.unwrap_or_else(|| self.shared.pace(upstream).keeps())
    }

    /// Closes the idle connections to an upstream to which none are kept any more. Each may have a
    /// process to itself, which waits on it for a request while others wait for a process.
    fn close_unkept(&mut self, upstream: usize) {
        if !self.keeps(upstream) {
            self.sockets.close_older(upstream, u64::MAX);
        }
    }

    /// Returns whether the pace of an upstream's servers decides whether connections are kept.
    fn has_pace(&self, upstream: usize) -> bool {
        self.config.upstreams[upstream].keeps().is_none()
    }

    /// Returns the time limit of a connect that is under way, nanoseconds, after those to the
    /// servers `tried`.
    pub(crate) fn connect_limit_ns(&self, slot: u32, tried: &[usize]) -> Option<u64> {
        let (upstream, server) = self.sockets.connecting(slot)?;
        let limit_ns = self.config.upstreams[upstream].timeouts.connect_ns;
        let is_other = |other: usize| other != server && !tried.contains(&other);
        let has_others = self.shared.has_up(upstream, is_other);
        let health = self.shared.health(upstream, server);
        Some(if has_others { health.connect_limit_ns(limit_ns) } else { limit_ns })
    }

    /// Records that a connection has been made.
    pub(crate) fn note_connected(&mut self, slot: u32) {
        let Some((upstream, _)) = self.sockets.server_of(slot) else { return };
        if self.has_pace(upstream)
            && let Some(socket) = self.sockets.get(slot)
        {
            // The loop may see it late, the kernel does not. A Unix socket has none.
            let rtt_ns = listener::arrival(socket.fd()).map_or(0, |state| state.rtt_ns);
            self.shared.pace(upstream).note_connect(rtt_ns);
        }
    }

    /// Records that the reply on a connection has begun, `took_ns` after its request had a place.
    pub(crate) fn note_reply(&mut self, slot: u32, took_ns: u64, now_ns: u64) {
        if let Some((upstream, server)) = self.sockets.server_of(slot)
            && self.has_pace(upstream)
        {
            self.shared.note_reply(upstream, server, took_ns, now_ns + self.offset_ns);
        }
    }

    /// Gives back a connection after a request: it is kept, or closed.
    pub(crate) fn give_back(&mut self, slot: u32, keep: bool, now_ns: u64) {
        let Some((upstream, server)) = self.sockets.server_of(slot) else { return };
        self.shared.end(upstream, server);
        let idle_max = self.config.upstreams[upstream].keep_idle.count_max();
        if keep && self.keeps(upstream) && self.sockets.idle(upstream, server) < idle_max {
            self.sockets.keep(slot, now_ns);
        } else {
            self.sockets.close(slot);
        }
    }

    /// Records that the server of a connection could not be reached, or broke off.
    pub(crate) fn note_failure(&mut self, slot: u32, now_ns: u64) {
        if let Some(socket) = self.sockets.get(slot) {
            let (fault, (upstream, server)) = (socket.fault, socket.server());
            self.note_failure_of(upstream, server, fault, now_ns);
        }
    }

    /// Records a failure of a server, and tells the operator of the first in a row.
    fn note_failure_of(&self, upstream: usize, server: usize, fault: Fault, now_ns: u64) {
        if self.shared.health(upstream, server).note_failure(fault, now_ns + self.offset_ns) {
            let config = &self.config.upstreams[upstream];
            let (name, address) = (&config.name, &config.servers[server]);
            let has_others = config.servers.len() > 1;
            let then = if has_others { ", and is passed over" } else { "" };
            self.config.errors.warn(&format!("upstream {name}: {address} has failed{then}"));
        }
    }

    /// Records a whole reply of the server of a connection, or the head of one without an end.
    pub(crate) fn note_success(&mut self, slot: u32, now_ns: u64) {
        if let Some(socket) = self.sockets.get(slot) {
            let ((upstream, server), taken_ns) = (socket.server(), socket.taken_ns);
            let [since_ns, now_ns] = [taken_ns, now_ns].map(|at_ns| at_ns + self.offset_ns);
            let health = self.shared.health(upstream, server);
            if health.note_success(since_ns, now_ns) {
                let config = &self.config.upstreams[upstream];
                let (name, address) = (&config.name, &config.servers[server]);
                self.config.errors.notice(&format!("upstream {name}: {address} answers again"));
            }
        }
    }

    /// Adds the present state of the upstreams to the counters of each loop, with that of each in
    /// `words`; and what is counted for all loops together to those of one, so that their sum is
    /// right.
    pub(crate) fn count(&self, counters: &mut Counters, words: &mut Vec<u64>) {
        self.shared.note_state(counters, words);
        if self.loop_index == 0 {
            self.shared.count(counters);
        }
    }
}

/// Why a request that waited was refused, as a count.
pub(crate) fn count_refusal(reason: Reason, counters: &mut Counters) {
    match reason {
        Reason::Stale => counters.upstream_stale.one(),
        Reason::Excess => counters.upstream_excess.one(),
    }
}

/// Begins a session of TLS with a server; `None` without TLS.
///
/// # Errors
/// There is no randomness.
fn session(server: &UpstreamServer) -> io::Result<Option<Charged<ClientSession>>> {
    let session = server
        .tls
        .as_ref()
        .map(|connector| Charged::of(Part::Upstreams, || connector.session()).transpose());
    session.transpose().map_err(io::Error::other)
}

/// Opens a socket, and begins to connect it.
fn open(address: &UpstreamAddress) -> io::Result<OwnedFd> {
    match address {
        UpstreamAddress::Tcp(address) => {
            let fd = client::stream(address)?;
            client::send_at_once(fd.as_fd())?;
            client::connect(fd.as_fd(), address)?;
            Ok(fd)
        }
        UpstreamAddress::Unix(path) => client::connect_unix(path),
    }
}
