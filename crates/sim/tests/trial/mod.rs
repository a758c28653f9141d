//! The policy on trial, and what several trials ask of it.

use weir_accept::{Controls, Limit, Name, Refusal, Setting, SynFilter, TARGET_NS};
use weir_sim::{MILLI_NS, Scenario, Statistics};

/// The policy on trial.
pub(crate) const POLICY: Name = Name::Adaptive;

/// Windows over which goodput is looked at.
pub(crate) const WINDOW_NS: u64 = 100 * MILLI_NS;

/// The policy as it is when nothing is said.
pub(crate) fn setting() -> Setting {
    Setting {
        name: POLICY,
        limit: Limit::Auto,
        target_ns: TARGET_NS,
        controls: Controls::ALL,
        refusal: Refusal::default(),
        backlog: 4096,
        syn_filter: SynFilter::Tokens,
        eager: true,
    }
}

/// Good replies as a part of those that are possible at the scenario's first rate.
pub(crate) fn goodput_of_attainable(scenario: &Scenario, statistics: &Statistics) -> f64 {
    statistics.goodput() / scenario.attainable(requests_rate(scenario))
}

/// Requests a second at the scenario's first rate.
pub(crate) fn requests_rate(scenario: &Scenario) -> f64 {
    scenario.load[0].rate * scenario.sessions.requests_mean()
}

/// Collects what does not hold, so that a test tells all of it.
#[derive(Default)]
pub(crate) struct Faults(Vec<String>);

impl Faults {
    /// Something that must not be less than a bound.
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

    /// Something that must not be more than a bound.
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
