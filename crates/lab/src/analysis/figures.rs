//! Lays out figures: a series for each server and metric along a sweep.

use super::labels;
use super::study::{PointIndex, Study, is_flagged, is_valid_for};
use super::values;
use crate::experiment::{Axis, Figure, RateUnit};
use crate::findings::{Mark, Picture, Series, Stroke};
use crate::metrics;

/// Returns a figure, and a remark if one of its series is empty.
pub(super) fn picture(study: &Study<'_>, figure: &Figure) -> (Picture, Option<String>) {
    let index = study.experiment.sweep.iter().position(|sweep| sweep.id == figure.sweep);
    let mut series = Vec::new();
    let mut empty = Vec::new();
    if let Some(index) = index {
        let servers = study.experiment.servers_of(study.sweep(index), &figure.servers);
        for server in &servers {
            for metric in &figure.y {
                let several = (servers.len() > 1, figure.y.len() > 1);
                let label = label(study.label(*server), metric, several);
                let marks = marks(study, index, *server, metric);
                if marks.is_empty() {
                    empty.push(label);
                } else {
                    series.push(Series { label, marks, stroke: Stroke::Marks });
                }
            }
        }
    }
    let picture = Picture {
        id: figure.id.clone(),
        title: figure.title.clone(),
        note: figure.note.clone(),
        x_label: index.map_or_else(String::new, |index| labels::x_label(study.sweep(index))),
        y_label: y_label(&figure.y),
        y_log: figure.y_log,
        x_log: figure.x_log,
        series,
        ..Picture::default()
    };
    let remark = (!empty.is_empty()).then(|| format!("nothing measured: {}", empty.join(", ")));
    (picture, remark)
}

/// The displayed label and unit of a metric.
pub(super) struct Named {
    pub(super) label: String,
    /// Empty for a dimensionless number.
    pub(super) unit: String,
}

impl Named {
    /// Returns label and unit together; the unit alone if it names what is counted, as `replies/s`
    /// does.
    pub(super) fn with_unit(&self) -> String {
        let Self { label, unit } = self;
        match unit.is_empty() {
            true => label.clone(),
            false if unit.starts_with(label) => unit.clone(),
            false => format!("{label}, {unit}"),
        }
    }

    /// Returns the name used in a sentence.
    pub(super) fn spoken(&self) -> &str {
        if self.unit.starts_with(&self.label) { &self.unit } else { &self.label }
    }
}

/// Returns the label and unit of a metric; an unknown metric is labelled with its name.
pub(super) fn info(name: &str) -> Named {
    match metrics::find(name) {
        Some(info) => Named { label: info.label.to_string(), unit: info.unit.to_owned() },
        None => Named { label: name.to_owned(), unit: String::new() },
    }
}

fn label(server: &str, metric: &str, several: (bool, bool)) -> String {
    match several {
        (_, false) => server.to_owned(),
        (false, true) => info(metric).label,
        (true, true) => format!("{server}: {}", info(metric).label),
    }
}

fn y_label(names: &[String]) -> String {
    let infos: Vec<Named> = names.iter().map(|name| info(name)).collect();
    match infos.as_slice() {
        [one] => one.with_unit(),
        [first, ..] if !first.unit.is_empty() => first.unit.clone(),
        all => all.iter().map(|info| info.label.as_str()).collect::<Vec<_>>().join(", "),
    }
}

fn marks(study: &Study<'_>, sweep: usize, server: usize, metric: &str) -> Vec<Mark> {
    let values = 0..study.sweep(sweep).values.len();
    let mut marks: Vec<Mark> = values
        .filter_map(|value| mark(study, PointIndex { sweep, server, value }, metric))
        .collect();
    marks.sort_by(|a, b| a.x.total_cmp(&b.x));
    marks
}

/// Returns a mark if there is anything to show: a number, or at least INVALID points.
fn mark(study: &Study<'_>, spot: PointIndex, metric: &str) -> Option<Mark> {
    // A metric relative to other points takes its validity from the metric it is derived from.
    let told = metrics::of_points(metric);
    let invalid = study.invalid(spot, told).len();
    let flagged =
        study.points(spot).filter(|(_, point)| is_valid_for(point, told) && is_flagged(point));
    let estimate = values::valid(study, spot, metric);
    if estimate.is_none() && invalid == 0 {
        return None;
    }
    Some(Mark {
        x: x(study, spot),
        at: study.x(spot),
        estimate,
        invalid: invalid as u32,
        invalid_value: values::invalid(study, spot, metric),
        flagged: flagged.count() as u32,
    })
}

/// Returns the x coordinate of a mark: the offered rate, or the value of the sweep if that is not a
/// rate or each server has its own.
pub(super) fn x(study: &Study<'_>, spot: PointIndex) -> f64 {
    let sweep = study.sweep(spot.sweep);
    let offered = match (sweep.x, sweep.rate_unit) {
        (Axis::Rate, RateUnit::PerSecond | RateUnit::Reference) => study.offered(spot),
        _ => None,
    };
    offered.unwrap_or_else(|| study.x(spot))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::experiment::Experiment;
    use crate::record::Line;

    fn drawn(experiment: &Experiment, lines: &[Line]) -> (Picture, Option<String>) {
        picture(&Study::new("p/e", experiment, lines), &experiment.figure[0])
    }

    #[test]
    fn a_mark_is_the_median_of_the_valid_points_at_the_rate_offered() {
        let (picture, remark) = drawn(&fixtures::experiment(), &fixtures::both());
        assert_eq!(remark, None);
        assert_eq!(picture.y_label, "replies/s");
        let labels: Vec<&str> = picture.series.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(labels, ["accept 1", "nginx"]);
        let mark = picture.series[0].marks[0];
        assert_eq!((mark.x, mark.at, mark.estimate.unwrap().value), (1000.0, 1.0, 1000.0));
        assert_eq!(picture.series[0].marks.len(), 3);
    }

    #[test]
    fn invalid_points_are_shown_and_not_used() {
        let mut lines = vec![
            fixtures::line("one", 1.0, 0, 10.0),
            fixtures::invalid("one", 1.0, 1, "late"),
            fixtures::invalid("one", 2.0, 0, "late"),
        ];
        let mut flagged = fixtures::point("one", 1.0, 2, 12.0);
        flagged.flags.push(crate::record::Flag { kind: "steal".into(), says: "5 %".into() });
        lines.push(Line::Point(Box::new(flagged)));
        let (picture, remark) = drawn(&fixtures::experiment(), &lines);
        assert_eq!(remark.unwrap(), "nothing measured: nginx");
        let [first, second] = picture.series[0].marks[..] else { panic!() };
        assert_eq!((first.estimate.unwrap().value, first.estimate.unwrap().n), (11.0, 2));
        assert_eq!((first.invalid, first.invalid_value, first.flagged), (1, Some(1e6), 1));
        assert_eq!((second.estimate, second.invalid, second.flagged), (None, 1, 0));
    }

    #[test]
    fn several_metrics_are_named_in_the_legend() {
        let text = fixtures::TEXT.replacen(
            "[\"reply_rate\"]",
            "[\"calls.a.share\", \"calls.b.share\"]",
            1,
        );
        let mut experiment = Experiment::parse(&text).unwrap();
        let mut point = fixtures::point("one", 1.0, 0, 10.0);
        point.server.counted.insert("elapsed_s".into(), 2.0);
        point.kernel.window_s = 2.0;
        for name in ["a", "b"] {
            let call = crate::record::CallCount { name: name.into(), count: 1, time_s: Some(1.0) };
            point.server.calls.push(call);
        }
        let lines = [Line::Point(Box::new(point))];
        let names = |picture: Picture| -> Vec<String> {
            picture.series.into_iter().map(|one| one.label).collect()
        };
        let (picture, _) = drawn(&experiment, &lines);
        assert_eq!(picture.y_label, "%");
        assert_eq!(names(picture), ["accept 1: time in a", "accept 1: time in b"]);
        experiment.figure[0].servers = vec!["one".to_owned()];
        assert_eq!(names(drawn(&experiment, &lines).0), ["time in a", "time in b"]);
    }

    #[test]
    fn multiples_of_a_servers_own_capacity_stay_multiples() {
        let text =
            fixtures::TEXT.replace("\"reference\"", "\"own\"").replace("reference = \"one\"", "");
        let experiment = Experiment::parse(&text).unwrap();
        let (picture, _) = drawn(&experiment, &fixtures::both());
        assert_eq!(picture.series[0].marks[2].x, 4.0);
    }
}
