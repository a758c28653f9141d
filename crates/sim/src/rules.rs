//! Settings of the kernel that decide what becomes of a SYN.

use crate::time::SECOND_NS;

/// System-wide settings of listening sockets (tcp(7), ip-sysctl.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `tcp_syncookies`: a full SYN queue answers with cookies instead of dropping.
    pub syncookies: bool,
    /// `tcp_max_syn_backlog`: without cookies its last quarter is reserved for proven peers.
    pub max_syn_backlog: u32,
    /// True if the peers are proven: the kernel has a cached round trip time for them.
    pub peers_proven: bool,
    /// `tcp_synack_retries`.
    pub synack_retries: u8,
    /// The clients' `tcp_syn_retries`.
    pub syn_retries: u8,
    /// The clients' `tcp_syn_linear_timeouts`: number of SYN retransmissions at intervals of one
    /// second, before the intervals double. Zero until Linux 6.4.
    pub syn_linear_timeouts: u8,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            syncookies: true,
            max_syn_backlog: 4096,
            peers_proven: false,
            synack_retries: 5,
            syn_retries: 6,
            syn_linear_timeouts: 4,
        }
    }
}

impl Rules {
    /// Returns the wait of a client's kernel after its SYN number `n`, counted from one,
    /// nanoseconds.
    pub(crate) fn syn_gap_ns(&self, n: u8) -> u64 {
        SECOND_NS << n.saturating_sub(1 + self.syn_linear_timeouts).min(20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_requests_are_repeated_each_second_and_then_less_often() {
        let gaps_s =
            |rules: Rules| (1..=6).map(|n| rules.syn_gap_ns(n) / SECOND_NS).collect::<Vec<_>>();
        assert_eq!(gaps_s(Rules::default()), [1, 1, 1, 1, 1, 2]);
        let doubling = Rules { syn_linear_timeouts: 0, ..Rules::default() };
        assert_eq!(gaps_s(doubling), [1, 2, 4, 8, 16, 32]);
    }
}
