//! A server behind a proxy: workers that serve one request at a time, clients that wait for a
//! while, and between them the admission itself, [`weir_accept::upstream`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::SeedableRng;
use rand_distr::{Distribution as _, Exp, LogNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_accept::upstream::{Admission, Arrived, Granted, Outcome, UpstreamConfig};

/// Law of the time that a worker takes for a request. The mean is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Always the same.
    Fixed,
    /// Exponential.
    Exponential,
    /// Log-normal with a standard deviation of three times the mean.
    HeavyTailed,
}

/// A backend and its clients.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Number of workers.
    pub workers: usize,
    /// Law of the service time.
    pub service: Service,
    /// Mean service time, nanoseconds.
    pub service_ns: f64,
    /// Requests per second, Poisson.
    pub rate: f64,
    /// A time in which every service takes longer: from, to, nanoseconds, and how many times.
    pub slow: Option<(u64, u64, f64)>,
    /// Admission to it.
    pub admission: UpstreamConfig,
    /// Duration, nanoseconds.
    pub duration_ns: u64,
    /// Seed.
    pub seed: u64,
}

/// A second of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    /// Requests answered.
    pub answered: u64,
    /// Requests refused.
    pub refused: u64,
    /// Sum of the waits for a place, nanoseconds.
    pub waited_ns: u64,
    /// Longest response of those answered, wait included, nanoseconds.
    pub response_ns_max: u64,
    /// Limit at its end.
    pub limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    /// A worker has ended a request that arrived and was sent then.
    End {
        arrived_ns: u64,
        sent_ns: u64,
    },
    /// The oldest that waits may be stale.
    Due,
}

struct Run<'a> {
    backend: &'a Backend,
    random: Xoshiro256PlusPlus,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    serial: u64,
    admission: Admission<u64>,
    /// Requests at the backend without a worker: when each arrived and was sent.
    queue: VecDeque<(u64, u64)>,
    busy: usize,
    seconds: Vec<Second>,
}

/// Runs it; returns what happened in each second.
#[must_use]
pub fn run(backend: &Backend) -> Vec<Second> {
    let mut run = Run {
        backend,
        random: Xoshiro256PlusPlus::seed_from_u64(backend.seed),
        events: BinaryHeap::new(),
        serial: 0,
        admission: Admission::new(&backend.admission),
        queue: VecDeque::new(),
        busy: 0,
        seconds: Vec::new(),
    };
    run.push(0, Event::Arrival);
    while let Some(Reverse((now_ns, _, event))) = run.events.pop() {
        if now_ns >= backend.duration_ns {
            break;
        }
        run.handle(now_ns, event);
    }
    run.seconds
}

impl Run<'_> {
    fn push(&mut self, at_ns: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at_ns, self.serial, event)));
    }

    fn second(&mut self, now_ns: u64) -> &mut Second {
        let at = (now_ns / 1_000_000_000) as usize;
        if at >= self.seconds.len() {
            self.seconds.resize(at + 1, Second::default());
        }
        &mut self.seconds[at]
    }

    fn handle(&mut self, now_ns: u64, event: Event) {
        match event {
            Event::Arrival => {
                let gap_ns = self.draw_exponential() * 1e9 / self.backend.rate;
                self.push(now_ns + gap_ns as u64, Event::Arrival);
                match self.admission.arrive(now_ns, now_ns) {
                    Arrived::Granted => self.send(now_ns, now_ns),
                    Arrived::Waits(_) => {
                        if self.admission.waiting() == 1 {
                            self.push_due();
                        }
                    }
                }
            }
            Event::End { arrived_ns, sent_ns } => {
                self.busy -= 1;
                if let Some((arrived_ns, sent_ns)) = self.queue.pop_front() {
                    self.work(now_ns, arrived_ns, sent_ns);
                }
                self.admission.complete(now_ns, now_ns - sent_ns, Outcome::Answered);
                let limit = self.admission.limit();
                let second = self.second(now_ns);
                second.answered += 1;
                second.waited_ns += sent_ns - arrived_ns;
                second.response_ns_max = second.response_ns_max.max(now_ns - arrived_ns);
                second.limit = limit;
            }
            Event::Due => self.push_due(),
        }
        while let Some(granted) = self.admission.next(now_ns) {
            match granted {
                Granted::Place(arrived_ns) => self.send(now_ns, arrived_ns),
                Granted::Refusal(..) => self.second(now_ns).refused += 1,
            }
        }
    }

    fn push_due(&mut self) {
        if let Some(due_ns) = self.admission.due_ns() {
            self.push(due_ns + 1, Event::Due);
        }
    }

    fn send(&mut self, now_ns: u64, arrived_ns: u64) {
        if self.busy < self.backend.workers {
            self.work(now_ns, arrived_ns, now_ns);
        } else {
            self.queue.push_back((arrived_ns, now_ns));
        }
    }

    fn work(&mut self, now_ns: u64, arrived_ns: u64, sent_ns: u64) {
        self.busy += 1;
        let drawn = match self.backend.service {
            Service::Fixed => 1.0,
            Service::Exponential => self.draw_exponential(),
            Service::HeavyTailed => {
                LogNormal::from_mean_cv(1.0, 3.0).map_or(1.0, |law| law.sample(&mut self.random))
            }
        };
        let slow = self.backend.slow.filter(|(from, to, _)| (*from..*to).contains(&now_ns));
        let service_ns = self.backend.service_ns * drawn * slow.map_or(1.0, |(_, _, times)| times);
        self.push(now_ns + service_ns.max(1.0) as u64, Event::End { arrived_ns, sent_ns });
    }

    fn draw_exponential(&mut self) -> f64 {
        Exp::new(1.0).map_or(1.0, |law| law.sample(&mut self.random))
    }
}

#[cfg(test)]
mod tests {
    use weir_accept::Limit;

    use super::*;

    fn backend(workers: usize, service: Service, overload: f64) -> Backend {
        let service_ns = 20e6;
        Backend {
            workers,
            service,
            service_ns,
            rate: overload * workers as f64 * 1e9 / service_ns,
            slow: None,
            admission: UpstreamConfig::default(),
            duration_ns: 60_000_000_000,
            seed: 7,
        }
    }

    /// Answers in the seconds given, as a share of what the workers can do.
    fn share(seconds: &[Second], backend: &Backend) -> f64 {
        let answered: u64 = seconds.iter().map(|second| second.answered).sum();
        let each = backend.workers as f64 * 1e9 / backend.service_ns;
        answered as f64 / (each * seconds.len() as f64)
    }

    const LAWS: [Service; 3] = [Service::Fixed, Service::Exponential, Service::HeavyTailed];

    #[test]
    fn auto_finds_what_the_best_fixed_limit_gives() {
        for workers in [2, 8, 64] {
            for service in LAWS {
                for overload in [2.0, 10.0] {
                    let auto = backend(workers, service, overload);
                    let limit = Limit::Count(2 * workers as u64);
                    let admission = UpstreamConfig { limit, ..auto.admission };
                    let fixed = Backend { admission, ..auto.clone() };
                    let (found, best) = (run(&auto), run(&fixed));
                    let at = |seconds: &[Second]| share(&seconds[3..], &auto);
                    let (found_share, best_share) = (at(&found), at(&best));
                    let limit = found.last().map_or(0, |second| second.limit);
                    assert!(found_share >= 0.97 * best_share, "{workers} {service:?} {overload}");
                    // A few requests tell little of a law with a tail, and too many in flight
                    // cost no answer: the limit comes down slowly.
                    assert!(limit <= 16.max(2 * workers), "{workers} {service:?}: {limit}");
                }
            }
        }
    }

    #[test]
    fn auto_stays_where_it_is_for_ten_minutes() {
        for service in LAWS {
            let duration_ns = 600_000_000_000;
            let backend = Backend { duration_ns, ..backend(8, service, 2.0) };
            let seconds = run(&backend);
            let whole = share(&seconds[3..], &backend);
            assert!(whole >= 0.97, "{service:?}: {whole}");
            for minute in seconds[3..].chunks(60) {
                // A minute of the heavy-tailed law varies by two hundredths of itself.
                let share = share(minute, &backend);
                assert!(share >= 0.92, "{service:?}: {share}");
            }
        }
    }

    #[test]
    fn a_backend_that_becomes_slower_keeps_its_limit() {
        let slow = Some((20_000_000_000, 30_000_000_000, 3.0));
        let backend = Backend { slow, ..backend(8, Service::Exponential, 2.0) };
        let seconds = run(&backend);
        let during = share(&seconds[21..29], &backend);
        let after = share(&seconds[32..], &backend);
        assert!(during > 0.3 && after > 0.95, "{during} {after}");
    }

    #[test]
    fn nothing_is_refused_below_the_peak() {
        for service in LAWS {
            let seconds = run(&backend(8, service, 0.5));
            let refused: u64 = seconds.iter().map(|second| second.refused).sum();
            let answered: u64 = seconds.iter().map(|second| second.answered).sum();
            assert!(refused * 1000 <= answered, "{service:?}: {refused} of {answered}");
        }
    }
}
