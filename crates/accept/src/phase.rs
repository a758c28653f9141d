//! An accept-phase in progress: whether another connection may be accepted, and the verdict on
//! each. The server and the simulator share this code; the accepts themselves are theirs.

use crate::{Decision, Inspect, PhaseOutcome, Share};

/// Maximum number of connections of one phase that are refused for lack of memory. Where clients
/// connect again at once, such a phase would not end before there is memory, which is found when
/// others are served.
const LACKS_MAX: u64 = 64;

/// The kernel's information about an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time since its newest data arrived, nanoseconds, rounded to the kernel's tick.
    pub age_ns: u64,
    /// True if its client sends no more: its FIN or reset has arrived.
    pub departed: bool,
    /// True if data has arrived.
    pub spoken: bool,
    /// Round trip time of its handshake, nanoseconds.
    pub rtt_ns: u64,
}

/// Verdict on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To be served; its request arrived at this time, or the time was not queried.
    Admit {
        /// Arrival time, nanoseconds.
        since_ns: u64,
    },
    /// Refused unseen: the queue is too long for it.
    Excess,
    /// Refused: its reply would be too late.
    Stale,
    /// Refused: its source has exceeded its share, and others wait.
    Unfair,
    /// Closed: its client has gone.
    Departed,
}

/// An accept-phase in progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptPhase {
    /// The decision in force.
    pub decision: Decision,
    /// Outcome so far.
    pub outcome: PhaseOutcome,
    /// Connections accepted for service.
    taken: u64,
    /// Connections refused for lack of memory.
    lacks: u64,
    /// Time after which no refusal begins: connections to be served come after the refused, and
    /// have half of the time.
    refuse_until_ns: u64,
    /// True if connections are refused unseen in this phase.
    refuses: bool,
    /// True if the time is up and one connection must still be served, however long it waited.
    owes_one: bool,
}

impl AcceptPhase {
    /// Begins a phase.
    pub fn new(decision: Decision, now_ns: u64) -> Self {
        let until_ns = decision.until_ns.unwrap_or(u64::MAX).max(now_ns);
        let refuse_until_ns = now_ns + (until_ns - now_ns) / 2;
        let refuses = decision.refuse > 0;
        Self { decision, refuse_until_ns, refuses, ..Self::default() }
    }

    /// Returns whether another connection may be accepted; `clock_ns` is called only when time
    /// matters. With `serves_later`, accepted connections are served after the phase.
    pub fn may_continue(&mut self, serves_later: bool, clock_ns: impl FnOnce() -> u64) -> bool {
        if self.lacks >= self.decision.budget.clamp(1, LACKS_MAX) {
            return false;
        }
        if let Some(until_ns) = self.decision.until_ns
            && self.outcome.accepted > 0
        {
            let owed_ns =
                if serves_later { self.taken.saturating_mul(self.decision.each_ns) } else { 0 };
            let now_ns = clock_ns().saturating_add(owed_ns);
            if now_ns >= until_ns {
                self.owes_one = self.refuses && self.taken == 0;
                if !self.owes_one {
                    return false;
                }
            }
            if now_ns >= self.refuse_until_ns {
                self.decision.refuse = self.decision.refuse.min(self.outcome.refused);
            }
        }
        self.is_excess() || self.taken < self.decision.budget
    }

    /// Ends accepting for service in this phase: what was taken has to be served first. Refusals go
    /// on.
    pub fn take_no_more(&mut self) {
        self.decision.budget = self.taken;
    }

    /// Returns the number of connections that may still be accepted for service.
    pub fn left(&self) -> u64 {
        self.decision.budget.saturating_sub(self.taken)
    }

    /// Returns whether to ask the kernel about the connection just accepted.
    pub fn inspects(&self) -> bool {
        match self.decision.inspect {
            _ if self.is_excess() => false,
            Inspect::None => false,
            Inspect::First => self.taken == 0,
            Inspect::All => true,
        }
    }

    /// Judges the connection just accepted.
    pub fn judge(&mut self, now_ns: u64, arrival: Option<Arrival>) -> Verdict {
        let is_excess = self.is_excess();
        self.outcome.accepted += 1;
        let verdict = if is_excess { Verdict::Excess } else { self.weigh(now_ns, arrival) };
        match verdict {
            Verdict::Admit { .. } => self.taken += 1,
            _ => self.outcome.refused += 1,
        }
        verdict
    }

    /// Records that the connection just accepted is refused for lack of memory, whatever it is.
    pub fn note_lack(&mut self) {
        self.outcome.accepted += 1;
        self.outcome.refused += 1;
        self.lacks += 1;
    }

    /// Judges a request on an open connection; `is_fair` is called to ask whether its source has a
    /// share left, while sources have to share.
    pub fn judge_open(
        decision: Decision,
        now_ns: u64,
        arrival: Option<Arrival>,
        is_fair: impl FnOnce(Share) -> bool,
    ) -> Verdict {
        let verdict = Self::new(decision, now_ns).weigh(now_ns, arrival);
        match (verdict, arrival, decision.share) {
            (Verdict::Admit { .. }, Some(_), Some(share)) if !is_fair(share) => Verdict::Unfair,
            _ => verdict,
        }
    }

    /// Returns whether the connection just accepted is among the oldest, which are refused unseen.
    fn is_excess(&self) -> bool {
        self.outcome.refused < self.decision.refuse
    }

    fn weigh(&mut self, now_ns: u64, arrival: Option<Arrival>) -> Verdict {
        let Some(arrival) = arrival else { return Verdict::Admit { since_ns: now_ns } };
        self.outcome.rtt_ns.get_or_insert(arrival.rtt_ns);
        if self.decision.drop_departed && arrival.departed {
            return Verdict::Departed;
        }
        let age_ns = if arrival.spoken { arrival.age_ns } else { 0 };
        if arrival.spoken {
            self.note_age(age_ns);
        }
        let is_stale = self.decision.stale_ns.is_some_and(|stale_ns| age_ns > stale_ns);
        if is_stale && !self.owes_one {
            return Verdict::Stale;
        }
        Verdict::Admit { since_ns: now_ns.saturating_sub(age_ns) }
    }

    fn note_age(&mut self, age_ns: u64) {
        let outcome = &mut self.outcome;
        outcome.age_first_ns.get_or_insert(age_ns);
        let least_ns = outcome.age_min_ns.map_or(age_ns, |least_ns| least_ns.min(age_ns));
        outcome.age_min_ns = Some(least_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn arrival(age_ms: u64) -> Option<Arrival> {
        Some(Arrival { age_ns: age_ms * MS, departed: false, spoken: true, rtt_ns: MS })
    }

    #[test]
    fn as_many_are_accepted_as_the_budget_says() {
        let mut phase = AcceptPhase::new(Decision::accept(2), 0);
        let mut taken = 0;
        while phase.may_continue(false, || 0) {
            assert!(!phase.inspects());
            assert_eq!(phase.judge(5, None), Verdict::Admit { since_ns: 5 });
            taken += 1;
        }
        assert_eq!((taken, phase.left(), phase.outcome.accepted), (2, 0, 2));
    }

    #[test]
    fn the_oldest_are_refused_first_in_half_of_the_time() {
        let decision = Decision { refuse: 9, until_ns: Some(10 * MS), ..Decision::accept(100) };
        let mut phase = AcceptPhase::new(decision, 0);
        let verdicts: Vec<_> = (0..)
            .map_while(|ms| {
                phase.may_continue(false, || ms * MS).then(|| phase.judge(ms * MS, None))
            })
            .collect();
        assert!(verdicts[..5].iter().all(|verdict| *verdict == Verdict::Excess));
        assert!(verdicts[5..].iter().all(|verdict| matches!(verdict, Verdict::Admit { .. })));
        assert_eq!((verdicts.len(), phase.outcome.refused), (10, 5));
    }

    #[test]
    fn a_phase_that_takes_no_more_refuses_all_the_same() {
        let mut phase = AcceptPhase::new(Decision { refuse: 2, ..Decision::accept(9) }, 0);
        assert!(phase.may_continue(false, || 0));
        phase.judge(0, None);
        phase.take_no_more();
        assert!(phase.may_continue(false, || 0) && phase.left() == 0);
        assert_eq!(phase.judge(0, None), Verdict::Excess);
        assert!(!phase.may_continue(false, || 0));
    }

    #[test]
    fn a_phase_ends_although_each_connection_is_refused_for_lack_of_memory() {
        for (budget, until_ns, most) in [
            (u64::MAX, None, LACKS_MAX),
            (1000, None, LACKS_MAX),
            (3, None, 3),
            (u64::MAX, Some(10 * MS), 10),
            (0, None, 1),
        ] {
            let refuse = u64::from(budget == 0) * 9;
            let decision = Decision { until_ns, refuse, ..Decision::accept(budget) };
            let mut phase = AcceptPhase::new(decision, 0);
            let mut lacks = 0;
            while lacks < 2 * LACKS_MAX && phase.may_continue(false, || lacks * MS) {
                phase.note_lack();
                lacks += 1;
            }
            assert_eq!((lacks, phase.outcome.accepted, phase.outcome.refused), (most, most, most));
        }
    }

    #[test]
    fn those_served_count_by_the_limit_whatever_is_refused_for_lack_of_memory() {
        let mut phase = AcceptPhase::new(Decision::accept(2), 0);
        for _ in 0..2 {
            assert!(phase.may_continue(false, || 0));
            phase.judge(0, None);
        }
        phase.note_lack();
        assert!(!phase.may_continue(false, || 0));
        assert_eq!((phase.outcome.accepted, phase.outcome.refused), (3, 1));
    }

    #[test]
    fn who_serves_later_counts_what_it_owes() {
        let decision =
            Decision { until_ns: Some(10 * MS), each_ns: 3 * MS, ..Decision::accept(100) };
        let accepted = |serves_later| {
            let mut phase = AcceptPhase::new(decision, 0);
            while phase.may_continue(serves_later, || 0) && phase.outcome.accepted < 50 {
                phase.judge(0, None);
            }
            phase.outcome.accepted
        };
        assert_eq!((accepted(true), accepted(false)), (4, 50));
    }

    #[test]
    fn the_stale_are_refused_unless_one_is_owed() {
        let stale = Decision {
            inspect: Inspect::All,
            stale_ns: Some(40 * MS),
            until_ns: Some(MS),
            ..Decision::accept(10)
        };
        let mut phase = AcceptPhase::new(stale, 0);
        assert_eq!(phase.judge(0, arrival(41)), Verdict::Stale);
        assert_eq!(phase.judge(50 * MS, arrival(40)), Verdict::Admit { since_ns: 10 * MS });
        assert_eq!(
            (phase.outcome.age_first_ns, phase.outcome.age_min_ns),
            (Some(41 * MS), Some(40 * MS))
        );
        let mut phase = AcceptPhase::new(Decision { refuse: 1, ..stale }, 0);
        assert_eq!(phase.judge(0, None), Verdict::Excess);
        assert!(phase.may_continue(false, || 2 * MS));
        assert!(matches!(phase.judge(2 * MS, arrival(90)), Verdict::Admit { .. }));
        assert!(!phase.may_continue(false, || 2 * MS));
    }

    #[test]
    fn a_source_that_has_had_its_share_is_refused_while_sources_share() {
        let share = Share { each_ns: MS, weight: 2 };
        let shares = Decision { inspect_open: true, share: Some(share), ..Decision::accept(1) };
        let judge = |decision, arrival, is_fair| {
            AcceptPhase::judge_open(decision, 9 * MS, arrival, |of| {
                assert_eq!(of, share);
                is_fair
            })
        };
        assert_eq!(judge(shares, arrival(4), false), Verdict::Unfair);
        assert_eq!(judge(shares, arrival(4), true), Verdict::Admit { since_ns: 5 * MS });
        // What is on its way already is no request that could be refused.
        assert_eq!(judge(shares, None, false), Verdict::Admit { since_ns: 9 * MS });
        let alone = Decision { share: None, ..shares };
        assert_eq!(judge(alone, arrival(4), false), Verdict::Admit { since_ns: 5 * MS });
    }

    #[test]
    fn those_who_have_gone_tell_their_distance_and_are_closed() {
        let decision = Decision { drop_departed: true, ..Decision::accept(1) };
        let gone = Arrival { age_ns: 0, departed: true, spoken: true, rtt_ns: 7 };
        let mut phase = AcceptPhase::new(decision, 0);
        assert_eq!(phase.judge(0, Some(gone)), Verdict::Departed);
        assert_eq!((phase.outcome.rtt_ns, phase.outcome.refused, phase.left()), (Some(7), 1, 1));
        assert_eq!(AcceptPhase::judge_open(decision, 0, Some(gone), |_| true), Verdict::Departed);
    }
}
