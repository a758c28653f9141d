//! The work done for one connection before others have their turn: of a large reply, as much as
//! takes a fraction of a millisecond, learned from the time taken by earlier ones. Knows no
//! connection, and reads no clock.

/// Minimum size of a turn, bytes. Smaller replies go out at once: cut, they would cost more than
/// others gain.
pub(crate) const TURN_BYTES_MIN: u64 = 64 << 10;

/// Maximum size of a turn, bytes; a larger one would save nothing more.
const TURN_BYTES_MAX: u64 = 2 << 20;

/// Maximum time of a turn, nanoseconds of CPU time. Where every packet is handled on its own, as on
/// a link without offloads, 256 KiB take 600,000; on a loopback they take 50,000.
const TURN_NS: u64 = 200_000;

/// Number of requests after which the clock is read again when the last ones took less than
/// [`CHEAP_NS`]: reading it takes a tenth of the time of a small request.
const CHEAP_REQUESTS: u8 = 8;
const CHEAP_NS: u32 = 8_000;

/// Size of a turn, and what is left of this round's.
#[derive(Debug)]
pub(crate) struct Turn {
    bytes: u64,
    /// Bytes left; `None` in a server without rounds, whose turns are never over.
    left: Option<u64>,
}

impl Default for Turn {
    /// Creates a turn for a server without rounds.
    fn default() -> Self {
        Self { bytes: TURN_BYTES_MIN, left: None }
    }
}

impl Turn {
    /// Returns the size of a turn, bytes: a power of two.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begins a round: all large replies in it share one turn, and so does all other work that is
    /// cut to pieces.
    pub(crate) fn begin_round(&mut self) {
        self.left = Some(self.bytes);
    }

    /// Returns whether this round's turn is used up.
    pub(crate) fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    /// Uses up this round's turn, for a piece of work that takes about as long as a turn may.
    pub(crate) fn use_up(&mut self) {
        self.left = self.left.map(|_| 0);
    }

    /// Records that `bytes` were sent in `took_ns` nanoseconds of CPU time, and adapts the size of
    /// a turn.
    pub(crate) fn note(&mut self, bytes: u64, took_ns: u64) {
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        if took_ns > TURN_NS {
            self.bytes = (self.bytes / 2).max(TURN_BYTES_MIN);
        } else if bytes >= self.bytes && took_ns < TURN_NS / 2 {
            self.bytes = (self.bytes * 2).min(TURN_BYTES_MAX);
        }
    }
}

/// Time that one connection spends, in one round, on requests that arrived together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    /// Start time, if in this round.
    began_ns: u64,
    /// Time of the last reading of the clock, nanoseconds after the start.
    checked_ns: u32,
    /// Number of requests that may begin before the next reading.
    unchecked: u8,
}

impl Slice {
    /// Returns whether the slice is used up, before another request begins in a round that began at
    /// `round_ns`. The first request of a round costs no reading of the clock.
    pub(crate) fn is_used_up(&mut self, round_ns: u64, clock_ns: impl FnOnce() -> u64) -> bool {
        if self.began_ns < round_ns {
            *self = Self { began_ns: round_ns, ..Self::default() };
            return false;
        }
        if self.unchecked > 0 {
            self.unchecked -= 1;
            return false;
        }
        let now_ns = clock_ns();
        if self.began_ns == round_ns {
            self.began_ns = now_ns.max(round_ns + 1);
        }
        let passed_ns = u32::try_from(now_ns.saturating_sub(self.began_ns)).unwrap_or(u32::MAX);
        let is_cheap = self.checked_ns > 0 && passed_ns.saturating_sub(self.checked_ns) < CHEAP_NS;
        self.unchecked = if is_cheap { CHEAP_REQUESTS - 1 } else { 0 };
        self.checked_ns = passed_ns.max(1);
        u64::from(passed_ns) > TURN_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the size of a turn after many turns in which each KiB took `ns_per_kib`.
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

    /// Returns the number of requests of this length begun in a round, and of readings of the
    /// clock.
    fn begun(request_ns: u64) -> (u64, u64) {
        let (mut slice, mut requests, mut looks) = (Slice::default(), 0, 0);
        let mut is_used_up = |requests: u64| {
            slice.is_used_up(5, || {
                looks += 1;
                5 + requests * request_ns
            })
        };
        while !is_used_up(requests) {
            requests += 1;
        }
        (requests, looks)
    }

    #[test]
    fn a_slice_bounds_what_is_begun_of_what_has_come_together() {
        assert_eq!(begun(1_000_000_000).0, 2);
        assert_eq!(begun(TURN_NS / 10).0, 12);
        let (requests, looks) = begun(500);
        assert!((400..=420).contains(&requests), "{requests}");
        assert!(looks < 60, "{looks}");
        let mut slice = Slice::default();
        assert!(!slice.is_used_up(5, || 5) && !slice.is_used_up(5, || 6));
        assert!(slice.is_used_up(5, || 7 + TURN_NS));
        assert!(!slice.is_used_up(7 + TURN_NS, || unreachable!("the first of a round")));
    }

    #[test]
    fn a_round_has_one_turn_for_all() {
        let mut turn = Turn::default();
        turn.note(u64::MAX, TURN_NS);
        turn.use_up();
        assert!(!turn.is_over(), "there are no rounds");
        turn.begin_round();
        turn.note(turn.bytes() - 1, TURN_NS);
        assert!(!turn.is_over());
        turn.note(1, TURN_NS);
        assert!(turn.is_over());
        turn.begin_round();
        assert!(!turn.is_over());
        turn.use_up();
        assert!(turn.is_over());
    }
}
