//! Announcements of overloads for the operator's log: when one begins, and when it has ended.

use std::fmt;

use super::history::History;
use super::sample::Sample;
use super::sentence::{OVERLOADED_MIN, count, rate};

/// Time between two messages, seconds; and without refusals, until an overload has ended.
const PAUSE_S: f64 = 10.0;

/// Count of what came, and of what was refused of it.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    refused: f64,
    offered: f64,
}

/// An overload that has been announced.
#[derive(Clone, Copy, Debug, Default)]
struct Overload {
    began_s: f64,
    /// End of the last second in which something was refused.
    refused_s: f64,
    /// Count up to that second.
    tally: Tally,
    /// Count since then, which is the overload's only if something is refused again before its end.
    since: Tally,
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasted_s = rate(self.refused_s - self.began_s);
        write!(f, "the overload has ended after {lasted_s} s: ")?;
        match count(self.tally.refused).as_str() {
            "0" => write!(f, "what was refused is not counted."),
            refused => write!(f, "{refused} of {} were refused.", count(self.tally.offered)),
        }
    }
}

impl Overload {
    /// Adds a sample. `refuses`: it is one in which something is refused.
    fn add(&mut self, sample: &Sample, refuses: bool) {
        self.since.refused += sample.refused_of_load() * sample.seconds;
        self.since.offered += sample.offered() * sample.seconds;
        if refuses {
            let Tally { refused, offered } = std::mem::take(&mut self.since);
            self.tally.refused += refused;
            self.tally.offered += offered;
            self.refused_s = sample.elapsed_s;
        }
    }
}

/// Tells overloads from the samples of a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announcer {
    /// The present overload.
    overload: Option<Overload>,
    /// Time of the last message, seconds since the server's start.
    said_s: Option<f64>,
}

impl Announcer {
    /// Takes note of the last sample of a history; returns the message that is due.
    pub fn note(&mut self, history: &History) -> Option<String> {
        let sample = history.last()?;
        let now_s = sample.elapsed_s;
        // The sentence is about the last seconds, and the last one may be calm again.
        let refusing = history.overload().filter(|_| refuses(sample));
        let may_say = self.said_s.is_none_or(|said_s| now_s - said_s >= PAUSE_S);
        let Some(overload) = &mut self.overload else {
            let sentence = refusing.filter(|_| may_say)?;
            let mut overload = Overload { began_s: now_s - sample.seconds, ..Overload::default() };
            overload.add(sample, true);
            self.overload = Some(overload);
            self.said_s = Some(now_s);
            return Some(format!("an overload begins. {}", sentence.text));
        };
        overload.add(sample, refusing.is_some());
        let ended = *overload;
        if now_s - ended.refused_s < PAUSE_S || !may_say {
            return None;
        }
        self.overload = None;
        self.said_s = Some(now_s);
        Some(format!("{ended} {}", history.sentence().text))
    }
}

/// Returns whether something is refused in a sample because of load, as far as is known.
fn refuses(sample: &Sample) -> bool {
    sample.refused_of_load() > 0.0 || sample.overloaded >= OVERLOADED_MIN
}
