//! The sampling of the server: a reading of its page each second, kept as the history of the last
//! minutes; and what the operator's log is told of it.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use weir_stats::live::{Announcer, History, Reading};
use weir_stats::page::Snapshot;

/// Time between two samples, nanoseconds.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Messages that wait for the log. Those beyond are lost: a log that takes nothing holds up no
/// answer.
const MESSAGES_MAX: usize = 4;

/// The history of the server, and its messages.
pub(crate) struct Sampler {
    pub(crate) history: History,
    announcer: Announcer,
    messages: Option<SyncSender<String>>,
    /// Time of the next sample.
    due_ns: u64,
}

impl Sampler {
    /// Creates the sampler of a server. `tell` says a sentence to the operator, in a thread of its
    /// own: whoever reads it may be slow.
    ///
    /// # Errors
    /// There is no thread for it.
    pub(crate) fn start(tell: fn(&str)) -> io::Result<Self> {
        let (messages, waiting) = sync_channel::<String>(MESSAGES_MAX);
        let tell_all = move || waiting.iter().for_each(|message| tell(&message));
        thread::Builder::new().name("admin-log".to_owned()).spawn(tell_all)?;
        Ok(Self { messages: Some(messages), ..Self::silent() })
    }

    /// Creates a sampler that tells nobody.
    pub(crate) fn silent() -> Self {
        let (history, announcer) = (History::default(), Announcer::default());
        Self { history, announcer, messages: None, due_ns: 0 }
    }

    /// Returns the time of the next sample, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Returns whether a sample is due, and sets the time of the next.
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = self.due_ns <= now_ns;
        if is_due {
            // The first, and one after the machine was suspended, begin a rhythm of their own.
            let is_in_time = now_ns - self.due_ns < INTERVAL_NS / 2;
            self.due_ns = INTERVAL_NS + if is_in_time { self.due_ns } else { now_ns };
        }
        is_due
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, snapshot: &Snapshot) {
        if !self.history.add(Reading::of(snapshot)) {
            return;
        }
        let message = self.announcer.note(&self.history);
        if let (Some(message), Some(messages)) = (message, &self.messages) {
            let _ = messages.try_send(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_due_each_second_and_none_is_made_up_for() {
        let mut sampler = Sampler::silent();
        let mut is_due = |ms: u64| sampler.is_due(ms * 1_000_000);
        assert!(is_due(500) && !is_due(1499) && is_due(1510) && !is_due(2499) && is_due(2500));
        assert!(is_due(9000) && !is_due(9999) && is_due(10_000));
    }
}
