//! Service times of `/.weir/work`: what an application does for a request, as far as a server in
//! front of it can see. Part of it is a wait, as for a database, and part is processor time.

use std::f64::consts::SQRT_2;
use std::thread;
use std::time::Duration;

use super::burn::{burn, microseconds, number};
use super::chance::uniform;

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
    /// Seed of the times; without one, each is drawn anew.
    seed: Option<u64>,
    /// Mean of the processor time in it.
    burn_us: u32,
}

impl Service {
    /// Parses a mean in microseconds, a law with its seed or without, and the processor time in the
    /// mean; `None` if one of them is malformed, or more is to be burnt than the mean.
    pub(super) fn parse(mean_us: &[u8], law: &[u8], burn_us: &[u8]) -> Option<Self> {
        let (law, seed) = match law.iter().position(|&byte| byte == b':') {
            Some(colon) => (&law[..colon], Some(number(&law[colon + 1..])?)),
            None => (law, None),
        };
        let law = match law {
            b"fixed" => Law::Fixed,
            b"exponential" => Law::Exponential,
            b"heavy-tailed" => Law::HeavyTailed,
            _ => return None,
        };
        let (mean_us, burn_us) = (microseconds(mean_us)?, microseconds(burn_us)?);
        (burn_us <= mean_us).then_some(Self { mean_us, law, seed, burn_us })
    }

    /// Waits and burns for a time of the law, the next one of the thread if there is a seed. The
    /// caller's thread does nothing else meanwhile, as that of an application does nothing else.
    pub(crate) fn perform(self) {
        let factor = self.law.quantile(uniform(self.seed));
        let wait_us = f64::from(self.mean_us - self.burn_us) * factor;
        if wait_us > 0.0 {
            thread::sleep(Duration::from_nanos((wait_us * 1e3) as u64));
        }
        burn((f64::from(self.burn_us) * factor) as u32);
    }
}

impl Law {
    /// Returns the multiple of the mean that a share of all, between 0 and 1, does not exceed.
    fn quantile(self, share: f64) -> f64 {
        match self {
            Self::Fixed => 1.0,
            Self::Exponential => -(-share).ln_1p(),
            Self::HeavyTailed => {
                // Variance of the logarithm: ln(1 + 3²). Its mean makes the mean 1.
                let variance = 10.0_f64.ln();
                (variance.sqrt() * normal_quantile(share) - variance / 2.0).exp()
            }
        }
    }
}

/// Returns the number of standard deviations that a share of a normal distribution does not exceed:
/// where its distribution function has the value `share`, by bisection to 2^-48.
fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-9.0, 9.0);
    for _ in 0..52 {
        let middle = f64::midpoint(low, high);
        if libm::erfc(-middle / SQRT_2) / 2.0 < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_time_has_a_mean_a_law_and_a_burnt_part() {
        let parse = |mean: &str, law: &str, burn: &str| {
            Service::parse(mean.as_bytes(), law.as_bytes(), burn.as_bytes())
        };
        let service =
            Service { mean_us: 20_000, law: Law::Exponential, seed: None, burn_us: 1_000 };
        assert_eq!(parse("20000", "exponential", "1000"), Some(service));
        let seeded = Service { seed: Some(18_446_744_073_709_551_615), ..service };
        let law = "exponential:18446744073709551615";
        assert_eq!(parse("20000", law, "1000"), Some(seeded));
        for law in ["exponential:", "exponential:-1", "exponential:+1", "exponential:1:2", ":1"] {
            assert_eq!(parse("5", law, "5"), None, "{law}");
        }
        assert_eq!(parse("5", "fixed:18446744073709551616", "5"), None);
        assert!(parse("5", "fixed", "5").is_some() && parse("5", "heavy-tailed", "0").is_some());
        for (mean, law, burn) in
            [("5", "fixed", "6"), ("5", "Fixed", "1"), ("x", "fixed", "1"), ("5", "fixed", "")]
        {
            assert_eq!(parse(mean, law, burn), None, "{mean} {law} {burn}");
        }
    }

    #[test]
    fn every_law_has_the_mean_1() {
        for law in [Law::Fixed, Law::Exponential, Law::HeavyTailed] {
            let middles = (0..200_000).map(|part| (f64::from(part) + 0.5) / 2e5);
            let mean = middles.map(|share| law.quantile(share)).sum::<f64>() / 2e5;
            assert!((mean - 1.0).abs() < 3e-3, "{law:?}: {mean}");
        }
    }

    #[test]
    fn the_normal_distribution_has_its_quantiles() {
        // Abramowitz and Stegun, table 26.1.
        for (share, expected) in [(0.5, 0.0), (0.841_344_746, 1.0), (0.977_249_868, 2.0)] {
            assert!((normal_quantile(share) - expected).abs() < 1e-6);
            assert!((normal_quantile(1.0 - share) + expected).abs() < 1e-6);
        }
    }

    #[test]
    fn the_extremes_of_a_law_are_finite() {
        for law in [Law::Exponential, Law::HeavyTailed] {
            for end in [0.5 / (1_u64 << 53) as f64, 1.0 - f64::EPSILON / 2.0] {
                let drawn = law.quantile(end);
                assert!(drawn.is_finite() && drawn >= 0.0, "{law:?} {end}: {drawn}");
            }
        }
    }
}
