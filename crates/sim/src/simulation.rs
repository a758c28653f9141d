//! The world: the clock, all participants, and the dispatch of events to them.

use rand::RngExt;
use rand_distr::Exp1;
use rand_xoshiro::Xoshiro256PlusPlus;
use weir_accept::{Policy, Spare};

use crate::connections::{Conns, Token};
use crate::events::{Answer, Event, Events, Packet};
use crate::neighbour::Neighbour;
use crate::rng::{self, RequestRng};
use crate::scenario::{ArrivalPattern, Scenario};
use crate::server::Core;
use crate::statistics::{Drops, RequestLabels, RequestOutcome, Statistics};

pub(crate) struct Simulation<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) now_ns: u64,
    pub(crate) events: Events,
    pub(crate) conns: Conns,
    pub(crate) cores: Vec<Core>,
    pub(crate) statistics: Statistics,
    pub(crate) request_rng: RequestRng,
    /// Random number generator of the random filters.
    pub(crate) filter_rng: Xoshiro256PlusPlus,
    /// Number of sessions begun.
    pub(crate) sessions: u64,
    arrivals: Vec<Arrivals>,
}

/// Future sessions of a group.
struct Arrivals {
    rng: Xoshiro256PlusPlus,
    ratio: f64,
    at_ns: f64,
    until_ns: u64,
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        seed: u64,
        mut policy: impl FnMut() -> Box<dyn Policy>,
    ) -> Self {
        let arrivals = (1..).zip(&scenario.groups).map(|(number, group)| Arrivals {
            rng: rng::stream(seed, number),
            ratio: group.ratio,
            at_ns: group.begins_ns.0 as f64,
            until_ns: group.begins_ns.1,
        });
        let mut simulation = Self {
            scenario,
            now_ns: 0,
            events: Events::default(),
            conns: Conns::default(),
            cores: (0..scenario.cores).map(|_| Core::new(scenario, policy())).collect(),
            statistics: Statistics::new(scenario),
            request_rng: RequestRng::new(seed),
            filter_rng: rng::stream(seed, 0),
            sessions: 0,
            arrivals: arrivals.collect(),
        };
        (0..scenario.groups.len()).for_each(|group| simulation.plan_arrivals(group as u32));
        (0..scenario.cores).for_each(|core| simulation.advance(core));
        simulation
    }

    pub(crate) fn run(&mut self) {
        while let Some((at_ns, event)) = self.events.pop() {
            if at_ns >= self.scenario.duration_ns {
                break;
            }
            self.now_ns = at_ns;
            self.handle(event);
        }
    }

    pub(crate) fn into_statistics(mut self) -> Statistics {
        for core in &self.cores {
            let (lost, packets_ns) = (core.softirq.lost, core.softirq.spent_ns);
            self.statistics.drops.add(&Drops { lost, packets_ns, ..core.listener.counts });
        }
        self.statistics
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrivals(group) => self.arrive(group),
            Event::ToServer(token, packet) => {
                self.arrived(token);
                self.server_receives(token, packet);
                self.conns.tidy(token);
            }
            Event::ToClient(token, answer) => {
                self.arrived(token);
                self.client_receives(token, answer);
                self.conns.tidy(token);
            }
            Event::SynTimer(token) => self.retransmit_syn(token),
            Event::DataTimer(token) => self.retransmit_data(token),
            Event::ClientDeadline(token) => self.time_out(token),
            Event::Think(token) => self.send_next(token),
            Event::SynAckTimer(token) => self.retransmit_synack(token),
            Event::Deadline(token) => self.deadline(token),
            Event::StepEnd(core) => self.step_ends(core),
            Event::Wake(core, sleep) => self.wake_by_timer(core, sleep),
        }
    }

    fn arrive(&mut self, group: u32) {
        let at_once = match self.scenario.pattern {
            ArrivalPattern::Bursts(size) => size,
            ArrivalPattern::Poisson | ArrivalPattern::Constant => 1,
        };
        (0..at_once).for_each(|_| self.begin_session(group));
        self.plan_arrivals(group);
    }

    /// Schedules the next arrivals: at the time when the integral of the rate reaches them.
    fn plan_arrivals(&mut self, group: u32) {
        let arrivals = &mut self.arrivals[group as usize];
        let mut missing = match self.scenario.pattern {
            ArrivalPattern::Poisson => arrivals.rng.sample::<f64, _>(Exp1),
            ArrivalPattern::Constant => 1.0,
            ArrivalPattern::Bursts(size) => size.into(),
        };
        for (index, step) in self.scenario.load.iter().enumerate() {
            let until_ns =
                self.scenario.load.get(index + 1).map_or(f64::INFINITY, |next| next.from_ns as f64);
            let from_ns = arrivals.at_ns.max(step.from_ns as f64);
            let per_ns = step.rate * arrivals.ratio / 1e9;
            if from_ns >= until_ns || per_ns <= 0.0 {
                continue;
            }
            if from_ns + missing / per_ns < until_ns {
                arrivals.at_ns = from_ns + missing / per_ns;
                if (arrivals.at_ns as u64) < arrivals.until_ns {
                    self.events.push(arrivals.at_ns as u64, Event::Arrivals(group));
                }
                return;
            }
            missing -= (until_ns - from_ns) * per_ns;
            arrivals.at_ns = until_ns;
        }
    }

    /// Returns when work of the loop that starts now will be done, packets aside.
    pub(crate) fn done_ns(&self, work_ns: u64) -> u64 {
        let stretch = |neighbour: &Neighbour| neighbour.stretch(self.now_ns, work_ns);
        self.now_ns + self.scenario.neighbour.as_ref().map_or(work_ns, stretch)
    }

    /// Records a refusal on account of load, and whether the loop had spare time.
    pub(crate) fn record_refusal(&mut self, core: u32, token: Token) {
        self.record_refusal_of(core, token, false);
    }

    /// Records a SYN dropped on account of load, and whether the loop had spare time that no
    /// connection in its queue or on its way there will take.
    pub(crate) fn record_drop(&mut self, core: u32, token: Token) {
        let Core { listener, deferred, .. } = &self.cores[core as usize];
        let coming = f64::from(listener.queued() + listener.syn_queue) + deferred.len() as f64;
        let coming_ns = coming * self.scenario.served_ns();
        // The policy knows the cost of a connection only as it has learnt it, and lets in evenly
        // who comes from far away.
        let takes_moment = coming_ns >= self.scenario.policy.target_ns as f64 / 4.0;
        self.record_refusal_of(core, token, takes_moment);
    }

    /// Records a refusal; `takes_moment`: a moment that the loop has to spare is taken by others.
    fn record_refusal_of(&mut self, core: u32, token: Token, takes_moment: bool) {
        let client = self.conns.get(token).map(|conn| conn.client);
        if let Some(client) = client.filter(|client| client.kind.asks()) {
            self.statistics.record_refusal(core, client.began_ns);
        }
        let sleeps = &self.cores[core as usize].sleeps;
        let had_time = match sleeps.spare(self.now_ns, self.scenario.policy.target_ns) {
            Spare::Much => true,
            Spare::Moment => !takes_moment,
            Spare::None => false,
        };
        self.statistics.loops.refused_idle += u64::from(had_time);
    }

    /// Sends a packet to the server.
    pub(crate) fn send(&mut self, token: Token, packet: Packet) {
        if let Some(conn) = self.conns.get(token) {
            conn.packets += 1;
            let at_ns = self.now_ns + conn.client.one_way_ns;
            self.events.push(at_ns, Event::ToServer(token, packet));
        }
    }

    /// Sends a packet to the client.
    pub(crate) fn answer(&mut self, token: Token, answer: Answer) {
        if let Some(conn) = self.conns.get(token) {
            conn.packets += 1;
            let at_ns = self.now_ns + conn.client.one_way_ns;
            self.events.push(at_ns, Event::ToClient(token, answer));
        }
    }

    fn arrived(&mut self, token: Token) {
        if let Some(conn) = self.conns.get(token) {
            conn.packets -= 1;
        }
    }

    pub(crate) fn record(&mut self, token: Token, outcome: RequestOutcome) {
        if let Some(conn) = self.conns.get(token) {
            let labels = RequestLabels {
                kind: conn.client.kind,
                class: conn.client.class,
                core: conn.socket.core,
            };
            self.statistics.record(self.now_ns, labels, outcome);
        }
    }
}
