//! The connection machine: parses received bytes, has requests answered, and says what to do with
//! the socket. It makes no system call.
//!
//! Its caller owns the socket: a [`SocketConnection`] under readiness, the ring under completions.
//! It carries out the [`Action`] that the last call returned, and reports the outcome by the method
//! named here, which returns the next action:
//!
//! ```text
//! Action       the caller                              then reports by
//! ---------    -----------------------------------     -----------------------------
//! Read         reads into `read_buffer`                `received`
//! Fetch        runs `fetch`, which waits for a disk    `fetched`
//! Forward      moves a request and its reply between   `end_forward`, `end_refusal`
//!              the client and an upstream; or waits    `expire`, at the deadline
//! Yield        serves other connections first          `resume`
//! Write        sends `output`                          `sent`
//! Pause        sends nothing for now                   `expire`, at the deadline
//! Shutdown     shuts down the sending side             `write_side_shut`
//! Discard      reads, and throws away                  `discarded`
//! Close        closes the socket, after `end`          (nothing: the connection is over)
//! ```
//!
//! The caller may ask for the current action again ([`Connection::action`]), and calls
//! [`Connection::expire`] at [`Connection::deadline_ns`]. Overload control may call
//! [`Connection::refuse_with_503`] in place of a read, and a connection may be closed at any time.
//!
//! Inside, a connection is in one of nine states ([`State`]):
//!
//! ```text
//! Idle ──► Head ──► Reply ──► Idle
//!           │ ▲       │
//!           ▼ │       └─────► Linger ──► (closed)
//!   Fetch, Yield, Follow, Forward, Verify
//! ```
//!
//! [`SocketConnection`]: super::socket_connection::SocketConnection

mod bandwidth;
mod client_limit;
mod eviction;
mod forwarding;
mod handshake;
mod memory;
mod password;
mod proxy_header;
mod refusal;

use std::cell::OnceCell;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;

use weir_content::{Fetch, Waiter};
use weir_http1::{Body, HeadParser, Limits, Parse, Request, Status};

use super::cache_lookup::Wait;
use super::gate::PasswordWait;
use super::response::{self, Answer, Refused, StoredAnswer};
use super::send::SendOutcome;
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::context::forwarded::Forward;
use crate::context::output::Output;
use crate::context::read_rate::{RateVerdict, ReadRate, ReadRateLimits};
use crate::context::write_budget::PipelineBudget;
use crate::sites::client::Client;
use crate::sites::ruling::Ruling;
use crate::upstream::shared::Landing;

pub(crate) use eviction::EvictionRank;

/// Operation on the socket that a connection asks its caller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read from the client.
    Read,
    /// Fetch from a disk.
    Fetch,
    /// Forward to an upstream, or wait for something else; nothing is awaited from the client.
    Forward,
    /// Serve other connections first: this one could continue at once.
    Yield,
    /// Send the output.
    Write,
    /// Wait until the deadline: its client has been sent as much as it may be.
    Pause,
    /// Shut down the sending side.
    Shutdown,
    /// Read from the client and discard.
    Discard,
    /// Close: the connection is over.
    Close(CloseReason),
}

/// Maximum number of bytes read and discarded after the last reply.
const LINGER_BYTES_MAX: u64 = 4 << 20;

/// Least time between two deadlines while the sending side is being shut down, nanoseconds.
const SHUTDOWN_NS: u64 = 100_000_000;

/// Maximum size of a partial request kept in a buffer of its own size, bytes.
const KEPT_INPUT_BYTES: usize = 2048;

/// Maximum number of bytes of input while a request waits for the reply to another.
const FOLLOWING_INPUT_BYTES_MAX: usize = 64 << 10;

/// A deadline that never comes.
const NEVER: u64 = u64::MAX;

/// A connection. It holds no buffer while it is idle.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: SocketAddr,
    /// Address that the client connected to, where it is of use.
    destination: Option<Box<SocketAddr>>,
    /// True if the client was expected to speak TLS.
    is_tls: bool,
    /// True until the TLS handshake is over.
    is_handshaking: bool,
    /// True if it is counted among its client's connections until it ends.
    is_counted: bool,
    /// True once the current request has been charged to its client.
    is_charged: bool,
    /// Client of the request that is being answered, once it was asked for.
    client: OnceCell<Client>,
    /// True until the header of the PROXY protocol has been taken.
    expects_proxy_header: bool,
    state: State,
    /// Bytes read; those before `taken` have been used.
    input: Vec<u8>,
    taken: usize,
    parser: HeadParser,
    output: Option<Box<Output>>,
    /// Bytes of replies finished since the accept.
    sent_earlier: u64,
    /// Start of the current request, nanoseconds on the loop's clock; before the first, that of the
    /// connection.
    began_ns: u64,
    deadline_ns: u64,
    /// Time spent in this iteration on requests that arrived together.
    pipeline_budget: PipelineBudget,
    has_received: bool,
    /// True if the current request was tried before, and had to wait.
    is_retry: bool,
    /// Number of fetches made for the current request.
    fetches: u8,
    /// End of the current request's wait for the reply to another.
    landing: Option<Landing>,
    /// The rule for the current request, where there are sites.
    ruling: Option<Ruling>,
    /// Whether the password of the current request was found right, if it was verified.
    verified: Option<bool>,
    /// True while an unwanted request body is still to come.
    body_incomplete: bool,
    /// Requests that may still be made, with the current one; the largest number is any.
    requests_left: u32,
    /// Reason for the close, once known.
    close_reason: Option<CloseReason>,
    /// Memory that it held besides its own size when that was last counted, bytes.
    held_bytes: u32,
    /// Memory of its TLS session, bytes.
    session_bytes: u32,
}

#[derive(Debug)]
enum State {
    /// Between requests.
    Idle,
    /// Part of a head has been received.
    Head,
    /// A request is complete, but its content has to come from a disk.
    Fetch(Fetch),
    /// A request is complete, and other connections are served first: it has not been begun, or
    /// needs a listing that is being made.
    Yield(Option<Waiter>),
    /// A request is complete, and waits for the reply to another like it.
    Follow(Wait),
    /// A request is forwarded, and so is its reply.
    Forward(Box<Forward>),
    /// A request is complete, and its password is being verified.
    Verify(PasswordWait),
    /// The reply is being sent.
    Reply,
    /// The reply is sent, the sending side is shut down, and the client's last bytes are discarded.
    Linger { discarded: u64 },
}

/// `Continue` to the next state at once, or `Break` to wait for the result of an action.
type Flow = ControlFlow<Action>;

impl Connection {
    /// Creates a connection that was just accepted. `is_tls`: it begins with a TLS handshake.
    pub(crate) fn new(peer: SocketAddr, is_tls: bool, context: &WorkerContext) -> Self {
        let now_ns = context.now_ns();
        Self {
            peer,
            destination: None,
            is_tls,
            is_handshaking: is_tls,
            is_counted: false,
            is_charged: false,
            client: OnceCell::new(),
            expects_proxy_header: context.config.expects_proxy_header(peer),
            state: State::Idle,
            input: Vec::new(),
            taken: 0,
            parser: HeadParser::default(),
            output: None,
            sent_earlier: 0,
            began_ns: now_ns,
            deadline_ns: now_ns + context.config.timeouts.header_ns,
            pipeline_budget: PipelineBudget::default(),
            has_received: false,
            is_retry: false,
            fetches: 0,
            landing: None,
            ruling: None,
            verified: None,
            body_incomplete: false,
            requests_left: context.config.requests_max,
            close_reason: None,
            held_bytes: 0,
            session_bytes: 0,
        }
    }

    /// Returns the client's address; [`weir_sys::socket::UNKNOWN_PEER`] if it has none.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns when [`Connection::expire`] is due, nanoseconds on the loop's clock.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// Returns whether it is between requests, with nothing owed to the client.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Returns whether it is between requests, and has nothing of the next one.
    pub(crate) fn is_between(&self) -> bool {
        self.is_idle() && self.unread() == 0
    }

    /// Returns whether the client has ever sent anything.
    pub(crate) fn has_received_bytes(&self) -> bool {
        self.has_received
    }

    /// Returns the current action.
    pub(crate) fn action(&self) -> Action {
        match self.state {
            State::Idle | State::Head => Action::Read,
            State::Fetch(_) => Action::Fetch,
            State::Yield(_) => Action::Yield,
            State::Follow(Wait { landing: Some(_), .. })
            | State::Verify(PasswordWait { verified: Some(_), .. }) => Action::Yield,
            // It notices when the client goes.
            State::Follow(Wait { has_client_ended, .. })
            | State::Verify(PasswordWait { has_client_ended, .. })
                if !has_client_ended && self.unread() < FOLLOWING_INPUT_BYTES_MAX =>
            {
                Action::Read
            }
            State::Follow(_) | State::Forward(_) | State::Verify(_) => Action::Forward,
            State::Reply if self.is_paused() => Action::Pause,
            State::Reply => Action::Write,
            State::Linger { .. } => Action::Discard,
        }
    }

    /// Returns the fetch from a disk that it waits for, in that state.
    pub(crate) fn fetch(&self) -> Option<&Fetch> {
        if let State::Fetch(fetch) = &self.state { Some(fetch) } else { None }
    }

    /// Continues after a fetch, whether it succeeded or not.
    pub(crate) fn fetched(&mut self, context: &mut WorkerContext) -> Action {
        if matches!(self.state, State::Fetch(_)) {
            self.state = State::Head;
        }
        self.run(context)
    }

    /// Continues after others have been served, whether more has been received or not.
    pub(crate) fn resume(&mut self, context: &mut WorkerContext) -> Action {
        if let Some(close) = self.cut_for_memory(context) {
            return close;
        }
        if let State::Follow(Wait { landing: landing @ Some(_), .. }) = self.state {
            self.landing = landing;
            self.state = State::Head;
            return self.run(context);
        }
        if let State::Verify(PasswordWait { verified: verified @ Some(_), .. }) = self.state {
            self.verified = verified;
            self.state = State::Head;
            return self.run(context);
        }
        if !matches!(self.state, State::Yield(_)) {
            return self.run(context);
        }
        // The listing lives as long as a waiter for it.
        let _waiter = match std::mem::replace(&mut self.state, State::Idle) {
            State::Yield(Some(waiter)) => {
                self.state = State::Head;
                Some(waiter)
            }
            _ => {
                context.write_budget.spend();
                None
            }
        };
        self.run(context)
    }

    /// Returns the input, with spare capacity: [`Connection::received`] must follow for bytes
    /// appended to it.
    pub(crate) fn read_buffer(&mut self, context: &mut WorkerContext) -> &mut Vec<u8> {
        if self.input.capacity() <= KEPT_INPUT_BYTES {
            let mut input = context.take_input();
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

    /// Handles the result of a read into the input: a number of bytes, 0 if the client has shut
    /// down its side, or an error.
    pub(crate) fn received(
        &mut self,
        result: &io::Result<usize>,
        context: &mut WorkerContext,
    ) -> Action {
        match result {
            Ok(0) if self.waits_after_end(context) => self.action(),
            Ok(0) => {
                if !self.has_received {
                    context.counters.gone_before_read.one();
                }
                self.close_for(CloseReason::ClientClosed)
            }
            Ok(bytes) => {
                self.has_received = true;
                context.counters.bytes_in.add(*bytes as u64);
                if let Some((received_ns, _)) = self.waiting() {
                    *received_ns = context.now_ns();
                }
                self.cut_for_memory(context).unwrap_or_else(|| self.run(context))
            }
            Err(_) => {
                self.count_gone(context);
                self.close_for(CloseReason::ClientReset)
            }
        }
    }

    /// Records the reason for its end. The first reason counts.
    pub(crate) fn set_close_reason(&mut self, reason: CloseReason) {
        self.close_reason.get_or_insert(reason);
    }

    /// Records a reason for its end, and returns the action.
    pub(crate) fn close_for(&mut self, reason: CloseReason) -> Action {
        Action::Close(*self.close_reason.get_or_insert(reason))
    }

    /// Counts bytes that were read into the input before they are wanted: a reply is sent first.
    pub(crate) fn keep_unread(&mut self, bytes: usize, context: &mut WorkerContext) {
        self.has_received = true;
        context.counters.bytes_in.add(bytes as u64);
    }

    /// Returns the number of bytes read but not used yet.
    pub(crate) fn unread(&self) -> usize {
        // The input is elsewhere while a request in it is answered.
        self.input.len().saturating_sub(self.taken)
    }

    /// Returns the capacity of the input, bytes.
    pub(crate) fn input_bytes(&self) -> usize {
        self.input.capacity()
    }

    /// Returns whether nothing but a close follows the output, as far as is known now.
    pub(crate) fn closes_after_output(&self) -> bool {
        self.last_output().is_some_and(|output| output.close && !output.linger)
    }

    /// Returns whether the connection is idle or closes after the output, as far as is known now.
    pub(crate) fn is_idle_after_output(&self) -> bool {
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

    /// Handles the result of sending the output, once it is complete or has failed.
    pub(crate) fn sent(&mut self, sent: SendOutcome, context: &mut WorkerContext) -> Action {
        match sent {
            SendOutcome::All => match self.finish_reply(context) {
                ControlFlow::Continue(()) => self.run(context),
                ControlFlow::Break(action) => action,
            },
            SendOutcome::BudgetSpent | SendOutcome::Blocked | SendOutcome::NeedsDisk => {
                Action::Write
            }
            SendOutcome::Paused => Action::Pause,
            SendOutcome::ClientGone => {
                context.counters.gone.one();
                self.close_for(CloseReason::ClientReset)
            }
            SendOutcome::FileChanged => {
                context.counters.replies_changed.one();
                self.close_for(CloseReason::FileChanged)
            }
        }
    }

    /// Handles the result of shutting down the sending side.
    pub(crate) fn write_side_shut(&mut self, shut: bool, context: &WorkerContext) -> Action {
        if !shut {
            return self.close_for(CloseReason::Finished);
        }
        self.state = State::Linger { discarded: 0 };
        self.taken = self.input.len();
        let (now_ns, timeouts) = (context.now_ns(), &context.config.timeouts);
        self.deadline_ns = if self.body_incomplete {
            (now_ns + timeouts.body_ns).min(self.request_deadline_ns(context))
        } else {
            now_ns + timeouts.linger_ns
        };
        Action::Discard
    }

    /// Records `bytes` discarded; 0 means that the client has shut down its side.
    ///
    /// Reading continues after the last reply because a close with bytes unread would reset the
    /// connection, and the client could lose the reply (RFC 9112 §9.6).
    pub(crate) fn discarded(&mut self, bytes: usize) -> Action {
        if let State::Linger { discarded } = &mut self.state {
            *discarded += bytes as u64;
            if bytes > 0 && *discarded <= LINGER_BYTES_MAX {
                return Action::Discard;
            }
        }
        self.close_for(CloseReason::Finished)
    }

    /// Releases the buffers that are not needed while it waits.
    pub(crate) fn release_idle_buffers(&mut self, context: &mut WorkerContext) {
        if self.taken == self.input.len() {
            self.release_input(context);
        } else if self.action() == Action::Read {
            self.shrink_input(context);
        }
        self.count_held(context);
    }

    /// Moves the current deadline forward to `deadline_ns`, if that is earlier.
    pub(crate) fn shorten_deadline(&mut self, deadline_ns: u64) {
        self.deadline_ns = self.deadline_ns.min(deadline_ns);
    }

    /// Ends or prolongs the state whose deadline has come; `None` if it continues unchanged.
    /// `unacknowledged`: bytes written to the client that have not reached its side, if known.
    pub(crate) fn expire(
        &mut self,
        unacknowledged: Option<u64>,
        context: &mut WorkerContext,
    ) -> Option<Action> {
        let reason = match self.state {
            State::Reply if self.is_paused() => return Some(self.expire_pause(context)),
            State::Reply => return self.expire_reply(unacknowledged, context),
            State::Forward(_) => return Some(self.expire_forward(unacknowledged, context)),
            State::Verify(_) => return Some(self.expire_verification(context)),
            State::Head => {
                let is_late = self.request_deadline_ns(context) <= context.now_ns();
                let reason =
                    if is_late { CloseReason::RequestTimeout } else { CloseReason::HeaderTimeout };
                self.set_close_reason(reason);
                return Some(self.refuse_and_close(Status::REQUEST_TIMEOUT, context));
            }
            State::Idle if context.draining => CloseReason::Drained,
            State::Idle if self.has_received => CloseReason::IdleTimeout,
            State::Idle => CloseReason::HeaderTimeout,
            State::Fetch(_) | State::Yield(_) | State::Follow(_) => CloseReason::RequestTimeout,
            State::Linger { .. } if self.body_incomplete => CloseReason::BodyTimeout,
            State::Linger { .. } => CloseReason::Finished,
        };
        Some(self.close_for(reason))
    }

    /// Releases everything. `reason`: why it is closed, if no other reason was recorded before.
    /// Returns whether a reply was cut short: the close must then be a reset, so that the client
    /// does not take the reply for complete.
    pub(crate) fn end(&mut self, reason: CloseReason, context: &mut WorkerContext) -> bool {
        let reason =
            if matches!(self.state, State::Linger { .. }) { CloseReason::Finished } else { reason };
        context.counters.closed.one();
        self.close_reason.unwrap_or(reason).count(&mut context.counters);
        context.counters.tls_unfinished.add(self.is_handshaking.into());
        // Every reply has a head, so that a complete one has bytes.
        context.counters.never_completed.add((self.sent_earlier == 0).into());
        self.count_down_for_client(context);
        self.release_input(context);
        context.memory.connections -= i64::from(std::mem::take(&mut self.held_bytes));
        match std::mem::replace(&mut self.state, State::Idle) {
            // The loop ends, and with it what goes on without a client.
            State::Forward(forward) if reason == CloseReason::Drained => forward.give_up(context),
            State::Forward(forward) => forward.abandon(context),
            State::Follow(wait) => wait.leave(context),
            _ => {}
        }
        let Some(mut output) = self.output.take() else { return false };
        let cut = output.is_begun();
        if cut {
            context.counters.replies_cut.add(output.replies());
        }
        self.log(&mut output, context);
        self.give_back_bytes(&mut output, context);
        context.give_output(output);
        cut
    }

    fn count_gone(&self, context: &mut WorkerContext) {
        if self.has_received {
            context.counters.gone.one();
        } else {
            context.counters.gone_before_read.one();
        }
    }

    /// Advances from state to state until one must wait.
    fn run(&mut self, context: &mut WorkerContext) -> Action {
        while matches!(self.state, State::Idle | State::Head) {
            if let ControlFlow::Break(action) = self.take_request(context) {
                return action;
            }
        }
        self.action()
    }

    fn take_request(&mut self, context: &mut WorkerContext) -> Flow {
        let now_ns = context.now_ns();
        if self.taken == self.input.len() {
            return self.wait_for_request(context);
        }
        if self.expects_proxy_header {
            return self.take_proxy_header();
        }
        if matches!(self.state, State::Idle) {
            if self.pipeline_budget.is_spent(now_ns, || context.read_clock_ns()) {
                return self.yield_to_others(None, context);
            }
            self.state = State::Head;
            // The time for the first head has run since the accept.
            let is_first = self.sent_earlier == 0 && self.output.is_none();
            let since_ns = if is_first { self.began_ns } else { now_ns };
            self.began_ns = now_ns;
            let header_ns = since_ns + context.config.timeouts.header_ns;
            self.deadline_ns = header_ns.min(self.request_deadline_ns(context));
            self.verified = None;
        }
        self.ruling = None;
        self.client = OnceCell::new();
        let input = std::mem::take(&mut self.input);
        let step = match self.parser.parse(&input[self.taken..], &Limits::default()) {
            Parse::Partial => self.wait_for_request(context),
            Parse::Complete(request) => self.answer(&request, &input[self.taken..], context),
            Parse::Refused(refusal) => {
                context.counters.refused_requests.one();
                self.refuse(refusal.status, Refused::Unread(&input[self.taken..]), context)
            }
        };
        self.input = input;
        step
    }

    /// Waits for the rest of a request. Replies to earlier requests, held back to share a write,
    /// are sent first.
    fn wait_for_request(&mut self, context: &WorkerContext) -> Flow {
        if self.output.is_some() {
            self.begin_reply(context);
            return ControlFlow::Continue(());
        }
        if matches!(self.state, State::Idle) && self.has_received {
            self.deadline_ns = context.now_ns() + context.config.timeouts.idle_ns;
        }
        ControlFlow::Break(Action::Read)
    }

    /// Answers the request at the start of `input`. Its body is not wanted: a complete one is
    /// skipped, and an incomplete one ends the connection.
    fn answer(&mut self, request: &Request<'_>, input: &[u8], context: &mut WorkerContext) -> Flow {
        if let ControlFlow::Break(flow) = self.pass_checks(request, input, context) {
            return flow;
        }
        let stored = match self.route(request, input, context) {
            ControlFlow::Continue(stored) => stored,
            ControlFlow::Break(flow) => return flow,
        };
        let body_bytes_max = response::body_bytes_max(&context.config, self.ruling);
        let body = Body::new(request.framing).advance(&input[request.head_len..]);
        let body = match body {
            Ok(body) if body.payload as u64 <= body_bytes_max => body,
            other => {
                let status = other.map_or_else(|e| e.status, |_| Status::CONTENT_TOO_LARGE);
                context.counters.refused_requests.one();
                return self.refuse(status, Refused::Request(request), context);
            }
        };
        self.body_incomplete = !body.done;
        let mut output = self.output.take().unwrap_or_else(|| context.take_output());
        let info = self.request_info();
        let answer = match stored {
            None => response::answer(request, info, context, &mut output),
            Some((stored, says)) => {
                let close = response::closes_after(request, info, context);
                let answer = StoredAnswer { stored: &stored, says, close, logged: None };
                response::answer_stored(request, answer, info, context, &mut output);
                Answer::Written
            }
        };
        self.is_retry = !matches!(answer, Answer::Written);
        match answer {
            Answer::Written => {}
            // Replies to earlier requests are sent first; the request is then parsed again.
            _ if output.replies() > 0 => {
                self.output = Some(output);
                self.begin_reply(context);
                return ControlFlow::Continue(());
            }
            Answer::NeedsDisk(fetch) => {
                context.give_output(output);
                return self.wait_for_disk(fetch, context);
            }
            Answer::NeedsListing(waiter) => {
                context.give_output(output);
                return self.yield_to_others(Some(waiter), context);
            }
        }
        self.taken += request.head_len + body.consumed;
        self.is_charged = false;
        self.fetches = 0;
        self.landing = None;
        self.count_request(context);
        let takes_more = output.takes_more() && context.config.strategy.eager_write;
        self.output = Some(output);
        if takes_more {
            self.state = State::Idle;
        } else {
            self.begin_reply(context);
        }
        ControlFlow::Continue(())
    }

    /// Returns the bytes read but not used yet.
    pub(super) fn unread_input(&self) -> &[u8] {
        self.input.get(self.taken..).unwrap_or_default()
    }

    /// Marks bytes read as used.
    pub(super) fn skip_input(&mut self, bytes: usize) {
        self.taken += bytes;
    }

    /// Takes out the output. [`Connection::put_output`] must follow.
    pub(super) fn take_output(&mut self) -> Option<Box<Output>> {
        self.output.take()
    }

    /// Puts an output in, or back.
    pub(super) fn put_output(&mut self, output: Box<Output>) {
        self.output = Some(output);
    }

    pub(super) fn request_info(&self) -> response::RequestInfo {
        let (endpoints, client) = (self.endpoints(), self.client.get().copied());
        let Self { peer, is_tls, began_ns, is_retry, fetches, body_incomplete, ruling, .. } = *self;
        response::RequestInfo {
            peer,
            client,
            is_tls,
            endpoints,
            ruling,
            began_ns,
            is_retry,
            fetches,
            body_incomplete,
            is_last: self.requests_left <= 1,
        }
    }

    /// Counts a request that is being answered.
    pub(super) fn count_request(&mut self, context: &mut WorkerContext) {
        context.counters.requests.one();
        if self.requests_left < u32::MAX {
            self.requests_left = self.requests_left.saturating_sub(1);
        }
    }

    /// Waits for a disk; the request is then parsed again.
    fn wait_for_disk(&mut self, fetch: Fetch, context: &WorkerContext) -> Flow {
        self.fetches = self.fetches.saturating_add(1);
        self.state = State::Fetch(fetch);
        self.deadline_ns = self.request_deadline_ns(context);
        ControlFlow::Break(Action::Fetch)
    }

    /// Yields to other connections, as soon as nothing is left to be sent.
    fn yield_to_others(&mut self, waiter: Option<Waiter>, context: &mut WorkerContext) -> Flow {
        if self.output.is_some() {
            self.begin_reply(context);
            return ControlFlow::Continue(());
        }
        context.counters.yields.one();
        let is_begun = waiter.is_some();
        self.deadline_ns = if is_begun { self.request_deadline_ns(context) } else { NEVER };
        self.state = State::Yield(waiter);
        ControlFlow::Break(Action::Yield)
    }

    fn begin_reply(&mut self, context: &WorkerContext) {
        self.state = State::Reply;
        let limits = ReadRateLimits::of(&context.config);
        let rate = ReadRate::begin(context.now_ns(), self.sent_earlier, &limits);
        self.deadline_ns = rate.due_ns(&limits).min(self.request_deadline_ns(context));
        if let Some(output) = &mut self.output {
            output.read_rate = rate;
        }
    }

    fn finish_reply(&mut self, context: &mut WorkerContext) -> Flow {
        let Some(mut output) = self.output.take() else {
            return ControlFlow::Break(self.close_for(CloseReason::Finished));
        };
        context.counters.replies.add(output.replies());
        context.counters.statuses(output.statuses);
        self.sent_earlier += output.sent_bytes;
        self.log(&mut output, context);
        let close = output.close || context.closes_idle();
        let linger = output.linger || self.taken < self.input.len();
        self.give_back_bytes(&mut output, context);
        context.give_output(output);
        if !close {
            self.state = State::Idle;
            return ControlFlow::Continue(());
        }
        if !self.body_incomplete {
            self.set_close_reason(CloseReason::Finished);
        }
        ControlFlow::Break(if linger {
            Action::Shutdown
        } else {
            self.close_for(CloseReason::Finished)
        })
    }

    /// Returns the deadline of the whole of a request and its reply.
    fn request_deadline_ns(&self, context: &WorkerContext) -> u64 {
        match context.config.timeouts.request_ns {
            0 => NEVER,
            request_ns => self.began_ns.saturating_add(request_ns),
        }
    }

    fn expire_reply(
        &mut self,
        unacknowledged: Option<u64>,
        context: &mut WorkerContext,
    ) -> Option<Action> {
        let (now_ns, limits) = (context.now_ns(), ReadRateLimits::of(&context.config));
        let request_deadline_ns = self.request_deadline_ns(context);
        if request_deadline_ns <= now_ns {
            return Some(self.close_for(CloseReason::RequestTimeout));
        }
        let has_taken_all = unacknowledged == Some(0);
        let taken_bytes = self.acknowledged(unacknowledged.unwrap_or(0));
        let Some(output) = &mut self.output else {
            // The reply is over, and the kernel shuts down the sending side.
            let later_ns = context.config.timeouts.linger_ns.max(SHUTDOWN_NS);
            self.deadline_ns = now_ns.saturating_add(later_ns).min(request_deadline_ns);
            return None;
        };
        let rate = &mut output.read_rate;
        match rate.check(now_ns, taken_bytes, has_taken_all, &limits) {
            RateVerdict::FastEnough => {
                self.deadline_ns = rate.due_ns(&limits).min(request_deadline_ns);
                None
            }
            RateVerdict::Slow => Some(self.close_for(CloseReason::RateTimeout)),
            RateVerdict::Stalled => Some(self.close_for(CloseReason::StallTimeout)),
        }
    }

    /// Returns the number of bytes written to the client since the accept that have reached its
    /// side.
    pub(super) fn acknowledged(&self, unacknowledged: u64) -> u64 {
        let written =
            self.sent_earlier + self.output.as_ref().map_or(0, |output| output.sent_bytes);
        written.saturating_sub(unacknowledged)
    }

    /// Returns whether [`Connection::note_acknowledged`] is still to come for the current reply, or
    /// for one that is forwarded.
    pub(crate) fn wants_acknowledged(&self) -> bool {
        match &self.state {
            State::Reply => {
                self.output.as_ref().is_some_and(|output| output.read_rate.wants_mark())
            }
            State::Forward(forward) => {
                forward.client_rate.as_ref().is_some_and(ReadRate::wants_mark)
            }
            _ => false,
        }
    }

    /// Records, when a reply first has to wait and its first bytes have hardly left, how much of
    /// the output before it had arrived by then.
    pub(crate) fn note_acknowledged(&mut self, unacknowledged: u64) {
        let acknowledged = self.acknowledged(unacknowledged);
        match &mut self.state {
            State::Forward(forward) => {
                if let Some(rate) = &mut forward.client_rate {
                    rate.mark(forward.content_bytes + acknowledged);
                }
            }
            _ => {
                if let Some(output) = &mut self.output {
                    output.read_rate.mark(acknowledged);
                }
            }
        }
    }

    fn log(&self, output: &mut Output, context: &mut WorkerContext) {
        if context.log.is_none() {
            return;
        }
        // The iteration's time would be the same for all its replies, whose durations differ.
        let (unix_ns, now_ns) = (context.unix_ns(), context.read_clock_ns());
        if let Some(log) = &mut context.log {
            log.write(&mut output.records, output.sent_bytes, unix_ns, now_ns);
        }
    }

    /// Keeps the beginning of a request in a buffer of its own size, since slow clients may be
    /// many.
    fn shrink_input(&mut self, context: &mut WorkerContext) {
        let rest = &self.input[self.taken..];
        if rest.len() <= KEPT_INPUT_BYTES && self.input.capacity() > KEPT_INPUT_BYTES {
            let rest = rest.to_vec();
            self.release_input(context);
            self.input = rest;
        }
    }

    fn release_input(&mut self, context: &mut WorkerContext) {
        self.taken = 0;
        context.give_input(std::mem::take(&mut self.input));
    }
}
