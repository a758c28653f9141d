//! How far away callers are. Knows nothing of what that is for.
//!
//! The kernel tells the round trip of a handshake, but counts from the first of its packets: when
//! its last was dropped and sent again, a caller next door seems far away. So it is the shortest
//! of several that counts.

/// How many handshakes are looked at together.
const TOGETHER: u32 = 16;

/// The round trip of the nearest of the last sixteen to thirty-two callers looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distance {
    before_ns: u64,
    least_ns: u64,
    seen: u32,
}

impl Default for Distance {
    /// Next door.
    fn default() -> Self {
        Self { before_ns: 0, least_ns: u64::MAX, seen: 0 }
    }
}

impl Distance {
    /// One more handshake.
    pub(super) fn see(&mut self, rtt_ns: u64) {
        self.least_ns = self.least_ns.min(rtt_ns);
        self.seen += 1;
        if self.seen == TOGETHER {
            *self = Self { before_ns: self.least_ns, ..Self::default() };
        }
    }

    /// The round trip, nanoseconds.
    pub(super) fn rtt_ns(&self) -> u64 {
        self.before_ns.min(self.least_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_of_several_counts() {
        let mut distance = Distance::default();
        assert_eq!(distance.rtt_ns(), 0);
        for seen in 0..200 {
            distance.see(if seen % 8 == 0 { 100_000 } else { 200_000_000 });
        }
        assert_eq!(distance.rtt_ns(), 100_000);
        (0..TOGETHER * 2).for_each(|_| distance.see(50_000_000));
        assert_eq!(distance.rtt_ns(), 50_000_000);
        distance.see(80_000);
        assert_eq!(distance.rtt_ns(), 80_000);
    }
}
