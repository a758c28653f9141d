//! State shared by all connections of one loop: configuration, content, counters, buffers, the
//! time. It contains no lock: threads that share it lock all of it.

pub(crate) mod clients;
pub(crate) mod clock;
pub(crate) mod close_reason;
pub(crate) mod forwarded;
pub(crate) mod log;
pub(crate) mod logins;
pub(crate) mod memory;
pub(crate) mod output;
pub(crate) mod read_rate;
pub(crate) mod refusals;
pub(crate) mod reply_queue;
pub(crate) mod stores;
pub(crate) mod write_budget;

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use weir_accept::{Claim, Share, Shares, TlsBudget, TlsWork};
use weir_content::Now;
use weir_dispatch::readiness::Token;
use weir_http1::{DateField, Request};
use weir_stats::Counters;
use weir_sys::process::{self, Usage};

use crate::config::Config;
use crate::sites::client::Client;
use crate::upstream::Upstreams;
use clients::Clients;
use clock::Clock;
use forwarded::Background;
use log::{LogBuffer, LoggedRequest};
use logins::Logins;
use memory::{MemoryBudget, MemoryLevel};
use output::Output;
use refusals::{RefusalCause, RefusalSampler};
use stores::Stores;
use write_budget::WriteBudget;

/// Initial size of a connection's input buffer, bytes: a browser's request fits.
const INPUT_BYTES: usize = 16 << 10;

/// Maximum size of a buffer that is kept, bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Maximum number of buffers kept for reuse.
const KEPT_MAX: usize = 1024;

/// Maximum number of bytes of a file copied at once.
const SCRATCH_BYTES: usize = 64 << 10;

/// Number of requests beyond its share that a source may be served in a burst.
const OPEN_BURST: u64 = 16;

/// Maximum age of the wall clock's offset, nanoseconds.
const OFFSET_AGE_NS: u64 = 100_000_000;

/// Minimum time between two messages about lost lines, nanoseconds.
const TELL_LOSSES_NS: u64 = 10_000_000_000;

/// Maximum length of an identifier that is accepted from a proxy, bytes.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Returns whether a proxy's identifier of a request may be passed on, and logged as it is.
fn is_request_id(id: &[u8]) -> bool {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=:@".contains(byte);
    (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(is_safe)
}

/// Everything that a connection needs besides its own state.
pub(crate) struct WorkerContext {
    pub config: Arc<Config>,
    pub stores: Stores,
    pub counters: Counters,
    /// Numbers of the present state of each upstream, as the page of statistics has them.
    pub upstream_words: Vec<u64>,
    pub date: DateField,
    pub log: Option<LogBuffer>,
    /// Buffer for bytes in transit: a file being copied, or input to be discarded.
    pub scratch: Box<[u8]>,
    /// Bytes that may be sent in an iteration before others are served.
    pub write_budget: WriteBudget,
    /// Time for TLS handshakes in an iteration.
    pub tls_budget: TlsBudget,
    /// TLS handshakes so far, as policies are told of them.
    pub tls_work: TlsWork,
    /// True while the server drains: a reply that begins now is the last of its connection.
    pub draining: bool,
    /// True while idle connections outlive the listeners, for one more request, because the server
    /// has a successor.
    pub keeps_idle: bool,
    /// True while too many connections are open, with the same effect.
    pub pressure: bool,
    /// True while a listener is overloaded, with the effect that nothing more is compressed.
    pub is_overloaded: bool,
    /// Capacity that sources have to share, while they do, and what each of them has used of it.
    pub share: Option<Share>,
    shares: Option<Box<Shares>>,
    /// Memory budget of the server, as this loop sees it.
    pub memory: MemoryBudget,
    /// Limits of each client, if there are any.
    pub clients: Option<Arc<Clients>>,
    /// Servers that requests are forwarded to, if there are any.
    pub upstreams: Option<Box<Upstreams>>,
    /// Forwarded requests that go on without a client.
    pub background: Background,
    /// Buffer for the key of a stored reply.
    pub cache_key: Vec<u8>,
    /// Buffer for the plain form of a path.
    pub path_room: Vec<u8>,
    /// Passwords that were found right.
    pub logins: Logins,
    /// Connection that is being served.
    pub serving: Token,
    /// True if it is served because its upstream has moved, and not its client.
    pub by_upstream: bool,
    /// Usage of threads other than the reporting one, if there are any.
    pub other_threads: Usage,
    clock: Clock,
    now_ns: u64,
    unix_offset_ns: u64,
    offset_at_ns: u64,
    inputs: Vec<Vec<u8>>,
    // Boxed as connections hold them: a pointer in each idle one.
    #[allow(clippy::vec_box)]
    outputs: Vec<Box<Output>>,
    random: RandomState,
    boundaries: u64,
    refusals: RefusalSampler,
    /// Lines of the access log that were lost and not told of, and when some were.
    untold_losses: u64,
    told_losses_ns: Option<u64>,
}

impl WorkerContext {
    pub(crate) fn new(config: Arc<Config>, stores: Stores, log: Option<LogBuffer>) -> Self {
        Self::with_clock(config, stores, log, Clock::Machine(Instant::now()))
    }

    pub(crate) fn with_clock(
        config: Arc<Config>,
        stores: Stores,
        log: Option<LogBuffer>,
        clock: Clock,
    ) -> Self {
        let mut context = Self {
            refusals: RefusalSampler::of(&config.errors),
            memory: MemoryBudget::new(config.memory_bytes()),
            config,
            stores,
            counters: Counters::default(),
            upstream_words: Vec::new(),
            date: DateField::default(),
            log,
            scratch: vec![0; SCRATCH_BYTES].into(),
            write_budget: WriteBudget::default(),
            tls_budget: TlsBudget::default(),
            tls_work: TlsWork::default(),
            draining: false,
            keeps_idle: false,
            pressure: false,
            is_overloaded: false,
            share: None,
            shares: None,
            clients: None,
            upstreams: None,
            background: Background::default(),
            cache_key: Vec::new(),
            path_room: Vec::new(),
            logins: Logins::default(),
            serving: Token::default(),
            by_upstream: false,
            other_threads: Usage::default(),
            clock,
            now_ns: 0,
            unix_offset_ns: 0,
            offset_at_ns: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
            random: RandomState::new(),
            boundaries: 0,
            untold_losses: 0,
            told_losses_ns: None,
        };
        context.read_wall_clock();
        context
    }

    /// Reads the clock: once after each wait, so that a phase sees one time. Others may have given
    /// memory back meanwhile.
    pub(crate) fn tick(&mut self) {
        self.memory.note_woken();
        self.now_ns = self.read_clock_ns();
        if self.now_ns - self.offset_at_ns > OFFSET_AGE_NS {
            self.read_wall_clock();
        }
    }

    fn read_wall_clock(&mut self) {
        self.unix_offset_ns = self.clock.unix_offset_ns(self.now_ns);
        self.offset_at_ns = self.now_ns;
    }

    /// Returns the nanoseconds since the loop began, read now and not at the last
    /// [`WorkerContext::tick`].
    pub(crate) fn read_clock_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Returns the CPU time that this thread has used, nanoseconds since an arbitrary start.
    pub(crate) fn cpu_clock_ns(&self) -> u64 {
        self.clock.cpu_ns()
    }

    /// Advances a manual clock by `ns`.
    pub(crate) fn advance(&self, ns: u64) {
        self.clock.advance(ns);
    }

    /// Returns the nanoseconds since the loop began, as of the last [`WorkerContext::tick`].
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns whether connections close after a reply that begins now.
    pub(crate) fn is_closing(&self) -> bool {
        self.draining || self.pressure || self.memory.level() >= MemoryLevel::Idle
    }

    /// Returns whether connections close after a reply that has not said so, though their clients
    /// may have sent another request already.
    pub(crate) fn closes_idle(&self) -> bool {
        self.draining && !self.keeps_idle || self.memory.level() >= MemoryLevel::Idle
    }

    /// Returns whether a source has had less than its share; true while sources need not share.
    pub(crate) fn is_within_share(&mut self, source: SocketAddr) -> bool {
        self.claim(source).is_none_or(|claim| claim.is_fair)
    }

    /// Charges a request that is about to be answered to its source. Returns whether the source has
    /// used up its share, so that its connection closes after the reply: it may come again when
    /// others have had theirs.
    pub(crate) fn charge_source(&mut self, source: SocketAddr) -> bool {
        let Some(claim) = self.claim(source) else { return false };
        if let Some(shares) = &mut self.shares {
            shares.grant(claim);
        }
        !claim.is_fair
    }

    fn claim(&mut self, source: SocketAddr) -> Option<Claim> {
        let Share { each_ns, weight } = self.share?;
        let shares = self.shares.get_or_insert_with(|| Box::new(Shares::new(OPEN_BURST)));
        Some(shares.claim(self.now_ns, source.ip().into(), each_ns, weight))
    }

    /// Returns when something is due at the upstreams, nanoseconds.
    pub(crate) fn upstreams_due_ns(&self) -> Option<u64> {
        let upstreams = self.upstreams.as_ref()?;
        upstreams.due_ns().into_iter().chain(self.background.due_ns()).min()
    }

    /// Returns the nanoseconds since 1970.
    pub(crate) fn unix_ns(&self) -> u64 {
        self.unix_offset_ns + self.now_ns
    }

    /// Returns the time as the content store wants it.
    pub(crate) fn clock(&self) -> Now {
        Now { monotonic_ns: self.now_ns, unix_ns: self.unix_ns() }
    }

    pub(crate) fn take_input(&mut self) -> Vec<u8> {
        let Some(buffer) = self.inputs.pop() else { return Vec::with_capacity(INPUT_BYTES) };
        self.memory.buffers -= buffer.capacity() as i64;
        buffer
    }

    pub(crate) fn give_input(&mut self, mut buffer: Vec<u8>) {
        // A buffer cut to the size of a partial head is too small for reuse.
        if (INPUT_BYTES..=KEPT_BYTES_MAX).contains(&buffer.capacity())
            && self.inputs.len() < KEPT_MAX
        {
            buffer.clear();
            self.memory.buffers += buffer.capacity() as i64;
            self.inputs.push(buffer);
        }
    }

    /// Gives back what only saves time: `bytes` of what caches keep, and all buffers for reuse.
    /// Returns how many bytes that were.
    pub(crate) fn give_back_memory(&mut self, bytes: u64) -> u64 {
        let inputs = std::mem::take(&mut self.inputs).iter().map(Vec::capacity).sum::<usize>();
        let outputs = std::mem::take(&mut self.outputs);
        let outputs = outputs.iter().map(|output| output.kept_bytes()).sum::<usize>();
        self.memory.buffers -= (inputs + outputs) as i64;
        let replies = self.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
        let stored_bytes = || replies.map_or(0, |cache| cache.totals().stored_bytes);
        let (reply_bytes, file_bytes) = (stored_bytes(), self.stores.kept_bytes());
        // Each gives as much as it has of the whole.
        let of_files = memory::share(bytes, file_bytes, file_bytes + reply_bytes);
        if let Some(cache) = replies.filter(|_| reply_bytes > 0) {
            cache.give_back(bytes - of_files);
        }
        self.stores.give_back(of_files);
        let left_bytes = stored_bytes() + self.stores.kept_bytes();
        (inputs + outputs) as u64 + (file_bytes + reply_bytes).saturating_sub(left_bytes)
    }

    pub(crate) fn take_output(&mut self) -> Box<Output> {
        let Some(output) = self.outputs.pop() else { return Box::default() };
        self.memory.buffers -= output.kept_bytes() as i64;
        output
    }

    pub(crate) fn give_output(&mut self, mut output: Box<Output>) {
        if output.bytes.capacity() <= KEPT_BYTES_MAX && self.outputs.len() < KEPT_MAX {
            output.reset();
            self.memory.buffers += output.kept_bytes() as i64;
            self.outputs.push(output);
        }
    }

    /// Returns a boundary that content contains only by chance: 128 random bits (RFC 2046 §5.1.1).
    pub(crate) fn boundary(&mut self) -> Vec<u8> {
        self.boundaries += 1;
        let half = |salt: u8| self.random.hash_one((self.boundaries, self.now_ns, salt));
        format!("{:016x}{:016x}", half(0), half(1)).into_bytes()
    }

    /// Returns the identifier of a request, if requests have one: that of a trusted proxy, or 128
    /// random bits.
    pub(crate) fn request_id(
        &mut self,
        request: &Request<'_>,
        peer: SocketAddr,
    ) -> Option<Box<[u8]>> {
        if !self.config.request_ids {
            return None;
        }
        let said = request.request_id.filter(|id| is_request_id(id));
        match said.filter(|_| self.config.trusts_peer(peer)) {
            Some(said) => Some(said.into()),
            None => Some(self.boundary().into()),
        }
    }

    /// Returns what the log says of a request; `None` if there is no log. `client`: its client, if
    /// that was found before.
    pub(crate) fn logged(
        &mut self,
        request: &Request<'_>,
        peer: SocketAddr,
        client: Option<Client>,
    ) -> Option<LoggedRequest> {
        self.log.as_ref()?;
        let id = self.request_id(request, peer);
        self.logged_with_id(request, peer, client, id)
    }

    /// As [`WorkerContext::logged`], with this identifier.
    pub(crate) fn logged_with_id(
        &self,
        request: &Request<'_>,
        peer: SocketAddr,
        client: Option<Client>,
        id: Option<Box<[u8]>>,
    ) -> Option<LoggedRequest> {
        let has_host = self.log.as_ref()?.has_host();
        let client = client.unwrap_or_else(|| self.config.client(peer, request.head));
        Some(LoggedRequest::of(request, client.address(), id, has_host))
    }

    /// Returns another handle to the configuration, for when `self` must be free to change.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config)
    }

    /// Adds the counts of the log and of the store to the counters. Makes no system call.
    #[inline]
    pub(crate) fn note_counts(&mut self) {
        if let Some(log) = &mut self.log {
            let (written, lost) = log.take_counts();
            self.counters.log_lines.add(written);
            self.counters.log_lines_lost.add(lost);
            self.untold_losses += lost;
            if self.untold_losses > 0 {
                self.tell_losses();
            }
        }
        self.stores.note(&mut self.counters);
        self.memory.note(&mut self.counters);
        self.counters.threads_max.raise(1);
        if let Some(upstreams) = &self.upstreams {
            upstreams.count(&mut self.counters, &mut self.upstream_words);
        }
    }

    /// Tells the error log of a refusal, or counts it. `cause` is asked only in the first case.
    #[inline]
    pub(crate) fn log_refusal(&mut self, client: IpAddr, cause: impl FnOnce() -> RefusalCause) {
        if self.refusals.count(self.now_ns) {
            self.refusals.write(client, cause(), &self.config, self.now_ns);
        }
    }

    /// Tells the operator of lost lines of the access log, after a while of the next ones.
    #[cold]
    fn tell_losses(&mut self) {
        let is_told = |at_ns: u64| self.now_ns < at_ns.saturating_add(TELL_LOSSES_NS);
        if self.told_losses_ns.is_some_and(is_told) {
            return;
        }
        self.told_losses_ns = Some(self.now_ns);
        let lost = std::mem::take(&mut self.untold_losses);
        self.config.errors.warn(&format!("{lost} lines of the access log were lost"));
    }

    /// Returns the counters, with those of the store, and those of the kernel for all threads of
    /// the worker.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        self.stores.note(&mut counters);
        counters.threads_max.raise(1);
        let (own, others) = (process::thread_usage(), self.other_threads);
        counters.set_cpu(own.user_ns + others.user_ns, own.system_ns + others.system_ns);
        counters.set_switches(
            own.switches_voluntary + others.switches_voluntary,
            own.switches_involuntary + others.switches_involuntary,
        );
        counters
    }
}
