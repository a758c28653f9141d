//! Large content: the kernel passes it from one socket to the other, through a pipe (splice(2)), a
//! reply's from the server's to the client's and a request's the other way. Small content is
//! copied, which costs less than the calls. So is the rest of a reply whose client turns out to be
//! slow, once memory has room for it: its place at the upstream is then free.

use std::io;

use weir_sys::pipe::Pipe;

use super::forward_failure::Failure;
use super::upstream_io::Received;
use crate::context::WorkerContext;
use crate::context::forwarded::{Forward, Place};
use crate::context::output::Output;
use crate::upstream::Upstreams;

/// Content left from which it goes through a pipe, bytes.
const SPLICED_BYTES_MIN: u64 = 256 << 10;

/// Maximum number of bytes moved into the pipe at a time.
const FILL_BYTES_MAX: u64 = 256 << 10;

/// Time after which a client that has not taken what was put into the pipe is slow, nanoseconds: at
/// less than 25 MB/s. A copy for others would take time of a processor, and save none of the
/// server's.
const SLOW_NS: u64 = 10_000_000;

impl Forward {
    /// Number of bytes of the reply that are in the pipe.
    pub(super) fn piped_bytes(&self) -> usize {
        self.pipe.as_ref().map_or(0, Pipe::held)
    }

    /// Returns whether what comes next of the reply goes through the pipe, and gets one if it does.
    pub(super) fn splices(&mut self, output: &Output, context: &mut WorkerContext) -> bool {
        if self.piped_bytes() > 0 {
            return !self.leaves_pipe(context);
        }
        let passable_bytes = self.exchange.passable_bytes();
        // A copy for the cache needs the bytes.
        let is_first = output.written == output.bytes.len() && output.queue.is_empty();
        if passable_bytes == 0 || self.is_copying() || !is_first {
            return false;
        }
        if !self.is_of_kernel(context) {
            return false;
        }
        if self.pipe.is_none() && passable_bytes >= SPLICED_BYTES_MIN {
            self.pipe = context.upstreams.as_mut().and_then(|all| all.take_pipe());
        }
        self.pipe.is_some()
    }

    /// Returns when a client that has not taken what is in the pipe is slow, so that memory takes
    /// what is left of the reply, nanoseconds; `None` if that would not free a place.
    pub(super) fn slow_from_ns(&self, context: &WorkerContext) -> Option<u64> {
        let bytes_max = context.config.upstreams[self.upstream].reply_buffer_max as u64;
        let left = self.exchange.passable_bytes();
        let frees = self.place == Place::Has && (1..=bytes_max).contains(&left);
        (frees && self.piped_bytes() > 0).then_some(self.pipe_filled_ns.saturating_add(SLOW_NS))
    }

    /// Returns whether memory takes what follows the bytes in the pipe.
    pub(super) fn leaves_pipe(&self, context: &WorkerContext) -> bool {
        self.slow_from_ns(context).is_some_and(|slow_ns| slow_ns <= context.now_ns())
    }

    /// Moves what there is of the reply into the pipe, once that is empty.
    pub(super) fn fill_pipe(&mut self, context: &mut WorkerContext) -> Result<Received, Failure> {
        let count = self.exchange.passable_bytes().min(FILL_BYTES_MAX) as usize;
        let now_ns = context.now_ns();
        let (Some(pipe), Some(upstreams)) = (&mut self.pipe, &mut context.upstreams) else {
            return Ok(Received::Nothing);
        };
        if pipe.held() > 0 {
            return Ok(Received::Later);
        }
        let Some(slot) = self.socket.filter(|_| count > 0) else { return Ok(Received::Nothing) };
        let Some(server) = upstreams.sockets.get(slot) else { return Err(Failure::BrokeOff) };
        if !server.is_ready {
            return Ok(Received::Nothing);
        }
        match pipe.fill(server.fd(), count) {
            Ok(0) => Err(Failure::BrokeOff),
            Ok(bytes) => {
                self.exchange.note_passed(bytes);
                self.pipe_filled_ns = now_ns;
                context.counters.upstream_spliced_bytes.add(bytes as u64);
                Ok(Received::Something)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                server.note_empty();
                Ok(Received::Nothing)
            }
            Err(_) => Err(Failure::BrokeOff),
        }
    }

    /// Returns the pipe for what comes next of the client's content, and how much of that may go
    /// into it; `None` if it is copied.
    pub(super) fn content_pipe(
        &mut self,
        context: &mut WorkerContext,
    ) -> Option<(&mut Pipe, usize)> {
        if !self.is_of_kernel(context) {
            return None;
        }
        let passable_bytes = self.exchange.passable_content_bytes();
        if self.content_pipe.is_none() && passable_bytes >= SPLICED_BYTES_MIN {
            self.content_pipe = context.upstreams.as_mut().and_then(|all| all.take_pipe());
        }
        let pipe = self.content_pipe.as_mut().filter(|_| passable_bytes > 0)?;
        Some((pipe, passable_bytes.min(FILL_BYTES_MAX) as usize))
    }

    /// Returns whether the kernel can move bytes to and from every server by itself: not those of
    /// TLS.
    pub(super) fn is_of_kernel(&self, context: &WorkerContext) -> bool {
        !context.config.upstreams[self.upstream].has_tls()
    }

    /// Records that `bytes` of the client's content have gone into the pipe.
    pub(super) fn note_piped_content(&mut self, bytes: usize, context: &mut WorkerContext) {
        self.exchange.note_passing(bytes);
        self.content_bytes += bytes as u64;
        context.counters.bytes_in.add(bytes as u64);
        context.counters.upstream_spliced_bytes.add(bytes as u64);
    }

    /// Returns whether some of the client's content is in the pipe.
    pub(super) fn has_piped_content(&self) -> bool {
        self.content_pipe.as_ref().is_some_and(|pipe| pipe.held() > 0)
    }

    /// Gives back the pipes.
    pub(super) fn release_pipes(&mut self, upstreams: &mut Upstreams) {
        for pipe in [self.pipe.take(), self.content_pipe.take()].into_iter().flatten() {
            upstreams.give_pipe(pipe);
        }
    }
}
