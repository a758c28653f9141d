//! The page of the benchmark.

use std::fmt::Write;

use weir_lab::{machine, programs, setup_summary};

use super::ping::PingPlan;
use super::row::{Measured, Row};

const HEAD: &str = "\
# Paths of weir load link, by other programs

Are the paths of `weir load link` those that were asked for, as fping and iperf3 find them? The bar
is 2 % of each quantity. Intervals are of 95 %. A quantity is *within 2 %* or *NOT within 2 %* if
its whole interval is, and *undecided* where the interval is too wide to say.

- The mean round trip is over clients, whose paths the law draws; the middle of the law's span, with
  the time that a ping takes of the bandwidth, was asked for.
- The jitter is the standard deviation of a client's round trips around their mean.
- The loss is of round trips: each way loses packets by itself, 1 - (1 - p)^2 in all.
- A bandwidth is of IP packets. More is sent than it lets through, by UDP; what is lost behind it is
  taken off what was asked for.
- The first path has no properties: what is measured of it, the link and the programs add to every
  path. Nothing is taken off for it.

## Asked and measured

| path | quantity | asked | measured | off | verdict |
|---|---|---:|---:|---:|---|
";

/// Formats the page.
pub(super) fn page(all: &[Measured], plan: &PingPlan) -> String {
    let mut page = HEAD.to_owned();
    for measured in all {
        measured.rows.iter().for_each(|row| page.push_str(&(line(row) + "\n")));
    }
    // Writing into a String cannot fail.
    let _ = writeln!(page, "\n## What the link says\n\n| path | late, median | late, p99 | |");
    let _ = writeln!(page, "|---|---:|---:|---|");
    for Measured { path, link, .. } in all {
        let [p50_us, p99_us] = [link.late_p50_ns, link.late_p99_ns].map(|ns| ns as f64 / 1e3);
        let verdict = match link.reasons.as_slice() {
            [] => "valid".to_owned(),
            reasons => format!("INVALID: {}", reasons.join("; ")),
        };
        let _ = writeln!(page, "| {path} | {p50_us:.1} µs | {p99_us:.1} µs | {verdict} |");
    }
    let PingPlan { clients, each, per_s, .. } = plan;
    let _ =
        writeln!(page, "\n## Set-up\n\n- {clients} clients, {each} pings each, {per_s} a second");
    let _ = writeln!(page, "- a processor for the link, and one for all other programs");
    for (program, flag) in [("fping", "-v"), ("iperf3", "--version")] {
        let version = programs::find(program).and_then(|it| programs::version_of(&it, &[flag]));
        let _ = writeln!(page, "- {program} {}", version.unwrap_or_default());
    }
    for (name, value) in setup_summary::machine(&machine::machine()) {
        let _ = writeln!(page, "- {name}: {value}");
    }
    page
}

/// Formats a row of the table.
pub(super) fn line(row: &Row) -> String {
    let Row { path, quantity, unit, asked, measured, verdict } = row;
    let (mean, half) = (digits(measured.mean, *asked), digits(measured.half_width, *asked));
    let (off, verdict) = match *asked {
        0.0 => ("–".to_owned(), if measured.mean > 0.0 { "not asked for" } else { "none" }),
        some => {
            let percent = |part: f64| 100.0 * part / some;
            let off = percent(measured.mean - some);
            (format!("{off:+.2} % ± {:.2}", percent(measured.half_width)), verdict.text())
        }
    };
    let asked = digits(*asked, *asked);
    format!("| {path} | {quantity} | {asked} {unit} | {mean} ± {half} {unit} | {off} | {verdict} |")
}

/// Formats a number with four digits of what was asked for, at least.
fn digits(value: f64, asked: f64) -> String {
    let places = match asked {
        asked if asked >= 100.0 => 2,
        asked if asked >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::super::estimate::Estimate;
    use super::super::spaces::LinkReport;
    use super::*;

    fn row(asked: f64, mean: f64, half_width: f64) -> Row {
        let measured = Estimate { mean, half_width, n: 9 };
        let (path, verdict) = ("dsl".into(), measured.against(asked));
        Row {
            path,
            quantity: "mean round trip".into(),
            unit: "ms".into(),
            asked,
            measured,
            verdict,
        }
    }

    #[test]
    fn a_page_says_how_far_off_each_quantity_is() {
        let rows = vec![row(50.0, 50.5, 0.25), row(50.0, 51.0, 0.25), row(0.0, 0.05, 0.01)];
        let reasons = vec!["one packet of 100 was late".to_owned()];
        let link = LinkReport { late_p50_ns: 1500, late_p99_ns: 2_000_000, reasons };
        let page = page(&[Measured { path: "dsl".into(), rows, link }], &PingPlan::of(25));
        let first = "| dsl | mean round trip | 50.000 ms | 50.500 ± 0.250 ms | +1.00 % ± 0.50 | \
                     within 2 % |";
        assert!(page.contains(first), "{page}");
        assert!(page.contains("| +2.00 % ± 0.50 | undecided |"), "{page}");
        assert!(page.contains("| 0.0000 ms | 0.0500 ± 0.0100 ms | – | not asked for |"), "{page}");
        assert!(page.contains("| dsl | 1.5 µs | 2000.0 µs | INVALID: one packet"), "{page}");
    }
}
