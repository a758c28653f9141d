//! Other servers that requests are forwarded to.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use weir_accept::upstream::UpstreamConfig;
use weir_http1::proxy_protocol::Version;
use weir_tls::client::Connector;

/// Address of a server that requests are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamAddress {
    /// IPv4 or IPv6.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A server that requests are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamServer {
    /// Its address.
    pub address: UpstreamAddress,
    /// Its name and port, for a request without a Host.
    pub authority: String,
    /// TLS, if it is spoken with it.
    pub tls: Option<Arc<Connector>>,
}

impl fmt::Display for UpstreamServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, &self.tls) {
            (UpstreamAddress::Tcp(address), Some(_)) => write!(f, "https://{address}"),
            (address, _) => address.fmt(f),
        }
    }
}

/// Connections to a server that are kept when they are idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepIdle {
    /// At most 256 in each loop, and none while the server takes so long for a reply that a connect
    /// is nothing beside it: one that is kept may wait for a process that is busy.
    Auto,
    /// At most so many in each loop.
    Count(usize),
}

impl KeepIdle {
    /// Returns the maximum number of idle connections to each server in each loop.
    pub fn count_max(self) -> usize {
        match self {
            Self::Auto => 256,
            Self::Count(count) => count,
        }
    }
}

impl FromStr for KeepIdle {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "auto" => Ok(Self::Auto),
            number => number.parse().map(Self::Count).map_err(|_| "not a number, nor auto"),
        }
    }
}

/// One or more servers that answer the same requests.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Name, for routes.
    pub name: String,
    /// The servers; at least one.
    pub servers: Vec<UpstreamServer>,
    /// Admission to them.
    pub admission: UpstreamConfig,
    /// True if requests name the server as their Host, and not the host that the client named.
    pub names_server: bool,
    /// Connections that are kept for another request.
    pub keep_idle: KeepIdle,
    /// Time for which an idle connection is kept, nanoseconds.
    pub idle_ns: u64,
    /// Version of the PROXY protocol by which its servers are told of clients' connections, so that
    /// each request has a connection of its own; `None` without.
    pub proxy_protocol: Option<Version>,
    /// Memory in which each reply waits for a slow client at most, bytes.
    pub reply_buffer_max: usize,
    /// Length of a request's content up to which it is taken whole before a place is asked for,
    /// bytes.
    pub request_buffer_max: usize,
    /// Time limits of its requests.
    pub timeouts: UpstreamTimeouts,
    /// Requests by which its servers are checked; `None` without.
    pub health: Option<HealthCheck>,
    /// Time over which a server that has recovered is given its whole share, nanoseconds; 0: it is
    /// given all at once.
    pub slow_start_ns: u64,
}

impl Upstream {
    /// Returns whether TLS is spoken with any of its servers.
    pub fn has_tls(&self) -> bool {
        self.servers.iter().any(|server| server.tls.is_some())
    }

    /// Returns whether connections are kept for other requests; `None` if the pace of its servers
    /// decides.
    pub(crate) fn keeps(&self) -> Option<bool> {
        match self.keep_idle {
            // One that was opened for a client tells the server of no other.
            _ if self.proxy_protocol.is_some() => Some(false),
            KeepIdle::Count(count) => Some(count > 0),
            // A handshake costs more time of both processors than of anybody's clock.
            KeepIdle::Auto if self.has_tls() => Some(true),
            KeepIdle::Auto => None,
        }
    }
}

/// Time limits of a request at an upstream, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamTimeouts {
    /// For a connect.
    pub connect_ns: u64,
    /// From the last byte of the request to the first byte of the reply.
    pub first_byte_ns: u64,
    /// Between two bytes of either.
    pub idle_ns: u64,
    /// From the request's place to the last byte of the reply, but for another protocol; 0 is no
    /// limit.
    pub whole_ns: u64,
}

/// Requests by which the servers of an upstream are checked: GETs for a path, which a server that
/// is well answers with a status from 200 to 399.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// Path asked for, with a query or without.
    pub path: String,
    /// Time between two checks of a server, nanoseconds.
    pub interval_ns: u64,
    /// Time limit of a check, nanoseconds.
    pub timeout_ns: u64,
    /// Checks in a row that a server must pass to be up again.
    pub rise: u32,
    /// Checks in a row that a server must fail to be down.
    pub fall: u32,
}
