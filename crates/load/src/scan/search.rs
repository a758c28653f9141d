//! Search for the knee: determines from the points so far the next rate to try, or the result. The
//! search keeps no state, so that a repetition that overturns an earlier point needs no special
//! case.
//!
//! A rate fails only after two failed tries: an occasional disturbance on a shared machine makes a
//! sustainable rate fail, but nothing makes an unsustainable rate hold. Once a rate is repeated,
//! only its repetitions count, by majority.

use serde::Serialize;

use super::plan::{ScanPlan, round_rate};
use super::point::{MeasuredPoint, PointPurpose};

/// Largest number of points of a search. From one arrival per second to ten million, and back down
/// to a narrow bracket, takes about 40.
const SEARCH_MAX: usize = 64;
/// Number of tries before a rate has failed.
const TRIES: usize = 2;
/// The search ends when the ratio of the lowest failed rate to the highest rate held is at most
/// this.
const PRECISION: f64 = 1.05;
/// Lowest rate of a search, as a share of its first rate.
const FLOOR: f64 = 0.01;
/// Arrivals of the lowest rate within a point's duration: fewer say nothing about a server.
const FLOOR_ARRIVALS: f64 = 10.0;

/// The result of a search. Rates are arrivals per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SearchResult {
    /// The search is still in progress.
    Unfinished,
    /// The knee was found.
    Knee {
        /// Highest rate that the server held.
        held: f64,
        /// Lowest rate above it that the server did not hold.
        failed: f64,
    },
    /// The client saturated before the server: no knee was found.
    ClientLimit {
        /// Highest rate held by both; `None` if no point was valid.
        held: Option<f64>,
        /// Lowest rate above it that the client could not sustain.
        invalid: f64,
        /// The audit's reason at that rate.
        reason: String,
    },
    /// The server was not saturated by the highest rate the plan allows.
    RateMax {
        /// That rate, or the highest one tried.
        held: f64,
    },
    /// The server held no rate at all.
    NothingHeld {
        /// Lowest rate tried.
        lowest: f64,
    },
}

/// The next step of a search.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SearchStep {
    /// Run this rate, as the repetition of this number, from 0.
    Try { rate: f64, repetition: u32 },
    /// The search is over, with this result.
    Over(SearchResult),
}

/// The judgement of a rate from its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateVerdict {
    Held,
    Failed,
    /// The client was the limit, every time.
    Invalid,
    /// Failed, but not tried again yet.
    Open,
}

/// Returns the next step after `measured`.
pub(super) fn step(plan: &ScanPlan, measured: &[MeasuredPoint]) -> SearchStep {
    let verdicts = verdicts(measured);
    let step = next_step(plan, measured, &verdicts);
    let searched =
        measured.iter().filter(|each| each.point.purpose == PointPurpose::Search).count();
    match step {
        SearchStep::Try { .. } if searched >= SEARCH_MAX => {
            SearchStep::Over(conclude(measured, &verdicts))
        }
        step => step,
    }
}

/// Returns the result known from `measured`, or [`SearchResult::Unfinished`].
pub(super) fn search_result(plan: &ScanPlan, measured: &[MeasuredPoint]) -> SearchResult {
    match step(plan, measured) {
        SearchStep::Try { .. } => SearchResult::Unfinished,
        SearchStep::Over(search_result) => search_result,
    }
}

/// Returns the points that decide on a rate: its repetitions, or its tries if there are none.
pub(super) fn deciding_points(measured: &[MeasuredPoint], rate: f64) -> Vec<&MeasuredPoint> {
    let of = |purpose| {
        measured.iter().filter(move |MeasuredPoint { point, .. }| {
            point.rate == rate && point.purpose == purpose
        })
    };
    let repeated: Vec<&MeasuredPoint> = of(PointPurpose::Repeat).collect();
    if repeated.is_empty() { of(PointPurpose::Search).collect() } else { repeated }
}

/// Returns all rates measured, ascending.
pub(super) fn rates(measured: &[MeasuredPoint]) -> Vec<f64> {
    let mut rates: Vec<f64> = measured.iter().map(|each| each.point.rate).collect();
    rates.sort_unstable_by(f64::total_cmp);
    rates.dedup();
    rates
}

fn verdicts(measured: &[MeasuredPoint]) -> Vec<(f64, RateVerdict)> {
    let verdict = |rate| (rate, verdict(&deciding_points(measured, rate)));
    rates(measured).into_iter().map(verdict).collect()
}

fn verdict(points: &[&MeasuredPoint]) -> RateVerdict {
    let valid = points.iter().filter(|point| point.valid()).count();
    let held = points.iter().filter(|point| point.held).count();
    let tried = points.iter().filter(|point| point.point.purpose == PointPurpose::Search).count();
    match (held, valid) {
        (0, _) if (1..TRIES).contains(&tried) => RateVerdict::Open,
        (_, 0) => RateVerdict::Invalid,
        _ if 2 * held >= valid => RateVerdict::Held,
        _ => RateVerdict::Failed,
    }
}

fn next_step(
    plan: &ScanPlan,
    measured: &[MeasuredPoint],
    verdicts: &[(f64, RateVerdict)],
) -> SearchStep {
    let try_again =
        |rate| SearchStep::Try { rate, repetition: deciding_points(measured, rate).len() as u32 };
    if let Some((rate, _)) = verdicts.iter().find(|(_, verdict)| *verdict == RateVerdict::Open) {
        return try_again(*rate);
    }
    let (held, above) = bracket(verdicts);
    let rate = match (held, above) {
        (None, None) => plan.from,
        (None, Some(lowest)) => floor(plan).min(lowest),
        (Some(held), None) => (2.0 * held).min(plan.rate_max),
        (Some(held), Some(above)) if above > PRECISION * held => round_rate((held * above).sqrt()),
        (Some(held), Some(_)) => held,
    };
    // A rate that has its verdict already has nothing more to say.
    let known = verdicts.iter().any(|(judged, _)| *judged == rate);
    if known { SearchStep::Over(conclude(measured, verdicts)) } else { try_again(rate) }
}

/// Returns the highest rate held, and the lowest above it that the server or the client did not
/// hold.
fn bracket(verdicts: &[(f64, RateVerdict)]) -> (Option<f64>, Option<f64>) {
    let held = verdicts.iter().rposition(|(_, verdict)| *verdict == RateVerdict::Held);
    let above = verdicts.get(held.map_or(0, |index| index + 1));
    (held.map(|index| verdicts[index].0), above.map(|(rate, _)| *rate))
}

/// Returns the lowest rate a search tries.
fn floor(plan: &ScanPlan) -> f64 {
    let few = FLOOR_ARRIVALS / (plan.duration_ns as f64 / 1e9);
    few.max(plan.from * FLOOR)
}

fn conclude(measured: &[MeasuredPoint], verdicts: &[(f64, RateVerdict)]) -> SearchResult {
    let (held, above) = bracket(verdicts);
    let client = |(_, verdict): &&(f64, RateVerdict)| *verdict == RateVerdict::Invalid;
    let invalid = verdicts.iter().find(|(rate, _)| Some(*rate) == above).filter(client);
    match (held, above) {
        (held, Some(invalid_rate)) if invalid.is_some() => {
            let reason = reason(measured, invalid_rate);
            SearchResult::ClientLimit { held, invalid: invalid_rate, reason }
        }
        (Some(held), Some(failed)) => SearchResult::Knee { held, failed },
        (Some(held), None) => SearchResult::RateMax { held },
        (None, Some(lowest)) => SearchResult::NothingHeld { lowest },
        (None, None) => SearchResult::Unfinished,
    }
}

/// Returns the audit's first reason at a rate.
fn reason(measured: &[MeasuredPoint], rate: f64) -> String {
    let points = deciding_points(measured, rate);
    points.iter().find_map(|point| point.result.invalid.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::{Point, PointResult};
    use super::*;

    /// Creates points of a search: a rate, and `h`eld, `f`ailed or `i`nvalid.
    fn points(list: &[(f64, char)]) -> Vec<MeasuredPoint> {
        let point = |(rate, end): &(f64, char)| MeasuredPoint {
            point: Point {
                purpose: PointPurpose::Search,
                rate: *rate,
                repetition: 0,
                duration_ns: 1,
            },
            result: PointResult {
                invalid: (*end == 'i').then(|| "lag".into()),
                ..PointResult::default()
            },
            held: *end == 'h',
        };
        list.iter().map(point).collect()
    }

    fn next(list: &[(f64, char)]) -> SearchStep {
        step(&ScanPlan::default(), &points(list))
    }

    fn rate(rate: f64, repetition: u32) -> SearchStep {
        SearchStep::Try { rate, repetition }
    }

    #[test]
    fn it_doubles_until_a_rate_fails_twice_and_then_halves_the_range() {
        assert_eq!(next(&[]), rate(100.0, 0));
        assert_eq!(next(&[(100.0, 'h')]), rate(200.0, 0));
        assert_eq!(next(&[(100.0, 'h'), (200.0, 'f')]), rate(200.0, 1));
        assert_eq!(next(&[(100.0, 'h'), (200.0, 'f'), (200.0, 'h')]), rate(400.0, 0));
        assert_eq!(next(&[(100.0, 'h'), (200.0, 'f'), (200.0, 'f')]), rate(141.0, 0));
        let narrow = [(100.0, 'h'), (105.0, 'f'), (105.0, 'f')];
        assert_eq!(
            next(&narrow),
            SearchStep::Over(SearchResult::Knee { held: 100.0, failed: 105.0 })
        );
    }

    #[test]
    fn below_a_first_rate_that_fails_it_tries_the_lowest() {
        assert_eq!(next(&[(100.0, 'f'), (100.0, 'f')]), rate(2.0, 0));
        let plan = ScanPlan { from: 1000.0, ..ScanPlan::default() };
        let list = points(&[(1000.0, 'f'), (1000.0, 'f')]);
        assert_eq!(step(&plan, &list), rate(10.0, 0));
    }

    #[test]
    fn a_client_that_fails_first_is_named_and_no_knee_is_claimed() {
        let list = [(100.0, 'h'), (104.0, 'i'), (104.0, 'i'), (200.0, 'f'), (200.0, 'f')];
        let reason = "lag".to_string();
        let limit = SearchResult::ClientLimit { held: Some(100.0), invalid: 104.0, reason };
        assert_eq!(next(&list), SearchStep::Over(limit));
        // One valid failure is the server's.
        let list = [(100.0, 'h'), (104.0, 'i'), (104.0, 'f')];
        assert_eq!(
            next(&list),
            SearchStep::Over(SearchResult::Knee { held: 100.0, failed: 104.0 })
        );
    }

    #[test]
    fn repetitions_overturn_the_search() {
        let mut list = points(&[(100.0, 'h'), (200.0, 'h'), (205.0, 'f'), (205.0, 'f')]);
        let mut repeats = points(&[(200.0, 'f'), (200.0, 'f'), (200.0, 'h')]);
        repeats.iter_mut().for_each(|each| each.point.purpose = PointPurpose::Repeat);
        list.extend(repeats);
        assert_eq!(step(&ScanPlan::default(), &list), rate(141.0, 0));
    }

    #[test]
    fn a_search_is_bounded() {
        let list = vec![(100.0, 'h'); SEARCH_MAX];
        assert_eq!(next(&list), SearchStep::Over(SearchResult::RateMax { held: 100.0 }));
    }
}
