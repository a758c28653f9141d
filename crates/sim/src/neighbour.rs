//! A competing process on the core. It runs in bursts, during which it and the loop alternate in
//! scheduler slices. The kernel's work for packets is not affected.

/// A competing process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Mean share of the core it takes, 0 to 1.
    pub share: f64,
    /// Processor time it takes per burst, nanoseconds.
    pub burst_ns: u64,
    /// Length of a scheduler slice, nanoseconds: the process and the loop alternate in such slices
    /// until the burst is over. With a slice as long as the burst, the loop waits for all of it.
    pub slice_ns: u64,
}

impl Neighbour {
    /// Returns the elapsed time the loop needs for work that starts now.
    pub(crate) fn stretch(&self, now_ns: u64, work_ns: u64) -> u64 {
        let (mut at_ns, mut left_ns) = (now_ns, work_ns);
        while left_ns > 0 {
            let (theirs, until_ns) = self.whose(at_ns);
            let span_ns = until_ns - at_ns;
            if theirs {
                at_ns = until_ns;
            } else {
                let worked_ns = left_ns.min(span_ns);
                (at_ns, left_ns) = (at_ns + worked_ns, left_ns - worked_ns);
            }
        }
        at_ns - now_ns
    }

    /// Returns whether the core belongs to the neighbour, and until when that holds.
    fn whose(&self, at_ns: u64) -> (bool, u64) {
        let period_ns = ((self.burst_ns as f64 / self.share) as u64).max(2 * self.burst_ns);
        let slice_ns = self.slice_ns.min(self.burst_ns).max(1);
        let begin_ns = at_ns - at_ns % period_ns;
        let into_ns = at_ns - begin_ns;
        // Its slices, each followed by one of the loop's.
        let slices = self.burst_ns.div_ceil(slice_ns);
        if into_ns >= 2 * slices * slice_ns {
            return (false, begin_ns + period_ns.max(into_ns + 1));
        }
        let slice = into_ns / slice_ns;
        (slice.is_multiple_of(2), begin_ns + (slice + 1) * slice_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn work_takes_as_long_as_the_neighbour_leaves_of_the_core() {
        let neighbour = Neighbour { share: 0.25, burst_ns: 50 * MS, slice_ns: 5 * MS };
        // A period of 200 ms: 100 are shared, 100 are the loop's.
        assert_eq!(neighbour.stretch(0, 150 * MS), 200 * MS);
        assert_eq!(neighbour.stretch(0, 5 * MS), 10 * MS);
        assert_eq!(neighbour.stretch(5 * MS, 5 * MS), 5 * MS);
        assert_eq!(neighbour.stretch(100 * MS, 100 * MS), 100 * MS);
        assert_eq!(neighbour.stretch(100 * MS, 101 * MS), 106 * MS);
    }

    #[test]
    fn a_slice_as_long_as_the_burst_stops_the_loop() {
        let neighbour = Neighbour { share: 0.3, burst_ns: 50 * MS, slice_ns: 50 * MS };
        assert_eq!(neighbour.stretch(0, MS), 51 * MS);
    }
}
