//! The TLS of an exchange: its handshake, and the end of a stream that has TLS.

use std::io;

use super::super::action::{Action, Interest, connect_error_kind};
use super::super::recorder::{HandshakeDone, UNPLANNED};
use super::super::stream::{Handshake, HandshakeFailure};
use super::{Context, Exchange, State};
use crate::measure::ErrorKind;
use crate::tls;

impl Exchange {
    /// Returns whether a handshake reads: the server has nothing to say before the first message.
    pub(in super::super) fn reads_handshake(&self) -> bool {
        self.state == State::Handshaking
    }

    /// Returns whether a session waits for the connection.
    pub(in super::super) fn has_session(&self) -> bool {
        !self.session.steps.is_empty()
    }

    /// Handles the progress of a handshake that was continued at `tried_ns`.
    pub(in super::super) fn handshaken(
        &mut self,
        result: Result<Handshake, HandshakeFailure>,
        tried_ns: u64,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        let progress = match result {
            Ok(progress) => progress,
            Err(failure) => return self.handshake_failed(&failure, now_ns, context),
        };
        let has_session = self.has_session();
        // Ahead of the first session it is the run's, not one of its warm-up.
        let planned_ns = if has_session { self.clocks.planned_ns } else { UNPLANNED };
        if self.state == State::Connecting && progress.is_connected {
            self.state = State::Handshaking;
            self.connected_ns = tried_ns;
            let from_ns = if has_session { self.clocks.started_ns } else { self.opened_ns };
            self.clocks.connected_ns = tried_ns;
            context.recorder.connected(planned_ns, tried_ns.saturating_sub(from_ns));
        }
        self.progress_ns = now_ns;
        let Some(is_resumed) = progress.resumed else {
            let both = progress.is_blocked || self.state == State::Connecting;
            return Action::Watch(if both { Interest::ReadWrite } else { Interest::Read });
        };
        self.clocks.secured_ns = now_ns;
        let took_ns = now_ns.saturating_sub(self.connected_ns);
        context.recorder.secured(&HandshakeDone { planned_ns, took_ns, is_resumed });
        if has_session {
            self.state = State::Sending;
            return Action::Send;
        }
        self.state = State::Idle;
        if self.hung_up { Action::Close } else { Action::Wait }
    }

    fn handshake_failed(
        &mut self,
        failure: &HandshakeFailure,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        if !self.has_session() {
            // Nothing has failed yet: the first session tries again.
            self.state = State::Idle;
            return Action::Close;
        }
        let kind = match failure {
            HandshakeFailure::Socket(error) if self.state == State::Connecting => {
                connect_error_kind(error)
            }
            HandshakeFailure::Socket(error) => match error.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                    ErrorKind::HandshakeReset
                }
                io::ErrorKind::InvalidData => ErrorKind::TcpViolation,
                _ => ErrorKind::Other,
            },
            HandshakeFailure::Closed => ErrorKind::HandshakeReset,
            HandshakeFailure::Tls(error) => tls::error_kind(error),
        };
        self.fail(kind, now_ns, context)
    }

    /// Handles the server's word that it sends no more. It ends the stream, and announces the end
    /// of the connection.
    pub(in super::super) fn close_notified(
        &mut self,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        self.end_of_stream(now_ns, context)
    }

    /// Handles the end of a connection without that word. A reply that has no length ends with the
    /// connection, and may be only a part then.
    pub(in super::super) fn cut_off(&mut self, now_ns: u64, context: &mut Context<'_>) -> Action {
        self.hung_up = true;
        let is_due = !matches!(self.state, State::Idle | State::Thinking | State::AwaitingClose);
        if is_due && self.parser.started() && self.parser.eof().is_ok() {
            return self.fail(ErrorKind::TlsTruncated, now_ns, context);
        }
        self.end_of_stream(now_ns, context)
    }

    /// Handles what is not TLS, or an alert, on a connection that is established.
    pub(in super::super) fn tls_failed(
        &mut self,
        error: &rustls::Error,
        now_ns: u64,
        context: &mut Context<'_>,
    ) -> Action {
        self.broken(tls::error_kind(error), now_ns, context)
    }
}
