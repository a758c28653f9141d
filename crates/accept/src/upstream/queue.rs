//! Requests that wait for a place, in the order in which they came.

use std::collections::VecDeque;

/// Number that identifies a request in the queue; those that came later have greater ones.
pub(super) type Serial = u64;

struct Waiting<T> {
    serial: Serial,
    since_ns: u64,
    /// `None` once it was withdrawn.
    ticket: Option<T>,
}

/// The queue.
pub(super) struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    live: usize,
    next: Serial,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        Self { waiting: VecDeque::new(), live: 0, next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    pub(super) fn push(&mut self, now_ns: u64, ticket: T) -> Serial {
        let serial = self.next;
        self.next += 1;
        self.waiting.push_back(Waiting { serial, since_ns: now_ns, ticket: Some(ticket) });
        self.live += 1;
        serial
    }

    /// Returns since when the oldest has waited, nanoseconds.
    pub(super) fn oldest_ns(&mut self) -> Option<u64> {
        while self.waiting.front().is_some_and(|front| front.ticket.is_none()) {
            self.waiting.pop_front();
        }
        self.waiting.front().map(|front| front.since_ns)
    }

    /// Removes the oldest; returns it, and since when it has waited, nanoseconds.
    pub(super) fn pop_oldest(&mut self) -> Option<(T, u64)> {
        self.oldest_ns()?;
        let Waiting { since_ns, ticket, .. } = self.waiting.pop_front()?;
        self.live -= 1;
        ticket.map(|ticket| (ticket, since_ns))
    }

    /// Removes the newest; returns it, and since when it has waited, nanoseconds.
    pub(super) fn pop_newest(&mut self) -> Option<(T, u64)> {
        while let Some(Waiting { since_ns, ticket, .. }) = self.waiting.pop_back() {
            if let Some(ticket) = ticket {
                self.live -= 1;
                return Some((ticket, since_ns));
            }
        }
        None
    }

    /// Withdraws a request; returns whether it was waiting.
    pub(super) fn withdraw(&mut self, serial: Serial) -> bool {
        let found = self.waiting.binary_search_by_key(&serial, |waiting| waiting.serial);
        let Ok(at) = found else { return false };
        let was_waiting = self.waiting[at].ticket.take().is_some();
        self.live -= usize::from(was_waiting);
        was_waiting
    }
}
