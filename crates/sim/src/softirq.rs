//! The kernel's work for packets, done on the loop's core: it takes precedence, up to a share of
//! the core, and packets beyond that are lost. Accounts for costs only.
//!
//! A packet takes effect on arrival; the loop pays for it by being late.

use crate::costs::Costs;

/// Packet work of a core.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Softirq {
    /// Work that has not delayed the loop yet.
    late_ns: u64,
    idle_since_ns: Option<u64>,
    /// Credit for more work; negative while packets wait.
    credit_ns: i64,
    credit_at_ns: u64,
    wait_max_ns: i64,
    burst_ns: i64,
    percent: u64,
    /// Total work done.
    pub(crate) spent_ns: u64,
    /// Number of packets lost.
    pub(crate) lost: u64,
}

impl Softirq {
    pub(crate) fn new(costs: &Costs) -> Self {
        Self {
            credit_ns: costs.packets_burst as i64,
            wait_max_ns: costs.packets_max as i64,
            burst_ns: costs.packets_burst as i64,
            percent: costs.packets_percent,
            ..Self::default()
        }
    }

    /// Returns whether there is room for a packet; counts it as lost otherwise.
    pub(crate) fn admits(&mut self, now_ns: u64) -> bool {
        let earned_ns = (now_ns - self.credit_at_ns) * self.percent / 100;
        self.credit_at_ns = now_ns;
        self.credit_ns = (self.credit_ns + earned_ns as i64).min(self.burst_ns);
        let admitted = self.credit_ns >= -self.wait_max_ns;
        self.lost += u64::from(!admitted);
        admitted
    }

    /// Charges the cost of a packet.
    pub(crate) fn charge(&mut self, now_ns: u64, cost_ns: u64) {
        self.rest(now_ns);
        self.credit_ns -= cost_ns as i64;
        self.late_ns += cost_ns;
        self.spent_ns += cost_ns;
    }

    /// Records that the loop goes to sleep, and leaves the core to packets.
    pub(crate) fn sleep(&mut self, now_ns: u64) {
        self.idle_since_ns = Some(now_ns);
    }

    /// Records that the loop wants to run; returns how long it waits for the core.
    pub(crate) fn wake(&mut self, now_ns: u64) -> u64 {
        self.rest(now_ns);
        self.idle_since_ns = None;
        self.pay()
    }

    /// Returns the delay of the loop by packets since the last call.
    pub(crate) fn pay(&mut self) -> u64 {
        std::mem::take(&mut self.late_ns)
    }

    /// Deducts work done while the loop slept, which delays nothing.
    fn rest(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.idle_since_ns {
            self.late_ns = self.late_ns.saturating_sub(now_ns - since_ns);
            self.idle_since_ns = Some(now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awake() -> Softirq {
        let mut softirq = Softirq::new(&Costs::default());
        softirq.wake(0);
        softirq
    }

    #[test]
    fn a_loop_is_late_by_what_its_packets_cost() {
        let mut softirq = awake();
        softirq.charge(0, 3_000);
        softirq.charge(0, 2_000);
        assert_eq!((softirq.pay(), softirq.pay()), (5_000, 0));
    }

    #[test]
    fn packets_leave_the_loop_a_tenth_however_many_come() {
        let mut softirq = awake();
        for now_ns in (0..1_000_000_000).step_by(1_000) {
            if softirq.admits(now_ns) {
                softirq.charge(now_ns, 3_000);
            }
        }
        let share = softirq.pay() as f64 / 1e9;
        assert!((0.89..0.91).contains(&share), "{share}");
        assert!(softirq.lost > 0);
    }

    #[test]
    fn a_core_whose_loop_sleeps_works_its_packets_off() {
        let mut softirq = awake();
        softirq.sleep(0);
        softirq.charge(0, 5_000);
        assert_eq!(softirq.wake(3_000), 2_000);
    }

    #[test]
    fn packets_that_come_slowly_are_never_lost() {
        let mut softirq = awake();
        for now_ns in (0..1_000_000_000).step_by(4_000) {
            assert!(softirq.admits(now_ns));
            softirq.charge(now_ns, 3_000);
        }
    }
}
