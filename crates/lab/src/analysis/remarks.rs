//! Counts and describes points that were excluded, inconsistent, failed or missing. Equal reasons
//! are listed once.

use std::collections::BTreeMap;

use super::labels;
use super::study::{Repetition, Study, is_flagged, is_valid};
use crate::findings::Tally;
use crate::record::{Flag, Key, Task};

/// Number of distinct reasons listed; further ones are only counted.
const REASONS_MAX: usize = 3;

/// Counts the points of an experiment by outcome.
pub(super) fn tally(study: &Study<'_>, planned: &[Key]) -> Tally {
    let planned = planned.iter().filter(|key| key.experiment == study.id).count() as u32;
    let mut tally = Tally { planned, ..Tally::default() };
    for outcome in study.repetitions().flat_map(|(_, rounds)| rounds.values()) {
        match outcome {
            Repetition::Failed(_) => tally.failed += 1,
            Repetition::Measured(point) => {
                tally.measured += 1;
                tally.invalid += u32::from(!is_valid(point));
                tally.late += u32::from(is_valid(point) && !point.load.valid);
                tally.flagged += u32::from(is_valid(point) && is_flagged(point));
            }
        }
    }
    tally
}

/// Returns a remark for every place with excluded, flagged or failed points: where, and why.
pub(super) fn remarks(study: &Study<'_>) -> Vec<(String, String)> {
    let mut remarks = Vec::new();
    for (spot, rounds) in study.repetitions() {
        let sweep = study.sweep(spot.sweep);
        let at = labels::place(study, sweep, study.x(spot));
        let place = format!("{}: {} at {at}", sweep.id, study.label(spot.server));
        let all = rounds.len();
        let (mut invalid, mut failed) = (Vec::new(), Vec::new());
        let mut flags: BTreeMap<&str, Vec<Vec<&str>>> = BTreeMap::new();
        for outcome in rounds.values() {
            match outcome {
                Repetition::Failed(why) => failed.push(vec![*why]),
                Repetition::Measured(point) => {
                    if !is_valid(point) {
                        invalid.push(reasons(&point.load.reasons, &point.flags));
                    }
                    let other = point.flags.iter().filter(|flag| flag.kind != "invalid");
                    let mut of_point: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                    other.for_each(|flag| of_point.entry(&flag.kind).or_default().push(&flag.says));
                    for (kind, says) in of_point {
                        flags.entry(kind).or_default().push(says);
                    }
                }
            }
        }
        let mut say = |what: &str, whys: &[Vec<&str>]| {
            if !whys.is_empty() {
                let text = format!("{} of {all} {what}: {}", whys.len(), grouped(whys));
                remarks.push((place.clone(), text));
            }
        };
        say("INVALID", &invalid);
        for (kind, says) in &flags {
            match *kind {
                "late" => say("late, times left out", says),
                kind => say(&format!("flagged {kind}"), says),
            }
        }
        say("could not be measured", &failed);
    }
    let place = |key: &Key| {
        let label = study.server(&key.server).map_or(key.server.as_str(), |at| study.label(at));
        format!("{}: {label}", key.sweep)
    };
    remarks.extend(study.failed.iter().map(|failed| {
        let what = match failed.task {
            Task::Calls => "its system calls could not be counted",
            _ => "a capacity could not be measured",
        };
        (place(&failed.key), format!("{what}: {}", failed.why))
    }));
    remarks.extend(study.limited.iter().map(|capacity| {
        let why = capacity.limited_by.join("; ");
        (
            place(&capacity.key),
            format!("a capacity may be the client's, and more is possible: {why}"),
        )
    }));
    remarks
}

/// Returns the generator's reasons, or else those of the flag.
fn reasons<'a>(given: &'a [String], flags: &'a [Flag]) -> Vec<&'a str> {
    if !given.is_empty() {
        return given.iter().map(String::as_str).collect();
    }
    let flags = flags.iter().filter(|flag| flag.kind == "invalid");
    flags.map(|flag| flag.says.as_str()).collect()
}

/// Joins the reasons, equal ones once, the most frequent first.
fn grouped(whys: &[Vec<&str>]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for why in whys.iter().flatten() {
        *counts.entry(why).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let said = counts.iter().take(REASONS_MAX).map(|(why, count)| match count {
        1 => (*why).to_owned(),
        count => format!("{why} ({count} times)"),
    });
    let mut said: Vec<String> = said.collect();
    if let Some(more) = counts.len().checked_sub(REASONS_MAX).filter(|more| *more > 0) {
        said.push(format!("and {more} more"));
    }
    if said.is_empty() { "no reason given".to_owned() } else { said.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::record::{Failed, Line};

    #[test]
    fn equal_reasons_are_said_once_and_all_is_counted() {
        let experiment = fixtures::experiment();
        let mut flagged = fixtures::point("two", 1.0, 0, 10.0);
        flagged.flags.push(Flag { kind: "steal".to_owned(), says: "5 % stolen".to_owned() });
        let lines = [
            fixtures::invalid("one", 2.0, 0, "late"),
            fixtures::invalid("one", 2.0, 1, "late"),
            fixtures::invalid("one", 2.0, 2, "later"),
            Line::Point(Box::new(flagged)),
            Line::Failed(Failed::of(
                Task::Point,
                &fixtures::key("two", 4.0, 1),
                "no answer".to_owned(),
            )),
        ];
        let study = Study::new("p/e", &experiment, &lines);
        let remarks = remarks(&study);
        let texts: Vec<&str> = remarks.iter().map(|(_, why)| why.as_str()).collect();
        assert_eq!(remarks[0].0, "up: accept 1 at 2 × the capacity of accept 1");
        assert_eq!(
            texts,
            [
                "3 of 3 INVALID: late (2 times); later",
                "1 of 1 flagged steal: 5 % stolen",
                "1 of 1 could not be measured: no answer",
            ]
        );
        let planned: Vec<Key> = (0..5).map(|round| fixtures::key("one", 2.0, round)).collect();
        let tally = tally(&study, &planned);
        assert_eq!((tally.planned, tally.measured, tally.invalid), (5, 4, 3));
        assert_eq!((tally.flagged, tally.failed), (1, 1));
    }

    #[test]
    fn many_different_reasons_are_counted() {
        let whys: Vec<Vec<&str>> = ["a", "b", "c", "d", "e"].map(|why| vec![why]).to_vec();
        assert_eq!(grouped(&whys), "a; b; c; and 2 more");
        assert_eq!(grouped(&[vec![]]), "no reason given");
    }
}
