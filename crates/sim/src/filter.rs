//! The SYN filter of a listening socket: a model of the server's filter program, with the server's
//! own accounting.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_accept::{BURST, Handshakes, Shares, Source, SynDecision, Syns};

/// A SYN filter, attached or not.
#[derive(Debug)]
pub(crate) struct Filter {
    decision: SynDecision,
    /// Maximum length of the accept queue.
    backlog_max: u32,
    in_place: bool,
    syns: Syns,
    handshakes: Handshakes,
    shares: Shares,
}

impl Filter {
    pub(crate) fn new(backlog_max: u32) -> Self {
        Self {
            decision: SynDecision::Open,
            backlog_max,
            in_place: false,
            syns: Syns::default(),
            handshakes: Handshakes::begin(0, 0),
            shares: Shares::new(BURST),
        }
    }

    /// Applies a decision, at the current length of the accept queue; returns whether that takes a
    /// system call. While the policy `is_alert`, a token filter stays attached even if the decision
    /// is to let everything through.
    pub(crate) fn set(
        &mut self,
        now_ns: u64,
        decision: SynDecision,
        queue: u32,
        is_alert: bool,
    ) -> bool {
        let was = std::mem::replace(&mut self.decision, decision);
        let wanted = decision.wants_filter(self.in_place, is_alert);
        if wanted && !self.in_place {
            self.handshakes = Handshakes::begin(now_ns, queue);
            self.syns = Syns::default();
        }
        let changed = std::mem::replace(&mut self.in_place, wanted) != wanted;
        let random = |decision| matches!(decision, SynDecision::Random(_));
        changed || was != decision && (random(was) || random(decision))
    }

    /// Records an accepted connection.
    pub(crate) fn accepted(&mut self) {
        self.handshakes.accepted(1);
    }

    /// Records the round trip time of a handshake.
    pub(crate) fn rtt(&mut self, rtt_ns: u64) {
        self.handshakes.rtt(rtt_ns);
    }

    /// Records the length of the accept queue, if it is known.
    pub(crate) fn see(&mut self, now_ns: u64, queue: Option<u32>) {
        self.handshakes.see(now_ns, self.syns.passed, queue);
    }

    /// Returns the SYN counts, while the filter is attached.
    pub(crate) fn syns(&self) -> Option<Syns> {
        let counted = Syns { weight: self.shares.weight(), ..self.syns };
        let need_tokens = matches!(self.decision, SynDecision::Tokens { .. });
        self.in_place.then(|| self.handshakes.syns(counted, need_tokens))
    }

    /// Returns the decision in force.
    pub(crate) fn decision(&self) -> SynDecision {
        self.decision
    }

    /// Counts a SYN and returns whether it is dropped.
    pub(crate) fn drops(
        &mut self,
        now_ns: u64,
        source: Source,
        filter_rng: &mut Xoshiro256PlusPlus,
    ) -> bool {
        let (limit, claim) = match self.decision {
            SynDecision::Random(share) => return filter_rng.random::<f64>() < share,
            SynDecision::Open => (u64::MAX, None),
            SynDecision::Guard { window, each_ns } => {
                (self.handshakes.limit(window.min(self.backlog_max), each_ns), None)
            }
            SynDecision::Tokens { window, reserve, share_ns, .. } => {
                let claim = self.shares.claim(now_ns, source, share_ns, 0);
                let limit = self.handshakes.limit(window, share_ns);
                let kept = if claim.is_fair { 0 } else { u64::from(reserve) };
                (limit.saturating_sub(kept), Some(claim))
            }
        };
        let dropped = self.syns.passed >= limit;
        self.syns.passed += u64::from(!dropped);
        self.syns.dropped += u64::from(dropped);
        if let Some(claim) = claim.filter(|_| !dropped) {
            self.shares.grant(claim);
        }
        dropped
    }
}
