//! Metrics of an event mechanism's own work, from the server's counters: the papers' counts of
//! sigwaitinfos and SIGIOs, and other counts for mechanisms that do more than ask the kernel for
//! readiness.
//!
//! Shares are relative to what a mechanism does: one without notices has no share of them.

use super::metric::{counted, counted_rate, counted_ratio, metrics, ratio};
use crate::record::Point;

metrics! {
    "notice_rate", "notices taken a second", "1/s", |p| counted_rate(p, "event_notices"),
        "Notices the mechanism took one by one (signals, completions), per second";
    "overflow_rate", "overflows a second", "1/s", |p| counted_rate(p, "event_overflows"),
        "Times the kernel's queue of notices overflowed (SIGIO), per second";
    "overflow_share", "overflows, of all that was dequeued", "%", overflow_share,
        "Overflows, of overflows and notices acted on: SIGIOs of sigwaitinfos (chandra table 1)";
    "take_rate", "calls that took notices a second", "1/s", |p| counted_rate(p, "event_takes"),
        "Calls that took notices, those that discard them aside, per second: sigwaitinfos";
    "notices_per_take", "notices a call", "notices", notices_per_take,
        "Notices and overflows taken by a call that took any: signals of a sigtimedwait4";
    "fallback_share", "waits by the fallback", "%",
        |p| counted_ratio(p, "event_fallbacks", "getevents_calls").map(|share| 100.0 * share),
        "Of the waits, those answered by what stands in after an overflow (multi-accept select)";
    "swept_rate", "members swept a second", "1/s", |p| counted_rate(p, "event_swept"),
        "Members looked at in the full sweeps that follow an overflow, per second";
    "stale_share", "notices for nothing", "%", |p| of_notices(p, "event_stale"),
        "Of the notices, those of members that had gone or were not ready";
    "coalesced_share", "notices that told nothing new", "%", |p| of_notices(p, "event_coalesced"),
        "Of the notices, those whose descriptor had an earlier one that was not yet taken in";
    "checked_per_wait", "members asked a wait", "members",
        |p| counted_ratio(p, "event_checked", "getevents_calls"),
        "Members asked one by one, because no notice would come, for each wait";
    "rearmed_rate", "members armed again a second", "1/s", |p| counted_rate(p, "event_rearmed"),
        "Members armed again after a notice, per second";
    "batched_per_wait", "changes handed over together, a wait", "changes",
        |p| counted_ratio(p, "event_batched", "getevents_calls"),
        "Changes of interest that were handed over together with others, for each wait";
    "deleted_rate", "members removed by a call a second", "1/s",
        |p| counted_rate(p, "event_deleted"),
        "Members removed from the kernel's set by a call before their close, per second";
}

fn overflow_share(point: &Point) -> Option<f64> {
    ratio(100.0 * counted(point, "event_overflows")?, dequeued(point)?)
}

fn notices_per_take(point: &Point) -> Option<f64> {
    ratio(dequeued(point)?, counted(point, "event_takes")?)
}

/// Returns the number of notices and overflows that were taken and not discarded.
fn dequeued(point: &Point) -> Option<f64> {
    let discarded = counted(point, "event_discarded").unwrap_or(0.0);
    Some(counted(point, "event_overflows")? + counted(point, "event_notices")? - discarded)
}

fn of_notices(point: &Point, name: &str) -> Option<f64> {
    counted_ratio(point, name, "event_notices").map(|share| 100.0 * share)
}

#[cfg(test)]
mod tests {
    use crate::measure::fixtures;
    use crate::metrics::value;

    #[test]
    fn they_are_a_second_a_wait_or_a_share_of_what_was_dequeued() {
        let wanted = [
            ("notice_rate", 1425.0),
            ("overflow_rate", 75.0),
            ("overflow_share", 5.0),
            ("take_rate", 750.0),
            ("notices_per_take", 2.0),
            ("fallback_share", 10.0),
            ("swept_rate", 750.0),
            ("stale_share", 2.0),
            ("coalesced_share", 4.0),
            ("checked_per_wait", 0.5),
            ("rearmed_rate", 300.0),
            ("batched_per_wait", 0.25),
            ("deleted_rate", 1500.0),
        ];
        for (name, wanted) in wanted {
            let got = value(&fixtures::point(), name).unwrap();
            assert!((got - wanted).abs() < 1e-9, "{name}: {got}");
        }
    }

    #[test]
    fn a_mechanism_without_notices_has_no_share_of_them() {
        let mut point = fixtures::point();
        for name in ["event_notices", "event_overflows"] {
            point.server.counted.insert(name.to_owned(), 0.0);
        }
        assert_eq!(value(&point, "overflow_rate"), Some(0.0));
        for name in ["overflow_share", "stale_share", "coalesced_share"] {
            assert_eq!(value(&point, name), None, "{name}");
        }
    }

    #[test]
    fn a_queue_that_tells_of_overflows_alone_overflows_always() {
        let mut point = fixtures::point();
        point.server.counted.insert("event_notices".to_owned(), 0.0);
        assert_eq!(value(&point, "overflow_share"), Some(100.0));
    }
}
