//! Service times of `/.weir/work`: what an application does for a request, as far as a server in
//! front of it can see. Part of it is a wait, as for a database, and part is processor time.

use std::cell::Cell;
use std::f64::consts::TAU;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use super::burn::{burn, microseconds};

/// Law of a service time, as a multiple of its mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Law {
    Fixed,
    Exponential,
    /// Log-normal with a standard deviation of three means.
    HeavyTailed,
}

/// A service time, of which every part has the same law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    mean_us: u32,
    law: Law,
    /// Mean of the processor time in it.
    burn_us: u32,
}

impl Service {
    /// Parses a mean in microseconds, a law, and the processor time in the mean; `None` if one of
    /// them is malformed, or more is to be burnt than the mean.
    pub(super) fn parse(mean_us: &[u8], law: &[u8], burn_us: &[u8]) -> Option<Self> {
        let law = match law {
            b"fixed" => Law::Fixed,
            b"exponential" => Law::Exponential,
            b"heavy-tailed" => Law::HeavyTailed,
            _ => return None,
        };
        let (mean_us, burn_us) = (microseconds(mean_us)?, microseconds(burn_us)?);
        (burn_us <= mean_us).then_some(Self { mean_us, law, burn_us })
    }

    /// Waits and burns for a time that is drawn anew. The caller's thread does nothing else
    /// meanwhile, as that of an application does nothing else.
    pub(crate) fn perform(self) {
        let factor = self.law.draw(uniform);
        let wait_us = f64::from(self.mean_us - self.burn_us) * factor;
        if wait_us > 0.0 {
            thread::sleep(Duration::from_nanos((wait_us * 1e3) as u64));
        }
        burn((f64::from(self.burn_us) * factor) as u32);
    }
}

impl Law {
    /// Draws a multiple of the mean; `uniform` returns numbers between 0 and 1, both excluded.
    fn draw(self, mut uniform: impl FnMut() -> f64) -> f64 {
        match self {
            Self::Fixed => 1.0,
            Self::Exponential => -uniform().ln(),
            Self::HeavyTailed => {
                // Variance of the logarithm: ln(1 + 3²). Its mean makes the mean 1.
                let variance = 10.0_f64.ln();
                let normal = (-2.0 * uniform().ln()).sqrt() * (TAU * uniform()).cos();
                (variance.sqrt() * normal - variance / 2.0).exp()
            }
        }
    }
}

/// Returns a random number between 0 and 1, both excluded (SplitMix64; Steele, Lea, Flood 2014).
/// Each thread, and each process after a fork, has a sequence of its own.
fn uniform() -> f64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(seed());
    }
    let state = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((mixed ^ (mixed >> 31)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

fn seed() -> u64 {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
    since ^ (u64::from(std::process::id()) << 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_time_has_a_mean_a_law_and_a_burnt_part() {
        let parse = |mean: &str, law: &str, burn: &str| {
            Service::parse(mean.as_bytes(), law.as_bytes(), burn.as_bytes())
        };
        let service = Service { mean_us: 20_000, law: Law::Exponential, burn_us: 1_000 };
        assert_eq!(parse("20000", "exponential", "1000"), Some(service));
        assert!(parse("5", "fixed", "5").is_some() && parse("5", "heavy-tailed", "0").is_some());
        for (mean, law, burn) in
            [("5", "fixed", "6"), ("5", "Fixed", "1"), ("x", "fixed", "1"), ("5", "fixed", "")]
        {
            assert_eq!(parse(mean, law, burn), None, "{mean} {law} {burn}");
        }
    }

    #[test]
    fn every_law_has_the_mean_1() {
        let mean = |law: Law, draws: u32| {
            (0..draws).map(|_| law.draw(uniform)).sum::<f64>() / f64::from(draws)
        };
        assert_eq!(mean(Law::Fixed, 3), 1.0);
        assert!((mean(Law::Exponential, 1_000_000) - 1.0).abs() < 0.02);
        assert!((mean(Law::HeavyTailed, 10_000_000) - 1.0).abs() < 0.05);
    }

    #[test]
    fn the_extremes_of_a_draw_are_finite() {
        for law in [Law::Exponential, Law::HeavyTailed] {
            for end in [0.5 / (1_u64 << 53) as f64, 1.0 - f64::EPSILON / 2.0] {
                let drawn = law.draw(|| end);
                assert!(drawn.is_finite() && drawn >= 0.0, "{law:?} {end}: {drawn}");
            }
        }
    }
}
