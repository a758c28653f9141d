//! The overload control: admits what can be served within the delay target and leaves the rest
//! where refusing is cheapest.
//!
//! While calm, it is [`Ramp`] and asks the kernel at most one question per millisecond, and only
//! while connections wait. [`Onset`] distinguishes an overload from a burst. During an overload it
//! bounds the outstanding work by what can be served within the target (Little's law), including
//! the work in hand on open connections. With a SYN filter the bound is a window: the filter admits
//! one connection for each that is accepted, and the accept queue is always long enough. Without
//! one, the bound is the length of the accept queue. An old queue, longer than can be served in
//! time, is cleared once: all of it is accepted, the newest are served first and the stale are
//! refused.

mod cost;
mod onset;
mod overload;
#[cfg(test)]
mod tests;

use cost::Cost;
use onset::Onset;
use overload::{Overload, Seen};

use crate::{
    Control, Controls, Decision, Inspect, Order, PhaseOutcome, Policy, PolicyConfig, Ramp, Refusal,
    Share, Signals, SynDecision, SynFilter, View, Wanted,
};

/// Minimum length of the accept queue: with less, a server whose requests are expensive runs dry
/// between two of them.
const QUEUE_MIN: f64 = 6.0;

/// The same minimum while little is refused: at the capacity itself, chance makes a queue this long
/// now and then, and a shorter bound would refuse connections that can be served.
const QUEUE_MIN_NEAR: f64 = 24.0;

/// Length with which the loop stays busy however cheap a connection is. While much is refused, a
/// longer queue only costs: each of a thousand sockets takes a third more time than each of a
/// hundred, because the processor's caches do not hold them all.
const QUEUE_BUSY: f64 = 64.0;

/// Minimum length up to which the queue may grow while the loop has just slept: what a connection
/// costs is known only roughly then.
const SPARE_MIN: u32 = 256;

/// Maximum time that a queue of the minimum length may take, in targets.
const QUEUE_MIN_TARGETS: u64 = 8;

/// Factor by which the accept queue may be longer while refused connections are accepted in order
/// to be answered. Connections that arrive faster than that can be done are left to the kernel.
const BY_HAND: u32 = 8;

/// Part of the queue reserved for sources that have not used up their share.
const RESERVED: f64 = 2.0 / 3.0;

/// Ratio of waiting connections to the unreserved part of the queue above which requests on open
/// connections may be refused too: more than new connections alone fill.
const CONTENDED: f64 = 1.5;

/// Wait up to which a connection is always still served, in fifths of the target.
const STALE_FIFTHS: u64 = 12;

/// Divisor of the backlog: above this part of it, the SYN filter keeps the accept queue from
/// overflowing.
const GUARDED_PART: u32 = 8;

/// Number of handshakes over which the mean round trip time is smoothed.
const RTT_PART: f64 = 16.0;

/// The default policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive {
    target_ns: u64,
    backlog_max: u32,
    controls: Controls,
    refusal: Refusal,
    syn_filter: SynFilter,
    ramp: Ramp,
    cost: Cost,
    onset: Onset,
    overload: Option<Overload>,
    /// True if sleep has to be reported exactly: connections wait, or there is much to do.
    alert: bool,
    /// True if the accept queue is long and must be kept from overflowing.
    guards: bool,
    /// Time of the last question to the kernel.
    asked_ns: u64,
    /// Length of the queue as last reported, less the connections accepted since.
    queue: Option<u32>,
    /// True if the kernel reported at most one waiting connection.
    alone: bool,
    /// Wait of the first connection looked at in the last phase.
    age_ns: Option<u64>,
    /// Mean round trip time of a handshake.
    rtt_ns: f64,
    /// Onset of an overload by the work in hand on open connections, and its result.
    work_onset: Onset,
    pressure: bool,
}

impl Adaptive {
    /// Creates the policy.
    pub fn new(config: &PolicyConfig) -> Self {
        let target_ns = config.target_ns.max(1_000_000);
        let has_filter = config.controls.has(Control::SynFilter);
        Self {
            target_ns,
            backlog_max: config.backlog.max(1),
            controls: config.controls,
            refusal: config.refusal,
            syn_filter: if has_filter { config.syn_filter } else { SynFilter::None },
            cost: Cost::new(!config.eager),
            onset: Onset::new(target_ns),
            work_onset: Onset::new(target_ns),
            ..Self::default()
        }
    }

    /// Returns whether it is time to ask the kernel again.
    fn asks(&self, now_ns: u64) -> bool {
        now_ns >= self.asked_ns + self.target_ns / 20
    }

    /// Returns the expected wait of the next connection to join the queue, and a level that falls
    /// as the queue does.
    fn wait(&self, view: &View) -> Option<(u64, u64)> {
        let Some(queue) = self.queue else { return self.age_ns.map(|age_ns| (age_ns, age_ns)) };
        let connection_ns = self.cost.connection_ns()?;
        let in_hand_ns = self.in_hand_ns(view);
        let wait_ns = f64::from(queue) * connection_ns + in_hand_ns;
        Some((wait_ns as u64, u64::from(queue) + view.ready))
    }

    /// Returns the length that the accept queue may have beside the work in hand: what can be
    /// served within the target, times a margin.
    fn queue_fit(&self, view: &View, margin: f64, queue_min: f64) -> u32 {
        self.beside_work(view, margin, self.queue_alone(margin, queue_min))
    }

    /// Returns what is left of a length beside the work in hand.
    fn beside_work(&self, view: &View, margin: f64, alone: Option<f64>) -> u32 {
        let left = 1.0 - self.in_hand_ns(view) / (self.target_ns as f64 * margin);
        let fit = alone.map(|alone| left.max(0.0) * alone);
        fit.map_or(self.backlog_max, |fit| (fit as u32).clamp(1, self.backlog_max))
    }

    /// Returns the same length without work in hand.
    fn queue_alone(&self, margin: f64, queue_min: f64) -> Option<f64> {
        let target_ns = self.target_ns as f64 * margin;
        Some((target_ns / self.cost.connection_ns()?).max(queue_min))
    }

    /// Returns the same length during an overload: the more SYNs are dropped, the less has to wait.
    /// Only a filter that counts keeps the queue at a length without overflowing it.
    fn queue_overloaded(&self, overload: &Overload, queue_min: f64) -> Option<f64> {
        let fit = self.queue_alone(overload.margin, queue_min)?;
        if self.syn_filter != SynFilter::Tokens {
            return Some(fit);
        }
        // What is decided here shows a round trip later, when as many more may have come.
        let way = f64::from(self.on_the_way());
        let busy = (QUEUE_BUSY * overload.margin + way).min(fit);
        Some(busy + (fit - busy) * (1.0 - overload.shortening()))
    }

    /// Returns whether sources that have exceeded their share delay others: more connections wait
    /// than the part of the queue that such sources may fill ([`RESERVED`]).
    fn is_contended(&self, view: &View, overload: &Overload) -> bool {
        let waiting = (u64::from(self.queue.unwrap_or(0)) + view.ready) as f64;
        let fit = self.queue_overloaded(overload, QUEUE_MIN).unwrap_or(f64::INFINITY);
        overload.weight > 1 && waiting > fit * (1.0 - RESERVED) * CONTENDED
    }

    /// Returns the minimum queue length, unless that takes far longer than the target.
    fn queue_min(&self, queue_min: f64) -> f64 {
        let targets_ns = (QUEUE_MIN_TARGETS * self.target_ns) as f64;
        let fit = targets_ns / self.cost.connection_ns().unwrap_or(targets_ns);
        fit.clamp(QUEUE_MIN, queue_min)
    }

    /// Returns the number of connections whose handshake is in progress at the current rate.
    fn on_the_way(&self) -> u32 {
        self.cost.between_ns().map_or(0, |between_ns| (self.rtt_ns / between_ns) as u32)
    }

    /// Returns the age at which a connection is refused: at least one and a half times the time
    /// that the bounded queue takes.
    fn stale_ns(&self, fit: u32) -> u64 {
        let queue_ns = self.cost.connection_ns().unwrap_or(0.0) * f64::from(fit) * 1.5;
        (self.target_ns * STALE_FIFTHS / 5).max(queue_ns as u64)
    }

    /// Judges whether the queue is an overload, or will be one if it lasts.
    fn watch(&mut self, now_ns: u64, view: &View, signals: &Signals) -> bool {
        let Some((wait_ns, level)) = self.wait(view) else { return false };
        let connection_ns = self.cost.connection_ns().unwrap_or(0.0);
        let short_ns = (self.queue_min(QUEUE_MIN_NEAR) * connection_ns) as u64;
        let is_overload = self.onset.is_overload(now_ns, wait_ns, level, short_ns);
        if is_overload && view.saturated {
            self.overload = Some(Overload::new(now_ns, signals.syns));
        }
        is_overload
    }

    /// Updates the overload once per target, and ends it when it is over.
    fn tick(&mut self, now_ns: u64, view: &View, signals: &Signals) {
        let fit = self.queue_fit(view, 1.0, QUEUE_MIN);
        let Some(overload) = &mut self.overload else { return };
        if now_ns < overload.tick_ns + self.target_ns {
            return;
        }
        let ticks_of_way = self.rtt_ns / self.target_ns as f64;
        let waits = view.ready > 0 || self.queue.is_none_or(|queue| queue > 0);
        let queue = self.queue.unwrap_or(0);
        let (woke_ns, syns) = (view.woke_ns, signals.syns);
        overload.tick(now_ns, &Seen { woke_ns, waits, syns, queue, fit, ticks_of_way });
        if overload.is_over(ticks_of_way as u32) {
            self.overload = None;
        }
    }

    /// Returns the work in hand for ready connections, nanoseconds: a handshake for those that
    /// begin with one, and a work item for others.
    fn in_hand_ns(&self, view: &View) -> f64 {
        let handshakes = view.tls.waiting;
        let items = view.ready.saturating_sub(handshakes);
        items as f64 * self.cost.item_ns() + handshakes as f64 * self.cost.handshake_ns()
    }

    /// Judges whether the work in hand is an overload by itself, which lasts until the work is
    /// done.
    fn weigh(&mut self, now_ns: u64, view: &View) {
        let in_hand_ns = self.in_hand_ns(view) as u64;
        let begins = self.work_onset.is_overload(now_ns, in_hand_ns, view.ready, 0);
        let lasts = self.pressure && in_hand_ns > self.target_ns;
        self.pressure = view.saturated && (begins || lasts);
    }

    fn limited(&self, now_ns: u64, view: &View, budget: u64) -> Decision {
        let mut decision = Decision::accept(budget);
        if self.controls.has(Control::Budget) {
            decision.until_ns = Some(now_ns + self.target_ns / 4);
            decision.each_ns = self.cost.connection_ns().unwrap_or(0.0) as u64;
            decision.work_max_ns = Some(self.target_ns / 2);
            if self.in_hand_ns(view) > self.target_ns as f64 {
                decision.budget = budget.min(1);
            }
        }
        decision.pressure = self.pressure && self.controls.has(Control::Close);
        if self.pressure {
            self.drop_the_late(self.queue_fit(view, 1.0, QUEUE_MIN), &mut decision);
        }
        if self.guards && self.syn_filter == SynFilter::Tokens {
            let each_ns = self.cost.between_ns().unwrap_or(0.0) as u64;
            decision.syn = SynDecision::Guard { window: self.backlog_max, each_ns };
            decision.inspect = Inspect::First;
        }
        decision
    }

    /// Sets the decision to refuse connections that have waited too long, and to drop those whose
    /// client has gone.
    fn drop_the_late(&self, fit: u32, decision: &mut Decision) {
        decision.inspect_open = self.pressure;
        decision.drop_departed = self.controls.has(Control::Departed);
        if self.controls.has(Control::Stale) {
            decision.stale_ns = Some(self.stale_ns(fit));
        }
    }

    /// Returns the share of each source while sources of this weight compete.
    fn share(&self, weight: u32) -> Option<Share> {
        self.cost.share_ns().map(|each_ns| Share { each_ns, weight })
    }

    /// Sets the decision to serve the newest first while the queue is longer than can be served in
    /// time, and while connections deferred from it remain, as long as none may be refused.
    fn prefer_newest(&self, fit: u32, view: &View, decision: &mut Decision) {
        let queue = self.queue.unwrap_or(0);
        let is_long = queue / 2 > fit + QUEUE_MIN as u32 / 2;
        let keeps_on = !view.saturated && view.deferred > fit as usize;
        let by_kernel = self.refusal == Refusal::Kernel;
        if (is_long || keeps_on) && by_kernel && self.controls.has(Control::Newest) {
            decision.inspect = Inspect::All;
            decision.order = Order::Newest;
            let weight = self.overload.map_or(0, |overload| overload.weight);
            decision.order_share = self.share(weight);
            decision.budget = u64::from(queue).min(view.room());
        }
    }

    fn defend(&self, overload: &Overload, view: &View, decision: &mut Decision) {
        let queue_min = QUEUE_MIN_NEAR - (QUEUE_MIN_NEAR - QUEUE_MIN) * overload.excess();
        let queue_min = self.queue_min(queue_min);
        let in_time = self.queue_fit(view, overload.margin, queue_min);
        if !view.busy && self.guards {
            return self.prefer_newest(in_time, view, decision);
        }
        let alone = self.queue_overloaded(overload, queue_min);
        let fit = self.beside_work(view, overload.margin, alone);
        decision.inspect = Inspect::First;
        self.drop_the_late(in_time, decision);
        decision.inspect_open |= self.in_hand_ns(view) > self.target_ns as f64;
        decision.inspect_open |= self.is_contended(view, overload);
        let by_hand = self.refusal != Refusal::Kernel;
        // Those deferred have been accepted, and may still be served; who is newer comes first.
        let left = fit.saturating_sub(view.deferred as u32).max(fit / 2).max(1);
        let bound = if by_hand { fit.saturating_mul(BY_HAND) } else { left };
        let window = bound.min(self.backlog_max);
        match self.syn_filter {
            SynFilter::Tokens if !overload.is_flooded => {
                let share_ns = self.cost.between_ns().unwrap_or(0.0) as u64;
                let reserved = if overload.weight > 1 { RESERVED } else { 0.0 };
                let reserve = (f64::from(window) * reserved) as u32;
                let spare_window = in_time.max(window).max(SPARE_MIN);
                decision.syn = SynDecision::Tokens { window, spare_window, reserve, share_ns };
            }
            SynFilter::Random if !by_hand => {
                decision.syn = SynDecision::Random(overload.dropped_share());
                decision.backlog =
                    Some(bound.saturating_mul(2).saturating_add(2 * self.on_the_way()));
            }
            _ => decision.backlog = Some(bound.saturating_add(2 * self.on_the_way())),
        }
        if !self.controls.has(Control::Backlog) {
            decision.backlog = None;
        }
        decision.backlog = decision.backlog.map(|backlog| backlog.min(self.backlog_max));
        let weight = overload.weight;
        decision.share = self.share(weight);
        if by_hand {
            decision.refuse = u64::from(self.queue.unwrap_or(0).saturating_sub(fit));
        }
        self.prefer_newest(in_time, view, decision);
    }
}

impl Policy for Adaptive {
    fn wants(&mut self, now_ns: u64, view: &View) -> Wanted {
        if self.controls == Controls::NONE || !self.asks(now_ns) {
            return Wanted::default();
        }
        Wanted { queue: self.overload.is_some() || self.ramp.is_queued(view) }
    }

    fn decide(&mut self, now_ns: u64, view: &View, signals: &Signals) -> Decision {
        if self.controls == Controls::NONE {
            return Decision::accept(self.ramp.budget(view));
        }
        self.cost.set_tls(view.is_tls);
        let asked = self.overload.is_some() || self.ramp.is_queued(view);
        let fresh = asked && self.asks(now_ns);
        if fresh {
            if let Some(overload) = &mut self.overload {
                overload.look(signals.syns, view.woke_ns > self.asked_ns);
            }
            self.asked_ns = now_ns;
            self.queue = signals.queue;
            self.alone = signals.queue.is_some_and(|queue| queue <= 1);
        }
        // Iterations that follow each other tell a queue from one caller after the other only when
        // something else keeps the loop busy; the kernel knows.
        let alone = self.alone && self.overload.is_none();
        let waiting = self.ramp.is_queued(view) && !alone;
        let budget = self.ramp.budget_when(waiting, view);
        let has_work = view.work_items > 1 && view.work_ns > self.target_ns / 4;
        if self.alert {
            self.cost.see(now_ns, view, self.refusal != Refusal::Kernel);
        } else {
            self.cost.pause();
        }
        self.alert = waiting || has_work || self.overload.is_some();
        let is_long = self.queue.is_some_and(|queue| queue > self.backlog_max / GUARDED_PART);
        self.guards = self.alert && (self.guards || is_long);
        if !waiting {
            self.onset.idle();
        }
        self.weigh(now_ns, view);
        let mut is_flood = false;
        match self.overload {
            Some(_) => self.tick(now_ns, view, signals),
            None if waiting && fresh => is_flood = self.watch(now_ns, view, signals),
            None => {}
        }
        let mut decision = self.limited(now_ns, view, budget);
        match &self.overload {
            Some(overload) => self.defend(overload, view, &mut decision),
            None if is_flood => {
                self.prefer_newest(self.queue_fit(view, 1.0, QUEUE_MIN), view, &mut decision);
            }
            None if waiting && self.queue.is_none() => decision.inspect = Inspect::First,
            None => {}
        }
        decision
    }

    fn finished(&mut self, _: u64, outcome: &PhaseOutcome) {
        self.ramp.heard(outcome);
        self.age_ns = outcome.age_first_ns;
        if let Some(rtt_ns) = outcome.rtt_ns {
            self.rtt_ns += (rtt_ns as f64 - self.rtt_ns) / RTT_PART;
        }
        if let Some(queue) = &mut self.queue {
            *queue = queue.saturating_sub(outcome.accepted.min(u64::from(u32::MAX)) as u32);
        }
        if outcome.drained {
            self.onset.idle();
        }
    }

    fn due_ns(&self) -> Option<u64> {
        let counts = self.overload.is_some() || self.guards;
        counts.then_some(self.asked_ns + self.target_ns / 20)
    }

    fn is_overloaded(&self) -> bool {
        self.overload.is_some()
    }

    fn is_alert(&self) -> bool {
        self.alert
    }
}
