//! Address of a server under test.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Address a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}
