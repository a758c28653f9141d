//! A limit that the operator has set: HAProxy's `maxconn`.

use super::policy::{Completion, InFlightPolicy};
use crate::Limit;

/// A fixed limit.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(usize);

impl Fixed {
    /// Creates the policy; `auto` counts as no limit.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self(match limit {
            Limit::Count(count) => usize::try_from(count).unwrap_or(usize::MAX).max(1),
            Limit::Inf | Limit::Auto => usize::MAX,
        })
    }
}

impl InFlightPolicy for Fixed {
    fn limit(&self) -> usize {
        self.0
    }

    fn completed(&mut self, _now_ns: u64, _completion: &Completion) {}
}
