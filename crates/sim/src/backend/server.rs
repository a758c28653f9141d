//! The server of a backend: requests in, and when each ends.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_accept::upstream::Outcome;

use super::config::{Backend, Impairment, Sharing};

/// Time after which a request that the server refuses is answered, nanoseconds.
const REFUSAL_NS: u64 = 200_000;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    /// Time at which it came to the admission.
    pub arrived_ns: u64,
    pub is_high: bool,
    /// True if the server never replies to it.
    pub is_hung: bool,
    /// Number of the request among all.
    pub number: u64,
}

/// A request at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    pub request: Request,
    pub sent_ns: u64,
    pub outcome: Outcome,
}

/// The server. Where requests share the workers, each has a mark on the axis of the work done for
/// every one of them, and ends when that work has reached it.
pub(super) struct Server<'a> {
    backend: &'a Backend,
    random: Xoshiro256PlusPlus,
    /// Requests that are served, by their end: a time, or a mark of work done, nanoseconds.
    served: BinaryHeap<Reverse<(u64, Job)>>,
    waiting: VecDeque<Job>,
    refused: VecDeque<Job>,
    /// Work done for each request that is served, nanoseconds, and until when it was counted.
    done_ns: f64,
    counted_ns: u64,
}

impl<'a> Server<'a> {
    pub(super) fn new(backend: &'a Backend) -> Self {
        Self {
            backend,
            random: Xoshiro256PlusPlus::seed_from_u64(!backend.seed),
            served: BinaryHeap::new(),
            waiting: VecDeque::new(),
            refused: VecDeque::new(),
            done_ns: 0.0,
            counted_ns: 0,
        }
    }

    /// Takes a request.
    pub(super) fn send(&mut self, now_ns: u64, request: Request) {
        if request.is_hung {
            return;
        }
        let mut job = Job { request, sent_ns: now_ns, outcome: Outcome::Answered };
        if self.served.len() + self.waiting.len() >= self.backend.refuses_beyond {
            job.outcome = Outcome::Refused;
            self.refused.push_back(job);
        } else {
            self.waiting.push_back(job);
            self.begin(now_ns);
        }
    }

    /// Returns when the next request ends.
    pub(super) fn next_end_ns(&self) -> u64 {
        let refused = self.refused.front().map_or(u64::MAX, |job| job.sent_ns + REFUSAL_NS);
        let served = self.served.peek().map_or(u64::MAX, |Reverse((end, _))| self.time_of(*end));
        refused.min(served)
    }

    /// Removes the request that ends now.
    pub(super) fn end(&mut self, now_ns: u64) -> Option<Job> {
        if self.refused.front().is_some_and(|job| job.sent_ns + REFUSAL_NS <= now_ns) {
            return self.refused.pop_front();
        }
        self.count(now_ns);
        let Reverse((_, job)) = self.served.pop()?;
        self.begin(now_ns);
        Some(job)
    }

    /// Begins to serve those that wait, as far as there are workers.
    fn begin(&mut self, now_ns: u64) {
        while self.has_worker(now_ns) {
            let Some(job) = self.waiting.pop_front() else { return };
            self.count(now_ns);
            let drawn = self.backend.service.draw(&mut self.random);
            let slowness = self.impairment(now_ns).map_or(1.0, |impairment| impairment.slowness);
            let work_ns = (self.backend.service_ns * drawn * slowness).max(1.0);
            let from_ns = match self.backend.sharing {
                Sharing::OneEach => now_ns as f64,
                Sharing::All { .. } => self.done_ns,
            };
            self.served.push(Reverse(((from_ns + work_ns) as u64, job)));
        }
    }

    fn impairment(&self, now_ns: u64) -> Option<Impairment> {
        let impairment = self.backend.impairment?;
        let (from_ns, to_ns) = impairment.during_ns;
        (from_ns..to_ns).contains(&now_ns).then_some(impairment)
    }

    fn has_worker(&self, now_ns: u64) -> bool {
        let lost = self.impairment(now_ns).map_or(0, |impairment| impairment.workers_lost);
        match self.backend.sharing {
            Sharing::OneEach => self.served.len() < self.backend.workers - lost,
            Sharing::All { .. } => true,
        }
    }

    /// Speed at which each of those that share the workers is served; 1 is that of a worker.
    fn speed(&self) -> f64 {
        let Sharing::All { loss_each } = self.backend.sharing else { return 1.0 };
        let (workers, served) = (self.backend.workers as f64, self.served.len().max(1) as f64);
        let efficiency = (1.0 - loss_each * (served - workers).max(0.0)).max(0.05);
        efficiency * (workers / served).min(1.0)
    }

    /// Counts the work done until now.
    fn count(&mut self, now_ns: u64) {
        self.done_ns += now_ns.saturating_sub(self.counted_ns) as f64 * self.speed();
        self.counted_ns = self.counted_ns.max(now_ns);
    }

    /// Has the processors do something else for a time.
    pub(super) fn interrupt(&mut self, now_ns: u64, for_ns: u64) {
        self.count(now_ns);
        self.counted_ns += for_ns;
    }

    /// Returns when an end is, given by its time or its mark.
    fn time_of(&self, end: u64) -> u64 {
        match self.backend.sharing {
            Sharing::OneEach => end,
            Sharing::All { .. } => {
                let left_ns = (end as f64 - self.done_ns).max(0.0);
                self.counted_ns + (left_ns / self.speed()).ceil() as u64
            }
        }
    }
}
