//! Reasons for which connections end. Each connection has one, the first that was found, and each
//! reason has a counter: together they add up to the connections closed.

use weir_stats::Counters;

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Its last reply was sent: the client or the status of the reply required a close.
    Finished,
    /// A request was refused, and answered.
    Refused,
    /// It was answered with 503 because of the load.
    TurnedAway,
    /// The client closed its side.
    ClientClosed,
    /// The client reset it, or was gone when something was sent.
    ClientReset,
    /// A file changed, or could not be read, in the middle of a reply.
    FileChanged,
    /// The deadline of a request head passed.
    HeaderTimeout,
    /// The deadline of a request body passed.
    BodyTimeout,
    /// The deadline between two requests passed.
    IdleTimeout,
    /// The deadline of a whole request passed.
    RequestTimeout,
    /// The client took its reply at less than the minimum rate.
    RateTimeout,
    /// The client took nothing of its reply for too long.
    StallTimeout,
    /// The server stops.
    Drained,
    /// Room was needed for another connection.
    Evicted,
    /// The overload control refused it because its request had waited too long.
    Stale,
    /// The overload control refused it because its source had used up its share and others waited.
    Unfair,
    /// It waited for its client, and the memory budget was nearly used up.
    Memory,
    /// It, or a request on it, was refused because the memory budget was used up.
    MemoryRefused,
    /// Its client had as many connections open as one may have.
    ClientLimit,
    /// The overload control dropped it because its client had gone.
    Departed,
    /// It did not begin with a header of the PROXY protocol.
    ProxyHeader,
    /// Its client broke the rules of TLS, or spoke without TLS where it is expected.
    Tls,
    /// An upstream broke off in the middle of its reply.
    Upstream,
    /// The kernel refused something needed to serve it.
    Failed,
}

impl CloseReason {
    /// Counts a connection that ended for this reason.
    pub(crate) fn count(self, counters: &mut Counters) {
        let counter = match self {
            Self::Finished => &mut counters.end_finished,
            Self::Refused => &mut counters.end_refused,
            Self::TurnedAway => &mut counters.end_turned_away,
            Self::ClientClosed => &mut counters.end_client_closed,
            Self::ClientReset => &mut counters.end_client_reset,
            Self::FileChanged => &mut counters.end_file_changed,
            Self::HeaderTimeout => &mut counters.timeout_header,
            Self::BodyTimeout => &mut counters.timeout_body,
            Self::IdleTimeout => &mut counters.timeout_idle,
            Self::RequestTimeout => &mut counters.timeout_request,
            Self::RateTimeout => &mut counters.timeout_rate,
            Self::StallTimeout => &mut counters.timeout_stall,
            Self::Drained => &mut counters.end_drained,
            Self::Evicted => &mut counters.end_evicted,
            Self::Stale => &mut counters.end_stale,
            Self::Unfair => &mut counters.end_unfair,
            Self::Memory => &mut counters.end_memory,
            Self::MemoryRefused => &mut counters.end_memory_refused,
            Self::ClientLimit => &mut counters.end_client_limit,
            Self::Departed => &mut counters.end_departed,
            Self::ProxyHeader => &mut counters.end_proxy_header,
            Self::Tls => &mut counters.end_tls,
            Self::Upstream => &mut counters.end_upstream,
            Self::Failed => &mut counters.end_failed,
        };
        counter.one();
    }
}
