//! The policies by name, and the parameters of an admission.

use super::policy::InFlightPolicy;
use super::{Aimd, Auto, Fixed, Gradient};
use crate::Limit;

/// Default delay target of a request that waits for a place, nanoseconds.
const TARGET_NS: u64 = 100_000_000;

/// Parameters of the admission to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Spelling of the policy; a row of [`TABLE`].
    pub policy: &'static str,
    /// Maximum number of requests in flight, for the policy that has a fixed one.
    pub limit: Limit,
    /// Delay target: maximum wait for a place, nanoseconds.
    pub target_ns: u64,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self { policy: TABLE[0].spelling, limit: Limit::Auto, target_ns: TARGET_NS }
    }
}

impl UpstreamConfig {
    /// Returns the policy of these parameters.
    #[must_use]
    pub fn policy(&self) -> Box<dyn InFlightPolicy> {
        if self.limit != Limit::Auto {
            return Box::new(Fixed::new(self.limit));
        }
        let row = TABLE.iter().find(|row| row.spelling == self.policy).unwrap_or(&TABLE[0]);
        (row.make)()
    }
}

/// A row of the table of policies.
#[derive(Clone, Copy)]
pub struct Row {
    /// Spelling in options.
    pub spelling: &'static str,
    /// Description, in a single line.
    pub summary: &'static str,
    /// Source of the algorithm.
    pub source: &'static str,
    /// Makes one.
    pub make: fn() -> Box<dyn InFlightPolicy>,
}

/// All policies with a limit that adapts; the first is the default.
pub const TABLE: &[Row] = &[
    Row {
        spelling: "auto",
        summary: "the smallest limit at which no more is completed by one more in flight",
        source: "docs/proxy.md",
        make: || Box::new(Auto::new()),
    },
    Row {
        spelling: "aimd",
        summary: "one more while requests are answered in time, a tenth less when one is not",
        source: "Netflix concurrency-limits, AIMDLimit",
        make: || Box::new(Aimd::new()),
    },
    Row {
        spelling: "gradient",
        summary: "by the ratio of the long-term response time to the present one",
        source: "Netflix concurrency-limits, Gradient2Limit",
        make: || Box::new(Gradient::new()),
    },
];
