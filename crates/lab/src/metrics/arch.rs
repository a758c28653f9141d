//! Metrics of an architecture's work apart from event handling: its work phases, io_uring calls,
//! context switches, and the jobs it passes to helpers.
//!
//! A server without a ring, without fibers or without helpers has no values for them; neither does
//! an older record, which lacks the counters.

use super::metric::{counted, counted_rate, counted_ratio, mark, metrics, ratio};
use crate::record::Point;

metrics! {
    "work_phase_rate", "work-phases a second", "1/s", |p| counted_rate(p, "work_phases"),
        "Work-phases per second";
    "ring_enters_per_reply", "calls of io_uring_enter a reply", "calls",
        |p| of_used(p, "ring_enters", "ring_enters", "replies"),
        "System calls of a server whose every call is one of its ring's, for each reply";
    "ring_entries_per_enter", "entries submitted a call of io_uring_enter", "entries",
        |p| counted_ratio(p, "ring_entries", "ring_enters"),
        "What was asked for in a ring, for each call of io_uring_enter";
    "ring_completions_per_enter", "completions taken a call of io_uring_enter", "completions",
        |p| counted_ratio(p, "ring_completions", "ring_enters"),
        "What a ring had done, for each call of io_uring_enter";
    "ring_entries_per_reply", "entries submitted a reply", "entries",
        |p| of_used(p, "ring_entries", "ring_entries", "replies"),
        "What was asked for in a ring, for each reply";
    "fiber_switches_per_reply", "switches of fibers a reply", "switches",
        |p| of_used(p, "fiber_switches", "fiber_switches", "replies"),
        "Switches from the scheduler to a fiber, for each reply";
    "fibers_runnable_max", "fibers runnable at once, most", "fibers",
        |p| mark(p, "fibers_runnable_max").filter(|most| *most > 0.0),
        "The most fibers that could have gone on at once, since the server began";
    "context_switches_per_reply", "context switches a reply", "switches",
        |p| ratio(switches(p)?, counted(p, "replies")?),
        "Switches of the server's threads by the kernel, for each reply";
    "voluntary_switches_per_reply", "context switches of who waits, a reply", "switches",
        |p| counted_ratio(p, "context_switches_voluntary", "replies"),
        "Switches of threads that had nothing to do until something came, for each reply";
    "involuntary_switches_per_reply", "context switches of who would go on, a reply", "switches",
        |p| counted_ratio(p, "context_switches_involuntary", "replies"),
        "Switches of threads whose processor was given to another, for each reply";
    "cold_lookup_rate", "cold files asked for a second", "1/s",
        |p| counted_rate(p, "cold_lookups"),
        "Files that were asked for and not in memory, per second";
    "helper_fetch_rate", "files fetched by helpers a second", "1/s",
        |p| counted_rate(p, "helper_fetches"),
        "Files that helpers read from the disk for a loop that went on meanwhile, per second";
    "disk_read_rate", "read from the disk", "MiB/s", disk_read_rate,
        "Bytes the kernel fetched from disks for the server's processes, per second; a lower bound";
}

/// Returns a ratio of two counters, for a server whose counter `used` moved.
fn of_used(point: &Point, used: &str, above: &str, below: &str) -> Option<f64> {
    counted(point, used).filter(|count| *count > 0.0)?;
    counted_ratio(point, above, below)
}

fn switches(point: &Point) -> Option<f64> {
    let of = |name| counted(point, name);
    Some(of("context_switches_voluntary")? + of("context_switches_involuntary")?)
}

fn disk_read_rate(point: &Point) -> Option<f64> {
    let mib = point.server.disk_read_bytes? as f64 / f64::from(1 << 20);
    ratio(mib, point.kernel.window_s)
}

#[cfg(test)]
mod tests {
    use crate::measure::fixtures;
    use crate::metrics::value;

    #[test]
    fn they_are_a_reply_a_call_or_a_second() {
        let wanted = [
            ("work_phase_rate", 375.0),
            ("work_items_mean", 4.0),
            ("ring_enters_per_reply", 0.5),
            ("ring_entries_per_enter", 8.0),
            ("ring_completions_per_enter", 9.0),
            ("ring_entries_per_reply", 4.0),
            ("fiber_switches_per_reply", 3.0),
            ("fibers_runnable_max", 40.0),
            ("context_switches_per_reply", 1.25),
            ("voluntary_switches_per_reply", 1.0),
            ("involuntary_switches_per_reply", 0.25),
            ("cold_lookup_rate", 150.0),
            ("helper_fetch_rate", 75.0),
            ("disk_read_rate", 32.0),
        ];
        for (name, wanted) in wanted {
            let got = value(&fixtures::point(), name).unwrap();
            assert!((got - wanted).abs() < 1e-9, "{name}: {got}");
        }
    }

    #[test]
    fn an_older_record_without_the_counters_has_none_of_them() {
        let mut point = fixtures::point();
        let new = ["ring_", "fiber", "context_", "helper_", "cold_"];
        let old = |name: &String, _: &mut f64| !new.iter().any(|family| name.starts_with(family));
        point.server.counted.retain(old);
        point.server.counted_whole.retain(old);
        point.server.disk_read_bytes = None;
        let of_old = ["work_phase_rate"];
        for metric in super::TABLE.iter().filter(|metric| !of_old.contains(&metric.name)) {
            assert_eq!(value(&point, metric.name), None, "{}", metric.name);
        }
        assert!(value(&point, "work_phase_rate").is_some());
    }

    #[test]
    fn who_has_no_ring_and_no_fibers_has_no_figures_of_them() {
        let mut point = fixtures::point();
        for name in ["ring_enters", "ring_entries", "ring_completions", "fiber_switches"] {
            point.server.counted.insert(name.to_owned(), 0.0);
        }
        point.server.counted_whole.insert("fibers_runnable_max".to_owned(), 0.0);
        for metric in super::TABLE.iter().filter(|metric| metric.name.contains("ring")) {
            assert_eq!(value(&point, metric.name), None, "{}", metric.name);
        }
        assert_eq!(value(&point, "fiber_switches_per_reply"), None);
        assert_eq!(value(&point, "fibers_runnable_max"), None);
    }
}
