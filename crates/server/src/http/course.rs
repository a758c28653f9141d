//! The way of a request to its upstream: which that is, the client's kind, and the address that the
//! client's request was sent to, as proxies in front tell it.

use std::net::SocketAddr;

use weir_cache::{Fields, Told};

use super::head_fields::Head;

/// Where a request goes, and by what kind of client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub upstream: usize,
    /// True if the client speaks TLS.
    pub is_tls: bool,
    /// Address of the client.
    pub peer: SocketAddr,
}

/// Returns what the upstream is told of the address that a request was sent to, besides what the
/// connection shows.
pub(super) fn told(head: &Head<'_>) -> Told {
    let mut told = Told::default();
    if head.is_trusted {
        head.lines().for_each(|(name, value)| told.add(name, value));
    }
    told
}
