//! What is going to happen, in order of time and, at one time, in order of arrival. Knows what can
//! happen, and not what it means.
//!
//! Time is cut into days of about a millisecond. Only today's events are kept sorted; those of a
//! later day lie in a heap until it comes. So a million clients who may lose patience in ten
//! seconds cost nothing now.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::conns::Token;

/// How long a day is: 2^20 ns.
const DAY_BITS: u32 = 20;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The next arrivals of a group of clients.
    Arrivals(u32),
    /// A packet reaches the server.
    ToServer(Token, Packet),
    /// A packet reaches the client.
    ToClient(Token, Answer),
    /// The client's kernel sends its connection request again.
    SynTimer(Token),
    /// The client's kernel sends its request again.
    DataTimer(Token),
    /// The client may have waited long enough.
    Patience(Token),
    /// The client has thought, or has another byte to say.
    Think(Token),
    /// The server's kernel sends its SYN-ACK again.
    SynAckTimer(Token),
    /// The server's deadline for a connection.
    Deadline(Token),
    /// A core has done a step.
    StepEnd(u32),
    /// A core that sleeps is woken, if it still sleeps in that nap.
    Wake(u32, u32),
}

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Packet {
    Syn,
    /// The third ACK, with nothing behind it.
    Ack,
    /// The third ACK and what the client says first, which is a segment of its own.
    AckAndData,
    /// A request, or again a request.
    Data,
    Fin,
    Rst,
    /// The last ACK of a connection the server has closed.
    LastAck,
}

/// What a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    SynAck,
    /// A whole reply, after which the connection stays open, or does not.
    Reply {
        closes: bool,
    },
    /// 503 and the end of the connection.
    Unavailable,
    Fin,
    Rst,
}

/// The calendar.
#[derive(Debug, Default)]
pub(crate) struct Events {
    sequence: u64,
    today: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// The number of today.
    day: u64,
    /// The days after today.
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

    /// The next event and its time.
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
    fn what_is_pushed_meanwhile_finds_its_place() {
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
