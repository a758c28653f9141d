//! Metrics of a replayed day: how the processor time of the server's processes depends on the
//! request rate, by linear regression over its samples (banga-scalable §6.2), and its extremes.
//! They have no value without samples.
//!
//! The paper counted clock ticks. The kernel charges a process's time exactly, and divides it into
//! user and system time at ticks. The idle counter is not used: the speed of a virtual processor
//! changes too much in the minute that a day takes.

use weir_stats::Line;

use super::metric::metrics;
use crate::experiment::CpuMode;
use crate::record::{DaySample, Point};

/// Part of the mean rate from which on the samples of `day.above` are: the paper leaves out those
/// below 20 requests per second, of a day with 30 on average (its tables 3 and 5).
const ABOVE: f64 = 2.0 / 3.0;

metrics! {
    "day.idle_slope", "idle time per request rate", "%/(1/s)",
        |p| Some(line(p, CpuMode::Idle, 0.0)?.slope),
        "Change of the share of its processors' time that the server's processes leave, for each \
         request per second more: linear regression over a day's samples";
    "day.idle_zero_rate", "request rate with no idle time left", "requests/s",
        |p| line(p, CpuMode::Idle, 0.0)?.x_intercept(),
        "Where the line through these shares reaches 0 (X-intercept)";
    "day.idle_correlation", "idle time and request rate, correlation", "",
        |p| Some(line(p, CpuMode::Idle, 0.0)?.correlation),
        "Correlation coefficient of that share and the request rate over a day's samples";
    "day.kernel_slope", "kernel time per request rate", "%/(1/s)",
        |p| Some(line(p, CpuMode::Kernel, 0.0)?.slope),
        "The same slope of the system time of the server's processes";
    "day.kernel_correlation", "kernel time and request rate, correlation", "",
        |p| Some(line(p, CpuMode::Kernel, 0.0)?.correlation),
        "Correlation coefficient of system time and request rate";
    "day.user_slope", "user time per request rate", "%/(1/s)",
        |p| Some(line(p, CpuMode::User, 0.0)?.slope),
        "The same slope of the user time of the server's processes";
    "day.user_correlation", "user time and request rate, correlation", "",
        |p| Some(line(p, CpuMode::User, 0.0)?.correlation),
        "Correlation coefficient of user time and request rate";
    "day.above.idle_slope", "idle time per request rate, busy samples", "%/(1/s)",
        |p| Some(line(p, CpuMode::Idle, ABOVE)?.slope),
        "The same slope of idle time, of the samples with two thirds of their mean rate or more";
    "day.above.idle_zero_rate", "request rate with no idle time left, busy samples", "requests/s",
        |p| line(p, CpuMode::Idle, ABOVE)?.x_intercept(),
        "Where the line through these reaches 0";
    "day.above.idle_correlation", "idle time and request rate, correlation, busy samples", "",
        |p| Some(line(p, CpuMode::Idle, ABOVE)?.correlation),
        "Correlation coefficient of idle time and request rate, of these samples";
    "day.above.kernel_slope", "kernel time per request rate, busy samples", "%/(1/s)",
        |p| Some(line(p, CpuMode::Kernel, ABOVE)?.slope),
        "Slope of system time, of these samples";
    "day.above.kernel_correlation", "kernel time and request rate, correlation, busy samples", "",
        |p| Some(line(p, CpuMode::Kernel, ABOVE)?.correlation),
        "Correlation coefficient of system time and request rate, of these samples";
    "day.above.user_slope", "user time per request rate, busy samples", "%/(1/s)",
        |p| Some(line(p, CpuMode::User, ABOVE)?.slope),
        "Slope of user time, of these samples";
    "day.above.user_correlation", "user time and request rate, correlation, busy samples", "",
        |p| Some(line(p, CpuMode::User, ABOVE)?.correlation),
        "Correlation coefficient of user time and request rate, of these samples";
    "day.request_rate_max", "request rate, highest sample", "requests/s",
        |p| most(p, |sample| sample.request_rate),
        "Requests per second in the busiest sample of a day";
    "day.open_max", "open connections, highest sample", "connections",
        |p| most(p, |sample| sample.open),
        "The most connections that were open at the end of a sample";
}

/// Returns the line through the samples with at least a part of their mean rate.
fn line(point: &Point, mode: CpuMode, part: f64) -> Option<Line> {
    let rates = point.samples.iter().map(|sample| sample.request_rate);
    let rate_min = part * rates.sum::<f64>() / point.samples.len() as f64;
    let samples = point.samples.iter().filter(|sample| sample.request_rate >= rate_min);
    Line::fit(
        &samples.map(|sample| (sample.request_rate, sample.percent(mode))).collect::<Vec<_>>(),
    )
}

fn most(point: &Point, of: fn(&DaySample) -> f64) -> Option<f64> {
    point.samples.iter().map(of).reduce(f64::max)
}

impl DaySample {
    /// Returns a share of the processors' time, percent.
    pub fn percent(&self, mode: CpuMode) -> f64 {
        100.0
            * match mode {
                CpuMode::Idle => 1.0 - self.user - self.system,
                CpuMode::Kernel => self.system,
                CpuMode::User => self.user,
            }
    }
}

#[cfg(test)]
mod tests {
    use crate::measure::fixtures;
    use crate::metrics::value;
    use crate::record::DaySample;

    #[test]
    fn slopes_are_of_the_samples() {
        let mut point = fixtures::crowded();
        let of = |point: &_, name| value(point, name);
        let near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-6;
        assert!(near(of(&point, "day.idle_slope"), -0.02));
        assert!(near(of(&point, "day.idle_zero_rate"), 5000.0));
        assert!(near(of(&point, "day.kernel_slope"), 0.015));
        assert!(near(of(&point, "day.user_slope"), 0.005));
        assert!(near(of(&point, "day.user_correlation"), 1.0));
        assert_eq!(of(&point, "day.request_rate_max"), Some(3000.0));
        assert_eq!(of(&point, "day.open_max"), Some(300.0));
        // Two thirds of the mean rate are 1166.7 requests per second then.
        let idle = DaySample { request_rate: 999.0, open: 0.0, user: 0.9, system: 0.0 };
        point.samples.push(idle);
        assert!(of(&point, "day.user_slope") < Some(0.0));
        for (metric, wanted) in [
            ("day.above.idle_slope", -0.02),
            ("day.above.idle_zero_rate", 5000.0),
            ("day.above.idle_correlation", -1.0),
            ("day.above.kernel_slope", 0.015),
            ("day.above.kernel_correlation", 1.0),
            ("day.above.user_slope", 0.005),
            ("day.above.user_correlation", 1.0),
        ] {
            assert!(near(of(&point, metric), wanted), "{metric}");
        }
        point.samples.clear();
        assert_eq!(of(&point, "day.idle_slope"), None);
        assert_eq!(of(&point, "day.open_max"), None);
    }
}
