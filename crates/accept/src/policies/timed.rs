//! A limit in time: an accept-phase accepts all waiting connections, but begins no accept once its
//! time is up. It uses the clock, and keeps no history.

use crate::{Decision, PhaseOutcome, Policy, PolicyConfig, Signals, View};

/// Divisor of the delay target: the part that a phase may take. Connections accepted before wait
/// for its end, and more than once before they are served.
const TARGET_PART: u64 = 10;

/// Minimum time of a phase, nanoseconds: some twenty accepts, so that the fixed cost of each phase
/// remains shared by many.
const PHASE_MIN_NS: u64 = 100_000;

/// Bounds each accept-phase in time instead of in number (after pariag-accept ch. 6, which fears
/// accept-phases that do not end while connections arrive as fast as they are accepted).
///
/// The purpose of a limit is that the phase ends soon enough for the connections accepted before. A
/// number ensures that only if every accept takes equally long. With eager reads an accept contains
/// the service: its request is read and answered at once, which takes a few microseconds for a
/// cached byte and milliseconds for a page that is compressed. A limit of ten may be a twentieth of
/// a millisecond or fifty. Time is right for both, and for machines of any speed: no number has to
/// be tuned. The price is a clock read per accept. The first accept is always allowed, so a phase
/// is longer than its time by one service at most, and a server of slow replies makes progress.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    phase_ns: u64,
}

impl Timed {
    /// Creates the policy for a delay target.
    pub fn new(config: &PolicyConfig) -> Self {
        Self { phase_ns: (config.target_ns / TARGET_PART).max(PHASE_MIN_NS) }
    }
}

impl Policy for Timed {
    fn decide(&mut self, now_ns: u64, view: &View, _: &Signals) -> Decision {
        let until_ns = Some(now_ns.saturating_add(self.phase_ns));
        Decision { until_ns, ..Decision::accept(view.room()) }
    }

    fn finished(&mut self, _: u64, _: &PhaseOutcome) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{ACCEPT_NS, FakeServer, Load, config};
    use crate::{FixedLimit, PolicyName};

    const SECOND_NS: u64 = 1_000_000_000;

    fn timed(target_ns: u64) -> Timed {
        Timed::new(&PolicyConfig { target_ns, ..config(PolicyName::Timed) })
    }

    /// Returns the load of an eager server, at twice its capacity.
    fn load(service_ns: u64) -> Load {
        Load { eager: true, step_ns: service_ns, gap_ns: service_ns / 2, ..Load::default() }
    }

    #[test]
    fn a_phase_takes_a_tenth_of_the_target_whatever_a_service_takes() {
        for service_ns in [10_000, 100_000, 1_000_000] {
            let phases = FakeServer::new(load(service_ns)).run(&mut timed(20_000_000), SECOND_NS);
            let full = phases.iter().filter(|phase| !phase.drained);
            let spent_ns: Vec<_> = full.map(|phase| phase.spent_ns).collect();
            assert!(spent_ns.len() > 100);
            assert!(spent_ns.iter().all(|ns| *ns >= 2_000_000));
            assert!(spent_ns.iter().all(|ns| *ns < 2_000_000 + ACCEPT_NS + service_ns));
        }
    }

    #[test]
    fn a_number_is_right_for_one_service_only() {
        let longest_ns = |service_ns| {
            let phases =
                FakeServer::new(load(service_ns)).run(&mut FixedLimit(Some(10)), SECOND_NS);
            phases.iter().map(|phase| phase.spent_ns).max()
        };
        assert!(longest_ns(10_000) < Some(200_000));
        assert!(longest_ns(1_000_000) > Some(10_000_000));
    }

    #[test]
    fn a_service_longer_than_a_phase_still_leaves_one_a_phase() {
        let phases = FakeServer::new(load(5_000_000)).run(&mut timed(20_000_000), SECOND_NS);
        assert!(phases.iter().all(|phase| phase.accepted == 1));
        assert!(phases.len() > 190);
    }

    #[test]
    fn all_that_wait_are_taken_while_there_is_time() {
        let load = Load { burst: 300, gap_ns: 1_000_000, ..load(1_000) };
        let mut server = FakeServer::new(load);
        let phases = server.run(&mut timed(20_000_000), 10_000_000);
        assert!(phases[0].accepted > 300 && phases[0].drained);
    }

    #[test]
    fn a_short_target_leaves_a_phase_its_least_time() {
        let decision =
            |target_ns| timed(target_ns).decide(5, &View::default(), &Signals::default());
        assert_eq!(decision(0).until_ns, Some(100_005));
        assert_eq!(decision(999_999).until_ns, Some(100_005));
        assert_eq!(decision(3_000_000).until_ns, Some(300_005));
        assert_eq!(decision(u64::MAX).until_ns, Some(u64::MAX / 10 + 5));
    }

    #[test]
    fn max_conns_bounds_it() {
        let view = View { open: 93, open_max: 100, ..View::default() };
        let decision = timed(20_000_000).decide(0, &view, &Signals::default());
        assert_eq!(decision, Decision { until_ns: Some(2_000_000), ..Decision::accept(7) });
    }
}
