//! The time of a frame's arrival on the run's clock. The kernel stamps frames by the machine's
//! clock, which may be set at any time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::super::clock::Clock;

/// Longest time that a frame is believed to have waited, or to have come after the clocks were
/// read.
const AGE_MAX: Duration = Duration::from_secs(1);

/// The two clocks, read at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// Nanoseconds of the run.
    run_ns: u64,
    /// Time since 1970.
    machine: Duration,
}

impl Clocks {
    /// Reads both.
    pub(super) fn read(clock: Clock) -> Self {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { run_ns: clock.now_ns(), machine }
    }

    /// Returns the time on the run's clock of what the machine's calls `at`. What is too far away
    /// is a clock that was set, and counts as now.
    pub(super) fn run_ns(self, at: Duration) -> u64 {
        let distance = self.machine.abs_diff(at);
        let distance_ns = if distance < AGE_MAX { distance.as_nanos() as u64 } else { 0 };
        if at < self.machine {
            self.run_ns.saturating_sub(distance_ns)
        } else {
            self.run_ns + distance_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_arrived_as_long_before_or_behind_now_as_the_machine_s_clock_says() {
        let machine = Duration::from_secs(1_800_000_000);
        let clocks = Clocks { run_ns: 5_000_000_000, machine };
        let us = Duration::from_micros;
        assert_eq!(clocks.run_ns(machine), 5_000_000_000);
        assert_eq!(clocks.run_ns(machine - us(150)), 4_999_850_000);
        assert_eq!(clocks.run_ns(machine + us(3)), 5_000_003_000);
    }

    #[test]
    fn a_clock_that_was_set_does_not_move_a_frame() {
        let machine = Duration::from_secs(1_800_000_000);
        let clocks = Clocks { run_ns: 7, machine };
        assert_eq!(clocks.run_ns(Duration::from_secs(1_700_000_000)), 7);
        assert_eq!(clocks.run_ns(Duration::from_secs(1_900_000_000)), 7);
        assert_eq!(clocks.run_ns(machine - Duration::from_micros(1)), 0);
    }
}
