//! Costs of a connection and of a work item to the loop. Both are measured while connections stay
//! open, so that neither depends on connections ever closing.
//!
//! With TLS a connection costs a handshake too. Its time is kept apart from both, and full
//! handshakes, resumed ones and those that come to nothing from each other: which of them a new
//! connection will need is known only when the handshake has begun, so it is expected to cost the
//! average, by the share of each kind.

use crate::{Ended, TlsWork, View};

/// Busy time of the loop after which a stretch ends, nanoseconds.
const STRETCH_NS: u64 = 10_000_000;

/// Number of connections begun and work items after which a stretch ends, if that is sooner.
const STRETCH_COUNT: u64 = 32;

/// Busy time over which older stretches decay, nanoseconds.
const MEMORY_NS: f64 = 100_000_000.0;

/// Number of samples over which they decay as much, if that is sooner.
const MEMORY_COUNT: f64 = 256.0;

/// Mean times, nanoseconds, measured while the loop's sleep is reported exactly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// True if connections are served in a later work-phase, not when they are accepted.
    serves_later: bool,
    /// True if a connection begins with a TLS handshake.
    is_tls: bool,
    /// Start of the stretch: its time and the view at that time.
    before: Option<(u64, View)>,
    begin: Mean,
    item: Mean,
    between: Mean,
    unit: Mean,
    handshakes: [Kind; 3],
}

/// Handshakes of one kind: their mean time, and their share of all.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    time: Mean,
    share: Mean,
}

/// A mean of which older stretches decay: a sum of times over a sum of counts. The mean of each
/// stretch's quotient would take a stretch that was interrupted after two connections for as much
/// as one of a thousand.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn learn(&mut self, spent_ns: u64, count: u64) {
        let (spent, count) = (spent_ns as f64, count as f64);
        self.add(spent, count, spent / (spent + MEMORY_NS));
    }

    /// Learns the share of `part` among `all`.
    fn learn_share(&mut self, part: u64, all: u64) {
        self.add(part as f64, all as f64, 0.0);
    }

    /// Adds a stretch; `decay` is the part of the older ones that it makes forgotten, unless its
    /// count makes for more.
    fn add(&mut self, sum: f64, count: f64, decay: f64) {
        if count > 0.0 {
            let kept = 1.0 - decay.max(count / (count + MEMORY_COUNT));
            self.sum = self.sum * kept + sum;
            self.count = self.count * kept + count;
        }
    }

    /// Returns the mean; `None` until something was counted.
    fn get(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

impl Cost {
    pub(super) fn new(serves_later: bool) -> Self {
        Self { serves_later, ..Self::default() }
    }

    /// Sets whether a connection begins with a TLS handshake.
    pub(super) fn set_tls(&mut self, is_tls: bool) {
        self.is_tls = is_tls;
    }

    /// Takes a sample, in a stretch in which the loop's sleep was reported exactly. A stretch in
    /// which many connections were accepted and not served says nothing about those that were
    /// served, and is skipped unless the policy always refuses.
    pub(super) fn see(&mut self, now_ns: u64, view: &View, refuses_always: bool) {
        let Some((before_ns, before)) = self.before else {
            self.before = Some((now_ns, *view));
            return;
        };
        let spent_ns = now_ns.saturating_sub(before_ns);
        let slept_ns = view.slept_ns.saturating_sub(before.slept_ns);
        let busy_ns = spent_ns.saturating_sub(slept_ns);
        let begun = view.begun.saturating_sub(before.begun);
        let served = view.served.saturating_sub(before.served);
        if busy_ns < STRETCH_NS && begun + served < STRETCH_COUNT {
            return;
        }
        self.before = Some((now_ns, *view));
        let accepted = view.accepted.saturating_sub(before.accepted);
        if accepted > begun + begun / 4 + 1 && !refuses_always {
            return;
        }
        let served_ns = view.served_ns.saturating_sub(before.served_ns).min(busy_ns);
        let (tls, tls_before) = (view.tls, before.tls);
        let tls_work_ns = tls.work_ns.saturating_sub(tls_before.work_ns);
        let tls_begin_ns =
            tls.spent_ns.saturating_sub(tls_before.spent_ns).saturating_sub(tls_work_ns);
        let served = served.saturating_sub(tls.work_steps.saturating_sub(tls_before.work_steps));
        self.item.learn(served_ns.saturating_sub(tls_work_ns), served);
        self.begin.learn((busy_ns - served_ns).saturating_sub(tls_begin_ns), begun);
        self.between.learn(busy_ns, begun);
        // A source's requests are not charged with the handshakes of others.
        let tls_ns = tls_begin_ns + tls_work_ns;
        self.unit.learn(busy_ns.saturating_sub(tls_ns), begun + served);
        self.see_handshakes(&tls, &tls_before);
    }

    fn see_handshakes(&mut self, tls: &TlsWork, before: &TlsWork) {
        let ended = tls.ended_since(before);
        let all = ended.iter().map(|kind| kind.count).sum();
        for (kind, Ended { count, spent_ns }) in self.handshakes.iter_mut().zip(ended) {
            kind.time.learn(spent_ns, count);
            kind.share.learn_share(count, all);
        }
    }

    /// Ends the stretch early: from now on sleep is not reported exactly.
    pub(super) fn pause(&mut self) {
        self.before = None;
    }

    /// Returns the cost of a connection from its accept to its first reply, nanoseconds.
    pub(super) fn connection_ns(&self) -> Option<f64> {
        let begin_ns = self.begin.get().filter(|ns| *ns > 0.0)?;
        let handshake_ns = if self.is_tls { self.handshake_ns() } else { 0.0 };
        // A request comes behind the handshake's end, in a later work-phase.
        let is_served_later = self.serves_later || self.is_tls;
        Some(begin_ns + handshake_ns + if is_served_later { self.item_ns() } else { 0.0 })
    }

    /// Returns the expected cost of a TLS handshake, of whichever kind, nanoseconds.
    pub(super) fn handshake_ns(&self) -> f64 {
        let expected =
            |kind: &Kind| kind.time.get().unwrap_or(0.0) * kind.share.get().unwrap_or(0.0);
        self.handshakes.iter().map(expected).sum()
    }

    /// Returns the cost of a work item: serving an open connection once, nanoseconds.
    pub(super) fn item_ns(&self) -> f64 {
        self.item.get().unwrap_or(0.0)
    }

    /// Returns the time per service of a new or an open connection while the loop is busy, divided
    /// by 1.5: a source's share of that need not be exact.
    pub(super) fn share_ns(&self) -> Option<u64> {
        self.unit.get().map(|ns| (ns / 1.5) as u64)
    }

    /// Returns the time between two connections begun while the loop is busy.
    pub(super) fn between_ns(&self) -> Option<f64> {
        self.between.get().filter(|ns| *ns > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Simulates some milliseconds, in each of which connections are begun and served, and the loop
    /// sleeps.
    fn run(
        cost: &mut Cost,
        view: &mut View,
        ms: u64,
        [begun, served, served_ns, slept_ns]: [u64; 4],
    ) {
        let from_ns = cost.before.map_or(0, |(at_ns, _)| at_ns);
        for step in 0..=ms {
            cost.see(from_ns + step * MS, view, false);
            view.begun += begun;
            view.accepted += begun;
            view.served += served;
            view.served_ns += served_ns;
            view.slept_ns += slept_ns;
        }
    }

    #[test]
    fn connections_that_stay_open_cost_what_they_cost() {
        for (begun, served) in [(1, 19), (1, 0), (0, 20)] {
            let mut cost = Cost::new(false);
            let served_ns = served * 20_000;
            run(&mut cost, &mut View::default(), 400, [begun, served, served_ns, 500_000]);
            let expected = (500_000 - served_ns) as f64;
            let learnt = cost.connection_ns().map(f64::round);
            assert_eq!(learnt, (begun > 0).then_some(expected));
            assert_eq!(cost.item_ns().round(), if served > 0 { 20_000.0 } else { 0.0 });
        }
    }

    #[test]
    fn served_later_a_connection_costs_a_turn_more() {
        let mut cost = Cost::new(true);
        run(&mut cost, &mut View::default(), 400, [10, 10, 800_000, 0]);
        assert_eq!(cost.connection_ns().map(f64::round), Some(100_000.0));
        assert_eq!(cost.between_ns().map(f64::round), Some(100_000.0));
    }

    /// Simulates a loop that accepts a connection with TLS each millisecond and sleeps for the
    /// rest, while `resumed` of ten handshakes are resumed; returns the cost learnt. A connection
    /// takes 10 µs, a full handshake 300 µs, of which 100 µs are in a work-phase, a resumed one
    /// 50 µs, and its request, in the work-phase too, 40 µs.
    fn with_tls(resumed: u64) -> Cost {
        let (mut cost, mut view) = (Cost::new(false), View::default());
        cost.set_tls(true);
        for ms in 0..4_000 {
            cost.see(ms * MS, &view, false);
            let is_resumed = ms % 10 < resumed;
            let (first_ns, last_ns) =
                if is_resumed { (40_000, 10_000) } else { (200_000, 100_000) };
            let before = view.tls;
            // A step that finds its share of a round spent is one in a work-phase too.
            view.tls.steps += 1;
            view.tls.spent_ns += last_ns;
            view.tls.note_work(before);
            view.tls.spent_ns += first_ns;
            view.tls.steps += 1;
            let ended = if is_resumed { &mut view.tls.resumed } else { &mut view.tls.full };
            ended.add(first_ns + last_ns);
            (view.begun, view.accepted) = (view.begun + 1, view.accepted + 1);
            (view.served, view.served_ns) = (view.served + 2, view.served_ns + last_ns + 40_000);
            view.slept_ns += MS - 10_000 - 40_000 - first_ns - last_ns;
        }
        cost
    }

    #[test]
    fn handshakes_are_learnt_by_kind_and_apart_from_requests() {
        for (resumed, handshake_ns) in [(0, 300_000.0), (10, 50_000.0), (4, 200_000.0)] {
            let cost = with_tls(resumed);
            let learnt_ns = cost.handshake_ns();
            assert!((learnt_ns / handshake_ns - 1.0_f64).abs() < 0.05, "{resumed}: {learnt_ns}");
            assert!((cost.item_ns() - 40_000.0).abs() < 1.0, "{}", cost.item_ns());
            let connection_ns = cost.connection_ns().unwrap();
            assert!((connection_ns - learnt_ns - 50_000.0).abs() < 1.0, "{connection_ns}");
        }
    }

    #[test]
    fn a_listener_without_tls_expects_no_handshake() {
        let mut cost = with_tls(0);
        cost.set_tls(false);
        assert!((cost.connection_ns().unwrap() - 10_000.0).abs() < 1.0);
        assert!((cost.handshake_ns() - 300_000.0).abs() < 1.0);
    }

    #[test]
    fn it_follows_a_change_within_some_hundred_milliseconds() {
        let (mut cost, mut view) = (Cost::new(false), View::default());
        run(&mut cost, &mut view, 100, [10, 0, 0, 0]);
        run(&mut cost, &mut view, 400, [1, 0, 0, 0]);
        let connection_ns = cost.connection_ns().unwrap();
        assert!((900_000.0..1_000_000.0).contains(&connection_ns), "{connection_ns}");
    }

    #[test]
    fn events_in_a_pause_do_not_count() {
        let (mut cost, mut view) = (Cost::new(false), View::default());
        run(&mut cost, &mut view, 100, [10, 0, 0, 0]);
        cost.pause();
        view.begun += 1;
        view.accepted += 1;
        run(&mut cost, &mut view, 100, [10, 0, 0, 0]);
        assert_eq!(cost.connection_ns().map(f64::round), Some(100_000.0));
    }
}
