//! Statistics of a run: counts, times and windows. Identical runs compare equal.

use hdrhistogram::Histogram;

use crate::scenario::{ClientKind, Scenario};

/// Outcomes of some clients' requests, between the start of the measurement and the end of the run.
/// A request is offered when it begins; a request that never begins, because the one before it
/// failed, is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Requests begun; for mute and slow clients, connections.
    pub offered: u64,
    /// Requests answered completely while the client waited.
    pub good: u64,
    /// Requests refused: ended by the server without a reply, or answered with 503.
    pub refused: u64,
    /// Requests given up by the client.
    pub timed_out: u64,
}

impl Share {
    /// Returns the good share of the offered requests; 1 if none were offered.
    pub fn good_share(&self) -> f64 {
        if self.offered == 0 { 1.0 } else { self.good as f64 / self.offered as f64 }
    }
}

/// A statistics window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Requests of honest and reconnecting clients.
    pub share: Share,
    /// Longest response time of good requests, nanoseconds.
    pub response_max_ns: u64,
    /// Sum of the response times of good requests, nanoseconds.
    pub response_sum_ns: u64,
}

/// Counters of the loops, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loops {
    /// Waits (getevents-phases).
    pub getevents: u64,
    /// Policy decisions, for an accept-phase or because the policy's timer was due.
    pub decisions: u64,
    /// Accept-phases (N_phases).
    pub accept_phases: u64,
    /// Connections accepted, including those refused later.
    pub accepted: u64,
    /// Accepts that failed with EWOULDBLOCK.
    pub would_block: u64,
    /// Connections refused unread, by the decision's count.
    pub refused: u64,
    /// Connections refused because they had waited too long.
    pub stale: u64,
    /// Requests on open connections refused because their source had exceeded its share.
    pub unfair: u64,
    /// Connections dropped because their client had gone.
    pub departed: u64,
    /// Connections closed to make room.
    pub evicted: u64,
    /// Connections closed because their client timed out.
    pub expired: u64,
    /// Replies written, whether or not a client still waited.
    pub replies: u64,
    /// Work-phases that served at least one connection.
    pub work_phases: u64,
    /// Changes of the listening socket's backlog.
    pub listens: u64,
    /// Changes of the SYN filter by a system call.
    pub filters: u64,
    /// Maximum number of open connections on a core.
    pub open_max: u64,
    /// Decisions made while the policy considered the server overloaded.
    pub overloaded: u64,
    /// Overloads.
    pub overloads: u64,
    /// Connections closed after a reply on account of load.
    pub closed_by_load: u64,
    /// Refusals on account of load while the loop had spare time.
    pub refused_idle: u64,
}

/// Counters of the kernel, over the whole run and all listening sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// SYNs dropped by the filter.
    pub filtered: u64,
    /// ListenOverflows.
    pub overflows: u64,
    /// ListenOverflows at third ACKs.
    pub overflows_ack: u64,
    /// ListenDrops.
    pub listen_drops: u64,
    /// TCPReqQFullDrop.
    pub request_queue_full_drops: u64,
    /// TCPReqQFullDoCookies.
    pub cookies: u64,
    /// Packets lost for want of processor time.
    pub lost: u64,
    /// Time spent on packets, nanoseconds.
    pub packets_ns: u64,
}

impl Drops {
    pub(crate) fn add(&mut self, other: &Drops) {
        self.filtered += other.filtered;
        self.overflows += other.overflows;
        self.overflows_ack += other.overflows_ack;
        self.listen_drops += other.listen_drops;
        self.request_queue_full_drops += other.request_queue_full_drops;
        self.cookies += other.cookies;
        self.lost += other.lost;
        self.packets_ns += other.packets_ns;
    }
}

/// A period in which a loop was overloaded or might refuse requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// The loop's core.
    pub core: u32,
    /// Start of the overload, nanoseconds.
    pub began_ns: u64,
    /// Start of the last request refused on account of load, before the loop's next overload;
    /// nanoseconds, 0 for none.
    pub refused_last_ns: u64,
}

/// A run's statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Duration of the measurement, nanoseconds.
    pub measured_ns: u64,
    /// Outcomes for honest and reconnecting clients.
    pub total: Share,
    /// Outcomes by kind of client, in the order of [`ClientKind::ALL`].
    pub kinds: [Share; 5],
    /// Outcomes by class of request; honest and reconnecting clients.
    pub classes: Vec<Share>,
    /// Outcomes by core; honest and reconnecting clients.
    pub cores: Vec<Share>,
    /// Windows of [`Scenario::window_ns`] over the whole run.
    pub windows: Vec<Window>,
    /// Response times of good requests, from the start of the request at the client, nanoseconds.
    pub response: Histogram<u64>,
    /// Sojourn times of all replies, from the arrival of the request at the server's kernel to the
    /// end of the write, nanoseconds.
    pub sojourn: Histogram<u64>,
    /// Counters of the loops.
    pub loops: Loops,
    /// Counters of the kernel.
    pub drops: Drops,
    /// Overloads of all loops, in the order of their start.
    pub overloads: Vec<Overload>,
    /// By core: true if it was overloaded and had spare time at the start of the last load step, so
    /// that it had to admit everything.
    pub open_at_last_step: Vec<bool>,
    measured_from_ns: u64,
    window_ns: u64,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    Offered,
    Good { response_ns: u64 },
    Refused,
    TimedOut,
}

/// Attribution of a request: the kind of its client, its class and its core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLabels {
    pub(crate) kind: ClientKind,
    pub(crate) class: u32,
    pub(crate) core: u32,
}

impl Share {
    fn add(&mut self, outcome: RequestOutcome) {
        match outcome {
            RequestOutcome::Offered => self.offered += 1,
            RequestOutcome::Good { .. } => self.good += 1,
            RequestOutcome::Refused => self.refused += 1,
            RequestOutcome::TimedOut => self.timed_out += 1,
        }
    }
}

impl Statistics {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let windows = scenario.duration_ns.div_ceil(scenario.window_ns.max(1));
        Self {
            measured_ns: scenario.duration_ns.saturating_sub(scenario.measured_from_ns),
            total: Share::default(),
            kinds: [Share::default(); 5],
            classes: vec![Share::default(); scenario.classes.len()],
            cores: vec![Share::default(); scenario.cores as usize],
            windows: vec![Window::default(); windows as usize],
            response: histogram(),
            sojourn: histogram(),
            loops: Loops::default(),
            drops: Drops::default(),
            overloads: Vec::new(),
            open_at_last_step: vec![false; scenario.cores as usize],
            measured_from_ns: scenario.measured_from_ns,
            window_ns: scenario.window_ns.max(1),
        }
    }

    /// Records the start of an overload.
    pub(crate) fn record_overload(&mut self, core: u32, began_ns: u64) {
        self.overloads.push(Overload { core, began_ns, refused_last_ns: 0 });
    }

    /// Records a refusal on account of load of a request that began at `request_began_ns`.
    pub(crate) fn record_refusal(&mut self, core: u32, request_began_ns: u64) {
        if let Some(last) = self.overloads.iter_mut().rfind(|overload| overload.core == core) {
            last.refused_last_ns = last.refused_last_ns.max(request_began_ns);
        }
    }

    pub(crate) fn record(&mut self, now_ns: u64, labels: RequestLabels, outcome: RequestOutcome) {
        let window = self.windows.get_mut((now_ns / self.window_ns) as usize);
        if let Some(window) = window.filter(|_| labels.kind.asks()) {
            window.record(outcome);
        }
        if now_ns < self.measured_from_ns {
            return;
        }
        self.kinds[labels.kind as usize].add(outcome);
        if labels.kind.asks() {
            self.total.add(outcome);
            self.classes[labels.class as usize].add(outcome);
            self.cores[labels.core as usize].add(outcome);
            if let RequestOutcome::Good { response_ns } = outcome {
                self.response.saturating_record(response_ns);
            }
        }
    }

    pub(crate) fn reply_written(&mut self, now_ns: u64, sojourn_ns: u64) {
        self.loops.replies += 1;
        if now_ns >= self.measured_from_ns {
            self.sojourn.saturating_record(sojourn_ns);
        }
    }

    /// Returns the good replies per second.
    pub fn goodput(&self) -> f64 {
        self.total.good as f64 * 1e9 / self.measured_ns.max(1) as f64
    }

    /// Returns the good replies per second in the windows between two times.
    pub fn goodput_between(&self, from_ns: u64, until_ns: u64) -> f64 {
        let windows = self.between(from_ns, until_ns);
        let good: u64 = windows.iter().map(|window| window.share.good).sum();
        good as f64 * 1e9 / (windows.len().max(1) as f64 * self.window_ns as f64)
    }

    /// Returns the windows between two times, both ends included.
    pub fn between(&self, from_ns: u64, until_ns: u64) -> &[Window] {
        let from = from_ns.div_ceil(self.window_ns) as usize;
        let until = ((until_ns / self.window_ns) as usize).min(self.windows.len());
        self.windows.get(from..until).unwrap_or(&[])
    }

    /// Returns the connections accepted per accept-phase (C_avg).
    pub fn c_avg(&self) -> f64 {
        self.loops.accepted as f64 / self.loops.accept_phases.max(1) as f64
    }

    /// Returns the variation of goodput over the windows between two times: standard deviation over
    /// mean, less what counting alone explains (Poisson).
    pub fn oscillation(&self, from_ns: u64, until_ns: u64) -> f64 {
        let windows = self.between(from_ns, until_ns);
        let count = windows.len().max(1) as f64;
        let good = || windows.iter().map(|window| window.share.good as f64);
        let mean = good().sum::<f64>() / count;
        let variance = good().map(|good| (good - mean).powi(2)).sum::<f64>() / count;
        (variance - mean).max(0.0).sqrt() / mean.max(1.0)
    }

    /// Returns Jain's fairness index of the good shares: 1 when all are equal, 1/n when one has
    /// everything.
    pub fn fairness(shares: &[Share]) -> f64 {
        let asked = || shares.iter().filter(|share| share.offered > 0).map(Share::good_share);
        let (sum, squares) =
            asked().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        if squares == 0.0 { 1.0 } else { sum * sum / (asked().count() as f64 * squares) }
    }
}

impl Window {
    fn record(&mut self, outcome: RequestOutcome) {
        self.share.add(outcome);
        if let RequestOutcome::Good { response_ns } = outcome {
            self.response_max_ns = self.response_max_ns.max(response_ns);
            self.response_sum_ns += response_ns;
        }
    }
}

/// Creates a histogram of times from a microsecond to an hour, precise to a thousandth.
#[expect(clippy::expect_used, reason = "the bounds are constants")]
fn histogram() -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3).expect("bounds are in order");
    histogram.auto(true);
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(good: &[u64]) -> Statistics {
        let mut statistics = Statistics::new(&Scenario::default());
        for (window, good) in statistics.windows.iter_mut().zip(good) {
            window.share.good = *good;
        }
        statistics
    }

    #[test]
    fn goodput_between_counts_whole_windows() {
        let statistics = told(&[10, 20, 30, 40]);
        assert_eq!(statistics.goodput_between(100_000_000, 300_000_000), 250.0);
        assert_eq!(statistics.goodput_between(99_000_000, 399_000_000), 250.0);
        assert_eq!(statistics.between(400_000_000, 100_000_000).len(), 0);
    }

    #[test]
    fn a_steady_goodput_does_not_oscillate() {
        assert_eq!(told(&[100; 50]).oscillation(0, 5_000_000_000), 0.0);
        let swings: Vec<u64> = (0..50).map(|n| if n % 10 < 5 { 50 } else { 150 }).collect();
        assert!(told(&swings).oscillation(0, 5_000_000_000) > 0.4);
    }

    #[test]
    fn fairness_is_one_when_all_are_treated_alike() {
        let share = |good| Share { offered: 100, good, ..Share::default() };
        assert!((Statistics::fairness(&[share(30), share(30)]) - 1.0).abs() < 1e-12);
        assert!((Statistics::fairness(&[share(30), share(0)]) - 0.5).abs() < 1e-12);
        assert_eq!(Statistics::fairness(&[share(0), share(0)]), 1.0);
    }
}
