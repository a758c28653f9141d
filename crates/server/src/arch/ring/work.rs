//! `work_pending`: completions are reported to their connection's machine, and what it wants next
//! is queued. Knows nothing of accepting.

use weir_dispatch::readiness::Token;
use weir_sys::is_exhaustion;
use weir_sys::ring::server::{Completion, ECANCELED, Handle, ReceivedBuffer, Then};

use super::data::{Data, Kind};
use super::{Pending, RingLoop};
use crate::arch::Housekeeping;
use crate::arch::accepting::Accepting;
use crate::close_reason::CloseReason;
use crate::conn::Want;

/// Maximum number of unread bytes of input kept by a connection; beyond it, receiving stops for the
/// time being.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl RingLoop {
    /// Handles one completion.
    pub(super) fn work(&mut self, Pending { mut completion, came_ns }: Pending) {
        self.came_ns = came_ns;
        let filled = completion.filled.take();
        let token = Data::whose(completion.data);
        match Data::kind_of(completion.data) {
            Some(Kind::Bell) if completion.result >= 0 => {
                self.answer_bell();
                self.watch_bell();
            }
            Some(Kind::Receive) => return self.received(token, &completion, filled),
            Some(Kind::Bell) => {}
            Some(Kind::Fetch) => self.fetched(token, completion),
            Some(_) if !self.is_its(token) => {}
            Some(Kind::Output) => self.put_out(token.slot, completion),
            Some(Kind::Close) => self.chain_ended(token.slot, &completion),
            Some(Kind::Expire) => self.expire_knowing(token.slot, counted(&completion)),
            Some(Kind::Mark) => self.mark(token.slot, counted(&completion).unwrap_or(0)),
            Some(Kind::Adopted) if completion.result < 0 => self.fail(token.slot),
            _ => {}
        }
        if let Some(filled) = filled {
            self.ring.give_back(filled);
        }
    }

    fn is_its(&self, token: Token) -> bool {
        self.floor.table.is_current(token)
    }

    /// Handles received bytes, or their end. The buffer is given back even if the connection is
    /// closed.
    fn received(&mut self, token: Token, completion: &Completion, filled: Option<ReceivedBuffer>) {
        if self.is_its(token) {
            self.note_receive(token, completion);
            let is_new = completion.result > 0 && self.floor.judges.is_some();
            if !is_new || self.is_worth_serving(token) {
                self.take_in(token.slot, completion.result, filled.as_ref());
            }
        }
        if let Some(filled) = filled {
            self.ring.give_back(filled);
        }
    }

    fn note_receive(&mut self, token: Token, completion: &Completion) {
        self.floor.service.counters.reads.one();
        let Some(ringed) = self.floor.table.conn(token.slot) else { return };
        if !completion.more {
            ringed.receive = None;
        }
    }

    fn take_in(&mut self, slot: u32, result: i32, filled: Option<&ReceivedBuffer>) {
        let Self { floor, ring, .. } = self;
        let Some(ringed) = floor.table.conn(slot) else { return };
        let error = std::io::Error::from_raw_os_error(-result);
        if result < 0 && is_exhaustion(&error) {
            // Buffers that were out come back by the end of the round.
            floor.service.counters.ring_starved.one();
            self.starved.push(floor.table.token(slot));
            return;
        }
        let want = ringed.want();
        if result == -ECANCELED {
            // We ended it, because too much waited; since then it may have been read.
            return match want {
                Want::Read | Want::Discard => self.receive(slot),
                _ => {}
            };
        }
        if result <= 0 {
            ringed.ended = Some(result);
            return match want {
                Want::Read | Want::Discard => self.follow(slot, want),
                _ => {}
            };
        }
        let bytes = filled.map(|filled| ring.buffer(filled)).unwrap_or_default();
        let want = match want {
            Want::Discard => ringed.discarded(bytes.len()),
            Want::Read => {
                ringed.room(&mut floor.service).extend_from_slice(bytes);
                ringed.received(&Ok(bytes.len()), &mut floor.service)
            }
            _ => {
                ringed.room(&mut floor.service).extend_from_slice(bytes);
                ringed.keep(bytes.len(), &mut floor.service);
                return self.bound_input(slot);
            }
        };
        self.follow(slot, want);
    }

    /// Ends the receive of a connection that sends more requests than it reads replies.
    fn bound_input(&mut self, slot: u32) {
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        if ringed.unread() > KEPT_BYTES_MAX
            && !ringed.is_full
            && let Some(op) = ringed.receive
        {
            ringed.is_full = true;
            self.ring.cancel(op, Then::Nothing);
        }
    }

    /// Resumes yielded connections, longest waiting first, until this round's turn is over. Returns
    /// the number resumed.
    pub(super) fn resume_yielded(&mut self) -> u64 {
        let mut items = 0;
        for _ in 0..self.yielded.len() {
            if self.floor.service.turn.is_over() {
                break;
            }
            let Some(token) = self.yielded.pop_front() else { break };
            if !self.is_its(token) {
                continue;
            }
            if let Some(ringed) = self.floor.table.conn(token.slot) {
                let want = ringed.resume(&mut self.floor.service);
                self.follow(token.slot, want);
                items += 1;
            }
        }
        items
    }

    /// Does what a connection wants until an operation for it is under way.
    pub(super) fn follow(&mut self, slot: u32, mut want: Want) {
        loop {
            let Some(ringed) = self.floor.table.conn(slot) else { return };
            let service = &mut self.floor.service;
            want = match want {
                Want::Close => return self.close_slot(slot),
                Want::Read | Want::Discard => match ringed.ended {
                    None => break self.receive(slot),
                    Some(_) if want == Want::Discard => Want::Close,
                    Some(0) => ringed.received(&Ok(0), service),
                    Some(errno) => {
                        let error = std::io::Error::from_raw_os_error(-errno);
                        ringed.received(&Err(error), service)
                    }
                },
                Want::Fetch => {
                    self.fetching.join(self.floor.table.token(slot));
                    break self.fetch_next();
                }
                Want::Yield => break self.yielded.push_back(self.floor.table.token(slot)),
                Want::Write => match self.begin_output(slot) {
                    Some(want) => want,
                    None => break,
                },
                Want::Shutdown => break self.begin_shutdown(slot),
            };
        }
        if let Some(ringed) = self.floor.table.conn(slot) {
            ringed.rest(&mut self.floor.service);
        }
        self.arm_timer(slot);
    }

    /// Begins a receive for a connection that has none: a single one before the client's first
    /// bytes, a multishot one afterwards. Many connections end after one request, and a multishot
    /// receive has to be cancelled.
    pub(super) fn receive(&mut self, slot: u32) {
        let data = Data::of(Kind::Receive, self.floor.table.token(slot));
        let ring_slot = self.ring_slot(slot);
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        if ringed.receive.is_none() && ringed.ended.is_none() {
            ringed.is_full = false;
            let many = ringed.was_heard();
            ringed.receive = Some(self.ring.receive(Handle::Slot(ring_slot), many, data));
        }
    }

    /// Resumes the receives that found no buffer, now that some have come back.
    pub(super) fn receive_starved(&mut self) {
        for token in std::mem::take(&mut self.starved) {
            if self.is_its(token) {
                self.receive(token.slot);
            }
        }
    }

    pub(super) fn arm_timer(&mut self, slot: u32) {
        if let Some(ringed) = self.floor.table.conn(slot) {
            self.floor.timers.arm(slot, ringed.deadline_ns());
        }
    }

    /// Queries how many of the bytes sent have not been acknowledged.
    pub(super) fn ask_unacknowledged(&mut self, slot: u32, data: u64) {
        let ring_slot = self.ring_slot(slot);
        self.ring.unacknowledged(Handle::Slot(ring_slot), Then::Nothing, data);
    }

    /// Handles a deadline, now that the number of unacknowledged bytes is known.
    pub(super) fn expire_knowing(&mut self, slot: u32, unacknowledged: Option<u64>) {
        let now_ns = self.floor.service.now_ns();
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        if ringed.deadline_ns() > now_ns {
            // It has gone on while the kernel was asked.
            return self.arm_timer(slot);
        }
        match ringed.expire(unacknowledged, &mut self.floor.service) {
            Some(want) => self.follow(slot, want),
            None => self.arm_timer(slot),
        }
    }

    fn mark(&mut self, slot: u32, unacknowledged: u64) {
        if let Some(ringed) = self.floor.table.conn(slot).filter(|conn| conn.wants_acknowledged()) {
            ringed.note_acknowledged(unacknowledged);
        }
    }

    /// Closes a connection for which the kernel has refused an operation.
    pub(super) fn fail(&mut self, slot: u32) {
        if let Some(ringed) = self.floor.table.conn(slot) {
            ringed.note_close(CloseReason::Failed);
        }
        self.close_slot(slot);
    }

    /// Closes a connection: cancels its operations, and then closes its slot.
    pub(super) fn close_slot(&mut self, slot: u32) {
        if self.is_leaving(slot) {
            return;
        }
        let ring_slot = self.ring_slot(slot);
        let Some((mut ringed, _)) = self.vacate(slot) else { return };
        let ops = [ringed.receive, ringed.send.as_ref().and_then(|send| send.op)];
        for op in ops.into_iter().flatten() {
            self.ring.cancel(op, Then::Nothing);
        }
        let is_in_slot = ringed.fd.is_none();
        let cut = ringed.end(&mut self.floor.service);
        if let Some(fd) = ringed.fd.take() {
            weir_sys::socket::close(fd);
        }
        if is_in_slot {
            if cut || ringed.resets.get() {
                let handle = Handle::Slot(ring_slot);
                self.ring.reset_on_close(handle, Then::Nothing, Data::ignored());
            }
            self.ring.close(ring_slot, Then::Nothing, Data::ignored());
        }
    }

    /// Returns whether a chain ends in the close of this slot, in which case only its end frees the
    /// slot. Breaks the chain, so that it ends soon.
    fn is_leaving(&mut self, slot: u32) -> bool {
        let Some(ringed) = self.floor.table.conn(slot).filter(|ringed| ringed.leaves) else {
            return false;
        };
        if !std::mem::replace(&mut ringed.is_doomed, true)
            && let Some(op) = ringed.send.as_ref().and_then(|send| send.op)
        {
            self.ring.cancel(op, Then::Nothing);
        }
        true
    }

    /// Handles the close at the end of a chain: done, or not tried.
    fn chain_ended(&mut self, slot: u32, completion: &Completion) {
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        if completion.failed_with(ECANCELED) {
            // What broke the chain has seen to the rest, unless it was this connection's end.
            if std::mem::take(&mut ringed.is_doomed) {
                ringed.leaves = false;
                self.close_slot(slot);
            }
            return;
        }
        if let Some((mut ringed, _)) = self.vacate(slot) {
            ringed.end(&mut self.floor.service);
        }
    }
}

/// Returns the byte count of a completion; `None` if the kernel could not tell it.
fn counted(completion: &Completion) -> Option<u64> {
    completion.outcome().ok().map(u64::from)
}
