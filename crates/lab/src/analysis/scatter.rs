//! Lays out the samples of days: shares of processor time against the request rate, a line through
//! each cloud of samples, and a table of the lines with intervals by resampling the samples.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use weir_stats::{Bootstrap, Line, quantile};

use super::study::{PointIndex, Study, is_valid};
use crate::experiment::{CpuMode, ScatterFigure};
use crate::findings::{Estimate, Mark, Picture, Row, Series, Sheet, Stroke};

/// Columns of the table of lines, with their units.
const COLUMNS: [(&str, &str); 4] = [
    ("slope", "% per request/s"),
    ("share without requests", "%"),
    ("request rate at 0 %", "requests/s"),
    ("correlation", ""),
];

/// A point of the figure: request rate, per second, and share, percent.
type Sample = (f64, f64);

/// Returns the figure and the table, and a remark if a server has no samples.
pub(super) fn scatter(
    study: &Study<'_>,
    figure: &ScatterFigure,
) -> Option<(Picture, Sheet, Option<String>)> {
    let index = study.experiment.sweep.iter().position(|sweep| sweep.id == figure.sweep)?;
    let servers = study.experiment.servers_of(study.sweep(index), &figure.servers);
    let (mut series, mut rows, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (colour, &server) in (0..).zip(&servers) {
        for (nth, mode) in (0..).zip(&figure.y) {
            let samples = samples(study, (index, server), figure, *mode);
            let label = format!("{}: {}", study.label(server), mode.name());
            if samples.is_empty() {
                missing.push(label.clone());
            }
            let line = Line::fit(&samples);
            series.push(cloud(label.clone(), &samples, Stroke::Dots { colour, shape: nth }));
            let through = line.map(|line| through(&label, line, &samples));
            series.extend(
                through.map(|marks| Series { stroke: Stroke::Line { colour, dash: nth }, ..marks }),
            );
            rows.push(Row { label, cells: cells(line, &samples) });
        }
    }
    let [picture_id, sheet_id] = figure.ids();
    let picture = Picture {
        id: picture_id,
        title: figure.title.clone(),
        note: note(figure),
        x_label: "requests/s, mean of a sample".to_owned(),
        y_label: "share of the server's processors' time, %".to_owned(),
        series,
        ..Picture::default()
    };
    let columns = COLUMNS.map(|(name, unit)| (name.to_owned(), unit.to_owned()));
    let sheet = Sheet {
        id: sheet_id,
        title: format!("{}: the lines", figure.title),
        note: "Linear regressions; n is the number of samples, which are resampled for the \
               intervals."
            .to_owned(),
        columns: columns.to_vec(),
        rows,
        ..Sheet::default()
    };
    let remark = (!missing.is_empty()).then(|| format!("no samples: {}", missing.join(", ")));
    Some((picture, sheet, remark))
}

fn note(figure: &ScatterFigure) -> String {
    let how = "A point is a sample of a day, all days together; a line is the linear regression \
               through them. User and kernel are the times of the server's processes, idle is \
               what they leave: packets handled beside them are in none.";
    let above = match figure.above {
        0.0 => String::new(),
        rate => format!(" Samples below {rate} requests/s are left out."),
    };
    let own = if figure.note.is_empty() { String::new() } else { format!("{} ", figure.note) };
    format!("{own}{how}{above}")
}

/// Returns the samples of all valid points of a server.
fn samples(
    study: &Study<'_>,
    (sweep, server): (usize, usize),
    figure: &ScatterFigure,
    mode: CpuMode,
) -> Vec<Sample> {
    let values = 0..study.sweep(sweep).values.len();
    let points = values.flat_map(|value| study.points(PointIndex { sweep, server, value }));
    let valid = points.filter(|(_, point)| is_valid(point));
    let mut samples: Vec<Sample> = valid
        .flat_map(|(_, point)| &point.samples)
        .filter(|sample| sample.request_rate >= figure.above)
        .map(|sample| (sample.request_rate, sample.percent(mode)))
        .collect();
    samples.sort_by(|one, other| one.0.total_cmp(&other.0));
    samples
}

fn cloud(label: String, samples: &[Sample], stroke: Stroke) -> Series {
    let marks = samples.iter().map(|(x, y)| mark(*x, *y)).collect();
    Series { label, marks, stroke }
}

/// Returns the line from the lowest to the highest rate of its samples.
fn through(label: &str, line: Line, samples: &[Sample]) -> Series {
    let ends = [samples.first(), samples.last()].into_iter().flatten();
    let marks = ends.map(|(x, _)| mark(*x, line.at(*x))).collect();
    Series { label: format!("{label}, line"), marks, stroke: Stroke::default() }
}

fn mark(x: f64, y: f64) -> Mark {
    let estimate = Some(Estimate { value: y, low: y, high: y, n: 1 });
    Mark { x, at: x, estimate, ..Mark::default() }
}

/// Returns the cells of a line: each number with its interval.
fn cells(line: Option<Line>, samples: &[Sample]) -> Vec<(Option<Estimate>, Option<f64>)> {
    let resampled = resampled(samples);
    let numbers: [fn(&Line) -> Option<f64>; COLUMNS.len()] = [
        |line| Some(line.slope),
        |line| Some(line.intercept),
        Line::x_intercept,
        |line| Some(line.correlation),
    ];
    let cell = |of: fn(&Line) -> Option<f64>| {
        let value = of(&line?)?;
        let all: Vec<f64> = resampled.iter().filter_map(of).collect();
        let tail = (1.0 - Bootstrap::default().confidence) / 2.0;
        let end = |share| quantile(&all, share).unwrap_or(value);
        let (low, high) = (end(tail), end(1.0 - tail));
        Some(Estimate { value, low, high, n: samples.len() as u32 })
    };
    numbers.map(|of| (cell(of), None)).to_vec()
}

/// Returns the lines through samples drawn from the samples with replacement.
fn resampled(samples: &[Sample]) -> Vec<Line> {
    let Bootstrap { resamples, seed, .. } = Bootstrap::default();
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut drawn = samples.to_vec();
    let draw = |_| {
        for one in &mut drawn {
            let at = (u128::from(chance.next_u64()) * samples.len() as u128) >> 64;
            *one = samples[at as usize];
        }
        Line::fit(&drawn)
    };
    (0..resamples).filter_map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::experiment::Experiment;
    use crate::record::{DaySample, Line as Kept};

    const TEXT: &str = r#"
title = "T"
question = "Q?"
[[server]]
id = "one"
label = "weir"
kind = "weir"
[[sweep]]
id = "up"
x = "rate"
values = [2]
day = {}
load = { workload = "day", warmup-s = 0 }
[[scatter]]
id = "fig-10"
title = "Costs"
sweep = "up"
above = 15.0
"#;

    fn day(round: u32) -> Kept {
        let mut point = fixtures::point("one", 2.0, round, 10.0);
        let sample = |rate: u32| {
            let user = f64::from(rate) / 200.0 + 0.005 * f64::from(rate % 3);
            DaySample { request_rate: f64::from(rate), open: 1.0, user, system: user }
        };
        point.samples = [10, 20, 30, 41, 50].map(sample).to_vec();
        Kept::Point(Box::new(point))
    }

    #[test]
    fn each_mode_has_its_samples_a_line_and_a_row() {
        let experiment = Experiment::parse(TEXT).unwrap();
        let lines = [day(0), day(2)];
        let study = Study::new("p/e", &experiment, &lines);
        let (picture, sheet, remark) = scatter(&study, &experiment.scatter[0]).unwrap();
        assert_eq!(remark, None);
        let labels: Vec<&str> = picture.series.iter().map(|one| one.label.as_str()).collect();
        assert_eq!(
            labels,
            ["weir: idle", "weir: idle, line", "weir: kernel", "weir: kernel, line"]
        );
        // Each day has four samples of 15 requests/s or more.
        assert_eq!((picture.series[0].marks.len(), picture.series[1].marks.len()), (8, 2));
        let slope = sheet.rows[0].cells[0].0.unwrap();
        assert!((slope.value + 1.0).abs() < 0.1 && slope.n == 8, "{slope:?}");
        assert!(slope.low < slope.value && slope.value < slope.high);
        assert_eq!(sheet.rows[1].label, "weir: kernel");
    }

    #[test]
    fn each_mode_of_a_server_has_a_dash_of_its_own() {
        let three = "above = 15.0\ny = [\"idle\", \"kernel\", \"user\"]";
        let experiment = Experiment::parse(&TEXT.replace("above = 15.0", three)).unwrap();
        let lines = [day(0)];
        let study = Study::new("p/e", &experiment, &lines);
        let (picture, _, _) = scatter(&study, &experiment.scatter[0]).unwrap();
        let of_lines = picture.series.iter().filter_map(|one| match one.stroke {
            Stroke::Line { colour, dash } => Some((colour, dash)),
            _ => None,
        });
        assert_eq!(of_lines.collect::<Vec<_>>(), [(0, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn a_server_without_samples_is_named() {
        let experiment = Experiment::parse(TEXT).unwrap();
        let study = Study::new("p/e", &experiment, &[]);
        let (picture, sheet, remark) = scatter(&study, &experiment.scatter[0]).unwrap();
        assert_eq!(remark.unwrap(), "no samples: weir: idle, weir: kernel");
        assert!(picture.series.iter().all(|one| one.marks.is_empty()));
        assert!(sheet.rows.iter().all(|row| row.cells[0].0.is_none()));
    }
}
