//! The SYN filter of one listening socket: attaches it when the policy wants one, or an upstream
//! has more than it can do, sets how many SYNs may pass, and detaches it. Decides nothing itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use weir_accept::upstream::{FilteredSyns, Load, Shedding, SynLimits};
use weir_accept::{
    ADDRESSES_COUNTED_MAX, BURST, EPOCH_BITS, Handshakes, SynDecision, SynFilter as Kind, Syns,
};
use weir_stats::Counters;
use weir_sys::socket;
use weir_sys::syn_filter::tokens::{Counts, Rules, TokenFilter, Tokens};
use weir_sys::{privileged, syn_filter};

use crate::config::Config;

/// Rules of the shares, as defined by the policies.
const RULES: Rules = Rules {
    burst: BURST as u32,
    addresses_counted_max: ADDRESSES_COUNTED_MAX,
    epoch_bits: EPOCH_BITS,
    dropped_max: 0,
};

/// Number of SYNs dropped on account of an upstream that all loops together remember, and minimum
/// of each: a flood of some 30,000 a second, up to the time at which its clients try again.
const DROPPED_MAX: usize = 32_768;
const DROPPED_MAX_LEAST: usize = 1024;

/// Returns the rules of the filters that take tokens.
pub(crate) fn rules(config: &Config) -> Rules {
    let each = (DROPPED_MAX / config.workers.max(1)).max(DROPPED_MAX_LEAST);
    let dropped_max = if config.sole_upstream().is_some() { each as u32 } else { 0 };
    Rules { dropped_max, ..RULES }
}

/// Makes a filter that takes tokens. It was available at the start; if it fails now, no SYN is
/// dropped.
pub(super) fn token_filter(rules: Rules) -> Option<TokenFilter> {
    privileged::token_filter(rules).ok()
}

/// SYN filter of a listening socket, attached or not.
pub(crate) struct SynFilter {
    decision: SynDecision,
    /// Maximum length of the accept queue.
    backlog_max: u32,
    /// The filter that takes tokens, if available.
    tokens: Option<TokenFilter>,
    /// State of the filter while it is attached: its counts when it was attached, and the
    /// handshakes let in since.
    attached: Option<Attached>,
    /// Drops on account of an upstream.
    shed: Shed,
}

/// Drops of SYNs because all that a listener serves waits for an upstream.
#[derive(Clone, Copy, Debug, Default)]
struct Shed {
    /// True while the filter stays attached for that.
    is_active: bool,
    /// SYNs that may pass in total since the filter was made; `None`: all may.
    limits: Option<SynLimits>,
    /// True if they are lower than the policy's.
    binds: bool,
    /// SYNs dropped while it was, and all that had been dropped at the last look.
    dropped: u64,
    seen: u64,
}

struct Attached {
    before: Counts,
    /// SYNs that an upstream had made it drop by then.
    shed_before: u64,
    handshakes: Handshakes,
}

/// A limit that no count of SYNs comes to, and yet one: without any, the filter looks at none.
const UNLIMITED: u64 = u64::MAX - 1;

impl Shed {
    /// Returns how many SYNs its limit has dropped by now, if so many were dropped in all.
    fn dropped_by(&self, all: u64) -> u64 {
        self.dropped + if self.binds { all.saturating_sub(self.seen) } else { 0 }
    }

    /// Records the SYNs dropped so far. To be called before another limit is the lower one.
    fn note_dropped(&mut self, all: u64) {
        self.dropped = self.dropped_by(all);
        self.seen = all;
    }

    /// Returns what applies, if the policy admits by `policy`, or admits all.
    fn lower(&mut self, policy: Option<Tokens>) -> Option<Tokens> {
        let shares = policy.unwrap_or_default();
        let own = self.limits.map(|SynLimits { first, retransmitted }| {
            let limit = first.min(UNLIMITED);
            Tokens { limit, for_first: limit.saturating_sub(retransmitted), ..shares }
        });
        let lower = own.filter(|own| policy.is_none_or(|policy| own.limit < policy.limit));
        self.binds = lower.is_some();
        lower.or(policy)
    }
}

impl SynFilter {
    /// Creates a filter that is not attached yet.
    pub(crate) fn new(tokens: Option<TokenFilter>, backlog_max: u32) -> Self {
        Self {
            decision: SynDecision::Open,
            backlog_max,
            tokens,
            attached: None,
            shed: Shed::default(),
        }
    }

    /// Returns the best kind that the kernel lets this process attach to a socket that listens on
    /// an address: it is tried with another one, since a predecessor may filter the socket itself.
    pub(crate) fn available(address: SocketAddr) -> Kind {
        let any: IpAddr = match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let Ok(socket) = socket::bind_tcp((any, 0).into(), false) else { return Kind::None };
        let listener = socket.as_fd();
        let takes_tokens = privileged::token_filter(RULES)
            .and_then(|filter| privileged::attach(&filter, listener));
        let kind = if takes_tokens.is_ok() {
            Kind::Tokens
        } else if privileged::attach_random(listener, f64::MIN_POSITIVE).is_ok() {
            Kind::Random
        } else {
            Kind::None
        };
        if syn_filter::detach(listener).is_ok() { kind } else { Kind::None }
    }

    /// Detaches the filter, if there is one.
    pub(crate) fn release(&mut self, listener: BorrowedFd<'_>) {
        if let Some(tokens) = &self.tokens {
            self.shed.note_dropped(tokens.counts().dropped);
            tokens.open();
        }
        // It fails if there is none.
        let _ = syn_filter::detach(listener);
        self.attached = None;
        self.decision = SynDecision::Open;
        self.shed = Shed { is_active: false, limits: None, binds: false, ..self.shed };
    }

    /// Sets how many SYNs may pass while all that the listener serves waits for an upstream, beside
    /// what the policy decides. `dropped`: first SYNs that this has dropped at all listeners of the
    /// loop.
    pub(crate) fn shed(
        &mut self,
        listener: BorrowedFd<'_>,
        now_ns: u64,
        (shedding, load, dropped): (&mut Shedding, &Load, u64),
        is_alert: bool,
        counters: &mut Counters,
    ) {
        let Some(tokens) = &self.tokens else { return };
        let syns = FilteredSyns { passed: tokens.counts().passed, dropped };
        self.shed.limits = shedding.limits(now_ns, load, syns);
        self.shed.is_active = shedding.is_active();
        self.attach_or_detach(listener, now_ns, self.decision, is_alert, counters);
        self.update();
    }

    /// Returns whether it takes tokens.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Returns whether an upstream limits the SYNs that may pass.
    pub(crate) fn is_shedding(&self) -> bool {
        self.shed.limits.is_some()
    }

    /// Applies a decision. While the policy `is_alert`, an attached filter that takes tokens stays
    /// attached even if it lets every SYN pass.
    pub(crate) fn set(
        &mut self,
        listener: BorrowedFd<'_>,
        now_ns: u64,
        decision: SynDecision,
        is_alert: bool,
        counters: &mut Counters,
    ) {
        if self.tokens.is_some() {
            self.attach_or_detach(listener, now_ns, decision, is_alert, counters);
        } else {
            self.set_drop_share(listener, decision, counters);
        }
        self.decision = decision;
        self.update();
    }

    /// Attaches or detaches the filter that takes tokens. If that fails for lack of memory, the
    /// accept queue still refuses, and it is tried again.
    fn attach_or_detach(
        &mut self,
        listener: BorrowedFd<'_>,
        now_ns: u64,
        decision: SynDecision,
        is_alert: bool,
        counters: &mut Counters,
    ) {
        let is_attached = self.attached.is_some();
        let wanted = self.shed.is_active || decision.wants_filter(is_attached, is_alert);
        if wanted == is_attached {
            return;
        }
        let Some(tokens) = &self.tokens else { return };
        self.shed.note_dropped(tokens.counts().dropped);
        tokens.open();
        let changed = if wanted {
            privileged::attach(tokens, listener)
        } else {
            syn_filter::detach(listener)
        };
        if changed.is_err() {
            return counters.syn_filter_failed.one();
        }
        counters.syn_filter_changes.one();
        self.attached = wanted.then(|| {
            let queue = weir_sys::listener::queue(listener).map_or(0, |queue| queue.len);
            let shed_before = self.shed.dropped;
            Attached {
                before: tokens.counts(),
                shed_before,
                handshakes: Handshakes::begin(now_ns, queue),
            }
        });
    }

    fn set_drop_share(
        &mut self,
        listener: BorrowedFd<'_>,
        decision: SynDecision,
        counters: &mut Counters,
    ) {
        let share = |decision| if let SynDecision::Random(share) = decision { share } else { 0.0 };
        if share(decision).to_bits() == share(self.decision).to_bits() {
            return;
        }
        match privileged::attach_random(listener, share(decision)) {
            Ok(()) => counters.syn_filter_changes.one(),
            Err(_) => counters.syn_filter_failed.one(),
        }
    }

    /// Sets how many SYNs the attached filter may let pass by now.
    fn update(&mut self) {
        let (Some(tokens), Some(attached)) = (&self.tokens, &mut self.attached) else { return };
        let Attached { before, handshakes, .. } = attached;
        let mut limited = |window, each_ns| before.passed + handshakes.limit(window, each_ns);
        let policy = match self.decision {
            SynDecision::Tokens { window, reserve, share_ns, .. } => {
                let limit = limited(window, share_ns);
                Some(Tokens { limit, reserve: reserve.into(), share_ns, for_first: 0 })
            }
            SynDecision::Guard { window, each_ns } => Some(Tokens {
                limit: limited(window.min(self.backlog_max), each_ns),
                ..Tokens::default()
            }),
            SynDecision::Open | SynDecision::Random(_) => None,
        };
        self.shed.note_dropped(tokens.counts().dropped);
        match self.shed.lower(policy) {
            Some(limits) => tokens.set(limits),
            None => tokens.open(),
        }
    }

    /// Records an accepted connection: another may come in its place.
    pub(crate) fn note_accepted(&mut self) {
        if let Some(attached) = &mut self.attached {
            attached.handshakes.accepted(1);
            self.update();
        }
    }

    /// Records the round-trip time of a handshake.
    pub(crate) fn note_rtt(&mut self, rtt_ns: u64) {
        if let Some(attached) = &mut self.attached {
            attached.handshakes.rtt(rtt_ns);
        }
    }

    /// Returns the counts of the attached filter. `queue`: length of the accept queue, if known.
    pub(crate) fn counts(&mut self, now_ns: u64, queue: Option<u32>) -> Option<Syns> {
        let counts = self.tokens.as_ref()?.counts();
        let Attached { before, shed_before, handshakes } = self.attached.as_mut()?;
        // What an upstream makes it drop says nothing of this server's own load.
        let shed = self.shed.dropped_by(counts.dropped) - *shed_before;
        let passed = counts.passed - before.passed;
        handshakes.see(now_ns, passed, queue);
        let counted = Syns {
            passed,
            dropped: (counts.dropped - before.dropped).saturating_sub(shed),
            weight: counts.weight as u32,
            ..Syns::default()
        };
        let need_tokens = matches!(self.decision, SynDecision::Tokens { .. });
        Some(handshakes.syns(counted, need_tokens))
    }

    /// Returns the SYNs dropped by the filter that takes tokens since the server began: on account
    /// of the server's own load, of these for sources beyond their share, and of an upstream's, and
    /// of these those that are known to be retransmitted.
    pub(crate) fn dropped(&self) -> [u64; 4] {
        let counts = self.tokens.as_ref().map(TokenFilter::counts).unwrap_or_default();
        let for_upstream = self.shed.dropped_by(counts.dropped);
        let own = counts.dropped.saturating_sub(for_upstream);
        [own, counts.dropped_unfair, for_upstream, counts.dropped_again]
    }

    /// Returns the share of SYNs that the filter drops at random, per million. The kernel counts
    /// none of these.
    pub(crate) fn random_ppm(&self) -> u64 {
        match self.decision {
            SynDecision::Random(share) if self.tokens.is_none() => (share * 1e6) as u64,
            _ => 0,
        }
    }

    /// Applies a decision before the loop sleeps. An attached filter that takes tokens stays so.
    pub(crate) fn rest(
        &mut self,
        listener: BorrowedFd<'_>,
        decision: SynDecision,
        counters: &mut Counters,
    ) {
        if self.tokens.is_none() {
            self.set_drop_share(listener, decision, counters);
        }
        self.decision = decision;
        self.update();
    }
}
