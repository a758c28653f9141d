//! What is kept of a run: one JSON line for each point and each capacity, as they were measured.
//! Plain data; nothing here measures or judges.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A line of `points.jsonl`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "record", rename_all = "lowercase")]
pub enum Line {
    /// How much a server can do.
    Capacity(Capacity),
    /// A measured point.
    Point(Box<Point>),
    /// System calls counted from outside, in a run of their own.
    Calls(CallsRun),
    /// A point that could not be measured, and why.
    Failed(Failed),
}

/// Which point of a plan: what a rerun looks for on disk.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, PartialOrd)]
pub struct Key {
    /// The experiment: `pariag-accept/one-packet`.
    pub experiment: String,
    /// Its sweep.
    pub sweep: String,
    /// The server's id.
    pub server: String,
    /// The value of the sweep, in the sweep's unit.
    pub x: f64,
    /// The round, from 0.
    pub round: u32,
}

/// The capacity of a server: sessions a second of a closed loop.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Capacity {
    /// Which (`x` is 0).
    pub key: Key,
    /// Sessions a second.
    pub sessions_per_s: f64,
}

/// A point that could not be measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Failed {
    /// Which.
    pub key: Key,
    /// Why, in a sentence.
    pub why: String,
}

/// System calls of a server, counted from outside while it was loaded as in a point.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct CallsRun {
    /// Which point.
    pub key: Key,
    /// What counted.
    pub by: String,
    /// The calls.
    pub calls: Vec<CallCount>,
    /// Replies counted by the client meanwhile.
    pub replies: u64,
}

/// A measured point.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Point {
    /// Which.
    pub key: Key,
    /// When it began, UTC, RFC 3339.
    pub began: String,
    /// How long all of it took, seconds.
    pub took_s: f64,
    /// Sessions planned a second; none for a closed loop.
    pub rate: Option<f64>,
    /// What the client saw.
    pub load: LoadResult,
    /// What the server and the kernel say of it.
    pub server: ServerResult,
    /// What the server's network namespace counted while the load was measured.
    pub kernel: Kernel,
    /// Core time while the load was measured.
    pub cores: Cores,
    /// What came of the clients beside the load, where there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// What the mechanism costs by itself, where that was measured, and no load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeResult>,
    /// What does not fit; empty when all does.
    pub flags: Vec<Flag>,
}

/// What a load generator reports, whichever it was.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct LoadResult {
    /// Its name and version.
    pub generator: String,
    /// The command.
    pub command: String,
    /// Whether its figures are the server's.
    pub valid: bool,
    /// Whether it is not valid only because starts were late, and by so little (1 % of them by
    /// 10 ms at most) that rates and counts are the server's all the same. Times are not.
    #[serde(default)]
    pub late_only: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// Whether the loop was open.
    pub open_loop: bool,
    /// Length of what was measured, seconds.
    pub window_s: f64,
    /// Requests planned and started a second; none for a closed loop.
    pub planned_per_s: Option<f64>,
    /// Requests started a second.
    pub started_per_s: Option<f64>,
    /// Whole replies a second.
    pub replies_per_s: f64,
    /// Those of them a second that are no refusals (2xx, 3xx); none where the generator does not
    /// tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_per_s: Option<f64>,
    /// Sessions that ended well, a second.
    pub sessions_per_s: Option<f64>,
    /// Whole replies.
    pub replies: u64,
    /// Replies that were whole but not 2xx or 3xx.
    pub replies_refused: u64,
    /// Requests in error, by kind.
    pub errors: BTreeMap<String, u64>,
    /// The same counts for the whole of the run, warm-up included, where the generator tells.
    pub whole: Option<WholeRun>,
    /// From the planned start to the last byte, whole replies.
    pub response: Option<Times>,
    /// From the actual start to the connection.
    pub connect: Option<Times>,
    /// From the actual start to the last byte.
    pub service: Option<Times>,
    /// From the planned to the actual start.
    pub lag: Option<Times>,
    /// Connections open at once, most.
    pub open_max: Option<u64>,
    /// Share of its core the busiest thread used, 0 to 1.
    pub cpu_share: Option<f64>,
    /// Of a mix, each class, in the order of the mix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassResult>,
    /// Connects tried.
    #[serde(default)]
    pub connects: Option<u64>,
    /// Connections made.
    #[serde(default)]
    pub connected: Option<u64>,
    /// What came of it along time, where a sweep asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// What became of a class of requests of a mix. Those count whose planned start was so long before
/// the schedule's end that they had their answer, or had been given up, while the load went on.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct ClassResult {
    /// What a request burns in the server, microseconds.
    pub burn_us: u32,
    /// The share of the requests that are of this class, 0 to 1.
    pub share: f64,
    /// How long the stretch of planned starts is, seconds.
    pub window_s: f64,
    /// Requests planned in it.
    pub planned: u64,
    /// Those that became whole replies, and no refusals.
    pub replies: u64,
    /// From the planned start to the last byte of these; none without one.
    pub response: Option<Times>,
}

/// What came of a load, in bins from the beginning of what was measured: the same number of them in
/// each list. Those of the schedule come first; in those behind it the last replies came.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Timeline {
    /// The length of a bin, milliseconds.
    pub bin_ms: u32,
    /// The length of the schedule, seconds.
    pub duration_s: f64,
    /// When the load first stepped up, seconds.
    pub up_s: Option<f64>,
    /// When it last stepped down, seconds.
    pub down_s: Option<f64>,
    /// Requests, where they were planned.
    pub planned: Vec<u64>,
    /// Whole replies of 2xx or 3xx, where their last byte came.
    pub replies: Vec<u64>,
    /// Requests in error, or refused with another status, where they were planned.
    pub errors: Vec<u64>,
    /// Half of the replies to what was planned there took no longer, from their planned start,
    /// microseconds; none without a reply.
    pub p50_us: Vec<Option<u64>>,
    /// 99 % of them took no longer.
    pub p99_us: Vec<Option<u64>>,
}

/// What came of the clients beside a load.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Beside {
    /// What they did: `mute`, `slow`, `reconnect`, `keep-alive`.
    pub kind: String,
    /// What they saw, measured for as long as the load.
    pub load: LoadResult,
}

/// What `weir probe` says of a cell: nanoseconds of processor time.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct ProbeResult {
    /// The mechanism.
    pub mechanism: String,
    /// What the connections were: `tcp`, `unix`.
    pub kind: String,
    /// Members that never had an event.
    pub idle: u64,
    /// Members that had one each round.
    pub active: u64,
    /// How often it was measured.
    pub repetitions: u64,
    /// Rounds measured.
    pub rounds: u64,
    /// Waits in them.
    pub waits: u64,
    /// Events in them.
    pub events: u64,
    /// For each wait.
    pub wait_ns: Spread,
    /// For each event.
    pub event_ns: Spread,
    /// For a member's coming and going.
    pub member_ns: Spread,
}

/// The smallest, the middle and the largest of the repetitions of a probe.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

/// Counts of a whole run of the load, warm-up included.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct WholeRun {
    /// Whole replies.
    pub replies: u64,
    /// Requests in error.
    pub errors: u64,
    /// Connections that were there.
    pub connected: u64,
}

/// A distribution of times, microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Half of them are no longer; absent where the generator does not tell.
    pub p50_us: Option<f64>,
    /// 90 % of them are no longer.
    pub p90_us: Option<f64>,
    /// 99 % of them are no longer.
    pub p99_us: Option<f64>,
    /// 99.9 % of them are no longer.
    pub p999_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
}

/// The server's side of a point.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ServerResult {
    /// Its name and version.
    pub version: String,
    /// The command, without paths of the run.
    pub command: String,
    /// Its configuration, without paths of the run; none where the command has it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// User time of its processes while the load was measured, seconds.
    pub cpu_user_s: f64,
    /// Their system time.
    pub cpu_system_s: f64,
    /// The most memory its processes had resident, bytes, summed.
    pub rss_max_bytes: u64,
    /// How many processes it had.
    pub processes: u32,
    /// Bytes the kernel fetched from disks for them while the load was measured; those of a process
    /// that ended meanwhile are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes: Option<u64>,
    /// weir: by how much the counters of its statistics moved while the load was measured (`total`,
    /// summed over loops), by their name in the statistics, and `elapsed_s`. Zeros are kept: a name
    /// that is absent was not measured. The `_max` counters have no difference and are left out.
    pub counted: BTreeMap<String, f64>,
    /// weir: the same from its start to its end; the `_max` counters are only here.
    pub counted_whole: BTreeMap<String, f64>,
    /// weir, with calls: system calls made while the load was measured.
    pub calls: Vec<CallCount>,
    /// How it ended, if not well.
    pub trouble: Option<String>,
}

/// Count and time of a system call.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct CallCount {
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Wall time in it, seconds; absent where it was only counted.
    pub time_s: Option<f64>,
}

/// Kernel counters of the server's namespace, differences.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Kernel {
    /// How long they were counted, seconds.
    pub window_s: f64,
    /// What moved: `TcpExt.ListenDrops`, `Tcp.PassiveOpens`, `Ip.InReceives` and so on.
    pub moved: BTreeMap<String, u64>,
    /// On loopback without a namespace the client's and everybody else's are in them too.
    pub shared: bool,
}

/// Core time of the two sides.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Cores {
    /// The server's processors, summed.
    pub server: CoreTime,
    /// The client's.
    pub client: CoreTime,
}

/// Where the time of processors went, seconds (/proc/stat, proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct CoreTime {
    /// Programs.
    pub user_s: f64,
    /// The kernel on their behalf.
    pub system_s: f64,
    /// Packets, mostly.
    pub softirq_s: f64,
    /// Interrupts.
    pub irq_s: f64,
    /// Taken by the host.
    pub steal_s: f64,
    /// Nothing to do.
    pub idle_s: f64,
}

/// Something about a point that does not fit.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Flag {
    /// Its kind: `invalid`, `late`, `identity`, `counts`, `server`, `steal`, `beside`.
    pub kind: String,
    /// What, in a sentence.
    pub says: String,
}
