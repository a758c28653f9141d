//! What all loops share of the upstreams: the admission to each, the state of their servers, and
//! the way from one loop to another.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use weir_accept::upstream::{Admission, Reason};
use weir_cache::{Cache, CacheTotals};
use weir_dispatch::readiness::Token;
use weir_stats::Counters;
use weir_sys::waker::Waker;

use crate::config::Config;

/// Time for which a server that failed is passed over, nanoseconds.
const DOWN_NS: u64 = 1_000_000_000;

/// A request that waits: the loop and the connection of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whose {
    pub loop_index: usize,
    pub token: Token,
    /// Number of the request among those of the loop.
    pub serial: u64,
}

/// The end of a request's wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub upstream: usize,
    /// The connection of its client.
    pub token: Token,
    /// Number of the request among those of the loop.
    pub serial: u64,
    /// Reason for its refusal; `None` if it has a place.
    pub refusal: Option<Reason>,
}

struct Server {
    in_flight: AtomicUsize,
    /// Time until which it is passed over; 0 if it is not.
    down_until_ns: AtomicU64,
}

struct SharedUpstream {
    admission: Mutex<Admission<Whose>>,
    servers: Vec<Server>,
    /// Server that is asked first among equals.
    turn: AtomicUsize,
}

/// The end of a wait for the reply to another request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    /// The connection of the client that waited.
    pub token: Token,
    /// Number of the request among those of the loop.
    pub serial: u64,
    /// True if there was no reply.
    pub failed: bool,
}

#[derive(Default)]
struct Mailbox {
    grants: Mutex<Vec<Grant>>,
    landings: Mutex<Vec<Landing>>,
    waker: OnceLock<Arc<Waker>>,
}

/// The upstreams of all loops. Times are nanoseconds on a clock of their own.
pub(crate) struct SharedUpstreams {
    epoch: Instant,
    upstreams: Vec<SharedUpstream>,
    mailboxes: Vec<Mailbox>,
    /// The cache of replies, if there is one.
    pub(super) cache: Option<Cache<Whose>>,
}

impl SharedUpstreams {
    /// Creates those of a configuration; `None` if it has none.
    pub(crate) fn of(config: &Config) -> Option<Arc<Self>> {
        (!config.upstreams.is_empty()).then(|| Arc::new(Self::new(config)))
    }

    fn new(config: &Config) -> Self {
        let server = |_: &_| Server { in_flight: 0.into(), down_until_ns: 0.into() };
        let upstreams = config.upstreams.iter().map(|upstream| SharedUpstream {
            admission: Mutex::new(Admission::new(&upstream.admission)),
            servers: upstream.servers.iter().map(server).collect(),
            turn: AtomicUsize::new(0),
        });
        Self {
            epoch: Instant::now(),
            upstreams: upstreams.collect(),
            mailboxes: (0..config.workers.max(1)).map(|_| Mailbox::default()).collect(),
            cache: config.cache.as_ref().map(|cache| Cache::new(cache.bounds)),
        }
    }

    pub(super) fn register(&self, loop_index: usize, waker: Arc<Waker>) {
        if let Some(mailbox) = self.mailboxes.get(loop_index) {
            let _ = mailbox.waker.set(waker);
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    pub(super) fn admission(&self, upstream: usize) -> MutexGuard<'_, Admission<Whose>> {
        let admission = &self.upstreams[upstream].admission;
        admission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the end of a wait to another loop.
    pub(super) fn send(&self, loop_index: usize, grant: Grant) {
        let Some(mailbox) = self.mailboxes.get(loop_index) else { return };
        mailbox.grants.lock().unwrap_or_else(PoisonError::into_inner).push(grant);
        if let Some(waker) = mailbox.waker.get() {
            waker.wake();
        }
    }

    pub(super) fn take_mail(&self, loop_index: usize, grants: &mut VecDeque<Grant>) {
        let Some(mailbox) = self.mailboxes.get(loop_index) else { return };
        grants.extend(mailbox.grants.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
    }

    /// Sends the ends of waits to the loops of those who waited, each with one call of its waker.
    pub(super) fn send_landings(&self, all: &[(usize, Landing)]) {
        for (loop_index, mailbox) in self.mailboxes.iter().enumerate() {
            let mut here = all.iter().filter(|(to, _)| *to == loop_index).peekable();
            if here.peek().is_none() {
                continue;
            }
            let mut landings = mailbox.landings.lock().unwrap_or_else(PoisonError::into_inner);
            landings.extend(here.map(|(_, landing)| *landing));
            drop(landings);
            if let Some(waker) = mailbox.waker.get() {
                waker.wake();
            }
        }
    }

    pub(super) fn take_landings(&self, loop_index: usize, landings: &mut VecDeque<Landing>) {
        let Some(mailbox) = self.mailboxes.get(loop_index) else { return };
        landings.extend(mailbox.landings.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
    }

    /// Chooses the server with the fewest requests in flight among those that are not passed over;
    /// if all are, the one whose time is over first.
    pub(super) fn choose(&self, upstream: usize, now_ns: u64) -> usize {
        let SharedUpstream { servers, turn, .. } = &self.upstreams[upstream];
        if servers.len() == 1 {
            return 0;
        }
        let first = turn.fetch_add(1, Ordering::Relaxed);
        let order = (0..servers.len()).map(|step| (first + step) % servers.len());
        let rank = |&index: &usize| {
            let server = &servers[index];
            let down_until_ns = server.down_until_ns.load(Ordering::Relaxed);
            let down_ns = if down_until_ns > now_ns { down_until_ns } else { 0 };
            (down_ns, server.in_flight.load(Ordering::Relaxed))
        };
        order.min_by_key(rank).unwrap_or(0)
    }

    pub(super) fn begin(&self, upstream: usize, server: usize) {
        self.upstreams[upstream].servers[server].in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self, upstream: usize, server: usize) {
        self.upstreams[upstream].servers[server].in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn note_failure(&self, upstream: usize, server: usize, now_ns: u64) {
        let server = &self.upstreams[upstream].servers[server];
        server.down_until_ns.store(now_ns + DOWN_NS, Ordering::Relaxed);
    }

    pub(super) fn note_success(&self, upstream: usize, server: usize) {
        let server = &self.upstreams[upstream].servers[server];
        if server.down_until_ns.load(Ordering::Relaxed) > 0 {
            server.down_until_ns.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn count(&self, counters: &mut Counters) {
        let (mut limit, mut waiting_max) = (0, 0);
        for upstream in 0..self.upstreams.len() {
            let admission = self.admission(upstream);
            limit += admission.limit().min(u32::MAX as usize) as u64;
            waiting_max += admission.waiting_max() as u64;
        }
        counters.set_upstreams([limit, waiting_max]);
        if let Some(cache) = &self.cache {
            let CacheTotals { evicted, stored_bytes } = cache.totals();
            counters.set_proxy_cache([evicted, stored_bytes]);
        }
    }
}

impl fmt::Debug for SharedUpstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedUpstreams").field("upstreams", &self.upstreams.len()).finish()
    }
}
