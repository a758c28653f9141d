//! The exchange of requests and replies on one connection, as a state machine. It is told what
//! happened, and returns what it wants done next. It makes no system call and reads no clock.
//!
//! ```text
//!          ┌──────────────── End ◄────────────────┬───────────────────────┐
//!          ▼                                      │                       │
//!        Idle ── begin ──► Connecting ──► Sending ──► Receiving ──► AwaitingClose
//!          │                 ▲    │         ▲  ▲          │
//!          │                 │    └► Hand- ─┘  │        Think
//!          │                 │       shaking   │          ▼
//!          └─ begin, if open ┼─────────────────┤
//!                            └─── resume ──────┴────── Thinking
//! ```
//!
//! The worker calls [`Exchange::begin`] for an arrival, [`Exchange::resume`] after a think time,
//! [`Exchange::ready`] for an event of the socket, [`Exchange::allow`] when more bytes may be sent
//! and [`Exchange::expire`] after [`Exchange::expires_ns`]. Each returns an [`Action`]; the worker
//! carries it out and reports the result to the method that the action names, which returns the
//! next one. A socket that the worker has closed is reported to [`Exchange::closed`].
//!
//! With TLS a handshake comes between connecting and sending, which the worker's stream makes; what
//! is sent and received here is plaintext. A server may then send what is no content (tickets), so
//! that a connection on which nothing is due is read as well.
//!
//! Requests are sent in groups: one that waits for the replies before it, and those pipelined
//! behind it. Times are nanoseconds on the run's clock.

mod handshake;
mod session;

use std::io;

use weir_http1::reply_parser::{ReplyParser, State as ReplyState};

use super::action::{
    Action, Interest, SocketEvent, SocketUse, connect_error_kind, watch_error_kind,
};
use super::recorder::{Recorder, UNPLANNED};
use crate::config::Config;
use crate::measure::{ErrorKind, Timestamps};
use crate::session::{RequestId, RequestTable, Session, SessionStep};

/// Settings and measurements shared by all exchanges of a thread.
pub(super) struct Context<'a> {
    pub(super) config: &'a Config,
    pub(super) recorder: Recorder,
    /// Bytes of a group that may be sent as soon as the connection is established.
    pub(super) first_bytes: usize,
}

/// The event an exchange waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// None: it has no session yet.
    #[default]
    Idle,
    /// The connection to be established.
    Connecting,
    /// The server's part of the TLS handshake.
    Handshaking,
    /// Room in the send buffer for the rest of a group, or permission to send it.
    Sending,
    /// The reply.
    Receiving,
    /// The end of a think time.
    Thinking,
    /// The server's close, after the last reply.
    AwaitingClose,
}

/// The exchange on one connection. The requests from `answered` to `group_end` are in flight: they
/// were sent, or are being sent, as one group.
#[derive(Default)]
pub(super) struct Exchange {
    state: State,
    is_open: bool,
    /// True if the connection has TLS.
    is_secure: bool,
    /// True once the peer has shut down its sending side, hung up or failed.
    hung_up: bool,
    /// True once a write has failed on this socket, after which there may be bytes left to read.
    write_failed: bool,
    /// True once a complete reply was received on this socket.
    has_replied: bool,
    /// True from a readiness event until the socket is read: no further event may follow.
    reads_after_send: bool,
    session: Session,
    group_start: u32,
    group_end: u32,
    answered: u32,
    /// Bytes of the group accepted by the kernel.
    offset: usize,
    /// Bytes of the group that may be sent so far.
    allowed: usize,
    parser: ReplyParser,
    /// The clocks of the oldest unanswered request, as far as they are common to its group.
    clocks: Timestamps,
    /// Time at which the kernel accepted the first byte of each request of the group, for those
    /// sent so far.
    sent_ns: Vec<u64>,
    /// Start of the session.
    begun_ns: u64,
    /// Time at which the socket was opened.
    opened_ns: u64,
    /// Time at which the TLS handshake began.
    connected_ns: u64,
    /// End of the last session.
    free_ns: u64,
    /// Time of the last progress.
    progress_ns: u64,
}

/// Returns the end of the group that begins with step `from`: the next step that waits for replies.
pub(super) fn group_end(steps: &[SessionStep], from: u32) -> u32 {
    let rest = steps.get(from as usize + 1..).unwrap_or_default();
    from + 1 + rest.iter().take_while(|step| step.piped).count() as u32
}

/// Results of actions, and events.
impl Exchange {
    /// Handles a connect that was begun. The first write shows whether it has succeeded: to a
    /// server on the same machine it has by the time connect(2) returns.
    pub(super) fn opened(&mut self, opened_ns: u64, is_secure: bool) -> Action {
        self.state = State::Connecting;
        self.is_open = true;
        self.is_secure = is_secure;
        self.hung_up = false;
        self.write_failed = false;
        self.has_replied = false;
        self.reads_after_send = false;
        self.opened_ns = opened_ns;
        if is_secure {
            Action::Handshake
        } else if self.session.steps.is_empty() {
            Action::Watch(Interest::ReadWrite)
        } else {
            Action::Send
        }
    }

    /// Handles an error of socket, bind or connect.
    pub(super) fn open_failed(
        &mut self,
        kind: ErrorKind,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        // Ahead of the first session nothing has failed: that session tries again.
        if self.session.steps.is_empty() { Action::Wait } else { self.fail(kind, now_ns, context) }
    }

    /// Handles the result of a connect ahead of the first session.
    pub(super) fn connect_checked(
        &mut self,
        is_connected: bool,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        self.state = State::Idle;
        if !is_connected || self.hung_up {
            return Action::Close;
        }
        context.recorder.connected(UNPLANNED, now_ns.saturating_sub(self.opened_ns));
        Action::Wait
    }

    /// Handles an event of the socket.
    pub(super) fn ready(&mut self, event: SocketEvent) -> Action {
        self.hung_up |= event.hung_up;
        match self.state {
            State::Connecting | State::Handshaking if self.is_secure => {
                self.reads_after_send |= event.has_bytes || event.hung_up;
                Action::Handshake
            }
            State::Connecting if self.session.steps.is_empty() => Action::CheckConnect,
            State::Connecting | State::Sending => {
                self.reads_after_send = true;
                self.try_to_send()
            }
            State::Receiving | State::Handshaking => Action::Read,
            State::AwaitingClose | State::Thinking | State::Idle if self.is_secure => Action::Read,
            State::AwaitingClose if self.hung_up => self.end(SocketUse::Close),
            State::AwaitingClose => Action::Wait,
            // No reply is due: either the server closes, as it may, or it sends what was not asked
            // for. Both cost the connection, but no request.
            State::Thinking | State::Idle if event.hung_up || event.has_bytes => Action::Close,
            State::Thinking | State::Idle => Action::Wait,
        }
    }

    /// Allows `bytes` more of the group to be sent.
    pub(super) fn allow(&mut self, bytes: usize) -> Action {
        self.allowed = self.allowed.saturating_add(bytes);
        self.try_to_send()
    }

    fn try_to_send(&mut self) -> Action {
        // While it connects, even an empty write is of use: it shows the result.
        if self.state == State::Sending && self.offset >= self.allowed {
            return self.watched();
        }
        Action::Send
    }

    /// Returns the bytes of the group that may be sent now. Joins the requests of a group in
    /// `scratch`.
    pub(super) fn unsent<'b>(
        &self,
        requests: &'b RequestTable,
        scratch: &'b mut Vec<u8>,
    ) -> &'b [u8] {
        let group: &[u8] = if self.group_end - self.group_start == 1 {
            self.bytes_of(self.group_start, requests)
        } else {
            scratch.clear();
            for step in self.group_start..self.group_end {
                scratch.extend_from_slice(self.bytes_of(step, requests));
            }
            scratch
        };
        group.get(self.offset..self.allowed.min(group.len())).unwrap_or_default()
    }

    /// Returns the bytes of the request of step number `step`.
    fn bytes_of<'b>(&self, step: u32, requests: &'b RequestTable) -> &'b [u8] {
        let index = step as usize;
        let request = self.session.steps.get(index).and_then(|step| requests.get(step.request));
        let closes = self.session.last_closes && index + 1 == self.session.steps.len();
        request.map_or(b"", |request| if closes { &request.close } else { &request.keep })
    }

    /// Handles the result of a write that was tried at `tried_ns`: a number of bytes, or an error.
    pub(super) fn written(
        &mut self,
        result: &io::Result<usize>,
        tried_ns: u64,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        match result {
            Ok(bytes) => self.sent(*bytes, tried_ns, now_ns, context),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Action::Watch(Interest::ReadWrite)
            }
            Err(error) if self.state == State::Connecting => {
                self.fail(connect_error_kind(error), now_ns, context)
            }
            // The server may have answered before it closed.
            Err(_) => {
                self.write_failed = true;
                self.reads_after_send = false;
                Action::Read
            }
        }
    }

    fn sent(
        &mut self,
        bytes: usize,
        tried_ns: u64,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        if self.state == State::Connecting {
            self.clocks.connected_ns = tried_ns;
            let took_ns = tried_ns.saturating_sub(self.clocks.started_ns);
            context.recorder.connected(self.clocks.planned_ns, took_ns);
        }
        self.offset += bytes;
        self.progress_ns = now_ns;
        let sent_before = self.sent_ns.len();
        let mut end_of_request = 0;
        for (nth, step) in (self.group_start..self.group_end).enumerate() {
            // A request's first byte is sent when more has been than all requests before it.
            if self.offset > end_of_request && self.sent_ns.len() == nth {
                self.sent_ns.push(now_ns);
            }
            end_of_request += self.bytes_of(step, &context.config.requests).len();
        }
        let counts = context.recorder.counts_at(self.clocks.planned_ns);
        counts.sent += (self.sent_ns.len() - sent_before) as u64;
        counts.bytes_out += bytes as u64;
        if self.offset >= end_of_request {
            self.state = State::Receiving;
            return Action::Watch(Interest::Read);
        }
        self.state = State::Sending;
        if self.offset >= self.allowed {
            Action::WatchUntilNextPart
        } else {
            Action::Watch(Interest::ReadWrite)
        }
    }

    /// Handles a socket that is watched as wanted.
    pub(super) fn watched(&mut self) -> Action {
        let reads = std::mem::take(&mut self.reads_after_send);
        match self.state {
            State::Handshaking if reads => Action::Handshake,
            State::Connecting => Action::Wait,
            _ if reads => Action::Read,
            _ => Action::Wait,
        }
    }

    /// Handles a socket that cannot be watched.
    pub(super) fn watch_failed(
        &mut self,
        error: &io::Error,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        if self.session.steps.is_empty() {
            self.state = State::Idle;
            return Action::Close;
        }
        self.fail(watch_error_kind(error), now_ns, context)
    }

    /// Returns whether a read is repeated until it fails, because no further event follows.
    pub(super) fn reads_to_end(&self) -> bool {
        self.hung_up || self.write_failed
    }

    /// Returns what follows a read after which there was nothing more.
    pub(super) fn drained(&mut self) -> Action {
        let is_over = self.state == State::AwaitingClose && self.hung_up;
        if is_over { self.end(SocketUse::Close) } else { Action::Wait }
    }

    /// Notes bytes that were read while a reply is due. With TLS they may be a part of a record,
    /// which delivers nothing yet, and are progress all the same.
    pub(super) fn progressed(&mut self, now_ns: u64) {
        if matches!(self.state, State::Sending | State::Receiving) {
            self.progress_ns = now_ns;
        }
    }

    /// Handles bytes that were read, none at the end of the stream. Returns [`Action::Read`] if
    /// more are expected.
    pub(super) fn received(
        &mut self,
        mut bytes: &[u8],
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        if bytes.is_empty() {
            self.hung_up = true;
            return self.end_of_stream(now_ns, context);
        }
        match self.state {
            State::Idle | State::Thinking => return Action::Close,
            State::AwaitingClose => return Action::Read,
            _ => self.progress_ns = now_ns,
        }
        context.recorder.counts_at(self.clocks.planned_ns).bytes_in += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.is_unsent() {
                // It answers what was not asked yet.
                return self.fail(ErrorKind::BadReply, now_ns, context);
            }
            if self.clocks.first_byte_ns == 0 {
                self.clocks.first_byte_ns = now_ns;
            }
            let Ok(progress) = self.parser.advance(bytes) else {
                return self.fail(ErrorKind::BadReply, now_ns, context);
            };
            if progress.state != ReplyState::Done {
                return Action::Read;
            }
            bytes = bytes.get(progress.taken..).unwrap_or_default();
            let action = self.replied(now_ns, bytes.is_empty(), context);
            if action != Action::Read {
                // More bytes than were asked for: the connection is of no further use. One that the
                // server is to close has none anyway.
                return if bytes.is_empty() { action } else { action.and_close() };
            }
        }
        Action::Read
    }

    fn end_of_stream(&mut self, now_ns: u64, context: &mut Context<'_>) -> Action {
        match self.state {
            State::Idle | State::Thinking => return Action::Close,
            State::AwaitingClose => return self.drained(),
            _ => {}
        }
        if self.parser.eof().is_ok() && self.parser.started() {
            return self.replied(now_ns, true, context);
        }
        let kind = if self.write_failed { ErrorKind::Reset } else { ErrorKind::ClosedEarly };
        self.fail(kind, now_ns, context)
    }

    /// Handles an error of a read on a connection that is established.
    pub(super) fn read_failed(
        &mut self,
        error: &io::Error,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        let kind = match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ErrorKind::Reset,
            io::ErrorKind::InvalidData => ErrorKind::TcpViolation,
            _ => ErrorKind::Other,
        };
        self.broken(kind, now_ns, context)
    }

    /// Handles the failure of a connection that is established. Without a request in flight it
    /// costs none.
    fn broken(&mut self, kind: ErrorKind, now_ns: u64, context: &mut Context<'_>) -> Action {
        match self.state {
            State::Idle | State::Thinking => Action::Close,
            State::AwaitingClose => self.end(SocketUse::Close),
            _ => self.fail(kind, now_ns, context),
        }
    }

    /// Handles a complete reply. `last`: no more bytes have been read. Returns [`Action::Read`] if
    /// further replies are expected.
    fn replied(&mut self, now_ns: u64, last: bool, context: &mut Context<'_>) -> Action {
        if context.config.deadline_of(self.clocks.planned_ns) <= now_ns {
            return self.fail(ErrorKind::Deadline, now_ns, context);
        }
        self.has_replied = true;
        let head_bytes = self.parser.head_bytes();
        context.recorder.counts_at(self.clocks.planned_ns).head_bytes_in += head_bytes;
        context.recorder.replied(&self.timestamps(now_ns), self.request(), self.parser.status());
        self.answered += 1;
        self.clocks.first_byte_ns = if last { 0 } else { now_ns };
        let stays_open = self.parser.keeps_open();
        if self.in_flight() == 0 {
            // After a hang-up no event tells of the end, and a reply that came before its request
            // was out leaves the connection in the middle of that.
            let usable = stays_open && !self.hung_up && self.state == State::Receiving;
            return self.end_group(now_ns, usable, context);
        }
        if !stays_open {
            // The server leaves the requests behind this one unanswered.
            return self.fail(ErrorKind::ClosedEarly, now_ns, context);
        }
        self.expect_reply(&context.config.requests);
        Action::Read
    }

    /// Handles the end of the wait that [`Exchange::expires_ns`] limits.
    pub(super) fn expire(&mut self, now_ns: u64, context: &mut Context<'_>) -> Action {
        let kind = match self.state {
            State::AwaitingClose => return self.end(SocketUse::Close),
            _ if context.config.deadline_of(self.clocks.planned_ns) <= now_ns => {
                ErrorKind::Deadline
            }
            State::Connecting => ErrorKind::ConnectTimeout,
            State::Handshaking => ErrorKind::HandshakeTimeout,
            State::Sending => ErrorKind::SendTimeout,
            _ => ErrorKind::ReplyTimeout,
        };
        self.fail(kind, now_ns, context)
    }

    /// Handles the close of the socket.
    pub(super) fn closed(&mut self, now_ns: u64, context: &mut Context<'_>) {
        self.is_open = false;
        self.hung_up = false;
        if self.has_replied {
            context.recorder.closed(self.clocks.planned_ns, now_ns.saturating_sub(self.opened_ns));
        }
    }
}

/// The present state.
impl Exchange {
    /// Returns the time at which the current wait expires; `None` if it may last.
    pub(super) fn expires_ns(&self, config: &Config) -> Option<u64> {
        let timeout_ns = self.progress_ns.saturating_add(config.timeout_ns);
        match self.state {
            State::Idle | State::Thinking => None,
            State::AwaitingClose => Some(timeout_ns),
            _ => Some(timeout_ns.min(config.deadline_of(self.clocks.planned_ns))),
        }
    }

    /// Returns whether the peer has shut down its sending side, hung up or failed.
    pub(super) fn has_hung_up(&self) -> bool {
        self.hung_up || self.write_failed
    }

    /// Returns whether its session has starts to come: groups behind the one that was begun last.
    pub(super) fn goes_on(&self) -> bool {
        (self.group_end as usize) < self.session.steps.len()
    }

    /// Returns the number of requests sent or being sent without a complete reply.
    fn in_flight(&self) -> u32 {
        self.group_end.saturating_sub(self.answered)
    }

    /// Returns whether no byte of the oldest unanswered request has been sent.
    fn is_unsent(&self) -> bool {
        self.sent_ns.len() <= self.answered.saturating_sub(self.group_start) as usize
    }

    /// Returns the oldest unanswered request.
    fn request(&self) -> RequestId {
        let step = self.session.steps.get(self.answered as usize);
        step.map_or(RequestId(0), |step| step.request)
    }

    /// Returns the clocks of the oldest unanswered request.
    fn timestamps(&self, last_byte_ns: u64) -> Timestamps {
        let nth = self.answered.saturating_sub(self.group_start) as usize;
        let sent_ns = self.sent_ns.get(nth).copied().unwrap_or(0);
        Timestamps { sent_ns, last_byte_ns, ..self.clocks }
    }
}

#[cfg(test)]
mod tests;
