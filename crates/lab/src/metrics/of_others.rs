//! Metrics that no point tells by itself: another one, against what the server has of it elsewhere
//! along the sweep. Only names are known here; the ratio is made where all points are.

use super::MetricInfo;

/// Where along the sweep that is what a metric is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Where the server has the most of it.
    Peak,
    /// At the lowest value of the sweep.
    First,
}

/// Such a metric.
#[derive(Clone, Copy, Debug)]
pub struct OfOthers {
    pub(super) name: &'static str,
    label: &'static str,
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
    /// The other one.
    pub of: &'static str,
    /// What it is held against.
    pub base: Base,
    /// What their ratio is multiplied by: 100 where the unit is %.
    pub factor: f64,
}

/// All of them.
pub(super) const TABLE: &[OfOthers] = &[
    OfOthers {
        name: "goodput_kept",
        label: "goodput, of the server's own peak",
        unit: "%",
        help: "Goodput as a share of the most that this server had along the sweep, within rounds",
        of: "goodput",
        base: Base::Peak,
        factor: 100.0,
    },
    OfOthers {
        name: "response_p99_grown",
        label: "response time, 99th percentile, against the lowest value's",
        unit: "times",
        help: "`response_p99` against what it was at the sweep's lowest value, within rounds",
        of: "response_p99",
        base: Base::First,
        factor: 1.0,
    },
];

/// What a metric is made of; none if points tell it by themselves.
pub fn of_others(name: &str) -> Option<&'static OfOthers> {
    TABLE.iter().find(|one| one.name == name)
}

pub(super) fn find(name: &str) -> Option<MetricInfo> {
    let one = of_others(name)?;
    Some(MetricInfo { label: one.label.into(), unit: one.unit, help: one.help.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::made_up;
    use crate::metrics;

    #[test]
    fn what_is_held_against_other_points_is_known_and_no_point_has_it() {
        for one in TABLE {
            let info = metrics::find(one.name).unwrap();
            assert_eq!((&*info.label, info.unit), (one.label, one.unit));
            assert!(of_others(one.of).is_none() && one.factor > 0.0);
            assert_eq!(metrics::value(&made_up::point(), one.name), None);
            assert!(metrics::value(&made_up::point(), one.of).is_some());
        }
    }
}
