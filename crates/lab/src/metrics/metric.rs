//! A metric, and the reading of a point's counters that metrics share.

use std::borrow::Cow;

use crate::measure::identity;
use crate::record::{CoreTime, Point, Times};

/// A metric of the table: a quantity of a point, or of a part of one.
#[derive(Debug)]
pub struct Metric<T = Point> {
    /// Its name in experiments' files.
    pub name: &'static str,
    /// Its name on an axis.
    pub label: &'static str,
    /// Its unit; empty for a pure number.
    pub unit: &'static str,
    /// Its meaning.
    pub help: &'static str,
    pub(super) of: fn(&T) -> Option<f64>,
}

/// Label, unit and meaning of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    /// Its name on an axis.
    pub label: Cow<'static, str>,
    /// Its unit; empty for a pure number.
    pub unit: &'static str,
    /// Its meaning.
    pub help: Cow<'static, str>,
}

/// Defines a table, that of the module unless it is named. Each row is a metric: its name, label
/// and unit, how it is read, and its meaning.
macro_rules! metrics {
    ($table:ident of $part:ty;
     $($name:literal, $label:literal, $unit:literal, $of:expr, $help:literal;)+) => {
        pub(super) const $table: &[$crate::metrics::Metric<$part>] = &[
            $($crate::metrics::Metric {
                name: $name,
                label: $label,
                unit: $unit,
                help: $help,
                of: $of,
            },)+
        ];
    };
    ($name:literal $($rest:tt)+) => {
        $crate::metrics::metric::metrics! { TABLE of $crate::record::Point; $name $($rest)+ }
    };
}

pub(super) use metrics;

/// Returns `above / below`; `None` unless `below` is positive.
pub(super) fn ratio(above: f64, below: f64) -> Option<f64> {
    (below > 0.0).then(|| above / below)
}

pub(super) fn ms(times: Option<&Times>, of: fn(&Times) -> Option<f64>) -> Option<f64> {
    times.filter(|times| times.count > 0).and_then(of).map(|us| us / 1000.0)
}

/// Returns the time in which processors had something to do, for each reply, microseconds: computed
/// from rates because the load and the processors are measured over slightly different windows.
pub(super) fn core_us_per_reply(point: &Point, cores: &CoreTime) -> Option<f64> {
    let processors = ratio(cores.total_s, point.kernel.window_s)?;
    ratio(1e6 * cores.busy_share()? * processors, point.load.replies_per_s)
}

/// Returns what processors did, for each reply; from rates, as [`core_us_per_reply`].
pub(super) fn per_reply(point: &Point, done: Option<f64>) -> Option<f64> {
    ratio(ratio(done?, point.kernel.window_s)?, point.load.replies_per_s)
}

/// Returns the growth of one of the server's counters. A server answers only between its phases: if
/// it is stuck in one it answers too late, and what it then reports covers another window.
pub(super) fn counted(point: &Point, name: &str) -> Option<f64> {
    let counted = &point.server.counted;
    let (of_server, window_s) = (counted.get("elapsed_s")?, point.kernel.window_s);
    counted.get(name).copied().filter(|_| identity::same_time(*of_server, window_s))
}

/// Returns the growth of a counter per second, by the server's clock.
pub(super) fn counted_rate(point: &Point, name: &str) -> Option<f64> {
    ratio(counted(point, name)?, counted(point, "elapsed_s")?)
}

pub(super) fn counted_ratio(point: &Point, above: &str, below: &str) -> Option<f64> {
    ratio(counted(point, above)?, counted(point, below)?)
}

/// Returns a high-water mark over the server's whole lifetime.
pub(super) fn mark(point: &Point, name: &str) -> Option<f64> {
    point.server.counted_whole.get(name).copied()
}

#[cfg(test)]
mod tests {
    use crate::measure::fixtures;
    use crate::metrics::value;

    #[test]
    fn what_processors_did_is_divided_by_the_replies_of_the_window() {
        let mut point = fixtures::point();
        let replies = point.load.replies_per_s * point.kernel.window_s;
        point.cores.server.instructions = Some(5000.0 * replies);
        point.cores.server.cycles = Some(2000.0 * replies);
        let per_reply = |name| value(&point, name).unwrap();
        assert!((per_reply("instructions_per_reply") - 5000.0).abs() < 1e-6);
        assert!((per_reply("cycles_per_reply") - 2000.0).abs() < 1e-6);
        point.cores.server.instructions = None;
        assert_eq!(value(&point, "instructions_per_reply"), None);
    }
}
