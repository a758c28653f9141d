//! From experiments to the steps of a run: which points, in which order, how long each takes.
//! Pure: chance comes from a seed. Nothing here runs a step.

use rand::RngExt;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::experiment::{Axis, Experiment, Kind, LoadSpec, RateUnit, ServerSpec, Sweep};
use crate::record::Key;

/// How often a capacity is measured; its median counts.
pub const CAPACITY_ROUNDS: u32 = 3;

/// Connections of the closed loop that measures a capacity.
pub const CAPACITY_CONNECTIONS: u32 = 64;

/// How long a capacity is measured, seconds, after a warm-up of [`CAPACITY_WARMUP_S`].
pub const CAPACITY_S: f64 = 1.2;

/// The warm-up of a capacity, seconds.
pub const CAPACITY_WARMUP_S: f64 = 0.4;

/// What starting and stopping a server and a load takes beside the load itself, seconds: only the
/// estimate of the time left needs it, and corrects it as the run goes on.
const AROUND_S: f64 = 0.7;

/// The shortest that a point is measured, seconds.
const DURATION_S_MIN: f64 = 0.5;

/// What a step measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// What the server can do, in a closed loop.
    Capacity,
    /// A point.
    Point,
    /// System calls of a server that does not count them itself.
    Calls,
}

/// A step of a run.
#[derive(Clone, Debug)]
pub struct Step {
    /// What it measures.
    pub task: Task,
    /// Which point.
    pub key: Key,
    /// The index of its experiment among those of the run.
    pub experiment: usize,
    /// The index of its sweep.
    pub sweep: usize,
    /// The index of its server.
    pub server: usize,
    /// How long is measured, seconds.
    pub duration_s: f64,
    /// How long it should take in all, seconds.
    pub estimate_s: f64,
}

/// An experiment with its name.
pub type Named = (String, Experiment);

/// The steps of a run, in order: for each experiment the capacities, then the points round by
/// round, each round in an order of its own, so that what drifts meets all alike.
pub fn steps(experiments: &[Named], scale: f64, seed: u64) -> Vec<Step> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..experiments.len())
        .flat_map(|index| of_one(experiments, index, scale, &mut chance))
        .collect()
}

fn of_one(
    experiments: &[Named],
    index: usize,
    scale: f64,
    chance: &mut Xoshiro256PlusPlus,
) -> Vec<Step> {
    let (_, experiment) = &experiments[index];
    let maker = Maker { name: &experiments[index].0, index, experiment, scale };
    let mut steps = Vec::new();
    for round in 0..CAPACITY_ROUNDS {
        let capacities = maker.each(|sweep| maker.capacities(sweep, round));
        steps.extend(shuffled(capacities, chance));
    }
    let rounds = experiment.sweep.iter().map(|sweep| scaled(sweep, scale).0).max().unwrap_or(0);
    for round in 0..rounds {
        steps.extend(shuffled(maker.each(|sweep| maker.points(sweep, round)), chance));
    }
    steps.extend(shuffled(maker.each(|sweep| maker.calls(sweep)), chance));
    steps
}

fn shuffled(mut steps: Vec<Step>, chance: &mut Xoshiro256PlusPlus) -> Vec<Step> {
    steps.shuffle(chance);
    steps
}

/// Repetitions and seconds a point, at a scale: first fewer or more repetitions, then, where less
/// than one repetition would be left over, shorter ones.
pub fn scaled(sweep: &Sweep, scale: f64) -> (u32, f64) {
    let wanted = f64::from(sweep.repetitions) * scale;
    let repetitions = wanted.round().clamp(1.0, 1000.0);
    let longer = if scale < 1.0 { (wanted / repetitions).min(1.0) } else { 1.0 };
    (repetitions as u32, (sweep.load.duration_s * longer).max(DURATION_S_MIN))
}

/// A seed for a step's load: the same for all servers at a place, so that they meet the same
/// arrivals, and another in each round.
pub fn load_seed(seed: u64, key: &Key) -> u64 {
    let mixed = seed ^ key.x.to_bits() ^ u64::from(key.round).rotate_left(32);
    // A number that JSON and every option parser can hold.
    Xoshiro256PlusPlus::seed_from_u64(mixed).random::<u64>() >> 16
}

struct Maker<'a> {
    name: &'a str,
    index: usize,
    experiment: &'a Experiment,
    scale: f64,
}

impl Maker<'_> {
    fn each(&self, of: impl Fn(usize) -> Vec<Step>) -> Vec<Step> {
        (0..self.experiment.sweep.len()).flat_map(of).collect()
    }

    fn capacities(&self, sweep: usize, round: u32) -> Vec<Step> {
        let spec = &self.experiment.sweep[sweep];
        let servers: Vec<usize> = match spec.rate_unit {
            RateUnit::PerSecond => Vec::new(),
            RateUnit::Own => self.experiment.servers_of(spec, &[]),
            RateUnit::Reference => {
                let wanted = spec.reference.as_deref();
                (0..self.experiment.server.len())
                    .filter(|&at| Some(self.experiment.server[at].id.as_str()) == wanted)
                    .collect()
            }
        };
        let made = servers.into_iter().map(|server| {
            let around = AROUND_S + CAPACITY_WARMUP_S;
            self.step(Task::Capacity, sweep, server, (0.0, round), (CAPACITY_S, around))
        });
        made.collect()
    }

    fn points(&self, sweep: usize, round: u32) -> Vec<Step> {
        let spec = &self.experiment.sweep[sweep];
        let (repetitions, duration_s) = scaled(spec, self.scale);
        if round >= repetitions {
            return Vec::new();
        }
        self.grid(sweep, |server, x| {
            let around = AROUND_S + spec.load.warmup_s + drain_s(spec, x);
            self.step(Task::Point, sweep, server, (x, round), (duration_s, around))
        })
    }

    fn calls(&self, sweep: usize) -> Vec<Step> {
        let spec = &self.experiment.sweep[sweep];
        if !spec.calls {
            return Vec::new();
        }
        let foreign = |server: usize| self.experiment.server[server].kind != Kind::Weir;
        let (_, duration_s) = scaled(spec, self.scale);
        let around = AROUND_S + spec.load.warmup_s + spec.load.timeout_s;
        let mut steps = self.grid(sweep, |server, x| {
            self.step(Task::Calls, sweep, server, (x, 0), (duration_s, around))
        });
        steps.retain(|step| foreign(step.server));
        steps
    }

    fn grid(&self, sweep: usize, of: impl Fn(usize, f64) -> Step) -> Vec<Step> {
        let spec = &self.experiment.sweep[sweep];
        let servers = self.experiment.servers_of(spec, &[]);
        let places = servers.iter().flat_map(|&at| spec.values.iter().map(move |&x| (at, x)));
        places.map(|(server, x)| of(server, x)).collect()
    }

    fn step(
        &self,
        task: Task,
        sweep: usize,
        server: usize,
        (x, round): (f64, u32),
        (duration_s, around_s): (f64, f64),
    ) -> Step {
        let key = Key {
            experiment: self.name.to_owned(),
            sweep: self.experiment.sweep[sweep].id.clone(),
            server: self.experiment.server[server].id.clone(),
            x,
            round,
        };
        let estimate_s = duration_s + around_s;
        Step { task, key, experiment: self.index, sweep, server, duration_s, estimate_s }
    }
}

/// How long the last requests of a point keep the client, seconds: their timeout, when the server
/// is asked for more than it can do.
fn drain_s(sweep: &Sweep, x: f64) -> f64 {
    let over = sweep.x != Axis::Rate || sweep.rate_unit == RateUnit::PerSecond || x > 1.0;
    if over { sweep.load.timeout_s } else { 0.0 }
}

/// The rate of a step, sessions a second, once the capacity that its sweep's rates are multiples of
/// is known; none for a closed loop.
pub fn rate(sweep: &Sweep, x: f64, capacity: f64) -> Option<f64> {
    let base = if sweep.rate_unit == RateUnit::PerSecond { 1.0 } else { capacity };
    let of = if sweep.x == Axis::Rate { Some(x) } else { sweep.rate };
    of.map(|multiple| multiple * base)
}

/// The load of a step: how many idle and persistent connections, with what varies put in.
pub fn connections(sweep: &Sweep, x: f64) -> (u32, Option<u32>) {
    let LoadSpec { idle, conns, .. } = sweep.load;
    match sweep.x {
        Axis::Rate => (idle, conns),
        Axis::Idle => (x as u32, conns),
        Axis::Conns => (idle, Some(x as u32)),
    }
}

/// The processor time a request burns in a server, or in what it is a proxy of, microseconds.
pub fn burn_us(server: &ServerSpec, sweep: &Sweep) -> u32 {
    match server.kind {
        Kind::Weir => server.burn_us.unwrap_or(sweep.burn_us),
        _ => server.proxy_burn_us.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        title = "t"
        question = "q?"
        [[server]]
        id = "a"
        label = "A"
        kind = "weir"
        [[server]]
        id = "b"
        label = "B"
        kind = "nginx"
        [[sweep]]
        id = "load"
        x = "rate"
        values = [0.5, 1.0, 2.0]
        rate-unit = "own"
        calls = true
        repetitions = 4
    "#;

    fn named() -> Vec<Named> {
        vec![("e".to_owned(), toml::from_str(TEXT).unwrap())]
    }

    fn count(steps: &[Step], task: Task) -> usize {
        steps.iter().filter(|step| step.task == task).count()
    }

    #[test]
    fn every_server_meets_every_value_in_every_round() {
        let steps = steps(&named(), 1.0, 1);
        assert_eq!(count(&steps, Task::Capacity), 6);
        assert_eq!(count(&steps, Task::Point), 24);
        let points: Vec<&Step> = steps.iter().filter(|step| step.task == Task::Point).collect();
        for (round, chunk) in points.chunks(6).enumerate() {
            let mut met: Vec<(String, u64)> =
                chunk.iter().map(|step| (step.key.server.clone(), step.key.x.to_bits())).collect();
            met.sort();
            met.dedup();
            assert_eq!(met.len(), 6);
            assert!(chunk.iter().all(|step| step.key.round as usize == round));
        }
    }

    #[test]
    fn capacities_come_first_and_calls_of_others_last() {
        let steps = steps(&named(), 1.0, 1);
        assert!(steps[..6].iter().all(|step| step.task == Task::Capacity));
        assert_eq!(count(&steps, Task::Calls), 3);
        assert!(steps[30..].iter().all(|step| step.task == Task::Calls && step.key.server == "b"));
    }

    #[test]
    fn the_seed_decides_the_order_and_rounds_differ() {
        let order = |seed| -> Vec<Key> {
            steps(&named(), 1.0, seed).into_iter().map(|step| step.key).collect()
        };
        assert_eq!(order(3), order(3));
        assert_ne!(order(3), order(4));
        let keys = order(3);
        let round = |at: usize| -> Vec<(String, u64)> {
            keys[at..at + 6].iter().map(|key| (key.server.clone(), key.x.to_bits())).collect()
        };
        assert!((1..4).any(|at| round(6 + 6 * at) != round(6)));
    }

    #[test]
    fn a_scale_changes_repetitions_before_durations() {
        let sweep = &named()[0].1.sweep[0];
        assert_eq!(scaled(sweep, 1.0), (4, 3.0));
        assert_eq!(scaled(sweep, 3.0), (12, 3.0));
        assert_eq!(scaled(sweep, 0.5), (2, 3.0));
        assert_eq!(scaled(sweep, 0.125), (1, 1.5));
        assert_eq!(scaled(sweep, 0.001), (1, 0.5));
    }

    #[test]
    fn servers_of_a_round_meet_the_same_arrivals() {
        let key = |server: &str, round| Key {
            experiment: "e".to_owned(),
            sweep: "s".to_owned(),
            server: server.to_owned(),
            x: 2.0,
            round,
        };
        assert_eq!(load_seed(1, &key("a", 0)), load_seed(1, &key("b", 0)));
        assert_ne!(load_seed(1, &key("a", 0)), load_seed(1, &key("a", 1)));
    }
}
