//! The policy of compression: how much work to put into a form, by the processor time that is to
//! spare. Pure: times in, a level out.
//!
//! The thread that compresses runs only while a processor has nothing else to do. So the part of
//! the time that it wanted to run in which it did run is the part of a processor that is free, in
//! every architecture and beside any other program.

/// Work put into a form. A higher level makes a smaller form and takes longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As fast as the coding can be.
    #[default]
    Fast,
    /// As compressors do by default.
    Normal,
    /// For a form that is made once and sent many times.
    Best,
}

/// Time after which what was seen counts half, nanoseconds.
const HALF_NS: u64 = 500_000_000;

/// Share of a processor that is free, from which on the level is at least normal.
const NORMAL_FROM: f64 = 0.4;

/// Share of a processor that is free, from which on the level is the best.
const BEST_FROM: f64 = 0.8;

/// The processor time to spare, as the thread that compresses has found it of late.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpareTime {
    /// Time in which the thread wanted to run and did, and all in which it wanted to.
    ran_ns: f64,
    wanted_ns: f64,
    noted_at_ns: u64,
}

impl SpareTime {
    /// Records that the thread has wanted to run for `wanted_ns` until `now_ns`, and did for
    /// `ran_ns` of it.
    pub fn note(&mut self, now_ns: u64, ran_ns: u64, wanted_ns: u64) {
        let halves = now_ns.saturating_sub(self.noted_at_ns) as f64 / HALF_NS as f64;
        let kept = 0.5_f64.powf(halves);
        self.ran_ns = self.ran_ns * kept + ran_ns as f64;
        self.wanted_ns = self.wanted_ns * kept + wanted_ns.max(ran_ns) as f64;
        self.noted_at_ns = now_ns;
    }

    /// Returns the level to compress at: the lowest while nothing is known.
    pub fn level(&self) -> Level {
        if self.wanted_ns <= 0.0 {
            return Level::Fast;
        }
        match self.ran_ns / self.wanted_ns {
            share if share >= BEST_FROM => Level::Best,
            share if share >= NORMAL_FROM => Level::Normal,
            _ => Level::Fast,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_level_falls_as_less_of_a_processor_is_free() {
        let level = |ran_ns| {
            let mut spare = SpareTime::default();
            spare.note(MS, ran_ns, MS);
            spare.level()
        };
        assert_eq!(SpareTime::default().level(), Level::Fast);
        assert_eq!(level(MS), Level::Best);
        assert_eq!(level(MS / 2), Level::Normal);
        assert_eq!(level(MS / 4), Level::Fast);
        assert_eq!(level(0), Level::Fast);
    }

    #[test]
    fn what_was_seen_long_ago_does_not_count() {
        let mut spare = SpareTime::default();
        spare.note(MS, 100 * MS, 100 * MS);
        spare.note(20 * HALF_NS, MS / 10, MS);
        assert_eq!(spare.level(), Level::Fast);
        spare.note(40 * HALF_NS, MS, MS);
        assert_eq!(spare.level(), Level::Best);
    }

    #[test]
    fn a_short_run_by_chance_does_not_outweigh_a_long_wait() {
        let mut spare = SpareTime::default();
        spare.note(100 * MS, MS, 100 * MS);
        spare.note(101 * MS, MS, MS);
        assert_eq!(spare.level(), Level::Fast);
    }

    #[test]
    fn a_clock_that_runs_faster_than_the_other_does_no_harm() {
        let mut spare = SpareTime::default();
        spare.note(MS, 2 * MS, MS);
        spare.note(0, MS, MS);
        assert_eq!(spare.level(), Level::Best);
    }
}
