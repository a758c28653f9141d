//! Sends an output on a socket: as much as the socket takes and the write budget allows, one system
//! call at a time.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use weir_content::{Content, Fetch, OpenFile};
use weir_sys::file::{self, ResidencyCheck};

use super::socket::Socket;
use crate::context::WorkerContext;
use crate::context::output::{Output, slice};
use crate::context::write_budget::BUDGET_BYTES_MIN;
use crate::helpers;
use crate::strategy::OutputPath;

/// Maximum number of bytes of a file fetched from a disk at a time.
const FETCH_BYTES_MAX: u64 = 2 << 20;

/// Maximum number of times that a reply has bytes fetched that were fetched for it before.
const FETCHED_AGAIN_MAX: u8 = 8;

/// Bytes at the end of a file that are sent by copy, after a last check of the file: see
/// [`write_file`].
const TAIL_BYTES: u64 = 4096;

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// Everything was handed to the kernel.
    All,
    /// The socket is full.
    Blocked,
    /// There is more, and room for it, but the write budget is spent.
    BudgetSpent,
    /// The next bytes are not in memory: [`Output::take_fetch`].
    NeedsDisk,
    /// Nothing may be sent yet, by the client's bandwidth.
    Paused,
    /// The client has gone.
    ClientGone,
    /// The file is no longer the one whose length was promised, or cannot be read.
    FileChanged,
}

impl Output {
    /// Writes as much as the socket takes and the write budget allows; nothing of a large body in a
    /// iteration whose budget is spent.
    pub(crate) fn send(
        &mut self,
        socket: &mut impl Socket,
        context: &mut WorkerContext,
    ) -> SendOutcome {
        if self.body.as_ref().is_none_or(|part| part.len() < BUDGET_BYTES_MIN) {
            return self.send_within_budget(socket, context);
        }
        if context.write_budget.is_spent() {
            return SendOutcome::BudgetSpent;
        }
        let (began_ns, before) = (context.cpu_clock_ns(), self.sent_bytes);
        let sent = self.send_within_budget(socket, context);
        let took_ns = context.cpu_clock_ns().saturating_sub(began_ns);
        context.write_budget.record(self.sent_bytes - before, took_ns);
        sent
    }

    fn send_within_budget(
        &mut self,
        socket: &mut impl Socket,
        context: &mut WorkerContext,
    ) -> SendOutcome {
        let mut sent_now = 0;
        loop {
            if self.written == self.bytes.len() && self.body.is_none() && !self.next_part() {
                self.uncork(socket);
                return self.finish(socket);
            }
            // With nothing left of what is reserved for its client, it asks anew after others.
            if sent_now >= context.write_budget.bytes() || self.pace.reserved_bytes == Some(0) {
                return SendOutcome::BudgetSpent;
            }
            if self.is_cold(context) {
                return SendOutcome::NeedsDisk;
            }
            self.cork(socket, context);
            match self.write_some(socket, context) {
                Ok(Progress { bytes, full }) => {
                    sent_now += bytes;
                    self.sent_bytes += bytes;
                    self.take_reserved(bytes);
                    context.counters.bytes_out.add(bytes);
                    if full {
                        return SendOutcome::Blocked;
                    }
                }
                Err(error) => return outcome_of(&error),
            }
        }
    }

    /// Sends what the socket has taken and not sent, and that nothing follows if it is known.
    fn finish(&self, socket: &mut impl Socket) -> SendOutcome {
        if self.close {
            socket.end();
        }
        match socket.flush() {
            Ok(()) => SendOutcome::All,
            Err(error) => outcome_of(&error),
        }
    }

    /// Records that `bytes` of what was taken were sent.
    pub(crate) fn note_sent(&mut self, bytes: u64, context: &mut WorkerContext) {
        self.sent_bytes += bytes;
        self.take_reserved(bytes);
        context.counters.bytes_out.add(bytes);
    }

    /// Returns whether the file's next bytes must be fetched before they are sent, because no
    /// thread here may wait for a disk. They may be gone again before they can be sent, and are
    /// then fetched again, up to [`FETCHED_AGAIN_MAX`] times: some file systems keep nothing in
    /// memory.
    fn is_cold(&mut self, context: &WorkerContext) -> bool {
        let Some(part) = &self.body else { return false };
        let Content::File(file) = part.entry.content() else { return false };
        let (from, end) = (part.range.start, part.range.end);
        if context.config.content.waits || self.written < self.bytes.len() {
            return false;
        }
        let next_bytes = context.write_budget.bytes().min(end - from);
        let check =
            if helpers::are_busy() { ResidencyCheck::Thorough } else { ResidencyCheck::Quick };
        if file.resident(from..from + next_bytes, check) == next_bytes {
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

    /// Corks the socket before the first byte of a reply with a file, under that output path.
    fn cork(&mut self, socket: &mut impl Socket, context: &WorkerContext) {
        let corks = context.config.strategy.output == OutputPath::Cork;
        if corks && !self.corked && self.is_of_file() {
            socket.set_cork(true);
            self.corked = true;
        }
    }

    /// Has the kernel send what it held back.
    fn uncork(&mut self, socket: &mut impl Socket) {
        if std::mem::take(&mut self.corked) {
            socket.set_cork(false);
        }
    }

    /// Makes one system call, with no more than is reserved for the client. `full`: it took less
    /// than it was given.
    fn write_some(
        &mut self,
        socket: &mut impl Socket,
        context: &mut WorkerContext,
    ) -> io::Result<Progress> {
        let most_bytes = self.pace.reserved_bytes.unwrap_or(u64::MAX);
        let head = cut(&self.bytes[self.written..], most_bytes);
        let Some(part) = &mut self.body else {
            let bytes = socket.write(head, false)?;
            let full = bytes < head.len();
            self.written += bytes;
            return Ok(Progress { bytes: bytes as u64, full });
        };
        let progress = match part.entry.content() {
            Content::Memory(bytes) => {
                let body = cut(slice(bytes, &part.range), most_bytes - head.len() as u64);
                let offered = head.len() + body.len();
                let bytes = if head.is_empty() {
                    socket.write(body, false)?
                } else {
                    socket.write_two(head, body)?
                };
                Progress { bytes: bytes as u64, full: bytes < offered }
            }
            Content::File(_) if !head.is_empty() => {
                // A cork holds back the head's partial segment by itself.
                let bytes = socket.write(head, !self.corked)?;
                Progress { bytes: bytes as u64, full: bytes < head.len() }
            }
            Content::File(file) => {
                let tail = if self.corked { 0 } else { TAIL_BYTES };
                write_file(socket, file, &part.range, [tail, most_bytes], context)?
            }
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

/// Returns the beginning of a slice, with `most_bytes` at most.
fn cut(bytes: &[u8], most_bytes: u64) -> &[u8] {
    usize::try_from(most_bytes).ok().and_then(|most| bytes.get(..most)).unwrap_or(bytes)
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
/// sent by copy, and checked after each copy, so that even bytes already in the socket cannot
/// change.
///
/// So is every file where its bytes are encrypted first.
///
/// `tail`: the bytes at the end that are sent by copy. Under a cork there are none, as in the
/// papers' server: what is left of the last segment is held back until the check after it.
/// `most_bytes`: those that may be sent now.
fn write_file(
    socket: &mut impl Socket,
    file: &OpenFile,
    range: &Range<u64>,
    [tail, most_bytes]: [u64; 2],
    context: &mut WorkerContext,
) -> io::Result<Progress> {
    let left = range.end - range.start;
    if left > tail && socket.is_of_kernel() && file.is_quiet(context.clock()) {
        let wanted = (left - tail).min(context.write_budget.bytes()).min(most_bytes);
        let sent = socket.send_file(file.as_fd(), range.start, wanted as usize);
        let bytes = sent.map_err(of_socket_or_file)? as u64;
        if bytes == 0 || !file.is_unchanged().unwrap_or(false) {
            return Err(changed());
        }
        return Ok(Progress { bytes, full: bytes < wanted });
    }
    let wanted = left.min(context.scratch.len() as u64).min(most_bytes) as usize;
    let copy = &mut context.scratch[..wanted];
    let read = file::pread_full(file.as_fd(), copy, range.start).unwrap_or(0);
    if read < wanted || !file.is_unchanged().unwrap_or(false) {
        return Err(changed());
    }
    let bytes = socket.write(copy, false)?;
    Ok(Progress { bytes: bytes as u64, full: bytes < wanted })
}

/// Returns an error of sendfile(2): as it is if it is the socket's, or a lack of memory; any other
/// is the file's, such as that of a disk that fails.
fn of_socket_or_file(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock
        | io::ErrorKind::OutOfMemory
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::NotConnected
        | io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown => error,
        _ => changed(),
    }
}

fn changed() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

fn outcome_of(error: &io::Error) -> SendOutcome {
    match error.kind() {
        io::ErrorKind::WouldBlock => SendOutcome::Blocked,
        io::ErrorKind::UnexpectedEof => SendOutcome::FileChanged,
        _ => SendOutcome::ClientGone,
    }
}
