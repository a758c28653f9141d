//! The way of a forwarded request through the two sockets: bytes are moved between the client and
//! the upstream until neither side can move.

use std::io;
use std::ops::DerefMut;
use std::sync::Arc;

use weir_cache::Stored;
use weir_dispatch::readiness::Interest;
use weir_http1::Status;
use weir_http1::forward::ReplyPart;
use weir_sys::pipe::Pipe;

use super::background;
use super::cache_store;
use super::connection::{Action, Connection};
use super::forward_content::CONTINUE;
use super::forward_failure::Failure;
use super::send::SendOutcome;
use super::upstream_io::{Received, exchange, has_room, outcome_of, receive_reply};
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::context::forwarded::{Forward, Place};
use crate::context::log::Record;

/// Maximum number of bytes read from a client ahead of time, to notice when it goes.
const AHEAD_BYTES_MAX: usize = 16 << 10;

/// Number of turns between the two sides before other connections are served.
const TURNS_MAX: usize = 32;

/// A client whose request is forwarded: its connection, and how bytes get to and from it.
pub(crate) trait ClientIo: DerefMut<Target = Connection> {
    /// Returns whether large content may pass through a pipe.
    fn splices(&self) -> bool;

    /// Returns whether a read is known to find nothing.
    fn is_read_blocked(&self) -> bool;

    /// Reads into the input; 0 is the end.
    ///
    /// # Errors
    /// Errors of recv(2); WouldBlock where bytes arrive by themselves.
    fn fill(&mut self, context: &mut WorkerContext) -> io::Result<usize>;

    /// Sends the output as far as there is room; `Blocked` where it is sent once the caller waits
    /// for that.
    fn write(&mut self, context: &mut WorkerContext) -> SendOutcome;

    /// Number of bytes taken out of the output that are still being sent.
    fn in_flight_bytes(&self) -> usize;

    /// Receives up to `count` bytes into a pipe, which is empty; 0 is the end.
    ///
    /// # Errors
    /// Errors of splice(2).
    fn fill_pipe(
        &mut self,
        pipe: &mut Pipe,
        count: usize,
        context: &mut WorkerContext,
    ) -> io::Result<usize>;

    /// Sends what is in a pipe, as far as there is room.
    ///
    /// # Errors
    /// Errors of splice(2).
    fn drain_pipe(&mut self, pipe: &mut Pipe, context: &mut WorkerContext) -> io::Result<usize>;

    /// Returns the number of bytes written that have not reached the client's side, if known.
    fn unacknowledged(&self) -> Option<u64>;
}

/// What a forwarded request comes to when neither side can move.
enum Step {
    /// It waits for the client in this way, and perhaps for the server.
    Wait(Action),
    /// The reply is complete.
    Done,
    /// A stored reply is sent instead. What Cache-Status says.
    Answer(Arc<Stored>, &'static str),
    /// It cannot be answered by the server.
    Fail(Failure),
    /// The client is to be cut off.
    Close(CloseReason),
}

/// Lets a forwarded request make as much progress as it can. Returns what the client's socket is
/// waited for, or what follows.
pub(crate) fn forward(client: &mut impl ClientIo, context: &mut WorkerContext) -> Action {
    client.forward(context)
}

impl<C: ClientIo> ForwardingClient for C {}

/// The steps by which a request is forwarded, whatever its client is connected by.
trait ForwardingClient: ClientIo {
    fn forward(&mut self, context: &mut WorkerContext) -> Action {
        let by_upstream = std::mem::take(&mut context.by_upstream);
        if let Some(close) = self.cut_for_memory(context) {
            return close;
        }
        let Some(mut forward) = self.take_forward() else { return self.action() };
        if self.output().is_none() {
            let output = context.take_output();
            self.put_output(output);
        }
        let client_is_ready = !by_upstream && !self.is_read_blocked();
        let step = self.drive(&mut forward, client_is_ready, context);
        match step {
            Step::Wait(action) => {
                self.put_forward(forward, context);
                action
            }
            Step::Answer(stored, says) => self.answer_from_cache(forward, &stored, says, context),
            Step::Done => {
                forward.store_reply(context);
                forward.release(outcome_of(forward.exchange.status()), context);
                forward.give_up_flight(context);
                let is_tunnel = forward.exchange.status() == 101;
                let close = forward.close || forward.exchange.ends_by_close() || is_tunnel;
                if let Some(output) = self.output() {
                    output.linger |= is_tunnel;
                }
                let body_bytes = forward.exchange.reply_bytes();
                self.end_forward(close, forward.request_taken(), body_bytes, context)
            }
            Step::Fail(failure) => {
                let info = self.request_info();
                let Some(mut output) = self.take_output() else {
                    return self.close_for(CloseReason::Failed);
                };
                let failed = forward.fail(failure, info, &mut output, context);
                self.put_output(output);
                match failed {
                    Ok(()) => self.end_refusal(forward.request_taken(), context),
                    Err(reason) => self.close_for(reason),
                }
            }
            Step::Close(reason) => {
                forward.abandon(context);
                self.close_for(reason)
            }
        }
    }

    /// Answers a forwarded request with a stored reply. The request goes on without its client if
    /// the reply that has begun to arrive is worth storing.
    fn answer_from_cache(
        &mut self,
        mut forward: Box<Forward>,
        stored: &Stored,
        says: &'static str,
        context: &mut WorkerContext,
    ) -> Action {
        let (info, request_taken) = (self.request_info(), forward.request_taken());
        let mut output = self.take_output().unwrap_or_else(|| context.take_output());
        cache_store::answer_forwarded(&mut forward, stored, says, info, context, &mut output);
        self.put_output(output);
        if forward.outlives_client(context) {
            background::adopt(forward, context);
        } else {
            forward.store_reply(context);
            forward.release(outcome_of(forward.exchange.status()), context);
            forward.give_up_flight(context);
        }
        self.end_refusal(request_taken, context)
    }

    /// Moves bytes between the two sides until neither can move.
    fn drive(
        &mut self,
        forward: &mut Forward,
        mut client_is_ready: bool,
        context: &mut WorkerContext,
    ) -> Step {
        if let Some(step) = self.wait_for_place(forward, &mut client_is_ready, context) {
            return step;
        }
        let mut client_is_full = false;
        for _ in 0..TURNS_MAX {
            let (mut moved, mut has_content) = (false, false);
            let awaited = forward.awaits_first_byte();
            if forward.exchange.part() == ReplyPart::Done {
                match self.send_rest(forward, &mut client_is_full, context) {
                    Ok(true) => continue,
                    Ok(false) => return self.watch_both(forward, client_is_ready, context),
                    Err(step) => return step,
                }
            }
            if forward.exchange.wants_client() {
                // What the client sends is no sign of life of a server that takes none of it.
                let was_sent = forward.exchange.is_sent();
                match self.take_content(forward, &mut client_is_ready, context) {
                    Ok(taken) => (moved, has_content) = (taken && was_sent, taken),
                    Err(step) => return step,
                }
            }
            let splices = self.splices();
            let output = self.output();
            let exchanged = exchange(forward, context, |forward, context| match output {
                Some(output) if splices && forward.splices(output, context) => {
                    forward.fill_pipe(context)
                }
                Some(output) => receive_reply(forward, output, context),
                None => Ok(Received::Nothing),
            });
            match exchanged {
                Ok(exchanged) => moved |= exchanged,
                Err(failure) => return Step::Fail(failure),
            }
            if let Some((stored, says)) = forward.take_answer() {
                return Step::Answer(stored, says);
            }
            self.record(forward, context);
            match self.send_reply(forward, &mut client_is_full, context) {
                Ok(sent) => moved |= sent,
                Err(step) => return step,
            }
            if forward.exchange.part() == ReplyPart::Done {
                if forward.piped_bytes() == 0 {
                    return Step::Done;
                }
                // The server has done its part.
                forward.release_server(outcome_of(forward.exchange.status()), context);
            }
            if moved {
                forward.note_moved(awaited, context);
            } else if !has_content {
                return self.watch_both(forward, client_is_ready, context);
            }
        }
        // Others are served, and the mechanism waits, before anything is decided about the server.
        if let (Some(slot), Some(upstreams)) = (forward.socket, &mut context.upstreams) {
            upstreams.sockets.tell_blocked(slot);
        }
        Step::Wait(Action::Yield)
    }

    /// Returns what it waits for, or comes to, without a place; `None` if it has one.
    fn wait_for_place(
        &mut self,
        forward: &mut Forward,
        client_is_ready: &mut bool,
        context: &mut WorkerContext,
    ) -> Option<Step> {
        if forward.place == Place::Unasked
            && let Err(step) = self.gather(forward, client_is_ready, context)
        {
            return Some(step);
        }
        match forward.place {
            Place::Unasked => Some(Step::Wait(Action::Yield)),
            Place::Refused(reason) => Some(Step::Fail(Failure::Refused(reason))),
            Place::Unavailable => Some(Step::Fail(Failure::Unavailable)),
            Place::Waits(_) => Some(self.watch_client(forward, *client_is_ready, context)),
            Place::Has | Place::Returned => None,
        }
    }

    /// Sends what is left of a reply that the server has sent whole: in the pipe, and behind it.
    /// Returns whether any was sent.
    fn send_rest(
        &mut self,
        forward: &mut Forward,
        client_is_full: &mut bool,
        context: &mut WorkerContext,
    ) -> Result<bool, Step> {
        let sent = self.send_reply(forward, client_is_full, context)?;
        if forward.piped_bytes() == 0 {
            return Err(Step::Done);
        }
        if sent {
            forward.moved_ns = context.now_ns();
        }
        Ok(sent)
    }

    /// Takes content of the client before a place is asked for, until that is done; `Err` while
    /// more is waited for.
    fn gather(
        &mut self,
        forward: &mut Forward,
        client_is_ready: &mut bool,
        context: &mut WorkerContext,
    ) -> Result<(), Step> {
        for _ in 0..TURNS_MAX {
            // One that has begun to send waits for nothing (RFC 9110 section 10.1.1).
            if std::mem::take(&mut forward.owes_continue)
                && self.unread() == 0
                && let Some(output) = self.output()
            {
                output.bytes.extend_from_slice(CONTINUE);
            }
            let sent = self.send_reply(forward, &mut false, context)?;
            let taken = self.take_content(forward, client_is_ready, context)?;
            if forward.has_gathered(context) {
                forward.ask(context);
                return Ok(());
            }
            if !sent && !taken {
                let taken_bytes = self.acknowledged(0);
                forward.note_client(true, taken_bytes, context);
                forward.note_wait(true, taken_bytes, context);
                let unsent = self.output().map_or(0, |output| output.unsent_bytes());
                let waits_to_send = unsent > 0 && !self.is_paused();
                return Err(Step::Wait(if waits_to_send { Action::Write } else { Action::Read }));
            }
            forward.moved_ns = context.now_ns();
        }
        Ok(())
    }

    /// Takes content of the client, from what was read before, or from its socket: through a pipe
    /// if there is much of it. Returns whether there was any.
    fn take_content(
        &mut self,
        forward: &mut Forward,
        client_is_ready: &mut bool,
        context: &mut WorkerContext,
    ) -> Result<bool, Step> {
        if self.unread() == 0 && *client_is_ready {
            let pipe = if self.splices() { forward.content_pipe(context) } else { None };
            let is_piped = pipe.is_some();
            let filled = match pipe {
                Some((pipe, count)) => self.fill_pipe(pipe, count, context),
                None => self.fill(context),
            };
            match filled {
                Ok(0) if forward.exchange.end_client() => return Ok(true),
                Ok(0) => return Err(Step::Close(CloseReason::ClientClosed)),
                Ok(bytes) => {
                    forward.note_received(context);
                    if is_piped {
                        forward.note_piped_content(bytes, context);
                        return Ok(true);
                    }
                    self.keep_unread(bytes, context);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => *client_is_ready = false,
                Err(error) => return Err(Step::Close(reason_of(&error))),
            }
        }
        // What is sent in another protocol is no content.
        let is_tunnel = forward.exchange.part() == ReplyPart::Tunnel;
        let taken = forward.exchange.take(self.unread_input());
        match taken {
            Ok(taken) => {
                self.skip_input(taken);
                forward.content_bytes += taken as u64;
                if !is_tunnel && forward.content_bytes > forward.content_bytes_max {
                    return Err(Step::Fail(Failure::Content(Status::CONTENT_TOO_LARGE)));
                }
                Ok(taken > 0)
            }
            Err(error) => Err(Step::Fail(Failure::Content(error.status))),
        }
    }

    /// Sends what there is of the reply, unless the client has no room. Returns whether any was
    /// sent.
    fn send_reply(
        &mut self,
        forward: &mut Forward,
        client_is_full: &mut bool,
        context: &mut WorkerContext,
    ) -> Result<bool, Step> {
        if *client_is_full {
            return Ok(false);
        }
        if let Some(pipe) = forward.pipe.as_mut().filter(|pipe| pipe.held() > 0) {
            return match self.drain_pipe(pipe, context) {
                Ok(bytes) => Ok(bytes > 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    *client_is_full = true;
                    Ok(false)
                }
                Err(_) => {
                    context.counters.gone.one();
                    Err(Step::Close(CloseReason::ClientReset))
                }
            };
        }
        let in_flight_bytes = self.in_flight_bytes();
        let Some(output) = self.output() else { return Ok(false) };
        if output.unsent_bytes() == 0 && in_flight_bytes == 0 {
            return Ok(false);
        }
        // The end of a reply goes out with what follows it.
        if forward.exchange.part() == ReplyPart::Done {
            return Ok(true);
        }
        let before = output.sent_bytes;
        let sent = self.write(context);
        let Some(output) = self.output() else { return Ok(false) };
        match sent {
            SendOutcome::All => {
                output.bytes.clear();
                output.written = 0;
            }
            SendOutcome::ClientGone | SendOutcome::FileChanged => {
                context.counters.gone.one();
                return Err(Step::Close(CloseReason::ClientReset));
            }
            SendOutcome::Blocked | SendOutcome::Paused => *client_is_full = true,
            SendOutcome::BudgetSpent | SendOutcome::NeedsDisk => {}
        }
        Ok(output.sent_bytes > before)
    }

    /// Waits for the client to go, or to send what comes next.
    fn watch_client(
        &mut self,
        forward: &mut Forward,
        client_is_ready: bool,
        context: &mut WorkerContext,
    ) -> Step {
        let mut reads = !forward.has_client_ended && self.unread() < AHEAD_BYTES_MAX;
        if reads && client_is_ready {
            if let Some(step) = self.read_ahead(forward, context) {
                return step;
            }
            reads = !forward.has_client_ended && self.unread() < AHEAD_BYTES_MAX;
        }
        forward.note_reading(reads, context);
        Step::Wait(if reads { Action::Read } else { Action::Forward })
    }

    /// Decides what both sockets are waited for.
    fn watch_both(
        &mut self,
        forward: &mut Forward,
        client_is_ready: bool,
        context: &mut WorkerContext,
    ) -> Step {
        let unsent = self.output().map_or(0, |output| output.unsent_bytes() as usize)
            + self.in_flight_bytes();
        let piped = forward.piped_bytes();
        let has_room = self.output().is_some_and(|output| has_room(forward, output, context));
        if let (Some(slot), Some(upstreams)) = (forward.socket, &mut context.upstreams) {
            // One to which nothing more can be sent would be reported for ever.
            let has_failed = upstreams.sockets.get(slot).is_some_and(|server| server.has_failed());
            let interest = match (forward.exchange.is_sent() || has_failed, has_room) {
                // A server may answer before it reads on, or read on only once it could answer.
                (false, true) => Interest::Either,
                (false, false) => Interest::Write,
                (true, true) => Interest::Read,
                (true, false) => Interest::Nothing,
            };
            upstreams.sockets.want(slot, interest);
        }
        let waits_to_send = unsent + piped > 0;
        let is_awaited = waits_to_send || forward.exchange.awaits_content();
        if is_awaited != forward.client_rate.is_some() {
            let unacknowledged = if waits_to_send { self.unacknowledged() } else { None };
            let taken_bytes = self.acknowledged(unacknowledged.unwrap_or(0));
            forward.note_client(is_awaited, taken_bytes, context);
        }
        let is_tunnel = forward.exchange.part() == ReplyPart::Tunnel;
        let is_paused = self.is_paused();
        forward.note_wait(is_awaited && !is_tunnel && !is_paused, self.acknowledged(0), context);
        if waits_to_send {
            forward.note_reading(false, context);
            return Step::Wait(if is_paused { Action::Forward } else { Action::Write });
        }
        if forward.exchange.wants_client() {
            return Step::Wait(Action::Read);
        }
        // In another protocol the end of the client's side is passed on, behind all before it. What
        // is still in the client's socket goes through the pipe.
        if is_tunnel || forward.has_piped_content() {
            forward.note_reading(false, context);
            return Step::Wait(Action::Forward);
        }
        self.watch_client(forward, client_is_ready, context)
    }

    /// Reads what the client sends ahead of time; `Some` if it has gone.
    fn read_ahead(&mut self, forward: &mut Forward, context: &mut WorkerContext) -> Option<Step> {
        match self.fill(context) {
            Ok(0) if forward.end_client(self.unread_input(), context) => None,
            Ok(0) => Some(Step::Close(CloseReason::ClientClosed)),
            Ok(bytes) => {
                forward.note_received(context);
                self.keep_unread(bytes, context);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Step::Close(reason_of(&error))),
        }
    }

    /// Records the reply for statistics and the log, once its head is known.
    fn record(&mut self, forward: &mut Forward, context: &mut WorkerContext) {
        let status = forward.exchange.status();
        if forward.is_recorded || status == 0 {
            return;
        }
        forward.is_recorded = true;
        if status == 101 || forward.exchange.is_event_stream() {
            // It is open for hours, and no request that the server works at.
            forward.note_success(context);
            forward.return_place(outcome_of(status), context);
        }
        let info = self.request_info();
        let Some(output) = self.output() else { return };
        output.count(status);
        if context.log.is_some() {
            let pending = output.unsent_bytes();
            output.records.push(Record {
                status,
                peer: info.peer,
                began_ns: info.began_ns,
                body_start: (output.sent_bytes + pending)
                    .saturating_sub(forward.exchange.reply_bytes()),
                body_bytes: u64::MAX,
                request: forward.logged.take().unwrap_or_default(),
            });
        }
    }
}

/// Returns the reason for a close after an error of a read from the client.
fn reason_of(error: &io::Error) -> CloseReason {
    match error.kind() {
        // Only a TLS session has it: the client breaks the rules.
        io::ErrorKind::InvalidData => CloseReason::Tls,
        _ => CloseReason::ClientReset,
    }
}
