//! Output: chunks of replies are lent to the kernel and come back, files are read by the ring
//! before they are sent, and a reply that ends its connection is sent and closed in one chain.

use std::ffi::CString;
use std::io::ErrorKind::{Unsupported, WouldBlock};
use std::os::fd::AsFd;

use weir_content::FetchOp;
use weir_dispatch::readiness::Token;
use weir_sys::descriptor::SharedFd;
use weir_sys::ring::server::{
    Completion, ECANCELED, EOPNOTSUPP, Handle, Op, ReadThread, Returned, SendBuffer, SendOptions,
    Then,
};
use weir_sys::{file, is_exhaustion};

use super::connection::{BufferPair, FileRead, OutputOp, Send};
use super::model::RingWorker;
use super::user_data::{Data, Kind};
use crate::context::close_reason::CloseReason;
use crate::context::output::Chunk;
use crate::context::write_budget::BUDGET_BYTES_MIN;
use crate::http::connection::Action;
use crate::http::send::SendOutcome;

/// Maximum number of bytes of a file read at a time.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Maximum size of output that a socket with room takes whole, bytes, so that a close may be
/// chained behind it.
const WHOLE_BYTES_MAX: usize = 16 << 10;

impl RingWorker {
    /// Takes the next chunk of a connection's output and begins to send it. Returns the
    /// connection's next action if there is none, and `None` while an operation is under way.
    pub(super) fn begin_output(&mut self, slot: u32) -> Option<Action> {
        let (conn, context) = self.core.serve(slot)?;
        if conn.send.is_some() {
            return None;
        }
        let Some(output) = conn.output() else {
            return Some(conn.close_for(CloseReason::Finished));
        };
        // A chunk is lent to the kernel as a whole.
        let chunk_bytes = output.chunk_bytes(FILE_BYTES_MAX);
        if !conn.may_send(chunk_bytes, context) {
            return Some(Action::Pause);
        }
        let output = conn.output()?;
        let nothing = SendBuffer::Static(&[]);
        match output.take_chunk(FILE_BYTES_MAX) {
            Chunk::Nothing => return Some(conn.sent(SendOutcome::All, context)),
            Chunk::Bytes(bytes) => {
                let range = 0..bytes.len();
                self.send_reply(slot, [(SendBuffer::Bytes(bytes), range), (nothing, 0..0)]);
            }
            Chunk::Both(bytes, body, range) => {
                let head_bytes = bytes.len();
                let head = (SendBuffer::Bytes(bytes), 0..head_bytes);
                self.send_reply(slot, [head, (SendBuffer::Shared(body), range)]);
            }
            Chunk::File(bytes, file, range) => {
                let len = range.end - range.start;
                if !file::seems_cached(file.as_fd(), range.start, len) {
                    conn.reading = Some(FileRead { file, range, bytes });
                    self.queue_read(slot);
                    return None;
                }
                let data = Data::of(Kind::Output, self.core.table.token(slot));
                let (fd, by) = (SharedFd::of(&file), ReadThread::Caller);
                let op = self.model.ring.read(fd, bytes, range.clone(), by, Then::Nothing, data);
                let conn = self.core.table.conn(slot)?;
                conn.reading = Some(FileRead { file, range, bytes: Vec::new() });
                conn.send = Some(Send::of(Some(op), OutputOp::Read));
            }
        }
        None
    }

    /// Sends a short reply at once, and queues a longer one for the write budget.
    fn send_reply(&mut self, slot: u32, buffers: BufferPair) {
        let bytes = buffers[0].1.len() + buffers[1].1.len();
        if bytes < BUDGET_BYTES_MIN as usize {
            return self.send(slot, buffers, OutputOp::Reply);
        }
        let token = self.core.table.token(slot);
        let Some(conn) = self.core.table.conn(slot) else { return };
        conn.send = Some(Send::of(None, OutputOp::Reply));
        self.model.paced_sends.push_back((token, buffers));
    }

    /// Sends the replies that have waited longest, within the write budget: the kernel sends all
    /// that it is given before it handles anything else. Returns the number of bytes.
    pub(super) fn send_paced(&mut self) -> u64 {
        let budget_bytes = self.core.context.write_budget.bytes();
        let mut taken = 0;
        while taken < budget_bytes {
            let Some((token, buffers)) = self.model.paced_sends.pop_front() else { break };
            if self.core.table.is_current(token) {
                taken += ((buffers[0].1.len() + buffers[1].1.len()) as u64).min(budget_bytes);
                self.send(token.slot, buffers, OutputOp::Reply);
            }
        }
        taken
    }

    /// Sends the ranges of two buffers: as much as the write budget allows now, the rest later.
    fn send(&mut self, slot: u32, mut buffers: BufferPair, purpose: OutputOp) {
        let ring_slot = self.ring_slot(slot);
        let to = Handle::Slot(ring_slot);
        let token = self.core.table.token(slot);
        let budget_bytes = self.core.context.write_budget.bytes() as usize;
        let Some(conn) = self.core.table.conn(slot) else { return };
        let [first, second] = [buffers[0].1.clone(), buffers[1].1.clone()];
        let bytes = first.len() + second.len();
        let is_last = conn.output().is_some_and(|output| output.is_taken());
        let is_short_end = purpose == OutputOp::Reply && bytes <= WHOLE_BYTES_MAX && is_last;
        let zero_copy = !conn.copies && bytes as u64 >= self.model.zero_copy_from;
        // Nothing follows in a chain what the kernel may refuse to send without a copy.
        let closes_in_chain = is_short_end && !zero_copy && conn.closes_after_output();
        let is_idle_after = is_short_end && conn.is_idle_after_output();
        let receive = conn.receive;
        let budget_bytes = if closes_in_chain || zero_copy { bytes } else { budget_bytes };
        let last = &mut buffers[usize::from(!second.is_empty())].1;
        let later = bytes.saturating_sub(budget_bytes).min(last.len().saturating_sub(1));
        last.end -= later;
        let more = purpose == OutputOp::Reply && (later > 0 || !is_last);
        let how = SendOptions { more, whole: closes_in_chain, zero_copy };
        let (buffers, shared) = if zero_copy { share(buffers) } else { (buffers, None) };
        let then = if closes_in_chain { Then::OnSuccess } else { Then::Nothing };
        let data = Data::of(Kind::Output, token);
        let op = self.lend(to, buffers, how, then, data);
        if closes_in_chain {
            if let Some(receive) = receive {
                self.model.ring.cancel(receive, Then::Always);
            }
            self.model.ring.close(ring_slot, Then::Nothing, Data::of(Kind::Close, token));
        }
        let Some(conn) = self.core.table.conn(slot) else { return };
        conn.closes_in_chain = closes_in_chain;
        if let Some(output) = conn.output() {
            output.full_since_ns = Some(self.core.context.now_ns());
            output.is_lent = true;
        }
        self.model.certain += u32::from(is_idle_after) + u32::from(closes_in_chain);
        conn.send = Some(Send { first, second, shared, ..Send::of(Some(op), purpose) });
    }

    fn lend(
        &mut self,
        to: Handle<'_>,
        [first, second]: BufferPair,
        how: SendOptions,
        then: Then,
        data: u64,
    ) -> Op {
        if second.1.is_empty() {
            self.model.ring.send(to, first.0, first.1, how, then, data)
        } else if first.1.is_empty() {
            self.model.ring.send(to, second.0, second.1, how, then, data)
        } else {
            self.model.ring.send_two(to, [first, second], how, then, data)
        }
    }

    pub(super) fn begin_shutdown(&mut self, slot: u32) {
        let data = Data::of(Kind::Output, self.core.table.token(slot));
        let handle = Handle::Slot(self.ring_slot(slot));
        let op = self.model.ring.shutdown(handle, std::net::Shutdown::Write, Then::Nothing, data);
        if let Some(conn) = self.core.table.conn(slot) {
            conn.send = Some(Send::of(Some(op), OutputOp::Shutdown));
        }
    }

    /// Handles the end of an operation on a connection's output.
    pub(super) fn handle_output(&mut self, slot: u32, completion: Completion) {
        if completion.notice {
            // A buffer sent without a copy is free again: its bytes have arrived.
            return;
        }
        let Some(conn) = self.core.table.conn(slot) else { return };
        let Some(send) = conn.send.take() else { return };
        let (result, context) = (completion.result, &mut self.core.context);
        let action = match send.purpose {
            OutputOp::Read => return self.handle_cached_read(slot, completion),
            OutputOp::ReadInWorker => return self.handle_file_read(slot, completion),
            OutputOp::Wait => return,
            OutputOp::Reply => return self.reply_sent(slot, send, result, completion.returned),
            OutputOp::Shutdown => conn.write_side_shut(result == 0, context),
        };
        self.follow(slot, action);
    }

    fn reply_sent(&mut self, slot: u32, send: Send, result: i32, returned: Returned) {
        let core = &mut self.core;
        let Some(conn) = core.table.conn(slot) else { return };
        let Ok(sent @ 1..) = usize::try_from(result) else {
            return self.reply_not_sent(slot, send, result);
        };
        self.model.sent_bytes += sent as u64;
        if let Some(output) = conn.output() {
            output.full_since_ns = None;
            output.note_sent(sent as u64, &mut core.context);
        }
        if sent < send.bytes() {
            if conn.close_after_chain {
                return;
            }
            return self.send_rest(slot, send, sent, returned);
        }
        if let Some(output) = conn.output() {
            output.chunk_memory_bytes = 0;
            if let Returned::Buffer(SendBuffer::Bytes(bytes))
            | Returned::Pair(SendBuffer::Bytes(bytes), _) = returned
            {
                output.keep_buffer(bytes);
            }
        }
        if conn.closes_in_chain {
            // The close is under way already; the action can only be the same.
            let _ = conn.sent(SendOutcome::All, &mut core.context);
            return;
        }
        let action = match conn.action() {
            Action::Forward => Some(Action::Forward),
            _ => self.begin_output(slot),
        };
        if let Some(action) = action {
            self.follow(slot, action);
        }
    }

    /// Handles a send that has sent nothing: sends with a copy if the kernel has refused to do so
    /// without, and closes the connection otherwise.
    fn reply_not_sent(&mut self, slot: u32, send: Send, result: i32) {
        let core = &mut self.core;
        let Some(conn) = core.table.conn(slot) else { return };
        if conn.close_after_chain || result == -ECANCELED {
            return;
        }
        if needs_copy(result)
            && let Some([one, two]) = send.shared
        {
            conn.copies = true;
            return self.send_reply(slot, [(one, send.first), (two, send.second)]);
        }
        let action = conn.sent(SendOutcome::ClientGone, &mut core.context);
        conn.closes_in_chain = false;
        self.follow(slot, action);
    }

    /// Sends the rest of a reply, in another iteration or as the socket gets room. Queries the
    /// unacknowledged bytes first, if the client's rate is measured from now on.
    fn send_rest(&mut self, slot: u32, send: Send, sent: usize, returned: Returned) {
        let (first, second) = send.after(sent);
        let buffers = match (send.shared, returned) {
            (Some([one, two]), _) => [(one, first), (two, second)],
            (None, Returned::Buffer(buffer)) if send.second.is_empty() => {
                [(buffer, first), (SendBuffer::Static(&[]), 0..0)]
            }
            (None, Returned::Buffer(buffer)) => [(SendBuffer::Static(&[]), 0..0), (buffer, second)],
            (None, Returned::Pair(one, two)) => [(one, first), (two, second)],
            // A send returns nothing else.
            _ => return self.fail(slot),
        };
        let token = self.core.table.token(slot);
        if self.core.table.conn(slot).is_some_and(|conn| conn.wants_acknowledged()) {
            self.query_unacknowledged(slot, Data::of(Kind::Mark, token));
        }
        self.send_reply(slot, buffers);
    }

    /// Handles the read of a range of a file from memory. If some of it is not in memory, a worker
    /// that may block reads the rest.
    fn handle_cached_read(&mut self, slot: u32, completion: Completion) {
        let Some(conn) = self.core.table.conn(slot) else { return };
        let Some(reading) = &mut conn.reading else { return };
        let found = match completion.outcome() {
            Ok(found) if u64::from(found) < reading.len() => found as usize,
            Err(error) if matches!(error.kind(), WouldBlock | Unsupported) => 0,
            _ => return self.handle_file_read(slot, completion),
        };
        if let Returned::Read(mut bytes) = completion.returned {
            bytes.truncate(bytes.len() - found);
            reading.bytes = bytes;
            self.queue_read(slot);
        }
    }

    /// Queues a connection to read from a disk.
    fn queue_read(&mut self, slot: u32) {
        let token = self.core.table.token(slot);
        let Some(conn) = self.core.table.conn(slot) else { return };
        conn.send = Some(Send::of(None, OutputOp::Wait));
        self.model.disk_queue.join(token);
        self.fetch_next();
    }

    fn read_in_worker(&mut self, token: Token) {
        let data = Data::of(Kind::Fetch, token);
        let Some(conn) = self.core.table.conn(token.slot) else { return };
        let Some(reading) = &mut conn.reading else { return };
        let (range, bytes) = (reading.range.clone(), std::mem::take(&mut reading.bytes));
        let (fd, by) = (SharedFd::of(&reading.file), ReadThread::Worker);
        let op = self.model.ring.read(fd, bytes, range, by, Then::Nothing, data);
        conn.send = Some(Send::of(Some(op), OutputOp::ReadInWorker));
        self.model.disk_queue.begun(token, 1);
    }

    /// Handles the read of a range of a file: sends it if it is complete and the file is unchanged.
    fn handle_file_read(&mut self, slot: u32, completion: Completion) {
        let core = &mut self.core;
        let Some(conn) = core.table.conn(slot) else { return };
        let Some(reading) = conn.reading.take() else { return };
        let is_whole = completion.outcome().is_ok_and(|read| u64::from(read) == reading.len());
        let is_same = is_whole && reading.file.is_unchanged().unwrap_or(false);
        match completion.returned {
            Returned::Read(bytes) if is_same => {
                let range = 0..bytes.len();
                self.send_reply(
                    slot,
                    [(SendBuffer::Bytes(bytes), range), (SendBuffer::Static(&[]), 0..0)],
                );
            }
            _ => {
                let action = conn.sent(SendOutcome::FileChanged, &mut core.context);
                self.follow(slot, action);
            }
        }
    }

    /// Begins the disk operations of the next connections in the queue.
    pub(super) fn fetch_next(&mut self) {
        while let Some(token) = self.model.disk_queue.next() {
            if !self.core.table.is_current(token) {
                continue;
            }
            match self.purpose_of(token.slot) {
                Some(OutputOp::Wait) => self.read_in_worker(token),
                _ => self.begin_fetch(token),
            }
        }
    }

    fn purpose_of(&mut self, slot: u32) -> Option<OutputOp> {
        Some(self.core.table.conn(slot)?.send.as_ref()?.purpose)
    }

    fn begin_fetch(&mut self, token: Token) {
        let data = Data::of(Kind::Fetch, token);
        let Some(conn) = self.core.table.conn(token.slot) else { return };
        let Some(fetch) = conn.fetch().cloned() else { return };
        let mut begun = 0;
        for kind in fetch.ops() {
            match kind {
                FetchOp::Open { root, path, symlinks } => {
                    let Ok(path) = CString::new(path) else { continue };
                    self.model.ring.open_beneath(root, path, symlinks, Then::Nothing, data);
                    begun += 1;
                }
                FetchOp::Read { file, offset, len } => {
                    for start in (offset..offset + len).step_by(FILE_BYTES_MAX as usize) {
                        let range = start..(offset + len).min(start + FILE_BYTES_MAX);
                        let by = ReadThread::Worker;
                        let file = file.clone();
                        self.model.ring.read(file, Vec::new(), range, by, Then::Nothing, data);
                        begun += 1;
                    }
                }
            }
        }
        self.model.disk_queue.begun(token, begun);
        if begun == 0 {
            self.finish_fetch(token.slot);
        }
    }

    /// Handles the end of a disk operation. Its data is sent if it is part of a reply, and
    /// discarded otherwise.
    pub(super) fn fetched(&mut self, token: Token, completion: Completion) {
        if self.model.disk_queue.ended(token) && self.core.table.is_current(token) {
            match self.purpose_of(token.slot) {
                Some(OutputOp::ReadInWorker) => self.handle_output(token.slot, completion),
                _ => self.finish_fetch(token.slot),
            }
        }
        self.fetch_next();
    }

    fn finish_fetch(&mut self, slot: u32) {
        if let Some((conn, context)) = self.core.serve(slot) {
            let action = conn.fetched(context);
            self.follow(slot, action);
        }
    }
}

/// Returns the buffers twice: for an operation, and for the one that sends what it leaves.
fn share([first, second]: BufferPair) -> (BufferPair, Option<[SendBuffer; 2]>) {
    let ([one, first_again], [two, second_again]) = (first.0.share(), second.0.share());
    ([(one, first.1), (two, second.1)], Some([first_again, second_again]))
}

/// Returns whether a send without a copy has failed for a reason that one with a copy does not
/// have: the kind of the socket, or a lack of memory that may be pinned.
fn needs_copy(result: i32) -> bool {
    result == -EOPNOTSUPP || is_exhaustion(&std::io::Error::from_raw_os_error(-result))
}
