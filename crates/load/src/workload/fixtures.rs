//! The sessions of a workload, for the tests of all workloads.

use crate::config::Workload;
use crate::session::{RequestTable, Session, SessionStep};

/// Returns the sessions of the arrivals numbered `arrivals`.
pub(super) fn filled(workload: &dyn Workload, arrivals: std::ops::Range<u64>) -> Vec<Session> {
    let mut source = workload.source(1);
    arrivals
        .map_while(|arrival| {
            let mut session = Session::default();
            source.fill(arrival, &mut session).then_some(session)
        })
        .collect()
}

/// Returns the target of each step, prefixed with `+` if the step is pipelined.
pub(super) fn targets(requests: &RequestTable, session: &Session) -> Vec<String> {
    let target = |step: &SessionStep| {
        let request = str::from_utf8(&requests.get(step.request).unwrap().keep).unwrap();
        let target = request.split(' ').nth(1).unwrap();
        format!("{}{target}", if step.piped { "+" } else { "" })
    };
    session.steps.iter().map(target).collect()
}
