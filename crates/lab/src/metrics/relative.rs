//! Metrics relative to other points: a metric held against the same server's value elsewhere along
//! the sweep. Only names are defined here; they are computed where all points are available.

use super::metric::MetricInfo;

/// The point along the sweep that a metric is compared with, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A ratio to where the server's value is highest.
    Peak,
    /// A ratio to that at the lowest value of the sweep.
    First,
    /// The increase since the lowest value of the sweep, for each unit of the sweep's value.
    EachSinceFirst,
}

/// A metric relative to another point.
#[derive(Clone, Copy, Debug)]
pub struct RelativeMetric {
    pub(super) name: &'static str,
    label: &'static str,
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
    /// The metric it is derived from.
    pub of: &'static str,
    /// The point it is compared with.
    pub base: Base,
    /// Factor applied to the result: 100 if it is a ratio in %.
    pub factor: f64,
}

/// Bytes in the unit of memory.
const MIB: f64 = 1_048_576.0;

/// The metrics of this module.
pub(super) const TABLE: &[RelativeMetric] = &[
    RelativeMetric {
        name: "goodput_kept",
        label: "goodput, of the server's own peak",
        unit: "%",
        help: "Goodput as a share of the most that this server had along the sweep, within rounds",
        of: "goodput",
        base: Base::Peak,
        factor: 100.0,
    },
    RelativeMetric {
        name: "response_p99_grown",
        label: "response time, 99th percentile, against the lowest value's",
        unit: "times",
        help: "`response_p99` against what it was at the sweep's lowest value, within rounds",
        of: "response_p99",
        base: Base::First,
        factor: 1.0,
    },
    RelativeMetric {
        name: "core_us_per_reply_grown",
        label: "core time a reply, against the lowest value's",
        unit: "times",
        help: "`core_us_per_reply` against what it was at the sweep's lowest value, within rounds",
        of: "core_us_per_reply",
        base: Base::First,
        factor: 1.0,
    },
    RelativeMetric {
        name: "server_bytes_per_idle",
        label: "memory of the server, an idle connection",
        unit: "bytes",
        help: "What `server_rss` grew by since the lowest value of a sweep over idle connections, \
               for each of them",
        of: "server_rss",
        base: Base::EachSinceFirst,
        factor: MIB,
    },
    RelativeMetric {
        name: "client_bytes_per_idle",
        label: "memory of the client, an idle connection",
        unit: "bytes",
        help: "What `client_rss` grew by since the lowest value of a sweep over idle connections, \
               for each of them",
        of: "client_rss",
        base: Base::EachSinceFirst,
        factor: MIB,
    },
];

/// Returns the definition of a relative metric; `None` for a metric that points contain directly.
pub fn relative(name: &str) -> Option<&'static RelativeMetric> {
    TABLE.iter().find(|one| one.name == name)
}

/// Returns the name of the metric that points have: the one that a relative metric is derived from,
/// or any other itself.
pub fn of_points(name: &str) -> &str {
    relative(name).map_or(name, |one| one.of)
}

pub(super) fn find(name: &str) -> Option<MetricInfo> {
    let one = relative(name)?;
    Some(MetricInfo { label: one.label.into(), unit: one.unit, help: one.help.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::fixtures;
    use crate::metrics;

    #[test]
    fn relative_metrics_exist_and_no_single_point_has_them() {
        for one in TABLE {
            let info = metrics::find(one.name).unwrap();
            assert_eq!((&*info.label, info.unit), (one.label, one.unit));
            assert!(relative(one.of).is_none() && one.factor > 0.0);
            assert_eq!(metrics::value(&fixtures::point(), one.name), None);
            assert!(metrics::value(&fixtures::point(), one.of).is_some());
        }
    }
}
