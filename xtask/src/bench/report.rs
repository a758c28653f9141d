//! The summary of a case: a table of medians, the ratios paired within a round, and how it was
//! measured. Pure: runs in, Markdown out.

use std::fmt::Write;

use super::cases::{Case, Per};
use super::machine::Setup;
use super::page::{self, median, none, spread};
use super::record::{Measured, Run};
use super::window::FOREIGN_SHARE_MAX;
use crate::spread::paired_ratios;

/// What else there is to say about the runs of a case.
pub(super) struct Notes<'a> {
    /// Servers that are not installed.
    pub(super) skipped: &'a [&'static str],
    /// The part of a second in which the server's core was busy although no server ran.
    pub(super) background_share: f64,
}

/// The page about `case`.
pub(super) fn page(case: &Case, runs: &[Run<'_>], setup: &Setup, notes: &Notes<'_>) -> String {
    let mut page = format!("# serve: {}\n\n{}\n", case.name, case.about);
    let mut groups: Vec<&str> = case.contestants.iter().map(|c| c.group.as_str()).collect();
    groups.dedup();
    for group in groups {
        if !group.is_empty() {
            let _ = write!(page, "\n## {group}\n");
        }
        page.push('\n');
        table(&mut page, case, group, runs);
    }
    flagged(&mut page, runs);
    method(&mut page, case, runs, notes);
    set_up(&mut page, setup);
    page
}

fn table(page: &mut String, case: &Case, group: &str, runs: &[Run<'_>]) {
    let idle = case.contestants.iter().any(|contestant| contestant.idle > 0);
    let (head, rule) = if idle { (" bytes per idle connection |", "---:|") } else { ("", "") };
    let _ = writeln!(
        page,
        "| | ratio to {} (min–max) | core µs per request | MB per core second | requests/s | \
         core busy % | p50 µs | p99 µs | runs |{head}",
        case.baseline
    );
    let _ = writeln!(page, "|---|---:|---:|---:|---:|---:|---:|---:|---:|{rule}");
    for contestant in case.contestants.iter().filter(|contestant| contestant.group == group) {
        let own: Vec<&Run<'_>> = of(runs, group, &contestant.name);
        let base = of(runs, group, &case.baseline);
        let ratio = match contestant.name == case.baseline {
            true => "1".to_owned(),
            false => spread(ratios(case.per, &own, &base)),
        };
        let _ = write!(page, "| {} | {ratio} |", contestant.name);
        row(page, &own);
        if idle {
            let cost = own.iter().filter_map(|run| run.bytes_per_idle()).collect();
            let _ =
                write!(page, " {} |", median(cost).map_or(none(), |bytes| format!("{bytes:.0}")));
        }
        page.push('\n');
    }
}

fn row(page: &mut String, own: &[&Run<'_>]) {
    let typical = |value: fn(&Measured) -> f64, digits: usize| {
        let values = own.iter().filter_map(|run| run.valid()).map(value).collect();
        median(values).map_or(none(), |value| format!("{value:.digits$}"))
    };
    let _ = write!(
        page,
        " {} | {} | {} | {} | {} | {} | {} of {} |",
        typical(|run| run.cost_s(Per::Request) * 1e6, 2),
        typical(|run| run.bytes_per_core_s() / 1e6, 1),
        typical(Measured::requests_per_s, 0),
        typical(|run| run.window.busy_share() * 100.0, 0),
        typical(|run| run.wrk.latency_us_p50 as f64, 0),
        typical(|run| run.wrk.latency_us_p99 as f64, 0),
        own.iter().filter(|run| run.valid().is_some()).count(),
        own.len(),
    );
}

fn of<'a, 'b>(runs: &'a [Run<'b>], group: &str, contestant: &str) -> Vec<&'a Run<'b>> {
    runs.iter().filter(|run| run.group == group && run.contestant == contestant).collect()
}

/// The cost of each run divided by the cost of the baseline's run of the same round.
fn ratios(per: Per, own: &[&Run<'_>], base: &[&Run<'_>]) -> Vec<f64> {
    let costs = |runs: &[&Run<'_>]| -> Vec<(u32, f64)> {
        let cost = |run: &&Run<'_>| Some((run.round, run.valid()?.cost_s(per)));
        runs.iter().filter_map(cost).collect()
    };
    paired_ratios(&costs(own), &costs(base))
}

fn flagged(page: &mut String, runs: &[Run<'_>]) {
    let lines = runs.iter().filter(|run| !run.flags.is_empty()).map(|run| {
        let name = [run.group, run.contestant].join(" ");
        format!("round {}, {}: {}", run.round, name.trim(), run.flags.join("; "))
    });
    page::flagged(page, lines);
}

fn method(page: &mut String, case: &Case, runs: &[Run<'_>], notes: &Notes<'_>) {
    let what = match case.per {
        Per::Request => "requests wrk completed",
        Per::Byte => "bytes wrk received",
    };
    let steal = runs.iter().filter_map(|run| run.valid()).map(|run| run.window.steal_share());
    let _ = write!(
        page,
        "
## How it was measured

- One server runs at a time, alone on its core; wrk has the other. A round runs every contestant
  once, in an order shuffled anew, each started for the run and warmed up first.
- The cost is the busy time of the server's core (user, nice, system, irq, softirq and steal of
  `/proc/stat`) from before wrk starts to after it ends, divided by the {what}.
  Nothing is subtracted. The core was {background:.1} % busy with no server running; steal was at
  most {steal:.1} % of a run.
- On the loopback device the sender's core also runs the receiver's half of the network stack. So
  the server's core pays for the client's reception of what the server sends, and not for its own
  reception of requests and of new connections, which the load's core does. It is so for every
  server.
- The ratio is of costs, less is better: each run's divided by the one of {base} in the same round;
  the median of these, and the least and the greatest. The other figures are medians.
- wrk is a closed loop: its latencies are for comparison only, and leave out the time in which a
  slow reply kept it from asking.
- A run does not count, and is shown, when there was an error or a reply that is neither 2xx nor
  3xx, or when other processes had more than {foreign:.0} % of the server's core.
",
        background = notes.background_share * 100.0,
        steal = steal.fold(0.0, f64::max) * 100.0,
        base = case.baseline,
        foreign = FOREIGN_SHARE_MAX * 100.0,
    );
    if !notes.skipped.is_empty() {
        let _ = writeln!(page, "- Not installed, so skipped: {}.", notes.skipped.join(", "));
    }
}

fn set_up(page: &mut String, setup: &Setup) {
    let plan = format!(
        "{} rounds of {} s after {} s of\n  warm-up; seed {}",
        setup.rounds, setup.seconds, setup.warm_up_seconds, setup.seed
    );
    page::machine(page, setup, &plan);
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::bench::cases::Contestant;
    use crate::bench::page::tests::setup;
    use crate::bench::peers::Server;
    use crate::bench::window::Window;
    use crate::bench::wrk::{Load, Outcome};

    fn case(names: &[&str], load: &Load) -> Case {
        let contestant = |name: &&str| Contestant {
            group: String::new(),
            name: (*name).to_owned(),
            server: Server::Nginx("nginx".into()),
            load: load.clone(),
            idle: 0,
        };
        Case {
            name: "keepalive-1k",
            about: "About.".to_owned(),
            baseline: "a".to_owned(),
            per: Per::Request,
            contestants: names.iter().map(contestant).collect(),
        }
    }

    fn run<'a>(
        name: &'a str,
        round: u32,
        busy_s: f64,
        load: &'a Load,
        setup: &'a Setup,
    ) -> Run<'a> {
        let wrk = Outcome {
            requests: 1000,
            bytes: 2_000_000,
            duration_us: 2_000_000,
            ..Outcome::default()
        };
        let window = Window { window_s: 2.0, core_busy_s: busy_s, ..Window::default() };
        let measured = Measured { window, wrk, ..Measured::default() };
        Run {
            case: "keepalive-1k",
            group: "",
            contestant: name,
            round,
            place: 1,
            arguments: String::new(),
            load,
            idle_connections: 0,
            flags: Vec::new(),
            measured: Some(measured),
            setup,
        }
    }

    fn load() -> Load {
        Load { path: "/".to_owned(), connections: 1, close: false }
    }

    #[test]
    fn ratios_are_paired_within_a_round() {
        let (load, setup) = (load(), setup());
        let pairs = [("a", 1, 1.0), ("b", 1, 1.5), ("b", 2, 2.0), ("a", 2, 2.0), ("b", 3, 9.0)];
        let runs: Vec<Run<'_>> =
            pairs.map(|(name, round, busy)| run(name, round, busy, &load, &setup)).into();
        let notes = Notes { skipped: &["h2o"], background_share: 0.01 };
        let page = page(&case(&["a", "b"], &load), &runs, &setup, &notes);
        assert!(page.contains("| a | 1 | 1500.00 | 1.5 | 500 | 75 |"), "{page}");
        assert!(page.contains("| b | 1.250 (1.000–1.500) | 2000.00 | 1.0 | 500 | 100 |"), "{page}");
        assert!(page.contains("so skipped: h2o.") && page.contains("not committed"), "{page}");
        assert!(page.contains("1.0 % busy with no server"), "{page}");
        assert!(!page.contains("do not count\n"), "{page}");
    }

    #[test]
    fn a_flagged_run_is_shown_and_does_not_count() {
        let (load, setup) = (load(), setup());
        let mut runs = vec![run("a", 1, 1.0, &load, &setup), run("b", 1, 1.5, &load, &setup)];
        runs[1].flags.push("3 timeouts".to_owned());
        let notes = Notes { skipped: &[], background_share: 0.0 };
        let page = page(&case(&["a", "b"], &load), &runs, &setup, &notes);
        assert!(page.contains("| b | – | – |"), "{page}");
        assert!(page.contains("| 0 of 1 |") && page.contains("- round 1, b: 3 timeouts"), "{page}");
    }

    #[test]
    fn an_idle_connection_has_its_price() {
        let (load, setup) = (load(), setup());
        let mut case = case(&["a"], &load);
        case.contestants[0].idle = 100;
        let mut run = run("a", 1, 1.0, &load, &setup);
        run.idle_connections = 100;
        run.measured.as_mut().unwrap().resident_bytes = Some([1_000, 31_000]);
        let notes = Notes { skipped: &[], background_share: 0.0 };
        let page = page(&case, &[run], &setup, &notes);
        assert!(page.contains("bytes per idle connection |") && page.contains(" 300 |"), "{page}");
    }
}
