//! A connection with its socket, as accepting and overload control see it under every architecture.

use std::net::SocketAddr;
use std::ops::DerefMut;
use std::os::fd::OwnedFd;

use weir_sys::listener::Arrival;

use super::connection::Connection;
use crate::context::WorkerContext;
use crate::context::close_reason::CloseReason;

/// A connection with its socket and the state that an architecture keeps for it.
pub(crate) trait ConnectionIo: DerefMut<Target = Connection> + Sized {
    /// Creates a connection that was just accepted. `is_tls`: the client is expected to speak TLS.
    fn new(fd: OwnedFd, peer: SocketAddr, is_tls: bool, context: &WorkerContext) -> Self;

    /// Returns the kernel's data on its request; `None` where the kernel cannot be asked.
    fn arrival(&self) -> Option<Arrival>;

    /// Returns whether it has answered a TLS handshake that is not over.
    fn has_answered_handshake(&self) -> bool {
        false
    }

    /// Makes the following close a reset.
    fn reset_on_close(&self);

    /// Reads once into `scratch` what the client has sent, whatever it is, so that the following
    /// close is no reset. Does nothing where the kernel has a read of its own under way.
    fn discard_unread(&self, scratch: &mut [u8]);

    /// Releases everything it holds, and closes it. `reason`: why, if no other was recorded before.
    fn close(self, reason: CloseReason, context: &mut WorkerContext);
}
