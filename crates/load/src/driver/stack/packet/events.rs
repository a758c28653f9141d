//! Events of watched sockets: those of the last wait, which are being handled, and those that come
//! meanwhile. They are edges, as epoll's are: one that is lost never comes again.

use super::super::super::action::SocketEvent;
use super::super::Event;

/// The events of a thread's sockets.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Events of the last wait.
    last: Vec<Event>,
    /// Events for the next wait.
    next: Vec<Event>,
    is_waiting: bool,
}

impl Events {
    /// Begins a wait: earlier events are forgotten, but for those that came since the last one.
    pub(super) fn begin_wait(&mut self) {
        std::mem::swap(&mut self.last, &mut self.next);
        self.next.clear();
        self.is_waiting = true;
    }

    /// Ends the wait: what comes from now on is for the next, because the caller may have passed
    /// its place among the events of this one.
    pub(super) fn end_wait(&mut self) {
        self.is_waiting = false;
    }

    /// Returns whether the wait has no event.
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Returns event number `nth` of the last wait; `None` behind the last.
    pub(super) fn get(&self, nth: usize) -> Option<Event> {
        self.last.get(nth).copied()
    }

    /// Reports an event. A socket has one for each wait, as epoll has it: `at` is the number of its
    /// last event, and is set to that of this one.
    pub(super) fn report(&mut self, token: u64, event: SocketEvent, at: &mut u32) {
        let events = if self.is_waiting { &mut self.last } else { &mut self.next };
        match events.get_mut(*at as usize).filter(|known| known.token == token) {
            Some(known) => known.event = event,
            None => {
                *at = events.len() as u32;
                events.push(Event { token, event });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: SocketEvent = SocketEvent { hung_up: false, has_bytes: true };
    const END: SocketEvent = SocketEvent { hung_up: true, has_bytes: true };

    fn all(events: &Events) -> Vec<(u64, SocketEvent)> {
        (0..).map_while(|nth| events.get(nth)).map(|event| (event.token, event.event)).collect()
    }

    #[test]
    fn an_event_between_two_waits_is_of_the_next_and_changes_none_of_the_last() {
        let (mut events, mut first, mut second) = (Events::default(), 0, 0);
        events.begin_wait();
        events.report(7, BYTES, &mut first);
        events.end_wait();
        // The first has been handled by now, and the second had none.
        events.report(7, END, &mut first);
        events.report(8, BYTES, &mut second);
        assert_eq!(all(&events), [(7, BYTES)]);
        events.begin_wait();
        assert!(!events.is_empty());
        assert_eq!(all(&events), [(7, END), (8, BYTES)]);
        events.end_wait();
        events.begin_wait();
        assert!(events.is_empty());
    }

    #[test]
    fn a_socket_has_one_event_for_each_wait() {
        let (mut events, mut first, mut second) = (Events::default(), 0, 0);
        events.report(7, BYTES, &mut first);
        events.report(8, BYTES, &mut second);
        events.begin_wait();
        events.report(8, END, &mut second);
        events.report(7, END, &mut first);
        assert_eq!(all(&events), [(7, END), (8, END)]);
    }
}
