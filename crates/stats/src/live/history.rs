//! The history of a server: a sample for each of the last seconds, in bounded memory.

use std::collections::VecDeque;

use super::reading::Reading;
use super::sample::Sample;
use super::sentence::Sentence;
use crate::page::UpstreamState;

/// Maximum number of samples: those of 15 minutes, at one per second.
pub const SAMPLES_MAX: usize = 900;

/// Readings kept, and so one more than the samples over which the sentence is: a client repeats a
/// SYN after a second, and whole seconds differ.
const READINGS_MAX: usize = 4;

/// The last minutes of a server, by readings at intervals that the caller keeps to.
#[derive(Debug, Default)]
pub struct History {
    /// The last readings, the oldest first.
    readings: VecDeque<Reading>,
    samples: VecDeque<Sample>,
    /// Number of samples since the beginning.
    taken: u64,
}

impl History {
    /// Adds a reading; with one before it there is another sample. Returns whether there is one.
    pub fn add(&mut self, reading: Reading) -> bool {
        let last = self.readings.back().filter(|last| last.taken_ns < reading.taken_ns);
        let sample = last.map(|last| Sample::between(last, &reading));
        if self.readings.len() == READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
        let Some(sample) = sample else { return false };
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.taken += 1;
        true
    }

    /// Returns the samples, the oldest first.
    pub fn samples(&self) -> impl DoubleEndedIterator<Item = &Sample> + ExactSizeIterator {
        self.samples.iter()
    }

    /// Returns the number of samples since the beginning, which is that of the next one.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the last sample.
    pub fn last(&self) -> Option<&Sample> {
        self.samples.back()
    }

    /// Returns the last sample of each worker, with its index.
    pub fn workers(&self) -> Vec<(u64, Sample)> {
        let [Some(before), Some(now)] = [1, 0].map(|back| self.reading(back)) else {
            return Vec::new();
        };
        Sample::of_workers(before, now)
    }

    /// Returns the state of each upstream.
    pub fn upstreams(&self) -> &[UpstreamState] {
        self.readings.back().map_or(&[], |last| &last.upstreams)
    }

    /// Returns what is to be said of the last seconds.
    pub fn sentence(&self) -> Sentence {
        let last_seconds = self.last_seconds();
        last_seconds.map_or_else(Sentence::unknown, |(sample, last)| Sentence::of(&sample, last))
    }

    /// Returns what is to be said of an overload in the last seconds: connections or requests are
    /// refused because of load; `None` without one. Lack of memory is none.
    pub fn overload(&self) -> Option<Sentence> {
        let (sample, last) = self.last_seconds()?;
        Sentence::of_overload(&sample, last)
    }

    /// Returns a sample of all readings that are kept, with the last of these.
    fn last_seconds(&self) -> Option<(Sample, &Reading)> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        (first.taken_ns != last.taken_ns).then(|| (Sample::between(first, last), last))
    }

    /// Returns the reading that is so many before the last.
    fn reading(&self, back: usize) -> Option<&Reading> {
        self.readings.iter().nth_back(back)
    }
}
