//! Starts: what the worker does with what the pacer says is due.

use super::super::action::{Action, SocketUse};
use super::super::exchange::group_end;
use super::super::pacer::Start;
use super::super::stack::{Client, Group, Stack};
use super::{Connection, Worker};
use crate::measure::{ErrorKind, Timestamps};
use crate::schedule::Arrival;
use crate::session::Session;

/// Starts in a row before events are handled, when the schedule is behind.
const STARTS_MAX: usize = 64;

impl<S: Stack> Worker<'_, S> {
    /// Begins the starts that are due.
    pub(super) fn begin_due(&mut self) {
        for _ in 0..STARTS_MAX {
            let now_ns = self.clock.now_ns();
            if !self.begin_one(now_ns) {
                return;
            }
        }
    }

    /// Begins one start, if one is due; returns whether one was.
    pub(super) fn begin_one(&mut self, now_ns: u64) -> bool {
        match self.pacer.take_start(now_ns) {
            None => return false,
            Some(Start::Queued) => {}
            Some(Start::Resume { slot, planned_ns }) => {
                let exchange = &mut self.connections[slot as usize].exchange;
                let action = exchange.resume(planned_ns, now_ns, &mut self.context);
                self.begin(slot, action);
            }
            Some(Start::OnFree { slot, arrival }) => self.begin_session(slot, arrival),
            Some(Start::OnNew(arrival)) => match self.take_slot() {
                Some(slot) => self.begin_session(slot, arrival),
                None => self.refuse(arrival, ErrorKind::FdUnavail),
            },
        }
        true
    }

    /// Begins the session of an arrival on a connection.
    fn begin_session(&mut self, slot: u32, arrival: Arrival) {
        let exchange = &mut self.connections[slot as usize].exchange;
        let session = exchange.new_session();
        if !self.source.fill(arrival.number, session) || session.steps.is_empty() {
            let action = exchange.end(SocketUse::Close);
            self.pacer.arrivals.leave_out(arrival);
            return self.carry_out(slot, action);
        }
        // Only now: the time to make the session is this client's, and so part of the lag.
        let now_ns = self.clock.now_ns();
        let action = exchange.begin(arrival.planned_ns, now_ns, &mut self.context);
        self.connections[slot as usize].client =
            Client { number: arrival.number, ..Client::default() };
        self.begin(slot, action);
    }

    fn begin(&mut self, slot: u32, action: Action) {
        self.note_session(slot);
        self.carry_out(slot, action);
        self.arm_deadline(slot);
    }

    /// Notes whether a connection's session has starts to come.
    pub(super) fn note_session(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let goes_on = connection.exchange.goes_on();
        self.going_on -= u64::from(connection.goes_on);
        self.going_on += u64::from(goes_on);
        connection.goes_on = goes_on;
    }

    /// Counts an arrival that never gets a connection: each request of its first group is an error.
    pub(super) fn refuse(&mut self, arrival: Arrival, kind: ErrorKind) {
        let mut session = Session::default();
        if !self.source.fill(arrival.number, &mut session) || session.steps.is_empty() {
            return self.pacer.arrivals.leave_out(arrival);
        }
        let now_ns = self.clock.now_ns();
        let group = group_end(&session.steps, 0) as usize;
        let planned_ns = arrival.planned_ns;
        let recorder = &mut self.context.recorder;
        recorder.refused(planned_ns, group as u64);
        let timestamps = Timestamps { planned_ns, started_ns: now_ns, ..Timestamps::default() };
        for step in session.steps.iter().take(group) {
            recorder.failed(&timestamps, step.request, kind, now_ns);
        }
        let counts = recorder.counts_at(planned_ns);
        counts.arrivals += 1;
        counts.due += session.steps.len() as u64;
        counts.sessions_failed += 1;
        counts.abandoned += (session.steps.len() - group) as u64;
    }

    /// Opens shared connection number `number` of all threads before any request needs it.
    pub(super) fn open_shared(&mut self, number: u64) {
        let Some(slot) = self.take_slot() else { return };
        let connection = &mut self.connections[slot as usize];
        connection.client = Client { group: Group::Shared, number, opened: 0 };
        let action = connection.exchange.connect(&mut self.context);
        self.carry_out(slot, action);
        self.pacer.add_free(slot);
    }

    /// Takes a slot for a new connection; `None` once the limit on connections is reached.
    pub(super) fn take_slot(&mut self) -> Option<u32> {
        let slot = self.slots.allocate()?;
        if slot as usize >= self.connections.len() {
            self.connections.resize_with(slot as usize + 1, Connection::default);
        }
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::super::clock::Clock;
    use super::super::super::fixtures::{S, config};
    use super::super::super::recorder::Phases;
    use super::super::super::stack::kernel::KernelStack;
    use super::super::{Limits, SLEEP_NS};
    use super::*;
    use crate::config::{Config, Workload};
    use crate::session::{RequestId, SessionSource, SessionStep};

    /// A workload whose sessions take a while to make.
    struct Laborious;

    const MAKING: Duration = Duration::from_millis(2);

    impl Workload for Laborious {
        fn source(&self, _seed: u64) -> Box<dyn SessionSource> {
            Box::new(Laborious)
        }
    }

    impl SessionSource for Laborious {
        fn fill(&mut self, _arrival: u64, session: &mut Session) -> bool {
            let began = Instant::now();
            while began.elapsed() < MAKING {}
            session.steps.push(SessionStep { request: RequestId(0), think_ns: 0, piped: false });
            true
        }
    }

    /// A workload whose sessions think between their two requests, for longer than it arrives.
    struct Thoughtful;

    impl Workload for Thoughtful {
        fn source(&self, _seed: u64) -> Box<dyn SessionSource> {
            Box::new(Thoughtful)
        }
    }

    impl SessionSource for Thoughtful {
        fn fill(&mut self, _arrival: u64, session: &mut Session) -> bool {
            let step = SessionStep { request: RequestId(0), think_ns: 2 * S, piped: false };
            session.steps.extend([step, step]);
            true
        }
    }

    #[test]
    fn the_time_to_make_a_session_is_lag() {
        // Without an address the request fails at once, on its own.
        let config = Config { addresses: Vec::new(), workload: Arc::new(Laborious), ..config() };
        let limits = Limits { open_max: 1, room: 1 };
        let stack = KernelStack::new().unwrap();
        let mut worker = Worker::new(&config, 0, Clock::new(), limits, stack).unwrap();
        let start_ns = worker.clock.now_ns();
        let end_ns = start_ns + S;
        let phases = Phases { start_ns, measured_ns: (start_ns, end_ns), end_ns };
        worker.context.recorder.begin(phases, true);
        worker.pacer.arrivals.begin(start_ns, start_ns + S, start_ns);
        assert!(worker.begin_one(start_ns));
        let [sample] = worker.context.recorder.take_samples()[..] else { panic!("no request") };
        let making_ns = MAKING.as_nanos() as u64;
        assert!(sample.timestamps.started_ns >= making_ns, "{sample:?}");
        let lag = worker.context.recorder.into_outcome().times.lag;
        assert!(lag.count() == 1 && lag.max() >= making_ns);
    }

    #[test]
    fn the_plan_of_a_session_that_thinks_ends_with_its_last_request() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = vec![listener.local_addr().unwrap()];
        let workload = Arc::new(Thoughtful);
        let config = Config { addresses, arrivals_max: 1, workload, ..config() };
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            assert!(client.read(&mut [0; 4096]).unwrap() > 0);
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            client
        });
        let limits = Limits { open_max: 1, room: 1 };
        let stack = KernelStack::new().unwrap();
        let mut worker = Worker::new(&config, 0, Clock::new(), limits, stack).unwrap();
        let start_ns = worker.clock.now_ns();
        let end_ns = start_ns + 100 * S;
        let phases = Phases { start_ns, measured_ns: (start_ns, end_ns), end_ns };
        worker.context.recorder.begin(phases, false);
        worker.pacer.arrivals.begin(start_ns, end_ns, start_ns);
        assert!(worker.begin_one(start_ns));
        assert!(worker.pacer.arrivals.is_over && worker.pacer.arrivals.ends_ns == start_ns + S);
        assert!(!worker.is_planned_out(start_ns + S), "the second request is not planned yet");
        let thinks_until_ns = loop {
            if let Some(until_ns) = worker.pacer.next_start_ns() {
                break until_ns;
            }
            assert!(worker.slots.taken() > 0, "the session has failed");
            worker.wait_until(worker.clock.now_ns() + SLEEP_NS);
            worker.handle_events();
        };
        assert!(thinks_until_ns >= start_ns + 2 * S);
        assert!(!worker.is_planned_out(thinks_until_ns), "it thinks");
        assert!(worker.begin_one(thinks_until_ns));
        assert!(worker.is_planned_out(thinks_until_ns));
        drop(server.join().unwrap());
    }

    #[test]
    fn the_plan_of_a_session_that_fails_ends_with_it() {
        // Without an address its first request fails at once.
        let workload = Arc::new(Thoughtful);
        let config = Config { addresses: Vec::new(), arrivals_max: 1, workload, ..config() };
        let limits = Limits { open_max: 1, room: 1 };
        let stack = KernelStack::new().unwrap();
        let mut worker = Worker::new(&config, 0, Clock::new(), limits, stack).unwrap();
        let phases = Phases { start_ns: 0, measured_ns: (0, 10 * S), end_ns: 10 * S };
        worker.context.recorder.begin(phases, false);
        worker.pacer.arrivals.begin(0, 10 * S, 0);
        assert!(!worker.is_planned_out(S));
        assert!(worker.begin_one(0));
        assert!(worker.is_planned_out(S));
    }
}
