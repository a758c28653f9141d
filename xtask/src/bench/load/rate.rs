//! The highest rate at which a generator and a server keep up with each other.

use anyhow::{Context, Result};

use super::generator::{Generator, Job, Pace};
use super::run::{Measured, Notes};
use super::{Bench, Drive, search};
use crate::bench::peers::Server;

/// Where the search begins, a second.
const FIRST: f64 = 2_000.0;

/// How long a rate is tried, seconds.
const TRY_SECONDS: u32 = 2;

/// Replies of what was planned, below which a rate is not held.
pub(super) const HELD_SHARE_MIN: f64 = 0.97;

/// The highest rate of `job`, whatever its own, that `generator` and `server` hold.
pub(super) fn highest(
    bench: &Bench,
    server: &Server,
    generator: &Generator,
    job: &Job,
) -> Result<f64> {
    let place = bench.stage.place(server)?;
    let _running = place.start()?;
    let rate = search::highest(FIRST, |rate| {
        let job = Job { pace: Pace::Open(rate), ..job.clone() };
        let seconds = TRY_SECONDS.min(bench.setup.seconds);
        let (to, folder) = (place.address, place.path());
        let drive = Drive { generator, job: &job, to, seconds, folder };
        Ok(is_held(&drive.run(&mut Notes::default())?, rate))
    });
    let rate = rate.with_context(|| format!("the highest rate of {}", generator.name()))?;
    println!("{} holds {rate:.0} a second", generator.name());
    Ok(rate)
}

/// Whether the replies came at the rate, without errors, and the client kept its plan where it says
/// whether it did.
fn is_held(measured: &Measured, rate: f64) -> bool {
    measured.tally.errors == 0
        && measured.replies_per_s() >= rate * HELD_SHARE_MIN
        && measured.weir().is_none_or(|report| report.verdict.valid)
}

#[cfg(test)]
mod tests {
    use super::super::generator::Said;
    use super::super::generator::tests::report;
    use super::super::run::tests::measured;
    use super::*;

    #[test]
    fn a_rate_is_held_without_errors_and_without_delay() {
        assert!(is_held(&measured(975, 0), 1000.0));
        assert!(!is_held(&measured(965, 0), 1000.0));
        assert!(!is_held(&measured(1000, 1), 1000.0));
    }

    #[test]
    fn a_client_that_did_not_keep_its_plan_held_nothing() {
        let mut measured = measured(1000, 0);
        let mut report = report();
        measured.tally.said = Said::Weir(Box::new(report.clone()));
        assert!(is_held(&measured, 1000.0));
        report.verdict.valid = false;
        measured.tally.said = Said::Weir(Box::new(report));
        assert!(!is_held(&measured, 1000.0));
    }
}
