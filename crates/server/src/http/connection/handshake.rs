//! The part of the connection machine that knows of a TLS handshake: that it is under way, how it
//! ends, and what becomes of a client that does not begin one.

use weir_http1::Status;

use super::{Action, Connection, State};
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;

impl Connection {
    /// Returns whether its TLS handshake is not over yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.is_handshaking
    }

    /// Records the end of the TLS handshake, however it ended.
    pub(crate) fn handshake_done(&mut self) {
        self.is_handshaking = false;
    }

    /// Ends a connection whose client has broken the rules of TLS: it has been told, and what it
    /// has sent is read, so that it learns that before the end.
    pub(crate) fn end_handshake(&mut self, context: &mut WorkerContext) -> Action {
        self.set_close_reason(CloseReason::Tls);
        if let Some(output) = self.output.take() {
            context.give_output(output);
        }
        if matches!(self.state, State::Follow(_))
            && let State::Follow(wait) = std::mem::replace(&mut self.state, State::Idle)
        {
            wait.leave(context);
        }
        Action::Shutdown
    }

    /// Refuses a client that speaks without TLS where it is expected.
    pub(crate) fn refuse_plain(&mut self, context: &mut WorkerContext) -> Action {
        self.is_tls = false;
        self.has_received = true;
        self.set_close_reason(CloseReason::Tls);
        self.refuse_and_close(Status::BAD_REQUEST, context)
    }
}
