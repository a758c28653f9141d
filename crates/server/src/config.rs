//! Everything an operator can say about a server, and the papers' named servers. Parses nothing.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use weir_accept::{Limit, Name, Setting, SynFilter};
use weir_content as content;
use weir_dispatch::readiness;

use crate::arch;
use crate::pace::PaceLimits;

/// The options that make one server of brecht-select §4.1 different from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// What decides how many connections are accepted, and what becomes of the others.
    pub accept_policy: Name,
    /// Connections accepted an accept-phase, at most, for the policy that goes by it.
    pub accept_limit: Limit,
    /// Read as soon as a connection is accepted.
    pub eager_read: bool,
    /// Write as soon as a reply is there, from within the read path.
    pub eager_write: bool,
    /// Enter the accept code after closing a connection.
    pub accept_on_close: bool,
    /// Repeat read until it fails.
    pub full_read: bool,
    /// Keep content in memory and files open.
    pub caching: bool,
}

/// A row of the table of named servers.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// As the option spells it.
    pub name: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Where it was measured first.
    pub source: &'static str,
    /// What it stands for.
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

/// Every named server; the first is what runs when nothing is said.
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

/// Where to listen.
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

/// How long a connection may take, nanoseconds. Each is absolute: no single byte moves it.
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
    /// For the client to go after the last reply of a connection with bytes still coming.
    pub linger_ns: u64,
    /// For the connections that are open when the server is asked to stop.
    pub drain_ns: u64,
    /// Time that a client may be behind the minimum rate.
    pub rate_grace_ns: u64,
    /// Time that a client may take nothing of a reply; 0 is no limit.
    pub stall_ns: u64,
}

/// How an access log's lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The Combined Log Format of Apache and nginx.
    Combined,
    /// One JSON object a line.
    Json,
}

/// Where an access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// A file, appended to; opened again at a hang-up signal.
    File(PathBuf),
}

/// A body to send instead of the built-in one.
#[derive(Clone, Debug)]
pub struct ErrorPage {
    /// For which status.
    pub code: u16,
    /// Its Content-Type.
    pub content_type: String,
    /// Its bytes.
    pub body: Vec<u8>,
}

/// A server, fully described.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory served.
    pub root: PathBuf,
    /// Where to listen; ignored when sockets were inherited.
    pub listen: Vec<Address>,
    /// How many listening sockets a service manager passed (LISTEN_FDS).
    pub inherited: usize,
    /// Whether the loops share one socket for each TCP address; else each has its own.
    pub share_listener: bool,
    /// Which architecture.
    pub arch: arch::Name,
    /// What was set about it.
    pub arch_settings: readiness::settings::Settings,
    /// Which event mechanism, where the architecture takes one.
    pub mechanism: readiness::Name,
    /// What was set about it.
    pub mechanism_settings: readiness::settings::Settings,
    /// Which accept strategy.
    pub strategy: Strategy,
    /// The accept policy, with the strategy's name and limit. Its SYN filter, and whether it is
    /// eager, are found at the start.
    pub setting: Setting,
    /// Which SYN filter to use; `None` is the best that can be had.
    pub syn_filter: Option<SynFilter>,
    /// Connections open at once, all loops together (max-conns).
    pub conns_max: usize,
    /// The listen backlog (listenq).
    pub listenq: i32,
    /// What is served and how it is cached; the budgets are shared out among the loops.
    pub content: content::Options,
    /// Field lines added to every reply, each ended by CRLF.
    pub fields: Vec<u8>,
    /// Bodies for error statuses.
    pub error_pages: Vec<ErrorPage>,
    /// How many loops.
    pub workers: usize,
    /// The processor of each loop, repeated when there are fewer; empty pins nothing.
    pub cpus: Vec<usize>,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// The slowest a client may read a reply, bytes a second; 0 is no limit.
    pub rate_min: u64,
    /// How much of a request's body is read and thrown away before the connection is given up.
    pub body_bytes_max: u64,
    /// Where and how requests are logged.
    pub access_log: Option<(LogTarget, LogFormat)>,
    /// Count and time every system call.
    pub profile_calls: bool,
    /// Answer `/.weir/burn`, which costs processor time of the client's choice: for measurements.
    pub bench_endpoints: bool,
    /// Says a sentence to the operator.
    pub tell: fn(&str),
}

impl Config {
    /// Limits of the pace at which a client takes a reply.
    pub(crate) fn pace_limits(&self) -> PaceLimits {
        PaceLimits {
            rate_min: self.rate_min,
            grace_ns: self.timeouts.rate_grace_ns,
            stall_ns: self.timeouts.stall_ns,
        }
    }
}

/// The operator's error: a sentence that says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
