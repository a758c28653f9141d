//! The memory that a connection holds, and its end when there is none left.

use super::{Action, Connection, State};
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;
use crate::context::memory::MemoryLevel;
use crate::context::output::Output;

impl Connection {
    /// Returns the memory that closing it may free besides its own size, bytes: its buffers, its
    /// TLS session, what the kernel was lent of its output, and a body that no cache may have any
    /// more.
    pub(crate) fn held_bytes(&self) -> u64 {
        let of_output = |output: &Output| output.body_bytes() + output.chunk_memory_bytes;
        let output_bytes = self.output.as_deref().map_or(0, of_output);
        u64::from(self.held_bytes) + u64::from(self.session_bytes) + output_bytes
    }

    /// Records the memory of its TLS session, bytes.
    pub(in crate::http) fn set_session_bytes(&mut self, bytes: u64) {
        self.session_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Counts the memory that it holds.
    #[inline]
    pub(super) fn count_held(&mut self, context: &mut WorkerContext) {
        let is_idle = self.output.is_none() && self.input.capacity() == 0;
        if is_idle && self.held_bytes == 0 && matches!(self.state, State::Idle) {
            return;
        }
        let output_bytes = self.output.as_ref().map_or(0, |output| output.held_bytes());
        let forward_bytes = match &self.state {
            State::Forward(forward) => forward.held_bytes(),
            _ => 0,
        };
        let held_bytes = self.input.capacity() + output_bytes + forward_bytes;
        let held_bytes = u32::try_from(held_bytes).unwrap_or(u32::MAX);
        context.memory.connections += i64::from(held_bytes) - i64::from(self.held_bytes);
        self.held_bytes = held_bytes;
    }

    /// Closes it if there is no memory left: whoever asks for more is cut off, so that there is.
    #[inline]
    pub(in crate::http) fn cut_for_memory(&mut self, context: &WorkerContext) -> Option<Action> {
        // The level as of the start of the iteration, or of the last request, costs nothing.
        let was_full = context.memory.level() == MemoryLevel::Full;
        let is_full = was_full && context.memory.level_now() == MemoryLevel::Full;
        is_full.then(|| self.close_for(CloseReason::Memory))
    }
}
