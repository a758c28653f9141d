//! The drift of the machine over a run, as a figure: the speed of its idle processors against the
//! time of day, from the calibrations around each point.

use std::time::UNIX_EPOCH;

use weir_stats::median;

use super::study::Study;
use crate::findings::{Estimate, Mark, Picture, Series, Stroke};
use crate::record::{Cores, Point};

/// The speed of one side's idle processors.
type Speed = fn(&Cores) -> f64;

const DAY_S: f64 = 86_400.0;

/// Number of points below which no drift is drawn.
const POINTS_MIN: usize = 3;

/// Returns the figure of a chapter; `None` for a run whose points do not have the speed.
pub(super) fn picture(study: &Study<'_>) -> Option<Picture> {
    let repetitions = study.repetitions().flat_map(|(spot, _)| study.points(spot));
    let points: Vec<&Point> = repetitions.map(|(_, point)| point).collect();
    let sides: [(&str, Speed); 2] = [
        ("server's processors", |cores| cores.server.idle_per_s),
        ("client's processors", |cores| cores.client.idle_per_s),
    ];
    let lines = (0..).zip(sides).filter_map(|(colour, (label, speed))| {
        let marks = marks(&points, speed)?;
        let stroke = Stroke::Line { colour, dash: colour };
        Some(Series { label: label.to_owned(), marks, stroke })
    });
    let series: Vec<Series> = lines.collect();
    let note = "Of the idle counter, before and after each point, relative to its median over the \
                run. Ratios are taken within rounds, which cover what drifts slowly.";
    (!series.is_empty()).then(|| Picture {
        id: "machine-drift".to_owned(),
        title: "Drift of the machine: speed of the idle processors".to_owned(),
        note: note.to_owned(),
        x_label: "time of day, UTC, h".to_owned(),
        y_label: "speed, % of the median".to_owned(),
        series,
        ..Picture::default()
    })
}

/// Returns the speeds by time, in percent of their median. Hours go on after midnight.
fn marks(points: &[&Point], speed: Speed) -> Option<Vec<Mark>> {
    let known =
        points.iter().filter_map(|point| Some((unix_s(&point.began)?, speed(&point.cores))));
    let mut known: Vec<(f64, f64)> = known.filter(|(_, speed)| *speed > 0.0).collect();
    known.sort_by(|one, other| one.0.total_cmp(&other.0));
    let usual = median(&known.iter().map(|(_, speed)| *speed).collect::<Vec<_>>())?;
    let midnight_s = (known.first()?.0 / DAY_S).floor() * DAY_S;
    let mark = |(began_s, speed): &(f64, f64)| {
        let (x, value) = ((began_s - midnight_s) / 3600.0, 100.0 * speed / usual);
        let estimate = Some(Estimate { value, low: value, high: value, n: 1 });
        Mark { x, at: x, estimate, ..Mark::default() }
    };
    (known.len() >= POINTS_MIN).then(|| known.iter().map(mark).collect())
}

/// Returns seconds since 1970; `None` if a time is not RFC 3339.
fn unix_s(time: &str) -> Option<f64> {
    let time = humantime::parse_rfc3339(time).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::record::Line;

    fn at(round: u32, began: &str, idle_per_s: f64) -> Line {
        let mut point = fixtures::point("one", 1.0, round, 10.0);
        point.began = began.to_owned();
        point.cores.server.idle_per_s = idle_per_s;
        Line::Point(Box::new(point))
    }

    #[test]
    fn the_speed_of_the_idle_processor_is_drawn_by_time_across_midnight() {
        let experiment = fixtures::experiment();
        let lines = [
            at(2, "2004-01-02T00:30:00Z", 900.0),
            at(0, "2004-01-01T23:00:00Z", 1000.0),
            at(1, "2004-01-01T23:30:00Z", 1100.0),
        ];
        let picture = picture(&Study::new("p/e", &experiment, &lines)).unwrap();
        assert_eq!(picture.series.len(), 1);
        let drawn = picture.series[0].marks.iter();
        let drawn: Vec<(f64, f64)> =
            drawn.map(|mark| (mark.x, mark.estimate.unwrap().value.round())).collect();
        assert_eq!(drawn, [(23.0, 100.0), (23.5, 110.0), (24.5, 90.0)]);
    }

    #[test]
    fn runs_without_the_speed_have_no_such_figure() {
        let experiment = fixtures::experiment();
        assert!(picture(&Study::new("p/e", &experiment, &fixtures::both())).is_none());
    }
}
