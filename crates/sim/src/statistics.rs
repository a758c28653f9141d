//! What a run came to: counts, times and windows. Two runs that did the same are equal. Sums up
//! what others tell it, and draws no conclusion.

use hdrhistogram::Histogram;

use crate::kernel::Listener;
use crate::scenario::{Kind, Scenario};

/// What became of the requests of some clients, between the beginning of the measurement and the
/// end of the run. A request is offered when it is begun; one that is never begun, because the one
/// before it failed, is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Begun; for mute and slow clients, connections.
    pub offered: u64,
    /// Answered whole while the client waited.
    pub good: u64,
    /// Ended by the server without a reply, or answered with 503.
    pub refused: u64,
    /// Given up by the client.
    pub timed_out: u64,
}

impl Share {
    /// The part of what was offered that was good; 1 when nothing was.
    pub fn good_share(&self) -> f64 {
        if self.offered == 0 { 1.0 } else { self.good as f64 / self.offered as f64 }
    }
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Honest and reconnecting clients' requests.
    pub share: Share,
    /// The longest response time of the good, nanoseconds.
    pub response_max_ns: u64,
    /// The sum of the response times of the good, nanoseconds.
    pub response_sum_ns: u64,
}

/// What the loops counted, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loops {
    /// Waits.
    pub getevents: u64,
    /// Decisions, for an accept-phase or because the policy's time had come.
    pub decisions: u64,
    /// Accept-phases (N_phases).
    pub accept_phases: u64,
    /// Connections accepted, whatever became of them.
    pub accepted: u64,
    /// Accepts that found nobody.
    pub would_block: u64,
    /// Connections refused before they were read: by the decision's count.
    pub refused: u64,
    /// Those refused because they had waited too long.
    pub stale: u64,
    /// Requests on open connections refused because their source had had its share.
    pub unfair: u64,
    /// Those dropped because their client had gone.
    pub departed: u64,
    /// Connections closed to make room.
    pub evicted: u64,
    /// Connections closed because nothing came from the client in time.
    pub expired: u64,
    /// Replies written, whether anybody waited for them or not.
    pub replies: u64,
    /// Work-phases that served somebody.
    pub work_phases: u64,
    /// Times the listening socket got another backlog.
    pub listens: u64,
    /// Times its SYN filter was changed by a system call.
    pub filters: u64,
    /// The most connections open on one core.
    pub open_max: u64,
    /// Decisions taken while the policy held the server to be overloaded.
    pub overloaded: u64,
    /// Times an overload began.
    pub overloads: u64,
    /// Connections closed after a reply because of load.
    pub closed_by_load: u64,
    /// Refusals on account of load while a loop had time.
    pub refused_idle: u64,
}

/// What the kernel counted, over the whole run and all listening sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// SYNs dropped by the filter.
    pub filtered: u64,
    /// ListenOverflows.
    pub overflows: u64,
    /// Of these, third ACKs.
    pub overflows_ack: u64,
    /// ListenDrops.
    pub listen_drops: u64,
    /// TCPReqQFullDrop.
    pub request_queue_full_drops: u64,
    /// TCPReqQFullDoCookies.
    pub cookies: u64,
    /// Packets the core had no time for.
    pub lost: u64,
    /// Work for packets, nanoseconds.
    pub packets_ns: u64,
}

/// A stretch of time in which one loop was overloaded, or might refuse somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overload {
    /// The loop's core.
    pub core: u32,
    /// When it began, nanoseconds.
    pub began_ns: u64,
    /// When the request was begun that was last to be refused on account of load, before the loop's
    /// next overload; nanoseconds, 0 for none.
    pub refused_last_ns: u64,
}

/// A run's statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// How long was measured, nanoseconds.
    pub measured_ns: u64,
    /// Honest and reconnecting clients' requests.
    pub total: Share,
    /// By kind of client, in the order of [`Kind::ALL`].
    pub kinds: [Share; 5],
    /// By class of request; honest and reconnecting clients'.
    pub classes: Vec<Share>,
    /// By core; honest and reconnecting clients'.
    pub cores: Vec<Share>,
    /// The whole run in windows of [`Scenario::window_ns`].
    pub windows: Vec<Window>,
    /// Response times of the good, from the beginning of the request at its client, nanoseconds.
    pub response: Histogram<u64>,
    /// From the arrival of a request at the server's kernel to the end of its write, of every
    /// reply, nanoseconds.
    pub sojourn: Histogram<u64>,
    /// The loops.
    pub loops: Loops,
    /// The kernel.
    pub drops: Drops,
    /// The overloads of all loops, in the order in which they began.
    pub overloads: Vec<Overload>,
    /// By core: it was overloaded and had time when the last step of the load began, so that it
    /// had to let everybody in.
    pub open_at_last_step: Vec<bool>,
    measured_from_ns: u64,
    window_ns: u64,
}

/// Something that becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Offered,
    Good { response_ns: u64 },
    Refused,
    TimedOut,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose {
    pub(crate) kind: Kind,
    pub(crate) class: u32,
    pub(crate) core: u32,
}

impl Share {
    fn add(&mut self, fate: Fate) {
        match fate {
            Fate::Offered => self.offered += 1,
            Fate::Good { .. } => self.good += 1,
            Fate::Refused => self.refused += 1,
            Fate::TimedOut => self.timed_out += 1,
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

    /// A loop is overloaded from now on.
    pub(crate) fn note_overload(&mut self, core: u32, began_ns: u64) {
        self.overloads.push(Overload { core, began_ns, refused_last_ns: 0 });
    }

    /// A request that was begun then is refused now on account of load.
    pub(crate) fn note_refusal(&mut self, core: u32, now_ns: u64, request_began_ns: u64) {
        if !self.overloads.iter().any(|overload| overload.core == core) {
            self.note_overload(core, now_ns);
        }
        if let Some(last) = self.overloads.iter_mut().rfind(|overload| overload.core == core) {
            last.refused_last_ns = last.refused_last_ns.max(request_began_ns);
        }
    }

    pub(crate) fn tell(&mut self, now_ns: u64, whose: Whose, fate: Fate) {
        let window = self.windows.get_mut((now_ns / self.window_ns) as usize);
        if let Some(window) = window.filter(|_| whose.kind.asks()) {
            window.tell(fate);
        }
        if now_ns < self.measured_from_ns {
            return;
        }
        self.kinds[whose.kind as usize].add(fate);
        if whose.kind.asks() {
            self.total.add(fate);
            self.classes[whose.class as usize].add(fate);
            self.cores[whose.core as usize].add(fate);
            if let Fate::Good { response_ns } = fate {
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

    pub(crate) fn add_listener(&mut self, listener: &Listener) {
        self.drops.filtered += listener.filtered;
        self.drops.overflows += listener.overflows;
        self.drops.overflows_ack += listener.overflows_ack;
        self.drops.listen_drops += listener.listen_drops;
        self.drops.request_queue_full_drops += listener.request_queue_full_drops;
        self.drops.cookies += listener.cookies;
    }

    /// Good replies a second.
    pub fn goodput(&self) -> f64 {
        self.total.good as f64 * 1e9 / self.measured_ns.max(1) as f64
    }

    /// Good replies a second in the windows between two times.
    pub fn goodput_between(&self, from_ns: u64, until_ns: u64) -> f64 {
        let windows = self.between(from_ns, until_ns);
        let good: u64 = windows.iter().map(|window| window.share.good).sum();
        good as f64 * 1e9 / (windows.len().max(1) as f64 * self.window_ns as f64)
    }

    /// The windows that lie between two times, both ends included.
    pub fn between(&self, from_ns: u64, until_ns: u64) -> &[Window] {
        let from = from_ns.div_ceil(self.window_ns) as usize;
        let until = ((until_ns / self.window_ns) as usize).min(self.windows.len());
        self.windows.get(from..until).unwrap_or(&[])
    }

    /// Connections accepted an accept-phase (C_avg).
    pub fn c_avg(&self) -> f64 {
        self.loops.accepted as f64 / self.loops.accept_phases.max(1) as f64
    }

    /// How much the goodput of the windows between two times scatters: standard deviation over
    /// mean, less what counting alone explains (Poisson).
    pub fn oscillation(&self, from_ns: u64, until_ns: u64) -> f64 {
        let windows = self.between(from_ns, until_ns);
        let count = windows.len().max(1) as f64;
        let good = || windows.iter().map(|window| window.share.good as f64);
        let mean = good().sum::<f64>() / count;
        let variance = good().map(|good| (good - mean).powi(2)).sum::<f64>() / count;
        (variance - mean).max(0.0).sqrt() / mean.max(1.0)
    }

    /// Jain's index of the shares of good: 1 when all are treated alike, 1/n when one has all.
    pub fn fairness(shares: &[Share]) -> f64 {
        let asked = || shares.iter().filter(|share| share.offered > 0).map(Share::good_share);
        let (sum, squares) =
            asked().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        if squares == 0.0 { 1.0 } else { sum * sum / (asked().count() as f64 * squares) }
    }
}

impl Window {
    fn tell(&mut self, fate: Fate) {
        self.share.add(fate);
        if let Fate::Good { response_ns } = fate {
            self.response_max_ns = self.response_max_ns.max(response_ns);
            self.response_sum_ns += response_ns;
        }
    }
}

/// Times to a thousandth, from a microsecond to an hour.
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
