//! Metrics of a load along time: the throughput in parts of it, and the time until the server was
//! calm again. They have no value without a timeline, and most have none without a spike.
//!
//! Only whole bins of the schedule count. Where replies are counted, its first and last bins are
//! left out: the first lacks replies to earlier requests, and the last may end the run.

use std::ops::Range;

use super::metric::metrics;
use crate::record::{Point, Timeline};

/// Maximum ratio of the median of a calm bin to the median before the spike.
const CALM_MAX: f64 = 1.5;

/// Maximum share of a calm bin's requests that may be in error.
const ERRORS_MAX: f64 = 0.1;

/// Number of consecutive bins that must be calm.
const CALM_BINS: usize = 5;

/// Tolerance in aligning bins with steps, seconds: times are sums of decimal fractions.
const SLACK_S: f64 = 1e-6;

const US_PER_MS: f64 = 1e3;

metrics! {
    "timeline.goodput_min", "replies in the worst bin", "replies/s",
        |p| timeline(p)?.goodput_min(),
        "The fewest whole replies per second of any bin within the schedule, but for the first and \
         the last. Replies to requests of the warm-up are in none: where a reply takes longer than \
         a bin, the first ones have too few";
    "timeline.goodput_spike", "replies during the spike", "replies/s",
        |p| timeline(p)?.goodput_spike(),
        "Whole replies per second in the bins between the step up and the step down";
    "timeline.goodput_after", "replies after the spike", "replies/s",
        |p| timeline(p)?.goodput_after(),
        "Whole replies per second in the bins after the step down, but for the last";
    "timeline.calm_p50", "median response before the spike", "ms",
        |p| timeline(p)?.calm_p50_us().map(|us| us / US_PER_MS),
        "The median of the bins' median response times before the step up";
    "timeline.p99_max", "response time of the worst bin, 99th percentile", "ms",
        |p| timeline(p)?.p99_max_us().map(|us| us / US_PER_MS),
        "The longest 99th percentile of any bin within the schedule";
    "timeline.recovered", "calm again after the spike", "%", |p| timeline(p)?.recovered(),
        "100 where `timeline.recovery_ms` has a value, 0 where it was never calm again";
    "timeline.recovery_ms", "time until it is calm again", "ms",
        |p| timeline(p)?.recovery_s().map(|s| s * 1e3),
        "From the step down to the first of 5 bins in a row whose median response is at most 1.5 \
         times `timeline.calm_p50`, with at most a tenth of the requests in error; to a bin's \
         length; none if that never is";
}

fn timeline(point: &Point) -> Option<&Timeline> {
    point.load.timeline.as_ref()
}

/// Returns whether a metric of this name is a time measured by the client.
pub(super) fn is_of_times(name: &str) -> bool {
    name.starts_with("timeline.") && !name.starts_with("timeline.goodput")
}

impl Timeline {
    fn bin_s(&self) -> f64 {
        f64::from(self.bin_ms) / 1e3
    }

    /// Returns the bins that lie entirely between two times.
    fn between(&self, from_s: f64, to_s: f64) -> Range<usize> {
        let bin_s = self.bin_s();
        let from = ((from_s - SLACK_S) / bin_s).ceil().max(0.0) as usize;
        let to = ((to_s + SLACK_S) / bin_s).floor().max(0.0) as usize;
        from..to.min(self.planned.len()).max(from)
    }

    /// Returns the bins of the schedule.
    fn scheduled(&self) -> Range<usize> {
        self.between(0.0, self.duration_s)
    }

    /// Returns the bins of `range` in which replies are counted: the schedule without its first and
    /// last bins.
    fn inner(&self, range: Range<usize>) -> Range<usize> {
        let to = range.end.min(self.scheduled().end.saturating_sub(1));
        range.start.max(1)..to
    }

    /// Converts a count over some bins to a rate per second.
    fn rate(&self, count: u64, bins: usize) -> f64 {
        1e3 * count as f64 / (bins as f64 * f64::from(self.bin_ms))
    }

    /// Returns whole replies per second over some bins.
    fn goodput(&self, bins: Range<usize>) -> Option<f64> {
        let replies = self.replies.get(bins).filter(|bins| !bins.is_empty())?;
        Some(self.rate(replies.iter().sum(), replies.len()))
    }

    fn goodput_min(&self) -> Option<f64> {
        let bins = self.replies.get(self.inner(self.scheduled()))?;
        bins.iter().min().map(|replies| self.rate(*replies, 1))
    }

    fn goodput_spike(&self) -> Option<f64> {
        self.goodput(self.inner(self.between(self.up_s?, self.down_s?)))
    }

    fn goodput_after(&self) -> Option<f64> {
        self.goodput(self.inner(self.between(self.down_s?, self.duration_s)))
    }

    fn calm_p50_us(&self) -> Option<f64> {
        let bins = self.p50_us.get(self.between(0.0, self.up_s?))?;
        let medians: Vec<f64> = bins.iter().flatten().map(|us| *us as f64).collect();
        weir_stats::median(&medians)
    }

    fn p99_max_us(&self) -> Option<f64> {
        let bins = self.p99_us.get(self.scheduled())?;
        bins.iter().flatten().max().map(|us| *us as f64)
    }

    fn recovered(&self) -> Option<f64> {
        self.calm_p50_us()?;
        Some(if self.recovery_s().is_some() { 100.0 } else { 0.0 })
    }

    /// Returns the time from the end of the spike until the server was calm again, seconds.
    fn recovery_s(&self) -> Option<f64> {
        let down_s = self.down_s?;
        let allowed_us = CALM_MAX * self.calm_p50_us()?;
        let after = self.between(down_s, self.duration_s);
        let calm: Vec<bool> = after.clone().map(|bin| self.is_calm(bin, allowed_us)).collect();
        let first = calm.windows(CALM_BINS).position(|bins| bins.iter().all(|calm| *calm))?;
        let begins_s = (after.start + first) as f64 * self.bin_s();
        Some((begins_s - down_s).max(0.0))
    }

    fn is_calm(&self, bin: usize, allowed_us: f64) -> bool {
        let of = |counts: &[u64]| counts.get(bin).copied().unwrap_or(0) as f64;
        let median_us = self.p50_us.get(bin).copied().flatten();
        median_us.is_some_and(|us| us as f64 <= allowed_us)
            && of(&self.errors) <= ERRORS_MAX * of(&self.planned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::fixtures;
    use crate::metrics::{is_of_times as of_times, value};

    /// A point with ten requests per bin of 100 ms: calm for a second, five bins of a spike, then
    /// the given bins, each with its median in milliseconds and its errors.
    fn point(after: &[(u64, u64)]) -> Point {
        let bins = 15 + after.len();
        let median = |ms: u64| Some(1000 * ms);
        let timeline = Timeline {
            bin_ms: 100,
            duration_s: bins as f64 / 10.0,
            up_s: Some(1.0),
            down_s: Some(1.5),
            planned: vec![10; bins + 2],
            replies: [vec![10; 10], vec![4; 5], vec![6; after.len()], vec![1; 2]].concat(),
            errors: [vec![0; 15], after.iter().map(|bin| bin.1).collect(), vec![0; 2]].concat(),
            p50_us: [vec![median(2); 10], vec![median(90); 5]]
                .concat()
                .into_iter()
                .chain(after.iter().map(|bin| median(bin.0)))
                .chain([None, None])
                .collect(),
            p99_us: [vec![Some(7000); bins], vec![None, Some(9_000_000)]].concat(),
        };
        let mut point = fixtures::point();
        point.load.timeline = Some(timeline);
        point
    }

    #[test]
    fn goodput_is_known_for_each_part_of_a_spike() {
        let mut point = point(&[(2, 0); 8]);
        assert_eq!(value(&point, "timeline.goodput_min"), Some(40.0));
        assert_eq!(value(&point, "timeline.goodput_spike"), Some(40.0));
        assert_eq!(value(&point, "timeline.goodput_after"), Some(60.0));
        assert_eq!(value(&point, "timeline.calm_p50"), Some(2.0));
        assert_eq!(value(&point, "timeline.p99_max"), Some(7.0));
        let timeline = point.load.timeline.as_mut().unwrap();
        (timeline.replies[0], timeline.replies[22]) = (0, 0);
        assert_eq!(value(&point, "timeline.goodput_min"), Some(40.0));
        assert_eq!(value(&point, "timeline.goodput_after"), Some(60.0));
    }

    #[test]
    fn it_is_calm_again_when_five_bins_in_a_row_are() {
        let recovery = |after: &[(u64, u64)]| {
            let point = point(after);
            let ms = value(&point, "timeline.recovery_ms").map(f64::round);
            (ms, value(&point, "timeline.recovered"))
        };
        assert_eq!(recovery(&[(2, 0); 6]), (Some(0.0), Some(100.0)));
        let late = [[(90, 0); 3], [(3, 0); 3], [(2, 1); 3]].concat();
        assert_eq!(recovery(&late), (Some(300.0), Some(100.0)));
        // A slow bin restarts the count of calm bins, and so does one with errors.
        let broken = [vec![(2, 0); 4], vec![(4, 0)], vec![(2, 0); 5]].concat();
        assert_eq!(recovery(&broken), (Some(500.0), Some(100.0)));
        let failing = [vec![(2, 0); 4], vec![(2, 2)], vec![(2, 0); 5]].concat();
        assert_eq!(recovery(&failing), (Some(500.0), Some(100.0)));
        assert_eq!(recovery(&[(2, 0); 4]), (None, Some(0.0)));
        assert_eq!(recovery(&[(90, 0); 9]), (None, Some(0.0)));
    }

    #[test]
    fn a_step_within_a_bin_leaves_that_bin_out() {
        let mut point = point(&[(2, 0); 8]);
        let timeline = point.load.timeline.as_mut().unwrap();
        (timeline.up_s, timeline.down_s) = (Some(0.95), Some(1.45));
        timeline.replies[9] = 0;
        assert_eq!(timeline.between(0.95, 1.45), 10..14);
        assert_eq!(value(&point, "timeline.goodput_spike"), Some(40.0));
        assert_eq!(value(&point, "timeline.recovery_ms").map(f64::round), Some(50.0));
    }

    #[test]
    fn without_a_spike_nothing_is_before_or_after_it() {
        let mut point = point(&[(2, 0); 8]);
        let timeline = point.load.timeline.as_mut().unwrap();
        (timeline.up_s, timeline.down_s) = (None, None);
        for metric in TABLE {
            let told = ["timeline.goodput_min", "timeline.p99_max"].contains(&metric.name);
            assert_eq!(value(&point, metric.name).is_some(), told, "{}", metric.name);
        }
        point.load.timeline = Some(Timeline::default());
        assert!(TABLE.iter().all(|metric| value(&point, metric.name).is_none()));
    }

    #[test]
    fn a_late_client_spoils_the_times_of_a_timeline_and_not_its_counts() {
        assert!(of_times("timeline.recovery_ms") && of_times("timeline.p99_max"));
        assert!(!of_times("timeline.goodput_min"));
    }
}
