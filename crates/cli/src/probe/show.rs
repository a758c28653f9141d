//! Formats the results of a probe as a table or as JSON lines. Pure.

use serde_json::{Value, json};
use weir_dispatch::probe::{CellCosts, CellError, CellResult, Spread};

/// Formats the table: a row for each cell with figures, and a line for each mechanism without.
pub(super) fn table(outcomes: &[CellResult]) -> String {
    let mut lines = Vec::new();
    let mut beside = Vec::new();
    for CellResult { cell, found } in outcomes {
        let name = cell.mechanism.row().spelling;
        let line = match found {
            Ok(figures) => {
                lines.push(row(name, cell.idle, cell.active, figures));
                continue;
            }
            Err(CellError::Impossible(why)) => format!("{name}: not possible here: {why}"),
            Err(CellError::Failed(why)) => {
                format!("{name}: {} idle, {} active: failed: {why}", cell.idle, cell.active)
            }
        };
        if !beside.contains(&line) {
            beside.push(line);
        }
    }
    if !lines.is_empty() {
        lines.insert(0, head());
    }
    lines.extend(beside);
    lines.into_iter().map(|line| line + "\n").collect()
}

fn head() -> String {
    let unit = "Nanoseconds of processor time, median (smallest to largest).\n";
    format!(
        "{unit}{:<16} {:>6} {:>6}  {:<28} {:<28} {:<26} {:<23} {:>11}",
        "mechanism",
        "idle",
        "active",
        "a wait",
        "an event",
        "a membership",
        "a search",
        "waits/round"
    )
}

fn row(name: &str, idle: usize, active: usize, figures: &CellCosts) -> String {
    let waits = figures.waits as f64 / figures.rounds as f64;
    let [wait, event, member] =
        [figures.wait_ns, figures.event_ns, figures.member_ns].map(describe);
    let search = figures.search_ns.map_or_else(|| "-".to_owned(), describe);
    format!(
        "{name:<16} {idle:>6} {active:>6}  {wait:<28} {event:<28} {member:<26} {search:<23} \
         {waits:>11.2}"
    )
}

fn describe(spread: Spread) -> String {
    let Spread { min, median, max } = spread;
    format!("{median:.0} ({min:.0} to {max:.0})")
}

/// Formats a JSON line for each cell.
pub(super) fn json_lines(outcomes: &[CellResult], kind: &str) -> String {
    outcomes.iter().map(|outcome| format!("{}\n", json_line(outcome, kind))).collect()
}

fn json_line(outcome: &CellResult, kind: &str) -> Value {
    let CellResult { cell, found } = outcome;
    let mut line = json!({
        "mechanism": cell.mechanism.row().spelling,
        "kind": kind,
        "idle": cell.idle,
        "active": cell.active,
    });
    match found {
        Ok(figures) => {
            line["repetitions"] = figures.repetitions.into();
            line["rounds"] = figures.rounds.into();
            line["waits"] = figures.waits.into();
            line["events"] = figures.events.into();
            line["wait_ns"] = spread(figures.wait_ns);
            line["event_ns"] = spread(figures.event_ns);
            line["member_ns"] = spread(figures.member_ns);
            if let Some(search_ns) = figures.search_ns {
                line["search_ns"] = spread(search_ns);
            }
        }
        Err(CellError::Impossible(why)) => line["impossible"] = why.to_string().into(),
        Err(CellError::Failed(why)) => line["failed"] = why.to_string().into(),
    }
    line
}

fn spread(spread: Spread) -> Value {
    let Spread { min, median, max } = spread;
    json!({ "min": min, "median": median, "max": max })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use weir_dispatch::probe::{Cell, Sample};
    use weir_dispatch::readiness::MechanismName;
    use weir_dispatch::readiness::settings::Settings;

    fn outcomes() -> Vec<CellResult> {
        let cell = |idle| Cell {
            mechanism: MechanismName::Select,
            settings: Settings::default(),
            idle,
            active: 2,
        };
        let sample = Sample {
            rounds: 10,
            waits: 15,
            events: 20,
            spent_ns: 3000.0,
            member_ns: 7.0,
            search_ns: Some(31.0),
        };
        let searchless = Sample { search_ns: None, ..sample };
        let impossible = || CellError::Impossible(io::Error::other("no such call"));
        vec![
            CellResult { cell: cell(9), found: Ok(CellCosts::of(&[sample]).unwrap()) },
            CellResult { cell: cell(9), found: Ok(CellCosts::of(&[searchless]).unwrap()) },
            CellResult { cell: cell(10), found: Err(impossible()) },
            CellResult { cell: cell(11), found: Err(impossible()) },
            CellResult { cell: cell(12), found: Err(CellError::Failed(io::Error::other("lost"))) },
        ]
    }

    #[test]
    fn a_table_has_a_row_a_cell_and_says_once_what_is_not_possible() {
        let table = table(&outcomes());
        let lines: Vec<&str> = table.lines().collect();
        let [_, _, row, searchless, impossible, failed] = lines[..] else {
            unreachable!("{table}")
        };
        assert!(row.contains("200 (200 to 200)") && row.ends_with("1.50"), "{row}");
        assert!(row.contains(" 31 (31 to 31) ") && searchless.contains(" - "), "{table}");
        assert_eq!(impossible, "select: not possible here: no such call");
        assert_eq!(failed, "select: 12 idle, 2 active: failed: lost");
    }

    #[test]
    fn a_json_line_has_figures_or_the_reason_why_not() {
        let lines = json_lines(&outcomes(), "unix");
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["wait_ns"]["median"], 200.0);
        assert_eq!((&lines[0]["events"], &lines[0]["kind"]), (&20.into(), &"unix".into()));
        assert_eq!(
            (&lines[0]["search_ns"]["max"], lines[1].get("search_ns")),
            (&31.0.into(), None)
        );
        assert_eq!(lines[2]["impossible"], "no such call");
        assert_eq!((&lines[4]["failed"], &lines[4]["idle"]), (&"lost".into(), &12.into()));
    }
}
