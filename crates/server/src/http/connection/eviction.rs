//! The part of the connection machine that says what it costs a client when its connection is
//! closed to make room for another. Knows neither how many are closed nor why there is no room.

use super::{Connection, State};
use crate::context::forwarded::Forward;

/// Cost to a client when its connection is closed to make room for another, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EvictionRank {
    /// Its TLS handshake has taken [`WAIT_NS`] and is not over: it has been served nothing, and
    /// would cost most of all.
    Handshake,
    /// It has been sent its last reply.
    Done,
    /// It is kept open for another request.
    KeptAlive,
    /// It is in the middle of a request, or before its first, and waits for its client: for
    /// [`WAIT_NS`] if the request is forwarded, since its content may come for long.
    Silent,
    /// Its client has taken nothing of a reply for [`WAIT_NS`].
    Stalled,
    /// Its client has used up its bandwidth, and nothing of a reply was sent for [`WAIT_NS`].
    Paused,
}

/// Time after which a client that takes nothing of its reply may be closed to make room,
/// nanoseconds: longer than a lost segment takes to be sent again. So it is for one that does not
/// come to the end of its handshake, and for one in whose reply there is a pause.
const WAIT_NS: u64 = 1_000_000_000;

impl Connection {
    /// Returns the cost of closing it now, and a time that is earlier the longer it has waited for
    /// its client; `None` if it must not be closed.
    pub(crate) fn eviction_rank(&self, now_ns: u64) -> Option<(EvictionRank, u64)> {
        let has_waited = |since_ns: u64| since_ns.saturating_add(WAIT_NS) <= now_ns;
        if let Some(since_ns) = self.pause_begin_ns() {
            return has_waited(since_ns).then_some((EvictionRank::Paused, since_ns));
        }
        match self.state {
            State::Idle if self.is_handshaking && has_waited(self.began_ns) => {
                Some((EvictionRank::Handshake, self.began_ns))
            }
            State::Linger { .. } => Some((EvictionRank::Done, self.deadline_ns)),
            State::Idle if self.has_received => Some((EvictionRank::KeptAlive, self.deadline_ns)),
            State::Idle | State::Head => Some((EvictionRank::Silent, self.began_ns)),
            State::Reply => {
                let full_since_ns = self.output.as_ref()?.full_since_ns?;
                has_waited(full_since_ns).then_some((EvictionRank::Stalled, full_since_ns))
            }
            State::Forward(ref forward) => {
                let (rank, since_ns) = self.forward_rank(forward)?;
                has_waited(since_ns).then_some((rank, since_ns))
            }
            State::Fetch(_) | State::Yield(_) | State::Follow(_) | State::Verify(_) => None,
        }
    }

    /// Returns the rank of a forwarded request that waits for its client alone, and since when
    /// nothing has moved; `None` if it waits for a place or its server.
    fn forward_rank(&self, forward: &Forward) -> Option<(EvictionRank, u64)> {
        let wait = forward.client_wait?;
        let has_moved = forward.content_bytes + self.acknowledged(0) != wait.moved_bytes;
        // Only a ring sends some meanwhile; the rest waits since then.
        let since_ns = if has_moved { self.output.as_ref()?.full_since_ns? } else { wait.since_ns };
        let is_silent = forward.awaits_content();
        let rank = if is_silent { EvictionRank::Silent } else { EvictionRank::Stalled };
        Some((rank, since_ns))
    }
}
