//! Helpers shared by several test files. The policy under test is the default one.

use weir_sim::{MILLI_NS, Scenario, Statistics};

/// Length of the windows over which goodput is compared.
pub(crate) const WINDOW_NS: u64 = 100 * MILLI_NS;

/// Returns good replies as a share of those attainable at the scenario's first rate.
pub(crate) fn goodput_of_attainable(scenario: &Scenario, statistics: &Statistics) -> f64 {
    statistics.goodput() / scenario.attainable(requests_rate(scenario))
}

/// Returns the requests per second at the scenario's first rate.
pub(crate) fn requests_rate(scenario: &Scenario) -> f64 {
    scenario.load[0].rate * scenario.sessions.requests_mean()
}

/// A collection of failures, so that a test reports all of them.
#[derive(Default)]
pub(crate) struct Faults(Vec<String>);

impl Faults {
    /// Records a failure if a value is less than a bound.
    pub(crate) fn at_least(
        &mut self,
        bound: f64,
        is: f64,
        what: &str,
        place: &dyn std::fmt::Debug,
    ) {
        if is.is_nan() || is < bound {
            self.0.push(format!("{what} is {is:.3} and not {bound:.3} at least: {place:?}"));
        }
    }

    /// Records a failure if a value is more than a bound.
    pub(crate) fn at_most(&mut self, bound: f64, is: f64, what: &str, place: &dyn std::fmt::Debug) {
        if is.is_nan() || is > bound {
            self.0.push(format!("{what} is {is:.3} and not {bound:.3} at most: {place:?}"));
        }
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        let quiet = self.0.is_empty() || std::thread::panicking();
        assert!(quiet, "{} faults:\n{}", self.0.len(), self.0.join("\n"));
    }
}
