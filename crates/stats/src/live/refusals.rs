//! The reasons for which connections and requests are refused on account of load.

use crate::Counters;

/// Thing that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A new connection, or the SYN that asks for it.
    Connection,
    /// A request on an open connection.
    Request,
    /// A request for an upstream, or the SYN of a connection for one.
    Forwarded,
}

/// A reason for refusing.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// Name of the counter.
    pub counter: &'static str,
    /// Reason, as the label of a metric has it.
    pub reason: &'static str,
    /// Reason in words.
    pub words: &'static str,
    /// Thing that is refused.
    pub what: Refused,
}

/// The reasons. A request or connection is counted by one of these at most, but for SYNs: a client
/// repeats one that was dropped, so that it may be counted several times, and its connection be
/// accepted or refused in the end.
pub const REFUSALS: [Refusal; 9] = [
    Refusal {
        counter: "syn_dropped",
        reason: "syn_filter",
        words: "SYN dropped",
        what: Refused::Connection,
    },
    Refusal {
        counter: "refused_excess",
        reason: "queue_too_long",
        words: "accept queue too long",
        what: Refused::Connection,
    },
    Refusal {
        counter: "refused_stale",
        reason: "waited_too_long",
        words: "waited too long",
        what: Refused::Connection,
    },
    Refusal {
        counter: "refused_unfair",
        reason: "share_used_up",
        words: "source's share used up",
        what: Refused::Request,
    },
    Refusal {
        counter: "upstream_excess",
        reason: "upstream_queue_too_long",
        words: "upstream's queue too long",
        what: Refused::Forwarded,
    },
    Refusal {
        counter: "upstream_stale",
        reason: "upstream_waited_too_long",
        words: "waited too long for upstream",
        what: Refused::Forwarded,
    },
    Refusal {
        counter: "upstream_syn_dropped",
        reason: "upstream_syn_filter",
        words: "SYN dropped for upstream",
        what: Refused::Forwarded,
    },
    Refusal {
        counter: "refused_memory",
        reason: "memory",
        words: "memory budget used up",
        what: Refused::Connection,
    },
    Refusal {
        counter: "refused_memory_requests",
        reason: "memory_request",
        words: "memory used up, open connection",
        what: Refused::Request,
    },
];

/// Returns the counts of the refusals, in their order.
pub(super) fn counts(counters: &Counters) -> [u64; REFUSALS.len()] {
    [
        counters.syn_dropped.get(),
        counters.refused_excess.get(),
        counters.refused_stale.get(),
        counters.refused_unfair.get(),
        counters.upstream_excess.get(),
        counters.upstream_stale.get(),
        counters.upstream_syn_dropped.get(),
        counters.refused_memory.get(),
        counters.refused_memory_requests.get(),
    ]
}
