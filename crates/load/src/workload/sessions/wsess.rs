//! `--wsess N1,N2,X`: identical sessions.

use std::str::FromStr;

use super::{SessionTable, burst_step, seconds_ns, usage};
use crate::session::{RequestTable, RequestTemplate};
use crate::workload::built::BuiltWorkload;

/// The largest number of calls per session: all are kept in memory.
const CALLS_MAX: u32 = 1_000_000;

/// N1 sessions of N2 calls each, with a think time of X seconds between bursts (httperf(1)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wsess {
    /// Number of sessions in total.
    pub sessions: u64,
    /// Requests per session.
    pub calls: u32,
    /// Think time from the last reply to a burst to the first request of the next, nanoseconds.
    pub think_ns: u64,
}

impl Wsess {
    /// Builds sessions that request `target`, in bursts of `burst_length` (0 counts as 1): the
    /// first request of a burst is sent alone, then the others together. `close`: the last request
    /// of a session asks the server to close.
    pub fn build(
        &self,
        template: &RequestTemplate,
        target: &str,
        burst_length: u32,
        close: bool,
    ) -> BuiltWorkload {
        let mut requests = RequestTable::default();
        let request = requests.push(template.request("GET", target, b""));
        let step = |call: u32| {
            let think_ns = if call == 0 { 0 } else { self.think_ns };
            burst_step((call % burst_length.max(1)) as usize, request, think_ns)
        };
        let mut table = SessionTable::default();
        table.push((0..self.calls).map(step));
        BuiltWorkload { workload: table.into_workload(self.sessions, close), requests }
    }
}

impl FromStr for Wsess {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (sessions, rest) = text.split_once(',')?;
            let (calls, think) = rest.split_once(',')?;
            let calls = calls.parse().ok().filter(|calls| (1..=CALLS_MAX).contains(calls))?;
            let sessions = sessions.parse().ok().filter(|sessions| *sessions > 0)?;
            Some(Self { sessions, calls, think_ns: seconds_ns(think)? })
        };
        parse().ok_or_else(|| {
            let form = "N1,N2,X: sessions (1 or more), calls a session (1 to a million), seconds \
                        of thinking";
            usage(text, form)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::{filled, targets};

    #[test]
    fn the_first_of_a_burst_goes_alone_and_the_rest_together() {
        let wsess: Wsess = "2,8,1.5".parse().unwrap();
        let BuiltWorkload { workload, requests } =
            wsess.build(&RequestTemplate::default(), "/", 4, true);
        let sessions = filled(&*workload, 0..9);
        assert_eq!(sessions.len(), 2);
        assert_eq!(sessions[0], sessions[1]);
        let expected = ["/", "/", "+/", "+/", "/", "/", "+/", "+/"];
        assert_eq!(targets(&requests, &sessions[0]), expected);
        let thinks: Vec<u64> = sessions[0].steps.iter().map(|step| step.think_ns).collect();
        assert_eq!(thinks, [0, 0, 0, 0, 1_500_000_000, 0, 0, 0]);
        assert!(sessions[0].last_closes);
    }

    #[test]
    fn a_burst_of_one_thinks_before_each_request_but_the_first() {
        let BuiltWorkload { workload, .. } = Wsess { sessions: 1, calls: 3, think_ns: 7 }.build(
            &RequestTemplate::default(),
            "/",
            0,
            false,
        );
        let sessions = filled(&*workload, 0..1);
        let steps: Vec<_> = sessions[0].steps.iter().map(|s| (s.think_ns, s.piped)).collect();
        assert_eq!(steps, [(0, false), (7, false), (7, false)]);
        assert!(!sessions[0].last_closes);
    }

    #[test]
    fn an_option_that_is_none_is_refused() {
        for text in ["", "1", "1,2", "0,1,1", "1,0,1", "1,1000001,1", "1,2,-1", "1,2,inf", "a,2,1"]
        {
            let error = text.parse::<Wsess>().unwrap_err();
            assert!(error.starts_with(&format!("{text} is not N1,N2,X")), "{error}");
        }
    }
}
