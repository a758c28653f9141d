//! A consistent point with every measurement, made up for tests.

use std::collections::BTreeMap;

use crate::record::{
    BackgroundLoad, CallCount, ClientResult, CoreTime, Cores, DaySample, Kernel, Key, LoadResult,
    Point, ProbeResult, ServerResult, Softnet, Spread, Timeline, Times, TracedDrops, WholeRun,
};

/// A point of 2 s at 1500 connections per second, with one reply each, on one processor; 2000
/// connections came before.
pub(crate) fn point() -> Point {
    Point {
        key: key(),
        began: "2026-11-22T00:00:00Z".into(),
        took_s: 4.0,
        rate: Some(1500.0),
        load: load(),
        server: server(),
        kernel: kernel(),
        cores: Cores { server: core(0.5), client: core(0.2) },
        client: Some(client()),
        ..Point::default()
    }
}

/// The same point with clients beside the load, none of which the server has seen, and with samples
/// of a day.
pub(crate) fn crowded() -> Point {
    let samples = [1000.0, 2000.0, 3000.0].into_iter().map(day_sample).collect();
    Point { background_load: Some(background_load()), samples, ..point() }
}

/// A point with a probe instead of a load, on the same processors.
pub(crate) fn probed() -> Point {
    let spread = |median| Spread { min: median / 2.0, median, max: 2.0 * median };
    let probe = ProbeResult {
        mechanism: "poll".into(),
        kind: "tcp".into(),
        idle: 1000,
        active: 2,
        repetitions: 5,
        rounds: 100,
        waits: 100,
        events: 200,
        wait_ns: spread(700.0),
        event_ns: spread(350.0),
        member_ns: spread(1200.0),
        search_ns: Some(spread(40.0)),
    };
    let load = LoadResult { valid: true, ..LoadResult::default() };
    let server = ServerResult { version: "weir 0.1.0".into(), ..ServerResult::default() };
    Point { probe: Some(probe), load, server, rate: None, ..point() }
}

/// The key of the point.
pub(crate) fn key() -> Key {
    Key {
        experiment: "made-up/one".into(),
        sweep: "rate".into(),
        server: "weir".into(),
        x: 1500.0,
        round: 0,
    }
}

fn load() -> LoadResult {
    LoadResult {
        generator: "weir load 0.1.0".into(),
        command: "weir load --rate 1500 http://server/".into(),
        valid: true,
        open_loop: true,
        window_s: 2.0,
        planned_per_s: Some(1500.0),
        started_per_s: Some(1500.0),
        replies_per_s: 1500.0,
        sessions_per_s: Some(1500.0),
        replies: 3000,
        errors: BTreeMap::new(),
        whole: Some(WholeRun { replies: 5000, errors: 0, connected: 5000 }),
        response: Some(times(1000.0)),
        good_response: Some(times(1000.0)),
        connect: Some(times(100.0)),
        service: Some(times(500.0)),
        lag: Some(times(50.0)),
        open_max: Some(60),
        cpu_share: Some(0.4),
        timeline: Some(timeline()),
        ..LoadResult::default()
    }
}

/// A timeline with ten requests planned per tenth of a second, 50 % more in the middle, and
/// constant latency.
fn timeline() -> Timeline {
    Timeline {
        bin_ms: 100,
        duration_s: 2.0,
        up_s: Some(0.5),
        down_s: Some(1.0),
        planned: [vec![10; 5], vec![15; 5], vec![10; 10]].concat(),
        replies: vec![10; 20],
        errors: vec![0; 20],
        p50_us: vec![Some(1000); 20],
        p99_us: vec![Some(3000); 20],
    }
}

/// A sample in which each 1000 requests per second take a fifth of the processors, a quarter of it
/// in user mode.
fn day_sample(request_rate: f64) -> DaySample {
    let share = request_rate / 5000.0;
    let (user, system) = (share / 4.0, 0.75 * share);
    DaySample { request_rate, open: request_rate / 10.0, user, system }
}

/// Clients with 1500 attempts per second, one in six of which is answered.
fn background_load() -> BackgroundLoad {
    let load = LoadResult {
        valid: true,
        window_s: 2.0,
        started_per_s: Some(1500.0),
        replies_per_s: 250.0,
        replies: 500,
        errors: [("send-timeout".to_owned(), 2500)].into(),
        connected: Some(2800),
        whole: Some(WholeRun { replies: 0, errors: 0, connected: 0 }),
        open_max: Some(60),
        good_response: Some(times(2000.0)),
        ..LoadResult::default()
    };
    BackgroundLoad { kind: "mute".into(), load }
}

fn times(mean_us: f64) -> Times {
    Times {
        count: 3000,
        mean_us,
        p50_us: Some(2.0 * mean_us),
        p90_us: Some(3.0 * mean_us),
        p99_us: Some(4.0 * mean_us),
        p999_us: Some(5.0 * mean_us),
        max_us: Some(6.0 * mean_us),
    }
}

fn client() -> ClientResult {
    ClientResult {
        cpu_user_s: 0.4,
        cpu_system_s: 1.2,
        rss_begin_bytes: 2 << 20,
        rss_end_bytes: 3 << 20,
        rss_max_bytes: 4 << 20,
    }
}

fn server() -> ServerResult {
    let call = |name: &str, count, time_s| CallCount { name: name.into(), count, time_s };
    ServerResult {
        config: None,
        version: "weir 0.1.0".into(),
        command: "weir serve --preset accept10 --workers 1".into(),
        cpu_user_s: 0.2,
        cpu_system_s: 0.6,
        rss_max_bytes: 8 << 20,
        processes: 1,
        disk_read_bytes: Some(64 << 20),
        counted: counted(3000.0, 2.0),
        counted_whole: [
            ("open_max", 50.0),
            ("accepts_max", 10.0),
            ("accept_queue_ns_max", 30e6),
            ("work_items_max", 20.0),
            ("fibers_runnable_max", 40.0),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .chain(counted(5000.0, 3.5))
        .collect(),
        calls: vec![
            call("epoll_wait", 6000, Some(1.0)),
            call("accept4", 3100, Some(0.031)),
            call("sendto", 3000, Some(0.06)),
        ],
        trouble: None,
    }
}

/// Counters after this number of connections with one reply each; all counters that have a
/// difference, including zeros.
fn counted(connections: f64, elapsed_s: f64) -> BTreeMap<String, f64> {
    let counters = weir_stats::TABLE.iter().filter(|row| row.merge.is_counter());
    let zeros = counters.map(|row| (row.name.to_owned(), 0.0));
    let mut counted: BTreeMap<_, _> = zeros.collect();
    let moved = [
        ("elapsed_s", elapsed_s),
        ("getevents_calls", 2.0 * connections),
        ("getevents_ready", 3.0 * connections),
        ("event_notices", 0.95 * connections),
        ("event_overflows", 0.05 * connections),
        ("event_swept", connections / 2.0),
        ("event_stale", 0.019 * connections),
        ("event_coalesced", 0.038 * connections),
        ("event_checked", connections),
        ("event_rearmed", connections / 5.0),
        ("event_batched", connections / 2.0),
        ("event_deleted", connections),
        ("event_takes", connections / 2.0),
        ("event_fallbacks", connections / 5.0),
        ("accept_phases", connections / 2.0),
        ("accepted", connections),
        ("accept_would_block", 100.0),
        ("accept_queue_timed", connections),
        ("accept_queue_ns", 2e6 * connections),
        ("phases_timed", 3.0 * connections),
        ("accept_system_ns", 20e3 * connections),
        ("work_user_ns", 100e3 * connections),
        ("open_at_accept", 10.0 * connections),
        ("work_phases", connections / 4.0),
        ("work_items", connections),
        ("requests", connections),
        ("ring_enters", connections / 2.0),
        ("ring_entries", 4.0 * connections),
        ("ring_completions", 4.5 * connections),
        ("fiber_switches", 3.0 * connections),
        ("context_switches_voluntary", connections),
        ("context_switches_involuntary", connections / 4.0),
        ("cold_lookups", connections / 10.0),
        ("helper_fetches", connections / 20.0),
        ("replies", connections),
    ];
    counted.extend(moved.map(|(name, value)| (name.to_owned(), value)));
    counted
}

fn kernel() -> Kernel {
    let moved = [("Tcp.PassiveOpens", 3000), ("TcpExt.ListenDrops", 40)]
        .into_iter()
        .chain([("TcpExt.ListenOverflows", 20), ("TcpExt.TCPReqQFullDrop", 10)])
        .chain([("TcpExt.TCPReqQFullDoCookies", 4)])
        .map(|(name, by)| (name.to_owned(), by));
    let traced = TracedDrops { overflow: 5, overflow_of_cookie: 1, filter: 8, other: 2 };
    let moved = moved.collect();
    let softnet = Some(Softnet { handled: 19_990, dropped: 10 });
    let kernel = Kernel { window_s: 2.0, moved, softnet, ..Kernel::default() };
    Kernel { traced: Some(traced), syns: Some(3400), ..kernel }
}

/// Two seconds of a processor, as the idle counter has them.
fn core(idle_s: f64) -> CoreTime {
    let (instructions, cycles) = (Some(2e9), Some(1e9));
    let time = CoreTime { total_s: 2.0, busy_s: 2.0 - idle_s, ..CoreTime::default() };
    CoreTime { spinner_s: idle_s, instructions, cycles, ..time }
}
