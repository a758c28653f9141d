//! Packets under way, by the time at which they arrive.

use std::collections::BTreeMap;

/// Packets that have left and not yet arrived.
#[derive(Clone, Debug)]
pub struct UnderWay<T> {
    /// By time of arrival, nanoseconds, and order of departure.
    packets: BTreeMap<(u64, u64), T>,
    departed: u64,
}

impl<T> Default for UnderWay<T> {
    fn default() -> Self {
        Self { packets: BTreeMap::new(), departed: 0 }
    }
}

impl<T> UnderWay<T> {
    /// Adds a packet that arrives at `at_ns`, behind those that arrive then too and left before.
    pub fn add(&mut self, at_ns: u64, packet: T) {
        self.departed += 1;
        self.packets.insert((at_ns, self.departed), packet);
    }

    /// Returns the time of the next arrival, nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.packets.keys().next().map(|(at_ns, _)| *at_ns)
    }

    /// Removes and returns the next packet that has arrived by `now_ns`.
    pub fn take_due(&mut self, now_ns: u64) -> Option<T> {
        let first = self.packets.first_entry().filter(|first| first.key().0 <= now_ns)?;
        Some(first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_arrive_by_time_and_then_in_the_order_in_which_they_left() {
        let mut under_way = UnderWay::default();
        for (at_ns, packet) in [(7, 'c'), (3, 'a'), (7, 'd'), (5, 'b')] {
            under_way.add(at_ns, packet);
        }
        assert_eq!((under_way.next_ns(), under_way.take_due(2)), (Some(3), None));
        let all: String = std::iter::from_fn(|| under_way.take_due(7)).collect();
        assert_eq!((all.as_str(), under_way.next_ns()), ("abcd", None));
    }
}
