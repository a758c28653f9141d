//! What a run measures: six clocks a request, errors by kind, counts. Each thread has its own, and
//! they are added up. Nothing here knows sockets or judges the numbers.

use hdrhistogram::Histogram;

/// Times are kept to three significant digits, up to this many nanoseconds (an hour).
pub const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// Why a request has no reply, or a connection no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ErrorKind {
    /// No connection within the timeout.
    ConnectTimeout,
    /// ECONNREFUSED: nobody listens, or the server says no.
    ConnectRefused,
    /// A reset before the connection was known to be there.
    ConnectReset,
    /// The request could not be sent within the timeout: the socket stayed full, or no connection
    /// of a fixed number was free for it.
    SendTimeout,
    /// No byte of a reply came for the length of the timeout.
    ReplyTimeout,
    /// A reset (ECONNRESET, EPIPE) after the connection was there.
    Reset,
    /// The server closed before the reply was whole.
    ClosedEarly,
    /// What came is not HTTP, or not what was asked for.
    BadReply,
    /// No descriptor left here: EMFILE, ENFILE, or the run's own limit. The client's fault.
    FdUnavail,
    /// No port left here: EADDRNOTAVAIL. The client's fault.
    PortUnavail,
    /// Not whole by the deadline, counted from the planned start.
    Deadline,
    /// Anything else the kernel said.
    Other,
}

impl ErrorKind {
    /// All of them, in the order they are counted and shown.
    pub const ALL: [ErrorKind; 12] = [
        ErrorKind::ConnectTimeout,
        ErrorKind::ConnectRefused,
        ErrorKind::ConnectReset,
        ErrorKind::SendTimeout,
        ErrorKind::ReplyTimeout,
        ErrorKind::Reset,
        ErrorKind::ClosedEarly,
        ErrorKind::BadReply,
        ErrorKind::FdUnavail,
        ErrorKind::PortUnavail,
        ErrorKind::Deadline,
        ErrorKind::Other,
    ];

    /// The name in every output.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::ConnectTimeout => "connect-timeout",
            ErrorKind::ConnectRefused => "connect-refused",
            ErrorKind::ConnectReset => "connect-reset",
            ErrorKind::SendTimeout => "send-timeout",
            ErrorKind::ReplyTimeout => "reply-timeout",
            ErrorKind::Reset => "reset",
            ErrorKind::ClosedEarly => "closed-early",
            ErrorKind::BadReply => "bad-reply",
            ErrorKind::FdUnavail => "fd-unavail",
            ErrorKind::PortUnavail => "port-unavail",
            ErrorKind::Deadline => "deadline",
            ErrorKind::Other => "other",
        }
    }
}

/// How many errors of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors([u64; ErrorKind::ALL.len()]);

impl Errors {
    /// Counts one.
    pub fn count(&mut self, kind: ErrorKind) {
        self.0[kind as usize] += 1;
    }

    /// How many of a kind.
    pub fn of(&self, kind: ErrorKind) -> u64 {
        self.0[kind as usize]
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Name and count of each kind.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        ErrorKind::ALL.iter().map(|kind| (kind.name(), self.of(*kind)))
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Errors) {
        self.combine(other, |mine, theirs| mine + theirs);
    }

    fn combine(&mut self, other: &Errors, with: fn(u64, u64) -> u64) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine = with(*mine, theirs));
    }
}

/// The six clocks of one request, nanoseconds since the run began; 0 for what did not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// When it should have started.
    pub planned_ns: u64,
    /// When it did: just before the connect, or the send on an open connection.
    pub started_ns: u64,
    /// When its connection was known to be there; the start, on an open connection.
    pub connected_ns: u64,
    /// When the first byte of it was with the kernel.
    pub sent_ns: u64,
    /// When the first byte of the reply was read.
    pub first_byte_ns: u64,
    /// When the last byte of the reply was read.
    pub last_byte_ns: u64,
}

/// A distribution of times, nanoseconds.
#[derive(Clone, Debug)]
pub struct Times(pub Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        // The bounds are constants that the crate accepts; a histogram that grows is its other way.
        Self(Histogram::new_with_bounds(1, TIME_NS_MAX, 3).unwrap_or_else(|_| growing()))
    }
}

fn growing() -> Histogram<u64> {
    // Three digits are always allowed, so this is never reached twice.
    Histogram::new(3).unwrap_or_else(|_| growing())
}

impl Times {
    /// Counts a time; one past [`TIME_NS_MAX`] counts as that.
    pub fn record(&mut self, time_ns: u64) {
        self.0.saturating_record(time_ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that a share `quantile` (0 to 1) does not exceed, nanoseconds; 0 when empty.
    pub fn at(&self, quantile: f64) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.value_at_quantile(quantile) }
    }

    /// The mean, nanoseconds; 0 when empty.
    pub fn mean(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.mean() }
    }

    /// The standard deviation, nanoseconds; 0 when empty.
    pub fn stdev(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.stdev() }
    }

    /// The shortest, nanoseconds; 0 when empty.
    pub fn min(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.min() }
    }

    /// The longest, nanoseconds; 0 when empty.
    pub fn max(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.max() }
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Times) {
        // Both have the same bounds, so nothing can fail to fit.
        let _ = self.0.add(&other.0);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The distributions of what passed between the clocks.
#[derive(Clone, Debug, Default)]
pub struct Distributions {
    /// Planned to actual start, of every start: how late this client was. Where a shared connection
    /// had to become free first, from then.
    pub lag: Times,
    /// Actual start to connected, of every connection made.
    pub connect: Times,
    /// Connected to first byte sent, of whole replies (as are the next four).
    pub send: Times,
    /// First byte sent to first byte received.
    pub wait: Times,
    /// First to last byte received.
    pub transfer: Times,
    /// Actual start to last byte.
    pub service: Times,
    /// Planned start to last byte.
    pub response: Times,
}

impl Distributions {
    /// Counts a reply that is whole.
    pub fn record(&mut self, clocks: &Clocks) {
        let Clocks { planned_ns, started_ns, connected_ns, sent_ns, first_byte_ns, last_byte_ns } =
            *clocks;
        self.send.record(sent_ns.saturating_sub(connected_ns));
        self.wait.record(first_byte_ns.saturating_sub(sent_ns));
        self.transfer.record(last_byte_ns.saturating_sub(first_byte_ns));
        self.service.record(last_byte_ns.saturating_sub(started_ns));
        self.response.record(last_byte_ns.saturating_sub(planned_ns));
    }

    /// Each with its name, in the order of the clocks.
    pub fn rows(&self) -> [(&'static str, &Times); 7] {
        [
            ("lag", &self.lag),
            ("connect", &self.connect),
            ("send", &self.send),
            ("wait", &self.wait),
            ("transfer", &self.transfer),
            ("service", &self.service),
            ("response", &self.response),
        ]
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Distributions) {
        self.lag.add(&other.lag);
        self.connect.add(&other.connect);
        self.send.add(&other.send);
        self.wait.add(&other.wait);
        self.transfer.add(&other.transfer);
        self.service.add(&other.service);
        self.response.add(&other.response);
    }
}

/// What is counted, over a run or a second of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests whose planned start has come: of arrivals, and of later steps of their sessions.
    pub planned: u64,
    /// Arrivals (connections or sessions begun by the schedule) whose planned start has come.
    pub arrivals: u64,
    /// Requests begun: a connect or a send was tried, or was out of the question for want of a
    /// descriptor or a free connection.
    pub started: u64,
    /// Requests of which a byte was sent.
    pub sent: u64,
    /// Connects tried.
    pub connects: u64,
    /// Connections made.
    pub connected: u64,
    /// Whole replies.
    pub replies: u64,
    /// Whole replies by the hundreds of their status, 1xx to 5xx.
    pub statuses: [u64; 5],
    /// Requests in error, by kind. Every request started ends as a reply or here, once, unless the
    /// operator stopped the run. One that was planned and never started is the client's fault.
    pub errors: Errors,
    /// Later requests of a session that were never due, because an earlier one failed.
    pub abandoned: u64,
    /// Sessions whose every reply came whole.
    pub sessions: u64,
    /// Sessions that ended with an error.
    pub sessions_failed: u64,
    /// Sessions that went on over a new connection, because the server had closed the first
    /// between two requests, as it may.
    pub reconnects: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes received, heads and bodies.
    pub bytes_in: u64,
    /// Bytes of reply heads, within `bytes_in`.
    pub head_bytes_in: u64,
    /// Idle, slow-sender and slow-reader connections opened, first time or again.
    pub background_opened: u64,
    /// Of those, how many the server closed or refused.
    pub background_lost: u64,
    /// Whole replies read by slow senders and readers.
    pub background_replies: u64,
}

impl Counts {
    /// Adds another's.
    pub fn add(&mut self, other: &Counts) {
        self.combine(other, |mine, theirs| mine + theirs);
    }

    /// What was counted since `earlier`, a copy of these counts.
    pub fn since(&self, earlier: &Counts) -> Counts {
        let mut later = *self;
        later.combine(earlier, u64::saturating_sub);
        later
    }

    fn combine(&mut self, other: &Counts, with: fn(u64, u64) -> u64) {
        let pairs = [
            (&mut self.planned, other.planned),
            (&mut self.arrivals, other.arrivals),
            (&mut self.started, other.started),
            (&mut self.sent, other.sent),
            (&mut self.connects, other.connects),
            (&mut self.connected, other.connected),
            (&mut self.replies, other.replies),
            (&mut self.abandoned, other.abandoned),
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

/// One second of a run, of one thread or of all.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Which second after the warm-up, from 0.
    pub second: u64,
    /// How long it was, nanoseconds; the last may be shorter.
    pub length_ns: u64,
    /// What was counted in it.
    pub counts: Counts,
    /// Planned start to last byte, of the replies of this second.
    pub response: Times,
    /// Planned to actual start, of the starts of this second.
    pub lag: Times,
    /// Connections open at its end, background ones too.
    pub open: u64,
    /// Processor time the driving threads used in it, nanoseconds, all threads together.
    pub cpu_ns: u64,
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
    }
}

/// What is kept of an [`Interval`], which is too large to keep each of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// Which second, from 0.
    pub second: u64,
    /// How long it was, nanoseconds.
    pub length_ns: u64,
    /// What was counted in it.
    pub counts: Counts,
    /// Half of its responses took no longer, nanoseconds.
    pub response_p50_ns: u64,
    /// 99 % of them took no longer, nanoseconds.
    pub response_p99_ns: u64,
    /// The longest of them, nanoseconds.
    pub response_max_ns: u64,
    /// 99 % of its starts were no later than this, nanoseconds.
    pub lag_p99_ns: u64,
    /// Connections open at its end.
    pub open: u64,
    /// Processor time of the driving threads, nanoseconds.
    pub cpu_ns: u64,
}

impl From<&Interval> for Second {
    fn from(interval: &Interval) -> Self {
        Self {
            second: interval.second,
            length_ns: interval.length_ns,
            counts: interval.counts,
            response_p50_ns: interval.response.at(0.5),
            response_p99_ns: interval.response.at(0.99),
            response_max_ns: interval.response.max(),
            lag_p99_ns: interval.lag.at(0.99),
            open: interval.open,
            cpu_ns: interval.cpu_ns,
        }
    }
}

/// What one thread used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadUse {
    /// In its own code, nanoseconds.
    pub user_ns: u64,
    /// In the kernel for it, nanoseconds.
    pub system_ns: u64,
    /// The largest share of a second it was busy in, 0 to 1.
    pub busiest: f64,
}

/// A whole run, after its warm-up.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Everything counted.
    pub counts: Counts,
    /// The same counts of the whole run, warm-up included: what the server has seen of it.
    pub whole_run: Counts,
    /// Replies whose last byte came within [`Outcome::planned_ns`], whenever they were planned.
    pub replies_in_schedule: u64,
    /// Those of them with a status of 2xx or 3xx.
    pub good_in_schedule: u64,
    /// Where the time went.
    pub times: Distributions,
    /// Each second, in order, but for those of the warm-up.
    pub seconds: Vec<Second>,
    /// From the first planned start (or the end of the warm-up) to the end of the schedule.
    pub planned_ns: u64,
    /// The same start to the last reply or error, and not before the end of the schedule.
    pub elapsed_ns: u64,
    /// The most connections open at once, background ones too: each thread's most, added up.
    pub open_max: u64,
    /// The most that the run's limits allow to be open at once: descriptors.
    pub open_limit: u64,
    /// How long whole sessions took, planned start to last byte. One that the end of the run cut
    /// short between two requests is neither whole nor failed.
    pub sessions: Times,
    /// How long connections lived over which a whole reply came, connect to close.
    pub lifetimes: Times,
    /// One entry a driving thread.
    pub threads: Vec<ThreadUse>,
    /// Whether it was cut short by the operator (SIGINT).
    pub interrupted: bool,
}
