//! Lays out figures along time: replies and response times of a sweep's servers in bins, at one
//! value of the sweep.

use super::estimate::estimate;
use super::figures::info;
use super::labels;
use super::study::{PointIndex, Study, is_valid_for};
use crate::experiment::{At, Position, RateUnit, Sweep, TimelineFigure};
use crate::findings::{Estimate, Mark, Picture, Series, Stroke};
use crate::record::Timeline;

const US_PER_MS: f64 = 1e3;

/// Returns the two figures, and a remark if a server has no line in them.
pub(super) fn pictures(
    study: &Study<'_>,
    figure: &TimelineFigure,
) -> (Vec<Picture>, Option<String>) {
    let found = study.experiment.sweep.iter().position(|sweep| sweep.id == figure.sweep);
    let Some(index) = found else { return (Vec::new(), None) };
    let sweep = study.sweep(index);
    let Some(value) = value(sweep, figure.at) else { return (Vec::new(), None) };
    let servers = study.experiment.servers_of(sweep, &figure.servers);
    let lines: Vec<Line<'_>> = servers
        .iter()
        .map(|server| Line::of(study, PointIndex { sweep: index, server: *server, value }))
        .collect();
    let [replies_id, response_id] = figure.ids();
    let note = note(study, figure, sweep, value);
    let replies = Picture {
        title: format!("{}: replies", figure.title),
        y_label: y_label(sweep),
        series: replies(&lines),
        ..empty(replies_id, &note)
    };
    let response = Picture {
        title: format!("{}: response times", figure.title),
        y_label: "response time, ms".to_owned(),
        y_log: true,
        series: response(&lines),
        ..empty(response_id, &note)
    };
    let missing: Vec<&str> =
        lines.iter().filter(|line| line.replies.is_empty()).map(|line| line.label).collect();
    let remark = (!missing.is_empty()).then(|| format!("nothing measured: {}", missing.join(", ")));
    (vec![replies, response], remark)
}

fn value(sweep: &Sweep, at: At) -> Option<usize> {
    match at {
        At::Value(x) => sweep.index_of(x),
        At::Named(Position::First) => Some(0),
        At::Named(Position::Last | Position::Peak) => sweep.values.len().checked_sub(1),
    }
}

fn empty(id: String, note: &str) -> Picture {
    let x_label = "time since the schedule began to be measured, s".to_owned();
    Picture { id, note: note.to_owned(), x_label, ..Picture::default() }
}

/// Returns the label of the vertical axis: if each server is offered multiples of its own capacity,
/// replies are shown in the same unit.
fn y_label(sweep: &Sweep) -> String {
    match sweep.rate_unit {
        RateUnit::Own => "replies, multiples of the server's own capacity".to_owned(),
        RateUnit::PerSecond | RateUnit::Reference => info("reply_rate").with_unit(),
    }
}

fn note(study: &Study<'_>, figure: &TimelineFigure, sweep: &Sweep, value: usize) -> String {
    let bin_ms = sweep.timeline_ms.map_or(0, |bin_ms| *bin_ms);
    let at = sweep.values.get(value).map(|x| labels::place(study, sweep, *x)).unwrap_or_default();
    let how = format!(
        "At {at}, in bins of {bin_ms} ms. A reply is counted where its last byte came, its time \
         where its request was planned; what was refused or failed is neither. Grey is what was \
         offered; where it is far above the replies it leaves the figure."
    );
    if figure.note.is_empty() { how } else { format!("{} {how}", figure.note) }
}

/// A server's valid points, bin by bin.
struct Line<'a> {
    label: &'a str,
    bin_ms: u32,
    /// The value of the sweep.
    at: f64,
    /// Values of all points, by bin. The lists below have the same layout.
    offered: Vec<Vec<f64>>,
    replies: Vec<Vec<f64>>,
    p50_ms: Vec<Vec<f64>>,
    p99_ms: Vec<Vec<f64>>,
}

impl<'a> Line<'a> {
    fn of(study: &'a Study<'_>, spot: PointIndex) -> Self {
        let sweep = study.sweep(spot.sweep);
        let bin_ms = sweep.timeline_ms.map_or(1, |bin_ms| *bin_ms);
        let bin_s = f64::from(bin_ms) / 1e3;
        let unit = match sweep.rate_unit {
            RateUnit::Own => study.capacity(spot.sweep, spot.server),
            RateUnit::PerSecond | RateUnit::Reference => Some(1.0),
        };
        let valid = |metric| -> Vec<&Timeline> {
            let valid = study.points(spot).filter(|(_, point)| is_valid_for(point, metric));
            let kept = valid.filter_map(|(_, point)| point.load.timeline.as_ref());
            kept.filter(|one| one.bin_ms == bin_ms && unit.is_some()).collect()
        };
        let [counted, timed] = TimelineFigure::METRICS.map(valid);
        let rate = 1.0 / (bin_s * unit.unwrap_or(1.0));
        let most =
            |of: fn(&Timeline) -> usize| counted.iter().map(|one| of(one)).max().unwrap_or(0);
        let scheduled = most(|one| (1e3 * one.duration_s / f64::from(one.bin_ms)).ceil() as usize);
        let bins = most(|one| one.replies.len());
        Self {
            label: study.label(spot.server),
            bin_ms,
            at: study.x(spot),
            offered: rates(&counted, scheduled, rate, |one| &one.planned),
            replies: rates(&counted, bins, rate, |one| &one.replies),
            p50_ms: times_ms(&timed, bins, |one| &one.p50_us),
            p99_ms: times_ms(&timed, bins, |one| &one.p99_us),
        }
    }

    /// Returns the medians of the points, bin by bin, as a series.
    fn series(&self, label: String, stroke: Stroke, bins: &[Vec<f64>]) -> Option<Series> {
        let mark = |(bin, values): (usize, &Vec<f64>)| Some(self.mark(bin, estimate(values)?));
        let marks: Vec<Mark> = bins.iter().enumerate().filter_map(mark).collect();
        (!marks.is_empty()).then_some(Series { label, marks, stroke })
    }

    fn mark(&self, bin: usize, estimate: Estimate) -> Mark {
        let x = bin as f64 * f64::from(self.bin_ms) / 1e3;
        Mark { x, at: self.at, estimate: Some(estimate), ..Mark::default() }
    }
}

/// Returns the counts of all points, by bin, times `rate`; 0 past the last bin of a point.
fn rates(
    points: &[&Timeline],
    bins: usize,
    rate: f64,
    of: fn(&Timeline) -> &Vec<u64>,
) -> Vec<Vec<f64>> {
    let count = |one: &Timeline, bin: usize| of(one).get(bin).copied().unwrap_or(0) as f64;
    (0..bins).map(|bin| points.iter().map(|one| rate * count(one, bin)).collect()).collect()
}

/// Returns the times of those points that have one, by bin.
fn times_ms(
    points: &[&Timeline],
    bins: usize,
    of: fn(&Timeline) -> &Vec<Option<u64>>,
) -> Vec<Vec<f64>> {
    let time = |one: &&Timeline, bin: usize| {
        of(one).get(bin).copied().flatten().map(|us| us as f64 / US_PER_MS)
    };
    (0..bins).map(|bin| points.iter().filter_map(|one| time(one, bin)).collect()).collect()
}

fn replies(lines: &[Line<'_>]) -> Vec<Series> {
    let drawn = (0..).zip(lines).filter_map(|(colour, line)| {
        let stroke = Stroke::Line { colour, dash: 0 };
        line.series(line.label.to_owned(), stroke, &line.replies)
    });
    offered(lines).into_iter().chain(drawn).collect()
}

/// Returns the rate offered to the servers as a single line, because all are offered the same.
fn offered(lines: &[Line<'_>]) -> Option<Series> {
    let any = lines.iter().max_by_key(|line| line.offered.len())?;
    let all = |bin| lines.iter().filter_map(move |line| line.offered.get(bin)).flatten().copied();
    let bins: Vec<Vec<f64>> = (0..any.offered.len()).map(|bin| all(bin).collect()).collect();
    any.series("offered".to_owned(), Stroke::Offered, &bins)
}

fn response(lines: &[Line<'_>]) -> Vec<Series> {
    let both = |(colour, line): (u32, &Line<'_>)| {
        let series = |what: &str, dash, bins: &[Vec<f64>]| {
            let label = format!("{}: {what}", line.label);
            line.series(label, Stroke::Line { colour, dash }, bins)
        };
        [series("median", 0, &line.p50_ms), series("99th percentile", 1, &line.p99_ms)]
    };
    (0..).zip(lines).flat_map(both).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::experiment::Experiment;
    use crate::record::{Capacity, Line as Kept};

    fn text(unit: &str) -> String {
        let spike = "spike = { base = 0.5, before-s = 0.2, for-s = 0.2, after-s = 0.1 }";
        let sweep =
            format!("burn-us = 60\ntimeline-ms = 100\n{spike}\nservers = [\"one\", \"two\"]");
        let figure = "[[timeline]]\nid = \"t\"\ntitle = \"Spike\"\nsweep = \"up\"\nat = 2\n\
                      note = \"So.\"\n[[figure]]";
        fixtures::TEXT
            .replacen("burn-us = 60", &sweep, 1)
            .replacen("[[figure]]", figure, 1)
            .replacen("rate-unit = \"reference\"\nreference = \"one\"", unit, 1)
    }

    /// A point with this number of replies in each bin; it was offered 10, 10, 40, 40 and 10.
    fn point(server: &str, round: u32, replies: &[u64]) -> Kept {
        let mut point = fixtures::point(server, 2.0, round, 10.0);
        let times: Vec<Option<u64>> =
            replies.iter().map(|count| (*count > 0).then_some(1000 * count)).collect();
        point.load.timeline = Some(Timeline {
            bin_ms: 100,
            duration_s: 0.5,
            up_s: Some(0.2),
            down_s: Some(0.4),
            planned: [vec![10, 10, 40, 40, 10], vec![0; replies.len() - 5]].concat(),
            replies: replies.to_vec(),
            errors: vec![0; replies.len()],
            p50_us: times.clone(),
            p99_us: times,
        });
        Kept::Point(Box::new(point))
    }

    fn drawn(unit: &str, lines: &[Kept]) -> (Vec<Picture>, Option<String>) {
        let experiment = Experiment::parse(&text(unit)).unwrap();
        pictures(&Study::new("p/e", &experiment, lines), &experiment.timeline[0])
    }

    fn values(series: &Series) -> Vec<(f64, f64)> {
        series.marks.iter().map(|mark| (mark.x, mark.estimate.unwrap().value)).collect()
    }

    #[test]
    fn each_bin_is_the_median_of_the_points_and_a_bin_that_is_not_there_has_no_reply() {
        let lines = [
            point("one", 0, &[10, 10, 20, 20, 10, 2]),
            point("one", 1, &[12, 10, 20, 20, 10]),
            point("one", 2, &[14, 10, 20, 20, 10]),
        ];
        let (pictures, remark) = drawn("rate-unit = \"per-second\"", &lines);
        assert_eq!(remark.unwrap(), "nothing measured: nginx");
        let [replies, response] = &pictures[..] else { panic!() };
        assert_eq!((replies.id.as_str(), response.id.as_str()), ("t-replies", "t-response"));
        assert_eq!((replies.y_label.as_str(), response.y_log), ("replies/s", true));
        assert!(replies.note.starts_with("So. At 2/s, in bins of 100 ms."), "{}", replies.note);
        let [offered, one] = &replies.series[..] else { panic!() };
        assert_eq!((offered.stroke, offered.label.as_str()), (Stroke::Offered, "offered"));
        let seen: Vec<f64> = values(offered).iter().map(|(_, value)| *value).collect();
        assert_eq!(seen, [100.0, 100.0, 400.0, 400.0, 100.0]);
        assert_eq!(values(one)[0], (0.0, 120.0));
        assert_eq!(values(one)[5], (0.5, 0.0));
        let [median, tail] = &response.series[..] else { panic!() };
        assert_eq!(median.stroke, Stroke::Line { colour: 0, dash: 0 });
        assert_eq!(
            (tail.label.as_str(), values(tail)[5]),
            ("accept 1: 99th percentile", (0.5, 2.0))
        );
    }

    #[test]
    fn servers_with_capacities_of_their_own_are_shown_as_multiples_of_them() {
        let capacity = |server: &str, sessions_per_s| {
            Kept::Capacity(Capacity {
                key: fixtures::key(server, 0.0, 0),
                sessions_per_s,
                began: None,
                limited_by: Vec::new(),
            })
        };
        let lines = [
            capacity("one", 100.0),
            capacity("two", 200.0),
            point("one", 0, &[10, 10, 20, 20, 10]),
            point("two", 0, &[10, 10, 20, 20, 10]),
        ];
        let (pictures, remark) = drawn("rate-unit = \"own\"", &lines);
        assert_eq!(remark, None);
        let [_, one, two] = &pictures[0].series[..] else { panic!() };
        assert_eq!((values(one)[2].1, values(two)[2].1), (2.0, 1.0));
        assert!(pictures[0].y_label.contains("own capacity"), "{}", pictures[0].y_label);
        assert!(pictures[0].note.contains("2 × the server's own capacity"));
    }

    #[test]
    fn points_without_a_timeline_or_a_capacity_have_no_line() {
        let lines = [fixtures::line("one", 2.0, 0, 10.0), point("two", 0, &[1, 1, 1, 1, 1])];
        let (pictures, remark) = drawn("rate-unit = \"own\"", &lines);
        assert!(pictures.iter().all(|picture| picture.series.is_empty()));
        assert_eq!(remark.unwrap(), "nothing measured: accept 1, nginx");
    }
}
