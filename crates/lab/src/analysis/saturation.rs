//! Saturation: the peak of each server along a sweep of rates, and the share of it that remains at
//! the highest valid rate.

use super::estimate::{Pick, Side, of_sides};
use super::study::{PEAK_OF, PointIndex, Study};
use crate::experiment::Axis;
use crate::findings::Saturation;

/// Returns the saturation of every server with a valid point, for all sweeps of rates.
pub(super) fn saturations(study: &Study<'_>) -> Vec<Saturation> {
    let sweeps = study.experiment.sweep.iter().enumerate();
    sweeps
        // Fewer than three rates have no peak between them, and a spike offers its rate only part
        // of the time.
        .filter(|(_, sweep)| {
            sweep.x == Axis::Rate && sweep.values.len() >= 3 && sweep.spike.is_none()
        })
        .flat_map(|(index, sweep)| {
            let servers = study.experiment.servers_of(sweep, &[]);
            servers.into_iter().filter_map(move |server| saturation(study, index, server))
        })
        .collect()
}

fn saturation(study: &Study<'_>, sweep: usize, server: usize) -> Option<Saturation> {
    let curve = study.curve(sweep, server, PEAK_OF);
    let last = curve.iter().rposition(|rounds| !rounds.is_empty())?;
    let top = Side { pick: Pick::Peak(curve.clone()), curve, base: None };
    let at = top.index(&top.rounds())?;
    let end = Side { pick: Pick::Fixed(last), curve: top.curve.clone(), base: None };
    let rate = |value| {
        let spot = PointIndex { sweep, server, value };
        study.offered(spot).unwrap_or_else(|| study.x(spot))
    };
    Some(Saturation {
        sweep: study.sweep(sweep).id.clone(),
        server: study.label(server).to_owned(),
        peak: of_sides(&top, None)?,
        at: rate(at),
        offered: rate(last) / rate(at),
        kept: of_sides(&end, Some(&top)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    #[test]
    fn the_peak_is_found_where_curves_cross_and_what_is_left_is_paired() {
        let experiment = fixtures::experiment();
        let lines = fixtures::both();
        let found = saturations(&Study::new("p/e", &experiment, &lines));
        let [one, two] = &found[..] else { panic!() };
        assert_eq!(
            (one.server.as_str(), one.peak.value, one.at, one.offered),
            ("accept 1", 1200.0, 2000.0, 2.0)
        );
        let kept = one.kept.unwrap();
        assert!((kept.value - 550.0 / 1200.0).abs() < 1e-12, "{kept:?}");
        assert_eq!((kept.low, kept.high), (500.0 / 1200.0, 600.0 / 1200.0));
        assert_eq!((two.peak.value, two.at), (1500.0, 2000.0));
        assert_eq!((two.peak.low, two.peak.high), (1500.0, 1600.0));
    }

    #[test]
    fn invalid_points_neither_make_a_peak_nor_end_a_sweep() {
        let experiment = fixtures::experiment();
        let mut lines = fixtures::lines("one", &[(1.0, [900.0; 3]), (2.0, [800.0; 3])]);
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        let found = saturations(&Study::new("p/e", &experiment, &lines));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].peak.value, found[0].offered), (900.0, 2.0));
        assert_eq!(found[0].kept.unwrap().value, 800.0 / 900.0);
    }
}
