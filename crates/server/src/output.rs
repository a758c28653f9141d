//! Output of a connection: bytes written out here, then at most one body at a time from the content
//! store. Knows the socket's writes, and nothing of requests.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use weir_content::{Content, Entry, Fetch, OpenFile};
use weir_sys::file::{self, ResidencyCheck};

use crate::helpers;
use crate::log::Record;
use crate::pace::Pace;
use crate::service::Service;
use crate::socket::Socket;
use crate::turn::TURN_BYTES_MIN;

/// Maximum size of a body that is copied behind its head, bytes. Both then go out in one write,
/// which costs less than a second element for writev and lets pipelined replies share a call.
const COPIED_BYTES_MAX: u64 = 4096;

/// Maximum number of bytes of a file fetched from a disk at a time.
const FETCH_BYTES_MAX: u64 = 2 << 20;

/// Maximum number of times that a reply has bytes fetched that were fetched for it before.
const FETCHED_AGAIN_MAX: u8 = 8;

/// Bytes at the end of a file that are sent by copy, after a last look at the file: see
/// [`write_file`].
const TAIL_BYTES: u64 = 4096;

/// Replies in the order in which they are sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Bytes written out, which precede `body`.
    pub bytes: Vec<u8>,
    written: usize,
    body: Option<Part>,
    /// Parts of a multipart body still to come, last first, each with the bytes that precede it.
    later: Vec<(Vec<u8>, Part)>,
    /// True to close the connection once everything is sent.
    pub close: bool,
    /// True to read on for a while before the close, because the client may still be sending.
    pub linger: bool,
    /// Number of replies in here per class of status: 2xx, 3xx, 4xx, 5xx.
    pub statuses: [u64; 4],
    /// Records for the access log, one per reply, if there is a log.
    pub records: Vec<Record>,
    /// Bytes written so far.
    pub sent_bytes: u64,
    /// Time since which the socket has been full, nanoseconds; `None` while it is not.
    pub full_since_ns: Option<u64>,
    /// Pace at which the client takes the replies.
    pub pace: Pace,
    /// Part of a file that has to come from a disk before it can be sent.
    cold: Option<Fetch>,
    /// Offset up to which the file has been fetched.
    fetched_to: u64,
    /// Number of times that fetched bytes were gone before they could be sent.
    fetched_again: u8,
}

/// A range of an entry's bytes.
#[derive(Debug)]
struct Part {
    entry: Arc<Entry>,
    range: Range<u64>,
}

impl Part {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// A piece to be sent next, taken out of an output by a caller that does not write to a socket
/// itself.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// None: all has been taken.
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, then a range of a body in memory.
    Both(Vec<u8>, Arc<[u8]>, Range<usize>),
    /// These bytes, then a range of a file, which must still be unchanged when it has been read.
    File(Vec<u8>, Arc<OpenFile>, Range<u64>),
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Everything was handed to the kernel.
    All,
    /// The socket is full.
    Blocked,
    /// There is more, and room for it, but it is the turn of others.
    Turn,
    /// The next bytes are not in memory: [`Output::take_fetch`].
    Cold,
    /// The client has gone.
    Gone,
    /// The file is no longer the one whose length was promised, or cannot be read.
    Changed,
}

impl Output {
    /// Adds a body, or the only range of it that is sent.
    pub(crate) fn push_body(&mut self, entry: &Arc<Entry>, range: Range<u64>) {
        if let (Content::Memory(bytes), true) =
            (entry.content(), range.end - range.start <= COPIED_BYTES_MAX)
        {
            self.bytes.extend_from_slice(slice(bytes, &range));
        } else {
            self.body = Some(Part { entry: Arc::clone(entry), range });
        }
    }

    /// Adds the parts of a multipart body: the head and the range of each, then the bytes that end
    /// them all.
    pub(crate) fn push_parts(
        &mut self,
        entry: &Arc<Entry>,
        parts: Vec<(Vec<u8>, Range<u64>)>,
        end: Vec<u8>,
    ) {
        let part = |range| Part { entry: Arc::clone(entry), range };
        self.later = parts.into_iter().map(|(head, range)| (head, part(range))).collect();
        self.later.push((end, part(0..0)));
        self.later.reverse();
    }

    /// Counts a reply by its status.
    pub(crate) fn count(&mut self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(2);
        self.statuses[class.min(3)] += 1;
    }

    /// Number of replies in the output.
    pub(crate) fn replies(&self) -> u64 {
        self.statuses.iter().sum()
    }

    /// Returns whether another reply may be written behind this one.
    pub(crate) fn takes_more(&self) -> bool {
        self.body.is_none() && self.later.is_empty() && !self.close && self.bytes.len() < 32 << 10
    }

    /// Memory that it holds, except for bodies, bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.later.iter().map(|(head, _)| head.capacity()).sum::<usize>()
    }

    /// Empties it for the next use, keeping its buffer.
    pub(crate) fn reset(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self { bytes, ..Self::default() };
    }

    /// Writes as much as the socket takes, up to one turn's worth; nothing of a large body in a
    /// round whose turn is over.
    pub(crate) fn send(&mut self, socket: &impl Socket, service: &mut Service) -> Sent {
        if self.body.as_ref().is_none_or(|part| part.len() < TURN_BYTES_MIN) {
            return self.send_turn(socket, service);
        }
        if service.turn.is_over() {
            return Sent::Turn;
        }
        let (began_ns, before) = (service.cpu_clock_ns(), self.sent_bytes);
        let sent = self.send_turn(socket, service);
        let took_ns = service.cpu_clock_ns().saturating_sub(began_ns);
        service.turn.note(self.sent_bytes - before, took_ns);
        sent
    }

    fn send_turn(&mut self, socket: &impl Socket, service: &mut Service) -> Sent {
        let mut turn_bytes = 0;
        loop {
            if self.written == self.bytes.len() && self.body.is_none() && !self.next_part() {
                return Sent::All;
            }
            if turn_bytes >= service.turn.bytes() {
                return Sent::Turn;
            }
            if self.is_cold(service) {
                return Sent::Cold;
            }
            match self.write_some(socket, service) {
                Ok(Progress { bytes, full }) => {
                    turn_bytes += bytes;
                    self.sent_bytes += bytes;
                    service.counters.bytes_out.add(bytes);
                    if full {
                        return Sent::Blocked;
                    }
                }
                Err(error) => return why(&error),
            }
        }
    }

    /// Takes out the piece to be sent next, with at most `file_bytes_max` of a file.
    pub(crate) fn take_chunk(&mut self, file_bytes_max: u64) -> Chunk {
        if self.bytes.is_empty() && self.body.is_none() && !self.next_part() {
            return Chunk::Nothing;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let Some(part) = self.body.take() else { return Chunk::Bytes(bytes) };
        let range = part.range.clone();
        match part.entry.content() {
            Content::Memory(body) => {
                let end = (range.end as usize).min(body.len());
                Chunk::Both(bytes, Arc::clone(body), (range.start as usize).min(end)..end)
            }
            Content::File(file) => {
                let file = Arc::clone(file);
                let end = range.end.min(range.start.saturating_add(file_bytes_max));
                if end < range.end {
                    self.body = Some(Part { range: end..range.end, ..part });
                }
                Chunk::File(bytes, file, range.start..end)
            }
        }
    }

    /// Returns whether everything has been taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.bytes.is_empty() && self.body.is_none() && self.later.is_empty()
    }

    /// Keeps the memory of a chunk that was sent, for reuse.
    pub(crate) fn keep_buffer(&mut self, mut bytes: Vec<u8>) {
        if self.bytes.capacity() == 0 {
            bytes.clear();
            self.bytes = bytes;
        }
    }

    /// Records that `bytes` of what was taken were sent.
    pub(crate) fn note_sent(&mut self, bytes: u64, service: &mut Service) {
        self.sent_bytes += bytes;
        service.counters.bytes_out.add(bytes);
    }

    /// Takes the fetch to be done after [`Sent::Cold`].
    pub(crate) fn take_fetch(&mut self) -> Option<Fetch> {
        self.cold.take()
    }

    /// Returns whether the file's next bytes must be fetched before they are sent, because no
    /// thread here may wait for a disk. They may be gone again before their turn comes, and are
    /// then fetched again, up to [`FETCHED_AGAIN_MAX`] times: some file systems keep nothing in
    /// memory.
    fn is_cold(&mut self, service: &Service) -> bool {
        let Some(part) = &self.body else { return false };
        let Content::File(file) = part.entry.content() else { return false };
        let (from, end) = (part.range.start, part.range.end);
        if service.config.content.waits || self.written < self.bytes.len() {
            return false;
        }
        let next_bytes = service.turn.bytes().min(end - from);
        let look =
            if helpers::are_at_work() { ResidencyCheck::Thorough } else { ResidencyCheck::Quick };
        if file.resident(from..from + next_bytes, look) == next_bytes {
            return false;
        }
        if from < self.fetched_to {
            if self.fetched_again == FETCHED_AGAIN_MAX {
                return false;
            }
            self.fetched_again += 1;
        }
        self.fetched_to = end.min(from + FETCH_BYTES_MAX);
        self.cold = Some(Fetch::of_range(file, from..self.fetched_to));
        true
    }

    fn next_part(&mut self) -> bool {
        let Some((head, part)) = self.later.pop() else { return false };
        self.bytes = head;
        self.written = 0;
        self.fetched_to = 0;
        self.body = (part.range.start < part.range.end).then_some(part);
        true
    }

    /// Makes one system call. `full`: it took less than it was given.
    fn write_some(&mut self, socket: &impl Socket, service: &mut Service) -> io::Result<Progress> {
        let head = &self.bytes[self.written..];
        let Some(part) = &mut self.body else {
            let bytes = socket.write(head, false)?;
            let full = bytes < head.len();
            self.written += bytes;
            return Ok(Progress { bytes: bytes as u64, full });
        };
        let progress = match part.entry.content() {
            Content::Memory(bytes) => {
                let body = slice(bytes, &part.range);
                let offered = head.len() + body.len();
                let bytes = if head.is_empty() {
                    socket.write(body, false)?
                } else {
                    socket.write_two(head, body)?
                };
                Progress { bytes: bytes as u64, full: bytes < offered }
            }
            Content::File(_) if !head.is_empty() => {
                let bytes = socket.write(head, true)?;
                Progress { bytes: bytes as u64, full: bytes < head.len() }
            }
            Content::File(file) => write_file(socket, file, &part.range, service)?,
        };
        let from_head = progress.bytes.min(head.len() as u64);
        self.written += from_head as usize;
        part.range.start += progress.bytes - from_head;
        if part.range.start >= part.range.end {
            self.body = None;
        }
        Ok(progress)
    }
}

struct Progress {
    bytes: u64,
    full: bool,
}

/// Sends some of a file so that no complete reply mixes two versions of it.
///
/// A file at rest is sent by sendfile, whose bytes are references to the page cache: after each
/// call, and before the copied tail, the file must still be the one the reply began with. Otherwise
/// the reply is left unfinished, which the client sees. A file that was written to moments ago is
/// sent by copy, and looked at after each copy, so that even bytes already in the socket cannot
/// change.
fn write_file(
    socket: &impl Socket,
    file: &OpenFile,
    range: &Range<u64>,
    service: &mut Service,
) -> io::Result<Progress> {
    let left = range.end - range.start;
    if left > TAIL_BYTES && file.is_quiet(service.clock()) {
        let wanted = (left - TAIL_BYTES).min(service.turn.bytes());
        let bytes = socket.send_file(file.as_fd(), range.start, wanted as usize)? as u64;
        if bytes == 0 || !file.is_unchanged().unwrap_or(false) {
            return Err(changed());
        }
        return Ok(Progress { bytes, full: bytes < wanted });
    }
    let wanted = left.min(service.scratch.len() as u64) as usize;
    let copy = &mut service.scratch[..wanted];
    let read = file::pread_full(file.as_fd(), copy, range.start).unwrap_or(0);
    if read < wanted || !file.is_unchanged().unwrap_or(false) {
        return Err(changed());
    }
    let bytes = socket.write(copy, false)?;
    Ok(Progress { bytes: bytes as u64, full: bytes < wanted })
}

fn changed() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

fn why(error: &io::Error) -> Sent {
    match error.kind() {
        io::ErrorKind::WouldBlock => Sent::Blocked,
        io::ErrorKind::UnexpectedEof => Sent::Changed,
        _ => Sent::Gone,
    }
}

/// Returns the bytes of a range, none if it reaches past them.
fn slice<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    bytes.get(range.start as usize..range.end as usize).unwrap_or_default()
}
