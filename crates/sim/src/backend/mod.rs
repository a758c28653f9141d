//! A server behind a proxy, and clients that send it more than it can do; between them the
//! admission itself, [`weir_accept::upstream`].
//!
//! The server's random numbers are apart from the clients': the request that begins n-th takes as
//! long under one policy as under another. What differs between two runs is therefore what the
//! policies do, and not luck.

mod config;
mod in_flight;
mod server;
mod syns;

pub use config::{Backend, Impairment, Retransmission, Service, Sharing};

use rand::{RngExt as _, SeedableRng};
use rand_distr::{Distribution as _, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_accept::upstream::{Admission, Arrived, Asked, Class, Granted, Outcome};

use crate::time::SECOND_NS;
use in_flight::InFlight;
use server::{Job, Request, Server};
use syns::{Syn, Syns};

/// A second of a run.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Requests answered by the server with what was asked for, before their client left.
    pub answered: u64,
    /// Of these, those of the high class.
    pub answered_high: u64,
    /// Requests refused by the admission.
    pub refused: u64,
    /// SYNs dropped.
    pub dropped: u64,
    /// SYNs dropped while a place was free, or none waited for one; among the others. Where those
    /// that come again pass by a limit of their own, they are not counted here.
    pub dropped_idle: u64,
    /// Requests refused by the server itself.
    pub server_refused: u64,
    /// Requests answered after their client had left.
    pub departed: u64,
    /// Response times of those answered, wait for a place included, microseconds.
    pub responses_us: Vec<u32>,
    /// Limit at its end.
    pub limit: usize,
}

struct Run<'a> {
    backend: &'a Backend,
    arrivals: Xoshiro256PlusPlus,
    admission: Admission<Request>,
    server: Server<'a>,
    in_flight: InFlight,
    syns: Syns,
    /// Number of requests so far.
    requests: u64,
    seconds: Vec<Second>,
}

/// Runs it; returns what happened in each second.
#[must_use]
pub fn run(backend: &Backend) -> Vec<Second> {
    let mut run = Run {
        backend,
        arrivals: Xoshiro256PlusPlus::seed_from_u64(backend.seed),
        admission: Admission::new(&backend.admission),
        server: Server::new(backend),
        in_flight: InFlight::new(backend.patience_ns),
        syns: Syns::new(backend),
        requests: 0,
        seconds: vec![Second::default(); backend.duration_ns.div_ceil(SECOND_NS) as usize],
    };
    let mut arrival_ns = 0;
    loop {
        let end_ns = run.server.next_end_ns();
        let due_ns = run.admission.due_ns().map_or(u64::MAX, |due_ns| due_ns + 1);
        let leave_ns = run.in_flight.due_ns();
        let again_ns = run.syns.next_again_ns();
        let now_ns = arrival_ns.min(end_ns).min(due_ns).min(leave_ns).min(again_ns);
        if now_ns >= backend.duration_ns {
            return run.seconds;
        }
        if now_ns == end_ns {
            run.end(now_ns);
        } else if now_ns == arrival_ns {
            arrival_ns += run.arrive(now_ns);
        } else if now_ns == again_ns {
            run.arrive_again(now_ns);
        } else if now_ns == leave_ns {
            run.in_flight.poll(now_ns, &mut run.admission);
        }
        run.hand_out(now_ns);
        if backend.sheds {
            run.syns.limit(now_ns, &run.admission.load());
        }
    }
}

impl Run<'_> {
    fn second(&mut self, now_ns: u64) -> &mut Second {
        &mut self.seconds[(now_ns / SECOND_NS) as usize]
    }

    /// A new client's SYN arrives. Returns the time until the next one does.
    fn arrive(&mut self, now_ns: u64) -> u64 {
        self.arrive_by(now_ns, Syn::first(now_ns));
        let gap: f64 = Exp1.sample(&mut self.arrivals);
        ((gap * 1e9 / self.backend.rate_at(now_ns)) as u64).max(1)
    }

    /// A SYN that was dropped arrives again, if its client is still there.
    fn arrive_again(&mut self, now_ns: u64) {
        if let Some(syn) = self.syns.next_again(self.backend.patience_ns) {
            self.arrive_by(now_ns, syn);
        }
    }

    /// A SYN arrives, and its request with it if it passes.
    fn arrive_by(&mut self, now_ns: u64, syn: Syn) {
        if self.syns.admits(syn) {
            return self.ask(now_ns, syn.first_ns);
        }
        let (in_flight, limit) = (self.admission.in_flight(), self.admission.limit());
        let is_idle = in_flight < limit || self.admission.waiting() == 0;
        let is_idle = is_idle && !self.syns.is_behind(syn);
        let second = self.second(now_ns);
        second.dropped += 1;
        second.dropped_idle += u64::from(is_idle);
    }

    /// A request arrives, of a client that has been there since a time.
    fn ask(&mut self, now_ns: u64, arrived_ns: u64) {
        let is_high = self.arrivals.random::<f64>() < self.backend.high_share;
        let class = if is_high { Class::High } else { Class::Normal };
        let hung_share = self.backend.hung_share;
        let is_hung = hung_share > 0.0 && self.arrivals.random::<f64>() < hung_share;
        let number = self.requests;
        self.requests += 1;
        let request = Request { arrived_ns, is_high, is_hung, number };
        let asked = Asked { class, user: self.arrivals.random() };
        match self.admission.arrive(now_ns, asked, request) {
            Arrived::Granted => self.send(now_ns, request),
            Arrived::Waits(_) => {}
            Arrived::Refused(_) => self.refuse(now_ns),
        }
    }

    fn refuse(&mut self, now_ns: u64) {
        self.second(now_ns).refused += 1;
        if self.backend.refusal_ns > 0 {
            self.server.interrupt(now_ns, self.backend.refusal_ns);
        }
    }

    /// A request leaves the server.
    fn end(&mut self, now_ns: u64) {
        let Some(Job { request, sent_ns, mut outcome }) = self.server.end(now_ns) else { return };
        // One that was given up has no place any more.
        let sent = self.in_flight.remove(request.number, &mut self.admission);
        let Some(sent) = sent else { return };
        if outcome == Outcome::Answered && sent.departure.is_some() {
            outcome = Outcome::Departed;
        }
        self.admission.complete(now_ns, now_ns - sent_ns, outcome);
        let limit = self.admission.limit();
        let second = self.second(now_ns);
        second.limit = limit;
        match outcome {
            Outcome::Answered => {
                second.answered += 1;
                second.answered_high += u64::from(request.is_high);
                second.responses_us.push(((now_ns - request.arrived_ns) / 1000) as u32);
            }
            Outcome::Departed => second.departed += 1,
            Outcome::Refused | Outcome::Failed | Outcome::Abandoned => second.server_refused += 1,
        }
    }

    /// Sends a request that has a place.
    fn send(&mut self, now_ns: u64, request: Request) {
        self.in_flight.add(now_ns, request);
        self.server.send(now_ns, request);
    }

    /// Sends the requests that have a place now, refuses others, and gives up those whose places
    /// are kept no longer.
    fn hand_out(&mut self, now_ns: u64) {
        while let Some(granted) = self.admission.next(now_ns) {
            match granted {
                Granted::Place(request) => self.send(now_ns, request),
                Granted::Refusal(..) => self.refuse(now_ns),
                Granted::Recall(request) => {
                    self.in_flight.give_up(now_ns, request.number, &mut self.admission);
                }
            }
        }
    }
}
