//! Continuously varying rates: start `i` is where the integral of the rate reaches `i`. There is no
//! randomness, no state but `i`, and no step that could be too coarse.

use std::f64::consts::PI;

use super::units::{NS_PER_S, seconds, whole_ns};

/// Accuracy of the sine's solution, seconds.
const ERROR_S: f64 = 1e-11;
/// Largest number of iterations: enough halvings for any double. From the previous start, two or
/// three suffice.
const ROUNDS_MAX: u32 = 64;

#[derive(Clone, Debug)]
pub(super) struct Varying {
    shape: Shape,
    /// Integral of the rate over the duration.
    total: f64,
    number: u64,
}

#[derive(Clone, Debug)]
enum Shape {
    Ramp(Ramp),
    Sine(Sine),
}

impl Varying {
    pub(super) fn ramp(from: f64, to: f64, duration_ns: u64) -> Self {
        let ramp = Ramp { from, to, duration_s: seconds(duration_ns) };
        Self { total: ramp.total(), shape: Shape::Ramp(ramp), number: 0 }
    }

    pub(super) fn sine(mean: f64, amplitude: f64, period_s: f64, duration_ns: u64) -> Self {
        let sine = Sine { mean, depth: amplitude / mean, period_s, last_phase: 0.0 };
        Self { total: sine.integral(seconds(duration_ns)), shape: Shape::Sine(sine), number: 0 }
    }

    /// Returns the integral of the rate over the duration: the number of arrivals before rounding.
    pub(super) fn total(&self) -> f64 {
        self.total
    }

    pub(super) fn next(&mut self) -> Option<u64> {
        // Where the rate ends at 0, a last bit too many in the total would be one start too many,
        // far from where the others end.
        let number = self.number as f64;
        if number >= self.total * (1.0 - 8.0 * f64::EPSILON) {
            return None;
        }
        self.number += 1;
        let start_s = match &mut self.shape {
            _ if number == 0.0 => 0.0,
            Shape::Ramp(ramp) => ramp.when_s(number),
            Shape::Sine(sine) => sine.when_s(number),
        };
        Some(whole_ns(start_s * NS_PER_S))
    }
}

#[derive(Clone, Debug)]
struct Ramp {
    from: f64,
    to: f64,
    duration_s: f64,
}

impl Ramp {
    fn total(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.duration_s
    }

    /// Returns the root of `from u + (to - from) u^2 / 2 = number / duration`, where `u` is the
    /// share of the duration, in a form without cancellation; the result is in seconds.
    fn when_s(&self, number: f64) -> f64 {
        let mean = number / self.duration_s;
        let rate_squared = self.from * self.from + 2.0 * (self.to - self.from) * mean;
        let rate = rate_squared.max(0.0).sqrt();
        2.0 * mean / (self.from + rate) * self.duration_s
    }
}

#[derive(Clone, Debug)]
struct Sine {
    mean: f64,
    /// Amplitude as a share of the mean.
    depth: f64,
    period_s: f64,
    /// Phase of the previous start, which is close to the next one.
    last_phase: f64,
}

impl Sine {
    fn integral(&self, time_s: f64) -> f64 {
        let lead = self.lead((time_s / self.period_s).fract());
        self.mean * (time_s + self.period_s * lead)
    }

    /// Returns the lead of the integral over that of the mean, in shares of a period's arrivals:
    /// the integral of `depth sin(2 pi x)` from 0 to `phase`.
    fn lead(&self, phase: f64) -> f64 {
        self.depth / PI * (PI * phase).sin().powi(2)
    }

    fn when_s(&mut self, number: f64) -> f64 {
        let periods = number / (self.mean * self.period_s);
        self.last_phase = self.phase(periods.fract());
        (periods.floor() + self.last_phase) * self.period_s
    }

    /// Solves `phase + lead(phase) = share` by Newton's method, within a shrinking bracket: the
    /// integral is never behind that of the mean, and at most `depth / pi` ahead.
    fn phase(&self, share: f64) -> f64 {
        let (mut low, mut high) = ((share - self.depth / PI).max(0.0), share);
        let error = (ERROR_S / self.period_s).max(f64::EPSILON);
        let mut phase = self.last_phase.max(low).min(high);
        for _ in 0..ROUNDS_MAX {
            let (sin, cos) = (PI * phase).sin_cos();
            let excess = phase + self.depth / PI * sin * sin - share;
            *(if excess > 0.0 { &mut high } else { &mut low }) = phase;
            let newton = phase - excess / (1.0 + 2.0 * self.depth * sin * cos);
            let next = if (low..=high).contains(&newton) { newton } else { (low + high) / 2.0 };
            if (next - phase).abs() <= error {
                return next;
            }
            phase = next;
        }
        phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn all(mut law: Varying) -> Vec<u64> {
        std::iter::from_fn(|| law.next()).collect()
    }

    /// Asserts that every start's number is the integral at its time, to the nanosecond.
    fn assert_on_the_integral(starts: &[u64], rate_max: f64, integral: impl Fn(f64) -> f64) {
        for (number, start_ns) in starts.iter().enumerate() {
            let off = integral(seconds(*start_ns)) - number as f64;
            assert!(off.abs() <= rate_max * 1e-9, "{number} at {start_ns}: off by {off}");
        }
    }

    #[test]
    fn a_ramps_starts_are_where_its_integral_says() {
        for (from, to) in [(0.0, 1000.0), (1000.0, 0.0), (10.0, 500.0), (500.0, 10.0), (7.0, 7.0)] {
            let starts = all(Varying::ramp(from, to, 10 * S));
            assert_eq!(starts.len(), ((from + to) * 5.0) as usize, "{from}-{to}");
            assert!(starts.is_sorted() && starts.iter().all(|start| *start < 10 * S));
            let integral = |t: f64| from * t + (to - from) * t * t / 20.0;
            assert_on_the_integral(&starts, from.max(to), integral);
        }
    }

    #[test]
    fn a_ramp_that_begins_at_nothing_begins_at_once() {
        let starts = all(Varying::ramp(0.0, 8.0, S));
        assert_eq!(starts, [0, S / 2, 707_106_781, 866_025_404]);
    }

    #[test]
    fn a_sines_starts_are_where_its_integral_says() {
        for (mean, amplitude, period) in [(100.0, 50.0, 10.0), (500.0, 500.0, 7.0), (9.0, 0.0, 1.0)]
        {
            let duration_s = 4.25 * period;
            let starts = all(Varying::sine(mean, amplitude, period, (duration_s * 1e9) as u64));
            let integral = |t: f64| {
                let swing = 1.0 - (2.0 * PI * t / period).cos();
                mean * t + amplitude * period / (2.0 * PI) * swing
            };
            assert_eq!(starts.len(), integral(duration_s).ceil() as usize, "{mean}");
            assert!(starts.is_sorted());
            assert_on_the_integral(&starts, mean + amplitude, integral);
        }
    }

    #[test]
    fn whole_swings_have_the_means_count() {
        for (mean, amplitude) in [(100.0, 50.0), (100.0, 100.0), (333.3, 1.0)] {
            let starts = all(Varying::sine(mean, amplitude, 0.1, 60 * S));
            assert_eq!(starts.len(), (mean * 60.0).round() as usize, "{mean} {amplitude}");
        }
    }

    #[test]
    fn a_sine_does_not_drift_in_a_day() {
        let mut law = Varying::sine(1000.0, 999.0, 10.0, 2 * 86_400 * S);
        law.number = 86_400 * 1000;
        assert_eq!(law.next(), Some(86_400 * S));
    }
}
