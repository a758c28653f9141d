//! Large content: the kernel passes it from one socket to the other, through a pipe (splice(2)), a
//! reply's from the server's to the client's and a request's the other way. Small content is
//! copied, which costs less than the calls.

use std::io;

use weir_sys::pipe::Pipe;

use super::forward_failure::Failure;
use crate::context::WorkerContext;
use crate::context::forwarded::Forward;
use crate::context::output::Output;
use crate::upstream::Upstreams;

/// Content left from which it goes through a pipe, bytes.
const SPLICED_BYTES_MIN: u64 = 256 << 10;

/// Maximum number of bytes moved into the pipe at a time.
const FILL_BYTES_MAX: u64 = 256 << 10;

impl Forward {
    /// Number of bytes of the reply that are in the pipe.
    pub(super) fn piped_bytes(&self) -> usize {
        self.pipe.as_ref().map_or(0, Pipe::held)
    }

    /// Returns whether what comes next of the reply goes through the pipe, and gets one if it does.
    pub(super) fn splices(&mut self, output: &Output, context: &mut WorkerContext) -> bool {
        if self.piped_bytes() > 0 {
            return true;
        }
        let passable_bytes = self.exchange.passable_bytes();
        // A copy for the cache needs the bytes.
        if passable_bytes == 0 || self.is_copying() || output.written < output.bytes.len() {
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

    /// Moves what there is of the reply into the pipe, once that is empty. Returns whether there
    /// was any.
    pub(super) fn fill_pipe(&mut self, context: &mut WorkerContext) -> Result<bool, Failure> {
        let count = self.exchange.passable_bytes().min(FILL_BYTES_MAX) as usize;
        let (Some(pipe), Some(upstreams)) = (&mut self.pipe, &mut context.upstreams) else {
            return Ok(false);
        };
        if pipe.held() > 0 || count == 0 {
            return Ok(false);
        }
        let Some(slot) = self.socket else { return Ok(false) };
        let Some(server) = upstreams.sockets.get(slot) else { return Err(Failure::BrokeOff) };
        if !server.is_ready {
            return Ok(false);
        }
        match pipe.fill(server.fd(), count) {
            Ok(0) => Err(Failure::BrokeOff),
            Ok(bytes) => {
                self.exchange.note_passed(bytes);
                context.counters.upstream_spliced_bytes.add(bytes as u64);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                server.note_empty();
                Ok(false)
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
    fn is_of_kernel(&self, context: &WorkerContext) -> bool {
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
