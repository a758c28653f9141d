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
mod plan;
mod point;
mod search;
mod summary;
mod text;

#[cfg(test)]
mod models;

use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

pub use plan::ScanPlan;
pub use point::{MeasuredPoint, Point, PointPurpose, PointResult};
pub use search::SearchResult;
pub use summary::{Estimate, KeptGoodput, Peak, RateSummary, ScanSummary};

/// A scan in progress.
#[derive(Clone, Debug)]
pub struct Scan {
    plan: ScanPlan,
    measured: Vec<MeasuredPoint>,
    /// Points still to repeat, the next one last.
    queue: Vec<Point>,
    /// The knee for which the repetitions were planned; `None` before that.
    base: Option<f64>,
}

impl Scan {
    /// Creates a scan; fails as [`ScanPlan::check`] does.
    pub fn new(plan: ScanPlan) -> Result<Self, String> {
        plan.check()?;
        Ok(Self { plan, measured: Vec::new(), queue: Vec::new(), base: None })
    }

    /// Returns the next point to run, which stays the same until it is reported. `None`: the scan
    /// is over, as it always is after a bounded number of points.
    pub fn next(&self) -> Option<Point> {
        self.queue.last().copied().or_else(|| match search::step(&self.plan, &self.measured) {
            search::SearchStep::Try { rate, repetition } => {
                let duration_ns = self.plan.duration_ns;
                Some(Point { purpose: PointPurpose::Search, rate, repetition, duration_ns })
            }
            search::SearchStep::Over(_) => None,
        })
    }

    /// Records the result of a point that [`Scan::next`] returned; returns it with its judgement.
    pub fn report(&mut self, point: Point, result: PointResult) -> MeasuredPoint {
        let held = result.holds(&self.plan);
        let measured = MeasuredPoint { point, result, held };
        self.measured.push(measured.clone());
        self.queue.pop_if(|wanted| *wanted == point);
        if self.base.is_none()
            && let search::SearchStep::Over(SearchResult::Knee { held, .. }) =
                search::step(&self.plan, &self.measured)
        {
            self.base = Some(held);
            self.queue = rounds(&self.plan, held);
        }
        measured
    }

    /// Returns every point so far, in the order they were run.
    pub fn measured(&self) -> &[MeasuredPoint] {
        &self.measured
    }

    /// Summarizes the points so far.
    pub fn summary(&self) -> ScanSummary {
        ScanSummary::of(&self.plan, &self.measured, self.base)
    }
}

/// Returns the points to repeat, last one first. Each round has every rate once, in a random order
/// of its own, so that drift slower than a round affects all its rates alike.
fn rounds(plan: &ScanPlan, knee: f64) -> Vec<Point> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    let mut rates = plan.repeated(knee);
    let mut points = Vec::new();
    for repetition in (0..plan.repetitions).rev() {
        rates.shuffle(&mut chance);
        let duration_ns = plan.duration_ns;
        let point = |rate: &f64| Point {
            purpose: PointPurpose::Repeat,
            rate: *rate,
            repetition,
            duration_ns,
        };
        points.extend(rates.iter().map(point));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_cannot_be_is_refused() {
        let plan = ScanPlan::default();
        assert_eq!(plan.check(), Ok(()));
        let bad = [
            ScanPlan { from: 0.0, ..plan.clone() },
            ScanPlan { from: f64::NAN, ..plan.clone() },
            ScanPlan { from: 2.0, rate_max: 1.0, ..plan.clone() },
            ScanPlan { to: 0.5, ..plan.clone() },
            ScanPlan { multiples: vec![1.0, f64::INFINITY], ..plan.clone() },
            ScanPlan { to: 2.0, multiples: vec![3.0], ..plan.clone() },
            ScanPlan { repetitions: 0, ..plan.clone() },
            ScanPlan { duration_ns: 0, ..plan.clone() },
            ScanPlan { goodput_min: 1.5, ..plan },
        ];
        assert!(bad.into_iter().all(|plan| Scan::new(plan).is_err()));
    }

    #[test]
    fn each_round_has_each_rate_once_in_an_order_of_its_own() {
        let plan = ScanPlan { repetitions: 4, ..ScanPlan::default() };
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
