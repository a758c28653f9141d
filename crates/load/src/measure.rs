//! Measurements of a run: seven timestamps per request, errors by kind, and counts. Each thread has
//! its own; they are added up. Nothing here judges the numbers.

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use weir_packet::tcp;

/// The largest time that is recorded, nanoseconds (an hour). Times have three significant digits.
pub const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// The reason why a request failed: no connection, or no complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ErrorKind {
    /// Connection not established within the timeout.
    ConnectTimeout,
    /// ECONNREFUSED: no listener, or the server refused.
    ConnectRefused,
    /// Reset before the connection was known to be established.
    ConnectReset,
    /// TLS handshake without progress for the length of the timeout.
    HandshakeTimeout,
    /// Reset or closed by the server during the TLS handshake.
    HandshakeReset,
    /// A certificate was not accepted: the server's by this client, or the client's by the server.
    TlsCertificate,
    /// The server does not speak TLS, broke its rules, has no version or cipher suite in common
    /// with this client, or refused by an alert.
    TlsProtocol,
    /// Request not sent within the timeout: the socket buffer stayed full, or none of a fixed
    /// number of connections became free.
    SendTimeout,
    /// No byte of the reply arrived for the length of the timeout.
    ReplyTimeout,
    /// Reset (ECONNRESET, EPIPE) after the connection was established.
    Reset,
    /// The server closed the connection before the reply was complete.
    ClosedEarly,
    /// The server ended the connection without close_notify (RFC 8446 section 6.1), and only that
    /// end would have shown that the reply was complete.
    TlsTruncated,
    /// The data received is not HTTP, or was not requested.
    BadReply,
    /// No file descriptor available on this side: EMFILE, ENFILE, or the run's own limit; or none
    /// more can be watched (ENOSPC). The client's fault.
    FdUnavail,
    /// No local port available: EADDRNOTAVAIL. The client's fault.
    PortUnavail,
    /// Reply not complete by the deadline, which counts from the planned start.
    Deadline,
    /// The server broke the rules of TCP so that the connection could not go on; told by weir's own
    /// TCP only.
    TcpViolation,
    /// Any other error of the kernel.
    Other,
}

impl ErrorKind {
    /// All kinds, in the order in which they are counted and shown.
    pub const ALL: [ErrorKind; 18] = [
        ErrorKind::ConnectTimeout,
        ErrorKind::ConnectRefused,
        ErrorKind::ConnectReset,
        ErrorKind::HandshakeTimeout,
        ErrorKind::HandshakeReset,
        ErrorKind::TlsCertificate,
        ErrorKind::TlsProtocol,
        ErrorKind::SendTimeout,
        ErrorKind::ReplyTimeout,
        ErrorKind::Reset,
        ErrorKind::ClosedEarly,
        ErrorKind::TlsTruncated,
        ErrorKind::BadReply,
        ErrorKind::FdUnavail,
        ErrorKind::PortUnavail,
        ErrorKind::Deadline,
        ErrorKind::TcpViolation,
        ErrorKind::Other,
    ];

    /// Returns the name used in every output.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::ConnectTimeout => "connect-timeout",
            ErrorKind::ConnectRefused => "connect-refused",
            ErrorKind::ConnectReset => "connect-reset",
            ErrorKind::HandshakeTimeout => "handshake-timeout",
            ErrorKind::HandshakeReset => "handshake-reset",
            ErrorKind::TlsCertificate => "tls-certificate",
            ErrorKind::TlsProtocol => "tls-protocol",
            ErrorKind::SendTimeout => "send-timeout",
            ErrorKind::ReplyTimeout => "reply-timeout",
            ErrorKind::Reset => "reset",
            ErrorKind::ClosedEarly => "closed-early",
            ErrorKind::TlsTruncated => "tls-truncated",
            ErrorKind::BadReply => "bad-reply",
            ErrorKind::FdUnavail => "fd-unavail",
            ErrorKind::PortUnavail => "port-unavail",
            ErrorKind::Deadline => "deadline",
            ErrorKind::TcpViolation => "tcp-violation",
            ErrorKind::Other => "other",
        }
    }
}

/// Number of errors of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors([u64; ErrorKind::ALL.len()]);

impl Errors {
    /// Counts an error.
    pub fn count(&mut self, kind: ErrorKind) {
        self.0[kind as usize] += 1;
    }

    /// Returns the number of errors of a kind.
    pub fn of(&self, kind: ErrorKind) -> u64 {
        self.0[kind as usize]
    }

    /// Returns the total number of errors.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the name and count of each kind.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        ErrorKind::ALL.iter().map(|kind| (kind.name(), self.of(*kind)))
    }

    /// Adds the errors of another.
    pub fn add(&mut self, other: &Errors) {
        self.combine(other, |mine, theirs| mine + theirs);
    }

    fn combine(&mut self, other: &Errors, with: fn(u64, u64) -> u64) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine = with(*mine, theirs));
    }
}

/// The seven timestamps of a request, nanoseconds since the run began; 0 for an event that did not
/// happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// Planned start.
    pub planned_ns: u64,
    /// Actual start: just before the connect, or before the send on an open connection.
    pub started_ns: u64,
    /// Time at which its connection was known to be established; on an open connection, the start.
    pub connected_ns: u64,
    /// Time at which its TLS handshake was done; on an open connection, the start. 0 without TLS.
    pub secured_ns: u64,
    /// Time at which the kernel had accepted its first byte.
    pub sent_ns: u64,
    /// Time at which the first byte of the reply was read.
    pub first_byte_ns: u64,
    /// Time at which the last byte of the reply was read.
    pub last_byte_ns: u64,
}

/// A distribution of times, nanoseconds.
#[derive(Clone, Debug)]
pub struct TimeHistogram(pub Histogram<u64>);

impl Default for TimeHistogram {
    #[expect(clippy::expect_used, reason = "the bounds are constants")]
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, TIME_NS_MAX, 3).expect("bounds are in order"))
    }
}

impl TimeHistogram {
    /// Records a time; a longer one counts as [`TIME_NS_MAX`].
    pub fn record(&mut self, time_ns: u64) {
        self.0.saturating_record(time_ns);
    }

    /// Returns the number of recorded times.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the time at `quantile` (0 to 1), nanoseconds; 0 if empty.
    pub fn at(&self, quantile: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_quantile(quantile) }
    }

    /// Returns the time at `quantile` (0 to 1), nanoseconds; `None` if empty.
    pub fn known_at(&self, quantile: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.at(quantile))
    }

    /// Returns the mean, nanoseconds; 0 if empty.
    pub fn mean(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.mean() }
    }

    /// Returns the standard deviation, nanoseconds; 0 if empty.
    pub fn stdev(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.stdev() }
    }

    /// Returns the shortest time, nanoseconds; 0 if empty.
    pub fn min(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.min() }
    }

    /// Returns the longest time, nanoseconds; 0 if empty.
    pub fn max(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.max() }
    }

    /// Adds the times of another.
    pub fn add(&mut self, other: &TimeHistogram) {
        // Both have the same bounds, so nothing can fail to fit.
        let _ = self.0.add(&other.0);
    }

    /// Removes all times.
    pub fn clear(&mut self) {
        // Its clear() keeps the shortest and the longest.
        self.0.reset();
    }
}

/// The distributions of the times between the timestamps.
#[derive(Clone, Debug, Default)]
pub struct Distributions {
    /// Planned to actual start, of every start: the lag of this client. If a shared connection had
    /// to become free first, the lag counts from then.
    pub lag: TimeHistogram,
    /// Actual start to connected, of every connection established.
    pub connect: TimeHistogram,
    /// Connected to secured, of every TLS handshake done.
    pub handshake: TimeHistogram,
    /// Connected, or secured with TLS, to first byte sent, of complete replies (as are the next
    /// four).
    pub send: TimeHistogram,
    /// First byte sent to first byte received.
    pub wait: TimeHistogram,
    /// First to last byte received.
    pub transfer: TimeHistogram,
    /// Actual start to last byte.
    pub service: TimeHistogram,
    /// Planned start to last byte.
    pub response: TimeHistogram,
}

impl Distributions {
    /// Records a complete reply.
    pub fn record(&mut self, timestamps: &Timestamps) {
        let Timestamps {
            planned_ns,
            started_ns,
            connected_ns,
            secured_ns,
            sent_ns,
            first_byte_ns,
            last_byte_ns,
        } = *timestamps;
        self.send.record(sent_ns.saturating_sub(connected_ns.max(secured_ns)));
        self.wait.record(first_byte_ns.saturating_sub(sent_ns));
        self.transfer.record(last_byte_ns.saturating_sub(first_byte_ns));
        self.service.record(last_byte_ns.saturating_sub(started_ns));
        self.response.record(last_byte_ns.saturating_sub(planned_ns));
    }

    /// Returns each distribution with its name, in the order of the timestamps.
    pub fn rows(&self) -> [(&'static str, &TimeHistogram); 8] {
        [
            ("lag", &self.lag),
            ("connect", &self.connect),
            ("handshake", &self.handshake),
            ("send", &self.send),
            ("wait", &self.wait),
            ("transfer", &self.transfer),
            ("service", &self.service),
            ("response", &self.response),
        ]
    }

    /// Adds the distributions of another.
    pub fn add(&mut self, other: &Distributions) {
        self.lag.add(&other.lag);
        self.connect.add(&other.connect);
        self.handshake.add(&other.handshake);
        self.send.add(&other.send);
        self.wait.add(&other.wait);
        self.transfer.add(&other.transfer);
        self.service.add(&other.service);
        self.response.add(&other.response);
    }
}

/// Counts over a run, or over a second of it. Serialized, errors are their total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests whose planned start has come: those of arrivals, and those of later steps of their
    /// sessions.
    pub planned: u64,
    /// Arrivals (connections or sessions begun by the schedule) whose planned start has come.
    pub arrivals: u64,
    /// Requests due of a server that keeps up: all steps of the sessions of these arrivals. An
    /// arrival that was never begun counts as one, because its session is unknown.
    pub due: u64,
    /// Requests begun: a connect or send was tried, or was impossible for lack of a descriptor or a
    /// free connection.
    pub started: u64,
    /// Requests of which at least one byte was sent.
    pub sent: u64,
    /// Connects attempted.
    pub connects: u64,
    /// Connections established.
    pub connected: u64,
    /// TLS handshakes done.
    pub handshakes: u64,
    /// Handshakes among them that resumed an earlier session.
    pub handshakes_resumed: u64,
    /// Complete replies.
    pub replies: u64,
    /// Complete replies by status class, 1xx to 5xx.
    pub statuses: [u64; 5],
    /// Failed requests, by kind. Every request that was started ends exactly once, as a reply or
    /// here, unless the operator stopped the run. A request that was planned and never started is
    /// the client's fault.
    #[serde(serialize_with = "total")]
    pub errors: Errors,
    /// Requests without an end: later ones of a session that never became due, because an earlier
    /// one failed, and those of [`Counts::cut_off`].
    pub abandoned: u64,
    /// Requests that an interrupt left in flight or waiting for a connection.
    pub cut_off: u64,
    /// Sessions in which every reply was complete.
    pub sessions: u64,
    /// Sessions that ended with an error.
    pub sessions_failed: u64,
    /// Sessions that continued on a new connection, because the server had closed the old one
    /// between two requests, as it may.
    pub reconnects: u64,
    /// Bytes sent; with TLS, of what was encrypted.
    #[serde(rename = "sent_bytes")]
    pub bytes_out: u64,
    /// Bytes received, heads and bodies; with TLS, decrypted.
    #[serde(rename = "received_bytes")]
    pub bytes_in: u64,
    /// Bytes of reply heads, within `bytes_in`.
    #[serde(rename = "received_head_bytes")]
    pub head_bytes_in: u64,
    /// Idle, slow-sender and slow-reader connections opened or reopened.
    pub background_opened: u64,
    /// Background connections closed or refused by the server.
    pub background_lost: u64,
    /// Complete replies read by slow senders and slow readers.
    pub background_replies: u64,
}

fn total<S: Serializer>(errors: &Errors, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(errors.total())
}

impl Counts {
    /// Returns the number of requests of failed sessions that never became due.
    pub fn never_due(&self) -> u64 {
        self.abandoned.saturating_sub(self.cut_off)
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Counts) {
        self.combine(other, |mine, theirs| mine + theirs);
    }

    /// Returns the counts since `earlier`, a copy of these counts.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut later = *self;
        later.combine(earlier, u64::saturating_sub);
        later
    }

    fn combine(&mut self, other: &Counts, with: fn(u64, u64) -> u64) {
        let pairs = [
            (&mut self.planned, other.planned),
            (&mut self.arrivals, other.arrivals),
            (&mut self.due, other.due),
            (&mut self.started, other.started),
            (&mut self.sent, other.sent),
            (&mut self.connects, other.connects),
            (&mut self.connected, other.connected),
            (&mut self.handshakes, other.handshakes),
            (&mut self.handshakes_resumed, other.handshakes_resumed),
            (&mut self.replies, other.replies),
            (&mut self.abandoned, other.abandoned),
            (&mut self.cut_off, other.cut_off),
            (&mut self.sessions, other.sessions),
            (&mut self.sessions_failed, other.sessions_failed),
            (&mut self.reconnects, other.reconnects),
            (&mut self.bytes_out, other.bytes_out),
            (&mut self.bytes_in, other.bytes_in),
            (&mut self.head_bytes_in, other.head_bytes_in),
            (&mut self.background_opened, other.background_opened),
            (&mut self.background_lost, other.background_lost),
            (&mut self.background_replies, other.background_replies),
        ];
        for (mine, theirs) in pairs.into_iter().chain(self.statuses.iter_mut().zip(other.statuses))
        {
            *mine = with(*mine, theirs);
        }
        self.errors.combine(&other.errors, with);
    }
}

/// A second of a run, of one thread or of all.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Number of the second after the warm-up, from 0.
    pub second: u64,
    /// Length, nanoseconds; the last second may be shorter.
    pub length_ns: u64,
    /// Counts of this second.
    pub counts: Counts,
    /// Times from planned start to last byte, of the replies of this second.
    pub response: TimeHistogram,
    /// Times from planned to actual start, of the starts of this second.
    pub lag: TimeHistogram,
    /// Connections open at the end of the second, background connections included.
    pub open: u64,
    /// CPU time of all driving threads together, nanoseconds.
    pub cpu_ns: u64,
    /// CPU share of the busiest driving thread, of one core, 0 to 1: since the warm-up, or until
    /// nothing more was begun if that is more.
    pub cpu_share_so_far: f64,
}

impl Interval {
    /// Adds another thread's part of the same second.
    pub fn add(&mut self, other: &Interval) {
        self.length_ns = self.length_ns.max(other.length_ns);
        self.counts.add(&other.counts);
        self.response.add(&other.response);
        self.lag.add(&other.lag);
        self.open += other.open;
        self.cpu_ns += other.cpu_ns;
        self.cpu_share_so_far = self.cpu_share_so_far.max(other.cpu_share_so_far);
    }

    /// Removes all measurements, and keeps the memory for them.
    pub fn clear(&mut self) {
        let Self { second, length_ns, counts, response, lag, open, cpu_ns, cpu_share_so_far } =
            self;
        (*second, *length_ns, *open, *cpu_ns) = (0, 0, 0, 0);
        *cpu_share_so_far = 0.0;
        *counts = Counts::default();
        response.clear();
        lag.clear();
    }
}

/// Summary of an [`Interval`], which is too large to be kept for every second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SecondSummary {
    /// Number of the second, from 0.
    pub second: u64,
    /// Length, nanoseconds.
    pub length_ns: u64,
    /// Counts of this second.
    pub counts: Counts,
    /// Median response time, nanoseconds; `None` without replies, as the next two.
    pub response_p50_ns: Option<u64>,
    /// 99th percentile of the response time, nanoseconds.
    pub response_p99_ns: Option<u64>,
    /// Longest response time, nanoseconds.
    pub response_max_ns: Option<u64>,
    /// 99th percentile of the lag, nanoseconds; `None` without starts.
    pub lag_p99_ns: Option<u64>,
    /// Connections open at the end of the second.
    pub open: u64,
    /// CPU time of the driving threads, nanoseconds.
    pub cpu_ns: u64,
}

impl From<&Interval> for SecondSummary {
    fn from(interval: &Interval) -> Self {
        Self {
            second: interval.second,
            length_ns: interval.length_ns,
            counts: interval.counts,
            response_p50_ns: interval.response.known_at(0.5),
            response_p99_ns: interval.response.known_at(0.99),
            response_max_ns: interval.response.known_at(1.0),
            lag_p99_ns: interval.lag.known_at(0.99),
            open: interval.open,
            cpu_ns: interval.cpu_ns,
        }
    }
}

/// CPU time of a thread. A time shorter than half a second has shares of 0: they would say little.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadCpu {
    /// User CPU time, nanoseconds.
    pub user_ns: u64,
    /// System CPU time, nanoseconds.
    pub system_ns: u64,
    /// The largest CPU share in any one second, 0 to 1.
    pub busiest: f64,
    /// The CPU share until nothing more was begun, 0 to 1: what came after that, such as waiting
    /// for the last replies, is left out.
    pub while_planned: f64,
    /// The share of the same time for which the thread was ready to run and waited for its core,
    /// 0 to 1; `None` where the kernel does not tell.
    pub run_delay: Option<f64>,
}

/// Packets of weir's own TCP, over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Segments sent, retransmissions included.
    pub sent: u64,
    /// Segments among them that were dropped behind the interface: there the server's side takes
    /// no more.
    pub dropped: u64,
    /// Segments among them that the interface refused. The client's fault.
    pub refused: u64,
    /// Frames sent through AF_XDP, and not by the packet socket.
    pub by_xdp: u64,
    /// Frames received.
    pub received: u64,
    /// Frames that found no room while the client was busy. The client's fault.
    pub overflowed: u64,
    /// Frames that could not be parsed.
    pub malformed: u64,
    /// Segments of no connection, as those of one that was closed a moment ago.
    pub strays: u64,
    /// Packets lost on their paths, as was asked for.
    pub lost: u64,
    /// What the connections have counted.
    pub tcp: tcp::Counts,
}

impl PacketCounts {
    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &PacketCounts) {
        self.sent += other.sent;
        self.by_xdp += other.by_xdp;
        self.dropped += other.dropped;
        self.refused += other.refused;
        self.received += other.received;
        self.overflowed += other.overflowed;
        self.malformed += other.malformed;
        self.strays += other.strays;
        self.lost += other.lost;
        self.tcp.add(&other.tcp);
    }
}

/// The outcome of a run, after its warm-up.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    /// All counts.
    pub counts: Counts,
    /// The counts of the whole run, warm-up included, as the server sees it.
    pub whole_run: Counts,
    /// Replies whose last byte came within [`RunOutcome::planned_ns`], whenever they were planned.
    pub replies_in_schedule: u64,
    /// Replies among them with a status of 2xx or 3xx.
    pub good_in_schedule: u64,
    /// The distributions of times.
    pub times: Distributions,
    /// Planned start to last byte, of replies with a status of 2xx or 3xx.
    pub good_response: TimeHistogram,
    /// The seconds after the warm-up, in order.
    pub seconds: Vec<SecondSummary>,
    /// Time from the first planned start (or the end of the warm-up) to the end of the schedule.
    pub planned_ns: u64,
    /// Time from the same start to the last reply or error, at least to the end of the schedule.
    pub elapsed_ns: u64,
    /// The largest number of connections open at once, background ones included: the sum of the
    /// threads' maxima.
    pub open_max: u64,
    /// Limit on the connections open at once: by descriptors, or the run's own if that is lower.
    pub open_limit: u64,
    /// Durations of complete sessions, planned start to last byte. A session cut short between two
    /// requests by the end of the run is neither complete nor failed.
    pub sessions: TimeHistogram,
    /// Lifetimes, from connect to close, of connections that carried at least one complete reply.
    pub lifetimes: TimeHistogram,
    /// CPU time of each driving thread.
    pub threads: Vec<ThreadCpu>,
    /// Packets of weir's own TCP; `None` with the kernel's.
    pub packets: Option<PacketCounts>,
    /// True if the operator stopped the run early (SIGINT).
    pub interrupted: bool,
}

impl RunOutcome {
    /// Adds the outcome of a thread.
    pub(crate) fn add(&mut self, thread: &RunOutcome) {
        if let Some(packets) = &thread.packets {
            self.packets.get_or_insert_default().add(packets);
        }
        self.counts.add(&thread.counts);
        self.whole_run.add(&thread.whole_run);
        self.replies_in_schedule += thread.replies_in_schedule;
        self.good_in_schedule += thread.good_in_schedule;
        self.times.add(&thread.times);
        self.good_response.add(&thread.good_response);
        self.sessions.add(&thread.sessions);
        self.lifetimes.add(&thread.lifetimes);
        self.threads.extend(&thread.threads);
        self.open_max += thread.open_max;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_that_was_cleared_counts_as_a_new_one() {
        let (mut used, mut new) = (Interval::default(), Interval::default());
        (used.second, used.length_ns, used.open, used.cpu_ns) = (3, 4, 5, 6);
        used.counts.errors.count(ErrorKind::Reset);
        used.lag.record(1_000_000);
        used.response.record(7);
        used.clear();
        assert_eq!((used.lag.max(), used.lag.min()), (0, 0));
        for interval in [&mut used, &mut new] {
            interval.lag.record(2000);
            interval.response.record(3000);
        }
        assert_eq!(SecondSummary::from(&used), SecondSummary::from(&new));
        assert_eq!(used.lag.0, new.lag.0);
        assert_eq!(used.response.0, new.response.0);
    }
}
