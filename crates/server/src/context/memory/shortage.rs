//! The sentences about a lack of memory: one when it begins, one when it is over.

use std::time::{Duration, Instant};

/// Time for which there must have been enough before a shortage counts as over, so that one that
/// comes and goes is told once.
const QUIET: Duration = Duration::from_secs(10);

/// The state that was told last.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Time at which memory was last short; `None` once it was told that this is over.
    last: Option<Instant>,
}

impl Shortage {
    /// Returns the sentence that is due, if there is one. `is_short`: connections have to give way
    /// or had to since the last look. `limit` and `used` are in bytes.
    pub(crate) fn sentence(
        &mut self,
        now: Instant,
        is_short: bool,
        (limit, used): (u64, u64),
    ) -> Option<String> {
        let figures = format!("{} of {} MiB are in use (--memory)", used >> 20, limit >> 20);
        if is_short {
            let is_new = self.last.replace(now).is_none();
            let what = "idle connections are closed, and others refused if that is not enough";
            return is_new.then(|| format!("memory is short: {figures}; {what}"));
        }
        let is_over = now.duration_since(self.last?) >= QUIET;
        is_over.then(|| {
            self.last = None;
            format!("memory is no longer short: {figures}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_told_when_it_begins_and_when_it_is_over_however_often_it_returns_between() {
        let (mut shortage, start) = (Shortage::default(), Instant::now());
        let mut at = |seconds, is_short| {
            let now = start + Duration::from_secs(seconds);
            shortage.sentence(now, is_short, (64 << 20, 60 << 20)).unwrap_or_default()
        };
        assert_eq!(at(0, false), "");
        assert!(at(1, true).starts_with("memory is short: 60 of 64 MiB"));
        assert_eq!([at(2, true), at(3, false), at(12, true), at(21, false)], [""; 4]);
        assert!(at(22, false).starts_with("memory is no longer short: 60 of 64 MiB"));
        assert_eq!(at(40, false), "");
        assert!(at(41, true).starts_with("memory is short"));
    }
}
