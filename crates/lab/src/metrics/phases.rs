//! Metrics of a loop's phases: the processor time that weir measures with `--phase-times`.

use super::metric::{counted, counted_rate, metrics};
use crate::record::Point;

metrics! {
    "getevents_user", "user time of getevents-phases", "%", |p| share(p, "getevents_user_ns"),
        "User time of the phases that ask for events, of one loop's time: with `--phase-times`";
    "getevents_system", "system time of getevents-phases", "%", |p| share(p, "getevents_system_ns"),
        "System time of the same, of one loop's time: under a ring, of the operations too";
    "accept_user", "user time of accept-phases", "%", |p| share(p, "accept_user_ns"),
        "User time of the accept-phases, of one loop's time: with `--phase-times`";
    "accept_system", "system time of accept-phases", "%", |p| share(p, "accept_system_ns"),
        "System time of the accept-phases, of one loop's time: with `--phase-times`";
    "work_user", "user time of work-phases", "%", |p| share(p, "work_user_ns"),
        "User time of the work-phases, in which connections read and write, of one loop's time: \
         with `--phase-times`";
    "work_system", "system time of work-phases", "%", |p| share(p, "work_system_ns"),
        "System time of the work-phases, of one loop's time: with `--phase-times`";
}

/// Returns a time as a part of one loop's time, %: loops add up. `None` if phases were not timed.
fn share(point: &Point, name: &str) -> Option<f64> {
    counted(point, "phases_timed").filter(|timed| *timed > 0.0)?;
    Some(100.0 * counted_rate(point, name)? / 1e9)
}

#[cfg(test)]
mod tests {
    use crate::measure::fixtures;
    use crate::metrics::value;

    #[test]
    fn the_time_of_a_phase_is_of_one_loop_and_unknown_unless_phases_were_timed() {
        let mut point = fixtures::point();
        let about = |name: &str, wanted: f64| {
            let got = value(&point, name).unwrap();
            assert!((got - wanted).abs() < 1e-9, "{name}: {got}");
        };
        about("accept_system", 3.0);
        about("work_user", 15.0);
        about("getevents_user", 0.0);
        point.server.counted.insert("phases_timed".into(), 0.0);
        assert_eq!(value(&point, "work_user"), None);
    }
}
