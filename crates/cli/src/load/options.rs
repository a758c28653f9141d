//! The options of `weir load` and its tasks, each defined once: name, help, parser, default.
//! Conflicts between options are declared here where the parser can express them, and otherwise
//! checked in the plan.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use weir_load::condition::Condition;
use weir_load::config::PathLaw;
use weir_load::workload::NamedWorkload;
use weir_load::workload::sessions::{Wlog, Wsess, Wsesslog, Wset};
use weir_load::workload::small::WEIR_HEAD_BYTES;

use super::tls::TlsOptions;
use crate::options::CpuList;
use crate::values;

/// Longest time that packets may be left to wait.
const COALESCE_MAX: Duration = Duration::from_millis(10);

/// Maximum number of requests per connection, unless unlimited: a session's requests are kept in
/// memory.
const REQUESTS_MAX: u32 = 1_000_000;

/// Maximum number of objects of a day.
const OBJECTS_MAX: i64 = 10_000_000;

/// Minimum number of sessions in a trace: with fewer, shares cannot be told from chance.
const TRACE_SESSIONS_MIN: u64 = 1000;

/// Load an HTTP/1.1 server on a schedule that never waits for it.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct LoadOptions {
    #[command(subcommand)]
    pub task: Option<LoadTask>,

    #[command(flatten)]
    pub run: RunOptions,
}

/// Subcommands of `weir load`.
#[derive(Debug, Subcommand)]
pub(crate) enum LoadTask {
    /// Find the highest rate that the server holds, and the share kept past it
    Scan(Box<ScanOptions>),
    /// Write the files that a named workload requests
    Files(FilesOptions),
    /// Write a workload's sessions as a file for --wsesslog
    Trace(TraceOptions),
    /// Write the access log of a made-up day of a proxy, for --replay
    Day(DayOptions),
    /// Join two network namespaces by a link on which each client has a path of its own
    Link(LinkOptions),
}

/// Options of a single run.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Target URL: http://HOST:PORT/PATH, or https://…
    #[arg(value_name = "URL", required = true)]
    pub url: Option<String>,

    #[command(flatten)]
    pub arrivals: ArrivalOptions,
    #[command(flatten)]
    pub conns: ConnOptions,
    #[command(flatten)]
    pub workload: WorkloadOptions,
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Options of a scan, which is a series of runs.
#[derive(Debug, Args)]
pub(crate) struct ScanOptions {
    /// Target URL: http://HOST:PORT/PATH, or https://…
    #[arg(value_name = "URL")]
    pub url: String,

    #[command(flatten)]
    pub search: SearchOptions,
    #[command(flatten)]
    pub conns: ConnOptions,
    #[command(flatten)]
    pub workload: WorkloadOptions,
    #[command(flatten)]
    pub output: CommonOutputOptions,
}

/// Arrival times.
#[derive(Debug, Args)]
#[command(next_help_heading = "Arrivals")]
pub(crate) struct ArrivalOptions {
    /// Arrivals per second; 100 unless --arrivals has rates of its own
    #[arg(long, value_name = "R", conflicts_with = "replay")]
    pub rate: Option<f64>,

    /// constant, poisson or uniform at --rate; or uniform:SHORTEST,LONGEST, steps:R1xD1,R2xD2,
    /// ramp:R1-R2, sine:MEAN,AMPLITUDE,PERIOD, trace:FILE, and httperf's vT1,D1,… dT eT uT1,T2
    #[arg(long, value_name = "LAW", default_value = "constant")]
    pub arrivals: String,

    /// Closed loop: N connections, each of which waits for its replies
    #[arg(long, value_name = "N", conflicts_with_all = ["rate", "arrivals", "conns", "replay"],
          value_parser = clap::value_parser!(u32).range(1..))]
    pub closed: Option<u32>,

    /// Duration of the arrivals; 10s when nothing else ends the run
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    pub duration: Option<Duration>,

    /// Maximum number of arrivals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub num: Option<u64>,

    /// Time at the start that is not measured
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::duration)]
    pub warmup: Duration,

    /// Time at the end that is not measured: as long as clients wait, so that all that are measured
    /// have ended while the load lasts
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::duration)]
    pub cooldown: Duration,

    /// Seed of all random draws
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// Search parameters of a scan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Scan")]
pub(crate) struct SearchOptions {
    /// Rate at which the search starts, arrivals per second
    #[arg(long, value_name = "R", default_value = "100")]
    pub from: f64,

    /// Highest rate to try, arrivals per second
    #[arg(long, value_name = "R", default_value = "10000000")]
    pub rate_max: f64,

    /// Highest rate to repeat, as a multiple of the knee
    #[arg(long, value_name = "X", default_value = "4")]
    pub to: f64,

    /// Multiples of the knee to repeat; by default 1,1.25,1.5,2,3,4, up to --to
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub multiples: Option<Vec<f64>>,

    /// Repetitions of each rate
    #[arg(long, value_name = "N", default_value = "3")]
    pub repetitions: u32,

    /// Measured time of each point
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::limit)]
    pub duration: Duration,

    /// Time before it that is not measured: longer than a response
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub warmup: Duration,

    /// Pause between two points, for the server to recover from the last
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub pause: Duration,

    /// Smallest goodput with which a rate is held, as a share of the requests due
    #[arg(long, value_name = "SHARE", default_value = "0.98")]
    pub goodput_min: f64,

    /// Largest share of failed requests with which a rate is held
    #[arg(long, value_name = "SHARE", default_value = "0.01")]
    pub errors_max: f64,

    /// Largest 99th percentile of the response time with which a rate is held
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    pub p99_max: Option<Duration>,

    /// Law of arrivals
    #[arg(long, value_name = "LAW", default_value = "constant",
          value_parser = ["constant", "poisson", "uniform"])]
    pub arrivals: String,

    /// Seed of all random draws, and of the order of the repetitions
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// Connections: how they are opened, used and closed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnOptions {
    /// Requests per connection, one after the other; inf with --closed or --conns. By default 1
    #[arg(long, alias = "num-calls", value_name = "N|inf", value_parser = per_conn)]
    pub requests_per_conn: Option<PerConn>,

    /// Requests sent together, before any of their replies
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=REQUESTS_MAX.into()))]
    pub pipeline: u32,

    /// Persistent connections that all requests share
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub conns: Option<u32>,

    /// Additional connections that are opened and stay idle
    #[arg(long, value_name = "N", default_value = "0")]
    pub idle: u32,

    /// Additional connections that send their request slowly
    #[arg(long, value_name = "N", default_value = "0")]
    pub slow_senders: u32,

    /// Additional connections that read their reply slowly
    #[arg(long, value_name = "N", default_value = "0")]
    pub slow_readers: u32,

    /// Rate of the slow senders and readers, bytes per second
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = slow_rate)]
    pub slow_rate: u64,

    /// Send rate of the load's own requests, bytes per second; 0: connect, and never send. By
    /// default unlimited
    #[arg(long, value_name = "BYTES", value_parser = values::size)]
    pub send_rate: Option<u64>,

    /// Idle and slow connections opened per second
    #[arg(long, value_name = "N", default_value = "2000", value_parser = positive)]
    pub background_rate: f64,

    /// Longest time without progress
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::limit)]
    pub timeout: Duration,

    /// Longest time from the planned start to the last byte; by default unlimited
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    pub deadline: Option<Duration>,

    /// Source addresses, used in turn: 127.0.0.2,127.0.1.0-127.0.1.9; with --stack packet a
    /// network that nobody has: 10.77.128.0/17
    #[arg(long, value_name = "LIST")]
    pub source: Option<String>,

    /// Maximum number of open connections; by default as many as there are descriptors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_conns: Option<u32>,

    /// Address to connect to in place of the URL's, which requests and certificates still name
    #[arg(long, value_name = "HOST:PORT")]
    pub connect_to: Option<String>,

    /// Unix socket to connect to in place of the URL's address
    #[arg(long, value_name = "PATH", conflicts_with_all = ["connect_to", "source"])]
    pub unix_socket: Option<PathBuf>,

    /// HTTP version of the requests
    #[arg(long, value_name = "VERSION", default_value = "1.1")]
    pub http: Http,

    /// Side that closes a connection: the server, as the last request asks; the client; or the
    /// client by a reset. By default server
    #[arg(long, value_name = "WHO")]
    pub close: Option<Close>,

    /// Driving threads
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Processors to pin them to, such as 0,2-3
    #[arg(long, value_name = "LIST", value_parser = crate::options::cpu_list)]
    pub cpus: Option<CpuList>,

    #[command(flatten)]
    pub tls: TlsOptions,
    #[command(flatten)]
    pub stack: StackOptions,
}

/// The TCP of the connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stack")]
pub(crate) struct StackOptions {
    /// TCP to use: the kernel's, or weir's own on an interface, which needs CAP_NET_RAW
    #[arg(
        long,
        value_name = "WHICH",
        default_value = "kernel",
        requires_if("packet", "interface"),
        requires_if("packet", "source")
    )]
    pub stack: Stack,

    /// Interface whose link the server is on (--stack packet)
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,

    /// Path of each client: lan, cable, dsl, 4g, satellite, mix, or such as
    /// rtt=50ms..200ms,jitter=5ms,loss=1%,burst=3,down=5m,up=1m,queue=100ms,reorder=0.1%
    /// (--stack packet)
    #[arg(long, value_name = "LAW")]
    pub path: Option<PathLaw>,

    /// Send the handshake's acknowledgement together with the request (--stack packet)
    #[arg(long)]
    pub ack_with_request: bool,

    /// Longest time that received packets wait to be handled together, as a card's interrupts do
    /// (ethtool's rx-usecs); 0: none waits (--stack packet)
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = coalescing)]
    pub coalesce: Duration,

    /// Clients vanish where others close: no FIN, and no answer (--stack packet)
    #[arg(long)]
    pub vanish: bool,
}

/// A TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stack {
    Kernel,
    Packet,
}

/// Work of each arrival.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct WorkloadOptions {
    /// Named workload, whose files `weir load files` writes; they are requested below the URL's
    /// path. By default the URL itself is requested
    #[arg(long, value_name = "NAME", group = "kind", value_parser = named())]
    pub workload: Option<String>,

    /// Size of the file set of specweb99, MiB
    #[arg(long, value_name = "N", default_value = "100", requires = "workload",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub mb: u64,

    /// N1 sessions of N2 requests for the URL, X seconds between bursts (httperf)
    #[arg(long, value_name = "N1,N2,X", group = "kind")]
    pub wsess: Option<Wsess>,

    /// Requests per burst of --wsess
    #[arg(long, value_name = "L", default_value = "1", requires = "wsess",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub burst_length: u32,

    /// N sessions as FILE describes them, X seconds between bursts (httperf)
    #[arg(long, value_name = "N,X,FILE", group = "kind")]
    pub wsesslog: Option<Wsesslog>,

    /// The URIs of FILE in order; y: repeatedly, n: once (httperf)
    #[arg(long, value_name = "y|n,FILE", group = "kind")]
    pub wlog: Option<Wlog>,

    /// A walk through N files below the URL's path, X new ones per request (httperf)
    #[arg(long, value_name = "N,X", group = "kind")]
    pub wset: Option<Wset>,

    /// The requests of a Common or Combined access log, at their logged times
    #[arg(long, value_name = "FILE", group = "kind", conflicts_with = "arrivals")]
    pub replay: Option<PathBuf>,

    /// Speed of the replay, as a multiple of the logged one
    #[arg(long, value_name = "F", default_value = "1", requires = "replay")]
    pub speed: f64,

    /// Method of the requests for the URL
    #[arg(long, value_name = "M", default_value = "GET", value_parser = values::method,
          conflicts_with = "kind")]
    pub method: String,

    /// Body of these requests, from a file or (@-) from standard input
    #[arg(long, value_name = "FILE|@-", conflicts_with = "kind")]
    pub body: Option<String>,

    /// Header of every request; may be repeated
    #[arg(long, value_name = "NAME: VALUE", value_parser = values::request_field)]
    pub header: Vec<(String, String)>,
}

/// Output of a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputOptions {
    #[command(flatten)]
    pub common: CommonOutputOptions,

    /// Write the response times of each second as an HdrHistogram log
    #[arg(long, value_name = "FILE|-")]
    pub hdr_log: Option<PathBuf>,

    /// Write a JSON line per request: target, six timestamps, and status or error
    #[arg(long, value_name = "FILE|-")]
    pub each: Option<PathBuf>,

    /// Exit with 1 if this holds, such as p99>50ms, errors>1%, rate<1000; may be repeated
    #[arg(long, value_name = "COND", value_parser = Condition::parse)]
    pub fail_if: Vec<Condition>,
}

/// Output common to runs and scans.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct CommonOutputOptions {
    /// Show no progress
    #[arg(long)]
    pub quiet: bool,

    /// Write the whole result as JSON, to a file or (-) to standard output
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,

    /// Write a JSON line per second (of a scan: per point)
    #[arg(long, value_name = "FILE|-")]
    pub ndjson: Option<PathBuf>,
}

/// Options of `weir load files`.
#[derive(Debug, Args)]
pub(crate) struct FilesOptions {
    /// Directory to write them to: the one that the server serves
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Workload whose files to write
    #[arg(long, value_name = "NAME", value_parser = named(), required_unless_present = "log")]
    pub workload: Option<String>,

    /// Common or Combined access log whose files to write, in the lengths that it has of them
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    pub log: Option<PathBuf>,

    /// Size of the file set of specweb99, MiB
    #[arg(long, value_name = "N", default_value = "100",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub mb: u64,

    /// Length of the server's reply head: one-packet fills the rest of the packet
    #[arg(long, value_name = "BYTES", default_value_t = WEIR_HEAD_BYTES)]
    pub head_bytes: u64,
}

/// Options of `weir load trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceOptions {
    /// File to write, or - for standard output
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,

    /// Workload whose sessions to write
    #[arg(long, value_name = "NAME", value_parser = ["specweb99"])]
    pub workload: String,

    /// Size of the file set, MiB
    #[arg(long, value_name = "N", default_value = "100",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub mb: u64,

    /// Number of sessions
    #[arg(long, value_name = "N", default_value = "100000",
          value_parser = clap::value_parser!(u64).range(TRACE_SESSIONS_MIN..))]
    pub sessions: u64,

    /// Seed of all random draws; one of the next 15 if its shares are not accepted
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,

    /// Path below which the files are
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub base: String,
}

/// Options of `weir load day`.
#[derive(Debug, Args)]
pub(crate) struct DayOptions {
    /// File to write, or - for standard output
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,

    /// Number of requests
    #[arg(long, value_name = "N", default_value = "2600000",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: u64,

    /// Number of objects that they may name
    #[arg(long, value_name = "N", default_value = "100000",
          value_parser = clap::value_parser!(u32).range(1..=OBJECTS_MAX))]
    pub objects: u32,

    /// Seed of all random draws
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// Options of `weir load link`.
#[derive(Debug, Args)]
pub(crate) struct LinkOptions {
    /// Network namespace of the clients: its name (ip-netns(8)), a process in it, or a file
    #[arg(long, value_name = "NS", value_parser = network_namespace)]
    pub clients: PathBuf,

    /// Network namespace of the servers, likewise
    #[arg(long, value_name = "NS", value_parser = network_namespace)]
    pub servers: PathBuf,

    /// Path of each client's address: lan, cable, dsl, 4g, satellite, mix, or a list, as of runs
    #[arg(long, value_name = "LAW")]
    pub path: PathLaw,

    /// Network of the link. Its first address is the clients' end, its second the servers'
    #[arg(long, value_name = "NETWORK", default_value = "10.79.0.0/16")]
    pub network: String,

    /// Name of the interface at either end
    #[arg(long, value_name = "NAME", default_value = "weir0")]
    pub interface: String,

    /// Time after which the link goes; by default at a signal (Ctrl-C)
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    pub duration: Option<Duration>,

    /// Seed of all random draws
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,

    /// Write the counts as JSON, to a file or (-) to standard output
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}

/// Number of requests per connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerConn {
    /// A fixed number.
    Requests(u32),
    /// No limit.
    Unlimited,
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Http {
    #[value(name = "1.0")]
    Http10,
    #[value(name = "1.1")]
    Http11,
}

/// Side that closes a connection, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Close {
    Server,
    Client,
    Reset,
}

fn named() -> PossibleValuesParser {
    PossibleValuesParser::new(NamedWorkload::all().map(NamedWorkload::name))
}

fn per_conn(text: &str) -> Result<PerConn, String> {
    match text.parse() {
        _ if text == "inf" => Ok(PerConn::Unlimited),
        Ok(requests) if (1..=REQUESTS_MAX).contains(&requests) => Ok(PerConn::Requests(requests)),
        _ => Err(format!("it is a number of requests, 1 to {REQUESTS_MAX}, or inf")),
    }
}

/// Returns the file of a network namespace.
fn network_namespace(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("it is a name, the number of a process or a file".into()),
        file if file.contains('/') => Ok(file.into()),
        process if process.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(format!("/proc/{process}/ns/net").into())
        }
        name => Ok(PathBuf::from("/run/netns").join(name)),
    }
}

fn slow_rate(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        0 => Err("a connection that sends nothing is an idle one: see --idle".into()),
        bytes => Ok(bytes),
    }
}

fn coalescing(text: &str) -> Result<Duration, String> {
    let time = values::duration(text)?;
    if time <= COALESCE_MAX { Ok(time) } else { Err("it is 10 ms at most".into()) }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "it is a number above 0".into())
}
