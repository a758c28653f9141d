//! Metrics of any point with a load: rates, times, errors, processors, and the counters of the
//! server and the kernel that the papers show.

use super::metric::{Metric, counted, counted_rate, counted_ratio, mark, metric, ms, ratio};
use crate::measure::kernel::{Drops, classify};
use crate::record::{CoreTime, Point, Times};

/// Metrics of a load, its server and the kernel, over the whole measured window.
pub(super) const TABLE: &[Metric] = &[
    metric(
        "reply_rate",
        "replies",
        "replies/s",
        "Whole replies a second, as the client counts them",
        |p| Some(p.load.replies_per_s),
    ),
    metric(
        "goodput",
        "goodput",
        "replies/s",
        "Whole replies a second that are no refusals (2xx, 3xx), as the client counts them",
        goodput,
    ),
    metric(
        "refused_rate",
        "refusals",
        "1/s",
        "Requests refused so that the client knew (a reset, a close, 4xx, 5xx), a second",
        |p| {
            let refused = of_kinds(p, REFUSALS) + p.load.replies_refused as f64;
            ratio(refused, p.load.window_s)
        },
    ),
    metric(
        "timeout_rate",
        "requests that waited in vain",
        "1/s",
        "Requests that the client gave up after its timeout, a second",
        |p| ratio(of_kinds(p, TIMEOUTS), p.load.window_s),
    ),
    metric(
        "session_rate",
        "sessions",
        "sessions/s",
        "Sessions whose every reply came, a second, over the time to the last reply",
        |p| p.load.sessions_per_s,
    ),
    metric(
        "started_rate",
        "requests started",
        "requests/s",
        "Requests the client started, a second",
        |p| p.load.started_per_s,
    ),
    metric("error_rate", "errors", "errors/s", "Requests that ended in an error, a second", |p| {
        ratio(errors(p), p.load.window_s)
    }),
    metric(
        "error_share",
        "errors of requests ended",
        "%",
        "Of the requests that ended, those in error",
        error_share,
    ),
    metric(
        "response_mean",
        "response time, mean",
        "ms",
        "From the planned start to the last byte: mean",
        |p| response(p, |t| Some(t.mean_us)),
    ),
    metric(
        "response_p50",
        "response time, median",
        "ms",
        "From the planned start to the last byte: half are no longer",
        |p| response(p, |t| t.p50_us),
    ),
    metric(
        "response_p90",
        "response time, 90th percentile",
        "ms",
        "From the planned start to the last byte: 90 % are no longer",
        |p| response(p, |t| t.p90_us),
    ),
    metric(
        "response_p99",
        "response time, 99th percentile",
        "ms",
        "From the planned start to the last byte: 99 % are no longer",
        |p| response(p, |t| t.p99_us),
    ),
    metric(
        "response_max",
        "response time, longest",
        "ms",
        "From the planned start to the last byte: the longest",
        |p| response(p, |t| t.max_us),
    ),
    metric(
        "connect_mean",
        "connect time, mean",
        "ms",
        "From the actual start to the connection: mean",
        |p| connect(p, |t| Some(t.mean_us)),
    ),
    metric(
        "connect_p50",
        "connect time, median",
        "ms",
        "From the actual start to the connection: half are no longer",
        |p| connect(p, |t| t.p50_us),
    ),
    metric(
        "connect_p99",
        "connect time, 99th percentile",
        "ms",
        "From the actual start to the connection: 99 % are no longer",
        |p| connect(p, |t| t.p99_us),
    ),
    metric(
        "service_mean",
        "service time, mean",
        "ms",
        "From the actual start to the last byte: mean",
        |p| service(p, |t| Some(t.mean_us)),
    ),
    metric(
        "service_p50",
        "service time, median",
        "ms",
        "From the actual start to the last byte: half are no longer",
        |p| service(p, |t| t.p50_us),
    ),
    metric(
        "service_p99",
        "service time, 99th percentile",
        "ms",
        "From the actual start to the last byte: 99 % are no longer",
        |p| service(p, |t| t.p99_us),
    ),
    metric(
        "reply_share",
        "requests that became replies",
        "%",
        "Of what was planned, what became whole replies",
        reply_share,
    ),
    metric(
        "core_busy",
        "core time, not idle",
        "%",
        "Of the server's processors' time: neither idle nor taken by the host",
        |p| core(p, CoreTime::busy_s),
    ),
    metric(
        "core_user",
        "core time, user",
        "%",
        "Of the server's processors' time: programs",
        |p| core(p, |time| time.user_s),
    ),
    metric(
        "core_system",
        "core time, system",
        "%",
        "Of the server's processors' time: the kernel for programs",
        |p| core(p, |time| time.system_s),
    ),
    metric(
        "core_softirq",
        "core time, softirq",
        "%",
        "Of the server's processors' time: packets, mostly; a lower bound",
        |p| core(p, |time| time.softirq_s),
    ),
    metric("core_idle", "core time, idle", "%", "Of the server's processors' time: idle", |p| {
        core(p, |time| time.idle_s)
    }),
    metric(
        "core_us_per_reply",
        "core time a reply",
        "us",
        "Time the server's processors were not idle, for each reply; without what the host took",
        core_us_per_reply,
    ),
    metric(
        "server_cpu",
        "processor time of the server's processes",
        "%",
        "User and system time of its processes alone, of one processor",
        server_cpu,
    ),
    metric(
        "server_us_per_reply",
        "processor time of the server a reply",
        "us",
        "User and system time of its processes alone, for each reply: exact where that of the \
         processors is sampled at ticks, but without the packets handled beside them",
        server_us_per_reply,
    ),
    metric(
        "server_rss",
        "memory of the server",
        "MiB",
        "The most its processes had resident, summed: shared pages count in each",
        server_rss,
    ),
    metric(
        "c_avg",
        "connections an accept-phase (C_avg)",
        "connections",
        "Connections accepted an accept-phase (pariag eq. 4.1)",
        |p| counted_ratio(p, "accepted", "accept_phases"),
    ),
    metric(
        "accept_phases",
        "accept-phases (N_phases)",
        "phases",
        "Accept-phases while the load was measured",
        |p| counted(p, "accept_phases"),
    ),
    metric("accept_phase_rate", "accept-phases a second", "1/s", "Accept-phases a second", |p| {
        counted_rate(p, "accept_phases")
    }),
    metric(
        "accepted",
        "connections accepted",
        "connections",
        "Connections accepted while the load was measured",
        |p| counted(p, "accepted"),
    ),
    metric(
        "accept_rate",
        "connections accepted a second",
        "1/s",
        "N_phases · C_avg / t (pariag eq. 4.1)",
        |p| counted_rate(p, "accepted"),
    ),
    metric(
        "getevents_rate",
        "waits a second (getevents rate)",
        "1/s",
        "Calls of the event mechanism a second: select rate",
        |p| counted_rate(p, "getevents_calls"),
    ),
    metric(
        "fds_per_call",
        "descriptors a wait",
        "descriptors",
        "Descriptors a wait returns, mean",
        |p| counted_ratio(p, "getevents_ready", "getevents_calls"),
    ),
    metric(
        "fd_rate",
        "descriptors returned a second (fd-rate)",
        "1/s",
        "Waits a second times descriptors a wait",
        |p| counted_rate(p, "getevents_ready"),
    ),
    metric(
        "open_mean",
        "connections open, mean",
        "connections",
        "Connections open in a loop, mean over the accepts",
        |p| counted_ratio(p, "open_at_accept", "accepted"),
    ),
    metric(
        "open_max",
        "connections open, most",
        "connections",
        "The most open at once in a loop, since the server began",
        |p| mark(p, "open_max"),
    ),
    metric(
        "work_items_mean",
        "connections served a work-phase, mean",
        "connections",
        "Connections served a work-phase, mean",
        |p| counted_ratio(p, "work_items", "work_phases"),
    ),
    metric(
        "work_items_max",
        "connections served a work-phase, most",
        "connections",
        "The most served in one work-phase, since the server began",
        |p| mark(p, "work_items_max"),
    ),
    metric(
        "accept_would_block_rate",
        "accepts that found nobody",
        "1/s",
        "Accepts that failed with EWOULDBLOCK, a second",
        |p| counted_rate(p, "accept_would_block"),
    ),
    metric(
        "read_would_block_rate",
        "reads that found nothing",
        "1/s",
        "Reads that failed with EWOULDBLOCK, a second",
        |p| counted_rate(p, "read_would_block"),
    ),
    metric(
        "gone_before_read_rate",
        "clients gone before the first read",
        "1/s",
        "Connections whose client had gone before its first byte was read, a second",
        |p| counted_rate(p, "gone_before_read"),
    ),
    metric(
        "drops_rate",
        "connections dropped by the kernel",
        "1/s",
        "Drops of all kinds, a second (ListenDrops)",
        |p| drops(p, |drops| drops.all),
    ),
    metric(
        "accept_queue_full_rate",
        "drops: accept queue full",
        "1/s",
        "At the SYN or at the third ACK, which share a counter, a second (ListenOverflows)",
        |p| drops(p, |drops| drops.accept_queue_full),
    ),
    metric(
        "syn_queue_full_rate",
        "drops: SYN queue full",
        "1/s",
        "Without cookies, a second (TCPReqQFullDrop)",
        |p| drops(p, |drops| drops.syn_queue_full),
    ),
    metric(
        "drop_request_rate",
        "drops: DropRequest",
        "1/s",
        "SYN queue three quarters full, a second: what of ListenDrops nothing else explains",
        |p| drops(p, |drops| drops.drop_request),
    ),
    metric(
        "syn_queue_drops_rate",
        "drops: no room in the SYN queue",
        "1/s",
        "Whether it was full or three quarters full, a second: ListenDrops less ListenOverflows",
        |p| drops(p, |drops| drops.syn_queue_full + drops.drop_request),
    ),
    metric(
        "cookie_rate",
        "SYN cookies",
        "1/s",
        "SYN queue full and a cookie sent: nothing is dropped, a second (TCPReqQFullDoCookies)",
        |p| drops(p, |drops| drops.cookies),
    ),
];

/// The generators' names for errors in which a server refuses a connection, or ends one without a
/// whole reply.
const REFUSALS: &[&str] =
    &["connect-refused", "connect-reset", "reset", "closed-early", "connrefused", "connreset"];

/// The generators' names for timeouts.
const TIMEOUTS: &[&str] = &[
    "connect-timeout",
    "send-timeout",
    "reply-timeout",
    "deadline",
    "client-timo",
    "socket-timo",
    "timeout",
];

fn of_kinds(point: &Point, kinds: &[&str]) -> f64 {
    let errors = point.load.errors.iter();
    let counted = errors.filter(|(kind, _)| kinds.contains(&kind.as_str()));
    counted.map(|(_, count)| *count).sum::<u64>() as f64
}

/// Returns the goodput. If the generator does not report it, refusals are assumed to be in time as
/// often as other replies.
fn goodput(point: &Point) -> Option<f64> {
    let load = &point.load;
    let share = ratio(load.replies_refused as f64, load.replies as f64).unwrap_or(0.0);
    let all = Some(load.replies_per_s).filter(|all| *all > 0.0 || load.window_s > 0.0);
    load.good_per_s.or_else(|| Some(all? * (1.0 - share)))
}

fn errors(point: &Point) -> f64 {
    point.load.errors.values().sum::<u64>() as f64
}

fn error_share(point: &Point) -> Option<f64> {
    let errors = errors(point);
    ratio(100.0 * errors, errors + point.load.replies as f64)
}

fn reply_share(point: &Point) -> Option<f64> {
    let load = &point.load;
    match (load.planned_per_s, point.rate, load.sessions_per_s) {
        (Some(planned), _, _) => ratio(100.0 * load.replies_per_s, planned),
        (None, Some(planned), Some(sessions)) => ratio(100.0 * sessions, planned),
        _ => None,
    }
}

fn response(point: &Point, of: fn(&Times) -> Option<f64>) -> Option<f64> {
    ms(point.load.response.as_ref(), of)
}

fn connect(point: &Point, of: fn(&Times) -> Option<f64>) -> Option<f64> {
    ms(point.load.connect.as_ref(), of)
}

fn service(point: &Point, of: fn(&Times) -> Option<f64>) -> Option<f64> {
    ms(point.load.service.as_ref(), of)
}

/// Returns a part of the time of the server's processors, %.
fn core(point: &Point, of: fn(&CoreTime) -> f64) -> Option<f64> {
    let time = &point.cores.server;
    ratio(100.0 * of(time), time.total_s())
}

/// Returns the processor time per reply, computed from rates because the load and the processors
/// are measured over slightly different windows.
fn core_us_per_reply(point: &Point) -> Option<f64> {
    let cores = &point.cores.server;
    let busy = ratio(cores.busy_s(), point.kernel.window_s).filter(|_| cores.total_s() > 0.0)?;
    ratio(1e6 * busy, point.load.replies_per_s)
}

fn server_cpu(point: &Point) -> Option<f64> {
    let server = &point.server;
    let used_s = server.cpu_user_s + server.cpu_system_s;
    ratio(100.0 * used_s, point.kernel.window_s).filter(|_| server.processes > 0)
}

fn server_us_per_reply(point: &Point) -> Option<f64> {
    ratio(1e4 * server_cpu(point)?, point.load.replies_per_s)
}

fn server_rss(point: &Point) -> Option<f64> {
    let bytes = point.server.rss_max_bytes;
    (bytes > 0).then(|| bytes as f64 / f64::from(1 << 20))
}

fn drops(point: &Point, of: fn(&Drops) -> u64) -> Option<f64> {
    ratio(of(&classify(&point.kernel)) as f64, point.kernel.window_s)
}
