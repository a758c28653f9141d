//! Accept and I/O strategies: the options in which the papers' servers differ, and the named
//! servers.

use weir_accept::{Limit, PolicyName};

/// Options in which the servers of brecht-select §4.1 differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Policy that decides how many connections are accepted, and what becomes of the others.
    pub accept_policy: PolicyName,
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
    /// How the head and the body of a reply are put together.
    pub output: OutputPath,
}

/// Calls by which the head and the body of a reply reach the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputPath {
    /// A body in memory behind its head in one writev; of a file, the head with MSG_MORE, then
    /// sendfile.
    Gather,
    /// TCP_CORK set, the head written, the body sent with sendfile, TCP_CORK cleared; no file is
    /// kept in memory.
    Cork,
}

/// A row of the table of output paths.
#[derive(Clone, Copy, Debug)]
pub struct OutputRow {
    /// The output path.
    pub path: OutputPath,
    /// Spelling in options.
    pub spelling: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Source in which it was first measured.
    pub source: &'static str,
}

/// All output paths; the first is the default, and that of all presets.
pub const OUTPUTS: &[OutputRow] = &[
    OutputRow {
        path: OutputPath::Gather,
        spelling: "gather",
        summary: "from memory one call for head and body (send, writev); of a file the head with \
                  MSG_MORE, then sendfile",
        source: "pariag-accept table 4.9 (writev)",
    },
    OutputRow {
        path: OutputPath::Cork,
        spelling: "cork",
        summary: "TCP_CORK set, the head sent, the body sent with sendfile, TCP_CORK cleared; no \
                  file is kept in memory",
        source: "gammo-epoll §4.2, pariag-accept table 4.3",
    },
];

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
        accept_policy: PolicyName::Limit,
        accept_limit,
        eager_read: eager,
        eager_write: eager,
        accept_on_close: on_close,
        full_read: full,
        caching: false,
        output: OutputPath::Gather,
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
        "the best as measured: overload control, eager, caching",
        "docs/serve.md",
        Strategy {
            accept_policy: PolicyName::Adaptive,
            caching: true,
            ..paper(Limit::Auto, true, false, false)
        },
    ),
    preset(
        "accept1",
        "one connection per accept-phase",
        "brecht-select fig. 3",
        paper(Limit::Count(1), false, false, false),
    ),
    preset(
        "accept10",
        "ten connections per accept-phase",
        "pariag-accept fig. 4.1",
        paper(Limit::Count(10), false, false, false),
    ),
    preset(
        "accept25",
        "25 connections per accept-phase",
        "brecht-select fig. 9",
        paper(Limit::Count(25), false, false, false),
    ),
    preset(
        "acceptinf",
        "all pending connections",
        "brecht-select fig. 3",
        paper(Limit::Inf, false, false, false),
    ),
    preset(
        "eager",
        "all pending connections, each read and answered at once",
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
        "25 connections per accept-phase, caching",
        "brecht-select fig. 13",
        Strategy { caching: true, ..paper(Limit::Count(25), false, false, false) },
    ),
];
