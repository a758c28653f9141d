//! The quantities whose intervals a run is to narrow, and the sweeps that need another round for
//! it. The widths decide, never the verdicts: a run that went on until a claim holds would find
//! many that do.

use super::study::{PointIndex, Study};
use super::{claims, values};
use crate::experiment::{Claim, Experiment, PRECISION_ROUNDS_MIN};
use crate::findings::Estimate;
use crate::paper::Paper;
use crate::record::Line;

/// Metrics that are compared where an experiment has no claims.
const METRICS: [&str; 2] = ["goodput", "core_us_per_reply"];

/// A compared quantity: its estimate and the sweeps that it is taken from.
type Compared = (Option<Estimate>, Vec<usize>);

/// Returns the indices of the sweeps that have a quantity whose interval is not as narrow as asked
/// for, judged by the rounds before `round` alone. What has no number at all is given up.
pub(crate) fn open_sweeps(
    (id, experiment): (&str, &Experiment),
    paper: Option<&Paper>,
    lines: &[Line],
    round: u32,
) -> Vec<usize> {
    let study = Study::before(id, experiment, lines, round);
    let is_open = |(estimate, sweeps): &Compared| {
        let goals = sweeps.iter().map(|sweep| experiment.sweep[*sweep].precision);
        let goals: Option<Vec<f64>> = goals.map(|goal| Some(goal?.share())).collect();
        // A sweep without a precision has no further rounds to pair others with.
        let Some((goals, estimate)) = goals.zip(*estimate) else { return false };
        !is_narrow(&estimate, goals.into_iter().fold(f64::INFINITY, f64::min))
    };
    let mut open: Vec<usize> = compared(&study, paper)
        .into_iter()
        .filter(is_open)
        .flat_map(|(_, sweeps)| sweeps)
        .collect();
    open.sort_unstable();
    open.dedup();
    open
}

/// Returns whether an interval is as narrow as asked for, and of enough values to count.
fn is_narrow(estimate: &Estimate, share: f64) -> bool {
    estimate.n >= PRECISION_ROUNDS_MIN && estimate.half_width().is_some_and(|half| half <= share)
}

/// Returns what an experiment compares: what its claims and the paper's about it measure, or else
/// two metrics of each point in its figures.
fn compared(study: &Study<'_>, paper: Option<&Paper>) -> Vec<Compared> {
    let own = study.experiment.claim.iter().map(|claim| claim.of_experiment(study.id));
    let all: Vec<Claim> = own.chain(paper.into_iter().flat_map(|one| one.claim.clone())).collect();
    let claimed: Vec<Compared> =
        all.iter().filter_map(|claim| claims::compared(claim, study)).collect();
    if claimed.is_empty() { drawn(study) } else { claimed }
}

fn drawn(study: &Study<'_>) -> Vec<Compared> {
    let experiment = study.experiment;
    let mut all = Vec::new();
    for (sweep, spec) in experiment.sweep.iter().enumerate() {
        let figures = || experiment.figure.iter().filter(|figure| figure.sweep == spec.id);
        let shown: Vec<&str> = match spec.probe {
            Some(_) => figures().flat_map(|figure| &figure.y).map(String::as_str).collect(),
            None => METRICS.to_vec(),
        };
        for server in experiment.servers_of(spec, &[]) {
            let id = &experiment.server[server].id;
            let is_in = |servers: &[String]| servers.is_empty() || servers.contains(id);
            if !figures().any(|figure| is_in(&figure.servers)) {
                continue;
            }
            let spots = (0..spec.values.len()).map(|value| PointIndex { sweep, server, value });
            let each = spots.flat_map(|spot| shown.iter().map(move |metric| (spot, *metric)));
            all.extend(
                each.map(|(spot, metric)| (values::valid(study, spot, metric), vec![sweep])),
            );
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    fn experiment(rest: &str) -> Experiment {
        let precise = "burn-us = 60\nprecision = { percent = 5, max-rounds = 9 }";
        let text = fixtures::TEXT.replacen("burn-us = 60", precise, 1);
        Experiment::parse(&format!("{text}{rest}")).unwrap()
    }

    const CLAIM: &str = r#"
[[claim]]
id = "c"
figure = "fig-1"
text = "t"
where = "p"
sweep = "up"
top = { metric = "reply_rate", server = "two", at = 1 }
bottom = { metric = "reply_rate", server = "one", at = 1 }
above = 1
"#;

    /// Returns rounds of both servers, whose ratios are `1 + spread * (-1, 0, 1)` in turn.
    fn rounds(count: u32, spread: f64) -> Vec<Line> {
        let pair = |round: u32| {
            let ratio = 1.0 + spread * (f64::from(round % 3) - 1.0);
            let rate = 1000.0 * f64::from(1 + round);
            [
                fixtures::line("one", 1.0, round, rate),
                fixtures::line("two", 1.0, round, rate * ratio),
            ]
        };
        (0..count).flat_map(pair).collect()
    }

    #[test]
    fn rounds_go_on_until_the_ratios_interval_is_narrow_and_of_six() {
        let experiment = experiment(CLAIM);
        let open = |lines: &[Line], round| open_sweeps(("p/e", &experiment), None, lines, round);
        assert_eq!(open(&rounds(6, 0.2), 6), [0]);
        assert_eq!(open(&rounds(6, 0.01), 6), [0; 0]);
        assert_eq!(open(&rounds(5, 0.01), 5), [0]);
        // Rounds after the one to be decided on do not count: a resumed run decides as before.
        let mut later = rounds(6, 0.2);
        later.extend(rounds(60, 0.01).into_iter().skip(12));
        assert_eq!((open(&later, 6), open(&later, 60)), (vec![0], vec![]));
    }

    #[test]
    fn without_claims_each_point_of_a_figure_is_compared() {
        let experiment = experiment("");
        let open = |lines: &[Line]| open_sweeps(("p/e", &experiment), None, lines, 99);
        let steady = |lines: &mut Vec<Line>| {
            for line in lines {
                let Line::Point(point) = line else { continue };
                point.load.replies_per_s = 1000.0;
            }
        };
        let mut lines = rounds(6, 0.0);
        assert_eq!(open(&lines), [0]);
        steady(&mut lines);
        assert_eq!(open(&lines), [0; 0]);
    }

    #[test]
    fn what_has_no_number_or_no_precision_is_given_up() {
        let none = open_sweeps(("p/e", &experiment(CLAIM)), None, &[], 6);
        let plain = Experiment::parse(&format!("{}{CLAIM}", fixtures::TEXT)).unwrap();
        let without = open_sweeps(("p/e", &plain), None, &rounds(6, 0.2), 6);
        assert_eq!((none, without), (vec![], vec![]));
    }

    #[test]
    fn a_papers_claims_about_the_experiment_count() {
        let claim = CLAIM.replace("sweep =", "experiment = \"p/e\"\nsweep =");
        let paper = fixtures::paper(&claim);
        let experiment = experiment("");
        let open = |lines: &[Line]| open_sweeps(("p/e", &experiment), Some(&paper), lines, 99);
        // The rates themselves differ from round to round: only their ratio is compared.
        assert_eq!((open(&rounds(6, 0.0)), open(&rounds(6, 0.3))), (vec![], vec![0]));
    }
}
