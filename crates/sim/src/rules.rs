//! Settings of the kernel that decide what becomes of a SYN.

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
