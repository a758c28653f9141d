//! Metrics that no point tells by itself: another one, as a share of the most of it that the server
//! has along the sweep. Only names are known here; the share is made where all points are.

use super::MetricInfo;

/// Such a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfPeak {
    pub(super) name: &'static str,
    label: &'static str,
    pub(super) help: &'static str,
    /// The other one.
    of: &'static str,
}

/// The unit of all of them.
pub(super) const UNIT: &str = "%";

/// All of them.
pub(super) const TABLE: &[OfPeak] = &[OfPeak {
    name: "goodput_kept",
    label: "goodput, of the server's own peak",
    help: "Goodput as a share of the most that this server had along the sweep, within rounds",
    of: "goodput",
}];

/// The metric whose share of the server's own peak, %, a metric is; none if it is no such share.
pub fn of_peak(name: &str) -> Option<&'static str> {
    TABLE.iter().find(|one| one.name == name).map(|one| one.of)
}

pub(super) fn find(name: &str) -> Option<MetricInfo> {
    let one = TABLE.iter().find(|one| one.name == name)?;
    Some(MetricInfo { label: one.label.into(), unit: UNIT, help: one.help.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::made_up;
    use crate::metrics;

    #[test]
    fn a_share_of_a_peak_is_known_and_no_point_has_it() {
        for one in TABLE {
            let info = metrics::find(one.name).unwrap();
            assert_eq!((&*info.label, info.unit), (one.label, "%"));
            assert_eq!((of_peak(one.name), of_peak(one.of)), (Some(one.of), None));
            assert_eq!(metrics::value(&made_up::point(), one.name), None);
            assert!(metrics::value(&made_up::point(), one.of).is_some());
        }
    }
}
