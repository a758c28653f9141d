//! Metrics of any point with a load: rates, times, errors, processors, and the counters of the
//! server and the kernel that the papers show, over the whole measured window.

use super::metric::{
    core_us_per_reply, counted, counted_rate, counted_ratio, mark, metrics, ms, per_reply, ratio,
};
use crate::measure::kernel::{Drops, Traced, classify};
use crate::record::{Point, Times};

metrics! {
    "reply_rate", "replies", "replies/s", |p| Some(p.load.replies_per_s),
        "Whole replies per second, as the client counts them";
    "goodput", "goodput", "replies/s", goodput,
        "Whole replies per second that are no refusals (2xx, 3xx), as the client counts them";
    "refused_rate", "refusals", "1/s", refused_rate,
        "Requests refused so that the client knew (a reset, a close, 4xx, 5xx), per second";
    "timeout_rate", "requests that waited in vain", "1/s",
        |p| ratio(of_kinds(p, TIMEOUTS), p.load.window_s),
        "Requests that the client gave up after its timeout, per second";
    "session_rate", "sessions", "sessions/s", |p| p.load.sessions_per_s,
        "Sessions whose every reply came, per second, as far as those were no refusals and came \
         while the load was on";
    "started_rate", "requests started", "requests/s", |p| p.load.started_per_s,
        "Requests the client started, per second";
    "error_rate", "errors", "errors/s", |p| ratio(errors(p), p.load.window_s),
        "Requests that ended in an error, per second";
    "error_share", "errors of requests ended", "%", error_share,
        "Of the requests that ended, those in error";
    "response_mean", "response time, mean", "ms", |p| response(p, |t| Some(t.mean_us)),
        "From the planned start to the last byte: mean";
    "response_p50", "response time, median", "ms", |p| response(p, |t| t.p50_us),
        "From the planned start to the last byte: half are no longer";
    "response_p90", "response time, 90th percentile", "ms", |p| response(p, |t| t.p90_us),
        "From the planned start to the last byte: 90 % are no longer";
    "response_p99", "response time, 99th percentile", "ms", |p| response(p, |t| t.p99_us),
        "From the planned start to the last byte: 99 % are no longer";
    "response_max", "response time, longest", "ms", |p| response(p, |t| t.max_us),
        "From the planned start to the last byte: the longest";
    "response_good_p50", "response time of what was served, median", "ms",
        |p| ms(p.load.good_response.as_ref(), |t| t.p50_us),
        "From the planned start to the last byte of replies of 2xx and 3xx, which are no refusals: \
         half are no longer";
    "response_good_p99", "response time of what was served, 99th percentile", "ms",
        |p| ms(p.load.good_response.as_ref(), |t| t.p99_us),
        "The same: 99 % are no longer";
    "connect_mean", "connect time, mean", "ms", |p| connect(p, |t| Some(t.mean_us)),
        "From the actual start to the connection: mean";
    "connect_p50", "connect time, median", "ms", |p| connect(p, |t| t.p50_us),
        "From the actual start to the connection: half are no longer";
    "connect_p99", "connect time, 99th percentile", "ms", |p| connect(p, |t| t.p99_us),
        "From the actual start to the connection: 99 % are no longer";
    "service_mean", "service time, mean", "ms", |p| service(p, |t| Some(t.mean_us)),
        "From the actual start to the last byte: mean";
    "service_p50", "service time, median", "ms", |p| service(p, |t| t.p50_us),
        "From the actual start to the last byte: half are no longer";
    "service_p99", "service time, 99th percentile", "ms", |p| service(p, |t| t.p99_us),
        "From the actual start to the last byte: 99 % are no longer";
    "reply_share", "requests that became replies", "%", reply_share,
        "Of what was planned, what became whole replies";
    "core_busy", "core time, not idle", "%", |p| Some(100.0 * p.cores.server.busy_share()?),
        "Of the server's processors' time, the part in which they had something to do, by the \
         idle counter";
    "core_us_per_reply", "core time a reply", "us",
        |p| core_us_per_reply(p, &p.cores.server),
        "Time the server's processors had something to do, for each reply, by the idle counter";
    "instructions_per_reply", "instructions a reply", "instructions",
        |p| per_reply(p, p.cores.server.instructions),
        "Instructions of the server's processors, for each reply, without the idle counter's: \
         where the machine has counters";
    "cycles_per_reply", "cycles a reply", "cycles",
        |p| per_reply(p, p.cores.server.cycles),
        "Cycles of the server's processors, likewise";
    "server_cpu", "processor time of the server's processes", "%", server_cpu,
        "User and system time of its processes alone, of one processor";
    "server_user", "user time of the server's processes", "%",
        |p| of_processor(p, p.server.cpu_user_s),
        "User time of its processes, of one processor: the kernel divides user from system time \
         at ticks";
    "server_system", "system time of the server's processes", "%",
        |p| of_processor(p, p.server.cpu_system_s),
        "System time of its processes, of one processor: divided from user time at ticks";
    "server_us_per_reply", "processor time of the server a reply", "us", server_us_per_reply,
        "User and system time of its processes alone, for each reply: without the packets handled \
         beside them";
    "server_rss", "memory of the server", "MiB", server_rss,
        "The most its processes had resident, summed: shared pages count in each";
    "c_avg", "connections an accept-phase (C_avg)", "connections",
        |p| counted_ratio(p, "accepted", "accept_phases"),
        "Connections accepted per accept-phase (pariag eq. 4.1)";
    "accepts_per_wait", "connections accepted a wait (C_avg)", "connections",
        |p| counted_ratio(p, "accepted", "getevents_calls"),
        "Connections accepted per call of the event mechanism: C_avg where each call has an \
         accept-phase after it, also one that accepts none (pariag table 4.2)";
    "accepts_max", "connections an accept-phase, most", "connections", |p| mark(p, "accepts_max"),
        "The most accepted in one accept-phase, in one loop";
    "accept_phases", "accept-phases (N_phases)", "phases", |p| counted(p, "accept_phases"),
        "Accept-phases while the load was measured";
    "accept_phase_rate", "accept-phases a second", "1/s", |p| counted_rate(p, "accept_phases"),
        "Accept-phases per second";
    "accepted", "connections accepted", "connections", |p| counted(p, "accepted"),
        "Connections accepted while the load was measured";
    "accept_rate", "connections accepted a second", "1/s", |p| counted_rate(p, "accepted"),
        "N_phases · C_avg / t (pariag eq. 4.1)";
    "accept_queue_mean", "time in the accept queue, mean", "ms", accept_queue_mean,
        "From the end of the handshake to the accept, mean: with `--accept-queue-times`";
    "accept_queue_max", "time in the accept queue, longest", "ms", accept_queue_max,
        "From the end of the handshake to the accept, the longest since the server began: with \
         `--accept-queue-times`";
    "getevents_rate", "waits a second (getevents rate)", "1/s",
        |p| counted_rate(p, "getevents_calls"),
        "Calls of the event mechanism per second: select rate";
    "fds_per_call", "descriptors a wait", "descriptors",
        |p| counted_ratio(p, "getevents_ready", "getevents_calls"),
        "Descriptors a wait returns, mean";
    "fd_rate", "descriptors returned a second (fd-rate)", "1/s",
        |p| counted_rate(p, "getevents_ready"),
        "Waits per second times descriptors per wait";
    "open_mean", "connections open, mean", "connections",
        |p| counted_ratio(p, "open_at_accept", "accepted"),
        "Connections open in a loop, mean over the accepts";
    "open_max", "connections open, most", "connections", |p| mark(p, "open_max"),
        "The most open at once in a loop, since the server began";
    "work_items_mean", "connections served a work-phase, mean", "connections",
        |p| counted_ratio(p, "work_items", "work_phases"),
        "Connections served per work-phase, mean";
    "work_items_max", "connections served a work-phase, most", "connections",
        |p| mark(p, "work_items_max"),
        "The most served in one work-phase, since the server began";
    "accept_would_block_rate", "accepts that found nobody", "1/s",
        |p| counted_rate(p, "accept_would_block"),
        "Accepts that failed with EWOULDBLOCK, per second";
    "read_would_block_rate", "reads that found nothing", "1/s",
        |p| counted_rate(p, "read_would_block"),
        "Reads that failed with EWOULDBLOCK, per second";
    "gone_before_read_rate", "clients gone before the first read", "1/s",
        |p| counted_rate(p, "gone_before_read"),
        "Connections whose client had gone before its first byte was read, per second";
    "never_completed_rate", "connections accepted and never completed", "1/s",
        |p| counted_rate(p, "never_completed"),
        "Connections accepted and closed without one complete reply, per second; a refusal by 503 \
         is a reply";
    "syn_rate", "SYNs at the link", "1/s",
        |p| ratio(p.kernel.syns? as f64, p.kernel.window_s),
        "SYNs to the server's port that reached the link of its network, retransmitted ones too, \
         per second, by a trace: before anything drops them";
    "drops_rate", "connections dropped by the kernel", "1/s", |p| drops(p, |drops| drops.all),
        "Drops of all kinds, per second (ListenDrops)";
    "accept_queue_full_rate", "drops: accept queue full", "1/s",
        |p| drops(p, |drops| drops.accept_queue_full),
        "At the SYN or at the third ACK, which share a counter, per second (ListenOverflows)";
    "accept_queue_full_at_syn_rate", "drops: AcceptQFull", "1/s",
        |p| traced(p, |traced| traced.accept_queue_full_at_syn),
        "Accept queue full at the SYN, per second: ListenOverflows less those traced at the third \
         ACK";
    "listen_overflow_rate", "drops: ListenOverflow", "1/s",
        |p| traced(p, |traced| traced.listen_overflow),
        "Accept queue full at the third ACK, per second, by a trace";
    "syn_queue_full_rate", "drops: SYN queue full", "1/s",
        |p| drops(p, |drops| drops.syn_queue_full),
        "Without cookies, per second (TCPReqQFullDrop)";
    "drop_request_rate", "drops: DropRequest", "1/s", |p| drops(p, |drops| drops.drop_request),
        "SYN queue three quarters full, per second: what of ListenDrops nothing else explains";
    "syn_queue_drops_rate", "drops: no room in the SYN queue", "1/s",
        |p| drops(p, |drops| drops.syn_queue_full + drops.drop_request),
        "Whether it was full or three quarters full, per second: ListenDrops less ListenOverflows";
    "filter_drop_rate", "drops: SYN filter", "1/s", |p| traced(p, |traced| traced.filter),
        "SYNs dropped by the listening socket's filter, per second, by a trace: not in ListenDrops";
    "other_drop_rate", "drops: other packets at the listener", "1/s",
        |p| traced(p, |traced| traced.other),
        "Packets that begin no handshake and complete none, per second, by a trace: SYNs \
         retransmitted while one is answered, resets; not in ListenDrops";
    "softnet_drops", "packets dropped at the processor's queue", "packets",
        |p| Some(p.kernel.softnet?.dropped as f64),
        "Packets that the kernel dropped at the input queues of the server's processors while the \
         load was measured, before TCP: in no other counter";
    "softnet_drop_share", "of packets, dropped at the processor's queue", "%",
        |p| Some(100.0 * p.kernel.softnet?.dropped_share()?),
        "The same, of the packets that came to these queues";
    "cookie_rate", "SYN cookies", "1/s", |p| drops(p, |drops| drops.cookies),
        "SYN queue full and a cookie sent: nothing is dropped, per second (TCPReqQFullDoCookies)";
}

/// The generators' names for errors in which a server refuses a connection, or ends one without a
/// whole reply.
const REFUSALS: &[&str] = &[
    "connect-refused",
    "connect-reset",
    "handshake-reset",
    "reset",
    "closed-early",
    "tls-truncated",
    "connrefused",
    "connreset",
];

/// Minimum share of the accepts whose time in the queue is known if all were asked for: a client
/// that has gone may leave nothing to ask.
const ALL_TIMED: f64 = 0.99;

/// The generators' names for timeouts.
const TIMEOUTS: &[&str] = &[
    "connect-timeout",
    "handshake-timeout",
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

fn refused_rate(point: &Point) -> Option<f64> {
    let refused = of_kinds(point, REFUSALS) + point.load.replies_refused as f64;
    ratio(refused, point.load.window_s)
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

fn server_cpu(point: &Point) -> Option<f64> {
    of_processor(point, point.server.cpu_s())
}

/// Returns a time of the server's processes as a part of one processor's time, %.
fn of_processor(point: &Point, used_s: f64) -> Option<f64> {
    ratio(100.0 * used_s, point.kernel.window_s).filter(|_| point.server.processes > 0)
}

fn server_us_per_reply(point: &Point) -> Option<f64> {
    ratio(1e4 * server_cpu(point)?, point.load.replies_per_s)
}

fn accept_queue_mean(point: &Point) -> Option<f64> {
    let [timed, accepted] = ["accept_queue_timed", "accepted"].map(|name| counted(point, name));
    let all_ms = counted(point, "accept_queue_ns")? / 1e6;
    ratio(all_ms, timed?).filter(|_| are_all_timed(timed, accepted))
}

fn accept_queue_max(point: &Point) -> Option<f64> {
    let [timed, accepted] = ["accept_queue_timed", "accepted"].map(|name| mark(point, name));
    let max_ms = mark(point, "accept_queue_ns_max")? / 1e6;
    Some(max_ms).filter(|_| are_all_timed(timed, accepted))
}

/// Returns whether the time in the accept queue is known of more than a policy's sample, which is
/// of the connections that have waited longest.
fn are_all_timed(timed: Option<f64>, accepted: Option<f64>) -> bool {
    let share = timed.zip(accepted).and_then(|(timed, accepted)| ratio(timed, accepted));
    share.is_some_and(|share| share >= ALL_TIMED)
}

fn server_rss(point: &Point) -> Option<f64> {
    let bytes = point.server.rss_max_bytes;
    (bytes > 0).then(|| bytes as f64 / f64::from(1 << 20))
}

fn drops(point: &Point, of: fn(&Drops) -> u64) -> Option<f64> {
    ratio(of(&classify(&point.kernel)) as f64, point.kernel.window_s)
}

/// Returns a rate of drops that only a trace knows; `None` without one.
fn traced(point: &Point, of: fn(&Traced) -> u64) -> Option<f64> {
    let traced = classify(&point.kernel).traced?;
    ratio(of(&traced) as f64, point.kernel.window_s)
}
