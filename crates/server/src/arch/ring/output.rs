//! Output: chunks of replies are lent to the kernel and come back, files are read by the ring
//! before they are sent, and a reply that ends its connection is sent and closed in one chain.

use std::ffi::CString;
use std::io::ErrorKind::{Unsupported, WouldBlock};
use std::os::fd::AsFd;

use weir_content::FetchOp;
use weir_dispatch::readiness::Token;
use weir_sys::descriptor::SharedFd;
use weir_sys::file;
use weir_sys::ring::server::{
    Completion, ECANCELED, Handle, Op, ReadThread, Returned, SendBuffer, SendOptions, Then,
};

use super::RingLoop;
use super::data::{Data, Kind};
use super::tenant::{Pieces, Reading, Send, Stage};
use crate::conn::Want;
use crate::output::{Chunk, Sent};
use crate::turn::TURN_BYTES_MIN;

/// Maximum number of bytes of a file read at a time.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Maximum size of output that a socket with room takes whole, bytes, so that a close may be
/// chained behind it.
const WHOLE_BYTES_MAX: usize = 16 << 10;

impl RingLoop {
    /// Takes the next chunk of a connection's output and begins to send it. Returns what the
    /// connection wants if there is none, and `None` while an operation is under way.
    pub(super) fn begin_output(&mut self, slot: u32) -> Option<Want> {
        let floor = &mut self.floor;
        let ringed = floor.table.conn(slot)?;
        if ringed.send.is_some() {
            return None;
        }
        let Some(output) = ringed.output() else { return Some(Want::Close) };
        let nothing = SendBuffer::Static(&[]);
        match output.take_chunk(FILE_BYTES_MAX) {
            Chunk::Nothing => return Some(ringed.sent(Sent::All, &mut floor.service)),
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
                    ringed.reading = Some(Reading { file, range, bytes });
                    self.wait_to_read(slot);
                    return None;
                }
                let data = Data::of(Kind::Output, self.floor.table.token(slot));
                let (fd, by) = (SharedFd::of(&file), ReadThread::Caller);
                let op = self.ring.read(fd, bytes, range.clone(), by, Then::Nothing, data);
                let ringed = self.floor.table.conn(slot)?;
                ringed.reading = Some(Reading { file, range, bytes: Vec::new() });
                ringed.send = Some(Send::of(Some(op), Stage::Read));
            }
        }
        None
    }

    /// Sends a short reply at once, and has a longer one wait for its turn.
    fn send_reply(&mut self, slot: u32, pieces: Pieces) {
        let bytes = pieces[0].1.len() + pieces[1].1.len();
        if bytes < TURN_BYTES_MIN as usize {
            return self.send(slot, pieces, Stage::Reply);
        }
        let token = self.floor.table.token(slot);
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        ringed.send = Some(Send::of(None, Stage::Reply));
        self.turns.push_back((token, pieces));
    }

    /// Sends the replies that have waited longest, up to one turn's worth for all: the kernel sends
    /// what it is given before it looks at anything else. Returns the number of bytes.
    pub(super) fn take_turns(&mut self) -> u64 {
        let turn_bytes = self.floor.service.turn.bytes();
        let mut taken = 0;
        while taken < turn_bytes {
            let Some((token, pieces)) = self.turns.pop_front() else { break };
            if self.floor.table.is_current(token) {
                taken += ((pieces[0].1.len() + pieces[1].1.len()) as u64).min(turn_bytes);
                self.send(token.slot, pieces, Stage::Reply);
            }
        }
        taken
    }

    /// Sends ranges of two pieces: one turn's worth of them now, the rest in another turn.
    fn send(&mut self, slot: u32, mut pieces: Pieces, stage: Stage) {
        let ring_slot = self.ring_slot(slot);
        let to = Handle::Slot(ring_slot);
        let token = self.floor.table.token(slot);
        let turn_bytes_max = self.floor.service.turn.bytes() as usize;
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        let [first, second] = [pieces[0].1.clone(), pieces[1].1.clone()];
        let bytes = first.len() + second.len();
        let is_last = ringed.output().is_some_and(|output| output.is_taken());
        let is_short_end = stage == Stage::Reply && bytes <= WHOLE_BYTES_MAX && is_last;
        let leaves = is_short_end && ringed.closes_after_output();
        let rests = is_short_end && ringed.rests_after_output();
        let receive = ringed.receive;
        let zero_copy = bytes as u64 >= self.zero_copy_from;
        // What is lent comes back late: it goes out whole, or not at all.
        let whole = leaves || zero_copy;
        let turn_bytes_max = if whole { bytes } else { turn_bytes_max };
        let last = &mut pieces[usize::from(!second.is_empty())].1;
        let later = bytes.saturating_sub(turn_bytes_max).min(last.len().saturating_sub(1));
        last.end -= later;
        let more = stage == Stage::Reply && (later > 0 || !is_last);
        let how = SendOptions { more, whole, zero_copy };
        let then = if leaves { Then::OnSuccess } else { Then::Nothing };
        let data = Data::of(Kind::Output, token);
        let op = self.lend(to, pieces, how, then, data);
        if leaves {
            if let Some(receive) = receive {
                self.ring.cancel(receive, Then::Always);
            }
            self.ring.close(ring_slot, Then::Nothing, Data::of(Kind::Close, token));
        }
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        ringed.leaves = leaves;
        if let Some(output) = ringed.output() {
            output.full_since_ns = Some(self.floor.service.now_ns());
        }
        self.sure += u32::from(rests) + u32::from(leaves);
        ringed.send = Some(Send { first, second, ..Send::of(Some(op), stage) });
    }

    fn lend(
        &mut self,
        to: Handle<'_>,
        [first, second]: Pieces,
        how: SendOptions,
        then: Then,
        data: u64,
    ) -> Op {
        if second.1.is_empty() {
            self.ring.send(to, first.0, first.1, how, then, data)
        } else if first.1.is_empty() {
            self.ring.send(to, second.0, second.1, how, then, data)
        } else {
            self.ring.send_two(to, [first, second], how, then, data)
        }
    }

    pub(super) fn begin_shutdown(&mut self, slot: u32) {
        let data = Data::of(Kind::Output, self.floor.table.token(slot));
        let handle = Handle::Slot(self.ring_slot(slot));
        let op = self.ring.shutdown(handle, std::net::Shutdown::Write, Then::Nothing, data);
        if let Some(ringed) = self.floor.table.conn(slot) {
            ringed.send = Some(Send::of(Some(op), Stage::Shutdown));
        }
    }

    /// Handles the end of an operation on a connection's output.
    pub(super) fn put_out(&mut self, slot: u32, completion: Completion) {
        if completion.notice {
            // Memory that was lent, and whose bytes have arrived.
            return;
        }
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        let Some(send) = ringed.send.take() else { return };
        let (result, service) = (completion.result, &mut self.floor.service);
        let want = match send.stage {
            Stage::Read => return self.file_found(slot, completion),
            Stage::ReadLate => return self.file_read(slot, completion),
            Stage::Wait => return,
            Stage::Reply => return self.reply_sent(slot, &send, result, completion.returned),
            Stage::Shutdown => ringed.shut(result == 0, service),
        };
        self.follow(slot, want);
    }

    fn reply_sent(&mut self, slot: u32, send: &Send, result: i32, returned: Returned) {
        let floor = &mut self.floor;
        let Some(ringed) = floor.table.conn(slot) else { return };
        let Ok(sent @ 1..) = usize::try_from(result) else {
            if ringed.is_doomed || result == -ECANCELED {
                return;
            }
            let want = ringed.sent(Sent::Gone, &mut floor.service);
            ringed.leaves = false;
            return self.follow(slot, want);
        };
        self.sent_bytes += sent as u64;
        if let Some(output) = ringed.output() {
            output.full_since_ns = None;
            output.note_sent(sent as u64, &mut floor.service);
        }
        if sent < send.bytes() {
            if ringed.is_doomed {
                return;
            }
            return self.send_rest(slot, send, sent, returned);
        }
        if let (
            Returned::Buffer(SendBuffer::Bytes(bytes))
            | Returned::Pair(SendBuffer::Bytes(bytes), _),
            Some(output),
        ) = (returned, ringed.output())
        {
            output.keep_buffer(bytes);
        }
        if ringed.leaves {
            // The close is on its way; the machine has nothing else in mind.
            let _ = ringed.sent(Sent::All, &mut floor.service);
            return;
        }
        let want = self.begin_output(slot);
        if let Some(want) = want {
            self.follow(slot, want);
        }
    }

    /// Sends the rest of a reply, in another turn or as the socket gets room. Queries the
    /// unacknowledged bytes first, if the client's pace is to be measured from now on.
    fn send_rest(&mut self, slot: u32, send: &Send, sent: usize, returned: Returned) {
        let (first, second) = send.after(sent);
        let pieces = match returned {
            Returned::Buffer(piece) if send.second.is_empty() => {
                [(piece, first), (SendBuffer::Static(&[]), 0..0)]
            }
            Returned::Buffer(piece) => [(SendBuffer::Static(&[]), 0..0), (piece, second)],
            Returned::Pair(one, two) => [(one, first), (two, second)],
            // Nothing else comes back of a send.
            _ => return self.fail(slot),
        };
        let token = self.floor.table.token(slot);
        if self.floor.table.conn(slot).is_some_and(|ringed| ringed.wants_acknowledged()) {
            self.ask_unacknowledged(slot, Data::of(Kind::Mark, token));
        }
        self.send_reply(slot, pieces);
    }

    /// Handles the read of a piece of a file from memory. If some of it is not in memory, a worker
    /// that may block reads it.
    fn file_found(&mut self, slot: u32, completion: Completion) {
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        let Some(reading) = &mut ringed.reading else { return };
        let found = match completion.outcome() {
            Ok(found) if u64::from(found) < reading.len() => found as usize,
            Err(error) if matches!(error.kind(), WouldBlock | Unsupported) => 0,
            _ => return self.file_read(slot, completion),
        };
        if let Returned::Read(mut bytes) = completion.returned {
            bytes.truncate(bytes.len() - found);
            reading.bytes = bytes;
            self.wait_to_read(slot);
        }
    }

    /// Queues a connection for its turn to read from a disk.
    fn wait_to_read(&mut self, slot: u32) {
        let token = self.floor.table.token(slot);
        let Some(ringed) = self.floor.table.conn(slot) else { return };
        ringed.send = Some(Send::of(None, Stage::Wait));
        self.fetching.join(token);
        self.fetch_next();
    }

    fn read_late(&mut self, token: Token) {
        let data = Data::of(Kind::Fetch, token);
        let Some(ringed) = self.floor.table.conn(token.slot) else { return };
        let Some(reading) = &mut ringed.reading else { return };
        let (range, bytes) = (reading.range.clone(), std::mem::take(&mut reading.bytes));
        let (fd, by) = (SharedFd::of(&reading.file), ReadThread::Worker);
        let op = self.ring.read(fd, bytes, range, by, Then::Nothing, data);
        ringed.send = Some(Send::of(Some(op), Stage::ReadLate));
        self.fetching.begun(token, 1);
    }

    /// Handles the read of a piece of a file: sends it if it is complete and the file is still the
    /// one that was promised.
    fn file_read(&mut self, slot: u32, completion: Completion) {
        let floor = &mut self.floor;
        let Some(ringed) = floor.table.conn(slot) else { return };
        let Some(reading) = ringed.reading.take() else { return };
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
                let want = ringed.sent(Sent::Changed, &mut floor.service);
                self.follow(slot, want);
            }
        }
    }

    /// Begins the disk operations of the next connections in the queue.
    pub(super) fn fetch_next(&mut self) {
        while let Some(token) = self.fetching.next() {
            if !self.floor.table.is_current(token) {
                continue;
            }
            match self.stage_of(token.slot) {
                Some(Stage::Wait) => self.read_late(token),
                _ => self.begin_fetch(token),
            }
        }
    }

    fn stage_of(&mut self, slot: u32) -> Option<Stage> {
        Some(self.floor.table.conn(slot)?.send.as_ref()?.stage)
    }

    fn begin_fetch(&mut self, token: Token) {
        let data = Data::of(Kind::Fetch, token);
        let Some(ringed) = self.floor.table.conn(token.slot) else { return };
        let Some(fetch) = ringed.fetch().cloned() else { return };
        let mut begun = 0;
        for kind in fetch.ops() {
            match kind {
                FetchOp::Open { root, path, symlinks } => {
                    let Ok(path) = CString::new(path) else { continue };
                    self.ring.open_beneath(root, path, symlinks, Then::Nothing, data);
                    begun += 1;
                }
                FetchOp::Read { file, offset, len } => {
                    for start in (offset..offset + len).step_by(FILE_BYTES_MAX as usize) {
                        let range = start..(offset + len).min(start + FILE_BYTES_MAX);
                        let by = ReadThread::Worker;
                        let file = file.clone();
                        self.ring.read(file, Vec::new(), range, by, Then::Nothing, data);
                        begun += 1;
                    }
                }
            }
        }
        self.fetching.begun(token, begun);
        if begun == 0 {
            self.have_fetched(token.slot);
        }
    }

    /// Handles the end of a disk operation. Its data is sent if it is a piece of a reply, and
    /// discarded otherwise.
    pub(super) fn fetched(&mut self, token: Token, completion: Completion) {
        if self.fetching.ended(token) && self.floor.table.is_current(token) {
            match self.stage_of(token.slot) {
                Some(Stage::ReadLate) => self.put_out(token.slot, completion),
                _ => self.have_fetched(token.slot),
            }
        }
        self.fetch_next();
    }

    fn have_fetched(&mut self, slot: u32) {
        if let Some(ringed) = self.floor.table.conn(slot) {
            let want = ringed.fetched(&mut self.floor.service);
            self.follow(slot, want);
        }
    }
}
