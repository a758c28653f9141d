//! Large content of a reply: the kernel passes it from the server's socket to the client's, through
//! a pipe (splice(2)). Small content is copied, which costs less than the calls.

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

    /// Gives back the pipe, if there is one.
    pub(super) fn release_pipe(&mut self, upstreams: &mut Upstreams) {
        if let Some(pipe) = self.pipe.take() {
            upstreams.give_pipe(pipe);
        }
    }
}
