//! Everything that can be configured about a server, and the papers' named servers. Parses nothing.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use weir_accept::{Limit, Name, PolicyConfig, SynFilter};
use weir_content as content;
use weir_dispatch::readiness;

use crate::arch;
use crate::pace::PaceLimits;

/// Options in which the servers of brecht-select §4.1 differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Policy that decides how many connections are accepted, and what becomes of the others.
    pub accept_policy: Name,
    /// Maximum number of connections accepted per accept-phase, for policies with such a limit.
    pub accept_limit: Limit,
    /// True to read as soon as a connection is accepted.
    pub eager_read: bool,
    /// True to write as soon as a reply is ready, from within the read path.
    pub eager_write: bool,
    /// True to enter the accept code after closing a connection.
    pub accept_on_close: bool,
    /// True to repeat read until it fails.
    pub full_read: bool,
    /// True to keep content in memory and files open.
    pub caching: bool,
}

/// A row of the table of named servers.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Spelling in options.
    pub name: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Source in which it was first measured.
    pub source: &'static str,
    /// Strategy that it stands for.
    pub strategy: Strategy,
}

const fn paper(accept_limit: Limit, eager: bool, full: bool, on_close: bool) -> Strategy {
    Strategy {
        accept_policy: Name::Limit,
        accept_limit,
        eager_read: eager,
        eager_write: eager,
        accept_on_close: on_close,
        full_read: full,
        caching: false,
    }
}

const fn preset(
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    strategy: Strategy,
) -> Preset {
    Preset { name, summary, source, strategy }
}

/// All named servers; the first is the default.
pub const PRESETS: &[Preset] = &[
    preset(
        "default",
        "what measures best: the overload control, eager, caching",
        "docs/serve.md",
        Strategy {
            accept_policy: Name::Adaptive,
            caching: true,
            ..paper(Limit::Auto, true, false, false)
        },
    ),
    preset(
        "accept1",
        "one connection an accept-phase",
        "brecht-select fig. 3",
        paper(Limit::Count(1), false, false, false),
    ),
    preset(
        "accept10",
        "ten connections an accept-phase",
        "pariag-accept fig. 4.1",
        paper(Limit::Count(10), false, false, false),
    ),
    preset(
        "accept25",
        "25 connections an accept-phase",
        "brecht-select fig. 9",
        paper(Limit::Count(25), false, false, false),
    ),
    preset(
        "acceptinf",
        "all that wait",
        "brecht-select fig. 3",
        paper(Limit::Inf, false, false, false),
    ),
    preset(
        "eager",
        "all that wait, read and answered at once",
        "brecht-select fig. 6",
        paper(Limit::Inf, true, false, false),
    ),
    preset(
        "eager+full",
        "eager, and reads until a read fails",
        "brecht-select fig. 6",
        paper(Limit::Inf, true, true, false),
    ),
    preset(
        "eager+close",
        "eager, and accepts after each close",
        "brecht-select fig. 6",
        paper(Limit::Inf, true, false, true),
    ),
    preset(
        "cm",
        "the multi-accept server of Chandra and Mosberger: eager, full-read, accept-on-close",
        "chandra-dispatch, brecht-select fig. 3",
        paper(Limit::Inf, true, true, true),
    ),
    preset(
        "accept25+$",
        "25 connections an accept-phase, caching",
        "brecht-select fig. 13",
        Strategy { caching: true, ..paper(Limit::Count(25), false, false, false) },
    ),
];

/// Address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4 or IPv6; port 0 is replaced by a free one.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Time limits of a connection, nanoseconds. Each is absolute: no single byte extends it.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the first byte of a request, or the accept, to the end of its head.
    pub header_ns: u64,
    /// From the end of the head to the end of the body.
    pub body_ns: u64,
    /// Between two requests.
    pub idle_ns: u64,
    /// From the first byte of a request to the last of its reply; 0 is no limit.
    pub request_ns: u64,
    /// From the last reply of a connection with bytes still coming until the client closes.
    pub linger_ns: u64,
    /// For connections that are open when the server is asked to stop.
    pub drain_ns: u64,
    /// Time that a client may be below the minimum rate.
    pub rate_grace_ns: u64,
    /// Time that a client may take nothing of a reply; 0 is no limit.
    pub stall_ns: u64,
}

/// Format of an access log's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The Combined Log Format of Apache and nginx.
    Combined,
    /// A JSON object per line.
    Json,
}

/// Destination of an access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, appended to; reopened at a hang-up signal.
    File(PathBuf),
}

/// Body to send instead of the built-in one.
#[derive(Clone, Debug)]
pub struct ErrorPage {
    /// Status it is for.
    pub code: u16,
    /// Its Content-Type.
    pub content_type: String,
    /// The body itself.
    pub body: Vec<u8>,
}

/// Complete description of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory served.
    pub root: PathBuf,
    /// Addresses to listen on; ignored when sockets were inherited.
    pub listen: Vec<Address>,
    /// Number of listening sockets passed by a service manager (LISTEN_FDS).
    pub inherited: usize,
    /// True if the loops share one socket per TCP address; otherwise each has its own.
    pub share_listener: bool,
    /// Architecture.
    pub arch: arch::Name,
    /// Settings of the architecture.
    pub arch_settings: readiness::settings::Settings,
    /// Event mechanism, where the architecture takes one.
    pub mechanism: readiness::Name,
    /// Settings of the mechanism.
    pub mechanism_settings: readiness::settings::Settings,
    /// Accept strategy.
    pub strategy: Strategy,
    /// Accept policy, with the strategy's name and limit. Its SYN filter and its eagerness are
    /// determined at the start.
    pub setting: PolicyConfig,
    /// SYN filter to use; `None` selects the best available.
    pub syn_filter: Option<SynFilter>,
    /// Maximum number of open connections, all loops together (max-conns).
    pub conns_max: usize,
    /// Listen backlog (listenq).
    pub listenq: i32,
    /// Content to serve and its caching; the budgets are divided among the loops.
    pub content: content::Options,
    /// Field lines added to every reply, each ended by CRLF.
    pub fields: Vec<u8>,
    /// Bodies for error statuses.
    pub error_pages: Vec<ErrorPage>,
    /// Number of loops.
    pub workers: usize,
    /// Processor of each loop, repeated if there are fewer; no loop is pinned if empty.
    pub cpus: Vec<usize>,
    /// Time limits of connections.
    pub timeouts: Timeouts,
    /// Minimum rate at which a client must read a reply, bytes per second; 0 is no limit.
    pub rate_min: u64,
    /// Maximum size of a request's body that is read and discarded, bytes; with a larger one the
    /// connection is given up.
    pub body_bytes_max: u64,
    /// Destination and format of the access log; `None` without one.
    pub access_log: Option<(LogTarget, LogFormat)>,
    /// True to count and time every system call.
    pub profile_calls: bool,
    /// True to answer `/.weir/burn`, which costs processor time of the client's choice: for
    /// measurements.
    pub bench_endpoints: bool,
    /// Callback that shows a message to the operator.
    pub tell: fn(&str),
}

impl Config {
    /// Returns the limits on the pace at which a client takes a reply.
    pub(crate) fn pace_limits(&self) -> PaceLimits {
        PaceLimits {
            rate_min: self.rate_min,
            grace_ns: self.timeouts.rate_grace_ns,
            stall_ns: self.timeouts.stall_ns,
        }
    }
}

/// An operator's error: a message that says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
