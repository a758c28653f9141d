//! The access log of a made-up day of a busy proxy, for `--replay`: how many requests each second
//! has, which objects they name, and how long these are. A function of its seed.
//!
//! The laws are those that measurements of proxies found; each has its source beside it.

mod curve;
mod objects;

use std::io::{self, Write};

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use objects::{Picker, bytes_of};

/// Hosts from which requests come: those of Digital's proxy (banga-scalable §6).
const HOSTS: u32 = 5570;

/// A day: its log is written line by line and never in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day {
    /// Number of requests.
    pub requests: u64,
    /// Number of objects that they may name.
    pub objects: u32,
    /// Seed of all random draws but the objects' lengths, which are the same in every day.
    pub seed: u64,
}

impl Day {
    /// Writes the log, in the Common Log Format.
    ///
    /// # Errors
    /// Any error of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let mut picker = Picker::new(self.objects);
        let counts = curve::counts(self.requests, SplitMix64::seed_from_u64(self.seed).next_u64());
        for (second, count) in (0_u32..).zip(counts) {
            let (hour, minute) = (second / 3600, second / 60 % 60);
            let clock = format!("{hour:02}:{minute:02}:{:02}", second % 60);
            for _ in 0..count {
                let object = picker.pick(&mut chance);
                let host = chance.random_range(0..HOSTS);
                let [high, low] = [host / 250, host % 250 + 1];
                let bytes = bytes_of(object);
                writeln!(
                    out,
                    "10.16.{high}.{low} - - [16/Apr/1998:{clock} +0000] \
                     \"GET /objects/{object} HTTP/1.0\" 200 {bytes}"
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(day: Day) -> String {
        let mut out = Vec::new();
        day.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_day_is_a_log_that_can_be_replayed_and_depends_on_its_seed() {
        use crate::session::RequestTemplate;
        use crate::workload::replay;

        let day = Day { requests: 5000, objects: 300, seed: 1 };
        let log = text(day);
        assert_eq!(log, text(day));
        assert_ne!(log, text(Day { seed: 2, ..day }));
        let template = RequestTemplate::default();
        let replay = replay::parse("day", log.as_bytes(), 1000.0, &template, true).unwrap();
        assert_eq!((replay.counts.total, replay.counts.skipped), (5000, 0));
        assert!(replay.built.requests.len() <= 300);
    }

    #[test]
    fn an_object_has_the_same_length_in_every_day() {
        let lengths = |seed| {
            let log = text(Day { requests: 3000, objects: 20, seed });
            let pairs = log.lines().filter_map(|line| {
                let mut words = line.split(' ').skip(6);
                Some((words.next()?.to_owned(), words.nth(2)?.to_owned()))
            });
            pairs.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(lengths(1).len(), 20);
        assert_eq!(lengths(1), lengths(2));
    }
}
