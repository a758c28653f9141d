//! Output in httperf's format, for tools that parse it (autobench and many scripts): httperf(1),
//! section OUTPUT, line by line.
//!
//! Errors without an httperf name are added to the kind under which httperf would count them.
//! Nothing is printed that httperf would not print, but for the mean time of TLS handshakes, where
//! there were any: a line of the form of the connects' follows theirs.

use std::fmt::{Result, Write};

use super::{ms, per_s, ratio, seconds};
use crate::measure::{Counts, ErrorKind, RunOutcome, SecondSummary};

/// Interval at which httperf samples its rates, seconds.
const SAMPLE_S: usize = 5;

/// Writes all lines, from `Total:` to the last line of errors, or of sessions if there were any.
pub(super) fn write(out: &mut impl Write, outcome: &RunOutcome) -> Result {
    connections(out, outcome)?;
    requests(out, outcome)?;
    replies(out, outcome)?;
    client(out, outcome)?;
    errors(out, &outcome.counts)?;
    if outcome.counts.planned + outcome.counts.never_due() > outcome.counts.arrivals {
        sessions(out, outcome)?;
    }
    Ok(())
}

fn connections(out: &mut impl Write, outcome: &RunOutcome) -> Result {
    let RunOutcome { counts, elapsed_ns, open_max, lifetimes, times, .. } = outcome;
    let (connects, requests, replies) = (counts.connects, counts.sent, counts.replies);
    writeln!(
        out,
        "Total: connections {connects} requests {requests} replies {replies} test-duration {:.3} s",
        seconds(*elapsed_ns)
    )?;
    writeln!(
        out,
        "\nConnection rate: {:.1} conn/s ({:.1} ms/conn, <={open_max} concurrent connections)",
        per_s(connects, *elapsed_ns),
        ratio(ms(*elapsed_ns), connects as f64)
    )?;
    writeln!(
        out,
        "Connection time [ms]: min {:.1} avg {:.1} max {:.1} median {:.1} stddev {:.1}",
        ms(lifetimes.min()),
        lifetimes.mean() / 1e6,
        ms(lifetimes.max()),
        ms(lifetimes.at(0.5)),
        lifetimes.stdev() / 1e6
    )?;
    writeln!(out, "Connection time [ms]: connect {:.1}", times.connect.mean() / 1e6)?;
    if times.handshake.count() > 0 {
        let mean_ms = times.handshake.mean() / 1e6;
        writeln!(out, "Connection time [ms]: handshake {mean_ms:.1}")?;
    }
    let length = ratio(replies as f64, lifetimes.count() as f64);
    writeln!(out, "Connection length [replies/conn]: {length:.3}")
}

fn requests(out: &mut impl Write, outcome: &RunOutcome) -> Result {
    let sent = outcome.counts.sent;
    writeln!(
        out,
        "\nRequest rate: {:.1} req/s ({:.1} ms/req)",
        per_s(sent, outcome.elapsed_ns),
        ratio(ms(outcome.elapsed_ns), sent as f64)
    )?;
    let size = ratio(outcome.counts.bytes_out as f64, sent as f64);
    writeln!(out, "Request size [B]: {size:.1}")
}

fn replies(out: &mut impl Write, outcome: &RunOutcome) -> Result {
    let RunOutcome { counts, times, .. } = outcome;
    let Samples { min, avg, max, stddev, count } =
        Samples::of(&outcome.seconds, |counts| counts.replies);
    writeln!(
        out,
        "\nReply rate [replies/s]: min {min:.1} avg {avg:.1} max {max:.1} stddev {stddev:.1} \
         ({count} samples)"
    )?;
    let (wait_ms, transfer_ms) = (times.wait.mean() / 1e6, times.transfer.mean() / 1e6);
    writeln!(out, "Reply time [ms]: response {wait_ms:.1} transfer {transfer_ms:.1}")?;
    let each = |bytes: u64| ratio(bytes as f64, counts.replies as f64);
    writeln!(
        out,
        "Reply size [B]: header {:.1} content {:.1} footer 0.0 (total {:.1})",
        each(counts.head_bytes_in),
        each(counts.bytes_in.saturating_sub(counts.head_bytes_in)),
        each(counts.bytes_in)
    )?;
    let [s1, s2, s3, s4, s5] = counts.statuses;
    writeln!(out, "Reply status: 1xx={s1} 2xx={s2} 3xx={s3} 4xx={s4} 5xx={s5}")
}

fn client(out: &mut impl Write, outcome: &RunOutcome) -> Result {
    let user_ns = outcome.threads.iter().map(|thread| thread.user_ns).sum();
    let system_ns = outcome.threads.iter().map(|thread| thread.system_ns).sum();
    let (user_s, system_s) = (seconds(user_ns), seconds(system_ns));
    let percent = |time_s: f64| 100.0 * ratio(time_s, seconds(outcome.elapsed_ns));
    writeln!(
        out,
        "\nCPU time [s]: user {user_s:.2} system {system_s:.2} (user {:.1}% system {:.1}% \
         total {:.1}%)",
        percent(user_s),
        percent(system_s),
        percent(user_s + system_s)
    )?;
    let bytes_per_s = per_s(outcome.counts.bytes_out + outcome.counts.bytes_in, outcome.elapsed_ns);
    let (kbytes, mbits) = (bytes_per_s / 1024.0, 8e-6 * bytes_per_s);
    writeln!(out, "Net I/O: {kbytes:.1} KB/s ({mbits:.1}*10^6 bps)")
}

fn errors(out: &mut impl Write, counts: &Counts) -> Result {
    let of = |kinds: &[ErrorKind]| kinds.iter().map(|kind| counts.errors.of(*kind)).sum::<u64>();
    // Whatever this side gave up waiting for is a client-timo; socket-timo is the kernel's
    // ETIMEDOUT, and this side gives up first. A server that closes early is a connreset to
    // httperf too.
    let timeouts = of(&[
        ErrorKind::ConnectTimeout,
        ErrorKind::HandshakeTimeout,
        ErrorKind::SendTimeout,
        ErrorKind::ReplyTimeout,
        ErrorKind::Deadline,
    ]);
    let resets = of(&[
        ErrorKind::ConnectReset,
        ErrorKind::HandshakeReset,
        ErrorKind::Reset,
        ErrorKind::ClosedEarly,
        ErrorKind::TlsTruncated,
    ]);
    writeln!(
        out,
        "\nErrors: total {} client-timo {timeouts} socket-timo 0 connrefused {} connreset {resets}",
        counts.errors.total(),
        of(&[ErrorKind::ConnectRefused])
    )?;
    writeln!(
        out,
        "Errors: fd-unavail {} addrunavail {} ftab-full 0 other {}",
        of(&[ErrorKind::FdUnavail]),
        of(&[ErrorKind::PortUnavail]),
        of(&[
            ErrorKind::TlsCertificate,
            ErrorKind::TlsProtocol,
            ErrorKind::BadReply,
            ErrorKind::TcpViolation,
            ErrorKind::Other,
        ])
    )
}

fn sessions(out: &mut impl Write, outcome: &RunOutcome) -> Result {
    let RunOutcome { counts, sessions, .. } = outcome;
    let Samples { min, max, stddev, .. } = Samples::of(&outcome.seconds, |counts| counts.sessions);
    writeln!(
        out,
        "\nSession rate [sess/s]: min {min:.2} avg {:.2} max {max:.2} stddev {stddev:.2} ({}/{})",
        per_s(counts.sessions, outcome.elapsed_ns),
        counts.sessions,
        counts.sessions + counts.sessions_failed
    )?;
    let connections = ratio(counts.connected as f64, counts.sessions as f64);
    writeln!(out, "Session: avg {connections:.2} connections/session")?;
    writeln!(out, "Session lifetime [s]: {:.1}", sessions.mean() / 1e9)
}

/// A rate sampled every [`SAMPLE_S`] seconds; an incomplete interval at the end is not sampled.
#[derive(Debug, Default, PartialEq)]
struct Samples {
    min: f64,
    avg: f64,
    max: f64,
    stddev: f64,
    count: usize,
}

impl Samples {
    fn of(seconds: &[SecondSummary], description: fn(&Counts) -> u64) -> Self {
        let rates: Vec<f64> = seconds
            .chunks_exact(SAMPLE_S)
            .map(|chunk| {
                let total = chunk.iter().map(|each| description(&each.counts)).sum();
                per_s(total, chunk.iter().map(|each| each.length_ns).sum())
            })
            .collect();
        if rates.is_empty() {
            return Self::default();
        }
        let count = rates.len();
        let avg = rates.iter().sum::<f64>() / count as f64;
        let squares: f64 = rates.iter().map(|rate| (rate - avg).powi(2)).sum();
        Self {
            min: rates.iter().copied().fold(f64::INFINITY, f64::min),
            avg,
            max: rates.iter().copied().fold(0.0, f64::max),
            stddev: ratio(squares, (count - 1) as f64).sqrt(),
            count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    fn text(outcome: &RunOutcome) -> String {
        let mut out = String::new();
        write(&mut out, outcome).unwrap();
        out
    }

    #[test]
    fn a_run_is_shown_in_httperfs_very_lines() {
        let expected = "\
Total: connections 1000 requests 998 replies 990 test-duration 12.000 s

Connection rate: 83.3 conn/s (12.0 ms/conn, <=42 concurrent connections)
Connection time [ms]: min 6.0 avg 6.0 max 6.0 median 6.0 stddev 0.0
Connection time [ms]: connect 0.2
Connection length [replies/conn]: 1.000

Request rate: 83.2 req/s (12.0 ms/req)
Request size [B]: 62.0

Reply rate [replies/s]: min 80.0 avg 90.0 max 100.0 stddev 14.1 (2 samples)
Reply time [ms]: response 4.0 transfer 1.0
Reply size [B]: header 184.0 content 1000.0 footer 0.0 (total 1184.0)
Reply status: 1xx=0 2xx=980 3xx=0 4xx=10 5xx=0

CPU time [s]: user 1.00 system 2.00 (user 8.3% system 16.7% total 25.0%)
Net I/O: 100.4 KB/s (0.8*10^6 bps)

Errors: total 10 client-timo 5 socket-timo 0 connrefused 2 connreset 2
Errors: fd-unavail 0 addrunavail 0 ftab-full 0 other 1
";
        assert_eq!(text(&fixtures::outcome()), expected);
    }

    #[test]
    fn sessions_add_their_lines() {
        let mut outcome = fixtures::outcome();
        outcome.counts.arrivals = 100;
        outcome.counts.sessions = 90;
        outcome.counts.sessions_failed = 10;
        outcome.counts.connected = 99;
        outcome.sessions.record(1_500_000_000);
        let expected = "
Session rate [sess/s]: min 0.00 avg 7.50 max 0.00 stddev 0.00 (90/100)
Session: avg 1.10 connections/session
Session lifetime [s]: 1.5
";
        assert!(text(&outcome).ends_with(expected), "{}", text(&outcome));
    }

    #[test]
    fn handshakes_of_tls_have_a_line_like_the_connects() {
        let mut outcome = fixtures::outcome();
        assert!(!text(&outcome).contains("handshake"));
        outcome.times.handshake.record(1_500_000);
        let lines = "ms]: connect 0.2\nConnection time [ms]: handshake 1.5\nConnection length";
        assert!(text(&outcome).contains(lines), "{}", text(&outcome));
    }

    #[test]
    fn a_run_of_nothing_has_no_infinities() {
        let text = text(&RunOutcome::default());
        assert!(text.contains("Connection rate: 0.0 conn/s (0.0 ms/conn, <=0 concurrent"));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    /// Returns the match of `(\d+\.?\d*)` behind `after`, in the first line that begins with
    /// `line`.
    fn number(text: &str, line: &str, after: &str) -> f64 {
        let found = text.lines().find(|each| each.starts_with(line)).unwrap();
        let rest = found.split_once(after).unwrap().1;
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        rest[..end].parse().unwrap()
    }

    #[test]
    fn autobench_finds_what_it_looks_for() {
        let text = text(&fixtures::outcome());
        let rows = [
            ("Total: ", "replies ", 990.0),
            ("Connection rate: ", "rate: ", 83.3),
            ("Request rate: ", "rate: ", 83.2),
            ("Reply rate ", "min ", 80.0),
            ("Reply rate ", " avg ", 90.0),
            ("Reply rate ", " max ", 100.0),
            ("Reply rate ", " stddev ", 14.1),
            ("Reply time ", " response ", 4.0),
            ("Net I/O: ", "O: ", 100.4),
            ("Errors: total ", "total ", 10.0),
        ];
        for (line, after, value) in rows {
            assert_eq!(number(&text, line, after), value, "{line}");
        }
    }
}
