//! Requests sent a piece at a time: the size of a piece, and the queue of connections by due time.
//! Independent of sockets and of the data sent.

use std::collections::VecDeque;

/// The shortest interval between pieces.
pub(super) const TICK_NS: u64 = 100_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// A pace in whole pieces: one per tick, or less often where a tick is worth less than one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Interval between pieces.
    pub(super) gap_ns: u64,
    /// Bytes per piece, at least 1.
    pub(super) bytes: usize,
}

impl Pace {
    /// Returns the pace of `bytes_per_s`, which counts as 1 if it is 0.
    pub(super) fn of(bytes_per_s: u64) -> Self {
        let gap_ns = TICK_NS.max(SECOND_NS / bytes_per_s.max(1));
        let bytes = bytes_per_s.saturating_mul(gap_ns) / SECOND_NS;
        Self { gap_ns, bytes: usize::try_from(bytes).unwrap_or(usize::MAX).max(1) }
    }
}

/// The connections of a thread that wait for the due time of their next piece.
#[derive(Debug)]
pub(super) struct Pieces {
    /// `None` if nothing is sent in pieces.
    pace: Option<Pace>,
    /// Bytes that may be sent as soon as the connection is established.
    first: usize,
    /// Due time, slot and generation of the slot's socket, by due time.
    waiting: VecDeque<(u64, u32, u32)>,
}

impl Pieces {
    /// Creates the queue for requests sent at `bytes_per_s`; `Some(0)`: never sent; `None`: sent at
    /// full speed.
    pub(super) fn new(bytes_per_s: Option<u64>) -> Self {
        let pace = bytes_per_s.filter(|bytes| *bytes > 0).map(Pace::of);
        let first = match bytes_per_s {
            None => usize::MAX,
            Some(_) => pace.map_or(0, |pace| pace.bytes),
        };
        Self { pace, first, waiting: VecDeque::new() }
    }

    /// Returns the bytes of a request that may be sent as soon as the connection is established.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// Returns the further bytes that may be sent when the next piece is due.
    pub(super) fn more(&self) -> usize {
        self.pace.map_or(0, |pace| pace.bytes)
    }

    /// Queues a connection that has sent what it may, until its next piece, if there is one.
    pub(super) fn wait(&mut self, now_ns: u64, slot: u32, generation: u32) {
        if let Some(pace) = self.pace {
            // All wait equally long, so the first in is the first out.
            self.waiting.push_back((now_ns.saturating_add(pace.gap_ns), slot, generation));
        }
    }

    /// Returns the time at which the next piece is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.waiting.front().map(|(at_ns, ..)| *at_ns)
    }

    /// Removes and returns the slot and generation of a connection whose piece is due.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<(u32, u32)> {
        let (_, slot, generation) = self.waiting.pop_front_if(|(at_ns, ..)| *at_ns <= now_ns)?;
        Some((slot, generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_a_tick_s_worth_or_one_byte() {
        assert_eq!(Pace::of(1000), Pace { gap_ns: TICK_NS, bytes: 100 });
        assert_eq!(Pace::of(10), Pace { gap_ns: TICK_NS, bytes: 1 });
        assert_eq!(Pace::of(2), Pace { gap_ns: SECOND_NS / 2, bytes: 1 });
        assert_eq!(Pace::of(0), Pace { gap_ns: SECOND_NS, bytes: 1 });
        assert_eq!(Pace::of(u64::MAX).gap_ns, TICK_NS);
    }

    #[test]
    fn what_is_sent_at_once_or_never_has_no_next_piece() {
        for (pace, first) in [(None, usize::MAX), (Some(0), 0)] {
            let mut pieces = Pieces::new(pace);
            assert_eq!((pieces.first(), pieces.more()), (first, 0));
            pieces.wait(5, 1, 1);
            assert_eq!((pieces.next_ns(), pieces.due(u64::MAX)), (None, None));
        }
    }

    #[test]
    fn pieces_are_due_in_turn_a_gap_after_the_one_before() {
        let mut pieces = Pieces::new(Some(5));
        assert_eq!((pieces.first(), pieces.more()), (1, 1));
        pieces.wait(10, 7, 1);
        pieces.wait(20, 8, 2);
        assert_eq!(pieces.next_ns(), Some(200_000_010));
        assert_eq!(pieces.due(200_000_009), None);
        assert_eq!(pieces.due(200_000_010), Some((7, 1)));
        assert_eq!(pieces.due(200_000_010), None);
        assert_eq!(pieces.due(300_000_000), Some((8, 2)));
    }
}
