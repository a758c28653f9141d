//! Metrics of a probe: the cost of an event mechanism by itself. They have no value without a
//! probe, and a point with a probe has no others, because it had no load.

use super::metric::metrics;
use crate::record::{Point, ProbeResult};

/// Prefix of their names.
pub(super) const PREFIX: &str = "probe_";

metrics! {
    "probe_wait_ns", "processor time of a wait", "ns", |p| of(p, |probe| probe.wait_ns.median),
        "Of a probe: processor time in the mechanism for each of its waits, the kernel's included";
    "probe_event_ns", "processor time of an event", "ns", |p| of(p, |probe| probe.event_ns.median),
        "Of a probe: processor time in the mechanism for each event";
    "probe_member_ns", "processor time of a membership", "ns",
        |p| of(p, |probe| probe.member_ns.median),
        "Of a probe: processor time for a socket to become a member and to go again, by its close";
    "probe_search_ns", "processor time of a search", "ns",
        |p| p.probe.as_ref()?.search_ns.map(|search| search.median),
        "Of a probe: part of a wait in which its result is searched in user mode; `select` and \
         `select-isset` only";
}

fn of(point: &Point, figure: fn(&ProbeResult) -> f64) -> Option<f64> {
    point.probe.as_ref().map(figure)
}

#[cfg(test)]
mod tests {
    use crate::measure::fixtures;
    use crate::metrics::value;

    #[test]
    fn they_are_medians_and_a_point_without_a_load_has_no_others() {
        let point = fixtures::probed();
        let wanted = [
            ("probe_wait_ns", Some(700.0)),
            ("probe_event_ns", Some(350.0)),
            ("probe_member_ns", Some(1200.0)),
            ("probe_search_ns", Some(40.0)),
            ("reply_rate", None),
            ("core_busy", None),
            ("kernel.Tcp.PassiveOpens.rate", None),
        ];
        for (name, wanted) in wanted {
            assert_eq!(value(&point, name), wanted, "{name}");
        }
        assert_eq!(value(&fixtures::point(), "probe_wait_ns"), None);
    }
}
