//! How much of a large reply goes out before others have their turn: as much as takes a fraction of
//! a millisecond, learnt from how long the last ones took. Knows no connection, and reads no clock.

/// Replies up to this size go out at once: cut, they would cost more than others gain.
pub(crate) const TURN_BYTES_MIN: u64 = 64 << 10;

/// Above this nothing is saved any more.
const TURN_BYTES_MAX: u64 = 2 << 20;

/// How long a turn may take, nanoseconds of core time. Where every packet is handled on its own, as
/// on a link without offloads, 256 KiB take 600,000; on a loopback they take 50,000.
const TURN_NS: u64 = 200_000;

/// How long a turn is, and how much of a round's is left.
#[derive(Debug)]
pub(crate) struct Turn {
    bytes: u64,
    left: u64,
}

impl Default for Turn {
    /// One of a server that has no rounds: it is never over.
    fn default() -> Self {
        Self { bytes: TURN_BYTES_MIN, left: u64::MAX }
    }
}

impl Turn {
    /// How much goes out in one, bytes: a power of two.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A round begins: all large replies in it share one turn.
    pub(crate) fn begin_round(&mut self) {
        self.left = self.bytes;
    }

    /// Whether this round's has been used up.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// So many bytes went out, and it took so many nanoseconds of core time.
    pub(crate) fn note(&mut self, bytes: u64, took_ns: u64) {
        self.left = self.left.saturating_sub(bytes);
        if took_ns > TURN_NS {
            self.bytes = (self.bytes / 2).max(TURN_BYTES_MIN);
        } else if bytes >= self.bytes && took_ns < TURN_NS / 2 {
            self.bytes = (self.bytes * 2).min(TURN_BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a turn is after many of them, where a byte takes so long.
    fn settled(ns_per_kib: u64) -> u64 {
        let mut turn = Turn::default();
        for _ in 0..100 {
            turn.note(turn.bytes(), turn.bytes() / 1024 * ns_per_kib);
        }
        turn.bytes()
    }

    #[test]
    fn a_turn_is_as_long_as_its_time_allows() {
        assert_eq!(settled(1), TURN_BYTES_MAX);
        assert_eq!(settled(200), 512 << 10);
        assert_eq!(settled(2300), TURN_BYTES_MIN);
        assert_eq!(settled(1_000_000), TURN_BYTES_MIN);
    }

    #[test]
    fn one_that_was_cut_short_says_nothing_of_longer_ones() {
        let mut turn = Turn::default();
        turn.note(TURN_BYTES_MIN / 2, 1);
        assert_eq!(turn.bytes(), TURN_BYTES_MIN);
    }

    #[test]
    fn a_slow_one_makes_the_next_shorter() {
        let mut turn = Turn { bytes: 1 << 20, ..Turn::default() };
        turn.note(1 << 10, TURN_NS + 1);
        assert_eq!(turn.bytes(), 512 << 10);
    }

    #[test]
    fn a_round_has_one_turn_for_all() {
        let mut turn = Turn::default();
        turn.note(u64::MAX / 2, TURN_NS);
        assert!(!turn.is_over());
        turn.begin_round();
        turn.note(turn.bytes() - 1, TURN_NS);
        assert!(!turn.is_over());
        turn.note(1, TURN_NS);
        assert!(turn.is_over());
        turn.begin_round();
        assert!(!turn.is_over());
    }
}
