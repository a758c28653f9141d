//! What an operation is begun with, so that its completion can be told: which kind it is, and
//! whose. Knows nothing of what becomes of it.

use weir_dispatch::readiness::Token;

/// What an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The bell was rung.
    Bell,
    /// A connection was accepted into a slot that was promised.
    Accept,
    /// A connection was accepted into a slot that the kernel chose.
    AcceptMany,
    /// Somebody waits at a listener.
    Knock,
    /// A descriptor's socket got a slot.
    Adopted,
    /// Bytes were received.
    Receive,
    /// Something of a connection's output was done.
    Output,
    /// The close at the end of a chain was done.
    Close,
    /// How many bytes have not arrived, asked at a deadline.
    Expire,
    /// How many bytes had not arrived when the socket was full.
    Mark,
    /// Something was brought from a disk.
    Fetch,
    /// Nobody wants to know.
    Ignored,
}

const KINDS: [Kind; 12] = [
    Kind::Bell,
    Kind::Accept,
    Kind::AcceptMany,
    Kind::Knock,
    Kind::Adopted,
    Kind::Receive,
    Kind::Output,
    Kind::Close,
    Kind::Expire,
    Kind::Mark,
    Kind::Fetch,
    Kind::Ignored,
];

/// Slots are below 2²⁸: RLIMIT_NOFILE bounds them.
const SLOT_BITS: u32 = 28;

impl Kind {
    /// Whether it belongs into the accept queue.
    pub(super) fn is_arrival(self) -> bool {
        matches!(self, Self::Accept | Self::AcceptMany | Self::Knock)
    }
}

/// What operations are begun with.
pub(super) struct Data;

impl Data {
    /// Of a connection, or for a listener: its index is the generation.
    pub(super) fn of(kind: Kind, token: Token) -> u64 {
        let kind = KINDS.iter().position(|each| *each == kind).unwrap_or_default() as u64;
        let slot = u64::from(token.slot) & ((1 << SLOT_BITS) - 1);
        u64::from(token.generation) << 32 | kind << SLOT_BITS | slot
    }

    /// Nobody's.
    pub(super) fn ignored() -> u64 {
        Self::of(Kind::Ignored, Token { slot: 0, generation: 0 })
    }

    /// The kind of an operation.
    pub(super) fn kind_of(data: u64) -> Option<Kind> {
        KINDS.get((data >> SLOT_BITS & 0xf) as usize).copied()
    }

    /// Whose it is, or the promised slot and the listener's index.
    pub(super) fn whose(data: u64) -> Token {
        Token { slot: (data & ((1 << SLOT_BITS) - 1)) as u32, generation: (data >> 32) as u32 }
    }

    /// Which connection's it is; `None` when it is no connection's.
    pub(super) fn token_of(data: u64) -> Option<Token> {
        let kind = Self::kind_of(data)?;
        let is_one = !kind.is_arrival() && !matches!(kind, Kind::Bell | Kind::Ignored);
        is_one.then(|| Self::whose(data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out() {
        for kind in KINDS {
            for (slot, generation) in [(0, 0), (7, u32::MAX), ((1 << SLOT_BITS) - 1, 3)] {
                let token = Token { slot, generation };
                let data = Data::of(kind, token);
                assert_eq!(Data::kind_of(data), Some(kind));
                assert_eq!(Data::whose(data), token);
            }
        }
        assert_eq!(Data::token_of(Data::ignored()), None);
    }
}
