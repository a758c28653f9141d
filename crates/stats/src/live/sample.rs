//! A sample: the rates between two readings, and the state at the second.

use super::reading::{Part, Reading, open_connections};
use super::refusals::{self, REFUSALS, Refused};

/// Nanoseconds of a second.
const NS: f64 = 1e9;

/// Parts of a whole in [`crate::Counters::syn_random_ppm`].
const PPM: f64 = 1e6;

/// Rates between two readings, per second, and the state at the second. `None` is what is not
/// known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Time of the second reading since the server's start, seconds.
    pub elapsed_s: f64,
    /// Time between the readings, seconds.
    pub seconds: f64,
    /// Replies other than 5xx, and than 429 to clients that have used up their limits.
    pub answered: f64,
    /// Replies of 5xx that are no refusals: the server or an upstream failed.
    pub failed: f64,
    /// Connections and requests refused because of load, in the order of [`REFUSALS`]. The SYNs
    /// that are dropped at random are not counted, and estimated from their share.
    pub refused: [f64; REFUSALS.len()],
    /// Requests refused because their client has made as many as it may.
    pub limited_requests: f64,
    /// Connections refused because their client has as many open as it may.
    pub limited_connections: f64,
    /// Connections whose clients had gone before they were served.
    pub departed: f64,
    /// Connections accepted.
    pub accepted: f64,
    /// Requests for upstreams, those that are refused included.
    pub forwarded: f64,
    /// Requests that failed at upstreams, or found none that is up.
    pub upstream_failed: f64,
    /// Accepts that failed for lack of descriptors or memory.
    pub exhausted: f64,
    /// Lines that the access log has lost.
    pub log_lost: f64,
    /// Time for which a listener was overloaded, as a part of the whole.
    pub overloaded: f64,
    /// Mean time in the accept queue of the connections for which it is known, seconds.
    pub queued_s: Option<f64>,
    /// Processors in use.
    pub cpus: Option<f64>,
    /// Open connections of clients.
    pub open: u64,
    /// Connections in the accept queue, where a policy watches it.
    pub queue: u64,
    /// Bound of the accept queue; 0 if it is not known.
    pub backlog: u64,
    /// Requests in flight at upstreams.
    pub in_flight: u64,
    /// Requests that wait for a place at an upstream.
    pub waiting: u64,
}

impl Sample {
    /// Returns the sample between two readings of a server.
    pub fn between(before: &Reading, now: &Reading) -> Self {
        let parts = [&before.total, &now.total];
        let mut sample = Self::of_parts(parts, seconds(before, now), now.elapsed_s);
        // A worker's share of SYNs dropped at random is of those that come to it, and the total has
        // the largest of these shares.
        if !now.workers.is_empty() {
            let workers = Self::of_workers(before, now);
            sample.refused[0] = workers.iter().map(|(_, each)| each.refused[0]).sum();
        }
        sample
    }

    /// Returns the sample of each worker between two readings, with its index.
    pub fn of_workers(before: &Reading, now: &Reading) -> Vec<(u64, Self)> {
        let none = Part::default();
        let seconds = seconds(before, now);
        let each = now.workers.iter().map(|(worker, part)| {
            let earlier = before.workers.iter().find(|(other, _)| other == worker);
            let earlier = earlier.map_or(&none, |(_, part)| part);
            (*worker, Self::of_parts([earlier, part], seconds, now.elapsed_s))
        });
        each.collect()
    }

    /// Returns what came to the server: what was answered, failed or was refused, and clients that
    /// gave up. A SYN that is repeated comes again.
    pub fn offered(&self) -> f64 {
        self.answered + self.failed + self.departed + self.refused_in_all()
    }

    /// Returns what was refused, because of load or of a client's limits.
    pub fn refused_in_all(&self) -> f64 {
        self.refused.iter().sum::<f64>() + self.limited()
    }

    /// Returns what was refused because of a client's limits.
    pub fn limited(&self) -> f64 {
        self.limited_requests + self.limited_connections
    }

    /// Returns what was refused for lack of memory, connections and requests.
    pub(super) fn refused_for_memory(&self) -> f64 {
        let [.., connections, requests] = self.refused;
        connections + requests
    }

    /// Returns what was refused for all other reasons.
    pub(super) fn refused_of_load(&self) -> f64 {
        let [of_load @ .., _, _] = &self.refused;
        of_load.iter().sum()
    }

    /// Returns the refusals of a kind.
    pub fn refused(&self, what: Refused) -> f64 {
        let rows = REFUSALS.iter().zip(self.refused);
        rows.filter(|(row, _)| row.what == what).map(|(_, rate)| rate).sum()
    }

    fn of_parts([before, now]: [&Part; 2], seconds: f64, elapsed_s: f64) -> Self {
        let (then, counters) = (&before.counters, &now.counters);
        let seconds = seconds.max(1e-3);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        macro_rules! rates {
            ($($name:ident)+) => { 0.0 $(+ rate(counters.$name.get(), then.$name.get()))+ };
        }
        let mut refused = [0.0; REFUSALS.len()];
        let counts = refusals::counts(counters).into_iter().zip(refusals::counts(then));
        refused.iter_mut().zip(counts).for_each(|(slot, (now, then))| *slot = rate(now, then));
        let accepted = rates!(accepted);
        let share = (counters.syn_random_ppm.get() as f64 / PPM).clamp(0.0, 0.999);
        refused[0] += accepted * share / (1.0 - share);
        let timed = rates!(accept_queue_timed);
        let limited_requests = rates!(refused_client_requests);
        let as_refusals = rates!(turned_away upstream_excess upstream_stale);
        Self {
            elapsed_s,
            seconds,
            answered: (rates!(status_2xx status_3xx status_4xx) - limited_requests).max(0.0),
            failed: (rates!(status_5xx) - as_refusals).max(0.0),
            refused,
            limited_requests,
            limited_connections: rates!(refused_client_connections),
            departed: rates!(departed),
            accepted,
            forwarded: rates!(upstream_requests),
            upstream_failed: rates!(upstream_failed upstream_timeouts upstream_unavailable),
            exhausted: rates!(accept_failed),
            log_lost: rates!(log_lines_lost),
            overloaded: rates!(overloaded_ns) / NS,
            queued_s: (timed > 0.0).then(|| rates!(accept_queue_ns) / timed / NS),
            cpus: before.cpu_ns.zip(now.cpu_ns).map(|(then, now)| rate(now, then) / NS),
            open: open_connections(counters),
            queue: counters.accept_queue.get(),
            backlog: counters.accept_backlog.get(),
            in_flight: counters.upstream_in_flight.get(),
            waiting: counters.upstream_waiting.get(),
        }
    }
}

fn seconds(before: &Reading, now: &Reading) -> f64 {
    now.taken_ns.saturating_sub(before.taken_ns) as f64 / NS
}
