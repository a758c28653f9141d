//! The record of a run: a JSON line for each point and each capacity, as measured. Plain data;
//! nothing here measures or judges.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A line of `points.jsonl`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Line {
    /// The capacity of a server.
    Capacity(Capacity),
    /// A measured point.
    Point(Box<Point>),
    /// System calls counted from outside, in a separate run.
    Calls(CallsRun),
    /// A point that could not be measured, and the reason.
    Failed(Failed),
}

/// Identity of a point in a plan. A resumed run looks for it on disk.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, PartialOrd)]
pub struct Key {
    /// The experiment: `pariag-accept/one-packet`.
    pub experiment: String,
    /// The sweep's id.
    pub sweep: String,
    /// The server's id.
    pub server: String,
    /// Value of the sweep, in the sweep's unit.
    pub x: f64,
    /// The round, counted from 0.
    pub round: u32,
}

/// The capacity of a server: sessions per second of a closed loop.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Capacity {
    /// The step that measured it (`x` is 0).
    pub key: Key,
    /// Sessions per second.
    pub sessions_per_s: f64,
    /// Start time, UTC, RFC 3339; `None` in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
    /// Reasons why the generator considers it its own limit: the server can do as much at least.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limited_by: Vec<String>,
}

/// The quantity that a step measures.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// The capacity of a server, in a closed loop.
    Capacity,
    /// A point.
    #[default]
    Point,
    /// System calls of a server that does not count them itself.
    Calls,
}

/// A step that could not be measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Failed {
    /// The quantity; a point in older runs.
    #[serde(default)]
    pub task: Task,
    /// The step that failed.
    pub key: Key,
    /// Reason, as a sentence.
    pub why: String,
}

impl Failed {
    /// Creates the record of a step that failed.
    pub fn of(task: Task, key: &Key, why: String) -> Self {
        Self { task, key: key.clone(), why }
    }
}

/// System calls of a server, counted from outside under the same load as in a point.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CallsRun {
    /// The point whose load was repeated.
    pub key: Key,
    /// Name of the tracer that counted: `strace`.
    pub by: String,
    /// Counts of the calls.
    pub calls: Vec<CallCount>,
    /// Replies that the client received in the same time.
    pub replies: u64,
    /// Start time, UTC, RFC 3339; `None` in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<String>,
}

/// A measured point.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Point {
    /// Identity of the point.
    pub key: Key,
    /// Start time, UTC, RFC 3339.
    pub began: String,
    /// Total time taken, in seconds.
    pub took_s: f64,
    /// Planned sessions per second; `None` for a closed loop.
    pub rate: Option<f64>,
    /// Results of the client.
    pub load: LoadResult,
    /// Results of the server and its processes.
    pub server: ServerResult,
    /// Counters of the server's network namespace while the load was measured.
    pub kernel: Kernel,
    /// Use of the processors while the load was measured.
    pub cores: Cores,
    /// The load generator's processes while the load was measured; absent if it ended meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientResult>,
    /// Results of the clients beside the load, if there were any.
    #[serde(rename = "beside", default, skip_serializing_if = "Option::is_none")]
    pub background_load: Option<BackgroundLoad>,
    /// Samples of a day, in their order; empty if the load is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<DaySample>,
    /// Cost of the event mechanism by itself, for a probe; there is no load then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeResult>,
    /// Anomalies; empty if there are none.
    pub flags: Vec<Flag>,
}

impl Point {
    /// Returns whether the point need not be measured again: its counts are valid, the host took
    /// nothing worth mentioning from either side, and nothing that is wanted is left out.
    pub fn is_undisturbed(&self, wanted: Wanted) -> bool {
        self.load.has_valid_counts() && !self.is_stolen() && self.lacks(wanted) == 0
    }

    /// Returns whether the host took more of the time of either side than a point may lose.
    pub fn is_stolen(&self) -> bool {
        let Cores { server, client } = &self.cores;
        server.is_stolen() || client.is_stolen()
    }

    /// Returns the number of wanted things that are left out because they are not to be trusted.
    pub fn lacks(&self, wanted: Wanted) -> u8 {
        let Cores { server, client } = &self.cores;
        let lacks = [
            wanted.times && !self.load.valid,
            wanted.server_cores && server.doubt.is_some(),
            wanted.client_cores && client.doubt.is_some(),
        ];
        lacks.into_iter().map(u8::from).sum()
    }
}

/// The parts of a point, besides its counts, that are shown or claimed: where they are not to be
/// trusted, the point is measured once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Times measured by the client.
    pub times: bool,
    /// Core time of the server.
    pub server_cores: bool,
    /// Core time of the client.
    pub client_cores: bool,
}

/// A part of a replayed day: a quarter-hour, if there are 96.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct DaySample {
    /// Requests that the server took, per second of the run.
    pub request_rate: f64,
    /// Connections open at its end.
    pub open: f64,
    /// User time of the server's processes, as a share of the time of its processors, 0 to 1.
    pub user: f64,
    /// System time of the same.
    pub system: f64,
}

/// The report of a load generator, in a common form for all of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct LoadResult {
    /// Name and version of the generator.
    pub generator: String,
    /// Command line.
    pub command: String,
    /// True if the generator considers its figures to be the server's, not its own, or if the sweep
    /// lets it be the limit.
    pub valid: bool,
    /// True if the result is invalid only because starts were late, and by so little (1 % of them
    /// by 10 ms at most) that rates and counts are still the server's. Times are not.
    #[serde(default)]
    pub late_only: bool,
    /// Reasons why the generator considers its figures its own.
    pub reasons: Vec<String>,
    /// True for an open loop.
    pub open_loop: bool,
    /// Length of the measured window, in seconds.
    pub window_s: f64,
    /// Requests planned per second; `None` for a closed loop.
    pub planned_per_s: Option<f64>,
    /// Requests started per second.
    pub started_per_s: Option<f64>,
    /// Complete replies per second.
    pub replies_per_s: f64,
    /// Complete replies per second that are not refusals (2xx, 3xx); `None` if the generator does
    /// not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_per_s: Option<f64>,
    /// Sessions completed successfully per second.
    pub sessions_per_s: Option<f64>,
    /// Number of complete replies.
    pub replies: u64,
    /// Number of complete replies with a status other than 2xx or 3xx.
    pub replies_refused: u64,
    /// Number of failed requests, by kind of error.
    pub errors: BTreeMap<String, u64>,
    /// The same counts for the whole run, warm-up included, if the generator reports them.
    pub whole: Option<WholeRun>,
    /// Response time: from the planned start to the last byte of complete replies.
    pub response: Option<Times>,
    /// Response time of replies of 2xx and 3xx, if the generator tells it apart.
    #[serde(default)]
    pub good_response: Option<Times>,
    /// Connect time: from the actual start to the established connection.
    pub connect: Option<Times>,
    /// Service time: from the actual start to the last byte.
    pub service: Option<Times>,
    /// Start lag: from the planned to the actual start.
    pub lag: Option<Times>,
    /// Maximum number of connections open at once.
    pub open_max: Option<u64>,
    /// Share of its core that the busiest thread used, 0 to 1.
    pub cpu_share: Option<f64>,
    /// Results of each class of a mix, in the order of the mix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassResult>,
    /// Connects attempted.
    pub connects: Option<u64>,
    /// Connections established.
    pub connected: Option<u64>,
    /// Results over time, if the sweep asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

impl LoadResult {
    /// Returns whether its counts reflect the server and not a limit of the generator.
    pub fn has_valid_counts(&self) -> bool {
        self.valid || self.late_only
    }
}

/// Results of a class of requests in a mix. Only requests planned well before the end of the
/// schedule count, so that they were answered or given up while the load was still on.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct ClassResult {
    /// CPU time that a request burns in the server, in microseconds.
    pub burn_us: u32,
    /// Share of requests that belong to this class, 0 to 1.
    pub share: f64,
    /// Length of the window of planned starts that count, in seconds.
    pub window_s: f64,
    /// Requests planned in the window.
    pub planned: u64,
    /// Requests of these that got a complete reply other than a refusal (2xx, 3xx).
    pub replies: u64,
    /// Response time of these replies, from the planned start to the last byte; `None` without
    /// replies.
    pub response: Option<Times>,
}

/// Results of a load over time, in bins from the start of the measured window. All lists have the
/// same length. The bins of the schedule come first, followed by those in which the last replies
/// came.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Timeline {
    /// Length of a bin, in milliseconds.
    pub bin_ms: u32,
    /// Length of the schedule, in seconds.
    pub duration_s: f64,
    /// Time of the load's first step up, in seconds.
    pub up_s: Option<f64>,
    /// Time of the load's last step down, in seconds.
    pub down_s: Option<f64>,
    /// Requests, by planned start.
    pub planned: Vec<u64>,
    /// Complete 2xx or 3xx replies, by arrival of the last byte.
    pub replies: Vec<u64>,
    /// Requests that failed or were refused with another status, by planned start.
    pub errors: Vec<u64>,
    /// Median response time in microseconds, by planned start and measured from it; `None` without
    /// a reply.
    pub p50_us: Vec<Option<u64>>,
    /// 99th percentile of the response time, likewise.
    pub p99_us: Vec<Option<u64>>,
}

/// Results of the clients beside a load.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct BackgroundLoad {
    /// Behaviour of the clients: `mute`, `slow`, `reconnect`, `keep-alive`, `cold`.
    pub kind: String,
    /// Results of the clients, measured in the same window as the load.
    pub load: LoadResult,
}

/// Result of `weir probe` for a cell. Times are nanoseconds of CPU time.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct ProbeResult {
    /// Name of the mechanism.
    pub mechanism: String,
    /// Type of the connections: `tcp`, `unix`.
    pub kind: String,
    /// Members that never had an event.
    pub idle: u64,
    /// Members that had an event in each round.
    pub active: u64,
    /// Number of repetitions.
    pub repetitions: u64,
    /// Rounds measured.
    pub rounds: u64,
    /// Waits in these rounds.
    pub waits: u64,
    /// Events in these rounds.
    pub events: u64,
    /// CPU time per wait.
    pub wait_ns: Spread,
    /// CPU time per event.
    pub event_ns: Spread,
    /// CPU time to add and remove a member.
    pub member_ns: Spread,
    /// CPU time to search the result of a wait, for mechanisms that have one to search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search_ns: Option<Spread>,
}

/// Minimum, median and maximum over the repetitions of a probe.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Maximum.
    pub max: f64,
}

/// Counts of the whole run of a load, warm-up included.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct WholeRun {
    /// Complete replies.
    pub replies: u64,
    /// Failed requests.
    pub errors: u64,
    /// Connections established.
    pub connected: u64,
}

/// A distribution of times, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Times {
    /// Number of times.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median; absent if the generator does not report it.
    pub p50_us: Option<f64>,
    /// 90th percentile.
    pub p90_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Maximum.
    pub max_us: Option<f64>,
}

/// The load generator's processes while the load was measured.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct ClientResult {
    /// User time, in seconds.
    pub cpu_user_s: f64,
    /// System time, in seconds.
    pub cpu_system_s: f64,
    /// Resident memory at the beginning, in bytes, summed over the processes.
    pub rss_begin_bytes: u64,
    /// Resident memory at the end, in bytes.
    pub rss_end_bytes: u64,
    /// Peak resident memory since the processes began, in bytes.
    pub rss_max_bytes: u64,
}

impl ClientResult {
    /// Returns the user and system time together, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.cpu_user_s + self.cpu_system_s
    }
}

/// The server's side of a point.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ServerResult {
    /// Name and version of the server.
    pub version: String,
    /// Command line, without paths of the run.
    pub command: String,
    /// Configuration, without paths of the run; `None` if the command line contains all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// User time of the server's processes while the load was measured, in seconds.
    pub cpu_user_s: f64,
    /// System time of the same, in seconds.
    pub cpu_system_s: f64,
    /// Peak resident memory, in bytes, summed over the server's processes.
    pub rss_max_bytes: u64,
    /// Number of the server's processes.
    pub processes: u32,
    /// Bytes read from disks by the server's processes while the load was measured. Excludes
    /// processes that ended meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes: Option<u64>,
    /// weir only: increase of the server's counters while the load was measured (`total`, summed
    /// over loops), by their names in the statistics, and `elapsed_s`. Zeros are kept: a name that
    /// is absent was not measured. The `_max` counters have no difference and are left out.
    pub counted: BTreeMap<String, f64>,
    /// weir only: the same from the server's start to its end, including the `_max` counters.
    pub counted_whole: BTreeMap<String, f64>,
    /// weir only, in sweeps that count calls: system calls made while the load was measured.
    pub calls: Vec<CallCount>,
    /// Description of an abnormal end of the server.
    pub trouble: Option<String>,
}

impl ServerResult {
    /// Returns the user and system time together, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.cpu_user_s + self.cpu_system_s
    }
}

/// Count and time of a system call.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct CallCount {
    /// Name of the system call.
    pub name: String,
    /// Number of calls.
    pub count: u64,
    /// Wall time spent in it, in seconds; absent if calls were only counted.
    pub time_s: Option<f64>,
}

/// Kernel counters of the server's network namespace, as differences over a window.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Kernel {
    /// Length of the window, in seconds.
    pub window_s: f64,
    /// Counters that increased: `TcpExt.ListenDrops`, `Tcp.PassiveOpens`, `Ip.InReceives` and so
    /// on.
    pub moved: BTreeMap<String, u64>,
    /// True on loopback, where there is no separate namespace and the counters include the client's
    /// traffic and all other traffic of the host.
    pub shared: bool,
    /// Packets that the server's listening sockets dropped, by the kernel's reason, if traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traced: Option<TracedDrops>,
    /// Reason why they were not traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untraced: Option<String>,
    /// SYNs to the server's port that reached the link of its network, if they were counted
    /// ([`weir_sys::syn_trace`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syns: Option<u64>,
    /// Reason why they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syns_uncounted: Option<String>,
    /// Packets at the input queues of the server's processors; absent in records that do not have
    /// them, and where the kernel does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softnet: Option<Softnet>,
}

/// Packets that came for some processors to handle: the server's, and the client's packets where
/// those are left to the processors that send them. Other programs of the machine are counted too.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Softnet {
    /// Packets handled.
    pub handled: u64,
    /// Packets dropped, because the queue of the processor was full.
    pub dropped: u64,
}

impl Softnet {
    /// Returns the share of the packets that was dropped, 0 to 1; `None` if none came.
    pub fn dropped_share(&self) -> Option<f64> {
        let all = self.handled + self.dropped;
        (all > 0).then(|| self.dropped as f64 / all as f64)
    }
}

/// Packets that listening sockets dropped, by the kernel's reason ([`weir_sys::drop_trace`]).
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct TracedDrops {
    /// Third ACKs that found the accept queue full.
    pub overflow: u64,
    /// Third ACKs with a SYN cookie that found the accept queue full.
    pub overflow_of_cookie: u64,
    /// Packets dropped by the socket's filter.
    pub filter: u64,
    /// Packets dropped for another reason.
    pub other: u64,
}

/// Use of the processors of both sides.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Cores {
    /// The server's processors, summed.
    pub server: CoreTime,
    /// The client's processors, summed.
    pub client: CoreTime,
}

/// Use of processors over a window, by the idle counter. Records of earlier versions have the
/// kernel's account by ticks in its place, which is not read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct CoreTime {
    /// Length of the window times the number of processors, in seconds.
    pub total_s: f64,
    /// Time in which the processors had something to do, in seconds.
    pub busy_s: f64,
    /// Time that the kernel charged to the idle counter, in seconds.
    pub spinner_s: f64,
    /// Time in which the idle counter neither ran nor was replaced, because the host ran something
    /// else, as a share of the processors' time since it began. Records without `steal_share` have
    /// it as a share of the time that the counter ran, which may be more than 1.
    pub stolen_share: f64,
    /// Time that the host took in the window by the kernel's account (steal), as a share of
    /// `total_s`; absent in older records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steal_share: Option<f64>,
    /// Relative difference between the idle shares, before and after, of processors that had
    /// nothing to do.
    pub drift: f64,
    /// Speed of the processors: units of the idle counter's work per idle second; 0 in records that
    /// do not have it. Older ones have the speed before and after, the mean.
    #[serde(default)]
    pub idle_per_s: f64,
    /// Instructions of all but the idle counter; absent where a processor has no counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
    /// Cycles, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<f64>,
    /// Reason why the busy time is not to be trusted, as a sentence without its subject; absent if
    /// nothing speaks against it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// Maximum share of processor time that the host may take.
const STOLEN_MAX: f64 = 0.03;

impl CoreTime {
    /// Returns the share of the processors' time that the host took: by the idle counter or by the
    /// kernel's account, whichever has more. The counter misses what is taken from others, and a
    /// host need not tell the kernel.
    pub fn host_share(&self) -> f64 {
        self.steal_share.map_or(self.stolen_share, |share| share.max(self.stolen_share))
    }

    /// Returns whether the host took more of the processors' time than a point may lose.
    pub fn is_stolen(&self) -> bool {
        self.host_share() > STOLEN_MAX
    }

    /// Returns the busy time as a share of the total; `None` if it was not measured, or is not to
    /// be trusted.
    pub fn busy_share(&self) -> Option<f64> {
        let is_good = self.doubt.is_none() && self.total_s > 0.0;
        is_good.then(|| self.busy_s / self.total_s)
    }
}

/// An anomaly of a point.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Flag {
    /// Its kind: `invalid`, `late`, `identity`, `counts`, `server`, `steal`, `core`, `beside`,
    /// `softnet`.
    pub kind: String,
    /// Description, as a sentence.
    pub says: String,
}

/// Returns the median of a server's capacities in a sweep that are on disk.
pub fn capacity_of(lines: &[Line], key: &Key) -> Option<f64> {
    let found: Vec<f64> = lines
        .iter()
        .filter_map(|line| match line {
            Line::Capacity(capacity)
                if capacity.key.experiment == key.experiment
                    && capacity.key.sweep == key.sweep
                    && capacity.key.server == key.server =>
            {
                Some(capacity.sessions_per_s)
            }
            _ => None,
        })
        .collect();
    weir_stats::median(&found)
}
