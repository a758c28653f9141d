//! SYNs of the clients of a backend: which pass by [`Shedding`], and when those that do not come
//! again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_accept::upstream::{FilteredSyns, Load, Shedding, SynLimits};

use super::config::{Backend, Retransmission};
use crate::time::SECOND_NS;

/// A SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Syn {
    /// Time at which its client sends it, nanoseconds.
    sent_ns: u64,
    /// Time at which its client sent it first, nanoseconds.
    pub first_ns: u64,
}

impl Syn {
    /// Creates the first of a client.
    pub(super) fn first(now_ns: u64) -> Self {
        Self { sent_ns: now_ns, first_ns: now_ns }
    }

    /// Returns the next of the client: after a second, and then after twice as long each time.
    fn again(self) -> Self {
        let waited_ns = self.sent_ns - self.first_ns;
        Self { sent_ns: self.first_ns + 2 * waited_ns + SECOND_NS, ..self }
    }
}

/// SYNs so far, and those that will come again.
pub(super) struct Syns {
    shedding: Shedding,
    retransmission: Option<Retransmission>,
    counts: FilteredSyns,
    /// Numbers that may pass; `None`: all may.
    limits: Option<SynLimits>,
    again: BinaryHeap<Reverse<Syn>>,
}

impl Syns {
    pub(super) fn new(backend: &Backend) -> Self {
        Self {
            shedding: Shedding::new(1, 1),
            retransmission: backend.retransmission,
            counts: FilteredSyns::default(),
            limits: None,
            again: BinaryHeap::new(),
        }
    }

    /// Sets how many may pass.
    pub(super) fn limit(&mut self, now_ns: u64, load: &Load) {
        self.limits = self.shedding.limits(now_ns, load, self.counts);
    }

    /// Returns whether one passes by the limit of those that come again.
    pub(super) fn is_behind(&self, syn: Syn) -> bool {
        syn.sent_ns > syn.first_ns && self.retransmission == Some(Retransmission::Behind)
    }

    /// Returns whether one passes.
    pub(super) fn admits(&mut self, syn: Syn) -> bool {
        let is_behind = self.is_behind(syn);
        let limit = |limits: SynLimits| if is_behind { limits.retransmitted } else { limits.first };
        if self.limits.is_none_or(|limits| self.counts.passed < limit(limits)) {
            self.counts.passed += 1;
            return true;
        }
        self.counts.dropped += u64::from(!is_behind);
        if self.retransmission.is_some() {
            self.again.push(Reverse(syn.again()));
        }
        false
    }

    /// Returns when the next comes that was dropped before.
    pub(super) fn next_again_ns(&self) -> u64 {
        self.again.peek().map_or(u64::MAX, |Reverse(syn)| syn.sent_ns)
    }

    /// Takes it, if its client has not left by then.
    pub(super) fn next_again(&mut self, patience_ns: u64) -> Option<Syn> {
        let Reverse(syn) = self.again.pop()?;
        (syn.sent_ns - syn.first_ns < patience_ns).then_some(syn)
    }
}
