//! Consistency checks of a point: compares independent counts that must agree, and flags what makes
//! a point doubtful. Reads records only; nothing is measured here.
//!
//! The accept identity (pariag-accept eq. 4.1: AcceptRate = N_phases · C_avg / t) cannot fail
//! within one server's statistics, because C_avg is computed from the other two. It is therefore
//! checked against three independent counts:
//!
//! - the kernel's connections handed to the accept queue (Tcp.PassiveOpens), as rates over the
//!   measured window: they may differ by the capacity of the queue, and by what happens between the
//!   samples of the server and of the kernel;
//! - the client's connections, over the whole run: they may differ by connections that ended in
//!   errors, the idle ones beside the load, and the lab's own;
//! - the profile's accept calls, if one is kept: each accepted or failed.
//!
//! Eq. 4.2, C_avg ≤ accept-limit, is checked against the limit of the command.

use crate::measure::kernel;
use crate::record::{CoreTime, Flag, Point, WholeRun};

/// Maximum number of connections the lab itself opens to check that a server is up.
const PROBES_MAX: f64 = 16.0;
/// Relative difference allowed in a rate because the server and the kernel are not sampled at the
/// same instant.
const SKEW_MAX: f64 = 0.05;
/// Share of the packets that may be dropped at the processors' queues without a word.
const SOFTNET_DROPS_MAX: f64 = 0.001;
/// Listen backlog of `weir serve` by default.
const LISTENQ: f64 = 4096.0;
/// Maximum number of connections that the accept-limit `auto` accepts in a phase.
const AUTO_MAX: f64 = 16.0;

/// Returns every inconsistency of a point; empty if there is none.
pub fn flags(point: &Point) -> Vec<Flag> {
    let mut flags = Vec::new();
    let mut add = |kind: &str, says: Option<String>| {
        flags.extend(says.map(|says| Flag { kind: kind.to_owned(), says }));
    };
    add(if point.load.late_only { "late" } else { "invalid" }, invalid(point));
    if point.probe.is_some() {
        // Without a load, no requests were served.
        return flags;
    }
    add("server", point.server.trouble.clone());
    add("identity", unchecked(point));
    add("server", answered_late(point));
    add("identity", accepted_and_kernel(point));
    add("identity", accepted_and_client(point));
    add("identity", accepted_and_calls(point));
    add("identity", above_limit(point));
    add("counts", replies_differ(point));
    add("beside", background_fell_short(point));
    add("steal", stolen("server", &point.cores.server));
    add("steal", stolen("client", &point.cores.client));
    add("core", doubted("server", &point.cores.server));
    add("core", doubted("client", &point.cores.client));
    add("softnet", dropped_unseen(point));
    flags
}

/// Returns the accept-limit of a `weir serve` command: the maximum of C_avg. `None` if there is no
/// bound, or the command cannot be interpreted. Only the accept policy `limit` implies one; the
/// others, including the default, also depend on the time and the queue.
pub fn accept_limit(command: &str) -> Option<f64> {
    let policy = option(command, "--accept-policy");
    if policy.is_some_and(|policy| policy != "limit") {
        return None;
    }
    let limit = match (option(command, "--accept-limit"), option(command, "--preset")) {
        (Some(limit), _) => limit.to_owned(),
        (None, None | Some("default")) if policy.is_none() => return None,
        (None, None | Some("default")) => "auto".to_owned(),
        // The presets with a limit contain it in their names: accept1, accept25+$.
        (None, Some(preset)) => {
            let digits = preset.strip_prefix("accept")?;
            digits.chars().take_while(char::is_ascii_digit).collect()
        }
    };
    match limit.to_ascii_lowercase().as_str() {
        "auto" => Some(AUTO_MAX),
        number => number.parse().ok().filter(|limit: &u32| *limit > 0).map(f64::from),
    }
}

/// Returns the value of an option in a command, without shell quotes.
fn option<'a>(command: &'a str, name: &str) -> Option<&'a str> {
    let mut words = command.split_whitespace();
    let value = loop {
        let word = words.next()?;
        if word == name {
            break words.next()?;
        }
        if let Some(value) = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
            break value;
        }
    };
    Some(value.trim_matches(['\'', '"']))
}

fn number(command: &str, name: &str) -> Option<f64> {
    option(command, name)?.parse().ok()
}

fn invalid(point: &Point) -> Option<String> {
    let reasons = &point.load.reasons;
    (!point.load.valid).then(|| match reasons.is_empty() {
        true => "the load generator says INVALID".to_owned(),
        false => format!("the load generator says INVALID: {}", reasons.join("; ")),
    })
}

/// Flags a weir server without statistics: none of the checks below is possible then.
fn unchecked(point: &Point) -> Option<String> {
    let server = &point.server;
    let missing = server.counted.is_empty() || server.counted_whole.is_empty();
    (server.version.starts_with("weir") && missing)
        .then(|| "the server's statistics are missing: its counts could not be checked".to_owned())
}

/// Flags statistics that cover another window, because the server's loop did not answer in time.
fn answered_late(point: &Point) -> Option<String> {
    let (elapsed_s, window_s) = (point.server.counted.get("elapsed_s")?, point.kernel.window_s);
    (!same_time(*elapsed_s, window_s)).then(|| {
        format!(
            "its statistics are of {elapsed_s:.3} s and not of the {window_s:.3} s that were \
             measured: its loop did not come out of a phase to answer, and they are not used"
        )
    })
}

/// Returns the counts of all clients, including those beside the load; `None` if any did not report
/// them.
fn clients(point: &Point) -> Option<WholeRun> {
    let load = point.load.whole?;
    let Some(background_load) = &point.background_load else { return Some(load) };
    let background_load = background_load.load.whole?;
    Some(WholeRun {
        replies: load.replies + background_load.replies,
        errors: load.errors + background_load.errors,
        connected: load.connected + background_load.connected,
    })
}

/// Flags clients beside the load that did not reach their planned number.
fn background_fell_short(point: &Point) -> Option<String> {
    let background_load = point.background_load.as_ref()?;
    let load = &background_load.load;
    (!load.has_valid_counts()).then(|| {
        format!("the {} clients beside the load: {}", background_load.kind, load.reasons.join("; "))
    })
}

/// Returns whether the window that the server counted matches the requested one to within a fifth:
/// the server answers only between its phases.
pub fn same_time(elapsed_s: f64, window_s: f64) -> bool {
    (elapsed_s - window_s).abs() <= 0.2 * window_s
}

/// Compares N_phases · C_avg / t of the server with the kernel's connections per second.
fn accepted_and_kernel(point: &Point) -> Option<String> {
    let counted = |name: &str| point.server.counted.get(name).copied();
    let (phases, accepted, t) =
        (counted("accept_phases")?, counted("accepted")?, counted("elapsed_s")?);
    let window_s = point.kernel.window_s;
    if t <= 0.0 || window_s <= 0.0 || !same_time(t, window_s) {
        return None;
    }
    let c_avg = if phases > 0.0 { accepted / phases } else { 0.0 };
    let server = phases * c_avg / t;
    let kernel = kernel::count(&point.kernel, "Tcp.PassiveOpens") as f64 / window_s;
    let slack = SKEW_MAX * server.max(kernel) + (queue_max(point) + 1.0) / t.min(window_s);
    // In a shared namespace the kernel counts for other servers too.
    let wrong = server - kernel > slack || (!point.kernel.shared && kernel - server > slack)
        // Accepted without any accept-phase: the first factor is wrong.
        || (phases <= 0.0 && accepted > 0.0);
    wrong.then(|| {
        format!(
            "the accept identity does not hold: N_phases {phases:.0} · C_avg {c_avg:.3} / t {t:.3} \
             s = {server:.1}/s, but the kernel had {kernel:.1} connections/s ± {slack:.1}"
        )
    })
}

/// Returns the maximum change of the accept queues, connections: their length, or, if no client
/// gave up, the number of connections open at once.
fn queue_max(point: &Point) -> f64 {
    let command = &point.server.command;
    // By default, one loop with its own queue per processor.
    let processors = point.cores.server.total_s / point.kernel.window_s;
    let queues = number(command, "--workers").unwrap_or_else(|| processors.round()).max(1.0);
    let length = queues * (number(command, "--listenq").unwrap_or(LISTENQ) + 1.0);
    let errors: u64 = point.load.errors.values().sum();
    let gave_up = errors + clients(point).map_or(0, |whole| whole.errors) > 0;
    match point.load.open_max {
        Some(open) if !gave_up && point.background_load.is_none() => {
            length.min(open as f64 + idle(point))
        }
        _ => length,
    }
}

/// Returns the number of idle connections beside the load.
fn idle(point: &Point) -> f64 {
    number(&point.load.command, "--idle").unwrap_or(0.0)
}

/// Compares the connections accepted over the server's lifetime with those the clients opened.
fn accepted_and_client(point: &Point) -> Option<String> {
    let whole = clients(point)?;
    let counted = |name: &str| point.server.counted_whole.get(name).copied();
    let accepted = counted("accepted")?;
    // A generator that does not report connections has none.
    if whole.connected == 0 && whole.replies > 0 {
        return None;
    }
    let (connected, errors) = (whole.connected as f64, whole.errors as f64);
    let closed = ["timeout_header", "timeout_idle", "evicted"];
    let opened_again: f64 = closed.iter().filter_map(|name| counted(name)).sum();
    let extra = errors + idle(point) + opened_again + PROBES_MAX;
    (accepted + errors < connected || accepted > connected + extra).then(|| {
        format!(
            "the server accepted {accepted:.0} connections and the client made {connected:.0}: \
             its {errors:.0} errors and the connections beside the load do not explain that"
        )
    })
}

/// Compares the outcomes of accepts in the server's statistics with the accept calls of its
/// profile.
fn accepted_and_calls(point: &Point) -> Option<String> {
    let counted = |name: &str| point.server.counted.get(name).copied();
    let outcomes = ["accepted", "accept_would_block", "accept_failed", "accept_aborted"];
    let outcomes: f64 = outcomes.iter().map(|name| counted(name)).sum::<Option<f64>>()?;
    if point.server.calls.is_empty() {
        return None;
    }
    let calls = point.server.calls.iter().find(|call| call.name == "accept4");
    let calls = calls.map_or(0, |call| call.count) as f64;
    ((calls - outcomes).abs() > 2.0 + 0.001 * calls).then(|| {
        format!("the server made {calls:.0} accept calls, but counts what came of {outcomes:.0}")
    })
}

/// Checks C_avg ≤ accept-limit (eq. 4.2), over the measured window and over the whole run.
fn above_limit(point: &Point) -> Option<String> {
    let server = &point.server;
    let limit = accept_limit(&server.command)?;
    let averages = [&server.counted, &server.counted_whole].into_iter().filter_map(|counted| {
        let phases = *counted.get("accept_phases")?;
        Some(counted.get("accepted")? / phases).filter(|_| phases > 0.0)
    });
    let c_avg = averages.fold(0.0, f64::max);
    (c_avg > limit)
        .then(|| format!("C_avg {c_avg:.3} is above the accept-limit {limit} (pariag eq. 4.2)"))
}

/// Compares the replies of the whole run. The server may have more, but no more than the client's
/// errors explain: a reply may be sent whole to a client that has given up and counts it as an
/// error.
fn replies_differ(point: &Point) -> Option<String> {
    let WholeRun { replies: client, errors, .. } = clients(point)?;
    let server = *point.server.counted_whole.get("replies")? as u64;
    let by = server.abs_diff(client);
    let why = if server < client {
        "replies that the server does not know of".to_owned()
    } else {
        format!("more than the {errors} errors of the client can explain")
    };
    (server < client || by > errors).then(|| {
        format!("the server counts {server} replies and the client {client}: {by} apart, {why}")
    })
}

fn stolen(side: &str, time: &CoreTime) -> Option<String> {
    let percent = 100.0 * time.host_share();
    let is_kernels = time.steal_share.is_some_and(|share| share > time.stolen_share);
    let by = if is_kernels { ", by the kernel's account" } else { "" };
    time.is_stolen()
        .then(|| format!("the host took {percent:.1} % of the {side}'s processor time{by}"))
}

fn doubted(side: &str, time: &CoreTime) -> Option<String> {
    let why = time.doubt.as_ref()?;
    Some(format!("core time of the {side} is left out: {why}"))
}

/// Flags packets that the server's kernel dropped before TCP could count them.
fn dropped_unseen(point: &Point) -> Option<String> {
    let softnet = point.kernel.softnet?;
    let share = softnet.dropped_share().filter(|share| *share > SOFTNET_DROPS_MAX)?;
    Some(format!(
        "the kernel dropped {} packets at the input queue of the server's processor, {:.1} % of \
         those that came: they are in no other counter",
        softnet.dropped,
        100.0 * share
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::fixtures;
    use crate::record::{BackgroundLoad, CallCount, LoadResult, Softnet};

    fn kinds(point: &Point) -> Vec<String> {
        flags(point).into_iter().map(|flag| flag.kind).collect()
    }

    fn says(change: impl FnOnce(&mut Point)) -> String {
        let mut point = fixtures::point();
        change(&mut point);
        let flags = flags(&point);
        assert_eq!(flags.len(), 1, "{flags:?}");
        format!("{}: {}", flags[0].kind, flags[0].says)
    }

    #[test]
    fn a_point_that_fits_has_no_flag() {
        let flags = flags(&fixtures::point());
        assert!(flags.is_empty(), "{flags:?}");
    }

    #[test]
    fn a_peer_without_statistics_of_its_own_has_no_identity_to_break() {
        let mut point = fixtures::point();
        point.server.version = "nginx/1.22.1".into();
        point.server.counted.clear();
        point.server.counted_whole.clear();
        point.server.calls.clear();
        assert_eq!(kinds(&point), [""; 0]);
        point.server.version = "weir 0.1.0".into();
        assert_eq!(kinds(&point), ["identity"]);
    }

    #[test]
    fn accepts_that_the_kernel_does_not_know_of_are_flagged() {
        let opens = |by: u64| {
            move |point: &mut Point| {
                point.kernel.moved.insert("Tcp.PassiveOpens".into(), by);
            }
        };
        let said = says(opens(2000));
        assert!(said.starts_with("identity: the accept identity does not hold"), "{said}");
        assert!(said.contains("1000.0 connections/s"), "{said}");
        assert!(says(opens(4000)).contains("2000.0 connections/s"));
        // In a shared namespace the kernel counts connections of others too.
        let mut point = fixtures::point();
        opens(4000)(&mut point);
        point.kernel.shared = true;
        assert_eq!(kinds(&point), [""; 0]);
        opens(2000)(&mut point);
        assert_eq!(kinds(&point), ["identity"]);
    }

    #[test]
    fn a_wrong_time_of_the_server_breaks_the_identity() {
        let said = says(|point| {
            point.server.counted.insert("elapsed_s".into(), 2.3);
        });
        assert!(said.contains("t 2.300 s = 1304.3/s"), "{said}");
    }

    #[test]
    fn statistics_of_another_time_are_flagged_and_not_used() {
        let late = |point: &mut Point| {
            point.server.counted.insert("elapsed_s".into(), 0.04);
        };
        assert!(says(late).starts_with("server: its statistics are of 0.040 s"), "{}", says(late));
        let mut point = fixtures::point();
        assert!(crate::metrics::value(&point, "c_avg").is_some());
        late(&mut point);
        assert_eq!(crate::metrics::value(&point, "c_avg"), None);
        assert_eq!(crate::metrics::value(&point, "calls.accept4.share"), None);
        assert!(crate::metrics::value(&point, "reply_rate").is_some());
    }

    #[test]
    fn connections_that_a_queue_may_hold_are_no_difference() {
        let mut point = fixtures::point();
        point.load.whole = Some(WholeRun { errors: 900, ..point.load.whole.unwrap() });
        point.kernel.moved.insert("Tcp.PassiveOpens".into(), 3900);
        // Clients gave up, so the queue may have been full of their connections, if it is long
        // enough.
        assert_eq!(kinds(&point), [""; 0]);
        point.server.command.push_str(" --listenq 128");
        assert_eq!(kinds(&point), ["identity"]);
    }

    #[test]
    fn connections_that_only_one_side_knows_of_are_flagged() {
        let connected = |n: u64| {
            move |point: &mut Point| {
                point.load.whole = Some(WholeRun { connected: n, ..point.load.whole.unwrap() });
            }
        };
        let said = says(connected(5001));
        assert!(said.starts_with("identity: the server accepted 5000"), "{said}");
        assert!(says(connected(4000)).contains("the client made 4000"));
        // The lab's own connections, and the idle ones.
        let mut point = fixtures::point();
        connected(4990)(&mut point);
        assert_eq!(kinds(&point), [""; 0]);
        connected(4000)(&mut point);
        point.load.command.push_str(" --idle 1000");
        assert_eq!(kinds(&point), [""; 0]);
        // wrk counts no connections.
        connected(0)(&mut point);
        assert_eq!(kinds(&point), [""; 0]);
    }

    #[test]
    fn accept_calls_that_came_to_nothing_known_are_flagged() {
        let said = says(|point| {
            point.server.calls =
                vec![CallCount { name: "accept4".into(), count: 3200, time_s: None }];
        });
        assert!(said.contains("3200 accept calls, but counts what came of 3100"), "{said}");
    }

    #[test]
    fn an_average_above_the_limit_is_flagged() {
        let said = says(|point| {
            point.server.command = "weir serve --preset accept1".into();
        });
        assert!(said.contains("C_avg 2.000 is above the accept-limit 1"), "{said}");
    }

    #[test]
    fn the_limit_is_read_from_a_command() {
        let limit = |options: &str| accept_limit(&format!("weir serve {options} --workers 1"));
        assert_eq!(limit("--accept-limit 10"), Some(10.0));
        assert_eq!(limit("--preset accept1 --accept-limit=inf"), None);
        assert_eq!(limit("--accept-limit 0"), None);
        assert_eq!(limit("--accept-limit auto"), Some(16.0));
        assert_eq!(limit("--preset accept10"), Some(10.0));
        assert_eq!(limit("--preset 'accept25+$'"), Some(25.0));
        assert_eq!(limit("--preset acceptinf"), None);
        assert_eq!(limit("--preset cm"), None);
        assert_eq!(limit("--accept-policy limit --preset default"), Some(16.0));
        assert_eq!(limit("--accept-policy limit"), Some(16.0));
        assert_eq!(limit("--accept-policy limit --accept-limit 10"), Some(10.0));
        assert_eq!(limit("--accept-policy codel --accept-limit 10"), None);
        assert_eq!(limit("--preset default"), None);
        assert_eq!(limit(""), None);
    }

    #[test]
    fn replies_differ_only_by_what_errors_explain() {
        let replies = |server: f64, errors: u64| {
            let mut point = fixtures::point();
            point.load.whole = Some(WholeRun { errors, ..point.load.whole.unwrap() });
            point.server.counted_whole.insert("replies".into(), server);
            point
        };
        let kinds_of = |server, errors| kinds(&replies(server, errors));
        assert_eq!(kinds_of(5000.0, 0), [""; 0]);
        assert_eq!(kinds_of(5001.0, 0), ["counts"]);
        assert_eq!(kinds_of(4999.0, 10), ["counts"]);
        assert_eq!(kinds_of(5010.0, 10), [""; 0]);
        assert_eq!(kinds_of(5011.0, 10), ["counts"]);
        let said = &flags(&replies(5012.0, 10))[0].says;
        assert!(said.contains("12 apart, more than the 10 errors"), "{said}");
        let mut untold = fixtures::point();
        untold.load.whole = None;
        assert_eq!(replies_differ(&untold), None);
    }

    #[test]
    fn clients_beside_the_load_are_clients_too() {
        let whole = |connected, replies, errors| WholeRun { replies, errors, connected };
        let with = |theirs: WholeRun| {
            let mut point = fixtures::point();
            let counted = &mut point.server.counted_whole;
            counted.insert("accepted".into(), 6000.0);
            counted.insert("replies".into(), 5700.0);
            let load = LoadResult { valid: true, whole: Some(theirs), ..LoadResult::default() };
            point.background_load = Some(BackgroundLoad { kind: "mute".into(), load });
            point
        };
        assert_eq!(kinds(&with(whole(1000, 700, 300))), [""; 0]);
        assert_eq!(kinds(&with(whole(1000, 500, 200))), [""; 0]);
        assert_eq!(kinds(&with(whole(1000, 500, 100))), ["counts"]);
        assert_eq!(kinds(&with(whole(100, 700, 0))), ["identity"]);
    }

    #[test]
    fn clients_beside_the_load_that_fell_short_are_flagged() {
        let said = says(|point| {
            let load = LoadResult {
                whole: Some(WholeRun::default()),
                reasons: vec!["No port was free".into()],
                ..LoadResult::default()
            };
            point.background_load = Some(BackgroundLoad { kind: "mute".into(), load });
        });
        assert_eq!(said, "beside: the mute clients beside the load: No port was free");
    }

    #[test]
    fn a_probe_has_no_load_to_be_held_against() {
        assert_eq!(kinds(&fixtures::probed()), Vec::<String>::new());
    }

    #[test]
    fn an_invalid_load_a_server_in_trouble_and_a_greedy_host_are_flagged() {
        let said = says(|point| {
            point.load.valid = false;
            point.load.reasons = vec!["starts were late".into()];
        });
        assert_eq!(said, "invalid: the load generator says INVALID: starts were late");
        let said = says(|point| point.server.trouble = Some("it ended by signal 9".into()));
        assert_eq!(said, "server: it ended by signal 9");
        let said = says(|point| point.cores.client.stolen_share = 0.091);
        assert!(said.starts_with("steal: the host took 9.1 % of the client's"), "{said}");
        let said = says(|point| point.cores.server.stolen_share = 0.2);
        assert!(said.contains("server's"), "{said}");
        let said = says(|point| point.cores.server.steal_share = Some(0.2));
        assert!(said.ends_with("the server's processor time, by the kernel's account"), "{said}");
        let said = says(|point| point.cores.server.doubt = Some("it drifted".into()));
        assert_eq!(said, "core: core time of the server is left out: it drifted");
    }

    #[test]
    fn packets_dropped_at_a_processors_queue_are_flagged_above_one_of_a_thousand() {
        let of = |dropped| {
            let mut point = fixtures::point();
            point.kernel.softnet = Some(Softnet { handled: 1_000_000 - dropped, dropped });
            point
        };
        assert_eq!((kinds(&of(1000)), kinds(&of(1001))), (vec![], vec!["softnet".to_owned()]));
        let said = &flags(&of(125_000))[0].says;
        assert!(said.contains("dropped 125000 packets") && said.contains("12.5 %"), "{said}");
    }
}
