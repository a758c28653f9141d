//! The exchange, stepped through a time of the test's own.

use std::io::ErrorKind as IoError;

use super::super::fixtures::{S, config};
use super::super::recorder::Phases;
use super::super::stream::{Handshake, HandshakeFailure};
use super::*;
use crate::measure::{Counts, RunOutcome};

const KEPT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// A handshake whose first message is sent, and one that is done.
const CONNECTED: Handshake = Handshake { is_connected: true, is_blocked: false, resumed: None };
const DONE: Handshake = Handshake { resumed: Some(false), ..CONNECTED };

/// An exchange with its context, and the time.
struct Stepped<'a> {
    exchange: Exchange,
    context: Context<'a>,
    scratch: Vec<u8>,
    now_ns: u64,
    is_secure: bool,
}

impl<'a> Stepped<'a> {
    fn new(config: &'a Config) -> Self {
        let mut recorder = Recorder::new();
        recorder.begin(Phases::new(0, config), false);
        let first_bytes = super::super::send_pacer::SendPacer::new(config.send_rate).first_bytes;
        let context = Context { config, recorder, first_bytes };
        let (exchange, scratch) = (Exchange::default(), Vec::new());
        Self { exchange, context, scratch, now_ns: 0, is_secure: false }
    }

    /// Begins a session now, of steps given by think time and whether they are pipelined.
    fn begin(&mut self, steps: &[(u64, bool)], last_closes: bool) -> Action {
        let session = self.exchange.new_session();
        session.last_closes = last_closes;
        for (index, &(think_ns, piped)) in steps.iter().enumerate() {
            let request = RequestId(index as u32 % 2);
            session.steps.push(SessionStep { request, think_ns, piped });
        }
        self.exchange.begin(self.now_ns, self.now_ns, &mut self.context)
    }

    fn open(&mut self) -> Action {
        self.exchange.opened(self.now_ns, self.is_secure)
    }

    /// The same over TLS, up to the first message.
    fn connect_securely(&mut self, steps: &[(u64, bool)], last_closes: bool) {
        self.is_secure = true;
        assert_eq!(self.begin(steps, last_closes), Action::Connect);
        assert_eq!(self.open(), Action::Handshake);
        assert!(!self.exchange.reads_handshake());
        assert_eq!(self.handshake(CONNECTED), Action::Watch(Interest::Read));
        assert_eq!(self.exchange.watched(), Action::Wait);
    }

    fn handshake(&mut self, progress: Handshake) -> Action {
        let now_ns = self.now_ns;
        self.exchange.handshaken(Ok(progress), now_ns, now_ns, &mut self.context)
    }

    fn handshake_fails(&mut self, failure: HandshakeFailure) -> Action {
        let now_ns = self.now_ns;
        self.exchange.handshaken(Err(failure), now_ns, now_ns, &mut self.context)
    }

    fn unsent(&mut self) -> usize {
        self.exchange.unsent(&self.context.config.requests, &mut self.scratch).len()
    }

    fn write(&mut self, result: Result<usize, IoError>) -> Action {
        let result = result.map_err(io::Error::from);
        self.exchange.written(&result, self.now_ns, self.now_ns, &mut self.context)
    }

    fn write_all(&mut self) -> Action {
        let bytes = self.unsent();
        self.write(Ok(bytes))
    }

    /// Begins a session on a socket of its own.
    fn connect(&mut self, steps: &[(u64, bool)], last_closes: bool) {
        assert_eq!(self.begin(steps, last_closes), Action::Connect);
        assert_eq!(self.open(), Action::Send);
    }

    /// Begins a session, connects, and sends all of its first group.
    fn send(&mut self, steps: &[(u64, bool)], last_closes: bool) {
        self.connect(steps, last_closes);
        assert_eq!(self.write_all(), Action::Watch(Interest::Read));
        assert_eq!(self.exchange.watched(), Action::Wait);
    }

    fn receive(&mut self, bytes: &[u8]) -> Action {
        self.exchange.received(bytes, self.now_ns, &mut self.context)
    }

    fn ready(&mut self, hung_up: bool) -> Action {
        self.exchange.ready(SocketEvent { hung_up, has_bytes: true })
    }

    fn resume(&mut self) -> Action {
        self.exchange.resume(self.now_ns, self.now_ns, &mut self.context)
    }

    /// Closes the socket, as the worker does after an action that says so.
    fn close(&mut self) {
        self.exchange.closed(self.now_ns, &mut self.context);
    }

    fn outcome(self) -> RunOutcome {
        self.context.recorder.into_outcome()
    }

    fn counts(self) -> Counts {
        self.outcome().counts
    }
}

/// Waits until the present wait expires.
fn expire(stepped: &mut Stepped<'_>) -> Action {
    stepped.now_ns = stepped.exchange.expires_ns(stepped.context.config).unwrap();
    stepped.exchange.expire(stepped.now_ns, &mut stepped.context)
}

#[test]
fn a_request_on_a_connection_of_its_own_has_six_clocks() {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.connect(&[(0, false)], true);
    stepped.now_ns = 10;
    assert_eq!(stepped.write(Err(IoError::WouldBlock)), Action::Watch(Interest::ReadWrite));
    assert_eq!(stepped.exchange.watched(), Action::Wait);
    stepped.now_ns = 20;
    assert_eq!(stepped.ready(false), Action::Send);
    assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
    // The event may have told of bytes too, and will not do so again.
    assert_eq!(stepped.exchange.watched(), Action::Read);
    stepped.now_ns = 50;
    assert_eq!(stepped.ready(false), Action::Read);
    assert_eq!(stepped.receive(&LAST[..20]), Action::Read);
    stepped.now_ns = 90;
    assert_eq!(stepped.receive(&LAST[20..]), Action::AwaitClose);
    stepped.now_ns = 95;
    assert_eq!(stepped.ready(true), Action::End(SocketUse::Close));
    stepped.close();
    let outcome = stepped.outcome();
    let times = outcome.times.rows().map(|(_, times)| times.max());
    assert_eq!(times, [0, 20, 0, 0, 30, 40, 90, 90]);
    assert_eq!((outcome.sessions.max(), outcome.lifetimes.max()), (90, 95));
    let counts = outcome.counts;
    assert_eq!((counts.connects, counts.connected, counts.sent, counts.replies), (1, 1, 1, 1));
    assert_eq!((counts.arrivals, counts.sessions, counts.errors.total()), (1, 1, 0));
    assert_eq!(counts.bytes_in, LAST.len() as u64);
}

#[test]
fn a_handshake_is_a_clock_between_the_connection_and_the_request() {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.is_secure = true;
    assert_eq!(stepped.begin(&[(0, false)], true), Action::Connect);
    assert_eq!(stepped.open(), Action::Handshake);
    stepped.now_ns = 5;
    let not_there = Handshake { is_blocked: true, ..Handshake::default() };
    assert_eq!(stepped.handshake(not_there), Action::Watch(Interest::ReadWrite));
    assert_eq!(stepped.exchange.watched(), Action::Wait);
    stepped.now_ns = 20;
    assert_eq!(stepped.ready(false), Action::Handshake);
    assert_eq!(stepped.handshake(CONNECTED), Action::Watch(Interest::Read));
    // The event may have told of the server's message too.
    assert_eq!(stepped.exchange.watched(), Action::Handshake);
    assert!(stepped.exchange.reads_handshake());
    stepped.now_ns = 50;
    assert_eq!(stepped.handshake(Handshake { resumed: Some(true), ..CONNECTED }), Action::Send);
    stepped.now_ns = 51;
    assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
    assert_eq!(stepped.exchange.watched(), Action::Wait);
    stepped.now_ns = 90;
    assert_eq!(stepped.receive(LAST), Action::AwaitClose);
    let outcome = stepped.outcome();
    let times = outcome.times.rows().map(|(_, times)| times.max());
    assert_eq!(times, [0, 20, 30, 1, 39, 0, 90, 90]);
    let counts = outcome.counts;
    assert_eq!((counts.connected, counts.handshakes, counts.handshakes_resumed), (1, 1, 1));
}

#[test]
fn over_tls_a_connection_on_which_nothing_is_due_is_read() {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.connect_securely(&[(0, false), (100, false)], true);
    assert_eq!(stepped.handshake(DONE), Action::Send);
    assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
    assert!(matches!(stepped.receive(KEPT), Action::Think { socket: SocketUse::Keep, .. }));
    // A ticket is no content.
    assert_eq!((stepped.ready(false), stepped.exchange.drained()), (Action::Read, Action::Wait));
    assert_eq!(stepped.receive(b"HTTP/1.1"), Action::Close);
    assert_eq!(stepped.exchange.close_notified(1, &mut stepped.context), Action::Close);
    assert_eq!(stepped.resume(), Action::Send);
    assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
    assert_eq!(stepped.receive(LAST), Action::AwaitClose);
    // The server's word that it sends no more, and then its end.
    assert_eq!(stepped.ready(false), Action::Read);
    assert_eq!(stepped.exchange.close_notified(1, &mut stepped.context), Action::Wait);
    assert_eq!(stepped.ready(true), Action::Read);
    assert_eq!(stepped.exchange.drained(), Action::End(SocketUse::Close));
    let counts = stepped.counts();
    assert_eq!((counts.replies, counts.handshakes, counts.errors.total()), (2, 1, 0));
}

#[test]
fn a_part_of_a_record_is_progress_while_a_reply_is_due() {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.connect_securely(&[(0, false)], true);
    assert_eq!(stepped.handshake(DONE), Action::Send);
    assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
    stepped.exchange.progressed(4 * S);
    assert_eq!(stepped.exchange.expires_ns(&config), Some(4 * S + config.timeout_ns));
    stepped.now_ns = 6 * S;
    assert_eq!(stepped.receive(LAST), Action::AwaitClose);
    // Nothing is due now but the server's close.
    stepped.exchange.progressed(9 * S);
    assert_eq!(stepped.exchange.expires_ns(&config), Some(6 * S + config.timeout_ns));
}

#[test]
fn only_a_reply_that_the_end_would_have_completed_is_truncated() {
    let config = config();
    let unframed = b"HTTP/1.1 200 OK\r\n\r\nok";
    let of = |reply: &[u8], is_announced: bool| {
        let mut stepped = Stepped::new(&config);
        stepped.connect_securely(&[(0, false)], false);
        assert_eq!(stepped.handshake(DONE), Action::Send);
        assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
        assert_eq!(stepped.receive(reply), Action::Read);
        let Stepped { exchange, context, .. } = &mut stepped;
        let action = if is_announced {
            exchange.close_notified(1, context)
        } else {
            exchange.cut_off(1, context)
        };
        assert_eq!(action, Action::End(SocketUse::Close));
        let counts = stepped.counts();
        let errors = |kind| counts.errors.of(kind);
        (counts.replies, errors(ErrorKind::TlsTruncated), errors(ErrorKind::ClosedEarly))
    };
    assert_eq!(of(unframed, true), (1, 0, 0));
    assert_eq!(of(unframed, false), (0, 1, 0));
    assert_eq!(of(&KEPT[..KEPT.len() - 1], true), (0, 0, 1));
    assert_eq!(of(&KEPT[..KEPT.len() - 1], false), (0, 0, 1));
}

#[test]
fn a_handshake_that_is_not_done_fails_with_the_reason() {
    let config = config();
    let kind = |end: &dyn Fn(&mut Stepped<'_>) -> Action| {
        let mut stepped = Stepped::new(&config);
        stepped.connect_securely(&[(0, false)], false);
        assert_eq!(end(&mut stepped), Action::End(SocketUse::Close));
        let counts = stepped.counts();
        assert_eq!((counts.connected, counts.handshakes, counts.errors.total()), (1, 0, 1));
        ErrorKind::ALL.into_iter().find(|kind| counts.errors.of(*kind) == 1).unwrap()
    };
    let fails = |failure: fn() -> HandshakeFailure| kind(&|it| it.handshake_fails(failure()));
    let reset = || HandshakeFailure::Socket(IoError::ConnectionReset.into());
    assert_eq!(fails(reset), ErrorKind::HandshakeReset);
    assert_eq!(fails(|| HandshakeFailure::Closed), ErrorKind::HandshakeReset);
    let unlike = || HandshakeFailure::Tls(rustls::Error::DecryptError);
    assert_eq!(fails(unlike), ErrorKind::TlsProtocol);
    let unknown = || HandshakeFailure::Tls(rustls::Error::NoCertificatesPresented);
    assert_eq!(fails(unknown), ErrorKind::TlsCertificate);
    assert_eq!(kind(&expire), ErrorKind::HandshakeTimeout);
}

#[test]
fn a_handshake_ahead_of_the_first_session_is_joined_by_it() {
    let config = Config { shared_conns: 1, keep_open: true, ..config() };
    for is_late in [false, true] {
        let mut stepped = Stepped::new(&config);
        stepped.is_secure = true;
        assert_eq!(stepped.exchange.connect(&mut stepped.context), Action::Connect);
        assert_eq!(stepped.open(), Action::Handshake);
        assert_eq!(stepped.handshake(CONNECTED), Action::Watch(Interest::Read));
        stepped.now_ns = 7;
        if is_late {
            assert_eq!(stepped.begin(&[(0, false)], false), Action::Wait);
            assert_eq!(stepped.handshake(DONE), Action::Send);
        } else {
            assert_eq!(stepped.handshake(DONE), Action::Wait);
            assert_eq!(stepped.begin(&[(0, false)], false), Action::Send);
        }
        assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
        assert_eq!(stepped.receive(KEPT), Action::End(SocketUse::Keep));
        let outcome = stepped.outcome();
        assert_eq!((outcome.counts.replies, outcome.counts.handshakes), (1, 1));
        assert_eq!(outcome.times.handshake.max(), 7, "{is_late}");
    }
    // What fails then costs no request.
    let mut stepped = Stepped::new(&config);
    stepped.is_secure = true;
    assert_eq!(stepped.open(), Action::Handshake);
    assert_eq!(stepped.handshake_fails(HandshakeFailure::Closed), Action::Close);
    assert_eq!(stepped.counts().errors.total(), 0);
}

#[test]
fn a_server_that_does_not_close_as_it_was_asked_is_waited_for_until_the_timeout() {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.send(&[(0, false)], true);
    stepped.now_ns = 7;
    assert_eq!(stepped.receive(LAST), Action::AwaitClose);
    assert_eq!(stepped.exchange.expires_ns(&config), Some(7 + config.timeout_ns));
    assert_eq!(expire(&mut stepped), Action::End(SocketUse::Close));
    assert_eq!(stepped.counts().errors.total(), 0);
}

#[test]
fn requests_after_a_think_time_go_over_the_same_connection_or_a_new_one() {
    let config = config();
    for keeps in [true, false] {
        let mut stepped = Stepped::new(&config);
        stepped.send(&[(0, false), (100, false)], false);
        stepped.now_ns = 5;
        let socket = if keeps { SocketUse::Keep } else { SocketUse::Close };
        let think = Action::Think { until_ns: 105, socket };
        assert_eq!(stepped.receive(if keeps { KEPT } else { LAST }), think);
        assert_eq!(stepped.exchange.expires_ns(&config), None);
        if !keeps {
            stepped.close();
        }
        stepped.now_ns = 105;
        if keeps {
            assert_eq!(stepped.resume(), Action::Send);
        } else {
            assert_eq!(stepped.resume(), Action::Connect);
            assert_eq!(stepped.open(), Action::Send);
        }
        assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
        stepped.now_ns += 3;
        assert_eq!(stepped.receive(KEPT), Action::End(SocketUse::Close));
        let outcome = stepped.outcome();
        assert_eq!((outcome.counts.replies, outcome.counts.reconnects), (2, u64::from(!keeps)));
        assert_eq!((outcome.sessions.max(), outcome.times.response.max()), (108, 5));
    }
}

#[test]
fn nothing_is_begun_after_the_end_of_the_schedule() {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.send(&[(0, false), (S, false), (S, false)], false);
    assert!(matches!(stepped.receive(KEPT), Action::Think { .. }));
    stepped.now_ns = 10 * S;
    assert_eq!(stepped.resume(), Action::End(SocketUse::Close));
    let counts = stepped.counts();
    assert_eq!((counts.planned, counts.sessions, counts.sessions_failed), (1, 0, 0));
}

#[test]
fn a_group_is_sent_as_one_and_its_replies_may_come_together() {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.connect(&[(0, false), (0, true), (0, false)], false);
    let group = stepped.unsent();
    let first = config.requests.get(RequestId(0)).unwrap().keep.len();
    assert_eq!(group, 2 * first);
    assert_eq!(stepped.write(Ok(first)), Action::Watch(Interest::ReadWrite));
    assert_eq!(stepped.ready(false), Action::Send);
    assert_eq!(stepped.unsent(), group - first);
    assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
    let think = Action::Think { until_ns: 0, socket: SocketUse::Keep };
    assert_eq!(stepped.receive(&[KEPT, KEPT].concat()), think);
    assert_eq!((stepped.resume(), stepped.unsent()), (Action::Send, first));
    let counts = stepped.counts();
    assert_eq!((counts.planned, counts.sent, counts.replies), (3, 2, 2));
}

#[test]
fn a_connection_with_more_bytes_than_were_asked_for_is_closed() {
    let config = config();
    let too_much = [KEPT, b"HTTP/1.1"].concat();
    let mut stepped = Stepped::new(&config);
    stepped.send(&[(0, false), (0, false)], false);
    let think = Action::Think { until_ns: 0, socket: SocketUse::Close };
    assert_eq!(stepped.receive(&too_much), think);

    let kept = Config { shared_conns: 1, keep_open: true, ..config.clone() };
    let mut stepped = Stepped::new(&kept);
    stepped.send(&[(0, false)], false);
    assert_eq!(stepped.receive(KEPT), Action::End(SocketUse::Keep));
    assert_eq!(stepped.begin(&[(0, false)], false), Action::Send);
    assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));
    assert_eq!(stepped.receive(&too_much), Action::End(SocketUse::Close));
    // Between two sessions there is nothing to receive.
    assert_eq!(stepped.ready(false), Action::Close);
    assert_eq!(stepped.counts().replies, 2);
}

#[test]
fn a_request_at_a_limited_rate_waits_for_each_part() {
    let config = Config { send_rate: Some(100), ..config() };
    let mut stepped = Stepped::new(&config);
    stepped.connect(&[(0, false)], false);
    assert_eq!((stepped.unsent(), stepped.write_all()), (10, Action::WatchUntilNextPart));
    assert_eq!(stepped.ready(false), Action::Read);
    assert_eq!(stepped.exchange.allow(10), Action::Send);
    assert_eq!(stepped.exchange.allow(usize::MAX), Action::Send);
    assert_eq!(stepped.write_all(), Action::Watch(Interest::Read));

    let config = Config { send_rate: Some(0), ..config };
    let mut stepped = Stepped::new(&config);
    assert_eq!(stepped.begin(&[(0, false)], false), Action::Connect);
    assert_eq!((stepped.open(), stepped.unsent()), (Action::Send, 0));
    assert_eq!(stepped.write(Ok(0)), Action::WatchUntilNextPart);
    assert_eq!(expire(&mut stepped), Action::End(SocketUse::Close));
    let counts = stepped.counts();
    assert_eq!((counts.connected, counts.sent), (1, 0));
    assert_eq!(counts.errors.of(ErrorKind::SendTimeout), 1);
}

/// Runs `end` on an exchange whose first group of two requests is sent, and returns the kind of
/// error of both.
fn failure(config: &Config, end: impl FnOnce(&mut Stepped<'_>) -> Action) -> ErrorKind {
    let mut stepped = Stepped::new(config);
    stepped.send(&[(0, false), (0, true), (0, false)], false);
    assert_eq!(end(&mut stepped), Action::End(SocketUse::Close));
    let counts = stepped.counts();
    assert_eq!((counts.errors.total(), counts.sessions_failed, counts.abandoned), (2, 1, 1));
    assert_eq!((counts.due, counts.planned, counts.never_due()), (3, 2, 1));
    ErrorKind::ALL.into_iter().find(|kind| counts.errors.of(*kind) == 2).unwrap()
}

#[test]
fn each_end_without_a_reply_is_an_error_of_its_kind() {
    let config = config();
    let kind = |end: fn(&mut Stepped<'_>) -> Action| failure(&config, end);
    let failed = |stepped: &mut Stepped<'_>, error: IoError| {
        stepped.exchange.read_failed(&error.into(), 0, &mut stepped.context)
    };
    assert_eq!(kind(|stepped| stepped.receive(b"")), ErrorKind::ClosedEarly);
    assert_eq!(kind(|stepped| stepped.receive(b"SMTP")), ErrorKind::BadReply);
    assert_eq!(failure(&config, expire), ErrorKind::ReplyTimeout);
    assert_eq!(failure(&config, |s| failed(s, IoError::ConnectionReset)), ErrorKind::Reset);
    assert_eq!(failure(&config, |s| failed(s, IoError::TimedOut)), ErrorKind::Other);
    let deadline = Config { deadline_ns: S, ..config.clone() };
    assert_eq!(failure(&deadline, expire), ErrorKind::Deadline);
    let late = |stepped: &mut Stepped<'_>| {
        stepped.now_ns = S;
        stepped.receive(KEPT)
    };
    assert_eq!(failure(&deadline, late), ErrorKind::Deadline);
}

#[test]
fn what_a_stop_leaves_in_flight_is_cut_off_and_not_called_never_due() {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.send(&[(0, false), (0, true), (0, false)], false);
    stepped.exchange.abandon(&mut stepped.context);
    let counts = stepped.counts();
    assert_eq!((counts.planned, counts.cut_off, counts.abandoned), (2, 2, 2));
    assert_eq!((counts.due, counts.never_due()), (3, 0));
}

/// Runs `end` on an exchange that connects, and returns the kind of error.
fn connect_failure(end: impl FnOnce(&mut Stepped<'_>) -> Action) -> ErrorKind {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.connect(&[(0, false)], false);
    assert_eq!(end(&mut stepped), Action::End(SocketUse::Close));
    let counts = stepped.counts();
    assert_eq!((counts.connected, counts.errors.total()), (0, 1));
    ErrorKind::ALL.into_iter().find(|kind| counts.errors.of(*kind) == 1).unwrap()
}

#[test]
fn a_connection_that_is_not_there_fails_with_the_reason() {
    assert_eq!(connect_failure(expire), ErrorKind::ConnectTimeout);
    for (error, kind) in [
        (IoError::ConnectionRefused, ErrorKind::ConnectRefused),
        (IoError::ConnectionReset, ErrorKind::ConnectReset),
        (IoError::TimedOut, ErrorKind::ConnectTimeout),
        (IoError::AddrNotAvailable, ErrorKind::PortUnavail),
    ] {
        assert_eq!(connect_failure(|stepped| stepped.write(Err(error))), kind);
    }
}

#[test]
fn a_socket_that_cannot_be_watched_for_want_of_room_is_one_too_many() {
    for (error, kind) in
        [(IoError::StorageFull, ErrorKind::FdUnavail), (IoError::NotFound, ErrorKind::Other)]
    {
        let fails = |stepped: &mut Stepped<'_>| {
            stepped.exchange.watch_failed(&error.into(), 0, &mut stepped.context)
        };
        assert_eq!(connect_failure(fails), kind);
    }
}

#[test]
fn a_server_that_answers_and_closes_before_it_has_read_all_is_heard() {
    let config = config();
    let mut stepped = Stepped::new(&config);
    stepped.connect(&[(0, false)], false);
    assert_eq!(stepped.write(Ok(3)), Action::Watch(Interest::ReadWrite));
    assert_eq!(stepped.ready(true), Action::Send);
    assert_eq!(stepped.write(Err(IoError::BrokenPipe)), Action::Read);
    assert!(stepped.exchange.reads_to_end());
    assert_eq!(stepped.receive(LAST), Action::End(SocketUse::Close));
    assert_eq!(stepped.counts().replies, 1);
}

#[test]
fn a_connect_ahead_of_the_first_session_is_checked_and_costs_no_request() {
    let config = Config { shared_conns: 1, keep_open: true, ..config() };
    for is_connected in [true, false] {
        let mut stepped = Stepped::new(&config);
        assert_eq!(stepped.exchange.connect(&mut stepped.context), Action::Connect);
        assert_eq!(stepped.open(), Action::Watch(Interest::ReadWrite));
        assert_eq!(
            (stepped.exchange.watched(), stepped.ready(false)),
            (Action::Wait, Action::CheckConnect)
        );
        let action = stepped.exchange.connect_checked(is_connected, 9, &mut stepped.context);
        if is_connected {
            assert_eq!(action, Action::Wait);
            assert_eq!(stepped.begin(&[(0, false)], false), Action::Send);
        } else {
            assert_eq!(action, Action::Close);
            stepped.close();
            assert_eq!(stepped.begin(&[(0, false)], false), Action::Connect);
        }
        assert_eq!(stepped.counts().errors.total(), 0);
    }
}
