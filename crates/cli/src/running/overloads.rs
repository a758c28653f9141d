//! Messages to the error log on overloads: a sentence when one begins, and one when it has ended,
//! by a reading of the server's own page each second.

use std::time::{Duration, Instant};

use weir_observe::OwnPage;
use weir_stats::live::{Announcer, History, Reading};

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The watch over a server's page.
pub(super) struct Overloads {
    page: OwnPage,
    history: History,
    announcer: Announcer,
    due: Instant,
}

impl Overloads {
    /// Begins to watch a page.
    pub(super) fn watch(page: OwnPage) -> Self {
        let (history, announcer) = (History::default(), Announcer::default());
        Self { page, history, announcer, due: Instant::now() }
    }

    /// Returns the time of the next reading.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Reads the page if it is time; returns the sentence that is due. A page that cannot be read
    /// is read a second later.
    pub(super) fn check(&mut self, now: Instant) -> Option<String> {
        if now < self.due {
            return None;
        }
        self.due = now + INTERVAL;
        let snapshot = self.page.published().ok()?;
        let is_sample = self.history.add(Reading::of(&snapshot));
        is_sample.then(|| self.announcer.note(&self.history)).flatten()
    }
}
