//! Rates of answers at two limits, and how sure their difference is.
//!
//! By Little's law a rate is the number in flight divided by the time that each takes. The time is
//! averaged in two ways. The arithmetic mean gives the rate itself; where few requests take most
//! of the time, thousands are needed to know it. The geometric mean is known much sooner. It says
//! the same as long as the law of the response times keeps its shape, as it does where one more in
//! flight meets a free worker. Where requests queue, it makes more in flight look worse than they
//! are. So a gain is believed by either, and if the arithmetic mean is sure of one, the geometric
//! does not count against it.

use super::super::policy::{Completion, Outcome};

/// Least standard error of a gain: the begin of a turn is not quite like the rest of it.
const ERROR_MIN: f64 = 0.005;

/// Requests that ended in one go under one limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub ended: f64,
    /// Requests that the server has replied to with what was asked for.
    pub answered: f64,
    /// Of these, those whose client had gone.
    pub departed: f64,
    in_flight: f64,
    /// Sum of the times of all.
    took_ns: f64,
    /// Sums over those answered: of the times, of their squares, of their logarithms, of the
    /// squares of these.
    answered_ns: f64,
    squares: f64,
    logs: f64,
    log_squares: f64,
}

impl Sample {
    pub(super) fn add(&mut self, completion: &Completion) {
        let took_ns = completion.took_ns.max(1) as f64;
        self.ended += 1.0;
        self.in_flight += completion.in_flight as f64;
        self.took_ns += took_ns;
        let is_departed = completion.outcome == Outcome::Departed;
        if is_departed || completion.outcome == Outcome::Answered {
            self.answered += 1.0;
            self.departed += f64::from(u8::from(is_departed));
            self.answered_ns += took_ns;
            self.squares += took_ns * took_ns;
            let log = took_ns.ln();
            self.logs += log;
            self.log_squares += log * log;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.ended += other.ended;
        self.answered += other.answered;
        self.departed += other.departed;
        self.in_flight += other.in_flight;
        self.took_ns += other.took_ns;
        self.answered_ns += other.answered_ns;
        self.squares += other.squares;
        self.logs += other.logs;
        self.log_squares += other.log_squares;
    }

    /// Returns the mean time of an answer, nanoseconds; `None` if there was none.
    pub(super) fn mean_ns(&self) -> Option<f64> {
        (self.answered > 0.0).then(|| self.answered_ns / self.answered)
    }

    /// Share of the replies that came in time; where none did, as if half a one had.
    fn in_time_share(&self) -> f64 {
        (self.answered - self.departed + 0.5) / (self.answered + 0.5)
    }

    /// Logarithms of the rate of answers in time, by the arithmetic and by the geometric mean;
    /// `None` if there was no reply.
    fn log_rates(&self) -> Option<[f64; 2]> {
        let in_time = self.in_time_share().ln();
        self.log_reply_rates().map(|logs| logs.map(|log| log + in_time))
    }

    /// Logarithms of the rate of replies, by either mean.
    fn log_reply_rates(&self) -> Option<[f64; 2]> {
        let mean_ns = self.mean_ns()?;
        // Of the places, those that answers had.
        let places = self.in_flight / self.ended * (self.answered_ns / self.took_ns);
        Some([places.ln() - mean_ns.ln(), places.ln() - self.logs / self.answered])
    }

    /// Variance of the logarithm of the share in time, if the requests are independent of each
    /// other.
    fn in_time_variance(&self) -> f64 {
        self.departed / (self.answered.max(1.0) * (self.answered - self.departed + 0.5))
    }

    /// Variances of the logarithms of the rate of replies, if the requests are independent of each
    /// other.
    fn variances(&self) -> [f64; 2] {
        let count = self.answered.max(2.0);
        let mean_ns = self.answered_ns / count;
        let relative = self.squares / count / (mean_ns * mean_ns) - 1.0;
        let mean_log = self.logs / count;
        let log = self.log_squares / count - mean_log * mean_log;
        [relative.max(0.0) / (count - 1.0), log.max(0.0) / (count - 1.0)]
    }
}

/// Rates of one limit, over several turns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub turns: f64,
    /// Time of all turns, nanoseconds.
    pub spent_ns: f64,
    all: Sample,
    sums: [f64; 2],
    squares: [f64; 2],
}

impl Rates {
    /// Adds a turn.
    pub(super) fn add(&mut self, sample: &Sample, spent_ns: u64) {
        self.spent_ns += spent_ns as f64;
        self.all.merge(sample);
        let Some(logs) = sample.log_rates() else { return };
        self.turns += 1.0;
        for (which, log) in logs.into_iter().enumerate() {
            self.sums[which] += log;
            self.squares[which] += log * log;
        }
    }

    /// Variance of an average: requests that follow each other are alike where they queue, and only
    /// turns show how much the rate really varies.
    fn variance(&self, which: usize) -> f64 {
        let within = self.all.variances()[which] + self.all.in_time_variance();
        if self.turns < 2.0 {
            return within;
        }
        let mean = self.sums[which] / self.turns;
        let between = self.squares[which] / self.turns - mean * mean;
        within.max(between / (self.turns - 1.0))
    }

    /// Returns by how much another rate of replies is higher, in time or not, by the mean that is
    /// more certain; `None` if there was none under one of the limits.
    pub(super) fn reply_gain_of(&self, other: &Self) -> Option<Gain> {
        let (own, others) = (self.all.log_reply_rates()?, other.all.log_reply_rates()?);
        let (own_variances, other_variances) = (self.all.variances(), other.all.variances());
        let gains = [0, 1].map(|which| Gain {
            log: others[which] - own[which],
            error: (own_variances[which] + other_variances[which]).sqrt().max(ERROR_MIN),
        });
        gains.into_iter().min_by(|one, two| one.error.total_cmp(&two.error))
    }

    /// Returns the time between two answers, nanoseconds.
    pub(super) fn answer_ns(&self) -> f64 {
        self.spent_ns / self.all.answered.max(1.0)
    }

    /// Returns the mean time of an answer, nanoseconds; `None` if there was none.
    pub(super) fn mean_ns(&self) -> Option<f64> {
        self.all.mean_ns()
    }

    /// Returns the logarithm of the rate; `None` if there was no reply.
    pub(super) fn log_rate(&self) -> Option<f64> {
        self.all.log_rates().map(|[mean, _]| mean)
    }

    /// Returns by how much the rate of a higher limit is higher, by either mean; `None` if there
    /// was no reply under one of the limits. No larger share of the replies comes in time under a
    /// higher limit, so that what looks like it is chance.
    pub(super) fn gains_of(&self, higher: &Self) -> Option<[Gain; 2]> {
        let (own, others) = (self.all.log_rates()?, higher.all.log_rates()?);
        let chance = (higher.all.in_time_share() / self.all.in_time_share()).ln().max(0.0);
        Some([0, 1].map(|which| Gain {
            log: others[which] - own[which] - chance,
            error: (self.variance(which) + higher.variance(which)).sqrt().max(ERROR_MIN),
        }))
    }
}

/// A gain: the logarithm of the ratio of two rates, and its standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gain {
    pub log: f64,
    pub error: f64,
}

impl Gain {
    /// Returns whether it is more than `least`, by so many standard errors.
    pub(super) fn is_above(&self, least: f64, certain: f64) -> bool {
        self.log - certain * self.error > least
    }

    /// Returns whether it is less than `least`, by so many standard errors.
    pub(super) fn is_below(&self, least: f64, certain: f64) -> bool {
        self.log + certain * self.error < least
    }
}
