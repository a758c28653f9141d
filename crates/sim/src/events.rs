//! The event queue: ordered by time, and by insertion at equal times. Does not interpret events.
//!
//! Time is divided into days of about a millisecond. Only the current day's events are kept sorted;
//! those of later days are stored unsorted until their day comes. So a million client timeouts ten
//! seconds ahead cost nothing now.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::connections::Token;

/// Length of a day: 2^20 ns.
const DAY_BITS: u32 = 20;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The next arrivals from a group of clients.
    Arrivals(u32),
    /// A packet arrives at the server.
    ToServer(Token, Packet),
    /// A packet arrives at the client.
    ToClient(Token, Answer),
    /// The client's kernel retransmits its SYN.
    SynTimer(Token),
    /// The client's kernel retransmits its request.
    DataTimer(Token),
    /// The client's deadline may have passed.
    ClientDeadline(Token),
    /// The client's think time is over, or a slow client's next byte is due.
    Think(Token),
    /// The server's kernel retransmits its SYN-ACK.
    SynAckTimer(Token),
    /// The server's deadline for a connection may have passed.
    Deadline(Token),
    /// A core finishes a step.
    StepEnd(u32),
    /// A sleeping core wakes up, if it is still in the sleep with this number.
    Wake(u32, u32),
}

/// A packet from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Packet {
    Syn,
    /// The third ACK, without data.
    Ack,
    /// The third ACK and the client's first data, which is a segment of its own.
    AckAndData,
    /// A request, or its retransmission.
    Data,
    Fin,
    Rst,
    /// The last ACK of a connection that the server has closed.
    LastAck,
}

/// A packet from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    SynAck,
    /// The server's part of a TLS handshake.
    Handshake,
    /// A complete reply, after which the connection stays open or closes.
    Reply {
        closes: bool,
    },
    /// A 503 reply, after which the connection closes.
    Unavailable,
    Fin,
    Rst,
}

/// The event queue, as a calendar of days.
#[derive(Debug, Default)]
pub(crate) struct Events {
    sequence: u64,
    today: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Number of the current day.
    day: u64,
    /// Events of later days.
    days: VecDeque<Vec<(u64, u64, Event)>>,
}

impl Events {
    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        let entry = (at_ns, self.sequence, event);
        match (at_ns >> DAY_BITS).checked_sub(self.day + 1) {
            None => self.today.push(Reverse(entry)),
            Some(after) => {
                let after = after as usize;
                if self.days.len() <= after {
                    self.days.resize_with(after + 1, Vec::new);
                }
                self.days[after].push(entry);
            }
        }
    }

    /// Removes the next event and returns it with its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        while self.today.is_empty() {
            let entries = self.days.pop_front()?;
            self.day += 1;
            self.today.extend(entries.into_iter().map(Reverse));
        }
        self.today.pop().map(|Reverse((at_ns, _, event))| (at_ns, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_then_of_arrival() {
        let mut events = Events::default();
        let times = [5_u64 << 20, 3, 3, 7 << 20, (5 << 20) + 1, 0];
        for (number, at_ns) in times.into_iter().enumerate() {
            events.push(at_ns, Event::Arrivals(number as u32));
        }
        let order: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        let expected = [5, 1, 2, 0, 4, 3].map(|n| (times[n], Event::Arrivals(n as u32)));
        assert_eq!(order, expected);
    }

    #[test]
    fn events_pushed_meanwhile_are_in_order() {
        let mut events = Events::default();
        events.push(9 << 20, Event::Arrivals(2));
        events.push(1, Event::Arrivals(0));
        assert_eq!(events.pop(), Some((1, Event::Arrivals(0))));
        events.push(2 << 20, Event::Arrivals(1));
        assert_eq!(events.pop(), Some((2 << 20, Event::Arrivals(1))));
        assert_eq!(events.pop(), Some((9 << 20, Event::Arrivals(2))));
        assert_eq!(events.pop(), None);
    }
}
