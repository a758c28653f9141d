//! The workloads of httperf: sessions in bursts with think times, and lists of URIs. Each is in a
//! file named after the option of httperf(1).
//!
//! Options have httperf's syntax. Files are parsed from their bytes, which the caller reads; errors
//! name the file and line.

use std::sync::Arc;

use super::built::ClonedSource;
use crate::config::Workload;
use crate::session::{RequestId, Session, SessionSource, SessionStep};

mod wlog;
mod wsess;
mod wsesslog;
mod wset;

pub use wlog::Wlog;
pub use wsess::Wsess;
pub use wsesslog::{SessionLog, Wsesslog};
pub use wset::Wset;

/// A table of sessions that are known in advance.
#[derive(Default)]
pub(super) struct SessionTable {
    steps: Vec<SessionStep>,
    ends: Vec<usize>,
}

impl SessionTable {
    /// Adds a session.
    pub(super) fn push(&mut self, steps: impl IntoIterator<Item = SessionStep>) {
        self.steps.extend(steps);
        self.ends.push(self.steps.len());
    }

    /// Builds the workload that plays the sessions in turn, `sessions` in total.
    pub(super) fn into_workload(self, sessions: u64, close: bool) -> Arc<dyn Workload> {
        Arc::new(ClonedSource(TableSource { table: Arc::new(self), sessions, close }))
    }

    fn session(&self, index: usize) -> Option<&[SessionStep]> {
        let start =
            index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.steps.get(start..*self.ends.get(index)?)
    }
}

#[derive(Clone)]
struct TableSource {
    table: Arc<SessionTable>,
    sessions: u64,
    close: bool,
}

impl SessionSource for TableSource {
    fn fill(&mut self, arrival: u64, session: &mut Session) -> bool {
        if arrival >= self.sessions {
            return false;
        }
        let index = arrival.checked_rem(self.table.ends.len() as u64);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let Some(steps) = index.and_then(|index| self.table.session(index)) else { return false };
        session.steps.extend_from_slice(steps);
        session.last_closes = self.close;
        true
    }
}

/// Creates a request of a burst; `think_ns` applies to the first. The first request is sent alone;
/// after its reply the others are sent together, as a browser does with a page and its resources.
fn burst_step(position: usize, request: RequestId, think_ns: u64) -> SessionStep {
    SessionStep {
        request,
        think_ns: if position == 0 { think_ns } else { 0 },
        piped: position >= 2,
    }
}

/// Parses seconds; returns nanoseconds.
fn seconds_ns(text: &str) -> Option<u64> {
    let seconds: f64 = text.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then(|| (seconds * 1e9).round() as u64)
}

/// Creates the error for an option that does not have the expected form.
fn usage(given: &str, expected: &str) -> String {
    format!("{given} is not {expected}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::RequestTemplate;
    use crate::workload::fixtures::filled;
    use crate::workload::simple::SessionShape;

    proptest! {
        #[test]
        fn no_option_makes_a_parser_panic(text in "[0-9yn,./e-]{0,12}|\\PC{0,12}") {
            let _ = text.parse::<Wsess>();
            let _ = text.parse::<Wsesslog>();
            let _ = text.parse::<Wlog>();
            let _ = text.parse::<Wset>();
        }

        #[test]
        fn no_file_makes_a_parser_panic(
            text in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                "(/a|/|[ \t\r\n#'\"=x\\\\]|method=GET|think=1|contents=){0,30}"
                    .prop_map(String::into_bytes),
            ],
        ) {
            if let Ok(log) = SessionLog::parse("file", &text) {
                let built = log.build(&RequestTemplate::default(), 3, 0, true);
                let sessions = filled(&*built.workload, 0..9);
                prop_assert_eq!(sessions.len(), 3);
                let known = |step: &SessionStep| built.requests.get(step.request).is_some();
                prop_assert!(sessions.iter().all(|session| session.steps.iter().all(known)));
            }
            let wlog = Wlog { repeat: false, file: "".into() };
            if let Ok(built) =
                wlog.build("file", &text, &RequestTemplate::default(), SessionShape::default())
            {
                prop_assert!(filled(&*built.workload, 0..1000).len() < 1000);
            }
        }
    }

    #[test]
    fn a_table_without_sessions_ends_a_run() {
        assert!(filled(&*SessionTable::default().into_workload(5, true), 0..5).is_empty());
    }
}
