//! The user data of an operation, which identifies its kind and its owner on completion.

use weir_dispatch::readiness::Token;

/// Purpose of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The loop was woken.
    Waker,
    /// A connection was accepted into a slot that was promised.
    Accept,
    /// A connection was accepted into a slot that the kernel chose.
    AcceptMany,
    /// A connection is pending at a listener.
    ListenerReady,
    /// A descriptor's socket was put into a slot.
    Adopted,
    /// Bytes were received.
    Receive,
    /// An operation on a connection's output ended.
    Output,
    /// The close at the end of a chain was done.
    Close,
    /// Unacknowledged bytes, queried at a deadline.
    Expire,
    /// Bytes that were unacknowledged when the socket was full.
    Mark,
    /// A read from a disk ended.
    Fetch,
    /// A connect to an upstream ended.
    UpstreamConnect,
    /// Bytes were received from an upstream.
    UpstreamReceive,
    /// Bytes were sent to an upstream.
    UpstreamSend,
    /// The result does not matter.
    Ignored,
}

const KINDS: [Kind; 15] = [
    Kind::Waker,
    Kind::Accept,
    Kind::AcceptMany,
    Kind::ListenerReady,
    Kind::Adopted,
    Kind::Receive,
    Kind::Output,
    Kind::Close,
    Kind::Expire,
    Kind::Mark,
    Kind::Fetch,
    Kind::UpstreamConnect,
    Kind::UpstreamReceive,
    Kind::UpstreamSend,
    Kind::Ignored,
];

/// Number of bits of a slot: RLIMIT_NOFILE keeps slots below 2²⁸.
const SLOT_BITS: u32 = 28;

impl Kind {
    /// Returns whether the operation is one of a connection to an upstream.
    pub(super) fn is_of_upstream(self) -> bool {
        matches!(self, Self::UpstreamConnect | Self::UpstreamReceive | Self::UpstreamSend)
    }

    /// Returns whether the completion belongs in the accept queue.
    pub(super) fn is_arrival(self) -> bool {
        matches!(self, Self::Accept | Self::AcceptMany | Self::ListenerReady)
    }
}

/// Encoding of operations' user data.
pub(super) struct Data;

impl Data {
    /// Encodes the user data of a connection's operation, or of a listener's: then the index of the
    /// listener takes the place of the generation.
    pub(super) fn of(kind: Kind, token: Token) -> u64 {
        let kind = KINDS.iter().position(|each| *each == kind).unwrap_or_default() as u64;
        let slot = u64::from(token.slot) & ((1 << SLOT_BITS) - 1);
        u64::from(token.generation) << 32 | kind << SLOT_BITS | slot
    }

    /// Returns user data of an operation whose result does not matter.
    pub(super) fn ignored() -> u64 {
        Self::of(Kind::Ignored, Token { slot: 0, generation: 0 })
    }

    /// Returns the kind of an operation.
    pub(super) fn kind_of(data: u64) -> Option<Kind> {
        KINDS.get((data >> SLOT_BITS & 0xf) as usize).copied()
    }

    /// Returns the connection of an operation, that to an upstream if it is one of these, or the
    /// promised slot with the listener's index.
    pub(super) fn owner(data: u64) -> Token {
        Token { slot: (data & ((1 << SLOT_BITS) - 1)) as u32, generation: (data >> 32) as u32 }
    }

    /// Returns the client's connection of an operation; `None` if it has none.
    pub(super) fn token_of(data: u64) -> Option<Token> {
        let kind = Self::kind_of(data)?;
        let has_none = kind.is_arrival()
            || kind.is_of_upstream()
            || matches!(kind, Kind::Waker | Kind::Ignored);
        (!has_none).then(|| Self::owner(data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_is_decoded_as_it_was_encoded() {
        for kind in KINDS {
            for (slot, generation) in [(0, 0), (7, u32::MAX), ((1 << SLOT_BITS) - 1, 3)] {
                let token = Token { slot, generation };
                let data = Data::of(kind, token);
                assert_eq!(Data::kind_of(data), Some(kind));
                assert_eq!(Data::owner(data), token);
            }
        }
        assert_eq!(Data::token_of(Data::ignored()), None);
        let token = Token { slot: 1, generation: 1 };
        assert_eq!(Data::token_of(Data::of(Kind::UpstreamSend, token)), None);
        assert_eq!(Data::token_of(Data::of(Kind::Receive, token)), Some(token));
    }
}
