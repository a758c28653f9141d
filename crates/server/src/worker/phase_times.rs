//! Processor time of a loop by phase, user and system: what the papers' profiles tell apart.
//!
//! Linux divides a thread's time into user and system by sampling it at ticks, and getrusage(2)
//! carries what that division owes from one reading to the next. Phases are shorter than a tick,
//! and so each would show the mean of all. Here the whole time of a phase is that of the thread's
//! own clock, and its user time is the wall time outside system calls; the rest is system time.
//! Thus user time includes page faults, interrupts and the time for which another thread had the
//! processor, all while no call was made; it is never more than the whole.

use weir_stats::Counters;

/// A phase of a loop's iteration (pariag-accept fig. 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopPhase {
    /// Asks for events, and waits for them.
    Getevents,
    /// Accepts connections, and serves those that are read at once.
    Accept,
    /// Serves ready connections, and does what is due by the clock.
    Work,
}

/// The clocks at the edge of two phases, nanoseconds. The wall clock is read before the thread's
/// clock for the phase that ends, and after it for the one that begins, so that the reading is part
/// of neither's user time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Edge {
    pub(crate) ended_ns: u64,
    pub(crate) began_ns: u64,
    /// Processor time of the thread.
    pub(crate) cpu_ns: u64,
    /// Wall time of the thread within system calls.
    pub(crate) calls_ns: u64,
}

/// The phase that a loop is in, and when it began.
#[derive(Debug)]
pub(crate) struct PhaseTimes {
    phase: LoopPhase,
    began: Edge,
}

impl PhaseTimes {
    /// Begins with what a loop does before its first wait.
    pub(crate) fn begin(edge: Edge) -> Self {
        Self { phase: LoopPhase::Work, began: edge }
    }

    /// Returns the phase that the loop is in.
    pub(crate) fn phase(&self) -> LoopPhase {
        self.phase
    }

    /// Ends a phase at `edge`, where the `next` begins, and counts its times.
    pub(crate) fn enter(&mut self, next: LoopPhase, edge: Edge, counters: &mut Counters) {
        let began = std::mem::replace(&mut self.began, edge);
        let cpu_ns = edge.cpu_ns.saturating_sub(began.cpu_ns);
        let wall_ns = edge.ended_ns.saturating_sub(began.began_ns);
        let calls_ns = edge.calls_ns.saturating_sub(began.calls_ns);
        let user_ns = wall_ns.saturating_sub(calls_ns).min(cpu_ns);
        let (user, system) = match std::mem::replace(&mut self.phase, next) {
            LoopPhase::Getevents => {
                (&mut counters.getevents_user_ns, &mut counters.getevents_system_ns)
            }
            LoopPhase::Accept => (&mut counters.accept_user_ns, &mut counters.accept_system_ns),
            LoopPhase::Work => (&mut counters.work_user_ns, &mut counters.work_system_ns),
        };
        user.add(user_ns);
        system.add(cpu_ns - user_ns);
        counters.phases_timed.one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An edge whose reading takes 10 ns, half of them before the thread's clock is read.
    fn edge(wall_ns: u64, cpu_ns: u64, calls_ns: u64) -> Edge {
        Edge { ended_ns: wall_ns, began_ns: wall_ns + 10, cpu_ns: cpu_ns + 5, calls_ns }
    }

    #[test]
    fn the_time_of_a_phase_is_its_own_and_divided_by_its_calls() {
        let mut counters = Counters::default();
        let mut times = PhaseTimes::begin(edge(0, 0, 0));
        // 300 of 500 ns in calls, all of them busy; then a wait of 1000 ns that sleeps for 900.
        times.enter(LoopPhase::Getevents, edge(510, 510, 300), &mut counters);
        times.enter(LoopPhase::Accept, edge(1_520, 620, 1_280), &mut counters);
        assert_eq!(times.phase(), LoopPhase::Accept);
        let told = [&counters.work_user_ns, &counters.work_system_ns].map(|it| it.get());
        assert_eq!(told, [200, 310]);
        let told = [&counters.getevents_user_ns, &counters.getevents_system_ns].map(|it| it.get());
        assert_eq!(told, [20, 90]);
        assert_eq!((counters.accept_user_ns.get(), counters.phases_timed.get()), (0, 2));
    }

    #[test]
    fn a_phase_has_no_more_user_time_than_time() {
        let mut counters = Counters::default();
        let mut times = PhaseTimes::begin(edge(0, 0, 0));
        times.enter(LoopPhase::Accept, edge(1_000, 100, 0), &mut counters);
        assert_eq!((counters.work_user_ns.get(), counters.work_system_ns.get()), (100, 0));
    }
}
