//! Requests for a list of targets, with a fixed number per connection. No randomness and no think
//! times.

use std::sync::Arc;

use super::{Built, Copies, Interned};
use crate::session::{RequestId, Session, SessionSource, SessionStep, Template};

/// The distribution of requests over connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Requests per session; 0 for connections that are never closed, whose sessions are one
    /// pipelined group each.
    pub requests: u32,
    /// Requests sent together, before any of their replies; 0 counts as 1.
    pub pipeline: u32,
    /// True if a session's last request asks the server to close.
    pub close: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { requests: 1, pipeline: 1, close: true }
    }
}

/// The order in which targets are requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// In order, starting again after the last.
    Around,
    /// In order, once: the run ends after the last.
    Once,
    /// As [`Order::Around`], but advancing by this fraction of a target per request, 0 to 1: at
    /// 0.25, each target is requested four times in a row.
    Slowly(f64),
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
    /// Order in which the list is used.
    pub order: Order,
}

impl Targets {
    /// Creates plain GETs in the order [`Order::Around`].
    pub fn get(list: Vec<String>) -> Self {
        Self { method: "GET".into(), body: Vec::new(), list, order: Order::Around }
    }

    /// Builds the workload that requests the targets.
    pub fn build(&self, template: &Template, shape: Shape) -> Built {
        let mut interned = Interned::new(template);
        let id = |target: &String| interned.id(&self.method, target, &self.body);
        let ids = self.list.iter().map(id).collect();
        let turns = Turns { ids, order: self.order, shape };
        (Arc::new(Copies(turns)), interned.requests)
    }
}

#[derive(Clone)]
struct Turns {
    ids: Arc<[RequestId]>,
    order: Order,
    shape: Shape,
}

impl Turns {
    /// Returns the request of this number, counted over all sessions.
    fn request(&self, number: u64) -> Option<RequestId> {
        let count = self.ids.len() as u64;
        let index = match self.order {
            Order::Around => number.checked_rem(count)?,
            Order::Once => number,
            Order::Slowly(rate) => ((number as f64 * rate) as u64).checked_rem(count)?,
        };
        self.ids.get(usize::try_from(index).ok()?).copied()
    }
}

impl SessionSource for Turns {
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
    use crate::workload::tests::{filled, targets};

    fn run(list: &[&str], order: Order, shape: Shape, sessions: u64) -> Vec<Vec<String>> {
        let list = list.iter().map(|&target| target.into()).collect();
        let (workload, requests) =
            Targets { order, ..Targets::get(list) }.build(&Template::default(), shape);
        filled(&*workload, 0..sessions).iter().map(|session| targets(&requests, session)).collect()
    }

    #[test]
    fn targets_go_around_over_all_sessions() {
        let shape = Shape { requests: 2, ..Shape::default() };
        let sessions = run(&["/a", "/b", "/c"], Order::Around, shape, 3);
        assert_eq!(sessions, [["/a", "/b"], ["/c", "/a"], ["/b", "/c"]]);
    }

    #[test]
    fn groups_are_pipelined_and_the_last_may_be_short() {
        let shape = Shape { requests: 5, pipeline: 2, close: true };
        let sessions = run(&["/"], Order::Around, shape, 1);
        assert_eq!(sessions, [["/", "+/", "/", "+/", "/"]]);
    }

    #[test]
    fn a_list_taken_once_ends_the_run_even_within_a_session() {
        let shape = Shape { requests: 2, ..Shape::default() };
        let sessions = run(&["/a", "/b", "/a"], Order::Once, shape, 9);
        assert_eq!(sessions, [vec!["/a", "/b"], vec!["/a"]]);
        assert!(run(&[], Order::Around, shape, 9).is_empty());
    }

    #[test]
    fn a_slow_order_stays_with_each() {
        let shape = Shape { requests: 6, ..Shape::default() };
        let sessions = run(&["/a", "/b"], Order::Slowly(0.5), shape, 1);
        assert_eq!(sessions, [["/a", "/a", "/b", "/b", "/a", "/a"]]);
    }

    #[test]
    fn the_last_request_closes_when_it_is_told_to_and_there_is_a_last() {
        for (requests, close, expected) in [(1, true, true), (1, false, false), (0, true, false)] {
            let shape = Shape { requests, pipeline: 3, close };
            let (workload, _) = Targets::get(vec!["/".into()]).build(&Template::default(), shape);
            let sessions = filled(&*workload, u64::MAX - 1..u64::MAX);
            assert_eq!(sessions[0].last_closes, expected);
            assert_eq!(sessions[0].steps.len(), if requests == 0 { 3 } else { 1 });
        }
    }
}
