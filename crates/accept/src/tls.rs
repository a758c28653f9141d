//! Work for TLS handshakes: as much of it as a loop may do in a round, and the account by which a
//! policy learns what a handshake costs. A full handshake costs as much as many requests, a resumed
//! one as much as a few, and a loop cannot know which it will be before it begins.

/// Time for TLS handshakes in a round, nanoseconds: about a dozen with a new key exchange. Those
/// that find it spent begin after the open connections have been served.
const ROUND_NS: u64 = 2_000_000;

/// Time left in a round for TLS handshakes, so that any number of them leave room for requests. It
/// decides when a handshake begins; one that the server has answered always goes on, because most
/// of its work has been done.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsBudget {
    /// Nanoseconds left; `None` in a server without rounds, whose budget is never spent.
    left_ns: Option<u64>,
}

impl TlsBudget {
    /// Begins a round.
    pub fn begin_round(&mut self) {
        self.left_ns = Some(ROUND_NS);
    }

    /// Returns whether this round's budget is used up.
    pub fn is_spent(self) -> bool {
        self.left_ns == Some(0)
    }

    /// Records that a handshake has taken `ns`.
    pub fn spend(&mut self, ns: u64) {
        self.left_ns = self.left_ns.map(|left_ns| left_ns.saturating_sub(ns));
    }
}

/// Ended handshakes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Their number.
    pub count: u64,
    /// Processing time of all their steps, nanoseconds.
    pub spent_ns: u64,
}

impl Ended {
    /// Records the end of a handshake that has taken `spent_ns`.
    pub fn add(&mut self, spent_ns: u64) {
        self.count += 1;
        self.spent_ns += spent_ns;
    }

    /// Returns what was added since `before`.
    fn since(self, before: Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            spent_ns: self.spent_ns.saturating_sub(before.spent_ns),
        }
    }
}

/// Account of a loop's TLS handshakes. All but the number of those that wait are totals since the
/// start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsWork {
    /// Handshakes with a new key exchange and a signature.
    pub full: Ended,
    /// Handshakes with the keys of an earlier session.
    pub resumed: Ended,
    /// Handshakes that came to nothing.
    pub in_vain: Ended,
    /// Time spent on handshakes, ended or not, nanoseconds.
    pub spent_ns: u64,
    /// Number of times that a connection was served for its handshake alone.
    pub steps: u64,
    /// Time spent on them in work-phases, nanoseconds.
    pub work_ns: u64,
    /// Number of work items that were such steps.
    pub work_steps: u64,
    /// Open connections whose handshake could begin, and waits for its share of a round.
    pub waiting: u64,
}

impl TlsWork {
    /// Adds the work done since `before` to that of the work-phases.
    pub fn note_work(&mut self, before: Self) {
        self.work_ns += self.spent_ns.saturating_sub(before.spent_ns);
        self.work_steps += self.steps.saturating_sub(before.steps);
    }

    /// Returns the handshakes of each kind that have ended since `before`.
    pub(crate) fn ended_since(&self, before: &Self) -> [Ended; 3] {
        [
            self.full.since(before.full),
            self.resumed.since(before.resumed),
            self.in_vain.since(before.in_vain),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_its_share_and_the_next_one_has_it_again() {
        let mut budget = TlsBudget::default();
        budget.spend(u64::MAX);
        assert!(!budget.is_spent(), "a server without rounds");
        for _ in 0..2 {
            budget.begin_round();
            budget.spend(ROUND_NS - 1);
            assert!(!budget.is_spent());
            budget.spend(2);
            assert!(budget.is_spent());
        }
    }

    #[test]
    fn work_outside_work_phases_is_not_counted_as_theirs() {
        let mut work = TlsWork { spent_ns: 5, steps: 1, ..TlsWork::default() };
        let before = work;
        (work.spent_ns, work.steps) = (12, 3);
        work.note_work(before);
        assert_eq!((work.work_ns, work.work_steps), (7, 2));
    }
}
