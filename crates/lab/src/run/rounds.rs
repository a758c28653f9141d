//! Rounds beyond the planned ones, until the compared quantities are as precise as asked for.

use std::collections::VecDeque;

use crate::analysis::precision::open_sweeps;
use crate::journal::Request;
use crate::paper::Paper;
use crate::plan::{self, NamedExperiment, Step};
use crate::record::Line;

/// Source of further rounds: each is decided on by what the rounds before it measured, in the same
/// way whether the run was interrupted meanwhile or not.
pub(super) struct Rounds {
    paper: Option<Paper>,
    scale: f64,
    seed: u64,
    /// The next round of each experiment.
    next: VecDeque<(u32, usize)>,
}

impl Rounds {
    /// Creates the source for a request.
    ///
    /// # Errors
    /// Returns a message if the paper's file cannot be read.
    pub(super) fn new(experiments: &[NamedExperiment], request: &Request) -> Result<Self, String> {
        let paper = request.paper_text.as_deref().map(Paper::parse).transpose()?;
        let (scale, seed) = (request.scale, request.seed);
        let next = experiments.iter().enumerate().filter_map(|(index, (_, experiment))| {
            let sweeps = experiment.sweep.iter().filter(|sweep| sweep.precision.is_some());
            Some((sweeps.map(|sweep| plan::scaled(sweep, scale).0).min()?, index))
        });
        Ok(Self { paper, scale, seed, next: next.collect() })
    }

    /// Returns the steps of the next round in which there is something to measure; empty if every
    /// quantity is precise enough, or has had its maximum number of rounds.
    pub(super) fn next(&mut self, experiments: &[NamedExperiment], lines: &[Line]) -> Vec<Step> {
        while let Some((round, index)) = self.next.pop_front() {
            let wanted = self.wanted((round, index), experiments, lines);
            if self.ended(round, &experiments[index]) {
                continue;
            }
            self.next.push_back((round + 1, index));
            if !wanted.is_empty() {
                let order = (round, self.scale, self.seed);
                return plan::further_round(experiments, index, &wanted, order);
            }
            if self.all_planned(round, &experiments[index]) {
                self.next.pop_back();
            }
        }
        Vec::new()
    }

    fn wanted(
        &self,
        (round, index): (u32, usize),
        experiments: &[NamedExperiment],
        lines: &[Line],
    ) -> Vec<usize> {
        let (id, experiment) = &experiments[index];
        let mut open = open_sweeps((id, experiment), self.paper.as_ref(), lines, round);
        open.retain(|sweep| {
            let sweep = &experiment.sweep[*sweep];
            let most = sweep.precision.map_or(0, |precision| *precision.max_rounds);
            (plan::scaled(sweep, self.scale).0..most).contains(&round)
        });
        open
    }

    /// Returns whether no sweep may have this round.
    fn ended(&self, round: u32, (_, experiment): &NamedExperiment) -> bool {
        let most = experiment.sweep.iter().filter_map(|sweep| sweep.precision);
        most.map(|precision| *precision.max_rounds).max().unwrap_or(0) <= round
    }

    /// Returns whether no sweep has this round or a later one in the plan.
    fn all_planned(&self, round: u32, (_, experiment): &NamedExperiment) -> bool {
        let planned = experiment.sweep.iter().map(|sweep| plan::scaled(sweep, self.scale).0);
        planned.max().unwrap_or(0) <= round
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, one_weir};
    use crate::record::{Key, LoadResult, Point};

    const TEXT: &str = one_weir!(
        r#"
[[sweep]]
id = "load"
x = "rate"
values = [1, 2]
repetitions = 3
precision = { percent = 2, max-rounds = 9 }
[[sweep]]
id = "plain"
x = "rate"
values = [1]
repetitions = 3
[[claim]]
id = "c"
figure = "fig-1"
text = "t"
where = "p"
sweep = "load"
top = { metric = "reply_rate", server = "one", at = 1 }
above = 1
"#
    );

    fn named() -> Vec<NamedExperiment> {
        vec![("e".to_owned(), Experiment::parse(TEXT).unwrap())]
    }

    fn line(key: Key, replies_per_s: f64) -> Line {
        let load = LoadResult { valid: true, replies_per_s, ..LoadResult::default() };
        Line::Point(Box::new(Point { key, load, ..Point::default() }))
    }

    /// Runs the plan on made-up data; returns the rounds beyond it with their steps.
    fn played(rate: impl Fn(u32) -> f64, mut lines: Vec<Line>) -> (Vec<(u32, usize)>, Vec<Line>) {
        let named = named();
        let has = |lines: &[Line], key: &Key| {
            lines.iter().any(|line| matches!(line, Line::Point(point) if point.key == *key))
        };
        for step in
            plan::steps(&named, 1.0, 1).into_iter().filter(|step| step.task == plan::Task::Point)
        {
            if !has(&lines, &step.key) {
                lines.push(line(step.key.clone(), rate(step.key.round)));
            }
        }
        let mut rounds = Rounds::new(&named, &Request::of("e", Vec::new())).unwrap();
        let mut more = Vec::new();
        loop {
            let steps = rounds.next(&named, &lines);
            let Some(first) = steps.first() else { return (more, lines) };
            more.push((first.key.round, steps.len()));
            for step in steps.iter().filter(|step| !has(&lines, &step.key)).collect::<Vec<_>>() {
                lines.push(line(step.key.clone(), rate(step.key.round)));
            }
        }
    }

    #[test]
    fn a_precise_sweep_has_six_rounds_and_a_noisy_one_as_many_as_allowed() {
        assert_eq!(played(|_| 100.0, Vec::new()).0, []);
        let noisy = |round: u32| 100.0 + 50.0 * f64::from(round % 3);
        assert_eq!(played(noisy, Vec::new()).0, [(6, 2), (7, 2), (8, 2)]);
        // Only the sweep with a precision has more rounds than its repetitions.
        let lines = played(noisy, Vec::new()).1;
        assert_eq!(lines.len(), 9 * 2 + 3);
    }

    #[test]
    fn rounds_end_when_the_interval_is_narrow() {
        // One of six is drawn three times too often for the interval to leave it out; of seven not.
        let calmed = |round: u32| if round == 2 { 110.0 } else { 100.0 };
        assert_eq!(played(calmed, Vec::new()).0, [(6, 2)]);
    }

    #[test]
    fn a_resumed_run_goes_on_with_the_rounds_done() {
        let noisy = |round: u32| 100.0 + 50.0 * f64::from(round % 3);
        let (whole, lines) = played(noisy, Vec::new());
        // Cut off in the middle of round 7: of its two points one was measured.
        let cut: Vec<Line> = lines[..lines.len() - 3].to_vec();
        let (again, resumed) = played(noisy, cut);
        assert_eq!((again, resumed.len()), (whole, lines.len()));
        let keys = |lines: &[Line]| -> Vec<Key> {
            lines
                .iter()
                .map(|line| {
                    let Line::Point(point) = line else { unreachable!() };
                    point.key.clone()
                })
                .collect()
        };
        assert_eq!(keys(&lines), keys(&resumed));
    }
}
