//! Replies queued on a connection: bytes written out here, then at most one body at a time from the
//! content store. How they are sent is in [`crate::http::send`] and in the ring.

use std::ops::Range;
use std::sync::Arc;

use weir_content::{Content, Entry, Fetch, OpenFile};

use super::log::Record;
use super::read_rate::ReadRate;
use super::reply_queue::ReplyQueue;

/// Maximum size of a body that is copied behind its head, bytes. Both then go out in one write,
/// which costs less than a second element for writev and lets pipelined replies share a call.
const COPIED_BYTES_MAX: u64 = 4096;

/// Replies in the order in which they are sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Bytes written out, which precede `body`.
    pub bytes: Vec<u8>,
    /// Number of `bytes` that have been sent.
    pub written: usize,
    /// Body of the last reply, or what is left of it.
    pub body: Option<BodyRange>,
    /// Parts of a multipart body still to come, last first, each with the bytes that precede it.
    later: Vec<(Vec<u8>, BodyRange)>,
    /// Rest of a forwarded reply.
    pub queue: ReplyQueue,
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
    /// True once bytes were lent to the kernel, which may send them at any time.
    pub is_lent: bool,
    /// Memory of the chunk that was taken out and is not sent to its end, bytes.
    pub chunk_memory_bytes: u64,
    /// Time since which the socket has been full, nanoseconds; `None` while it is not.
    pub full_since_ns: Option<u64>,
    /// Rate at which the client takes the replies.
    pub read_rate: ReadRate,
    /// Range of a file that has to come from a disk before it can be sent.
    pub cold: Option<Fetch>,
    /// Offset up to which the file has been fetched.
    pub fetched_to: u64,
    /// Number of times that fetched bytes were gone before they could be sent.
    pub fetched_again: u8,
    /// True while the socket is corked.
    pub corked: bool,
    /// State of the client's bandwidth.
    pub pace: Pace,
}

/// Bytes that may be sent by the bandwidth of a client, and the pause before they may.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Bytes reserved and not sent yet; `None` where there is no limit.
    pub reserved_bytes: Option<u64>,
    /// Start and end of the pause, nanoseconds; `None` without one.
    pub pause_ns: Option<(u64, u64)>,
}

/// A range of an entry's bytes.
#[derive(Debug)]
pub(crate) struct BodyRange {
    pub entry: Arc<Entry>,
    /// Bytes left to be sent.
    pub range: Range<u64>,
}

impl BodyRange {
    /// Returns the number of bytes left.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The part of an output to be sent next, taken out of it by a caller that does not write to a
/// socket itself.
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

impl Chunk {
    /// Returns the memory that it takes until it has been sent, bytes: a body may be one that no
    /// cache has any more, and a file is read before it is sent.
    fn memory_bytes(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Bytes(bytes) => bytes.capacity() as u64,
            Self::Both(bytes, body, _) => (bytes.capacity() + body.len()) as u64,
            Self::File(bytes, _, range) => bytes.capacity() as u64 + (range.end - range.start),
        }
    }
}

impl Output {
    /// Adds a body, or the only range of it that is sent.
    pub(crate) fn push_body(&mut self, entry: &Arc<Entry>, range: Range<u64>) {
        if let (Content::Memory(bytes), true) =
            (entry.content(), range.end - range.start <= COPIED_BYTES_MAX)
        {
            self.bytes.extend_from_slice(slice(bytes, &range));
        } else {
            self.body = Some(BodyRange { entry: Arc::clone(entry), range });
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
        let part = |range| BodyRange { entry: Arc::clone(entry), range };
        self.later = parts.into_iter().map(|(head, range)| (head, part(range))).collect();
        self.later.push((end, part(0..0)));
        self.later.reverse();
    }

    /// Counts a reply by its status.
    pub(crate) fn count(&mut self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(2);
        self.statuses[class.min(3)] += 1;
    }

    /// Returns whether the client may have received some of it.
    pub(crate) fn is_begun(&self) -> bool {
        self.sent_bytes > 0 || self.is_lent
    }

    /// Number of replies in the output.
    pub(crate) fn replies(&self) -> u64 {
        self.statuses.iter().sum()
    }

    /// Returns whether another reply may be written behind this one.
    pub(crate) fn takes_more(&self) -> bool {
        self.body.is_none() && self.later.is_empty() && !self.close && self.bytes.len() < 32 << 10
    }

    /// Capacity of its buffers, except for bodies, bytes.
    pub(crate) fn buffer_bytes(&self) -> usize {
        let later_bytes = self.later.iter().map(|(head, _)| head.capacity()).sum::<usize>();
        self.bytes.capacity() + later_bytes + self.queue.buffer_bytes()
    }

    /// Returns the memory that it holds, except for bodies that it shares, bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.buffer_bytes() + self.records.capacity() * size_of::<Record>()
    }

    /// Returns the memory that it holds once it has been emptied for the next use, bytes.
    #[inline]
    pub(crate) fn kept_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }

    /// Returns the memory of the body that is being sent, bytes.
    pub(crate) fn body_bytes(&self) -> u64 {
        let entry = self.body.as_ref().map(|body| &body.entry);
        entry.map_or(0, |entry| entry.memory_bytes() as u64)
    }

    /// Empties it for the next use, keeping its buffer.
    pub(crate) fn reset(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Self { bytes, ..Self::default() };
    }

    /// Takes out the chunk to be sent next, with at most `file_bytes_max` of a file.
    pub(crate) fn take_chunk(&mut self, file_bytes_max: u64) -> Chunk {
        let chunk = self.next_chunk(file_bytes_max);
        self.chunk_memory_bytes = chunk.memory_bytes();
        chunk
    }

    fn next_chunk(&mut self, file_bytes_max: u64) -> Chunk {
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
                    self.body = Some(BodyRange { range: end..range.end, ..part });
                }
                Chunk::File(bytes, file, range.start..end)
            }
        }
    }

    /// Returns whether everything has been taken.
    pub(crate) fn is_taken(&self) -> bool {
        let has_parts = !self.later.is_empty() || !self.queue.is_empty();
        self.bytes.is_empty() && self.body.is_none() && !has_parts
    }

    /// Keeps the memory of a chunk that was sent, for reuse.
    pub(crate) fn keep_buffer(&mut self, mut bytes: Vec<u8>) {
        if self.bytes.capacity() == 0 {
            bytes.clear();
            self.bytes = bytes;
        }
    }

    /// Returns the bytes to be sent before the next part of a multipart body.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        let body_bytes = self.body.as_ref().map_or(0, BodyRange::len);
        let written_out = self.bytes.len() - self.written.min(self.bytes.len());
        (written_out + self.queue.bytes()) as u64 + body_bytes
    }

    /// Returns the bytes that the next chunk will have, and moves on to the next part for it.
    pub(crate) fn chunk_bytes(&mut self, file_bytes_max: u64) -> u64 {
        if self.bytes.is_empty() && self.body.is_none() {
            self.next_part();
        }
        let of_file = self.is_of_file();
        let body_bytes = self.body.as_ref().map_or(0, BodyRange::len);
        let body_bytes = if of_file { body_bytes.min(file_bytes_max) } else { body_bytes };
        self.bytes.len() as u64 + body_bytes
    }

    /// Takes bytes that were sent off those reserved.
    pub(crate) fn take_reserved(&mut self, bytes: u64) {
        if let Some(reserved_bytes) = &mut self.pace.reserved_bytes {
            *reserved_bytes = reserved_bytes.saturating_sub(bytes);
        }
    }

    /// Returns whether what is sent next includes a range of a file.
    pub(crate) fn is_of_file(&self) -> bool {
        self.body.as_ref().is_some_and(|part| matches!(part.entry.content(), Content::File(_)))
    }

    /// Takes the fetch to be done after [`crate::http::send::SendOutcome::NeedsDisk`].
    pub(crate) fn take_fetch(&mut self) -> Option<Fetch> {
        self.cold.take()
    }

    /// Moves on to the next part of a multipart body, or of a forwarded reply; returns whether
    /// there is one.
    pub(crate) fn next_part(&mut self) -> bool {
        if let Some(bytes) = self.queue.pop() {
            (self.bytes, self.written) = (bytes, 0);
            return true;
        }
        let Some((head, part)) = self.later.pop() else { return false };
        self.bytes = head;
        self.written = 0;
        self.fetched_to = 0;
        self.body = (part.range.start < part.range.end).then_some(part);
        true
    }
}

/// Returns the bytes of a range, none if it reaches past them.
pub(crate) fn slice<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    bytes.get(range.start as usize..range.end as usize).unwrap_or_default()
}
