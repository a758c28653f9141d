//! The points of one experiment, indexed by sweep, server, value and round.

use std::collections::BTreeMap;

use crate::experiment::{Experiment, Sweep};
use crate::metrics;
use crate::record::{CallsRun, Capacity, Failed, Key, Line, LoadResult, Point, Task, Wanted};

/// Values of a metric at one place, by round.
pub(super) type Rounds = BTreeMap<u32, f64>;

/// A measured place: indices of a sweep, of a server and of a value of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PointIndex {
    pub(super) sweep: usize,
    pub(super) server: usize,
    pub(super) value: usize,
}

/// Result of a planned point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Repetition<'a> {
    Measured(&'a Point),
    Failed(&'a str),
}

impl Repetition<'_> {
    /// Returns how much the result says, to compare it with another one of the same point: that
    /// its counts are valid is worth most, then all that is wanted and not left out, and then that
    /// the host took nothing, for which a point is flagged and used all the same.
    fn worth(&self, wanted: Wanted) -> u8 {
        match self {
            Self::Failed(_) => 0,
            Self::Measured(point) => {
                let lost = 2 * point.lacks(wanted) + u8::from(point.is_stolen());
                8 * (1 + u8::from(is_valid(point))) - lost
            }
        }
    }
}

/// An experiment and its measurements.
#[derive(Debug)]
pub(super) struct Study<'a> {
    pub(super) id: &'a str,
    pub(super) experiment: &'a Experiment,
    /// The parts of a point that are shown or claimed.
    wanted: Wanted,
    repetitions: BTreeMap<PointIndex, BTreeMap<u32, Repetition<'a>>>,
    capacities: BTreeMap<(usize, usize), Vec<f64>>,
    calls: BTreeMap<PointIndex, BTreeMap<u32, &'a CallsRun>>,
    /// Capacities that may be the client's.
    pub(super) limited: Vec<&'a Capacity>,
    /// Capacities and counts of system calls that failed.
    pub(super) failed: Vec<&'a Failed>,
    /// Number of points with no place in the current experiment.
    pub(super) stray: u32,
}

impl<'a> Study<'a> {
    /// Indexes the lines of experiment `id`. If several lines describe the same point, the best one
    /// counts, and of equals the last: a repetition of a disturbed point may be worse.
    pub(super) fn new(id: &'a str, experiment: &'a Experiment, lines: &'a [Line]) -> Self {
        Self::of(id, experiment, lines.iter())
    }

    /// Indexes the lines of the rounds before `round`.
    pub(super) fn before(
        id: &'a str,
        experiment: &'a Experiment,
        lines: &'a [Line],
        round: u32,
    ) -> Self {
        let is_before = |line: &&Line| match line {
            Line::Point(point) => point.key.round < round,
            Line::Failed(failed) => failed.key.round < round,
            Line::Capacity(_) | Line::Calls(_) => true,
        };
        Self::of(id, experiment, lines.iter().filter(is_before))
    }

    fn of(id: &'a str, experiment: &'a Experiment, lines: impl Iterator<Item = &'a Line>) -> Self {
        let (repetitions, capacities, calls) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (limited, failed, stray) = (Vec::new(), Vec::new(), 0);
        let wanted = metrics::wanted(experiment.metrics());
        let mut study =
            Self { id, experiment, wanted, repetitions, capacities, calls, limited, failed, stray };
        let mut measured = Vec::new();
        for line in lines {
            match line {
                Line::Capacity(capacity) => measured.push((Task::Capacity, &capacity.key)),
                Line::Calls(run) => measured.push((Task::Calls, &run.key)),
                Line::Point(_) | Line::Failed(_) => {}
            }
            match line {
                Line::Point(point) => {
                    study.put(&point.key, Repetition::Measured(point));
                }
                Line::Failed(failed) if failed.task == Task::Point => {
                    study.put(&failed.key, Repetition::Failed(&failed.why));
                }
                Line::Failed(failed) if failed.key.experiment == id => study.failed.push(failed),
                Line::Capacity(capacity) if capacity.key.experiment == id => {
                    if let Some(place) = study.place(&capacity.key) {
                        study.limited.extend(Some(capacity).filter(|c| !c.limited_by.is_empty()));
                        let all = study.capacities.entry(place).or_default();
                        all.push(capacity.sessions_per_s);
                    }
                }
                Line::Calls(run) if run.key.experiment == id => {
                    if let Some(spot) = study.spot(&run.key) {
                        study.calls.entry(spot).or_default().insert(run.key.round, run);
                    }
                }
                Line::Capacity(_) | Line::Calls(_) | Line::Failed(_) => {}
            }
        }
        // Another session may have measured what failed in one.
        study.failed.retain(|failed| !measured.contains(&(failed.task, &failed.key)));
        study
    }

    fn put(&mut self, key: &Key, outcome: Repetition<'a>) {
        if key.experiment != self.id {
            return;
        }
        match self.spot(key) {
            Some(spot) => {
                let rounds = self.repetitions.entry(spot).or_default();
                let worth = outcome.worth(self.wanted);
                if rounds.get(&key.round).is_none_or(|before| worth >= before.worth(self.wanted)) {
                    rounds.insert(key.round, outcome);
                }
            }
            None => self.stray += 1,
        }
    }

    fn place(&self, key: &Key) -> Option<(usize, usize)> {
        let sweep = self.experiment.sweep.iter().position(|sweep| sweep.id == key.sweep)?;
        let server = self.experiment.server.iter().position(|server| server.id == key.server)?;
        Some((sweep, server))
    }

    fn spot(&self, key: &Key) -> Option<PointIndex> {
        let (sweep, server) = self.place(key)?;
        let value = self.experiment.sweep.get(sweep)?.index_of(key.x)?;
        Some(PointIndex { sweep, server, value })
    }

    /// Returns a sweep. Indices come from this study, so it always exists.
    pub(super) fn sweep(&self, index: usize) -> &'a Sweep {
        &self.experiment.sweep[index]
    }

    /// Returns the label of a server.
    pub(super) fn label(&self, server: usize) -> &'a str {
        &self.experiment.server[server].label
    }

    /// Returns the value of the sweep at a spot.
    pub(super) fn x(&self, spot: PointIndex) -> f64 {
        self.sweep(spot.sweep).values[spot.value]
    }

    /// Returns the index of the server called `id`.
    pub(super) fn server(&self, id: &str) -> Option<usize> {
        self.experiment.server.iter().position(|server| server.id == id)
    }

    /// Returns all outcomes, in the order of the experiment's file.
    pub(super) fn repetitions(
        &self,
    ) -> impl Iterator<Item = (PointIndex, &BTreeMap<u32, Repetition<'a>>)> {
        self.repetitions.iter().map(|(spot, rounds)| (*spot, rounds))
    }

    /// Returns the outcomes at a spot, by round.
    pub(super) fn at(&self, spot: PointIndex) -> impl Iterator<Item = (u32, &Repetition<'a>)> {
        let rounds = self.repetitions.get(&spot);
        rounds.into_iter().flatten().map(|(round, outcome)| (*round, outcome))
    }

    /// Returns the points measured at a spot, by round, including INVALID ones.
    pub(super) fn points(&self, spot: PointIndex) -> impl Iterator<Item = (u32, &Point)> {
        self.at(spot).filter_map(|(round, outcome)| match outcome {
            Repetition::Measured(point) => Some((round, *point)),
            Repetition::Failed(_) => None,
        })
    }

    /// Returns a metric of the valid points at a spot. If none has it, falls back to the runs in
    /// which calls were counted from outside.
    pub(super) fn valid(&self, spot: PointIndex, metric: &str) -> Rounds {
        let valid = self.points(spot).filter(|(_, point)| is_valid_for(point, metric));
        let told: Rounds =
            valid.filter_map(|(round, point)| Some((round, number(point, metric)?))).collect();
        if !told.is_empty() {
            return told;
        }
        let runs = self.calls.get(&spot).into_iter().flatten();
        let counted = runs.filter_map(|(round, run)| {
            let value = metrics::calls_value(run, metric).filter(|value| value.is_finite())?;
            Some((*round, value))
        });
        counted.collect()
    }

    /// Returns a metric of the INVALID points at a spot.
    pub(super) fn invalid(&self, spot: PointIndex, metric: &str) -> Vec<f64> {
        let invalid = self.points(spot).filter(|(_, point)| !is_valid_for(point, metric));
        invalid.filter_map(|(_, point)| number(point, metric)).collect()
    }

    /// Returns a metric of the valid points of a server at each value of the sweep.
    pub(super) fn curve(&self, sweep: usize, server: usize, metric: &str) -> Vec<Rounds> {
        let values = 0..self.sweep(sweep).values.len();
        values.map(|value| self.valid(PointIndex { sweep, server, value }, metric)).collect()
    }

    /// Returns the rate offered at a spot, sessions per second: the median over its points.
    pub(super) fn offered(&self, spot: PointIndex) -> Option<f64> {
        let rates: Vec<f64> = self.points(spot).filter_map(|(_, point)| point.rate).collect();
        weir_stats::median(&rates)
    }

    /// Returns the measured capacity of a server in a sweep, sessions per second: the median.
    pub(super) fn capacity(&self, sweep: usize, server: usize) -> Option<f64> {
        weir_stats::median(self.capacities.get(&(sweep, server))?)
    }
}

/// Metric whose highest median is a server's peak. Refusals are replies too, and the more of them
/// the further past its peak a server is.
pub(super) const PEAK_OF: &str = "goodput";

/// Returns whether the generator's counts reflect the server and not a limit of the generator.
pub(super) fn is_valid(point: &Point) -> bool {
    point.load.has_valid_counts() && point.flags.iter().all(|flag| flag.kind != "invalid")
}

/// Returns whether the generator's figures for a metric reflect the server: a late client distorts
/// times before it distorts counts. What the clients beside a load tell depends on whether those
/// were late.
pub(super) fn is_valid_for(point: &Point, metric: &str) -> bool {
    let is_of_times = metrics::is_of_times(metric);
    let tells = |load: &LoadResult| load.has_valid_counts() && (load.valid || !is_of_times);
    let load = match &point.background_load {
        Some(beside) if metric.starts_with("beside.") => &beside.load,
        _ => &point.load,
    };
    is_valid(point) && tells(load)
}

/// Returns whether a point has inconsistencies other than those of its generator.
pub(super) fn is_flagged(point: &Point) -> bool {
    point.flags.iter().any(|flag| !matches!(flag.kind.as_str(), "invalid" | "late"))
}

fn number(point: &Point, metric: &str) -> Option<f64> {
    metrics::value(point, metric).filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::record::{BackgroundLoad, CallCount, Failed};

    fn spot(server: usize, value: usize) -> PointIndex {
        PointIndex { sweep: 0, server, value }
    }

    #[test]
    fn the_best_line_about_a_point_counts_and_of_equals_the_last() {
        let experiment = fixtures::experiment();
        let failed =
            |round| Failed::of(Task::Point, &fixtures::key("one", 1.0, round), "no".to_owned());
        let mut disturbed = fixtures::point("one", 1.0, 2, 14.0);
        disturbed.cores.client.stolen_share = 0.1;
        let disturbed = Line::Point(Box::new(disturbed));
        let lines = [
            Line::Failed(failed(0)),
            fixtures::line("one", 1.0, 0, 10.0),
            fixtures::line("one", 1.0, 1, 11.0),
            Line::Failed(failed(1)),
            fixtures::line("one", 1.0 + 1e-13, 2, 12.0),
            fixtures::line("one", 1.0, 2, 13.0),
            fixtures::invalid("one", 1.0, 2, "late"),
            disturbed,
        ];
        let study = Study::new("p/e", &experiment, &lines);
        let valid = study.valid(spot(0, 0), "reply_rate");
        assert_eq!(valid, Rounds::from([(0, 10.0), (1, 11.0), (2, 13.0)]));
        assert_eq!(study.at(spot(0, 0)).count(), 3);
    }

    #[test]
    fn a_point_with_the_times_that_are_wanted_is_worth_more_than_one_without() {
        let mut stolen = fixtures::point("one", 1.0, 0, 10.0);
        stolen.cores.client.stolen_share = 0.1;
        let mut late = fixtures::point("one", 1.0, 0, 11.0);
        (late.load.valid, late.load.late_only) = (false, true);
        let lines = [stolen, late].map(|point| Line::Point(Box::new(point)));
        let rate = |experiment: &Experiment| {
            Study::new("p/e", experiment, &lines).valid(spot(0, 0), "reply_rate")[&0]
        };
        // Its table shows a response time.
        assert_eq!(rate(&fixtures::experiment()), 10.0);
        let text = fixtures::TEXT.replace(", \"response_p99\"", "");
        assert_eq!(rate(&Experiment::parse(&text).unwrap()), 11.0);
    }

    #[test]
    fn what_clients_beside_a_load_tell_depends_on_whether_they_were_late() {
        let with = |[main, beside]: [(bool, bool); 2], metric: &str| {
            let load =
                |(valid, late_only)| LoadResult { valid, late_only, ..LoadResult::default() };
            let beside = BackgroundLoad { kind: "mute".to_owned(), load: load(beside) };
            let point = fixtures::point("one", 1.0, 0, 10.0);
            let point = Point { load: load(main), background_load: Some(beside), ..point };
            is_valid_for(&point, metric)
        };
        let (valid, late, invalid) = ((true, false), (false, true), (false, false));
        let clients_late = [valid, late];
        assert!(with(clients_late, "response_p99") && with(clients_late, "beside.reply_rate"));
        assert!(!with(clients_late, "beside.response_p99"));
        assert!(with([valid, invalid], "reply_rate"));
        assert!(!with([valid, invalid], "beside.reply_rate"));
        assert!(with([late, valid], "beside.response_p99"));
        assert!(!with([late, valid], "response_p99"));
    }

    #[test]
    fn points_of_others_are_left_and_those_without_a_place_counted() {
        let experiment = fixtures::experiment();
        let mut other = fixtures::point("one", 1.0, 0, 10.0);
        other.key.experiment = "p/other".to_owned();
        let lines = [Line::Point(Box::new(other)), fixtures::line("one", 1.75, 0, 10.0)];
        let study = Study::new("p/e", &experiment, &lines);
        assert_eq!((study.repetitions().count(), study.stray), (0, 1));
    }

    #[test]
    fn calls_counted_from_outside_stand_in_for_what_points_do_not_tell() {
        let experiment = fixtures::experiment();
        let calls = vec![CallCount { name: "accept4".to_owned(), count: 50, time_s: None }];
        let run = CallsRun {
            key: fixtures::key("two", 1.0, 9),
            by: "x".into(),
            calls,
            replies: 25,
            began: None,
        };
        let lines = [Line::Calls(run), fixtures::line("two", 1.0, 0, 10.0)];
        let study = Study::new("p/e", &experiment, &lines);
        let told = study.valid(spot(1, 0), "calls.accept4.per_reply");
        assert_eq!(told, Rounds::from([(9, 2.0)]));
        assert_eq!(study.valid(spot(1, 0), "reply_rate"), Rounds::from([(0, 10.0)]));
    }
}
