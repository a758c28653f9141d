//! The starts of a law up to the duration, all of them or the share of one thread. Pure, and the
//! same for the same law, duration and seed.

use std::sync::Arc;

use super::gaps::Gaps;
use super::law::ArrivalLaw;
use super::rate_steps::RateSteps;
use super::varying::Varying;

/// An arrival of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Number in the whole schedule, from 0.
    pub number: u64,
    /// Planned start, nanoseconds: from the beginning of the schedule where it comes from that.
    pub planned_ns: u64,
}

/// The planned starts of a law, in order, nanoseconds from the beginning. As an iterator it yields
/// their times, and is fused: after the first `None` it returns only `None`.
#[derive(Clone, Debug)]
pub struct Schedule {
    law: Law,
    duration_ns: u64,
    last_ns: u64,
    /// Number of this schedule's next own start.
    next_own: u64,
    /// Number of starts of other shares before it.
    skip: u64,
    /// Distance between own starts, in numbers.
    of: u64,
}

#[derive(Clone, Debug)]
enum Law {
    RateSteps(RateSteps),
    Gaps(Gaps),
    Varying(Varying),
    Trace { starts_ns: Arc<[u64]>, number: usize },
    Never,
}

impl Schedule {
    /// Creates the schedule of `arrivals` before `duration_ns`, with random draws from `seed`. A
    /// law that [`ArrivalLaw::check`] refuses has no starts.
    pub fn new(arrivals: &ArrivalLaw, duration_ns: u64, seed: u64) -> Self {
        Self::sharded(arrivals, duration_ns, seed, 0, 1)
    }

    /// Creates the share of one of `of` threads: the starts with the numbers `index`, `index + of`,
    /// `index + 2 * of` and so on. All shares of a seed together are the whole schedule.
    pub fn sharded(
        arrivals: &ArrivalLaw,
        duration_ns: u64,
        seed: u64,
        index: usize,
        of: usize,
    ) -> Self {
        Self {
            law: Law::new(arrivals, duration_ns, seed),
            duration_ns,
            last_ns: 0,
            next_own: index as u64,
            skip: index as u64,
            of: of.max(1) as u64,
        }
    }

    /// Returns this schedule's next own start.
    #[inline]
    pub fn next_own(&mut self) -> Option<Arrival> {
        for _ in 0..self.skip {
            self.next_of_all()?;
        }
        let planned_ns = self.next_of_all()?;
        let number = self.next_own;
        self.next_own += self.of;
        self.skip = self.of - 1;
        Some(Arrival { number, planned_ns })
    }

    fn next_of_all(&mut self) -> Option<u64> {
        // The last bit of a computed time can be off, so that two that are a fraction of a
        // nanosecond apart change places.
        self.last_ns = self.law.next()?.max(self.last_ns);
        (self.last_ns < self.duration_ns).then_some(self.last_ns)
    }
}

impl Iterator for Schedule {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.next_own().map(|arrival| arrival.planned_ns)
    }
}

impl Law {
    fn new(arrivals: &ArrivalLaw, duration_ns: u64, seed: u64) -> Self {
        if arrivals.check().is_err() {
            return Law::Never;
        }
        match arrivals {
            ArrivalLaw::Constant { rate } => Law::RateSteps(RateSteps::constant(*rate)),
            ArrivalLaw::Steps(steps) => Law::RateSteps(RateSteps::steps(steps.clone())),
            ArrivalLaw::Poisson { rate } => Law::Gaps(Gaps::exponential(*rate, seed)),
            ArrivalLaw::Uniform { shortest_s, longest_s } => {
                Law::Gaps(Gaps::uniform(*shortest_s, *longest_s, seed))
            }
            ArrivalLaw::Ramp { from, to } => Law::Varying(Varying::ramp(*from, *to, duration_ns)),
            ArrivalLaw::Sine { mean, amplitude, period_s } => {
                Law::Varying(Varying::sine(*mean, *amplitude, *period_s, duration_ns))
            }
            ArrivalLaw::Trace(starts_ns) => Law::Trace { starts_ns: starts_ns.clone(), number: 0 },
        }
    }

    fn next(&mut self) -> Option<u64> {
        match self {
            Law::RateSteps(rate_steps) => rate_steps.next(),
            Law::Gaps(gaps) => Some(gaps.next()),
            Law::Varying(varying) => varying.next(),
            Law::Trace { starts_ns, number } => {
                let start_ns = starts_ns.get(*number).copied()?;
                *number += 1;
                Some(start_ns)
            }
            Law::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::law::RateStep;
    use super::*;

    const S: u64 = 1_000_000_000;

    fn laws() -> Vec<ArrivalLaw> {
        vec![
            ArrivalLaw::Constant { rate: 333.3 },
            ArrivalLaw::Poisson { rate: 333.3 },
            ArrivalLaw::Uniform { shortest_s: 0.001, longest_s: 0.005 },
            ArrivalLaw::Steps(vec![
                RateStep { rate: 200.0, duration_s: 2.5 },
                RateStep { rate: 0.0, duration_s: 1.0 },
                RateStep { rate: 500.0, duration_s: 1.0 },
            ]),
            ArrivalLaw::Ramp { from: 500.0, to: 50.0 },
            ArrivalLaw::Sine { mean: 300.0, amplitude: 300.0, period_s: 3.0 },
            ArrivalLaw::Trace((0..2000).map(|number| number * 3_000_000).collect()),
        ]
    }

    #[test]
    fn shares_cover_every_start_once_and_in_order() {
        for law in laws() {
            let whole: Vec<u64> = Schedule::new(&law, 5 * S, 7).collect();
            assert!(whole.len() > 1000, "{law}: {}", whole.len());
            for of in 1..=4 {
                let mut together = vec![None; whole.len()];
                for index in 0..of {
                    let mut share = Schedule::sharded(&law, 5 * S, 7, index, of);
                    let mut expected = index as u64;
                    while let Some(Arrival { number, planned_ns }) = share.next_own() {
                        assert_eq!(number, expected, "{law}");
                        expected += of as u64;
                        assert_eq!(together[number as usize].replace(planned_ns), None, "{law}");
                    }
                }
                let together: Vec<u64> = together.into_iter().flatten().collect();
                assert_eq!(together, whole, "{law} in {of} shares");
            }
        }
    }

    #[test]
    fn a_seed_gives_one_plan_and_only_chance_depends_on_it() {
        for law in laws() {
            let plan = |seed| Schedule::new(&law, 5 * S, seed).collect::<Vec<_>>();
            let chance = matches!(law, ArrivalLaw::Poisson { .. } | ArrivalLaw::Uniform { .. });
            assert_eq!(plan(1), plan(1), "{law}");
            assert_eq!(plan(1) != plan(2), chance, "{law}");
        }
    }

    #[test]
    fn a_trace_is_kept_as_it_is_and_cut_at_the_duration() {
        let law = ArrivalLaw::Trace([0, 5, 5, 9, 10, 11].into());
        assert_eq!(Schedule::new(&law, 10, 1).collect::<Vec<_>>(), [0, 5, 5, 9]);
    }

    #[test]
    fn the_end_is_the_end() {
        for law in laws() {
            let mut schedule = Schedule::new(&law, S, 1);
            while schedule.next().is_some() {}
            assert!((0..100).all(|_| schedule.next_own().is_none()), "{law}");
            assert_eq!(Schedule::new(&law, 0, 1).next(), None, "{law}");
        }
    }

    #[test]
    fn a_law_that_is_refused_has_no_starts() {
        let law = ArrivalLaw::Constant { rate: f64::NAN };
        assert_eq!(Schedule::new(&law, S, 1).next(), None);
    }

    /// Generates any number, often one in a useful range.
    fn figure() -> impl Strategy<Value = f64> {
        prop_oneof![0.0..1e4, 0.0..1e9, proptest::num::f64::ANY, Just(0.0)]
    }

    fn any_law() -> impl Strategy<Value = ArrivalLaw> {
        let step =
            (figure(), figure()).prop_map(|(rate, duration_s)| RateStep { rate, duration_s });
        let pair = || (figure(), figure());
        prop_oneof![
            figure().prop_map(|rate| ArrivalLaw::Constant { rate }),
            figure().prop_map(|rate| ArrivalLaw::Poisson { rate }),
            pair()
                .prop_map(|(shortest_s, longest_s)| ArrivalLaw::Uniform { shortest_s, longest_s }),
            vec(step, 0..5).prop_map(ArrivalLaw::Steps),
            pair().prop_map(|(from, to)| ArrivalLaw::Ramp { from, to }),
            (figure(), figure(), 0.0..=1.0).prop_map(|(mean, period_s, depth)| ArrivalLaw::Sine {
                mean,
                amplitude: depth * mean,
                period_s
            }),
            vec(any::<u64>(), 0..50).prop_map(|mut starts_ns| {
                starts_ns.sort_unstable();
                ArrivalLaw::Trace(starts_ns.into())
            }),
        ]
    }

    proptest! {
        #[test]
        fn whatever_the_figures_starts_ascend_and_stay_below_the_duration(
            law in any_law(),
            duration_ns in prop_oneof![0..20 * S, any::<u64>()],
            seed: u64,
            factor in figure(),
        ) {
            for law in [law.scaled(factor), law] {
                let starts: Vec<u64> = Schedule::new(&law, duration_ns, seed).take(2000).collect();
                prop_assert!(starts.is_sorted(), "{}", law);
                prop_assert!(starts.iter().all(|start| *start < duration_ns), "{}", law);
                if law.check().is_ok() && duration_ns > 0 {
                    let mean = law.mean_rate(duration_ns);
                    prop_assert!(mean.is_finite() && mean >= 0.0, "{} {}", law, mean);
                }
            }
        }
    }
}
