//! The value of a metric at a place, as figures and tables show it: the median of the valid points
//! with its interval, and that of the INVALID ones. Metrics relative to other points of the server
//! are computed here, because no single point contains them.

use super::estimate::{self, Pick, Side, estimate, of_sides};
use super::study::{PointIndex, Rounds, Study};
use crate::findings::Estimate;
use crate::metrics::{self, Base, RelativeMetric};

/// Returns a metric of the valid points at a spot.
pub(super) fn valid(study: &Study<'_>, spot: PointIndex, metric: &str) -> Option<Estimate> {
    let Some(relative) = metrics::relative(metric) else {
        return estimate(&study.valid(spot, metric).into_values().collect::<Vec<_>>());
    };
    if relative.base == Base::EachSinceFirst {
        return estimate(&since_first(study, spot, relative.of, relative.factor)?);
    }
    let curve = study.curve(spot.sweep, spot.server, relative.of);
    let base = Some(base(relative, &curve));
    of_sides(&Side { curve, pick: Pick::Fixed(spot.value), base }, None)
}

/// Returns the place along a curve that a relative metric is held against, by a ratio.
pub(super) fn base(relative: &RelativeMetric, curve: &[Rounds]) -> estimate::Base {
    let pick = match relative.base {
        Base::Peak => Pick::Peak(curve.to_vec()),
        Base::First | Base::EachSinceFirst => Pick::Fixed(0),
    };
    estimate::Base { pick, factor: relative.factor }
}

/// Returns a metric of the valid points at a spot, divided by that at another one within rounds.
pub(super) fn ratio(
    study: &Study<'_>,
    spot: PointIndex,
    base: PointIndex,
    metric: &str,
) -> Option<Estimate> {
    let side = |spot: PointIndex| Side {
        curve: vec![study.valid(spot, metric)],
        pick: Pick::Fixed(0),
        base: None,
    };
    of_sides(&side(spot), Some(&side(base)))
}

/// Returns, by round, the increase of a metric since the sweep's lowest value, times `factor` and
/// for each unit of the sweep's value; `None` at that lowest value.
fn since_first(study: &Study<'_>, spot: PointIndex, metric: &str, factor: f64) -> Option<Vec<f64>> {
    let at_first = PointIndex { value: 0, ..spot };
    let units = study.x(spot) - study.x(at_first);
    let (here, first) = (study.valid(spot, metric), study.valid(at_first, metric));
    let grown = |(round, value): (&u32, &f64)| Some(value - first.get(round)?);
    let each = here.iter().filter_map(grown).map(|grown| factor * grown / units);
    (units > 0.0).then(|| each.collect())
}

/// Returns the median of a metric of the INVALID points at a spot.
pub(super) fn invalid(study: &Study<'_>, spot: PointIndex, metric: &str) -> Option<f64> {
    let Some(relative) = metrics::relative(metric) else {
        return weir_stats::median(&study.invalid(spot, metric));
    };
    if relative.base == Base::EachSinceFirst {
        return None;
    }
    let curve = study.curve(spot.sweep, spot.server, relative.of);
    let estimate::Base { pick, factor } = base(relative, &curve);
    let rounds = Side { pick: Pick::Fixed(spot.value), curve: curve.clone(), base: None }.rounds();
    let against: Vec<f64> = curve.get(pick.index(&rounds)?)?.values().copied().collect();
    let invalid = weir_stats::median(&study.invalid(spot, relative.of))?;
    Some(factor * invalid / weir_stats::median(&against)?)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::record::Line;

    fn spot(value: usize) -> PointIndex {
        PointIndex { sweep: 0, server: 0, value }
    }

    #[test]
    fn goodput_kept_is_a_share_within_rounds() {
        let experiment = fixtures::experiment();
        let lines = fixtures::both();
        let study = Study::new("p/e", &experiment, &lines);
        let kept = |value| valid(&study, spot(value), "goodput_kept").unwrap();
        assert_eq!((kept(1).value, kept(1).low, kept(1).high), (100.0, 100.0, 100.0));
        let last = kept(2);
        assert!((last.value - 55_000.0 / 1200.0).abs() < 1e-9 && last.n == 3, "{last:?}");
        assert!((last.low - 50_000.0 / 1200.0).abs() < 1e-9 && last.high == 50.0, "{last:?}");
    }

    #[test]
    fn growth_is_a_multiple_of_the_lowest_value_within_rounds() {
        let experiment = fixtures::experiment();
        let mut lines = fixtures::lines("one", &[(1.0, [1.0; 3]), (2.0, [1.0; 3])]);
        for line in &mut lines {
            let Line::Point(point) = line else { continue };
            let times = point.load.response.as_mut().unwrap();
            times.p99_us = Some(100.0 * f64::from(1 + point.key.round) * point.key.x.powi(3));
        }
        let study = Study::new("p/e", &experiment, &lines);
        let grown = |value| valid(&study, spot(value), "response_p99_grown").unwrap();
        assert_eq!((grown(0).value, grown(1).value, grown(1).n), (1.0, 8.0, 3));
        assert_eq!((grown(1).low, grown(1).high), (8.0, 8.0));
    }

    #[test]
    fn the_addition_per_unit_of_the_sweep_is_a_difference_within_rounds() {
        let experiment = fixtures::experiment();
        let mut lines = fixtures::lines("one", &[(1.0, [1.0; 3]), (4.0, [1.0; 3])]);
        for line in &mut lines {
            let Line::Point(point) = line else { continue };
            let pages = 100 * u64::from(1 + point.key.round) + 2 * point.key.x as u64;
            point.server.rss_max_bytes = 4096 * pages;
        }
        let study = Study::new("p/e", &experiment, &lines);
        let each = |value| valid(&study, spot(value), "server_bytes_per_idle");
        let last = each(2).unwrap();
        assert_eq!((last.value, last.low, last.high, last.n), (8192.0, 8192.0, 8192.0, 3));
        assert_eq!(each(0), None);
    }

    #[test]
    fn any_other_metric_is_its_median() {
        let experiment = fixtures::experiment();
        let lines = fixtures::both();
        let study = Study::new("p/e", &experiment, &lines);
        assert_eq!(valid(&study, spot(0), "reply_rate").unwrap().value, 1000.0);
        assert_eq!(valid(&study, spot(0), "c_avg"), None);
    }

    #[test]
    fn invalid_points_are_held_against_the_peak_of_the_valid_ones() {
        let experiment = fixtures::experiment();
        let mut lines = fixtures::lines("one", &[(1.0, [1000.0; 3]), (2.0, [800.0; 3])]);
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        let study = Study::new("p/e", &experiment, &lines);
        assert_eq!(valid(&study, spot(2), "goodput_kept"), None);
        assert_eq!(invalid(&study, spot(2), "goodput_kept"), Some(1e5));
        assert_eq!(invalid(&study, spot(2), "reply_rate"), Some(1e6));
        assert_eq!(invalid(&study, spot(1), "goodput_kept"), None);
    }
}
