//! What all loops share of the upstreams: the admission to each, the state of their servers, and
//! the way from one loop to another.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use weir_accept::upstream::{Admission, Granted};
use weir_cache::{Cache, CacheTotals};
use weir_dispatch::readiness::Token;
use weir_stats::Counters;
use weir_stats::page::{UPSTREAM_WORDS, UpstreamState};
use weir_sys::waker::Waker;

use super::buffers::BufferPool;
use super::health::{Health, WHOLE};
use super::pace::Pace;
use crate::config::Config;

/// Step between two requests on the way round a whole share, coprime to it: over a slow start, the
/// requests that a server is given lie apart.
const SHARE_STEP: u64 = 619;

/// A request that waits, or whose client has gone: its loop, and the connection of its client or
/// its token without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whose {
    pub loop_index: usize,
    pub token: Token,
    /// Number of the request among those of the loop.
    pub serial: u64,
}

/// Decision of the admission to an upstream about a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub upstream: usize,
    pub granted: Granted<Whose>,
}

struct Server {
    in_flight: AtomicUsize,
    /// Time of its last reply, or of the end of its last rest, whichever is later.
    replied_ns: AtomicU64,
    health: Health,
}

impl Server {
    /// Creates it, with so many requests in flight.
    fn new(in_flight: usize) -> Self {
        Self { in_flight: in_flight.into(), replied_ns: 0.into(), health: Health::new() }
    }
}

struct SharedUpstream {
    admission: Mutex<Admission<Whose>>,
    servers: Vec<Server>,
    pace: Pace,
    slow_start_ns: u64,
    /// Server that is asked first among equals.
    turn: AtomicUsize,
}

/// Result of a request that others waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brought {
    /// A reply that was stored.
    Stored,
    /// A reply for its own client only.
    Unstored,
    /// No reply.
    Nothing,
}

/// The end of a wait for the reply to another request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    /// The connection of the client that waited.
    pub token: Token,
    /// Number of the request among those of the loop.
    pub serial: u64,
    pub brought: Brought,
}

#[derive(Default)]
struct Grants {
    sent: Vec<Grant>,
    /// True once the loop takes no more.
    is_closed: bool,
}

#[derive(Default)]
struct Mailbox {
    grants: Mutex<Grants>,
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
    /// Memory in which replies wait for slow clients.
    pub(super) buffers: Arc<BufferPool>,
    /// Checks so far: all, and those that a server failed.
    checks: [AtomicU64; 2],
}

impl SharedUpstream {
    /// Returns the present state, without the name.
    fn state(&self, admission: &Admission<Whose>) -> UpstreamState {
        UpstreamState {
            limit: u64::try_from(admission.limit()).ok(),
            in_flight: admission.in_flight() as u64,
            waiting: admission.waiting() as u64,
            servers_down: self.servers_down(),
            ..UpstreamState::default()
        }
    }

    fn servers_down(&self) -> u64 {
        self.servers.iter().filter(|server| server.health.is_down()).count() as u64
    }
}

impl SharedUpstreams {
    /// Creates those of a configuration; `None` if it has none.
    pub(crate) fn of(config: &Config) -> Option<Arc<Self>> {
        (!config.upstreams.is_empty()).then(|| Arc::new(Self::new(config)))
    }

    fn new(config: &Config) -> Self {
        let server = |_: &_| Server::new(0);
        let upstreams = config.upstreams.iter().map(|upstream| SharedUpstream {
            admission: Mutex::new(Admission::new(&upstream.admission)),
            servers: upstream.servers.iter().map(server).collect(),
            pace: Pace::default(),
            slow_start_ns: upstream.slow_start_ns,
            turn: AtomicUsize::new(0),
        });
        Self {
            epoch: Instant::now(),
            upstreams: upstreams.collect(),
            mailboxes: (0..config.workers.max(1)).map(|_| Mailbox::default()).collect(),
            cache: config.cache.as_ref().map(|cache| Cache::new(cache.bounds)),
            buffers: Arc::new(BufferPool::new(config.buffers_bytes_max)),
            checks: [0.into(), 0.into()],
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

    /// Sends a grant to another loop; returns false if that has ended.
    pub(super) fn send(&self, loop_index: usize, grant: Grant) -> bool {
        let Some(mailbox) = self.mailboxes.get(loop_index) else { return false };
        let mut grants = mailbox.grants.lock().unwrap_or_else(PoisonError::into_inner);
        if grants.is_closed {
            return false;
        }
        grants.sent.push(grant);
        drop(grants);
        if let Some(waker) = mailbox.waker.get() {
            waker.wake();
        }
        true
    }

    pub(super) fn take_mail(&self, loop_index: usize, grants: &mut VecDeque<Grant>) {
        let Some(mailbox) = self.mailboxes.get(loop_index) else { return };
        let mut mail = mailbox.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.extend(mail.sent.drain(..));
    }

    /// Takes the last grants of a loop that ends: others are refused.
    pub(super) fn take_last_mail(&self, loop_index: usize, grants: &mut VecDeque<Grant>) {
        let Some(mailbox) = self.mailboxes.get(loop_index) else { return };
        let mut mail = mailbox.grants.lock().unwrap_or_else(PoisonError::into_inner);
        mail.is_closed = true;
        grants.extend(mail.sent.drain(..));
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

    /// Chooses the server with the fewest requests in flight among those that are up, not `tried`
    /// before, not passed over, and not in a slow start that leaves them out; if there is none, the
    /// one that will be first. One whose turn in its slow start has come goes before the others.
    pub(super) fn choose(&self, upstream: usize, tried: &[usize], now_ns: u64) -> usize {
        let SharedUpstream { servers, turn, slow_start_ns, .. } = &self.upstreams[upstream];
        let count = servers.len();
        if count == 1 {
            return 0;
        }
        let first = turn.fetch_add(1, Ordering::Relaxed);
        let order = (0..count).map(|step| (first + step) % count);
        let at = (first as u64).wrapping_mul(SHARE_STEP) % WHOLE;
        let in_flight = |index: usize| servers[index].in_flight.load(Ordering::Relaxed);
        // A server that hangs is given less by what it has in flight, in a slow start too.
        let is_busiest = |index: usize| {
            (0..count).all(|other| other == index || in_flight(other) < in_flight(index))
        };
        let rank = |&index: &usize| {
            let health = &servers[index].health;
            let share = health.share(now_ns, *slow_start_ns);
            // Its part of all requests would be one for each server, and lies where no other's
            // does: servers that have recovered together have a part each.
            let own_at = (at + index as u64 * WHOLE / count as u64) % WHOLE;
            let has_turn = share < WHOLE && own_at * (count as u64) < share;
            let is_left_out = share < WHOLE && !has_turn;
            let is_first = has_turn && !is_busiest(index);
            let available_ns = health.available_ns(now_ns);
            let is_tried = tried.contains(&index);
            let is_down = health.is_down();
            (is_down, is_tried, available_ns, is_left_out, !is_first, in_flight(index))
        };
        let chosen = order.min_by_key(rank).unwrap_or(0);
        servers[chosen].health.note_chosen(now_ns);
        chosen
    }

    /// Returns whether an upstream has a server that is up, and not among those `tried`.
    pub(super) fn has_others(&self, upstream: usize, tried: &[usize]) -> bool {
        self.has_up(upstream, |server| !tried.contains(&server))
    }

    /// Returns whether an upstream has a server that is up among some of its servers.
    pub(super) fn has_up(&self, upstream: usize, is_meant: impl Fn(usize) -> bool) -> bool {
        let mut servers = self.upstreams[upstream].servers.iter().enumerate();
        servers.any(|(index, server)| !server.health.is_down() && is_meant(index))
    }

    /// Returns whether the checks find every server of an upstream down.
    pub(super) fn is_down(&self, upstream: usize) -> bool {
        self.upstreams[upstream].servers.iter().all(|server| server.health.is_down())
    }

    /// Records what the checks of a server find, and wakes the loops to publish it: none may have
    /// anything else to do. Each is woken, because one may be about to end.
    pub(super) fn set_down(&self, upstream: usize, server: usize, is_down: bool) {
        self.upstreams[upstream].servers[server].health.set_down(is_down, self.now_ns());
        let wakers = self.mailboxes.iter().filter_map(|mailbox| mailbox.waker.get());
        wakers.for_each(|waker| waker.wake());
    }

    pub(super) fn count_check(&self, passed: bool) {
        let [all, failed] = &self.checks;
        all.fetch_add(1, Ordering::Relaxed);
        failed.fetch_add((!passed).into(), Ordering::Relaxed);
    }

    pub(super) fn begin(&self, upstream: usize, server: usize, now_ns: u64) {
        let Server { in_flight, replied_ns, .. } = &self.upstreams[upstream].servers[server];
        if in_flight.fetch_add(1, Ordering::Relaxed) == 0 {
            replied_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    pub(super) fn end(&self, upstream: usize, server: usize) {
        self.upstreams[upstream].servers[server].in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn pace(&self, upstream: usize) -> &Pace {
        &self.upstreams[upstream].pace
    }

    /// Records that a reply of a server has begun, `took_ns` after its request had a place.
    pub(super) fn note_reply(&self, upstream: usize, server: usize, took_ns: u64, now_ns: u64) {
        let SharedUpstream { servers, pace, .. } = &self.upstreams[upstream];
        let last_ns = servers[server].replied_ns.swap(now_ns, Ordering::Relaxed);
        pace.note_reply(took_ns, now_ns.saturating_sub(last_ns));
    }

    pub(super) fn health(&self, upstream: usize, server: usize) -> &Health {
        &self.upstreams[upstream].servers[server].health
    }

    /// Sets the present state of the upstreams, with the numbers of each in `words`. A loop does
    /// not wait for another here, but the first time: an upstream that one is busy with is left as
    /// it was, but for its servers. One that noted nothing and then sleeps would never tell.
    pub(super) fn note_state(&self, counters: &mut Counters, words: &mut Vec<u64>) {
        words.resize(self.upstreams.len() * UPSTREAM_WORDS, 0);
        let (states, _) = words.as_chunks_mut::<UPSTREAM_WORDS>();
        let (mut sum, mut waiting_max) = ([0; UPSTREAM_WORDS], 0);
        for (upstream, words) in self.upstreams.iter().zip(states) {
            let is_first = words.iter().all(|word| *word == 0);
            let admission = &upstream.admission;
            let admission =
                if is_first { admission.lock().ok() } else { admission.try_lock().ok() };
            if let Some(admission) = admission {
                waiting_max += admission.waiting_max() as u64;
                *words = upstream.state(&admission).words();
            } else {
                // All loops are woken at once to publish it, and it needs no lock.
                let [.., down] = words;
                *down = upstream.servers_down();
            }
            sum = std::array::from_fn(|index| sum[index] + words[index]);
        }
        let [limit, in_flight, waiting, down] = sum;
        counters.set_upstreams([limit, in_flight, waiting, down]);
        counters.upstream_waiting_max.raise(waiting_max);
    }

    pub(super) fn count(&self, counters: &mut Counters) {
        if let Some(cache) = &self.cache {
            let CacheTotals { evicted, stored_bytes } = cache.totals();
            counters.set_proxy_cache([evicted, stored_bytes]);
        }
        counters.set_proxy_buffers(self.buffers.used_bytes() as u64);
        let [checks, failed] = self.checks.each_ref().map(|count| count.load(Ordering::Relaxed));
        counters.set_upstream_checks([checks, failed]);
    }
}

impl fmt::Debug for SharedUpstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedUpstreams").field("upstreams", &self.upstreams.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::time::Duration;

    use super::*;
    use crate::upstream::health::Fault;
    use weir_accept::upstream::UpstreamConfig;
    use weir_sys::poll::{POLLIN, PollFd, poll};

    fn shared(upstreams: Vec<SharedUpstream>) -> SharedUpstreams {
        SharedUpstreams {
            epoch: Instant::now(),
            upstreams,
            mailboxes: vec![Mailbox::default()],
            cache: None,
            buffers: Arc::new(BufferPool::new(0)),
            checks: [0.into(), 0.into()],
        }
    }

    #[test]
    fn a_server_that_has_recovered_gets_a_tenth_of_its_share() {
        const S: u64 = 1_000_000_000;
        let server = Server::new;
        for count in [2, 4, 10] {
            // The others are busy, so that it has the fewest in flight.
            let servers: Vec<_> = (0..count).map(|nth| server(nth.min(1) * 5)).collect();
            servers[0].health.note_failure(Fault::Broken, S);
            servers[0].health.note_success(2 * S, 2 * S);
            let shared = shared(vec![SharedUpstream {
                admission: Mutex::new(Admission::new(&UpstreamConfig::default())),
                servers,
                pace: Pace::default(),
                slow_start_ns: 10 * S,
                turn: AtomicUsize::new(0),
            }]);
            let chosen =
                |at_s: u64| (0..1000).filter(|_| shared.choose(0, &[], at_s * S) == 0).count();
            assert_eq!([2, 7, 12].map(chosen), [100 / count, 500 / count, 1000]);
        }
    }

    /// Returns an upstream of servers with so many in flight each, of which the first `count` have
    /// begun a slow start of 10 s at 2 s.
    fn recovered(count: usize, in_flight: &[usize]) -> SharedUpstreams {
        const S: u64 = 1_000_000_000;
        let servers: Vec<_> = in_flight.iter().map(|&in_flight| Server::new(in_flight)).collect();
        for server in &servers[..count] {
            server.health.note_failure(Fault::Broken, S);
            server.health.note_success(2 * S, 2 * S);
        }
        shared(vec![SharedUpstream {
            admission: Mutex::new(Admission::new(&UpstreamConfig::default())),
            servers,
            pace: Pace::default(),
            slow_start_ns: 10 * S,
            turn: AtomicUsize::new(0),
        }])
    }

    #[test]
    fn servers_that_have_recovered_together_get_their_parts_each() {
        for (count, recovered_count) in [(3, 2), (10, 9)] {
            for others in [5, 0] {
                let mut in_flight = vec![0; recovered_count];
                in_flight.resize(count, others);
                let shared = recovered(recovered_count, &in_flight);
                for (at_ns, share) in [(2_000_000_000, 100), (7_000_000_000, 500)] {
                    let mut chosen = vec![0; count];
                    (0..1000).for_each(|_| chosen[shared.choose(0, &[], at_ns)] += 1);
                    let each = usize::div_ceil(share, count);
                    let given = &chosen[..recovered_count];
                    assert!(given.iter().all(|&times| times == each), "{others} {chosen:?}");
                }
            }
        }
    }

    #[test]
    fn a_server_that_hangs_is_given_no_more_because_it_has_recovered() {
        let shared = recovered(1, &[6, 5, 5]);
        let chosen = (0..1000).filter(|_| shared.choose(0, &[], 7_000_000_000) == 0).count();
        assert_eq!(chosen, 0);
    }

    #[test]
    fn a_server_that_was_tried_comes_after_all_but_those_that_are_down() {
        let server = Server::new;
        let shared = shared(vec![SharedUpstream {
            admission: Mutex::new(Admission::new(&UpstreamConfig::default())),
            servers: vec![server(0), server(5), server(9), server(0)],
            pace: Pace::default(),
            slow_start_ns: 0,
            turn: AtomicUsize::new(0),
        }]);
        shared.health(0, 3).set_down(true, 1);
        shared.health(0, 2).note_failure(Fault::Broken, 1);
        let mut tried = Vec::new();
        for (expected, has_others) in [(0, true), (1, true), (2, true), (0, false)] {
            assert_eq!(shared.has_others(0, &tried), has_others, "{tried:?}");
            assert_eq!(shared.choose(0, &tried, 2), expected, "{tried:?}");
            tried.push(expected);
        }
    }

    #[test]
    fn a_verdict_wakes_a_loop_which_notes_it_while_another_has_the_lock() {
        let shared = shared(vec![SharedUpstream {
            admission: Mutex::new(Admission::new(&UpstreamConfig::default())),
            servers: vec![Server::new(0), Server::new(0)],
            pace: Pace::default(),
            slow_start_ns: 0,
            turn: AtomicUsize::new(0),
        }]);
        let waker = Arc::new(Waker::new().unwrap());
        shared.register(0, Arc::clone(&waker));
        let (mut counters, mut words) = (Counters::default(), Vec::new());
        shared.note_state(&mut counters, &mut words);
        assert_eq!(counters.upstream_servers_down.get(), 0);
        shared.set_down(0, 1, true);
        let mut fds = [PollFd { fd: waker.as_fd().as_raw_fd(), events: POLLIN, revents: 0 }];
        poll(&mut fds, Some(Duration::ZERO)).unwrap();
        assert_eq!(fds[0].revents, POLLIN);
        let _held = shared.admission(0);
        shared.note_state(&mut counters, &mut words);
        assert_eq!(counters.upstream_servers_down.get(), 1);
    }

    #[test]
    fn a_loop_that_has_ended_takes_no_more_grants() {
        let shared = shared(Vec::new());
        let whose = Whose { loop_index: 0, token: Token::default(), serial: 1 };
        let grant = Grant { upstream: 0, granted: Granted::Place(whose) };
        let mut grants = VecDeque::new();
        assert!(shared.send(0, grant));
        shared.take_last_mail(0, &mut grants);
        assert_eq!(grants.len(), 1);
        assert!(!shared.send(0, grant) && !shared.send(1, grant));
        shared.take_mail(0, &mut grants);
        assert_eq!(grants.len(), 1);
    }
}
