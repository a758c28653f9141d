//! The contents of a header.

use std::net::{IpAddr, SocketAddr};

/// Maximum size of a header that is accepted, bytes. The extensions of version 2 (section 2.2.1)
/// are skipped, but not without end.
pub const HEADER_BYTES_MAX: usize = 4096;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The client's address.
    pub source: SocketAddr,
    /// The address that the client connected to.
    pub destination: SocketAddr,
}

/// What the beginning of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Too little of a header.
    Partial,
    /// A header.
    Complete {
        /// Its length, bytes.
        bytes: usize,
        /// The connection that is carried; `None` if it is the sender's own, or its addresses are
        /// not known or not those of TCP.
        endpoints: Option<Endpoints>,
    },
    /// No header, or a malformed one: the connection must be closed.
    Malformed,
}

impl Endpoints {
    /// Returns the same addresses as two of IPv4 if both are, and otherwise as two of IPv6.
    pub(super) fn of_one_family(&self) -> Self {
        let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let (source, destination) = (canonical(self.source), canonical(self.destination));
        if source.is_ipv4() && destination.is_ipv4() {
            return Self { source, destination };
        }
        let mapped = |at: SocketAddr| match at.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), at.port()),
            IpAddr::V6(_) => at,
        };
        Self { source: mapped(source), destination: mapped(destination) }
    }
}
