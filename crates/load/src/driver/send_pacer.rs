//! Requests sent at a limited rate: the size of a part, and the queue of connections by the due
//! time of their next part. Independent of sockets and of the data sent.

use std::collections::VecDeque;

/// The shortest interval between parts.
pub(super) const TICK_NS: u64 = 100_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// A send or read rate in whole parts: one per tick, or less often where a tick is worth less than
/// one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartRate {
    /// Interval between parts.
    pub(super) interval_ns: u64,
    /// Bytes per part, at least 1.
    pub(super) bytes: usize,
}

impl PartRate {
    /// Creates the rate of `bytes_per_s`, which counts as 1 if it is 0.
    pub(super) fn new(bytes_per_s: u64) -> Self {
        let interval_ns = TICK_NS.max(SECOND_NS / bytes_per_s.max(1));
        let bytes = bytes_per_s.saturating_mul(interval_ns) / SECOND_NS;
        Self { interval_ns, bytes: usize::try_from(bytes).unwrap_or(usize::MAX).max(1) }
    }
}

/// Identifies a socket of a thread: its slot, and the number of sockets the slot has had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketId {
    /// Slot of the connection.
    pub(super) slot: u32,
    /// Number of earlier sockets of the slot, modulo 2^32.
    pub(super) generation: u32,
}

/// The connections of a thread that wait for the due time of their next part.
#[derive(Debug)]
pub(super) struct SendPacer {
    /// `None` if nothing is sent in parts.
    rate: Option<PartRate>,
    /// Bytes of a request that may be sent as soon as the connection is established.
    pub(super) first_bytes: usize,
    /// Due times and sockets, by due time.
    waiting: VecDeque<(u64, SocketId)>,
}

impl SendPacer {
    /// Creates the queue for requests sent at `bytes_per_s`; `Some(0)`: never sent; `None`: sent at
    /// full speed.
    pub(super) fn new(bytes_per_s: Option<u64>) -> Self {
        let rate = bytes_per_s.filter(|bytes| *bytes > 0).map(PartRate::new);
        let first_bytes = match bytes_per_s {
            None => usize::MAX,
            Some(_) => rate.map_or(0, |rate| rate.bytes),
        };
        Self { rate, first_bytes, waiting: VecDeque::new() }
    }

    /// Returns the further bytes that may be sent when the next part is due.
    pub(super) fn part_bytes(&self) -> usize {
        self.rate.map_or(0, |rate| rate.bytes)
    }

    /// Queues a connection that has sent what it may, until its next part, if there is one.
    pub(super) fn wait(&mut self, now_ns: u64, socket: SocketId) {
        if let Some(rate) = self.rate {
            // All wait equally long, so the first in is the first out.
            self.waiting.push_back((now_ns.saturating_add(rate.interval_ns), socket));
        }
    }

    /// Returns the time at which the next part is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.waiting.front().map(|(due_ns, _)| *due_ns)
    }

    /// Removes and returns a connection whose next part is due.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<SocketId> {
        self.waiting.pop_front_if(|(due_ns, _)| *due_ns <= now_ns).map(|(_, socket)| socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_tick_s_worth_or_one_byte() {
        let rate = |interval_ns, bytes| PartRate { interval_ns, bytes };
        assert_eq!(PartRate::new(1000), rate(TICK_NS, 100));
        assert_eq!(PartRate::new(10), rate(TICK_NS, 1));
        assert_eq!(PartRate::new(2), rate(SECOND_NS / 2, 1));
        assert_eq!(PartRate::new(0), rate(SECOND_NS, 1));
        assert_eq!(PartRate::new(u64::MAX).interval_ns, TICK_NS);
    }

    #[test]
    fn a_request_sent_at_once_or_never_has_no_next_part() {
        for (rate, first_bytes) in [(None, usize::MAX), (Some(0), 0)] {
            let mut sends = SendPacer::new(rate);
            assert_eq!((sends.first_bytes, sends.part_bytes()), (first_bytes, 0));
            sends.wait(5, SocketId { slot: 1, generation: 1 });
            assert_eq!((sends.next_ns(), sends.take_due(u64::MAX)), (None, None));
        }
    }

    #[test]
    fn parts_are_due_in_order_an_interval_after_the_one_before() {
        let [first, second] =
            [(7, 1), (8, 2)].map(|(slot, generation)| SocketId { slot, generation });
        let mut sends = SendPacer::new(Some(5));
        assert_eq!((sends.first_bytes, sends.part_bytes()), (1, 1));
        sends.wait(10, first);
        sends.wait(20, second);
        assert_eq!(sends.next_ns(), Some(200_000_010));
        assert_eq!(sends.take_due(200_000_009), None);
        assert_eq!(sends.take_due(200_000_010), Some(first));
        assert_eq!(sends.take_due(200_000_010), None);
        assert_eq!(sends.take_due(300_000_000), Some(second));
    }
}
