//! The overload control: lets in what can be served within the delay target and leaves the rest
//! where refusing is cheapest. Knows the queue's length, what was served, accepted and dropped, and
//! the time; not what a connection asks for.
//!
//! Calm, it is [`Ramp`] and asks the kernel one question a millisecond at most, and only while
//! connections wait. [`Onset`] tells an overload from a burst. Overloaded, it holds the accept
//! queue at what is served within the target (Little's law), so that the kernel refuses what comes
//! on top before anything is spent on it; at a demand of more than one and a half times what is
//! served, the gate refuses most of it earlier still. The old queue, longer than can be served in
//! time, is cleared once: all of it accepted, the newest served first, the stale refused.

mod demand;
mod distance;
mod onset;
mod rate;
#[cfg(test)]
mod tests;

use demand::Demand;
use distance::Distance;
use onset::Onset;
use rate::{Rate, Reading};

use crate::{
    Control, Controls, Decision, Look, Order, Outcome, Policy, Ramp, Refusal, Setting, Signals,
    View, Wanted,
};

/// The shortest accept queue: with less, a server whose requests are dear runs dry between two.
const QUEUE_MIN: u32 = 6;

/// A change of the queue's bound smaller than an eighth is not worth its system call.
const QUEUE_STEP: u32 = 8;

/// How many times as long the accept queue may be while the refused are accepted to be told so: who
/// comes faster than that can be done is left to the kernel.
const BY_HAND: u32 = 8;

/// How much longer than the target somebody may have waited and still be served, in fifths.
const STALE_FIFTHS: u64 = 12;

/// Ticks in a row with less asked for than can be served, after which an overload is over.
const CALM_TICKS: u32 = 3;

/// Phases in a row with too much work in hand, after which connections are closed.
const HEAVY_PHASES: u32 = 8;

/// Of the connections there is room for, the part that is kept free: an eighth.
const ROOM_PART: usize = 8;

/// Connections closed at once to make room, at most.
const EVICT_MAX: u64 = 64;

/// How long a new connection may keep silent while there is hardly room, in targets.
const SILENCE_TARGETS: u64 = 25;

/// The default policy.
#[derive(Clone, Copy, Debug)]
pub struct Adaptive {
    target_ns: u64,
    backlog_max: u32,
    controls: Controls,
    refusal: Refusal,
    ramp: Ramp,
    rate: Rate,
    onset: Onset,
    /// What has been asked for since somebody waits, while that is no overload yet.
    building: Option<Demand>,
    overload: Option<Overload>,
    /// When the kernel was last asked.
    asked_ns: u64,
    /// What it said of the queue, less what was accepted since.
    queue: Option<u32>,
    /// It said that nobody waits but the one that knocked.
    alone: bool,
    /// The wait of the first that was looked at in the last phase.
    age_ns: Option<u64>,
    /// Some were refused in the last phase.
    refused: bool,
    /// How far away callers are.
    distance: Distance,
    /// Phases in a row whose work in hand took more than twice the target.
    heavy: u32,
    pressure: bool,
}

/// What is known while it lasts.
#[derive(Clone, Copy, Debug)]
struct Overload {
    demand: Demand,
    tick_ns: u64,
    /// The bound of the accept queue.
    backlog: u32,
    /// Nobody waited at some time since the last tick.
    ran_dry: bool,
    calm_ticks: u32,
}

impl Adaptive {
    /// The policy at its beginning.
    pub fn new(setting: &Setting) -> Self {
        let target_ns = setting.target_ns.max(1_000_000);
        Self {
            target_ns,
            backlog_max: setting.backlog.max(1),
            controls: setting.controls,
            refusal: setting.refusal,
            ramp: Ramp::default(),
            rate: Rate::default(),
            onset: Onset::new(target_ns),
            building: None,
            overload: None,
            asked_ns: 0,
            queue: None,
            alone: false,
            age_ns: None,
            refused: false,
            distance: Distance::default(),
            heavy: 0,
            pressure: false,
        }
    }

    /// Whether it is time to ask the kernel again.
    fn asks(&self, now_ns: u64) -> bool {
        now_ns >= self.asked_ns + self.target_ns / 20
    }

    /// What somebody who joins the queue now will wait, and a level that falls as the queue does.
    fn wait(&self) -> Option<(u64, u64)> {
        match (self.queue, self.rate.interval_ns()) {
            (Some(queue), Some(interval_ns)) => {
                Some(((f64::from(queue) * interval_ns) as u64, u64::from(queue)))
            }
            (Some(_), None) => None,
            (None, _) => self.age_ns.map(|age_ns| (age_ns, age_ns)),
        }
    }

    /// Whether callers are so far away that the queue's bound answers them late.
    fn is_far(&self) -> bool {
        self.distance.rtt_ns() > self.target_ns / 4
    }

    /// How long the accept queue may be: what can be served within the target. For those far away
    /// it is to be half full, and what is on its way in a round trip has to find room.
    fn queue_fit(&self) -> u32 {
        let near_ns = self.target_ns;
        let span_ns = if self.is_far() { 2 * near_ns.max(self.distance.rtt_ns()) } else { near_ns };
        let fit = self.rate.served_in(span_ns).map_or(self.backlog_max, |fit| fit as u32);
        fit.clamp(QUEUE_MIN.min(self.backlog_max), self.backlog_max)
    }

    /// The age at which somebody is refused: as long as the bounded queue takes, and half as much.
    fn stale_ns(&self, backlog: u32) -> u64 {
        let queue_ns = self.rate.interval_ns().unwrap_or(0.0) * f64::from(backlog) * 1.5;
        (self.target_ns * STALE_FIFTHS / 5).max(queue_ns as u64)
    }

    fn watch(&mut self, now_ns: u64) {
        let queue = self.queue.unwrap_or(0);
        self.building.get_or_insert_with(|| Demand::new(now_ns, queue));
        let Some((wait_ns, level)) = self.wait() else { return };
        if !self.onset.is_overload(now_ns, wait_ns, level) {
            return;
        }
        let mut demand = self.building.take().unwrap_or_else(|| Demand::new(now_ns, queue));
        // The queue grew by what the kernel did not drop: how much that was is learnt from now on.
        demand.count(now_ns, None, queue);
        let backlog = self.queue_fit();
        let tick_ns = now_ns;
        self.overload = Some(Overload { demand, tick_ns, backlog, ran_dry: false, calm_ticks: 0 });
        self.set_share();
    }

    /// Which share of connection requests is to be dropped from now on.
    fn set_share(&mut self) {
        let (far, interval_ns) = (self.is_far(), self.rate.interval_ns().unwrap_or(0.0));
        let Some(overload) = &mut self.overload else { return };
        if far {
            let middle = f64::from(overload.backlog) / 4.0;
            let off = 1.0 - f64::from(self.queue.unwrap_or(0)) / middle.max(1.0);
            overload.demand.share_far(interval_ns, off);
        } else {
            overload.demand.share_near(interval_ns);
        }
    }

    /// Once a target: what is asked for, what can be served, and whether it is over.
    fn tick(&mut self, now_ns: u64, signals: &Signals) {
        let fit = self.queue_fit();
        let Some(overload) = &mut self.overload else { return };
        if now_ns < overload.tick_ns + self.target_ns {
            return;
        }
        overload.demand.count(now_ns, signals.drops, self.queue.unwrap_or(0));
        let interval_ns = self.rate.interval_ns().unwrap_or(0.0);
        let is_less = overload.demand.of_capacity(interval_ns).is_none_or(|share| share < 0.95);
        let calm = overload.ran_dry && is_less;
        overload.calm_ticks = if calm { overload.calm_ticks + 1 } else { 0 };
        overload.tick_ns = now_ns;
        overload.ran_dry = false;
        if overload.backlog.abs_diff(fit) > overload.backlog / QUEUE_STEP {
            overload.backlog = fit;
        }
        if overload.calm_ticks >= CALM_TICKS {
            self.overload = None;
            self.onset.calmed(now_ns);
        }
        self.set_share();
    }

    fn nobody_waits(&mut self) {
        self.onset.idle();
        self.building = None;
        let far = self.is_far();
        if let Some(overload) = &mut self.overload {
            overload.ran_dry = true;
            // Those far away would all come at once, and late.
            if !far {
                overload.demand.ran_dry();
            }
        }
    }

    /// Too many on open connections is told by the time their work takes.
    fn weigh(&mut self, view: &View) {
        let heavy = view.work_ns > 2 * self.target_ns && view.work_items > 1;
        self.heavy = if heavy { self.heavy.saturating_add(1) } else { 0 };
        let lasts = self.heavy >= HEAVY_PHASES;
        self.pressure = lasts || self.pressure && view.work_ns > self.target_ns;
    }

    fn limited(&self, now_ns: u64, view: &View, budget: u64) -> Decision {
        let mut decision = Decision::accept(budget);
        if self.controls.has(Control::Budget) {
            decision.until_ns = Some(now_ns + self.target_ns / 4);
            decision.each_ns = self.rate.interval_ns().unwrap_or(0.0) as u64;
            if view.work_ns > self.target_ns && view.work_items > 1 {
                decision.budget = budget.min(1);
            }
        }
        decision.pressure = self.pressure && self.controls.has(Control::Close);
        let full = view.open_max - view.open_max / ROOM_PART;
        if view.open > full && self.controls.has(Control::Evict) {
            decision.evict = ((view.open - full) as u64).min(EVICT_MAX);
            decision.silence_ns = SILENCE_TARGETS * self.target_ns;
        }
        decision
    }

    fn defend(&self, overload: &Overload, view: &View, decision: &mut Decision) {
        let (queue, backlog) = (self.queue.unwrap_or(0), overload.backlog);
        let by_kernel = self.refusal == Refusal::Kernel;
        decision.look = Look::First;
        decision.drop_departed = self.controls.has(Control::Departed);
        if self.controls.has(Control::Stale) {
            decision.stale_ns = Some(self.stale_ns(backlog));
        }
        if self.controls.has(Control::Backlog) {
            let bound = if by_kernel { backlog } else { backlog.saturating_mul(BY_HAND) };
            decision.backlog = Some(bound.min(self.backlog_max));
        }
        if by_kernel && self.controls.has(Control::Gate) {
            decision.gate = overload.demand.share_now();
        }
        if !by_kernel {
            decision.refuse = u64::from(queue.saturating_sub(backlog));
        } else if queue / 2 > backlog + QUEUE_MIN / 2 && self.controls.has(Control::Newest) {
            decision.look = Look::Each;
            decision.order = Order::Newest;
            decision.budget = u64::from(queue).min(view.room());
        }
    }
}

impl Policy for Adaptive {
    fn wants(&mut self, now_ns: u64, view: &View) -> Wanted {
        if self.controls == Controls::NONE || !self.asks(now_ns) {
            return Wanted::default();
        }
        match &self.overload {
            Some(overload) => {
                let drops = now_ns >= overload.tick_ns + self.target_ns;
                Wanted { queue: true, drops }
            }
            None => Wanted { queue: self.ramp.is_queued(view), drops: false },
        }
    }

    fn decide(&mut self, now_ns: u64, view: &View, signals: &Signals) -> Decision {
        if self.controls == Controls::NONE {
            return Decision::accept(self.ramp.budget(view));
        }
        let asked = self.overload.is_some() || self.ramp.is_queued(view);
        let fresh = asked && self.asks(now_ns);
        if fresh {
            self.asked_ns = now_ns;
            self.queue = signals.queue;
            self.alone = signals.queue.is_some_and(|queue| queue <= 1);
        }
        // Rounds that follow each other tell a queue from one caller after the other only when
        // something else keeps the loop busy; the kernel knows.
        let alone = self.alone && self.overload.is_none();
        let waiting = self.ramp.is_queued(view) && !alone;
        let budget = self.ramp.budget_when(waiting, view);
        let (waited_ns, closed) = (view.waited_ns, view.closed);
        // Only while it is overloaded is it sure that somebody waited all along. And a stretch in
        // which some were refused says nothing of how fast they are served.
        let queued = waiting && self.overload.is_some();
        self.rate.see(Reading { now_ns, waited_ns, closed }, queued, self.refused);
        if !waiting {
            self.nobody_waits();
        }
        self.weigh(view);
        match self.overload {
            Some(_) => self.tick(now_ns, signals),
            None if waiting && fresh => self.watch(now_ns),
            None => {}
        }
        let mut decision = self.limited(now_ns, view, budget);
        match &self.overload {
            Some(overload) => self.defend(overload, view, &mut decision),
            None if waiting && self.queue.is_none() => decision.look = Look::First,
            None => {}
        }
        decision
    }

    fn finished(&mut self, _: u64, outcome: &Outcome) {
        self.ramp.heard(outcome);
        self.age_ns = outcome.age_first_ns;
        self.refused = outcome.refused > 0;
        if let Some(rtt_ns) = outcome.rtt_ns {
            self.distance.see(rtt_ns);
        }
        if let Some(queue) = &mut self.queue {
            *queue = queue.saturating_sub(outcome.accepted.min(u64::from(u32::MAX)) as u32);
        }
        let demand = self.overload.as_mut().map(|overload| &mut overload.demand);
        if let Some(demand) = demand.or(self.building.as_mut()) {
            demand.accepted(outcome.accepted);
        }
        if outcome.drained && self.controls != Controls::NONE {
            self.nobody_waits();
        }
    }

    fn due_ns(&self) -> Option<u64> {
        let overload = self.overload.as_ref()?;
        let soon_ns = self.asked_ns + self.target_ns / 20;
        let shut = overload.demand.share_now() > 0.0;
        Some(if shut { soon_ns } else { overload.tick_ns + self.target_ns })
    }

    fn is_overloaded(&self) -> bool {
        self.overload.is_some()
    }
}
