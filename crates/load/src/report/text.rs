//! Text report of a completed run, for readers and scripts: httperf's lines, then further results.
//! An INVALID run is marked at the beginning and at the end.
//!
//! The first three lines replace httperf's command, burst length and empty line, so that scripts
//! that count lines still work.

use std::fmt::{Result, Write};

use super::{RunReport, httperf, ms, per_s, schedule_ns, seconds};
use crate::measure::TimeHistogram;

/// Default width of a terminal.
const COLUMNS: usize = 80;

/// Renders the whole report; every line ends with a newline.
pub fn report(run: &RunReport<'_>) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write(&mut out, run);
    out
}

fn write(out: &mut String, run: &RunReport<'_>) -> Result {
    if !run.verdict.valid {
        writeln!(out, "INVALID: this run was limited by its client; the end says why.")?;
    }
    head(out, run)?;
    httperf::write(out, run.outcome)?;
    times(out, run)?;
    let mut prose = String::new();
    rates(&mut prose, run)?;
    errors(&mut prose, run)?;
    packets(&mut prose, run)?;
    audit(&mut prose, run)?;
    conditions(&mut prose, run)?;
    verdict(&mut prose, run)?;
    prose.lines().try_for_each(|line| fold(out, line))
}

/// Writes a line, wrapped at spaces to the width of a terminal; continuation lines are indented.
fn fold(out: &mut String, line: &str) -> Result {
    let mut column = 0;
    for word in line.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if column > 0 && column + length > COLUMNS {
            out.truncate(out.trim_end_matches(' ').len());
            write!(out, "\n  ")?;
            column = 2;
        }
        out.push_str(word);
        column += word.chars().count();
    }
    writeln!(out)
}

fn head(out: &mut String, run: &RunReport<'_>) -> Result {
    let description = run.description;
    writeln!(out, "{}", description.command)?;
    let label = if description.closed { "Closed loop" } else { "Open loop" };
    write!(out, "{label}: {}, {} s", description.arrivals, seconds(description.duration_ns))?;
    let parts = [(description.warmup_ns, "warm-up"), (description.cooldown_ns, "cool-down")];
    let named = parts.iter().filter(|(length_ns, _)| *length_ns > 0);
    for ((length_ns, part), word) in named.zip([" of which", " and"]) {
        write!(out, "{word} {} s {part}", seconds(*length_ns))?;
    }
    write!(
        out,
        "; workload {}; timeout {} s",
        description.workload,
        seconds(description.timeout_ns)
    )?;
    if description.deadline_ns > 0 {
        write!(out, "; deadline {} s", seconds(description.deadline_ns))?;
    }
    description
        .tls
        .iter()
        .chain(&description.connections)
        .try_for_each(|kind| write!(out, "; {kind}"))?;
    let (threads, seed) = (description.threads, description.seed);
    writeln!(
        out,
        "; threads {threads}; seed {seed}; weir {}; {}\n",
        description.version,
        description.date()
    )
}

fn times(out: &mut String, run: &RunReport<'_>) -> Result {
    let label = if run.description.closed { " (closed loop)" } else { "" };
    writeln!(
        out,
        "\nTimes [ms]{label}: response is from the planned start, service from the actual"
    )?;
    writeln!(
        out,
        "  {:<9} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "count", "mean", "p50", "p90", "p99", "p99.9", "max"
    )?;
    let rows = run.outcome.times.rows().into_iter();
    let has_tls = run.description.tls.is_some();
    rows.filter(|(name, _)| has_tls || *name != "handshake")
        .try_for_each(|(name, times)| row(out, name, times))
}

fn row(out: &mut String, name: &str, times: &TimeHistogram) -> Result {
    if times.count() == 0 {
        let dashes = ["        -"; 6].join(" ");
        return writeln!(out, "  {name:<9} {:>8} {dashes}", 0);
    }
    write!(out, "  {name:<9} {:>8} {:>9.3}", times.count(), times.mean() / 1e6)?;
    [0.5, 0.9, 0.99, 0.999]
        .into_iter()
        .try_for_each(|quantile| write!(out, " {:>9.3}", ms(times.at(quantile))))?;
    writeln!(out, " {:>9.3}", ms(times.max()))
}

fn rates(out: &mut String, run: &RunReport<'_>) -> Result {
    let outcome = run.outcome;
    let counts = &outcome.counts;
    let rate = |count| per_s(count, outcome.elapsed_ns);
    if run.description.closed {
        write!(out, "\nRates [/s]: started {:.1}", rate(counts.started))?;
    } else {
        // The plan ends before the last reply comes.
        let planned = per_s(counts.planned, schedule_ns(outcome));
        let started = per_s(counts.started, schedule_ns(outcome));
        write!(out, "\nRates [/s]: planned {planned:.1}, started {started:.1}")?;
    }
    writeln!(out, ", replies {:.1}", rate(counts.replies))?;
    if run.description.tls.is_some() {
        writeln!(
            out,
            "TLS handshakes: {} ({:.1} /s), of which {} resumed a session",
            counts.handshakes,
            rate(counts.handshakes),
            counts.handshakes_resumed
        )?;
    }
    let opened = counts.background_opened;
    if opened > 0 {
        writeln!(
            out,
            "Beside them: {opened} idle and slow connections opened, {} lost, {} replies",
            counts.background_lost, counts.background_replies
        )?;
    }
    let (never_due, reconnects) = (counts.never_due(), counts.reconnects);
    if never_due + reconnects > 0 {
        writeln!(out, "Sessions: {never_due} requests never due, {reconnects} reconnects")?;
    }
    if counts.cut_off > 0 {
        writeln!(out, "Cut off: {} requests that had not ended", counts.cut_off)?;
    }
    Ok(())
}

/// Writes what weir's own TCP has counted.
fn packets(out: &mut String, run: &RunReport<'_>) -> Result {
    let Some(packets) = &run.outcome.packets else { return Ok(()) };
    let tcp = &packets.tcp;
    write!(out, "Packets: {} sent, {} received", packets.sent, packets.received)?;
    let others = [
        (packets.by_xdp, "frames through AF_XDP"),
        (tcp.retransmitted, "sent again"),
        (tcp.timeouts, "of these after a timeout"),
        (tcp.duplicates, "received again"),
        (tcp.out_of_order, "out of order"),
        (packets.lost, "lost on their paths"),
        (packets.strays, "of no connection"),
        (packets.dropped, "dropped behind the interface"),
        (packets.refused, "refused by the interface"),
        (packets.overflowed, "without room on this side"),
        (packets.malformed, "malformed"),
        (tcp.data_after_fin, "behind the server's end (data after FIN)"),
        (tcp.wrong_acks, "acknowledging what was not sent"),
        (tcp.shrunk_windows, "taking back window"),
        (tcp.beyond_window, "beyond the window"),
    ];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    others.into_iter().try_for_each(|(count, what)| write!(out, ", {count} {what}"))?;
    writeln!(out)
}

fn errors(out: &mut String, run: &RunReport<'_>) -> Result {
    let errors = &run.outcome.counts.errors;
    if errors.total() == 0 {
        return writeln!(out, "Errors by kind: none");
    }
    write!(out, "Errors by kind:")?;
    errors.rows().filter(|(_, count)| *count > 0).enumerate().try_for_each(
        |(n, (name, count))| {
            let comma = if n > 0 { "," } else { "" };
            write!(out, "{comma} {count} {name}")
        },
    )?;
    writeln!(out)
}

fn audit(out: &mut String, run: &RunReport<'_>) -> Result {
    let metrics = &run.verdict.metrics;
    if let Some(achieved) = metrics.achieved {
        let [lag_p50, lag_p99, lag_p999, lag_max] =
            [metrics.lag_p50_ns, metrics.lag_p99_ns, metrics.lag_p999_ns, metrics.lag_max_ns]
                .map(ms);
        write!(
            out,
            "Plan: {:.2} % of it started\nLag [ms]: p50 {lag_p50:.3}, p99 {lag_p99:.3}, p99.9 \
             {lag_p999:.3}, max {lag_max:.3}\n",
            100.0 * achieved
        )?;
    }
    let cpu: Vec<String> = metrics.cpu.iter().map(|cpu| format!("{:.1}", 100.0 * cpu)).collect();
    write!(
        out,
        "Client: threads used {} % of their cores, {:.1} % in the busiest second; {} descriptors \
         left",
        cpu.join(", "),
        100.0 * metrics.busiest,
        metrics.descriptors_left
    )?;
    metrics.ports_left.map_or(Ok(()), |ports| write!(out, "; {ports} ports left"))?;
    writeln!(out)
}

fn conditions(out: &mut String, run: &RunReport<'_>) -> Result {
    run.conditions
        .iter()
        .try_for_each(|result| writeln!(out, "Fail if {}: {result}", result.condition))
}

fn verdict(out: &mut String, run: &RunReport<'_>) -> Result {
    run.verdict.notes.iter().try_for_each(|note| writeln!(out, "Note: {note}"))?;
    if run.verdict.valid {
        return writeln!(out, "Valid: the client kept up.");
    }
    run.verdict.reasons.iter().try_for_each(|reason| writeln!(out, "INVALID: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::measure::RunOutcome;

    fn text(closed: bool, outcome: &RunOutcome) -> String {
        fixtures::rendered(closed, outcome, &["errors>0"], report)
    }

    #[test]
    fn a_valid_run_begins_with_httperfs_lines_and_ends_with_its_own() {
        let text = text(false, &fixtures::outcome());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "weir load --rate 100 http://127.0.0.1:8000/");
        assert!(lines[1].starts_with("Open loop: constant, 100/s, 10 s; workload one-byte; "));
        assert!(lines[1].ends_with("; 2026-01-02T03:04:05Z"), "{}", lines[1]);
        assert!(lines[2].is_empty() && lines[3].starts_with("Total: connections 1000 "));
        let own = &text[text.find("Times [ms]").unwrap()..];
        let expected = "\
Times [ms]: response is from the planned start, service from the actual
               count      mean       p50       p90       p99     p99.9       max
  lag            990     0.020     0.020     0.020     0.020     0.020     0.020
  connect        990     0.200     0.200     0.200     0.200     0.200     0.200
  send           990     0.080     0.080     0.080     0.080     0.080     0.080
  wait           990     4.001     4.002     4.002     4.002     4.002     4.002
  transfer       990     1.000     1.000     1.000     1.000     1.000     1.000
  service        990     5.282     5.284     5.284     5.284     5.284     5.284
  response       990     5.298     5.300     5.300     5.300     5.300     5.300

Rates [/s]: planned 100.0, started 100.0, replies 82.5
Errors by kind: 2 connect-refused, 4 reply-timeout, 1 reset, 1 closed-early, 1
  bad-reply, 1 deadline
Plan: 100.00 % of it started
Lag [ms]: p50 0.020, p99 0.020, p99.9 0.020, max 0.020
Client: threads used 30.0 % of their cores, 50.0 % in the busiest second; 958
  descriptors left; 28190 ports left
Fail if errors>0: it holds: errors = 10 > 0
Valid: the client kept up.
";
        assert_eq!(own, expected);
    }

    #[test]
    fn invalid_stands_first_and_last() {
        let text = text(false, &fixtures::invalid_outcome());
        assert!(text.lines().next().unwrap().starts_with("INVALID: "), "{text}");
        let last = text.lines().rfind(|line| !line.starts_with(' ')).unwrap();
        assert!(last.starts_with("INVALID: No descriptor was free for 1 of 1000"), "{text}");
        assert!(!text.contains("Valid:"));
    }

    #[test]
    fn a_closed_loop_is_labelled_and_has_no_plan() {
        let text = text(true, &fixtures::outcome());
        assert!(text.contains("\nClosed loop: 16 connections, 10 s;"), "{text}");
        assert!(text.contains("\nTimes [ms] (closed loop):"));
        assert!(text.contains("Note: Closed loop: latencies"));
        assert!(!text.contains("Plan:") && !text.contains("planned 1"));
    }

    #[test]
    fn requests_that_were_cut_off_are_not_called_never_due() {
        let mut outcome = fixtures::outcome();
        (outcome.counts.abandoned, outcome.counts.cut_off) = (5, 5);
        let cut_off = "\nCut off: 5 requests that had not ended\n";
        let text_of_cut_off = text(false, &outcome);
        assert!(text_of_cut_off.contains(cut_off), "{text_of_cut_off}");
        assert!(!text_of_cut_off.contains("Session"), "{text_of_cut_off}");
        outcome.counts.abandoned = 7;
        let text = text(false, &outcome);
        let sessions = "\nSessions: 2 requests never due, 0 reconnects";
        assert!(text.contains(&format!("{sessions}{cut_off}")), "{text}");
        assert!(text.contains("\nSession rate"), "{text}");
    }

    #[test]
    fn an_empty_run_is_shown_without_infinities() {
        let text = text(false, &RunOutcome::default());
        let none =
            "  response         0         -         -         -         -         -         -";
        assert!(text.contains(none), "{text}");
        assert!(text.contains("Errors by kind: none") && text.contains("INVALID: Nothing"));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
