//! The statistics as lines for a terminal. Reads nothing and prints nothing.

use weir_stats::page::{Named, Snapshot};

/// Snapshots that are shown: the last one, and the one before if there is one.
pub(super) struct View<'a> {
    pub(super) now: &'a Snapshot,
    pub(super) before: Option<&'a Snapshot>,
    /// True to show statistics that are 0 as well.
    pub(super) all: bool,
}

/// Returns the lines: a title, derived figures, and each counter with its total, its rate per
/// second and its meaning. Rates and figures are over the time since the snapshot before, or since
/// the server's start.
pub(super) fn lines(view: &View<'_>) -> Vec<String> {
    let total = view.now.total();
    let before = view.before.map(Snapshot::total);
    let seconds = view.now.elapsed_s() - view.before.map_or(0.0, Snapshot::elapsed_s);
    let grown = growth(&total, before.as_deref());
    let mut lines = vec![title(view.now), heading()];
    for (name, value, help) in Snapshot::derived(&grown, seconds) {
        if view.all || value != 0.0 {
            lines.push(format!("{name:<28} {:>16} {value:>14.2}  {help}", ""));
        }
    }
    for (row, grown) in total.iter().zip(&grown) {
        let Some(value) = row.value.filter(|value| view.all || *value > 0) else { continue };
        let rate = match grown.value {
            Some(by) if row.merge.is_counter() && seconds > 0.0 => {
                format!("{:.2}", by as f64 / seconds)
            }
            _ => String::new(),
        };
        lines.push(format!("{:<28} {value:>16} {rate:>14}  {}", row.name, row.help));
    }
    lines
}

fn growth(total: &[Named], before: Option<&[Named]>) -> Vec<Named> {
    let Some(before) = before else { return total.to_vec() };
    let rows = total.iter().zip(before);
    rows.map(|(now, then)| Named {
        value: now.value.zip(then.value).map(|(now, then)| now.saturating_sub(then)),
        ..now.clone()
    })
    .collect()
}

/// Returns a line about a server.
pub(super) fn title(snapshot: &Snapshot) -> String {
    let description = &snapshot.layout.description;
    format!(
        "{}, process {}, {}, running for {}",
        description.program,
        description.pid,
        description.addresses.join(", "),
        duration(snapshot.elapsed_s()),
    )
}

fn heading() -> String {
    format!("{:<28} {:>16} {:>14}  meaning", "statistic", "total", "per second")
}

/// Returns a list of servers: process id, running time and addresses.
pub(super) fn list(servers: &[Snapshot]) -> Vec<String> {
    let row = |snapshot: &Snapshot| {
        let description = &snapshot.layout.description;
        let since = duration(snapshot.elapsed_s());
        format!("{:>8}  {since:>12}  {}", description.pid, description.addresses.join(", "))
    };
    let heading = format!("{:>8}  {:>12}  addresses", "pid", "running for");
    std::iter::once(heading).chain(servers.iter().map(row)).collect()
}

fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use weir_stats::page::{Description, Layout, Owner, State};
    use weir_stats::{Counters, TABLE};

    fn snapshot(seconds: u64, accepted: u64) -> Snapshot {
        let layout = Layout::new(Description {
            slots: 1,
            pid: 7,
            addresses: vec!["http://[::1]:80".into()],
            ..Description::of_this_build()
        });
        let words: Vec<AtomicU64> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
        let writer = layout.slot(&words, 0).unwrap();
        writer.set_owner(&Owner { state: State::Live, ..Owner::default() });
        let mut counters = Counters::default();
        counters.accepted.add(accepted);
        counters.open_max.raise(2);
        writer.publish(0, &counters.values(), &[]);
        layout.snapshot(&words[..], seconds * 1_000_000_000, 0).unwrap()
    }

    #[test]
    fn rates_are_over_the_time_since_the_last_snapshot() {
        let (first, second) = (snapshot(10, 100), snapshot(12, 150));
        let row = |lines: &[String], name: &str| {
            let found = lines.iter().find(|line| line.starts_with(name));
            found.map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let once = lines(&View { now: &first, before: None, all: false });
        assert_eq!(row(&once, "accepted ").unwrap()[1..3], ["100", "10.00"]);
        assert!(once[0].contains("process 7, http://[::1]:80, running for 10.0 s"), "{}", once[0]);
        assert_eq!(row(&once, "replies "), None);
        let again = lines(&View { now: &second, before: Some(&first), all: true });
        assert_eq!(row(&again, "accepted ").unwrap()[1..3], ["150", "25.00"]);
        assert_eq!(row(&again, "open_max ").unwrap()[1..3], ["2", "maximum"]);
        // The kernel was not asked for its four.
        assert_eq!(again.len(), 2 + 8 + TABLE.len() - 4);
    }

    #[test]
    fn a_duration_has_two_units_at_most() {
        let texts = [0.25, 61.0, 7_260.0, 100_000.0].map(duration);
        assert_eq!(texts, ["0.2 s", "1 min 1 s", "2 h 1 min", "1 d 3 h"]);
    }
}
