//! From experiments to the steps of a run: which points, in which order, how long each takes.
//! Pure: chance comes from a seed. Nothing here runs a step.

use rand::RngExt;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::experiment::{
    Axis, BesideKind, Experiment, Kind, LoadSpec, RateUnit, ServerSpec, Sweep,
};
use crate::record::Key;

/// How often a capacity is measured; its median counts.
pub const CAPACITY_ROUNDS: u32 = 3;

/// How long a capacity is measured, seconds, after a warm-up of [`CAPACITY_WARMUP_S`].
pub const CAPACITY_S: f64 = 1.2;

/// The warm-up of a capacity, seconds.
pub const CAPACITY_WARMUP_S: f64 = 0.4;

/// What starting and stopping a server and a load takes beside the load itself, seconds: only the
/// estimate of the time left needs it, and corrects it as the run goes on.
const AROUND_S: f64 = 0.7;

/// The shortest that a point is measured, seconds.
const DURATION_S_MIN: f64 = 0.5;

/// The shortest that a probe measures, seconds.
const PROBE_S_MIN: f64 = 0.02;

/// What a probe takes beside what it measures, seconds, without idle members.
const PROBE_AROUND_S: f64 = 0.15;

/// What it takes for each of them to be connected, and to become a member of each repetition.
const PROBE_IDLE_S: f64 = 0.000_06;

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
    let shortest = if sweep.probe.is_some() { PROBE_S_MIN } else { DURATION_S_MIN };
    (repetitions as u32, (sweep.duration_s() * longer).max(shortest))
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
            let around = match spec.probe {
                Some(_) => PROBE_AROUND_S + PROBE_IDLE_S * x,
                None => AROUND_S + spec.load.warmup_s + drain_s(spec, x),
            };
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
/// is asked for more than it can do; and those beside the load hold on to theirs.
fn drain_s(sweep: &Sweep, x: f64) -> f64 {
    let over = sweep.x != Axis::Rate || sweep.rate_unit == RateUnit::PerSecond || x > 1.0;
    let load_s = if over { sweep.load.timeout_s } else { 0.0 };
    beside(sweep, x, Some(1.0)).map_or(load_s, |beside| load_s.max(beside.hold_s))
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
        Axis::Rate | Axis::Beside => (idle, conns),
        Axis::Idle => (x as u32, conns),
        Axis::Conns => (idle, Some(x as u32)),
    }
}

/// A spike as a load is told of it: sessions a second, and seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// The rate before and after.
    pub base: f64,
    /// The rate between.
    pub height: f64,
    /// How long it is measured before.
    pub before_s: f64,
    /// How long the spike lasts.
    pub for_s: f64,
    /// How long it is measured after.
    pub after_s: f64,
}

impl Spike {
    /// The law of arrivals of `weir load`, evenly spaced within each step: the warm-up is of the
    /// first.
    pub fn law(&self, warmup_s: f64) -> String {
        let Self { base, height, before_s, for_s, after_s } = self;
        let [base, height, before_s, for_s, after_s] =
            [*base, *height, before_s + warmup_s, *for_s, *after_s].map(to_a_millionth);
        format!("steps:{base}x{before_s}s,{height}x{for_s}s,{base}x{after_s}s")
    }
}

/// Without the digits that only binary fractions have.
fn to_a_millionth(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// The spike of a step that measures `duration_s`, once the capacity that rates are multiples of
/// is known. Where points are made shorter, all its parts are.
pub fn spike(sweep: &Sweep, x: f64, capacity: f64, duration_s: f64) -> Option<Spike> {
    let spec = sweep.spike?;
    let base = if sweep.rate_unit == RateUnit::PerSecond { 1.0 } else { capacity };
    let shorter = duration_s / spec.duration_s();
    Some(Spike {
        base: spec.base * base,
        height: x * base,
        before_s: spec.before_s * shorter,
        for_s: spec.for_s * shorter,
        after_s: spec.after_s * shorter,
    })
}

/// Clients beside a load, as their own load is told of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// What they do.
    pub kind: BesideKind,
    /// How many begin a second, in an open loop.
    pub rate: Option<f64>,
    /// How many there are, in a closed loop.
    pub closed: Option<u32>,
    /// How long each holds on to its connection, seconds.
    pub hold_s: f64,
}

/// The clients beside a load of `rate` sessions a second, at a value of the sweep; none if none is
/// to begin.
pub fn beside(sweep: &Sweep, x: f64, rate: Option<f64>) -> Option<Beside> {
    let (spec, rate) = sweep.beside.as_ref().zip(rate)?;
    let hold_s = spec.hold_s.unwrap_or(sweep.load.timeout_s);
    let rate = if sweep.x == Axis::Beside { x } else { spec.factor.unwrap_or(1.0) * rate };
    if rate <= 0.0 {
        return None;
    }
    let (rate, closed) = match spec.kind {
        // Who gets no answer begins again once a hold, so that is how many it takes.
        BesideKind::Reconnect => (None, Some((rate * hold_s).ceil().max(1.0) as u32)),
        BesideKind::Mute | BesideKind::Slow | BesideKind::KeepAlive | BesideKind::Cold => {
            (Some(rate), None)
        }
    };
    Some(Beside { kind: spec.kind, rate, closed, hold_s })
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

    /// The first sweep of the experiment, with more in its text.
    fn sweep(more: &str) -> Sweep {
        toml::from_str::<Experiment>(&format!("{TEXT}{more}")).unwrap().sweep.remove(0)
    }

    #[test]
    fn a_spike_is_multiples_of_the_capacity_for_as_long_as_the_point() {
        let sweep = sweep("spike = { base = 0.5, before-s = 2, for-s = 10, after-s = 4 }");
        assert_eq!(scaled(&sweep, 1.0), (4, 16.0));
        let whole = spike(&sweep, 5.0, 300.0, 16.0).unwrap();
        assert_eq!(whole.law(0.5), "steps:150x2.5s,1500x10s,150x4s");
        let odd = spike(&sweep, 5.0, 1000.0 / 3.0, 16.0).unwrap();
        assert_eq!(odd.law(0.1), "steps:166.666667x2.1s,1666.666667x10s,166.666667x4s");
        let half = spike(&sweep, 5.0, 300.0, 8.0).unwrap();
        assert_eq!(half.law(0.0), "steps:150x1s,1500x5s,150x2s");
        assert_eq!(rate(&sweep, 5.0, 300.0), Some(1500.0));
        let steps = steps(&[("e".to_owned(), experiment(sweep))], 1.0, 1);
        let point = steps.iter().find(|step| step.task == Task::Point).unwrap();
        assert!(point.estimate_s > 16.0 && point.duration_s == 16.0);
    }

    /// The experiment with this sweep alone.
    fn experiment(sweep: Sweep) -> Experiment {
        Experiment { sweep: vec![sweep], ..toml::from_str(TEXT).unwrap() }
    }

    #[test]
    fn clients_beside_a_load_are_a_multiple_of_its_rate() {
        let of = |kind: &str, more: &str| {
            let text = format!("beside = {{ kind = \"{kind}\", factor = 10{more} }}");
            beside(&sweep(&text), 2.0, Some(50.0)).unwrap()
        };
        let mute = of("mute", "");
        assert_eq!((mute.rate, mute.closed, mute.hold_s), (Some(500.0), None, 1.0));
        assert_eq!(of("slow", ", hold-s = 3").hold_s, 3.0);
        let again = of("reconnect", ", hold-s = 0.25");
        assert_eq!((again.rate, again.closed), (None, Some(125)));
        assert_eq!(of("reconnect", ", hold-s = 0.0001").closed, Some(1));
        assert_eq!(beside(&sweep(""), 2.0, Some(50.0)), None);
        let held = sweep("beside = { kind = \"mute\", factor = 10, hold-s = 7 }");
        assert_eq!((drain_s(&held, 0.5), drain_s(&sweep(""), 0.5)), (7.0, 0.0));
    }

    #[test]
    fn where_the_sweep_says_how_many_there_are_its_value_does_and_none_is_none() {
        let mut sweep = sweep("rate = 50\nbeside = { kind = \"cold\", hold-s = 2 }");
        sweep.x = Axis::Beside;
        let of = |x| beside(&sweep, x, Some(50.0)).map(|beside| (beside.rate, beside.hold_s));
        assert_eq!((of(40.0), of(0.0)), (Some((Some(40.0), 2.0)), None));
        assert_eq!((rate(&sweep, 40.0, 3.0), drain_s(&sweep, 40.0)), (Some(150.0), 2.0));
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
