//! Announcements of overloads for the operator's log: when one begins, and when it has ended.

use std::fmt;

use super::history::History;
use super::sample::Sample;
use super::sentence::{count, rate};

/// Time between two messages, seconds; and without refusals, until an overload has ended.
const PAUSE_S: f64 = 10.0;

/// An overload that has been announced.
#[derive(Clone, Copy, Debug, Default)]
struct Overload {
    began_s: f64,
    /// End of the last second in which something was refused.
    refused_s: f64,
    refused: f64,
    offered: f64,
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lasted_s = rate(self.refused_s - self.began_s);
        write!(f, "the overload has ended after {lasted_s} s: ")?;
        match count(self.refused).as_str() {
            "0" => write!(f, "what was refused is not counted."),
            refused => write!(f, "{refused} of {} were refused.", count(self.offered)),
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
        let (now_s, refusing) = (sample.elapsed_s, history.overload());
        let may_say = self.said_s.is_none_or(|said_s| now_s - said_s >= PAUSE_S);
        let Some(overload) = &mut self.overload else {
            let sentence = refusing.filter(|_| may_say)?;
            let began_s = now_s - sample.seconds;
            self.overload = Some(Overload { began_s, refused_s: now_s, ..Overload::default() });
            self.add(sample);
            self.said_s = Some(now_s);
            return Some(format!("an overload begins. {}", sentence.text));
        };
        if refusing.is_some() {
            overload.refused_s = now_s;
        }
        let ended = *overload;
        self.add(sample);
        if now_s - ended.refused_s < PAUSE_S || !may_say {
            return None;
        }
        self.overload = None;
        self.said_s = Some(now_s);
        Some(format!("{ended} {}", history.sentence().text))
    }

    fn add(&mut self, sample: &Sample) {
        if let Some(overload) = &mut self.overload {
            overload.refused += sample.refused_of_load() * sample.seconds;
            overload.offered += sample.offered() * sample.seconds;
        }
    }
}
