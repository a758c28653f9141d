//! A stretch of time, and what one core did in it. Knows neither what ran there nor why.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use super::core_time::CoreTicks;

/// How much of the measured core others may use before a run says more about them.
pub(super) const FOREIGN_SHARE_MAX: f64 = 0.05;

/// What a core did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Window {
    /// How long the core was watched, in seconds.
    pub(super) window_s: f64,
    /// Its times meanwhile, in clock ticks.
    pub(super) core_ticks: CoreTicks,
    /// The same, busy, in seconds.
    pub(super) core_busy_s: f64,
    /// How much of the window the core was not idle, in seconds. Less coarse than `core_busy_s`.
    pub(super) core_not_idle_s: f64,
}

/// A window that is not over.
pub(super) struct Open {
    core: usize,
    start: Instant,
    ticks: CoreTicks,
}

impl Open {
    /// The time since the window was opened, in seconds.
    pub(super) fn age_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Ends the window.
    pub(super) fn close(&self) -> Result<Window> {
        let core_ticks = CoreTicks::read(self.core)?.since(self.ticks);
        Ok(Window::new(self.age_s(), core_ticks))
    }
}

impl Window {
    /// Begins to watch core `core`.
    pub(super) fn open(core: usize) -> Result<Open> {
        Ok(Open { core, start: Instant::now(), ticks: CoreTicks::read(core)? })
    }

    fn new(window_s: f64, core_ticks: CoreTicks) -> Self {
        let core_busy_s = core_ticks.busy_s();
        let core_not_idle_s = (window_s - core_ticks.idle_s()).max(0.0);
        Self { window_s, core_ticks, core_busy_s, core_not_idle_s }
    }

    /// The part of the window in which the core was not idle.
    pub(super) fn not_idle_share(&self) -> f64 {
        self.core_not_idle_s / self.window_s
    }

    /// The part of the window in which the core was busy.
    pub(super) fn busy_share(&self) -> f64 {
        self.core_busy_s / self.window_s
    }

    /// The part of the window that the hypervisor gave to others.
    pub(super) fn steal_share(&self) -> f64 {
        self.core_ticks.steal_s() / self.window_s
    }

    /// What is wrong with the window, when the one that was measured used `own_s` seconds of the
    /// core, in words.
    pub(super) fn complaint(&self, own_s: f64) -> Option<String> {
        // The two clocks differ by a tick or two, so this may be a little below 0.
        let foreign = (self.core_ticks.processes_s() - own_s) / self.window_s;
        (foreign > FOREIGN_SHARE_MAX)
            .then(|| format!("other processes had {:.0} % of the core", foreign * 100.0))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A second in which a core was busy half of the time, with processes.
    pub(in crate::bench) fn half_busy() -> Window {
        let ticks = rustix::param::clock_ticks_per_second() / 2;
        let stat = format!("cpu0 0 0 {ticks} {ticks} 0 0 0 0");
        Window::new(1.0, CoreTicks::parse(&stat, 0).unwrap())
    }

    #[test]
    fn shares_are_of_the_window() {
        let window = Window::new(2.0, half_busy().core_ticks);
        assert!((window.busy_share() - 0.25).abs() < 1e-9);
        assert!((window.not_idle_share() - 0.75).abs() < 1e-9);
        assert!(window.steal_share().abs() < 1e-9);
    }

    #[test]
    fn a_core_that_others_use_is_complained_of() {
        assert_eq!(half_busy().complaint(0.48), None);
        assert_eq!(half_busy().complaint(0.52), None);
        let complaint = half_busy().complaint(0.3).unwrap();
        assert_eq!(complaint, "other processes had 20 % of the core");
    }

    #[test]
    fn a_window_is_as_long_as_it_was_open() {
        let open = Window::open(0).unwrap();
        let window = open.close().unwrap();
        assert!(window.window_s > 0.0 && window.window_s <= open.age_s());
    }
}
