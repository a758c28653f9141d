//! The way of a request to its upstream: which that is, and the client's kind.

use std::net::SocketAddr;

/// Where a request goes, and by what kind of client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub upstream: usize,
    /// True if the client speaks TLS.
    pub is_tls: bool,
    /// Address of the client.
    pub peer: SocketAddr,
}
