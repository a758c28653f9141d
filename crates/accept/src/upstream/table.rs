//! The policies by name, and the parameters of an admission.

use super::policy::InFlightPolicy;
use super::queue_policy::QueuePolicy;
use super::{Aimd, Auto, Codel, Dagor, Fixed, Fresh, Gradient, Vegas};
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
    /// Spelling of the policy for the queue; a row of [`QUEUE_TABLE`].
    pub queue_policy: &'static str,
    /// Delay target: maximum wait for a place, nanoseconds.
    pub target_ns: u64,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            policy: TABLE[0].spelling,
            limit: Limit::Auto,
            queue_policy: QUEUE_TABLE[0].spelling,
            target_ns: TARGET_NS,
        }
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

    /// Returns the policy for the queue of these parameters.
    #[must_use]
    pub fn queue_policy(&self) -> Box<dyn QueuePolicy> {
        let mut rows = QUEUE_TABLE.iter();
        let row = rows.find(|row| row.spelling == self.queue_policy).unwrap_or(&QUEUE_TABLE[0]);
        (row.make)(self.target_ns)
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
    Row {
        spelling: "vegas",
        summary: "by the ratio of the shortest response time to the present one",
        source: "Netflix concurrency-limits, VegasLimit",
        make: || Box::new(Vegas::new()),
    },
];

/// A row of the table of policies for the queue.
#[derive(Clone, Copy)]
pub struct QueueRow {
    /// Spelling in options.
    pub spelling: &'static str,
    /// Description, in a single line.
    pub summary: &'static str,
    /// Source of the algorithm.
    pub source: &'static str,
    /// Makes one, for a delay target in nanoseconds.
    pub make: fn(u64) -> Box<dyn QueuePolicy>,
}

/// All policies for the queue; the first is the default.
pub const QUEUE_TABLE: &[QueueRow] = &[
    QueueRow {
        spelling: "fresh",
        summary: "as many as are answered in time; the newest first once the oldest is late",
        source: "docs/proxy.md",
        make: |target_ns| Box::new(Fresh::new(target_ns)),
    },
    QueueRow {
        spelling: "codel",
        summary: "the newest first and none older than 5 ms, once the queue is 100 ms old",
        source: "Fail at Scale, ACM Queue 13(8)",
        make: |_| Box::new(Codel::new()),
    },
    QueueRow {
        spelling: "dagor",
        summary: "fewer users are admitted while requests wait for more than 20 ms on average",
        source: "Overload Control for Scaling WeChat Microservices, SoCC 2018",
        make: |_| Box::new(Dagor::new()),
    },
];
