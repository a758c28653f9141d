//! The connection machine. It is given what was read, has requests parsed and answered, says what
//! it wants done with its socket, and is told the outcome. It makes no system call itself: it knows
//! nothing of sockets, event mechanisms, accepting, or how content is found.

use std::io;
use std::net::SocketAddr;

use weir_content::{Fetch, Waiter};
use weir_http1::{Body, HeadParser, Limits, Parse, Request, Status};

use crate::close_reason::CloseReason;
use crate::output::{Output, Sent};
use crate::pace::{Pace, Verdict};
use crate::respond::{self, Pending, Refused};
use crate::service::Service;
use crate::turn::Slice;

/// Operation that a connection wants on its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Read from the client: [`Conn::received`].
    Read,
    /// Fetch from a disk ([`Conn::fetch`]): [`Conn::fetched`].
    Fetch,
    /// Serve others first: [`Conn::resume`].
    Yield,
    /// Send its output: [`Conn::sent`].
    Write,
    /// Shut down the sending side: [`Conn::shut`].
    Shutdown,
    /// Read from the client and discard: [`Conn::discarded`].
    Discard,
    /// Close: the connection is over.
    Close,
}

/// Loss when a connection is closed to make room for another, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spare {
    /// It has been sent its last reply.
    Done,
    /// It is kept open for another request.
    Kept,
    /// It is in the middle of a request, or before its first, and waits for its client.
    Silent,
    /// Its client has taken nothing of a reply for [`STALLED_NS`].
    Stalled,
}

/// Time after which a client that takes nothing of its reply may be closed to make room,
/// nanoseconds: longer than a lost segment takes to be sent again.
const STALLED_NS: u64 = 1_000_000_000;

/// Maximum number of bytes read and discarded after the last reply.
const LINGER_BYTES_MAX: u64 = 4 << 20;

/// Maximum size of a partial request kept in a buffer of its own size, bytes.
const KEPT_INPUT_BYTES: usize = 2048;

/// A deadline that never comes.
const NEVER: u64 = u64::MAX;

/// A connection. It holds no buffer while it is idle.
#[derive(Debug)]
pub(crate) struct Conn {
    peer: SocketAddr,
    stage: Stage,
    /// Bytes read; those before `taken` have been used.
    input: Vec<u8>,
    taken: usize,
    parser: HeadParser,
    output: Option<Box<Output>>,
    /// Bytes of replies finished since the accept.
    sent_before: u64,
    /// Start of the current request, nanoseconds on the loop's clock.
    began_ns: u64,
    deadline_ns: u64,
    /// Time spent in this round on requests that arrived together.
    slice: Slice,
    heard: bool,
    /// True if the current request was tried before, and had to wait.
    is_retry: bool,
    /// Number of fetches made for the current request.
    fetches: u8,
    /// True while an unwanted request body is still to come.
    owed_body: bool,
    /// Reason for the close, once known.
    close_reason: Option<CloseReason>,
}

#[derive(Debug)]
enum Stage {
    /// Between requests.
    Idle,
    /// Part of a head has been received.
    Head,
    /// A request is complete, but what it asks for has to come from a disk.
    Fetch(Fetch),
    /// A request is complete, and others are served first: it has not been begun, or asks for a
    /// listing that is being made.
    Yield(Option<Waiter>),
    /// The reply is being sent.
    Reply,
    /// The reply is sent, the sending side is shut down, and the client's last bytes are discarded.
    Linger { thrown: u64 },
}

/// Next step after a stage: another stage at once, or a wait.
enum Step {
    Again,
    Rest(Want),
}

impl Conn {
    pub(crate) fn new(peer: SocketAddr, service: &Service) -> Self {
        let now_ns = service.now_ns();
        Self {
            peer,
            stage: Stage::Idle,
            input: Vec::new(),
            taken: 0,
            parser: HeadParser::default(),
            output: None,
            sent_before: 0,
            began_ns: now_ns,
            deadline_ns: now_ns + service.config.timeouts.header_ns,
            slice: Slice::default(),
            heard: false,
            is_retry: false,
            fetches: 0,
            owed_body: false,
            close_reason: None,
        }
    }

    /// Returns the client's address; [`weir_sys::socket::UNKNOWN_PEER`] if it has none.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns when [`Conn::expire`] is due, nanoseconds on the loop's clock.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Returns whether it is between requests, with nothing owed to the client.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle)
    }

    /// Returns whether the client has ever sent anything.
    pub(crate) fn was_heard(&self) -> bool {
        self.heard
    }

    /// Returns the loss if it is closed now, and a time that is earlier the longer it has waited
    /// for its client; `None` if it is not to be closed.
    pub(crate) fn spare(&self, now_ns: u64) -> Option<(Spare, u64)> {
        match self.stage {
            Stage::Linger { .. } => Some((Spare::Done, self.deadline_ns)),
            Stage::Idle if self.heard => Some((Spare::Kept, self.deadline_ns)),
            Stage::Idle | Stage::Head => Some((Spare::Silent, self.began_ns)),
            Stage::Reply => {
                let full_since_ns = self.output.as_ref()?.full_since_ns?;
                (full_since_ns.saturating_add(STALLED_NS) <= now_ns)
                    .then_some((Spare::Stalled, full_since_ns))
            }
            Stage::Fetch(_) | Stage::Yield(_) => None,
        }
    }

    /// Returns what it wants now.
    pub(crate) fn want(&self) -> Want {
        match self.stage {
            Stage::Idle | Stage::Head => Want::Read,
            Stage::Fetch(_) => Want::Fetch,
            Stage::Yield(_) => Want::Yield,
            Stage::Reply => Want::Write,
            Stage::Linger { .. } => Want::Discard,
        }
    }

    /// Returns what has to come from a disk, while it wants that.
    pub(crate) fn fetch(&self) -> Option<&Fetch> {
        if let Stage::Fetch(fetch) = &self.stage { Some(fetch) } else { None }
    }

    /// Continues after a fetch, whether it succeeded or not.
    pub(crate) fn fetched(&mut self, service: &mut Service) -> Want {
        if matches!(self.stage, Stage::Fetch(_)) {
            self.stage = Stage::Head;
        }
        self.run(service)
    }

    /// Continues after others have been served, whether more has been received or not.
    pub(crate) fn resume(&mut self, service: &mut Service) -> Want {
        if !matches!(self.stage, Stage::Yield(_)) {
            return self.run(service);
        }
        // While the waiter lives, so does what it waits for.
        let _waiter = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Yield(Some(waiter)) => {
                self.stage = Stage::Head;
                Some(waiter)
            }
            _ => {
                service.turn.use_up();
                None
            }
        };
        self.run(service)
    }

    /// Returns the input with room for more: bytes appended to it are then announced by
    /// [`Conn::received`].
    pub(crate) fn room(&mut self, service: &mut Service) -> &mut Vec<u8> {
        if self.input.capacity() <= KEPT_INPUT_BYTES {
            let mut input = service.take_input();
            input.extend_from_slice(&self.input[self.taken..]);
            self.input = input;
        } else {
            self.input.drain(..self.taken);
        }
        self.taken = 0;
        if self.input.len() == self.input.capacity() {
            self.input.reserve(self.input.len());
        }
        &mut self.input
    }

    /// Handles the result of a read into the room: a number of bytes, 0 if the client has shut down
    /// its side, or an error.
    pub(crate) fn received(&mut self, result: &io::Result<usize>, service: &mut Service) -> Want {
        match result {
            Ok(0) => {
                if !self.heard {
                    service.counters.gone_before_read.one();
                }
                self.close_for(CloseReason::ClientClosed)
            }
            Ok(bytes) => {
                self.heard = true;
                service.counters.bytes_in.add(*bytes as u64);
                self.run(service)
            }
            Err(_) => {
                self.count_gone(service);
                self.close_for(CloseReason::ClientReset)
            }
        }
    }

    /// Notes the reason for its end. The first reason found counts.
    pub(crate) fn note_close(&mut self, reason: CloseReason) {
        self.close_reason.get_or_insert(reason);
    }

    fn close_for(&mut self, reason: CloseReason) -> Want {
        self.note_close(reason);
        Want::Close
    }

    /// Counts bytes that were read into the room but are not wanted yet: a reply is sent first.
    pub(crate) fn keep(&mut self, bytes: usize, service: &mut Service) {
        self.heard = true;
        service.counters.bytes_in.add(bytes as u64);
    }

    /// Number of bytes read but not used yet.
    pub(crate) fn unread(&self) -> usize {
        self.input.len() - self.taken
    }

    /// Memory used by the input, bytes.
    pub(crate) fn input_bytes(&self) -> usize {
        self.input.capacity()
    }

    /// Returns whether nothing but a close follows the output, as far as is known now.
    pub(crate) fn closes_after_output(&self) -> bool {
        self.last_output().is_some_and(|output| output.close && !output.linger)
    }

    /// Returns whether nothing but the next request, or a close, follows the output, as far as is
    /// known now.
    pub(crate) fn rests_after_output(&self) -> bool {
        self.last_output().is_some_and(|output| !(output.close && output.linger))
    }

    /// Returns the output, if nothing received after it is left to be handled.
    fn last_output(&self) -> Option<&Output> {
        self.output.as_deref().filter(|_| self.unread() == 0)
    }

    /// Returns the output, while it wants to write.
    pub(crate) fn output(&mut self) -> Option<&mut Output> {
        self.output.as_deref_mut()
    }

    /// Handles the result of sending the output, complete or failed. Not for a send that still goes
    /// on.
    pub(crate) fn sent(&mut self, sent: Sent, service: &mut Service) -> Want {
        match sent {
            Sent::All => match self.finish_reply(service) {
                Step::Again => self.run(service),
                Step::Rest(want) => want,
            },
            Sent::Turn | Sent::Blocked | Sent::Cold => Want::Write,
            Sent::Gone => {
                service.counters.gone.one();
                self.close_for(CloseReason::ClientReset)
            }
            Sent::Changed => {
                service.counters.replies_changed.one();
                self.close_for(CloseReason::FileChanged)
            }
        }
    }

    /// Handles the result of shutting down the sending side.
    pub(crate) fn shut(&mut self, shut: bool, service: &Service) -> Want {
        if !shut {
            return Want::Close;
        }
        self.stage = Stage::Linger { thrown: 0 };
        self.taken = self.input.len();
        let (now_ns, timeouts) = (service.now_ns(), &service.config.timeouts);
        self.deadline_ns = if self.owed_body {
            (now_ns + timeouts.body_ns).min(self.request_deadline_ns(service))
        } else {
            now_ns + timeouts.linger_ns
        };
        Want::Discard
    }

    /// Records `bytes` discarded; 0 means that the client has shut down its side.
    ///
    /// Reading continues after the last reply because a close with bytes unread would reset the
    /// connection, and the client could lose the reply (RFC 9112 §9.6).
    pub(crate) fn discarded(&mut self, bytes: usize) -> Want {
        let Stage::Linger { thrown } = &mut self.stage else { return Want::Close };
        *thrown += bytes as u64;
        if bytes == 0 || *thrown > LINGER_BYTES_MAX { Want::Close } else { Want::Discard }
    }

    /// Refuses the connection with a 503, whatever it asks for.
    pub(crate) fn turn_away(&mut self, service: &mut Service) -> Want {
        service.counters.turned_away.one();
        self.note_close(CloseReason::TurnedAway);
        self.give_up(Status::SERVICE_UNAVAILABLE, service)
    }

    /// Releases the buffers that are not needed while it waits.
    pub(crate) fn rest(&mut self, service: &mut Service) {
        if self.taken == self.input.len() {
            self.release_input(service);
        } else if self.want() == Want::Read {
            self.shrink_input(service);
        }
    }

    /// Moves the current deadline forward to `deadline_ns`, if that is earlier.
    pub(crate) fn hurry(&mut self, deadline_ns: u64) {
        self.deadline_ns = self.deadline_ns.min(deadline_ns);
    }

    /// Ends or prolongs the stage whose deadline has come; `None` is to go on as before.
    /// `unacknowledged`: bytes written to the client that have not reached its side, where known.
    pub(crate) fn expire(
        &mut self,
        unacknowledged: Option<u64>,
        service: &mut Service,
    ) -> Option<Want> {
        let is_late = self.request_deadline_ns(service) <= service.now_ns();
        match self.stage {
            Stage::Idle if service.draining => self.note_close(CloseReason::Drained),
            Stage::Idle if self.heard => self.note_close(CloseReason::IdleTimeout),
            Stage::Idle => self.note_close(CloseReason::HeaderTimeout),
            Stage::Head | Stage::Fetch(_) | Stage::Yield(_) if is_late => {
                self.note_close(CloseReason::RequestTimeout);
            }
            Stage::Head => self.note_close(CloseReason::HeaderTimeout),
            Stage::Linger { .. } if self.owed_body => self.note_close(CloseReason::BodyTimeout),
            Stage::Fetch(_) | Stage::Yield(_) | Stage::Reply | Stage::Linger { .. } => {}
        }
        match self.stage {
            Stage::Head => Some(self.give_up(Status::REQUEST_TIMEOUT, service)),
            Stage::Reply => self.expire_reply(unacknowledged, service),
            Stage::Idle | Stage::Fetch(_) | Stage::Yield(_) | Stage::Linger { .. } => {
                Some(Want::Close)
            }
        }
    }

    /// Releases everything. Returns whether a reply was cut short: the close must then be a reset,
    /// so that the client does not take the reply for complete.
    pub(crate) fn end(&mut self, service: &mut Service) -> bool {
        // Nothing of its own ended it.
        let others = match self.stage {
            Stage::Linger { .. } => CloseReason::Finished,
            _ if service.draining => CloseReason::Drained,
            _ => CloseReason::Evicted,
        };
        service.counters.closed.one();
        self.close_reason.unwrap_or(others).count(&mut service.counters);
        self.release_input(service);
        let Some(mut output) = self.output.take() else { return false };
        let cut = output.sent_bytes > 0;
        if cut {
            service.counters.replies_cut.add(output.replies());
        }
        self.log(&mut output, service);
        service.give_output(output);
        cut
    }

    fn count_gone(&self, service: &mut Service) {
        if self.heard {
            service.counters.gone.one();
        } else {
            service.counters.gone_before_read.one();
        }
    }

    /// Advances from stage to stage until one must wait.
    fn run(&mut self, service: &mut Service) -> Want {
        loop {
            let step = match self.stage {
                Stage::Idle | Stage::Head => self.take_request(service),
                Stage::Fetch(_) => Step::Rest(Want::Fetch),
                Stage::Yield(_) => Step::Rest(Want::Yield),
                Stage::Reply => Step::Rest(Want::Write),
                Stage::Linger { .. } => Step::Rest(Want::Discard),
            };
            if let Step::Rest(want) = step {
                return want;
            }
        }
    }

    fn take_request(&mut self, service: &mut Service) -> Step {
        let now_ns = service.now_ns();
        if self.taken == self.input.len() {
            return self.wait_for_request(service);
        }
        if matches!(self.stage, Stage::Idle) {
            if self.slice.is_used_up(now_ns, || service.read_clock_ns()) {
                return self.yield_to_others(None, service);
            }
            self.stage = Stage::Head;
            self.began_ns = now_ns;
            let header_ns = now_ns + service.config.timeouts.header_ns;
            self.deadline_ns = header_ns.min(self.request_deadline_ns(service));
        }
        let input = std::mem::take(&mut self.input);
        let step = match self.parser.parse(&input[self.taken..], &Limits::default()) {
            Parse::Partial => self.wait_for_request(service),
            Parse::Complete(request) => self.answer(&request, &input[self.taken..], service),
            Parse::Refused(refusal) => {
                service.counters.refused_requests.one();
                self.refuse(refusal.status, Refused::Unread(&input[self.taken..]), service)
            }
        };
        self.input = input;
        step
    }

    /// Waits for the rest of a request. Replies to earlier requests, held back to share a write,
    /// are sent first.
    fn wait_for_request(&mut self, service: &Service) -> Step {
        if self.output.is_some() {
            self.begin_reply(service);
            return Step::Again;
        }
        if matches!(self.stage, Stage::Idle) && self.heard {
            self.deadline_ns = service.now_ns() + service.config.timeouts.idle_ns;
        }
        Step::Rest(Want::Read)
    }

    /// Answers the request at the start of `input`. Its body is not wanted: a complete one is
    /// skipped, and an incomplete one ends the connection.
    fn answer(&mut self, request: &Request<'_>, input: &[u8], service: &mut Service) -> Step {
        let body_bytes_max = service.config.body_bytes_max;
        let body = Body::new(request.framing).advance(&input[request.head_len..]);
        let body = match body {
            Ok(body) if body.payload as u64 <= body_bytes_max => body,
            other => {
                let status = other.map_or_else(|e| e.status, |_| Status::CONTENT_TOO_LARGE);
                service.counters.refused_requests.one();
                return self.refuse(status, Refused::Request(request), service);
            }
        };
        self.owed_body = !body.done;
        let mut output = self.output.take().unwrap_or_else(|| service.take_output());
        if let Some(pending) = respond::answer(request, self.caller(), service, &mut output) {
            return self.wait_for(pending, output, service);
        }
        self.taken += request.head_len + body.consumed;
        self.is_retry = false;
        self.fetches = 0;
        service.counters.requests.one();
        let more = output.takes_more() && service.config.strategy.eager_write;
        self.output = Some(output);
        if more {
            self.stage = Stage::Idle;
        } else {
            self.begin_reply(service);
        }
        Step::Again
    }

    fn caller(&self) -> respond::Caller {
        let Self { peer, began_ns, is_retry, fetches, owed_body, .. } = *self;
        respond::Caller { peer, began_ns, is_retry, fetches, owed_body }
    }

    /// Waits for what the request needs first; the request is then parsed again. Replies to earlier
    /// requests are sent before.
    fn wait_for(&mut self, pending: Pending, output: Box<Output>, service: &mut Service) -> Step {
        if output.replies() > 0 {
            self.output = Some(output);
            self.begin_reply(service);
            return Step::Again;
        }
        service.give_output(output);
        self.is_retry = true;
        match pending {
            Pending::Fetch(fetch) => {
                self.fetches = self.fetches.saturating_add(1);
                self.stage = Stage::Fetch(fetch);
                self.deadline_ns = self.request_deadline_ns(service);
                Step::Rest(Want::Fetch)
            }
            Pending::Listing(waiter) => self.yield_to_others(Some(waiter), service),
        }
    }

    /// Yields to others, as soon as nothing is left to be sent.
    fn yield_to_others(&mut self, waiter: Option<Waiter>, service: &mut Service) -> Step {
        if self.output.is_some() {
            self.begin_reply(service);
            return Step::Again;
        }
        service.counters.yields.one();
        let is_begun = waiter.is_some();
        self.deadline_ns = if is_begun { self.request_deadline_ns(service) } else { NEVER };
        self.stage = Stage::Yield(waiter);
        Step::Rest(Want::Yield)
    }

    /// Answers a request that is refused. Nothing after it can be trusted to be a request.
    fn refuse(&mut self, status: Status, refused: Refused<'_, '_>, service: &mut Service) -> Step {
        self.note_close(CloseReason::Refused);
        let mut output = self.output.take().unwrap_or_else(|| service.take_output());
        respond::refuse(status, refused, self.caller(), service, &mut output);
        self.output = Some(output);
        self.begin_reply(service);
        Step::Again
    }

    fn begin_reply(&mut self, service: &Service) {
        self.stage = Stage::Reply;
        let limits = service.config.pace_limits();
        let pace = Pace::begin(service.now_ns(), self.sent_before, &limits);
        self.deadline_ns = pace.due_ns(&limits).min(self.request_deadline_ns(service));
        if let Some(output) = &mut self.output {
            output.pace = pace;
        }
    }

    fn finish_reply(&mut self, service: &mut Service) -> Step {
        let Some(mut output) = self.output.take() else { return Step::Rest(Want::Close) };
        service.counters.replies.add(output.replies());
        service.counters.statuses(output.statuses);
        self.sent_before += output.sent_bytes;
        self.log(&mut output, service);
        let close = output.close || service.is_closing();
        let linger = output.linger || self.taken < self.input.len();
        service.give_output(output);
        if !close {
            self.stage = Stage::Idle;
            return Step::Again;
        }
        if !self.owed_body {
            self.note_close(CloseReason::Finished);
        }
        Step::Rest(if linger { Want::Shutdown } else { Want::Close })
    }

    /// Reports the reason, if the client still listens, and closes.
    fn give_up(&mut self, status: Status, service: &mut Service) -> Want {
        if let Some(output) = self.output.take() {
            service.give_output(output);
        }
        let input = std::mem::take(&mut self.input);
        let unread = input.get(self.taken..).unwrap_or_default();
        let step = self.refuse(status, Refused::Unread(unread), service);
        self.taken = input.len();
        self.input = input;
        match step {
            Step::Again => self.run(service),
            Step::Rest(want) => want,
        }
    }

    /// Returns the deadline of the whole of a request and its reply.
    fn request_deadline_ns(&self, service: &Service) -> u64 {
        match service.config.timeouts.request_ns {
            0 => NEVER,
            request_ns => self.began_ns.saturating_add(request_ns),
        }
    }

    fn expire_reply(&mut self, unacknowledged: Option<u64>, service: &mut Service) -> Option<Want> {
        let (now_ns, limits) = (service.now_ns(), service.config.pace_limits());
        let request_deadline_ns = self.request_deadline_ns(service);
        if request_deadline_ns <= now_ns {
            return Some(self.close_for(CloseReason::RequestTimeout));
        }
        let owes_nothing = unacknowledged == Some(0);
        let taken_bytes = self.acknowledged(unacknowledged.unwrap_or(0));
        let pace = &mut self.output.as_mut()?.pace;
        match pace.check(now_ns, taken_bytes, owes_nothing, &limits) {
            Verdict::Keeps => {
                self.deadline_ns = pace.due_ns(&limits).min(request_deadline_ns);
                None
            }
            Verdict::Slow => Some(self.close_for(CloseReason::RateTimeout)),
            Verdict::Stalled => Some(self.close_for(CloseReason::StallTimeout)),
        }
    }

    /// Returns the number of bytes written to the client since the accept that have reached its
    /// side.
    fn acknowledged(&self, unacknowledged: u64) -> u64 {
        let written = self.sent_before + self.output.as_ref().map_or(0, |output| output.sent_bytes);
        written.saturating_sub(unacknowledged)
    }

    /// Returns whether [`Conn::note_acknowledged`] is still to come for the current reply.
    pub(crate) fn wants_acknowledged(&self) -> bool {
        matches!(self.stage, Stage::Reply)
            && self.output.as_ref().is_some_and(|output| output.pace.wants_mark())
    }

    /// Records, when a reply first has to wait and its first bytes have hardly left, how much of
    /// the output before it had arrived by then.
    pub(crate) fn note_acknowledged(&mut self, unacknowledged: u64) {
        let acknowledged = self.acknowledged(unacknowledged);
        if let Some(output) = &mut self.output {
            output.pace.mark(acknowledged);
        }
    }

    fn log(&self, output: &mut Output, service: &mut Service) {
        if service.log.is_none() {
            return;
        }
        // The phase's time is the same for all of it; how long a reply took is not.
        let (unix_ns, now_ns) = (service.unix_ns(), service.read_clock_ns());
        if let Some(log) = &mut service.log {
            log.write(&mut output.records, output.sent_bytes, unix_ns, now_ns);
        }
    }

    /// Keeps the beginning of a request in a buffer of its own size, since slow clients may be
    /// many.
    fn shrink_input(&mut self, service: &mut Service) {
        let rest = &self.input[self.taken..];
        if rest.len() <= KEPT_INPUT_BYTES && self.input.capacity() > KEPT_INPUT_BYTES {
            let rest = rest.to_vec();
            self.release_input(service);
            self.input = rest;
        }
    }

    fn release_input(&mut self, service: &mut Service) {
        self.taken = 0;
        service.give_input(std::mem::take(&mut self.input));
    }
}
