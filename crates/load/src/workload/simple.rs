//! Requests for a list of targets, with a fixed number per connection. No randomness and no think
//! times.

use std::sync::Arc;

use super::built::{BuiltWorkload, ClonedSource, RequestInterner};
use crate::session::{RequestId, RequestTemplate, Session, SessionSource, SessionStep};

/// The distribution of requests over connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionShape {
    /// Requests per session; 0 for connections that are never closed, whose sessions are one
    /// pipelined group each.
    pub requests: u32,
    /// Requests sent together, before any of their replies; 0 counts as 1.
    pub pipeline: u32,
    /// True if a session's last request asks the server to close.
    pub close: bool,
}

impl Default for SessionShape {
    fn default() -> Self {
        Self { requests: 1, pipeline: 1, close: true }
    }
}

/// The order in which targets are requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetOrder {
    /// In order, starting again after the last.
    RoundRobin,
    /// In order, once: the run ends after the last.
    Once,
    /// As [`TargetOrder::RoundRobin`], but advancing by this fraction of a target per request, 0 to
    /// 1: at 0.25, each target is requested four times in a row.
    Stepped(f64),
}

/// The targets to request. Without a target, a run ends at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    /// Method of all requests.
    pub method: String,
    /// Body of all requests.
    pub body: Vec<u8>,
    /// Request targets, in order over all connections.
    pub list: Vec<String>,
    /// TargetOrder in which the list is used.
    pub order: TargetOrder,
}

impl Targets {
    /// Creates plain GETs in the order [`TargetOrder::RoundRobin`].
    pub fn get(list: Vec<String>) -> Self {
        Self { method: "GET".into(), body: Vec::new(), list, order: TargetOrder::RoundRobin }
    }

    /// Builds the workload that requests the targets.
    pub fn build(&self, template: &RequestTemplate, shape: SessionShape) -> BuiltWorkload {
        let mut interner = RequestInterner::new(template);
        let id = |target: &String| interner.id(&self.method, target, &self.body);
        let ids = self.list.iter().map(id).collect();
        let source = TargetSource { ids, order: self.order, shape };
        BuiltWorkload { workload: Arc::new(ClonedSource(source)), requests: interner.requests }
    }
}

#[derive(Clone)]
struct TargetSource {
    ids: Arc<[RequestId]>,
    order: TargetOrder,
    shape: SessionShape,
}

impl TargetSource {
    /// Returns the request of this number, counted over all sessions.
    fn request(&self, number: u64) -> Option<RequestId> {
        let count = self.ids.len() as u64;
        let index = match self.order {
            TargetOrder::RoundRobin => number.checked_rem(count)?,
            TargetOrder::Once => number,
            TargetOrder::Stepped(rate) => ((number as f64 * rate) as u64).checked_rem(count)?,
        };
        self.ids.get(usize::try_from(index).ok()?).copied()
    }
}

impl SessionSource for TargetSource {
    fn fill(&mut self, arrival: u64, session: &mut Session) -> bool {
        let group = u64::from(self.shape.pipeline.max(1));
        let length = if self.shape.requests == 0 { group } else { self.shape.requests.into() };
        for position in 0..length {
            let number = arrival.saturating_mul(length).saturating_add(position);
            let Some(request) = self.request(number) else { break };
            session.steps.push(SessionStep { request, think_ns: 0, piped: position % group != 0 });
        }
        session.last_closes = self.shape.close && self.shape.requests != 0;
        !session.steps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::{filled, targets};

    fn run(
        list: &[&str],
        order: TargetOrder,
        shape: SessionShape,
        sessions: u64,
    ) -> Vec<Vec<String>> {
        let list = list.iter().map(|&target| target.into()).collect();
        let BuiltWorkload { workload, requests } =
            Targets { order, ..Targets::get(list) }.build(&RequestTemplate::default(), shape);
        filled(&*workload, 0..sessions).iter().map(|session| targets(&requests, session)).collect()
    }

    #[test]
    fn targets_go_around_over_all_sessions() {
        let shape = SessionShape { requests: 2, ..SessionShape::default() };
        let sessions = run(&["/a", "/b", "/c"], TargetOrder::RoundRobin, shape, 3);
        assert_eq!(sessions, [["/a", "/b"], ["/c", "/a"], ["/b", "/c"]]);
    }

    #[test]
    fn groups_are_pipelined_and_the_last_may_be_short() {
        let shape = SessionShape { requests: 5, pipeline: 2, close: true };
        let sessions = run(&["/"], TargetOrder::RoundRobin, shape, 1);
        assert_eq!(sessions, [["/", "+/", "/", "+/", "/"]]);
    }

    #[test]
    fn a_list_taken_once_ends_the_run_even_within_a_session() {
        let shape = SessionShape { requests: 2, ..SessionShape::default() };
        let sessions = run(&["/a", "/b", "/a"], TargetOrder::Once, shape, 9);
        assert_eq!(sessions, [vec!["/a", "/b"], vec!["/a"]]);
        assert!(run(&[], TargetOrder::RoundRobin, shape, 9).is_empty());
    }

    #[test]
    fn a_slow_order_stays_with_each() {
        let shape = SessionShape { requests: 6, ..SessionShape::default() };
        let sessions = run(&["/a", "/b"], TargetOrder::Stepped(0.5), shape, 1);
        assert_eq!(sessions, [["/a", "/a", "/b", "/b", "/a", "/a"]]);
    }

    #[test]
    fn the_last_request_closes_when_it_is_told_to_and_there_is_a_last() {
        for (requests, close, expected) in [(1, true, true), (1, false, false), (0, true, false)] {
            let shape = SessionShape { requests, pipeline: 3, close };
            let BuiltWorkload { workload, .. } =
                Targets::get(vec!["/".into()]).build(&RequestTemplate::default(), shape);
            let sessions = filled(&*workload, u64::MAX - 1..u64::MAX);
            assert_eq!(sessions[0].last_closes, expected);
            assert_eq!(sessions[0].steps.len(), if requests == 0 { 3 } else { 1 });
        }
    }
}
