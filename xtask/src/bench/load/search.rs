//! The highest rate that something holds. Knows neither who holds it nor what holding is.

use anyhow::{Result, ensure};

/// How far each step up goes.
const GROWTH: f64 = 1.5;

/// How near the highest rate held comes to the lowest that was not.
const NEAR: f64 = 1.05;

/// A rate that nothing here holds.
const RATE_MAX: f64 = 10e6;

/// The highest rate, from `first` on, for which `holds` says yes: up in steps to one that fails,
/// then between the two until they are near each other. A rate has failed when it fails twice.
pub(super) fn highest(first: f64, mut holds: impl FnMut(f64) -> Result<bool>) -> Result<f64> {
    let mut twice = |rate: f64| Ok::<_, anyhow::Error>(holds(rate)? || holds(rate)?);
    let (mut held, mut failed) = (0.0, first);
    while twice(failed)? {
        ensure!(failed < RATE_MAX, "{failed} a second are held, which cannot be");
        (held, failed) = (failed, (failed * GROWTH).round());
    }
    ensure!(held > 0.0, "not even {first} a second are held");
    while failed / held > NEAR {
        let between = (held * failed).sqrt().round();
        if twice(between)? {
            held = between;
        } else {
            failed = between;
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    #[test]
    fn the_highest_rate_is_found() {
        for limit in [2_000.0, 2_999.0, 17_345.0, 90_000.0] {
            let found = highest(2_000.0, |rate| Ok(rate <= limit)).unwrap();
            assert!(found <= limit && found >= limit / NEAR - 1.0, "{limit}: {found}");
        }
    }

    #[test]
    fn one_failure_is_not_enough() {
        let mut calls = 0;
        let every_other = |rate| {
            calls += 1;
            Ok(rate < 10_000.0 && calls % 2 == 0)
        };
        assert!(highest(2_000.0, every_other).unwrap() > 9_000.0);
    }

    #[test]
    fn without_a_rate_that_holds_there_is_none() {
        assert!(highest(2_000.0, |_| Ok(false)).is_err());
        assert!(highest(2_000.0, |_| Ok(true)).is_err());
        assert!(highest(2_000.0, |_| bail!("no")).is_err());
    }
}
