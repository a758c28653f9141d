//! Constant rates, forever or for a limited time. Start `i` is computed from `i`, so that a rate
//! without a whole number of nanoseconds between starts is kept over any length of time.
//!
//! A step continues where the one before it ended: if that was two thirds of the way to its next
//! start, the remaining third is completed at the new rate. Short steps therefore have the correct
//! mean.

use std::vec::IntoIter;

use super::law::RateStep;
use super::units::{NS_PER_S, ns, seconds, whole_ns};

#[derive(Clone, Debug)]
pub(super) struct RateSteps {
    rate: f64,
    begin_ns: u64,
    /// Length of the step; `u64::MAX` for the last one.
    length_ns: u64,
    /// Fraction of an arrival, 0 to 1, that the rate's integral lacked at the beginning of the step
    /// before the step's first start.
    remainder: f64,
    /// Number of the next start within the step.
    number: u64,
    remaining: IntoIter<RateStep>,
}

impl RateSteps {
    pub(super) fn constant(rate: f64) -> Self {
        Self::steps(vec![RateStep { rate, duration_s: 1.0 }])
    }

    pub(super) fn steps(steps: Vec<RateStep>) -> Self {
        let remaining = steps.into_iter();
        let mut rate_steps =
            Self { rate: 0.0, begin_ns: 0, length_ns: 0, remainder: 0.0, number: 0, remaining };
        rate_steps.begin_step();
        rate_steps
    }

    pub(super) fn next(&mut self) -> Option<u64> {
        loop {
            let offset_ns = self.offset_ns();
            if offset_ns < self.length_ns {
                self.number += 1;
                return Some(self.begin_ns.saturating_add(offset_ns));
            }
            self.end_step(offset_ns);
            self.begin_step()?;
        }
    }

    fn offset_ns(&self) -> u64 {
        if self.rate > 0.0 {
            whole_ns((self.remainder + self.number as f64) * NS_PER_S / self.rate)
        } else {
            u64::MAX
        }
    }

    fn end_step(&mut self, offset_ns: u64) {
        // A start on the boundary is the next step's first, whatever the last bit says.
        self.remainder = if offset_ns == self.length_ns {
            0.0
        } else {
            self.remainder + self.number as f64 - self.rate * seconds(self.length_ns)
        };
        self.remainder = self.remainder.clamp(0.0, 1.0);
        self.begin_ns = self.begin_ns.saturating_add(self.length_ns);
    }

    fn begin_step(&mut self) -> Option<()> {
        let step = self.remaining.next()?;
        self.rate = step.rate;
        self.length_ns = if self.remaining.len() == 0 { u64::MAX } else { ns(step.duration_s) };
        self.number = 0;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn until(mut rate_steps: RateSteps, end_ns: u64) -> Vec<u64> {
        std::iter::from_fn(|| rate_steps.next()).take_while(|start| *start < end_ns).collect()
    }

    fn steps(steps: &[(f64, f64)]) -> RateSteps {
        let step = |&(rate, duration_s): &(f64, f64)| RateStep { rate, duration_s };
        RateSteps::steps(steps.iter().map(step).collect())
    }

    #[test]
    fn a_constant_rate_has_its_exact_count_and_times() {
        let starts = until(RateSteps::constant(333.3), 60 * S);
        assert_eq!(starts.len(), 19_998);
        assert_eq!(starts[3333], 10 * S);
        assert_eq!(starts[1], 3_000_300);
        for (rate, seconds) in [(1.0, 10), (0.1, 60), (49_999.7, 10), (1e6, 1)] {
            let count = until(RateSteps::constant(rate), seconds * S).len();
            assert_eq!(count, (rate * seconds as f64).round() as usize, "{rate}");
        }
    }

    #[test]
    fn a_constant_rate_does_not_drift_in_a_day() {
        let mut rate_steps = RateSteps::constant(30_000.0);
        let day = 86_400 * 30_000;
        rate_steps.number = day;
        assert_eq!(rate_steps.next(), Some(86_400 * S));
        rate_steps.number = day + 1;
        assert_eq!(rate_steps.next(), Some(86_400 * S + 33_333));
    }

    #[test]
    fn the_highest_rate_has_a_start_each_nanosecond() {
        assert_eq!(until(RateSteps::constant(1e9), 1000), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn each_step_has_its_rate_and_the_last_goes_on() {
        let starts = until(steps(&[(10.0, 1.0), (0.0, 2.0), (4.0, 0.25)]), 5 * S);
        let first = (0..10).map(|number| number * S / 10);
        let last = (0..8).map(|number| 3 * S + number * S / 4);
        assert_eq!(starts, first.chain(last).collect::<Vec<_>>());
    }

    #[test]
    fn a_step_owes_the_next_what_it_left() {
        let starts = until(steps(&[(1.0, 1.5), (2.0, 1.0), (0.5, 1.0)]), 8 * S);
        let expected = [0, 1000, 1750, 2250, 3500, 5500, 7500].map(|ms| ms * 1_000_000);
        assert_eq!(starts, expected);
    }

    #[test]
    fn many_short_steps_have_the_mean_of_their_rates() {
        let short: Vec<_> = (0..3000).map(|number| (f64::from(number % 3) + 0.5, 0.1)).collect();
        assert_eq!(until(steps(&short), 300 * S).len(), 450);
    }

    #[test]
    fn a_rate_of_nothing_at_the_end_ends_the_plan() {
        assert_eq!(until(steps(&[(333.3, 60.0), (0.0, 1.0)]), u64::MAX).len(), 19_998);
    }

    #[test]
    fn nothing_begins_before_the_first_rate_above_nothing() {
        assert_eq!(until(steps(&[(0.0, 1.5), (1.0, 1.0)]), 3 * S), [S * 3 / 2, S * 5 / 2]);
    }
}
