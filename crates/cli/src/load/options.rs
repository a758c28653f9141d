//! The options of `weir load` and its tasks, each defined once: name, help, parser, default.
//! Conflicts between options are declared here where the parser can express them, and otherwise
//! checked in the plan.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use weir_load::condition::Condition;
use weir_load::workload::NamedWorkload;
use weir_load::workload::sessions::{Wlog, Wsess, Wsesslog, Wset};
use weir_load::workload::small::WEIR_HEAD_BYTES;

use crate::options::CpuList;
use crate::values;

/// Maximum number of requests per connection, unless unlimited: a session's requests are kept in
/// memory.
const REQUESTS_MAX: u32 = 1_000_000;

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
    /// Find the highest rate the server holds, and what is left of it past that
    Scan(Box<ScanOptions>),
    /// Write the files that a named workload asks for
    Files(FilesOptions),
    /// Write a workload's sessions as a file for --wsesslog
    Trace(TraceOptions),
}

/// Options of a single run.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Whom to load: http://HOST:PORT/PATH
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
    /// Whom to load: http://HOST:PORT/PATH
    #[arg(value_name = "URL")]
    pub url: String,

    #[command(flatten)]
    pub search: SearchOptions,
    #[command(flatten)]
    pub conns: ConnOptions,
    #[command(flatten)]
    pub workload: WorkloadOptions,
    #[command(flatten)]
    pub output: ScanOutputOptions,
}

/// Arrival times.
#[derive(Debug, Args)]
#[command(next_help_heading = "Arrivals")]
pub(crate) struct ArrivalOptions {
    /// Arrivals a second; 100 when neither this nor --arrivals says
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

    /// How long arrivals go on; 10s when nothing else ends the run
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    pub duration: Option<Duration>,

    /// Arrivals at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub num: Option<u64>,

    /// How long, of the beginning, nothing is measured
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::duration)]
    pub warmup: Duration,

    /// What all chance is drawn from
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// Search parameters of a scan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Scan")]
pub(crate) struct SearchOptions {
    /// The rate the search begins at, arrivals a second
    #[arg(long, value_name = "R", default_value = "100")]
    pub from: f64,

    /// The rate it does not go beyond, arrivals a second
    #[arg(long, value_name = "R", default_value = "10000000")]
    pub rate_max: f64,

    /// How far past the knee it goes, as a multiple of it
    #[arg(long, value_name = "X", default_value = "4")]
    pub to: f64,

    /// Which multiples of the knee are repeated; by default 1,1.25,1.5,2,3,4, as far as --to
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub multiples: Option<Vec<f64>>,

    /// How often each of them is repeated
    #[arg(long, value_name = "N", default_value = "3")]
    pub repetitions: u32,

    /// How long a point is measured
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::limit)]
    pub duration: Duration,

    /// How long, before that, it runs without being measured: longer than a response
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub warmup: Duration,

    /// The rest between two points, for what the last one left in the server
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub pause: Duration,

    /// A rate is held with this share of its replies or more
    #[arg(long, value_name = "SHARE", default_value = "0.98")]
    pub goodput_min: f64,

    /// A rate is held with this share of its requests in error or less
    #[arg(long, value_name = "SHARE", default_value = "0.01")]
    pub errors_max: f64,

    /// A rate is held if 99 % of its responses take no longer
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    pub p99_max: Option<Duration>,

    /// The law of arrivals
    #[arg(long, value_name = "LAW", default_value = "constant",
          value_parser = ["constant", "poisson", "uniform"])]
    pub arrivals: String,

    /// What all chance is drawn from, the order of the repetitions too
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// Connections: how they are opened, used and closed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnOptions {
    /// Requests of a connection, one after the other; inf with --closed or --conns. By default 1
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

    /// Connections beside them that are opened and never used
    #[arg(long, value_name = "N", default_value = "0")]
    pub idle: u32,

    /// Connections beside them that send their request slowly
    #[arg(long, value_name = "N", default_value = "0")]
    pub slow_senders: u32,

    /// Connections beside them that read their reply slowly
    #[arg(long, value_name = "N", default_value = "0")]
    pub slow_readers: u32,

    /// How slowly, a second
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = slow_rate)]
    pub slow_rate: u64,

    /// How fast the load's own requests are sent, a second; 0: never, a connection is opened and
    /// nothing said. By default at once
    #[arg(long, value_name = "BYTES", value_parser = values::size)]
    pub send_rate: Option<u64>,

    /// How many idle and slow connections are opened a second
    #[arg(long, value_name = "N", default_value = "2000", value_parser = positive)]
    pub background_rate: f64,

    /// The longest without progress
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::limit)]
    pub timeout: Duration,

    /// The longest from the planned start to the last byte; by default there is none
    #[arg(long, value_name = "TIME", value_parser = values::limit)]
    pub deadline: Option<Duration>,

    /// Source addresses, taken in turn: 127.0.0.2,127.0.1.0-127.0.1.9
    #[arg(long, value_name = "LIST")]
    pub source: Option<String>,

    /// Connections open at once at most; by default as many as there are descriptors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_conns: Option<u32>,

    /// The version requests are sent as
    #[arg(long, value_name = "VERSION", default_value = "1.1")]
    pub http: Http,

    /// Who ends a connection: the server, asked to by the last request; the client; or the client
    /// by a reset. By default server
    #[arg(long, value_name = "WHO")]
    pub close: Option<Close>,

    /// Driving threads
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: u16,

    /// Pin them to these processors, such as 0,2-3
    #[arg(long, value_name = "LIST", value_parser = crate::options::cpu_list)]
    pub cpus: Option<CpuList>,
}

/// Work of each arrival.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct WorkloadOptions {
    /// A named workload, whose files `weir load files` writes: they are asked for below the URL's
    /// path. By default the URL itself is asked for
    #[arg(long, value_name = "NAME", group = "kind", value_parser = named())]
    pub workload: Option<String>,

    /// The size of the file set of specweb99, MiB
    #[arg(long, value_name = "N", default_value = "100", requires = "workload",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub mb: u64,

    /// N1 sessions of N2 requests of the URL each, X seconds between bursts (httperf)
    #[arg(long, value_name = "N1,N2,X", group = "kind")]
    pub wsess: Option<Wsess>,

    /// Requests of a burst of --wsess
    #[arg(long, value_name = "L", default_value = "1", requires = "wsess",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub burst_length: u32,

    /// N sessions as FILE describes them, X seconds between bursts (httperf)
    #[arg(long, value_name = "N,X,FILE", group = "kind")]
    pub wsesslog: Option<Wsesslog>,

    /// The URIs of FILE in turn; y: again and again, n: once (httperf)
    #[arg(long, value_name = "y|n,FILE", group = "kind")]
    pub wlog: Option<Wlog>,

    /// A walk through N files below the URL's path, X new ones a request (httperf)
    #[arg(long, value_name = "N,X", group = "kind")]
    pub wset: Option<Wset>,

    /// The requests of a Common or Combined access log, at their logged times
    #[arg(long, value_name = "FILE", group = "kind", conflicts_with = "arrivals")]
    pub replay: Option<PathBuf>,

    /// How many times as fast as they were logged
    #[arg(long, value_name = "F", default_value = "1", requires = "replay")]
    pub speed: f64,

    /// The method of requests for the URL
    #[arg(long, value_name = "M", default_value = "GET", value_parser = values::method,
          conflicts_with = "kind")]
    pub method: String,

    /// Their body, from a file or (@-) from standard input
    #[arg(long, value_name = "FILE|@-", conflicts_with = "kind")]
    pub body: Option<String>,

    /// A header for every request; may be repeated
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

    /// Write a JSON line a request: its target, its six clocks and how it ended
    #[arg(long, value_name = "FILE|-")]
    pub each: Option<PathBuf>,

    /// Exit with 1 if this holds, such as p99>50ms, errors>1%, rate<1000; may be repeated
    #[arg(long, value_name = "COND", value_parser = Condition::parse)]
    pub fail_if: Vec<Condition>,
}

/// Output of a scan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ScanOutputOptions {
    #[command(flatten)]
    pub common: CommonOutputOptions,
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

    /// Write a JSON line a second (of a scan: a point)
    #[arg(long, value_name = "FILE|-")]
    pub ndjson: Option<PathBuf>,
}

/// Options of `weir load files`.
#[derive(Debug, Args)]
pub(crate) struct FilesOptions {
    /// Where to write them: the directory that the server serves
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// Whose files
    #[arg(long, value_name = "NAME", value_parser = named())]
    pub workload: String,

    /// The size of the file set of specweb99, MiB
    #[arg(long, value_name = "N", default_value = "100",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub mb: u64,

    /// The length of the server's reply head: one-packet fills what it leaves of a packet
    #[arg(long, value_name = "BYTES", default_value_t = WEIR_HEAD_BYTES)]
    pub head_bytes: u64,
}

/// Options of `weir load trace`.
#[derive(Debug, Args)]
pub(crate) struct TraceOptions {
    /// Where to write it, or - for standard output
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,

    /// Whose sessions
    #[arg(long, value_name = "NAME", value_parser = ["specweb99"])]
    pub workload: String,

    /// The size of the file set, MiB
    #[arg(long, value_name = "N", default_value = "100",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub mb: u64,

    /// How many sessions
    #[arg(long, value_name = "N", default_value = "100000",
          value_parser = clap::value_parser!(u64).range(TRACE_SESSIONS_MIN..))]
    pub sessions: u64,

    /// What all chance is drawn from; one of the next 15 if its shares come out wrong
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,

    /// The path below which the files are
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub base: String,
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

fn slow_rate(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        0 => Err("a connection that sends nothing is an idle one: see --idle".into()),
        bytes => Ok(bytes),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "it is a number above 0".into())
}
