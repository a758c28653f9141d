//! The plan of a run: turns experiments into steps, with their order and their durations. Pure:
//! randomness comes from a seed. Nothing here runs a step.

use std::collections::BTreeMap;

use rand::RngExt;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::experiment::{
    Axis, BackgroundLoadKind, DisturbanceKind, Experiment, LoadSpec, PRECISION_ROUNDS_MIN,
    RateUnit, Seconds, ServerSpec, Sweep,
};
use crate::generators::Spike;
use crate::record::Key;
pub use crate::record::Task;

/// Number of times a capacity is measured; the median counts.
pub const CAPACITY_ROUNDS: u32 = 3;

/// Duration of a capacity measurement, in seconds, after a warm-up of [`CAPACITY_WARMUP_S`].
pub const CAPACITY_S: f64 = 1.2;

/// Warm-up of a capacity measurement, in seconds.
pub const CAPACITY_WARMUP_S: f64 = 0.4;

/// Time to start and stop a server and a load and to calibrate the idle counter twice, in seconds,
/// in addition to the load itself. Used only in the estimate of the time left, which is corrected
/// as the run proceeds.
const OVERHEAD_S: f64 = 1.5;

/// Minimum duration of a point, in seconds.
const DURATION_S_MIN: f64 = 0.5;

/// Minimum duration of a probe, in seconds.
const PROBE_S_MIN: f64 = 0.02;

/// Overhead of a probe without idle members, in seconds, in addition to what it measures.
const PROBE_OVERHEAD_S: f64 = 0.15;

/// Overhead of a probe per idle member, in seconds: connecting it, and adding it in each
/// repetition.
const PROBE_IDLE_S: f64 = 0.000_06;

/// A step of a run.
#[derive(Clone, Debug)]
pub struct Step {
    /// The quantity it measures.
    pub task: Task,
    /// The point it belongs to.
    pub key: Key,
    /// Index of its experiment among those of the run.
    pub experiment: usize,
    /// Index of its sweep.
    pub sweep: usize,
    /// Index of its server.
    pub server: usize,
    /// Duration of the measurement, in seconds.
    pub duration_s: f64,
    /// Estimated total duration, in seconds.
    pub estimate_s: f64,
}

/// An experiment with its name.
pub type NamedExperiment = (String, Experiment);

/// Returns the steps of a run in order. For each experiment: the capacities, then the points round
/// by round, then the counts of system calls. Each round is shuffled separately, so that drift
/// affects all servers alike, and place by place, so that servers compared there are measured one
/// right after the other: a machine that others share has another speed a minute later.
pub fn steps(experiments: &[NamedExperiment], scale: f64, seed: u64) -> Vec<Step> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..experiments.len())
        .flat_map(|index| experiment_steps(experiments, index, scale, &mut rng))
        .collect()
}

fn experiment_steps(
    experiments: &[NamedExperiment],
    index: usize,
    scale: f64,
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<Step> {
    let (_, experiment) = &experiments[index];
    let builder = StepBuilder { name: &experiments[index].0, index, experiment, scale };
    let mut steps = Vec::new();
    for round in 0..CAPACITY_ROUNDS {
        let capacities = builder.each(|sweep| builder.capacities(sweep, round));
        steps.extend(shuffled(capacities, rng));
    }
    let rounds = experiment.sweep.iter().map(|sweep| scaled(sweep, scale).0).max().unwrap_or(0);
    for round in 0..rounds {
        steps.extend(by_place(builder.each(|sweep| builder.points(sweep, round)), rng));
    }
    steps.extend(shuffled(builder.each(|sweep| builder.calls(sweep)), rng));
    steps
}

/// Returns the steps of a round beyond the planned ones, for those sweeps of an experiment that are
/// not precise enough. The order depends on the seed and the round alone, so that a resumed run
/// goes on in the same order.
pub fn further_round(
    experiments: &[NamedExperiment],
    index: usize,
    sweeps: &[usize],
    (round, scale, seed): (u32, f64, u64),
) -> Vec<Step> {
    let (name, experiment) = &experiments[index];
    let builder = StepBuilder { name, index, experiment, scale };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(round).rotate_left(32));
    let points = sweeps.iter().flat_map(|&sweep| builder.round(sweep, round)).collect();
    by_place(points, &mut rng)
}

/// Returns the points of a round, place by place: places in random order, and in each its servers.
fn by_place(points: Vec<Step>, rng: &mut Xoshiro256PlusPlus) -> Vec<Step> {
    let mut places: BTreeMap<(usize, u64), Vec<Step>> = BTreeMap::new();
    for point in points {
        places.entry((point.sweep, point.key.x.to_bits())).or_default().push(point);
    }
    let mut places: Vec<Vec<Step>> = places.into_values().collect();
    places.shuffle(rng);
    places.into_iter().flat_map(|place| shuffled(place, rng)).collect()
}

fn shuffled(mut steps: Vec<Step>, rng: &mut Xoshiro256PlusPlus) -> Vec<Step> {
    steps.shuffle(rng);
    steps
}

/// Returns the repetitions of a point and its duration in seconds, at a scale. The scale changes
/// the repetitions first; below 1 it also shortens points where the repetitions had to be rounded
/// up. A sweep with a precision has at least [`PRECISION_ROUNDS_MIN`] repetitions.
pub fn scaled(sweep: &Sweep, scale: f64) -> (u32, f64) {
    let wanted = f64::from(*sweep.repetitions) * scale;
    let repetitions = wanted.round().clamp(1.0, 1000.0);
    let least = if sweep.precision.is_some() { PRECISION_ROUNDS_MIN } else { 1 };
    let longer = if scale < 1.0 { (wanted / repetitions).min(1.0) } else { 1.0 };
    let shortest = if sweep.probe.is_some() { PROBE_S_MIN } else { DURATION_S_MIN };
    ((repetitions as u32).max(least), (sweep.duration_s() * longer).max(shortest))
}

/// Returns the seed of a step's load: the same for all servers at a place, so that they see the
/// same arrivals, and a different one in each round.
pub fn load_seed(seed: u64, key: &Key) -> u64 {
    of_bits(seed ^ key.x.to_bits() ^ u64::from(key.round).rotate_left(32))
}

/// Returns the seed of a step's service times: the same for all of a round, so that what one server
/// has to answer at one place is what another has at its peak, and a different one in each round.
pub fn service_seed(seed: u64, key: &Key) -> u64 {
    of_bits(!seed ^ u64::from(key.round).rotate_left(32))
}

/// Mixes bits to a seed of 48, which JSON and every option parser can hold.
fn of_bits(bits: u64) -> u64 {
    Xoshiro256PlusPlus::seed_from_u64(bits).random::<u64>() >> 16
}

struct StepBuilder<'a> {
    name: &'a str,
    index: usize,
    experiment: &'a Experiment,
    scale: f64,
}

impl StepBuilder<'_> {
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
            let overhead = OVERHEAD_S + CAPACITY_WARMUP_S;
            self.step(Task::Capacity, sweep, server, (0.0, round), (CAPACITY_S, overhead))
        });
        made.collect()
    }

    fn points(&self, sweep: usize, round: u32) -> Vec<Step> {
        let (repetitions, _) = scaled(&self.experiment.sweep[sweep], self.scale);
        if round < repetitions { self.round(sweep, round) } else { Vec::new() }
    }

    fn round(&self, sweep: usize, round: u32) -> Vec<Step> {
        let spec = &self.experiment.sweep[sweep];
        let (_, duration_s) = scaled(spec, self.scale);
        self.grid(sweep, |server, x| {
            let overhead = match spec.probe {
                Some(_) => PROBE_OVERHEAD_S + PROBE_IDLE_S * x,
                None => OVERHEAD_S + *spec.load.warmup_s + *spec.load.cooldown_s + drain_s(spec, x),
            };
            self.step(Task::Point, sweep, server, (x, round), (duration_s, overhead))
        })
    }

    fn calls(&self, sweep: usize) -> Vec<Step> {
        let spec = &self.experiment.sweep[sweep];
        if !spec.calls {
            return Vec::new();
        }
        let foreign = |server: usize| self.experiment.server[server].weir().is_none();
        let (_, duration_s) = scaled(spec, self.scale);
        let overhead = OVERHEAD_S + *spec.load.warmup_s + *spec.load.timeout_s;
        let mut steps = self.grid(sweep, |server, x| {
            self.step(Task::Calls, sweep, server, (x, 0), (duration_s, overhead))
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
        (duration_s, overhead_s): (f64, f64),
    ) -> Step {
        let key = Key {
            experiment: self.name.to_owned(),
            sweep: self.experiment.sweep[sweep].id.clone(),
            server: self.experiment.server[server].id.clone(),
            x,
            round,
        };
        let estimate_s = duration_s + overhead_s;
        Step { task, key, experiment: self.index, sweep, server, duration_s, estimate_s }
    }
}

/// Returns how long the last requests of a point keep the client busy, in seconds: the request
/// timeout if the server is offered more than it can do, or the hold time of the clients beside the
/// load if that is longer.
fn drain_s(sweep: &Sweep, x: f64) -> f64 {
    let over = sweep.x != Axis::Rate || sweep.rate_unit == RateUnit::PerSecond || x > 1.0;
    let load_s = if over { *sweep.load.timeout_s } else { 0.0 };
    background_load(sweep, x, Some(1.0))
        .map_or(load_s, |background_load| load_s.max(*background_load.hold_s))
}

/// Returns the rate of a step, in sessions per second, given the capacity that the sweep's rates
/// are multiples of; `None` for a closed loop.
pub fn rate(sweep: &Sweep, x: f64, capacity: f64) -> Option<f64> {
    let base = if sweep.rate_unit == RateUnit::PerSecond { 1.0 } else { capacity };
    let of = if sweep.x == Axis::Rate { Some(x) } else { sweep.rate.map(|rate| *rate) };
    of.map(|multiple| multiple * base)
}

/// Returns the numbers of idle and of persistent connections of a step; `x` replaces the one that
/// the sweep varies.
pub fn connections(sweep: &Sweep, x: f64) -> (u32, Option<u32>) {
    let LoadSpec { idle, conns, .. } = sweep.load;
    let conns = conns.map(|conns| *conns);
    match sweep.x {
        Axis::Rate | Axis::BackgroundLoad => (idle, conns),
        Axis::Idle => (x as u32, conns),
        Axis::Conns => (idle, Some(x as u32)),
    }
}

/// Returns the spike of a step that measures `duration_s` seconds, given the capacity that rates
/// are multiples of; `None` if the sweep has no spike. All parts of a spike shorten with its point.
pub fn spike(sweep: &Sweep, x: f64, capacity: f64, duration_s: f64) -> Option<Spike> {
    let spec = sweep.spike?;
    let base = if sweep.rate_unit == RateUnit::PerSecond { 1.0 } else { capacity };
    let shorter = duration_s / spec.duration_s();
    Some(Spike {
        base: *spec.base * base,
        height: x * base,
        before_s: *spec.before_s * shorter,
        for_s: *spec.for_s * shorter,
        after_s: *spec.after_s * shorter,
    })
}

/// Clients beside a load, as passed to their own load generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackgroundLoad {
    /// Behaviour of the clients.
    pub kind: BackgroundLoadKind,
    /// Clients started per second, in an open loop.
    pub rate: Option<f64>,
    /// Number of clients, in a closed loop.
    pub closed: Option<u32>,
    /// Time each client holds its connection.
    pub hold_s: Seconds,
}

/// Returns the clients beside a load of `rate` sessions per second, at a value of the sweep; `None`
/// if none are to start.
pub fn background_load(sweep: &Sweep, x: f64, rate: Option<f64>) -> Option<BackgroundLoad> {
    let (spec, rate) = sweep.background_load.as_ref().zip(rate)?;
    let hold_s = spec.hold_s.unwrap_or(sweep.load.timeout_s);
    let factor = spec.factor.map_or(1.0, |factor| *factor);
    let rate = if sweep.x == Axis::BackgroundLoad { x } else { factor * rate };
    if rate <= 0.0 {
        return None;
    }
    let (rate, closed) = match spec.kind {
        // A client without an answer restarts after each hold time: rate × hold time of them.
        BackgroundLoadKind::Reconnect => (None, Some((rate * *hold_s).ceil().max(1.0) as u32)),
        BackgroundLoadKind::Mute
        | BackgroundLoadKind::Slow
        | BackgroundLoadKind::KeepAlive
        | BackgroundLoadKind::Cold
        | BackgroundLoadKind::Files => (Some(rate), None),
    };
    Some(BackgroundLoad { kind: spec.kind, rate, closed, hold_s })
}

/// What happens to an application in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// Its kind.
    pub kind: DisturbanceKind,
    /// Its begin, in seconds of the measured time.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// Limit on the application's processor time before and after, in percent.
    pub cpu_percent: f64,
    /// The limit meanwhile.
    pub cpu_percent_meanwhile: f64,
}

/// Returns what happens to the application in a step that measures `duration_s` seconds. All parts
/// shorten with the step.
pub fn disturbance(sweep: &Sweep, duration_s: f64) -> Option<Disturbance> {
    let spec = sweep.disturbance?;
    let shorter = duration_s / sweep.duration_s();
    let cpu_percent = sweep.upstream.as_ref().and_then(|upstream| upstream.cpu_percent);
    let cpu_percent = cpu_percent.map_or(100.0, |percent| f64::from(*percent));
    Some(Disturbance {
        kind: spec.kind,
        from_s: *spec.before_s * shorter,
        to_s: (*spec.before_s + *spec.for_s) * shorter,
        cpu_percent,
        cpu_percent_meanwhile: cpu_percent / spec.times.map_or(1.0, |times| *times),
    })
}

/// Returns the prefix of the paths that are requested of a server: what each request costs.
/// `seed` is that of service times.
pub fn prefix(server: &ServerSpec, sweep: &Sweep, seed: u64) -> String {
    if let Some(upstream) = &sweep.upstream {
        return upstream.prefix(seed);
    }
    match burn_us(server, sweep) {
        0 => String::new(),
        burn_us => format!("/.weir/burn/{burn_us}"),
    }
}

/// Returns the CPU time burnt per request, in microseconds, in a server or in the server behind it
/// if it is a proxy.
pub fn burn_us(server: &ServerSpec, sweep: &Sweep) -> u32 {
    match server.weir() {
        Some(weir) => *weir.burn_us.unwrap_or(sweep.burn_us),
        None => server.proxy_burn_us().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Kind, file};

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

    fn named() -> Vec<NamedExperiment> {
        vec![("e".to_owned(), Experiment::parse(TEXT).unwrap())]
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
    fn servers_at_a_place_are_measured_one_right_after_the_other() {
        let steps = steps(&named(), 1.0, 1);
        let points: Vec<&Step> = steps.iter().filter(|step| step.task == Task::Point).collect();
        for place in points.chunks(2) {
            assert_eq!(place[0].key.x, place[1].key.x);
            assert_ne!(place[0].key.server, place[1].key.server);
        }
        let order = |of: fn(&Step) -> String| -> Vec<String> {
            points.chunks(6).map(|round| round.iter().map(|step| of(step)).collect()).collect()
        };
        for orders in [order(|step| step.key.x.to_string()), order(|step| step.key.server.clone())]
        {
            assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
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

    /// Returns the first sweep of the experiment, with `more` appended to its text.
    fn sweep(more: &str) -> Sweep {
        file::read::<Experiment>(&format!("{TEXT}{more}")).unwrap().sweep.remove(0)
    }

    #[test]
    fn what_happens_to_an_application_shortens_with_its_point() {
        let upstream = "upstream = { kind = \"puma\", workers = 2, mean-us = 9, cpu-percent = 60 }";
        let slow = "disturbance = { kind = \"slow\", before-s = 1, for-s = 0.5, times = 3 }";
        let sweep = sweep(&format!("{upstream}\n{slow}\nload.duration-s = 2"));
        let slow = disturbance(&sweep, 1.0).unwrap();
        assert_eq!((slow.from_s, slow.to_s), (0.5, 0.75));
        assert_eq!((slow.cpu_percent, slow.cpu_percent_meanwhile), (60.0, 20.0));
        let server = ServerSpec::with(Kind::Weir, "burn-us = 5");
        assert_eq!(prefix(&server, &sweep, 7), "/.weir/work/9/fixed/0");
        let alone = Sweep { upstream: None, disturbance: None, ..sweep };
        assert_eq!(prefix(&server, &alone, 7), "/.weir/burn/5");
        assert_eq!(disturbance(&alone, 1.0), None);
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

    /// Returns the experiment with this sweep only.
    fn experiment(sweep: Sweep) -> Experiment {
        Experiment { sweep: vec![sweep], ..Experiment::parse(TEXT).unwrap() }
    }

    #[test]
    fn clients_beside_a_load_are_a_multiple_of_its_rate() {
        let of = |kind: &str, more: &str| {
            let text = format!("beside = {{ kind = \"{kind}\", factor = 10{more} }}");
            background_load(&sweep(&text), 2.0, Some(50.0)).unwrap()
        };
        let mute = of("mute", "");
        assert_eq!((mute.rate, mute.closed, *mute.hold_s), (Some(500.0), None, 1.0));
        assert_eq!(*of("slow", ", hold-s = 3").hold_s, 3.0);
        let again = of("reconnect", ", hold-s = 0.25");
        assert_eq!((again.rate, again.closed), (None, Some(125)));
        assert_eq!(of("reconnect", ", hold-s = 0.0001").closed, Some(1));
        assert_eq!(background_load(&sweep(""), 2.0, Some(50.0)), None);
        let held = sweep("beside = { kind = \"mute\", factor = 10, hold-s = 7 }");
        assert_eq!((drain_s(&held, 0.5), drain_s(&sweep(""), 0.5)), (7.0, 0.0));
    }

    #[test]
    fn where_the_sweep_says_how_many_there_are_its_value_does_and_none_is_none() {
        let mut sweep = sweep("rate = 50\nbeside = { kind = \"cold\", hold-s = 2 }");
        sweep.x = Axis::BackgroundLoad;
        let of = |x| {
            background_load(&sweep, x, Some(50.0))
                .map(|background_load| (background_load.rate, *background_load.hold_s))
        };
        assert_eq!((of(40.0), of(0.0)), (Some((Some(40.0), 2.0)), None));
        assert_eq!((rate(&sweep, 40.0, 3.0), drain_s(&sweep, 40.0)), (Some(150.0), 2.0));
    }

    fn key(server: &str, x: f64, round: u32) -> Key {
        let [experiment, sweep, server] = ["e", "s", server].map(str::to_owned);
        Key { experiment, sweep, server, x, round }
    }

    #[test]
    fn servers_of_a_round_meet_the_same_arrivals() {
        assert_eq!(load_seed(1, &key("a", 2.0, 0)), load_seed(1, &key("b", 2.0, 0)));
        assert_ne!(load_seed(1, &key("a", 2.0, 0)), load_seed(1, &key("a", 2.0, 1)));
    }

    #[test]
    fn all_of_a_round_meet_the_same_service_times() {
        let first = service_seed(1, &key("a", 2.0, 0));
        assert_eq!(first, service_seed(1, &key("b", 4.0, 0)));
        assert_ne!(first, service_seed(1, &key("a", 2.0, 1)));
        assert_ne!(first, service_seed(2, &key("a", 2.0, 0)));
    }
}
