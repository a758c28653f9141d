//! Output of a policy: the limits of an accept-phase, and what becomes of the connections that it
//! does not accept.

/// Accepted connections that the server asks the kernel about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inspect {
    /// None: the cost to a server that is not overloaded.
    #[default]
    None,
    /// The first of the phase, which has waited longest.
    First,
    /// All.
    All,
}

/// Order in which waiting connections are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In order of arrival: each is served when it is accepted, or when it is ready.
    #[default]
    Oldest,
    /// Newest first: connections accepted in this phase are deferred. After the phase the newest of
    /// all deferred connections is served, and others as time permits, until they are stale. If a
    /// later phase with the other order leaves connections waiting, these are newer and come first.
    Newest,
}

/// Limits of an accept-phase, and the treatment of connections that are not accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decision {
    /// Maximum number of connections to accept for service.
    pub budget: u64,
    /// Time after which no accept begins, nanoseconds; the first is always allowed.
    pub until_ns: Option<u64>,
    /// Expected service time per connection, nanoseconds, 0 if unknown: a server that serves
    /// accepted connections after the phase counts it as spent.
    pub each_ns: u64,
    /// Duration after which a work-phase yields to the next accept-phase, nanoseconds; the rest of
    /// its work follows that phase. `None`: no limit.
    pub work_max_ns: Option<u64>,
    /// Number of connections, the oldest, to accept and refuse before those: what the kernel did
    /// not refuse. This may take half of the time until `until_ns`, and one connection is accepted
    /// for service even so.
    pub refuse: u64,
    /// Accepted connections to ask the kernel about.
    pub inspect: Inspect,
    /// Maximum wait, nanoseconds: connections looked at or deferred that have waited longer are
    /// refused.
    pub stale_ns: Option<u64>,
    /// True if connections looked at are closed without a read when their client has gone.
    pub drop_departed: bool,
    /// Order of service.
    pub order: Order,
    /// Share of each source while sources have to share: deferred connections of a source that has
    /// exceeded its share come last.
    pub order_share: Option<Share>,
    /// Maximum length of the accept queue; `None` is the operator's backlog.
    pub backlog: Option<u32>,
    /// Command to the SYN filter.
    pub syn: SynDecision,
    /// True if requests on open connections are looked at before they are served, like those of new
    /// ones.
    pub inspect_open: bool,
    /// True if replies close their connection.
    pub pressure: bool,
    /// Share of each source while sources have to share: replies to a source that exceeds its share
    /// close their connection.
    pub share: Option<Share>,
}

/// Share of a source on open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Time per request that can be served, nanoseconds.
    pub each_ns: u64,
    /// Weight of the competing sources ([`crate::Shares::weight`]).
    pub weight: u32,
}

/// Command to the SYN filter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SynDecision {
    /// Let every SYN through.
    #[default]
    Open,
    /// Let through as many SYNs as the accept queue has room for, so that no handshake ends in
    /// vain.
    Guard {
        /// Maximum length of the accept queue. With the backlog or more, the full queue would have
        /// dropped the others anyway.
        window: u32,
        /// Time between two connections admitted, nanoseconds; 0 if unknown.
        each_ns: u64,
    },
    /// Let a SYN through in exchange for a token.
    Tokens {
        /// Target length of the accept queue.
        window: u32,
        /// Maximum length of the accept queue while the loop, busy otherwise, has just slept
        /// ([`Decision::spare`]): as much as is served within the delay target, or more.
        spare_window: u32,
        /// Part of the window reserved for sources that have not used up their share.
        reserve: u32,
        /// Time between two connections that can be admitted, nanoseconds, which the sources share.
        share_ns: u64,
    },
    /// Drop this share of all SYNs at random.
    Random(f64),
}

impl SynDecision {
    /// Returns whether a filter that takes tokens is to be attached. One that `is_attached` stays
    /// while the policy [is alert](crate::Policy::is_alert): connections still wait then, and a
    /// filter that came back with the next overload would know of none in its handshake.
    pub fn wants_filter(self, is_attached: bool, is_alert: bool) -> bool {
        let takes_tokens = matches!(self, Self::Guard { .. } | Self::Tokens { .. });
        takes_tokens || is_attached && is_alert
    }
}

impl Decision {
    /// Returns a decision with an accept-limit and nothing else.
    pub fn accept(budget: u64) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Returns the decision without anything that refuses on account of load.
    #[must_use]
    pub fn open(self) -> Self {
        let syn = match self.syn {
            SynDecision::Guard { each_ns, .. } => SynDecision::Guard { window: u32::MAX, each_ns },
            _ => SynDecision::Open,
        };
        self.with_syn_only(syn)
    }

    /// Returns the decision of a loop that is busy otherwise and has just slept, or is about to:
    /// nothing that waits is refused, and SYNs pass while less than a target's work waits. In an
    /// overload a filter that were open for a whole target would let in what cannot be served for
    /// many.
    #[must_use]
    pub fn spare(self) -> Self {
        let syn = match self.syn {
            SynDecision::Tokens { spare_window, share_ns, .. } => {
                SynDecision::Guard { window: spare_window, each_ns: share_ns }
            }
            guard @ SynDecision::Guard { .. } => guard,
            _ => SynDecision::Open,
        };
        self.with_syn_only(syn)
    }

    /// Returns the decision in force while the loop sleeps. Only one that `is_woken` soon to count
    /// may leave the SYN filter anything but open: nobody else lets in more.
    #[must_use]
    pub fn resting(self, is_woken: bool) -> Self {
        let spare = self.spare();
        match spare.syn {
            SynDecision::Guard { window, .. } if is_woken && window < u32::MAX => spare,
            _ => spare.with_syn_only(SynDecision::Open),
        }
    }

    /// Returns the decision with this command to the SYN filter, and nothing else that refuses on
    /// account of load.
    fn with_syn_only(self, syn: SynDecision) -> Self {
        Self {
            refuse: 0,
            stale_ns: None,
            drop_departed: false,
            backlog: None,
            syn,
            inspect_open: false,
            pressure: false,
            share: None,
            ..self
        }
    }

    /// Returns whether the decision may refuse anything on account of load that a loop with a
    /// moment to spare ([`Decision::spare`]) does not.
    pub fn refuses(&self) -> bool {
        *self != self.spare()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_to_spare_bounds_syns_and_nothing_else() {
        let tokens = SynDecision::Tokens { window: 8, spare_window: 99, reserve: 4, share_ns: 7 };
        let guard = SynDecision::Guard { window: 99, each_ns: 7 };
        let strict = Decision {
            stale_ns: Some(1),
            drop_departed: true,
            backlog: Some(3),
            syn: tokens,
            pressure: true,
            ..Decision::accept(1)
        };
        assert_eq!(strict.spare(), Decision { syn: guard, ..Decision::accept(1) });
        assert!(strict.refuses() && !strict.spare().refuses());
        assert_eq!(strict.open(), Decision::accept(1));
        let random = Decision { syn: SynDecision::Random(0.5), ..Decision::accept(1) };
        assert_eq!(random.spare(), Decision::accept(1));
    }

    #[test]
    fn a_filter_comes_with_a_decision_that_takes_tokens_and_stays_while_the_policy_is_alert() {
        let guard = SynDecision::Guard { window: 9, each_ns: 7 };
        let tokens = SynDecision::Tokens { window: 8, spare_window: 99, reserve: 4, share_ns: 7 };
        assert!(guard.wants_filter(false, false) && tokens.wants_filter(false, false));
        for syn in [SynDecision::Open, SynDecision::Random(0.5)] {
            assert!(syn.wants_filter(true, true));
            assert!(!syn.wants_filter(true, false) && !syn.wants_filter(false, true));
        }
    }

    #[test]
    fn a_sleeping_loop_lets_every_syn_through_unless_it_wakes_to_count() {
        let syn = SynDecision::Tokens { window: 8, spare_window: 99, reserve: 4, share_ns: 7 };
        let decision = Decision { syn, ..Decision::accept(1) };
        assert_eq!(decision.resting(true), decision.spare());
        assert_eq!(decision.resting(false), Decision::accept(1));
        let whole = SynDecision::Guard { window: u32::MAX, each_ns: 7 };
        let guarded = Decision { syn: whole, ..Decision::accept(1) };
        assert_eq!(guarded.resting(true), Decision::accept(1));
    }
}
