//! The requests that have a place: until they are replied to, or their clients leave and their
//! places are kept no longer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use weir_accept::upstream::{Admission, Departure, Outcome};

use super::server::Request;

/// A request that has a place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub request: Request,
    pub sent_ns: u64,
    /// Rule by which its place is kept; `None` while its client is there.
    pub departure: Option<Departure>,
}

/// All of them, by number.
pub(super) struct InFlight {
    patience_ns: u64,
    sent: BTreeMap<u64, Sent>,
    /// When the client of a request leaves, or its place is kept no longer, nanoseconds.
    due: BinaryHeap<Reverse<(u64, u64)>>,
}

impl InFlight {
    pub(super) fn new(patience_ns: u64) -> Self {
        Self { patience_ns, sent: BTreeMap::new(), due: BinaryHeap::new() }
    }

    pub(super) fn add(&mut self, now_ns: u64, request: Request) {
        self.sent.insert(request.number, Sent { request, sent_ns: now_ns, departure: None });
        if self.patience_ns < u64::MAX {
            let leaves_ns = request.arrived_ns.saturating_add(self.patience_ns);
            self.due.push(Reverse((leaves_ns.max(now_ns), request.number)));
        }
    }

    /// Removes a request that the server has replied to; `None` if it was given up before.
    pub(super) fn remove(
        &mut self,
        number: u64,
        admission: &mut Admission<Request>,
    ) -> Option<Sent> {
        let sent = self.sent.remove(&number)?;
        if let Some(departure) = sent.departure {
            admission.end_departure(departure);
        }
        Some(sent)
    }

    /// Returns when [`InFlight::poll`] is due.
    pub(super) fn due_ns(&self) -> u64 {
        self.due.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns)
    }

    /// Has a client leave, or gives up the request of one that left.
    pub(super) fn poll(&mut self, now_ns: u64, admission: &mut Admission<Request>) {
        let Some(Reverse((_, number))) = self.due.pop() else { return };
        let Some(sent) = self.sent.get_mut(&number) else { return };
        if sent.departure.is_some() {
            return self.give_up(now_ns, number, admission);
        }
        let waited_ns = now_ns - sent.request.arrived_ns;
        let departure = admission.depart(now_ns, waited_ns, sent.request);
        sent.departure = Some(departure);
        self.due.push(Reverse((departure.until_ns, number)));
    }

    /// Gives up a request whose client has gone. The server goes on with it.
    pub(super) fn give_up(&mut self, now_ns: u64, number: u64, admission: &mut Admission<Request>) {
        if let Some(sent) = self.remove(number, admission) {
            admission.complete(now_ns, now_ns - sent.sent_ns, Outcome::Abandoned);
        }
    }
}
