//! Properties of a law, known before a run: validity, mean rate, and the same law at another rate.
//! Starts are not computed here.

use super::law::{ArrivalLaw, RateStep};
use super::units::seconds;
use super::varying::Varying;

/// The highest rate, arrivals per second: one each nanosecond.
pub const RATE_MAX: f64 = 1e9;

/// The longest time in a law, seconds; 31 years.
const TIME_S_MAX: f64 = 1e9;
/// The shortest time in a law, seconds.
const TIME_S_MIN: f64 = 1e-9;

impl ArrivalLaw {
    /// Checks that the law can be planned.
    ///
    /// # Errors
    ///
    /// A sentence about the first figure that is out of bounds. Rates are 0 to [`RATE_MAX`], and
    /// not all of them 0; times are a nanosecond to 31 years; a trace has at least one start, and
    /// ascends.
    pub fn check(&self) -> Result<(), String> {
        match self {
            ArrivalLaw::Constant { rate } | ArrivalLaw::Poisson { rate } => check_rates(&[*rate]),
            ArrivalLaw::Uniform { shortest_s, longest_s } => check_gaps(*shortest_s, *longest_s),
            ArrivalLaw::Steps(steps) => {
                steps.iter().try_for_each(|step| check_time("a step lasts", step.duration_s))?;
                check_rates(&steps.iter().map(|step| step.rate).collect::<Vec<_>>())
            }
            ArrivalLaw::Ramp { from, to } => check_rates(&[*from, *to]),
            ArrivalLaw::Sine { mean, amplitude, period_s } => {
                check_sine(*mean, *amplitude, *period_s)
            }
            ArrivalLaw::Trace(starts_ns) if starts_ns.is_empty() => {
                Err("a trace has a start".into())
            }
            ArrivalLaw::Trace(starts_ns) if !starts_ns.is_sorted() => {
                Err("a trace's starts ascend".into())
            }
            ArrivalLaw::Trace(_) => Ok(()),
        }
    }

    /// Returns the mean rate planned over `duration_ns`, arrivals per second. It is exact, except
    /// for random laws; for a trace it counts the starts.
    pub fn mean_rate(&self, duration_ns: u64) -> f64 {
        let duration_s = seconds(duration_ns);
        let arrivals = match self {
            ArrivalLaw::Constant { rate } | ArrivalLaw::Poisson { rate } => return *rate,
            ArrivalLaw::Uniform { shortest_s, longest_s } => return 2.0 / (shortest_s + longest_s),
            ArrivalLaw::Ramp { from, to } => return (from + to) / 2.0,
            ArrivalLaw::Steps(steps) => {
                step_times(steps, duration_s).map(|(rate, s)| rate * s).sum()
            }
            ArrivalLaw::Sine { mean, amplitude, period_s } => {
                Varying::sine(*mean, *amplitude, *period_s, duration_ns).total()
            }
            ArrivalLaw::Trace(starts_ns) => before(starts_ns, duration_ns).len() as f64,
        };
        if duration_ns == 0 { 0.0 } else { arrivals / duration_s }
    }

    /// Returns the same law at `factor` times the rate. The times of steps and periods stay the
    /// same; a trace is played faster, and so ends earlier. [`ArrivalLaw::check`] says whether the
    /// result can be planned.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        match self {
            ArrivalLaw::Constant { rate } => ArrivalLaw::Constant { rate: rate * factor },
            ArrivalLaw::Poisson { rate } => ArrivalLaw::Poisson { rate: rate * factor },
            ArrivalLaw::Uniform { shortest_s, longest_s } => {
                let (shortest_s, longest_s) = (shortest_s / factor, longest_s / factor);
                ArrivalLaw::Uniform { shortest_s, longest_s }
            }
            ArrivalLaw::Steps(steps) => {
                let scaled = |step: &RateStep| RateStep { rate: step.rate * factor, ..*step };
                ArrivalLaw::Steps(steps.iter().map(scaled).collect())
            }
            ArrivalLaw::Ramp { from, to } => {
                ArrivalLaw::Ramp { from: from * factor, to: to * factor }
            }
            &ArrivalLaw::Sine { mean, amplitude, period_s } => {
                ArrivalLaw::Sine { mean: mean * factor, amplitude: amplitude * factor, period_s }
            }
            ArrivalLaw::Trace(_) if factor.is_nan() || factor <= 0.0 => {
                ArrivalLaw::Trace([].into())
            }
            ArrivalLaw::Trace(starts_ns) => {
                let scaled = |start_ns: &u64| (*start_ns as f64 / factor).round() as u64;
                ArrivalLaw::Trace(starts_ns.iter().map(scaled).collect())
            }
        }
    }
}

/// Returns the rate of each step and its seconds within the duration, for the steps that begin
/// within it.
fn step_times(steps: &[RateStep], duration_s: f64) -> impl Iterator<Item = (f64, f64)> {
    let last = steps.len().saturating_sub(1);
    let share = move |left_s: &mut f64, (at, step): (usize, &RateStep)| {
        let step_s = if at == last { *left_s } else { step.duration_s.min(*left_s) };
        *left_s -= step_s;
        (step_s > 0.0).then_some((step.rate, step_s))
    };
    steps.iter().enumerate().scan(duration_s, share)
}

fn before(starts_ns: &[u64], end_ns: u64) -> &[u64] {
    starts_ns.split_at(starts_ns.partition_point(|start_ns| *start_ns < end_ns)).0
}

/// Checks that the rates are in bounds, and at least one of them above 0.
pub(super) fn check_rates(rates: &[f64]) -> Result<(), String> {
    if let Some(rate) = rates.iter().find(|rate| !(0.0..=RATE_MAX).contains(*rate)) {
        let rate = format_number(*rate);
        return Err(format!("a rate is 0 to {RATE_MAX} arrivals a second, not {rate}"));
    }
    if rates.iter().all(|rate| *rate == 0.0) {
        return Err("a rate above 0 is needed, or nothing ever arrives".into());
    }
    Ok(())
}

/// Formats a number as it was probably written: without hundreds of zeros.
pub(super) fn format_number(number: f64) -> String {
    if number.abs() < 1e15 { number.to_string() } else { format!("{number:e}") }
}

/// Checks that a time is in bounds; `what` begins the sentence of the error, as in "a step lasts".
pub(super) fn check_time(what: &str, time_s: f64) -> Result<(), String> {
    if (TIME_S_MIN..=TIME_S_MAX).contains(&time_s) {
        return Ok(());
    }
    Err(format!("{what} a nanosecond to {TIME_S_MAX} s, not {} s", format_number(time_s)))
}

fn check_gaps(shortest_s: f64, longest_s: f64) -> Result<(), String> {
    if !(shortest_s >= 0.0 && shortest_s <= longest_s) {
        return Err(format!(
            "the shortest time between arrivals is not below 0 and not above the longest, \
             unlike {} s and {} s",
            format_number(shortest_s),
            format_number(longest_s)
        ));
    }
    check_time("the longest time between arrivals is", longest_s)?;
    check_time("the mean time between arrivals is", (shortest_s + longest_s) / 2.0)
}

fn check_sine(mean: f64, amplitude: f64, period_s: f64) -> Result<(), String> {
    check_rates(&[mean])?;
    if !(0.0..=mean).contains(&amplitude) {
        let amplitude = format_number(amplitude);
        return Err(format!("the amplitude is 0 to the mean, {mean}/s, not {amplitude}/s"));
    }
    check_rates(&[mean + amplitude])?;
    check_time("the period is", period_s)
}

#[cfg(test)]
mod tests {
    use super::super::starts::Schedule;
    use super::*;

    const S: u64 = 1_000_000_000;

    fn steps(steps: &[(f64, f64)]) -> ArrivalLaw {
        let step = |&(rate, duration_s): &(f64, f64)| RateStep { rate, duration_s };
        ArrivalLaw::Steps(steps.iter().map(step).collect())
    }

    fn trace(starts_ms: &[u64]) -> ArrivalLaw {
        ArrivalLaw::Trace(starts_ms.iter().map(|start_ms| start_ms * 1_000_000).collect())
    }

    #[test]
    fn the_mean_is_that_of_the_duration() {
        let uniform = ArrivalLaw::Uniform { shortest_s: 0.01, longest_s: 0.03 };
        let sine = ArrivalLaw::Sine { mean: 100.0, amplitude: 50.0, period_s: 8.0 };
        let half_swing = 100.0 + 50.0 * 2.0 / std::f64::consts::PI;
        let table = [
            (ArrivalLaw::Constant { rate: 7.0 }, 3 * S, 7.0),
            (ArrivalLaw::Poisson { rate: 7.0 }, 3 * S, 7.0),
            (uniform, S, 50.0),
            (steps(&[(10.0, 1.0), (40.0, 1.0), (20.0, 1.0)]), S, 10.0),
            (steps(&[(10.0, 1.0), (40.0, 1.0), (20.0, 1.0)]), 4 * S, 22.5),
            (ArrivalLaw::Ramp { from: 30.0, to: 10.0 }, 9 * S, 20.0),
            (sine.clone(), 8 * S, 100.0),
            (sine.clone(), 4 * S, half_swing),
            (sine, 1, 100.0),
            (trace(&[0, 500, 900, 1400, 1500, 5000]), 2 * S, 2.5),
            (trace(&[0, 500, 900, 1400, 1500, 5000]), 6 * S, 1.0),
            (trace(&[0, 1200]), S * 3 / 2, 4.0 / 3.0),
        ];
        for (law, duration_ns, mean) in table {
            let found = law.mean_rate(duration_ns);
            assert!((found - mean).abs() < 1e-6, "{law}: {found}");
            assert_eq!(law.check(), Ok(()));
        }
    }

    #[test]
    fn the_same_law_at_twice_the_rate_has_twice_the_starts() {
        let table = [
            ArrivalLaw::Constant { rate: 500.0 },
            ArrivalLaw::Poisson { rate: 500.0 },
            ArrivalLaw::Uniform { shortest_s: 0.001, longest_s: 0.003 },
            steps(&[(500.0, 1.0), (0.0, 1.0), (100.0, 1.0)]),
            ArrivalLaw::Ramp { from: 30.0, to: 1000.0 },
            ArrivalLaw::Sine { mean: 500.0, amplitude: 50.0, period_s: 8.0 },
        ];
        for law in table {
            let (once, twice) = (Schedule::new(&law, 4 * S, 1), law.scaled(2.0));
            let twice = Schedule::new(&twice, 4 * S, 1).count();
            assert!(twice.abs_diff(2 * once.count()) <= 100, "{law}: {twice}");
            assert!((law.scaled(2.0).mean_rate(S) - 2.0 * law.mean_rate(S)).abs() < 1e-6);
        }
        assert_eq!(trace(&[0, 10, 30]).scaled(2.0), trace(&[0, 5, 15]));
    }

    #[test]
    fn a_factor_that_is_none_gives_a_law_that_is_refused() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let rate = ArrivalLaw::Poisson { rate: 5.0 }.scaled(factor);
            let gap = ArrivalLaw::Uniform { shortest_s: 0.1, longest_s: 0.2 }.scaled(factor);
            assert!(rate.check().is_err() && gap.check().is_err(), "{factor}");
        }
        assert!(trace(&[1]).scaled(0.0).check().is_err());
        assert!(trace(&[1]).scaled(f64::NAN).check().is_err());
    }

    #[test]
    fn figures_out_of_bounds_are_refused_with_the_figure() {
        let rate = |rate| ArrivalLaw::Constant { rate };
        let uniform = |shortest_s, longest_s| ArrivalLaw::Uniform { shortest_s, longest_s };
        let sine = |mean, amplitude, period_s| ArrivalLaw::Sine { mean, amplitude, period_s };
        let table = [
            (rate(f64::NAN), "not NaN"),
            (rate(f64::INFINITY), "not inf"),
            (rate(-1.0), "not -1"),
            (rate(1.5e9), "0 to 1000000000 arrivals a second, not 1500000000"),
            (rate(0.0), "nothing ever arrives"),
            (ArrivalLaw::Poisson { rate: 0.0 }, "nothing ever arrives"),
            (uniform(-0.1, 1.0), "unlike -0.1 s and 1 s"),
            (uniform(0.2, 0.1), "unlike 0.2 s and 0.1 s"),
            (uniform(0.0, f64::NAN), "unlike 0 s and NaN s"),
            (uniform(0.0, f64::INFINITY), "not inf s"),
            (uniform(0.0, 1e-9), "the mean time between arrivals"),
            (steps(&[]), "nothing ever arrives"),
            (steps(&[(0.0, 1.0)]), "nothing ever arrives"),
            (steps(&[(1.0, 0.0)]), "a step lasts a nanosecond to 1000000000 s, not 0 s"),
            (steps(&[(1.0, 1.0), (2.0, f64::NAN)]), "not NaN s"),
            (steps(&[(1.0, 1.0), (-2.0, 1.0)]), "not -2"),
            (ArrivalLaw::Ramp { from: 0.0, to: 0.0 }, "nothing ever arrives"),
            (ArrivalLaw::Ramp { from: 0.0, to: f64::NAN }, "not NaN"),
            (sine(0.0, 0.0, 1.0), "nothing ever arrives"),
            (sine(5.0, 6.0, 1.0), "0 to the mean, 5/s, not 6/s"),
            (sine(6e8, 6e8, 1.0), "not 1200000000"),
            (sine(5.0, 5.0, 0.0), "the period is a nanosecond to"),
            (trace(&[]), "a trace has a start"),
            (trace(&[2, 1]), "ascend"),
        ];
        for (law, sentence) in table {
            let refused = law.check().unwrap_err();
            assert!(refused.contains(sentence), "{law:?}: {refused}");
        }
    }
}
