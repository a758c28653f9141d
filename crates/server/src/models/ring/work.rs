//! The work queue: completions are reported to their connection's machine, and the next operation
//! that it requests is queued. Knows nothing of accepting.

use weir_dispatch::readiness::Token;
use weir_sys::is_exhaustion;
use weir_sys::ring::server::{Completion, ECANCELED, Handle, ReceivedBuffer, Then};

use super::model::{Pending, RingWorker};
use super::user_data::{Data, Kind};
use crate::context::close_reason::CloseReason;
use crate::http::connection::Action;
use crate::http::forward_io;
use crate::upstream::ring_io::{self, ReceiveRun};

/// Maximum number of unread bytes of input kept by a connection; beyond it, receiving stops for the
/// time being.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Number of bytes of a forwarded reply that wait for its client from which its rate is measured by
/// what the kernel knows to have arrived.
const MARKED_BYTES_MIN: usize = 32 << 10;

impl RingWorker {
    /// Handles one completion.
    pub(super) fn work(&mut self, Pending { mut completion, completed_ns }: Pending) {
        self.model.completed_ns = completed_ns;
        let filled = completion.filled.take();
        let token = Data::owner(completion.data);
        match Data::kind_of(completion.data) {
            Some(kind) if kind.is_of_upstream() => {
                self.handle_upstream(kind, token, completion, filled.as_ref());
            }
            Some(Kind::Waker) if completion.result >= 0 => {
                self.handle_wakeup();
                self.take_upstream_mail();
                self.watch_waker();
            }
            Some(Kind::Receive) => return self.received(token, &completion, filled),
            Some(Kind::Waker) => {}
            Some(Kind::Fetch) => self.fetched(token, completion),
            Some(_) if !self.is_current(token) => {}
            Some(Kind::Output) => self.handle_output(token.slot, completion),
            Some(Kind::Close) => self.handle_chain_end(token.slot, &completion),
            Some(Kind::Expire) => self.expire_with(token.slot, unacknowledged_bytes(&completion)),
            Some(Kind::Mark) => {
                self.mark(token.slot, unacknowledged_bytes(&completion).unwrap_or(0));
            }
            Some(Kind::Adopted) if completion.result < 0 => self.fail(token.slot),
            _ => {}
        }
        if let Some(filled) = filled {
            self.model.ring.give_back(filled);
        }
    }

    fn is_current(&self, token: Token) -> bool {
        self.core.table.is_current(token)
    }

    /// Handles received bytes, or their end. The buffer is given back even if the connection is
    /// closed.
    fn received(&mut self, token: Token, completion: &Completion, filled: Option<ReceivedBuffer>) {
        if self.is_current(token) {
            self.note_receive(token, completion);
            if completion.result <= 0 || self.admit_request(token) {
                self.handle_input(token.slot, completion.result, filled.as_ref());
            }
        }
        if let Some(filled) = filled {
            self.model.ring.give_back(filled);
        }
    }

    fn note_receive(&mut self, token: Token, completion: &Completion) {
        self.core.context.counters.reads.one();
        let Some(conn) = self.core.table.conn(token.slot) else { return };
        if !completion.more {
            conn.receive = None;
        } else if completion.result > 0 && conn.run.note(completion.nonempty) {
            self.cancel_receive(token.slot);
        }
    }

    /// Cancels a receive that may be begun again when it has ended.
    fn cancel_receive(&mut self, slot: u32) {
        let Some(conn) = self.core.table.conn(slot).filter(|conn| !conn.is_cancelled) else {
            return;
        };
        if let Some(op) = conn.receive {
            conn.is_cancelled = true;
            self.model.ring.cancel(op, Then::Nothing);
        }
    }

    fn handle_input(&mut self, slot: u32, result: i32, filled: Option<&ReceivedBuffer>) {
        let ring = &mut self.model.ring;
        let Some((conn, context)) = self.core.serve(slot) else { return };
        let error = std::io::Error::from_raw_os_error(-result);
        if result < 0 && is_exhaustion(&error) {
            // Buffers in use come back by the end of the iteration.
            context.counters.ring_starved.one();
            self.model.starved.push(context.serving);
            return;
        }
        let action = conn.action();
        if result == -ECANCELED {
            // Cancelled to be begun again, or because too much was unread: it may be read by now.
            return match action {
                Action::Read | Action::Discard => self.receive(slot),
                Action::Forward => self.follow(slot, action),
                _ => {}
            };
        }
        if result <= 0 {
            conn.ended = Some(result);
            return match action {
                Action::Read | Action::Discard | Action::Forward => self.follow(slot, action),
                _ => {}
            };
        }
        let bytes = filled.map(|filled| ring.buffer(filled)).unwrap_or_default();
        let action = match action {
            Action::Discard => conn.discarded(bytes.len()),
            Action::Read => {
                conn.read_buffer(context).extend_from_slice(bytes);
                conn.received(&Ok(bytes.len()), context)
            }
            _ => {
                conn.read_buffer(context).extend_from_slice(bytes);
                conn.keep_unread(bytes.len(), context);
                if let Some(forward) = conn.forwarded() {
                    forward.note_received(context);
                }
                self.bound_input(slot);
                if action != Action::Forward {
                    return;
                }
                action
            }
        };
        self.follow(slot, action);
    }

    /// Cancels the receive of a client that sends requests faster than it reads replies.
    fn bound_input(&mut self, slot: u32) {
        if self.core.table.conn(slot).is_some_and(|conn| conn.unread() > KEPT_BYTES_MAX) {
            self.cancel_receive(slot);
        }
    }

    /// Resumes yielded connections, longest waiting first, until this iteration's write budget is
    /// spent. Returns the number resumed.
    pub(super) fn resume_yielded(&mut self) -> u64 {
        let mut items = 0;
        for _ in 0..self.model.yielded.len() {
            if self.core.context.write_budget.is_spent() {
                break;
            }
            let Some(token) = self.model.yielded.pop_front() else { break };
            items += u64::from(self.resume(token));
        }
        items
    }

    /// Lets a connection that has waited for others continue; returns whether it is still there.
    pub(super) fn resume(&mut self, token: Token) -> bool {
        if !self.is_current(token) {
            return false;
        }
        let Some((conn, context)) = self.core.serve(token.slot) else { return false };
        let action = conn.resume(context);
        self.follow(token.slot, action);
        true
    }

    /// Carries out a connection's actions until an operation for it is under way.
    pub(super) fn follow(&mut self, slot: u32, mut action: Action) {
        loop {
            let Some((conn, context)) = self.core.serve(slot) else { return };
            action = match action {
                Action::Close(reason) => return self.close_slot(slot, reason),
                Action::Read | Action::Discard => match conn.ended {
                    None => break self.receive(slot),
                    Some(_) if action == Action::Discard => conn.discarded(0),
                    ended => conn.received(&ring_io::end_of_input(ended), context),
                },
                Action::Fetch => {
                    self.model.disk_queue.join(self.core.table.token(slot));
                    break self.fetch_next();
                }
                Action::Forward => {
                    let next = forward_io::forward(conn, context);
                    if conn.action() == Action::Forward {
                        break self.await_forward(slot, next);
                    }
                    next
                }
                Action::Yield => break self.model.yielded.push_back(self.core.table.token(slot)),
                Action::Write => match self.begin_output(slot) {
                    Some(action) => action,
                    None => break,
                },
                Action::Pause => break,
                Action::Shutdown => break self.begin_shutdown(slot),
            };
        }
        if let Some(conn) = self.core.table.conn(slot) {
            conn.release_idle_buffers(&mut self.core.context);
        }
        self.arm_timer(slot);
    }

    /// Begins what a request that is forwarded waits for on its client's side.
    fn await_forward(&mut self, slot: u32, action: Action) {
        let token = self.core.table.token(slot);
        let Some(conn) = self.core.table.conn(slot) else { return };
        let output_bytes = conn.output().map_or(0, |output| output.bytes.len());
        if output_bytes >= MARKED_BYTES_MIN && conn.wants_acknowledged() {
            self.query_unacknowledged(slot, Data::of(Kind::Mark, token));
        }
        let Some(conn) = self.core.table.conn(slot) else { return };
        match action {
            Action::Close(reason) => self.close_slot(slot, reason),
            Action::Yield => self.model.yielded.push_back(token),
            Action::Write if conn.output().is_some_and(|output| !output.is_taken()) => {
                // A reply that is forwarded is not over when its output is.
                let _ = self.begin_output(slot);
            }
            Action::Read => self.receive(slot),
            _ => {}
        }
        // A client may send all it has before it takes anything.
        if action == Action::Write
            && self.core.table.conn(slot).is_some_and(|conn| conn.takes_content())
        {
            self.receive(slot);
        }
    }

    /// Begins a receive for a connection that has none: a single one before the client's first
    /// bytes, a multishot one afterwards. Many connections end after one request, and a multishot
    /// receive would have to be cancelled. None begins behind a chain that ends in the close of the
    /// slot: it would keep the socket open.
    pub(super) fn receive(&mut self, slot: u32) {
        let data = Data::of(Kind::Receive, self.core.table.token(slot));
        let ring_slot = self.ring_slot(slot);
        let Some(conn) = self.core.table.conn(slot) else { return };
        if conn.receive.is_none() && conn.ended.is_none() && !conn.closes_in_chain {
            conn.is_cancelled = false;
            conn.run = ReceiveRun::default();
            let many = conn.has_received_bytes();
            conn.receive = Some(self.model.ring.receive(Handle::Slot(ring_slot), many, data));
        }
    }

    /// Resumes the receives that found no buffer, now that some have come back.
    pub(super) fn receive_starved(&mut self) {
        for token in std::mem::take(&mut self.model.starved) {
            if self.is_current(token) {
                self.receive(token.slot);
            }
        }
    }

    pub(super) fn arm_timer(&mut self, slot: u32) {
        if let Some(conn) = self.core.table.conn(slot) {
            self.core.timers.arm(slot, conn.deadline_ns());
        }
    }

    /// Queries how many of the bytes sent have not been acknowledged.
    pub(super) fn query_unacknowledged(&mut self, slot: u32, data: u64) {
        let ring_slot = self.ring_slot(slot);
        self.model.ring.unacknowledged(Handle::Slot(ring_slot), Then::Nothing, data);
    }

    /// Handles a deadline, given the number of unacknowledged bytes, if known.
    pub(super) fn expire_with(&mut self, slot: u32, unacknowledged: Option<u64>) {
        let Some((conn, context)) = self.core.serve(slot) else { return };
        if conn.deadline_ns() > context.now_ns() {
            // The deadline was moved during the query.
            return self.arm_timer(slot);
        }
        match conn.expire(unacknowledged, context) {
            Some(action) => self.follow(slot, action),
            None => self.arm_timer(slot),
        }
    }

    fn mark(&mut self, slot: u32, unacknowledged: u64) {
        if let Some(conn) = self.core.table.conn(slot).filter(|conn| conn.wants_acknowledged()) {
            conn.note_acknowledged(unacknowledged);
        }
    }

    /// Closes a connection for which the kernel has refused an operation.
    pub(super) fn fail(&mut self, slot: u32) {
        self.close_slot(slot, CloseReason::Failed);
    }

    /// Closes a connection: cancels its operations, and then closes its slot.
    pub(super) fn close_slot(&mut self, slot: u32, reason: CloseReason) {
        if self.closes_with_chain(slot, reason) {
            return;
        }
        let ring_slot = self.ring_slot(slot);
        let Some((mut conn, _)) = self.vacate(slot) else { return };
        let ops = [conn.receive, conn.send.as_ref().and_then(|send| send.op)];
        for op in ops.into_iter().flatten() {
            self.model.ring.cancel(op, Then::Nothing);
        }
        let is_in_slot = conn.fd.is_none();
        let cut = conn.end(reason, &mut self.core.context);
        if let Some(fd) = conn.fd.take() {
            weir_sys::socket::close(fd);
        }
        if is_in_slot {
            if cut || conn.resets.get() {
                let handle = Handle::Slot(ring_slot);
                self.model.ring.reset_on_close(handle, Then::Nothing, Data::ignored());
            }
            self.model.ring.close(ring_slot, Then::Nothing, Data::ignored());
        }
    }

    /// Returns whether a chain ends in the close of this slot, in which case only its end frees the
    /// slot. Breaks the chain, so that it ends soon.
    fn closes_with_chain(&mut self, slot: u32, reason: CloseReason) -> bool {
        let Some(conn) = self.core.table.conn(slot).filter(|conn| conn.closes_in_chain) else {
            return false;
        };
        conn.set_close_reason(reason);
        if !std::mem::replace(&mut conn.close_after_chain, true)
            && let Some(op) = conn.send.as_ref().and_then(|send| send.op)
        {
            self.model.ring.cancel(op, Then::Nothing);
        }
        true
    }

    /// Handles the close at the end of a chain: done, or not tried.
    fn handle_chain_end(&mut self, slot: u32, completion: &Completion) {
        let Some(conn) = self.core.table.conn(slot) else { return };
        if completion.failed_with(ECANCELED) {
            // The failed operation before it is handled by its own completion, unless the chain was
            // broken in order to close the connection.
            if std::mem::take(&mut conn.close_after_chain) {
                conn.closes_in_chain = false;
                self.close_slot(slot, CloseReason::Failed);
            }
            return;
        }
        if let Some((mut conn, _)) = self.vacate(slot) {
            conn.end(CloseReason::Finished, &mut self.core.context);
        }
    }
}

/// Returns the byte count of a completion; `None` if the kernel could not tell it.
fn unacknowledged_bytes(completion: &Completion) -> Option<u64> {
    completion.outcome().ok().map(u64::from)
}
