//! The options of `weir serve` and `weir proxy`, each defined once: name, help, parser, default.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args, ValueEnum};
use weir_server::accept::{self, Controls, Limit, Refusal, SynFilter};
use weir_server::sites::UnknownHost;
use weir_server::sites::hosts::HostPattern;
use weir_server::{
    Address, LogFormat, MemoryLimit, OUTPUTS, PRESETS, SandboxMode, Status, SynFilterPlace,
    UserName, architecture, readiness, slots,
};

use crate::caching::CacheOptions;
use crate::clients::ClientOptions;
use crate::compression::CompressOptions;
use crate::error_log::ErrorLogArgs;
use crate::forwarding::options::{ForwardOptions, RouteOptions};
use crate::tls::TlsOptions;
use crate::values::{self, OnOff};

/// Serve a directory over HTTP/1.1.
#[derive(Debug, Args)]
#[command(next_line_help = false)]
pub(crate) struct ServeOptions {
    /// The directory to serve
    #[arg(value_name = "DIR", default_value = ".")]
    pub root: PathBuf,

    #[command(flatten)]
    pub server: ServerOptions,

    #[command(flatten)]
    pub routes: RouteOptions,

    #[command(flatten)]
    pub forward: ForwardOptions,

    #[command(flatten)]
    pub caching: CacheOptions,
}

/// Stand in front of other servers.
#[derive(Debug, Args)]
#[command(next_line_help = false)]
pub(crate) struct ProxyOptions {
    /// The servers, which answer the same requests: http://HOST:PORT, https://HOST:PORT or
    /// unix:PATH
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,

    #[command(flatten)]
    pub forward: ForwardOptions,

    #[command(flatten)]
    pub caching: CacheOptions,

    #[command(flatten)]
    pub server: ServerOptions,
}

/// Check a configuration file without serving.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The file
    #[arg(value_name = "FILE", default_value = "/etc/weir/weir.toml")]
    pub file: PathBuf,

    /// Check it as a file of `weir proxy`, whose upstreams are on its command line
    #[arg(long)]
    pub proxy: bool,
}

/// The options that a server has whatever it serves.
#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// Read options from a TOML file; its keys are the names of these options, which win over it.
    /// Between the two stands the environment: WEIR_MAX_CONNS is --max-conns
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Print the options in force as a configuration file, with where each comes from, and exit
    #[arg(long)]
    pub print_config: bool,

    /// Address to listen on: HOST:PORT, [IPv6]:PORT or unix:PATH; https://HOST:PORT with TLS; may
    /// be repeated. Sockets passed by a service manager (LISTEN_FDS) are used instead
    #[arg(long, value_name = "ADDR", value_parser = values::address,
          default_value = "127.0.0.1:8080")]
    pub listen: Vec<Address>,

    /// The architecture: how waiting, accepting and serving are combined (docs/architectures.md)
    #[arg(long, value_name = "NAME", default_value = architecture::TABLE[0].spelling,
          value_parser = architectures())]
    pub arch: String,

    /// An option of the architecture, as name=number; may be repeated (listed in
    /// docs/architectures.md)
    #[arg(long, value_name = "NAME=N")]
    pub arch_option: Vec<String>,

    /// The event mechanism, which reports the connections that are ready
    #[arg(long, value_name = "NAME", default_value = "epoll-et", value_parser = mechanisms())]
    pub mechanism: String,

    /// An option of the mechanism, as name=number; may be repeated (listed in docs/mechanisms.md)
    #[arg(long, value_name = "NAME=N")]
    pub mechanism_option: Vec<String>,

    /// How the lowest free slot for a connection is found
    #[arg(long, value_name = "NAME", default_value = slots::TABLE[0].spelling,
          value_parser = slot_searches())]
    pub slots: String,

    /// A named strategy, as of the papers' servers: it sets the following options, up to --caching
    #[arg(long, value_name = "NAME", default_value = PRESETS[0].name, value_parser = presets())]
    pub preset: String,

    /// Maximum number of connections accepted in one accept-phase; `inf` (or 0): until none is
    /// pending; `auto`: one while they come one by one, more while they queue
    #[arg(long, alias = "accept-count", value_name = "N|inf|auto")]
    pub accept_limit: Option<Limit>,

    /// The policy that decides how many connections are accepted, and how the others are refused;
    /// `limit` if --accept-limit is given, else the preset's
    #[arg(long, value_name = "NAME", value_parser = policies())]
    pub accept_policy: Option<String>,

    /// Overload: time for which a connection may wait to be served
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = values::limit)]
    pub delay_target: Duration,

    /// Overload: how connections that cannot be served in time are refused: by the kernel, without
    /// an accept, or accepted and reset, closed, or answered with 503 [kernel, rst, fin, 503]
    #[arg(long, value_name = "HOW", default_value = "kernel",
          value_parser = |text: &str| text.parse::<Refusal>())]
    pub refuse: Refusal,

    /// Overload: the filter that drops SYNs before the kernel keeps any state for them: one that
    /// admits them by tokens, one that drops a random share of them, or none; auto: the best
    /// available
    #[arg(long, value_name = "FILTER", default_value = "auto")]
    pub syn_filter: SynFilterChoice,

    /// Overload: where the filter that admits SYNs by tokens drops them: at the listening socket
    /// alone, or also at the link, before IP, where a drop costs less; auto: at the link too, where
    /// that is possible
    #[arg(long, value_name = "PLACE", default_value = "auto")]
    pub syn_filter_at: SynFilterPlaceChoice,

    /// Overload: controls to turn off, of budget, backlog, syn-filter, stale, departed, newest,
    /// close; or all
    #[arg(long, value_name = "LIST", default_value = "", hide_default_value = true,
          value_parser = |list: &str| Controls::ALL.without_list(list))]
    pub controls_off: Controls,

    #[command(flatten)]
    pub switches: Switches,

    #[command(flatten)]
    pub tls: TlsOptions,

    /// Maximum number of open connections, divided evenly among the loops; lower if the limit of
    /// open files requires it
    #[arg(long, value_name = "N", default_value = "15000",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub max_conns: u64,

    #[command(flatten)]
    pub clients: ClientOptions,

    /// The listen backlog; the kernel caps it at net.core.somaxconn
    #[arg(long, value_name = "N", default_value = "4096",
          value_parser = clap::value_parser!(i32).range(1..))]
    pub listenq: i32,

    /// Memory that the whole server may take, all caches, buffers and connections together: when it
    /// is nearly used up caches give back, then idle connections are closed, then new ones refused
    /// (docs/serve.md). auto: three quarters of the least that a control group or the machine has;
    /// none: no budget
    #[arg(long, value_name = "BYTES|auto|none", default_value = "auto",
          value_parser = values::memory_limit)]
    pub memory: MemoryLimit,

    /// Memory for cached content, all loops together
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = values::size)]
    pub cache_size: u64,

    /// Time for which cached content is served before its file is checked again
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub cache_valid: Duration,

    /// Files kept open, all loops together
    #[arg(long, value_name = "N", default_value = "2048")]
    pub open_files: u64,

    /// Files larger than this are not kept in memory but sent with sendfile
    #[arg(long, value_name = "BYTES", default_value = "48k", value_parser = values::size)]
    pub sendfile_above: u64,

    /// Way in which head and body of a reply are put together (listed in docs/serve.md)
    #[arg(long, value_name = "NAME", default_value = OUTPUTS[0].spelling, value_parser = outputs())]
    pub output: String,

    /// Names tried for a directory, in order
    #[arg(long, value_name = "NAME", default_value = "index.html", value_delimiter = ',',
          value_parser = values::index_name)]
    pub index: Vec<String>,

    /// List directories that have no index file
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true)]
    pub listing: OnOff,

    /// Policy for symbolic links, which are never followed out of the root, nor if they are
    /// absolute
    #[arg(long, value_name = "POLICY", default_value = "deny")]
    pub symlinks: Symlinks,

    /// Serve files and directories whose name begins with a dot (.well-known always is)
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true)]
    pub dotfiles: OnOff,

    /// Precompressed variants to look for beside a file, or `none`. Default: all of them, but none
    /// under a preset of the papers
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub precompressed: Vec<Precompressed>,

    #[command(flatten)]
    pub compression: CompressOptions,

    /// The charset named for text
    #[arg(long, value_name = "NAME", default_value = "utf-8")]
    pub charset: String,

    /// A content type for a file name extension; may be repeated
    #[arg(long, value_name = "EXT=TYPE", value_parser = values::pair)]
    pub mime: Vec<(String, String)>,

    /// A header for every reply; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = values::field)]
    pub header: Vec<(String, String)>,

    /// A page for an error status, read at the start and at a reload; may be repeated
    #[arg(long, value_name = "CODE=FILE", value_parser = values::pair)]
    pub error_page: Vec<(String, String)>,

    /// Loops, each with a thread and a listening socket of its own (see --share-listener); default:
    /// one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Have the loops share one listening socket for each TCP address, instead of one each; see
    /// epoll-exclusive in docs/mechanisms.md
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true)]
    pub share_listener: OnOff,

    /// Pin the loops to these processors, such as 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpus: Option<CpuList>,

    /// Time limit for the head of a request, from its first byte (or the accept) to its last
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::limit)]
    pub header_timeout: Duration,

    /// Time limit for the body of a request that comes after its reply, from the end of the reply
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::limit)]
    pub body_timeout: Duration,

    /// Time limit between two requests on a connection
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::limit)]
    pub idle_timeout: Duration,

    /// Time limit from the first byte of a request to the last of its reply; 0: no limit
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::duration)]
    pub request_timeout: Duration,

    /// Time limit for a client that is still sending to close after the last reply
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::duration)]
    pub linger_timeout: Duration,

    /// Time limit for open connections to finish once the server is told to stop
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = values::duration)]
    pub drain_timeout: Duration,

    /// Minimum rate at which a client must read a reply, bytes per second; 0: no limit
    #[arg(long, value_name = "BYTES", default_value = "500", value_parser = values::size)]
    pub min_rate: u64,

    /// How long a client may be below --min-rate before its reply is cut
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = values::duration)]
    pub min_rate_grace: Duration,

    /// Time for which a client may read nothing of a reply before it is cut; 0: no limit
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::duration)]
    pub stall_timeout: Duration,

    /// Time after which the kernel ends a connection whose client acknowledges nothing of what was
    /// sent, in any state (TCP_USER_TIMEOUT); 0: the kernel's own, about 15 minutes
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::duration)]
    pub user_timeout: Duration,

    /// Requests that may be made on a connection, which the last reply closes [default: any number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub keepalive_requests: Option<u32>,

    /// Requests with a body larger than this are refused, forwarded ones too where it is given
    /// [default: 1M, and any size for those that are forwarded]
    #[arg(long, value_name = "BYTES", value_parser = values::size)]
    pub max_body: Option<u64>,

    /// The answer to a request for a host that no site has: that of the default site, or a status
    #[arg(long, value_name = "ANSWER", default_value = "default")]
    pub unknown_host: UnknownHostChoice,

    /// A host that connections over loopback may name, besides localhost and loopback addresses;
    /// once one is given, others are answered with 421, so that no web page can reach a server on
    /// its reader's machine (DNS rebinding); may be repeated
    #[arg(long, value_name = "HOST", value_parser = HostPattern::parse)]
    pub allowed_host: Vec<HostPattern>,

    /// Log requests to a file, or to standard output with `-`; a SIGHUP opens the file again. To
    /// the system's logger with `syslog:` (RFC 5424, /dev/log) or to journald with `journald:`;
    /// another socket may follow the colon
    #[arg(long, value_name = "FILE|-")]
    pub access_log: Option<PathBuf>,

    /// The access log's format: combined, json, or text with fields in braces, such as
    /// `{remote} "{request}" {status}` (listed in docs/serve.md)
    #[arg(long, value_name = "FORMAT", default_value = "combined",
          value_parser = values::log_format)]
    pub log_format: LogFormat,

    #[command(flatten)]
    pub error_log: ErrorLogArgs,

    /// Give each request an identifier: what a --trusted-proxy says in X-Request-Id, or a random
    /// one. It is in the log, and upstreams are told it in X-Request-Id
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true)]
    pub request_id: OnOff,

    /// Write the statistics to a file at the end, and at a SIGUSR1
    #[arg(long, value_name = "FILE")]
    pub stats_json: Option<PathBuf>,

    /// Publish the statistics for `weir stat`, in a file of the run directory
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "on",
          hide_possible_values = true)]
    pub stat_page: OnOff,

    /// Address for the operator, such as 127.0.0.1:9101 or unix:/run/weir.sock: a live page at /,
    /// /metrics for Prometheus, /healthz, /readyz and /status.json. Nobody is asked who they are
    /// there
    #[arg(long, value_name = "ADDRESS", value_parser = values::address)]
    pub admin: Option<Address>,

    /// Confine what serves to the files and system calls that it needs (docs/sandbox.md): as far as
    /// the kernel can; on: wholly, or not start; off: not at all
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub sandbox: SandboxChoice,

    /// The user to become, for a server that is started as root, once it has bound its addresses
    /// and read its files; a small process beside it attaches SYN filters, opens the logs and reads
    /// those files again (docs/sandbox.md)
    #[arg(long, value_name = "NAME[:GROUP]", value_parser = values::user)]
    pub user: Option<UserName>,

    /// Ask the kernel how long each connection was in the accept queue
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true)]
    pub accept_queue_times: OnOff,

    /// Measure the user and system time of each phase of a loop
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true)]
    pub phase_times: OnOff,

    /// Count and time every system call
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true)]
    pub profile_calls: OnOff,

    /// For measurements: answer /.weir/burn?us=N, and /.weir/burn/N/PATH for any PATH, after
    /// burning N microseconds of processor time, and /.weir/work/MEAN/LAW/BURN/PATH after a service
    /// time. Any client can use them
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true)]
    pub bench_endpoints: OnOff,
}

/// A list of processors: a distinct type, so that clap sees a single value.
#[derive(Clone, Debug)]
pub(crate) struct CpuList(pub Vec<usize>);

/// The switches of brecht-select §4.1, which a preset sets and an option turns on or off.
#[derive(Debug, Args)]
pub(crate) struct Switches {
    /// Read as soon as a connection is accepted
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, hide_possible_values = true)]
    pub eager_read: Option<OnOff>,

    /// Write as soon as the reply is ready, from within the read path
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, hide_possible_values = true)]
    pub eager_write: Option<OnOff>,

    /// Enter the accept code after closing a connection
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, hide_possible_values = true)]
    pub accept_on_close: Option<OnOff>,

    /// Repeat read until it fails
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, hide_possible_values = true)]
    pub full_read: Option<OnOff>,

    /// Keep content in memory and files open
    #[arg(long, alias = "caching-on", value_name = "on|off", num_args = 0..=1,
          require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, hide_possible_values = true)]
    pub caching: Option<OnOff>,
}

/// Confinement of what serves, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SandboxChoice {
    Auto,
    On,
    Off,
}

impl From<SandboxChoice> for SandboxMode {
    fn from(choice: SandboxChoice) -> Self {
        match choice {
            SandboxChoice::Auto => Self::Auto,
            SandboxChoice::On => Self::On,
            SandboxChoice::Off => Self::Off,
        }
    }
}

/// Policy for symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Symlinks {
    /// They are not found
    Deny,
    /// Relative ones are followed as long as their way stays inside the root
    Inside,
}

/// A precompressed variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precompressed {
    Br,
    Zst,
    Gz,
    None,
}

/// A SYN filter, or the best available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SynFilterChoice {
    Auto,
    Tokens,
    Random,
    None,
}

impl SynFilterChoice {
    /// Returns the filter; `None` for the best available.
    pub(crate) fn kind(self) -> Option<SynFilter> {
        match self {
            Self::Auto => None,
            Self::Tokens => Some(SynFilter::Tokens),
            Self::Random => Some(SynFilter::Random),
            Self::None => Some(SynFilter::None),
        }
    }
}

/// A place of the SYN filter, or the best available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SynFilterPlaceChoice {
    Auto,
    Socket,
    Link,
}

impl SynFilterPlaceChoice {
    /// Returns the place.
    pub(crate) fn place(self) -> SynFilterPlace {
        match self {
            Self::Auto => SynFilterPlace::Auto,
            Self::Socket => SynFilterPlace::Socket,
            Self::Link => SynFilterPlace::Link,
        }
    }
}

/// An answer to requests for hosts that no site has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnknownHostChoice {
    /// That of the default site
    Default,
    /// 421 Misdirected Request
    #[value(name = "421")]
    Misdirected,
    /// 404 Not Found
    #[value(name = "404")]
    NotFound,
}

impl From<UnknownHostChoice> for UnknownHost {
    fn from(choice: UnknownHostChoice) -> Self {
        match choice {
            UnknownHostChoice::Default => Self::DefaultSite,
            UnknownHostChoice::Misdirected => Self::Status(Status::MISDIRECTED_REQUEST),
            UnknownHostChoice::NotFound => Self::Status(Status::NOT_FOUND),
        }
    }
}

fn architectures() -> PossibleValuesParser {
    PossibleValuesParser::new(architecture::TABLE.iter().map(|row| row.spelling))
}

/// Accepts the names in the table of mechanisms.
pub(crate) fn mechanisms() -> PossibleValuesParser {
    PossibleValuesParser::new(readiness::TABLE.iter().map(|row| row.spelling))
}

fn slot_searches() -> PossibleValuesParser {
    PossibleValuesParser::new(slots::TABLE.iter().map(|row| row.spelling))
}

fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(accept::TABLE.iter().map(|row| row.spelling))
}

fn outputs() -> PossibleValuesParser {
    PossibleValuesParser::new(OUTPUTS.iter().map(|row| row.spelling))
}

fn presets() -> PossibleValuesParser {
    PossibleValuesParser::new(PRESETS.iter().map(|preset| preset.name))
}

pub(crate) fn cpu_list(text: &str) -> Result<CpuList, String> {
    values::cpus(text).map(CpuList)
}
