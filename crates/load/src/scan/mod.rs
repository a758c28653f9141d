//! Search for a server's knee, and measurement of its behaviour past it: selects the rates to run,
//! and summarizes the results.
//!
//! The caller asks a scan for the next point to run ([`Scan::next`]) and reports its result
//! ([`Scan::report`]), until there are no more points. The search doubles the rate until the server
//! no longer follows, then halves the range until it is narrow. Then rates from the knee upwards
//! are repeated several times, in rounds of random order, so that drift of the machine does not
//! appear as a slope. A scan runs nothing itself. The caller must wait until the after-effects of a
//! point on the server (connections in TIME_WAIT, a full backlog) are gone.

mod json;
mod point;
mod search;
mod summary;
mod text;

#[cfg(test)]
mod models;

use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

pub use point::{Measured, Point, PointResult, Stage};
pub use search::Finding;
pub use summary::{Estimate, Kept, Peak, Row, Summary};

/// The parameters of a scan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Rate at which the search begins, arrivals per second.
    pub from: f64,
    /// Highest rate to try, arrivals per second.
    pub rate_max: f64,
    /// Highest rate to repeat, as a multiple of the knee.
    pub to: f64,
    /// Multiples of the knee to repeat, none above `to`; 1 and `to` are always repeated.
    pub multiples: Vec<f64>,
    /// Number of repetitions of each rate.
    pub repetitions: u32,
    /// Measured time of a point, nanoseconds.
    pub duration_ns: u64,
    /// Mean number of requests per arrival: the goodput expected for each arrival.
    pub requests_per_arrival: f64,
    /// Smallest share of replies, 0 to 1, with which a rate is held.
    pub goodput_min: f64,
    /// Largest share of failed requests, 0 to 1, with which a rate is held.
    pub errors_max: f64,
    /// Largest 99th percentile of the response time with which a rate is held, nanoseconds; 0 is no
    /// limit.
    pub p99_ns_max: u64,
    /// Seed of the order of repetitions, and of the bootstrap intervals.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            from: 100.0,
            rate_max: 10_000_000.0,
            to: 4.0,
            multiples: vec![1.0, 1.25, 1.5, 2.0, 3.0, 4.0],
            repetitions: 3,
            duration_ns: 5_000_000_000,
            requests_per_arrival: 1.0,
            goodput_min: 0.98,
            errors_max: 0.01,
            p99_ns_max: 0,
            seed: 1,
        }
    }
}

impl Plan {
    /// Checks the parameters; an error is a sentence about the first one that is wrong.
    pub fn check(&self) -> Result<(), String> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let rules = [
            (positive(self.from), "a scan begins at a rate above 0"),
            (positive(self.rate_max), "a scan ends at a rate above 0"),
            (self.from <= self.rate_max, "a scan cannot begin beyond its highest rate"),
            (self.to.is_finite() && self.to >= 1.0, "a scan goes to 1 times the knee or further"),
            (
                self.multiples.iter().all(|each| positive(*each)),
                "multiples of the knee are numbers above 0",
            ),
            (
                self.multiples.iter().all(|each| *each <= self.to),
                "multiples of the knee (--multiples) are not above how far the scan goes (--to)",
            ),
            (self.repetitions > 0, "a scan repeats each rate once or more"),
            (self.duration_ns > 0, "a point of a scan takes some time"),
            (positive(self.requests_per_arrival), "an arrival is of some requests"),
            (share(self.goodput_min), "the share of replies is from 0 to 1"),
            (share(self.errors_max), "the share of errors is from 0 to 1"),
        ];
        let broken = rules.into_iter().find(|(kept, _)| !kept);
        broken.map_or(Ok(()), |(_, sentence)| Err(sentence.into()))
    }

    /// Returns the rates to repeat for a knee at `knee`, ascending.
    fn repeated(&self, knee: f64) -> Vec<f64> {
        let mut multiples = self.multiples.clone();
        multiples.extend([1.0, self.to]);
        multiples.sort_unstable_by(f64::total_cmp);
        let mut rates: Vec<f64> = multiples.iter().map(|each| search::round(knee * each)).collect();
        rates.dedup();
        rates.retain(|rate| *rate <= self.rate_max);
        rates
    }
}

/// A scan in progress.
#[derive(Clone, Debug)]
pub struct Scan {
    plan: Plan,
    measured: Vec<Measured>,
    /// Points still to repeat, the next one last.
    queue: Vec<Point>,
    /// The knee for which the repetitions were planned; `None` before that.
    base: Option<f64>,
}

impl Scan {
    /// Creates a scan; fails as [`Plan::check`] does.
    pub fn new(plan: Plan) -> Result<Self, String> {
        plan.check()?;
        Ok(Self { plan, measured: Vec::new(), queue: Vec::new(), base: None })
    }

    /// Returns the next point to run, which stays the same until it is reported. `None`: the scan
    /// is over, as it always is after a bounded number of points.
    pub fn next(&self) -> Option<Point> {
        self.queue.last().copied().or_else(|| match search::step(&self.plan, &self.measured) {
            search::Step::Try { rate, repetition } => {
                let duration_ns = self.plan.duration_ns;
                Some(Point { stage: Stage::Search, rate, repetition, duration_ns })
            }
            search::Step::Over(_) => None,
        })
    }

    /// Records the result of a point that [`Scan::next`] returned; returns it with its judgement.
    pub fn report(&mut self, point: Point, result: PointResult) -> Measured {
        let held = result.holds(&self.plan);
        let measured = Measured { point, result, held };
        self.measured.push(measured.clone());
        self.queue.pop_if(|wanted| *wanted == point);
        if self.base.is_none()
            && let search::Step::Over(Finding::Knee { held, .. }) =
                search::step(&self.plan, &self.measured)
        {
            self.base = Some(held);
            self.queue = rounds(&self.plan, held);
        }
        measured
    }

    /// Returns every point so far, in the order they were run.
    pub fn measured(&self) -> &[Measured] {
        &self.measured
    }

    /// Summarizes the points so far.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.plan, &self.measured, self.base)
    }
}

/// Returns the points to repeat, last one first. Each round has every rate once, in a random order
/// of its own, so that drift slower than a round affects all its rates alike.
fn rounds(plan: &Plan, knee: f64) -> Vec<Point> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    let mut rates = plan.repeated(knee);
    let mut points = Vec::new();
    for repetition in (0..plan.repetitions).rev() {
        rates.shuffle(&mut chance);
        let duration_ns = plan.duration_ns;
        let point =
            |rate: &f64| Point { stage: Stage::Repeat, rate: *rate, repetition, duration_ns };
        points.extend(rates.iter().map(point));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_cannot_be_is_refused() {
        let plan = Plan::default();
        assert_eq!(plan.check(), Ok(()));
        let bad = [
            Plan { from: 0.0, ..plan.clone() },
            Plan { from: f64::NAN, ..plan.clone() },
            Plan { from: 2.0, rate_max: 1.0, ..plan.clone() },
            Plan { to: 0.5, ..plan.clone() },
            Plan { multiples: vec![1.0, f64::INFINITY], ..plan.clone() },
            Plan { to: 2.0, multiples: vec![3.0], ..plan.clone() },
            Plan { repetitions: 0, ..plan.clone() },
            Plan { duration_ns: 0, ..plan.clone() },
            Plan { goodput_min: 1.5, ..plan },
        ];
        assert!(bad.into_iter().all(|plan| Scan::new(plan).is_err()));
    }

    #[test]
    fn the_knee_and_the_farthest_point_are_always_repeated() {
        let rates = |to, multiples| Plan { to, multiples, ..Plan::default() }.repeated(1000.0);
        assert_eq!(rates(2.5, vec![1.5, 2.5]), [1000.0, 1500.0, 2500.0]);
        assert_eq!(rates(1.0, vec![0.5]), [500.0, 1000.0]);
    }

    #[test]
    fn each_round_has_each_rate_once_in_an_order_of_its_own() {
        let plan = Plan { repetitions: 4, ..Plan::default() };
        let points = rounds(&plan, 1000.0);
        let orders: Vec<Vec<f64>> =
            points.chunks(6).map(|round| round.iter().map(|point| point.rate).collect()).collect();
        assert!(orders.windows(2).any(|pair| pair[0] != pair[1]));
        for (order, round) in orders.into_iter().zip(points.chunks(6)) {
            let mut order = order;
            order.sort_unstable_by(f64::total_cmp);
            assert_eq!(order, plan.repeated(1000.0));
            assert!(round.iter().all(|point| point.repetition == round[0].repetition));
        }
        assert_eq!(points.last().map(|first| first.repetition), Some(0));
        assert_eq!(points, rounds(&plan, 1000.0));
    }
}
