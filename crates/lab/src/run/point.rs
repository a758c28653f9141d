//! Measures a point: runs the planned load, and records the counts of the server, the kernel and
//! the processors in the measured window.

use std::time::Instant;

use serde_json::Value;

use super::disturbance::sleep_through;
use super::neighbour::Neighbour;
use super::resolved_point::ResolvedPoint;
use super::runner::Runner;
use super::wait::{await_end, sleep_until};
use crate::environment::{Environment, Side};
use crate::generators::{self, LoadRequest, RunningLoad};
use crate::measure::cores::{CoreMeter, CoreReading};
use crate::measure::traces::Traces;
use crate::measure::weir_stats::Stats;
use crate::measure::{self, Measured, Sample, identity};
use crate::record::{ClientResult, DaySample, Line, Point, ServerResult};
use crate::servers::{RunningServer, StopResult};
use crate::time::utc_now;

impl Runner {
    pub(super) fn point(
        &self,
        resolved: &ResolvedPoint<'_>,
        mut server: RunningServer,
    ) -> Result<Line, String> {
        // Before the warm-up: the processors must be idle.
        let meter = CoreMeter::start(resolved.environment, resolved.step.duration_s)?;
        self.warm_up(resolved)?;
        let port = resolved.address.port();
        let traces = Traces::begin(resolved.environment, port, resolved.counts_syns);
        let (began, at) = (utc_now(), Instant::now());
        let timeline_ms = resolved.sweep.timeline_ms.map(|bin_ms| *bin_ms);
        let mut load =
            generators::start(&LoadRequest { timeline_ms, ..self.load_request(resolved) })?;
        let started = Instant::now();
        let cpus = resolved.environment.cpus(Side::Server);
        let neighbour =
            resolved.sweep.neighbour.map(|spec| Neighbour::start(spec, cpus)).transpose()?;
        let (from, to) = load.window();
        let background_load = self.background_load(resolved, (from, to))?;
        let window = (started + from, started + to);
        let edges = edges(resolved, (&meter, &traces), (&mut server, &load), window)?;
        let [Some(first), Some(second)] = [edges.first(), edges.last()] else {
            return Err("the window has no edges".to_owned());
        };
        let latest = started + to + resolved.patience();
        await_end(&mut load, latest, resolved.stop)?;
        neighbour.map_or(Ok(()), Neighbour::end)?;
        let background_load = background_load
            .map(|background_load| background_load.end(latest, resolved.stop))
            .transpose()?;
        let mut load = load.wait()?;
        if resolved.sweep.client_may_limit {
            (load.valid, load.late_only) = (true, false);
        }
        let Measured { mut kernel, server: used, client } =
            measure::between(&first.sample, &second.sample);
        traces.end(&mut kernel);
        let mut result = ServerResult {
            version: self.version(resolved.server),
            command: server.command().to_owned(),
            config: server.config().map(str::to_owned),
            ..used
        };
        count(&mut result, [&first.snapshot, &second.snapshot], server.stop());
        // After the server's end: the processors must be idle again.
        let own_s = own_times_s(resolved, &result, client.as_ref());
        let cores = meter.end([&first.cores, &second.cores], own_s);
        let mut point = Point {
            key: resolved.step.key.clone(),
            began,
            took_s: at.elapsed().as_secs_f64(),
            rate: resolved.rate,
            load,
            server: result,
            kernel,
            cores,
            client,
            background_load,
            samples: day_samples(resolved, &edges),
            ..Point::default()
        };
        point.flags = identity::flags(&point);
        Ok(Line::Point(Box::new(point)))
    }

    /// Runs a generator that has no warm-up of its own for the time of one.
    fn warm_up(&self, resolved: &ResolvedPoint<'_>) -> Result<(), String> {
        let load = &resolved.sweep.load;
        if load.generator.is_weir() || *load.warmup_s == 0.0 {
            return Ok(());
        }
        let request = self.load_request(resolved);
        let mut warmup = generators::start(&LoadRequest { duration_s: *load.warmup_s, ..request })?;
        await_end(&mut warmup, Instant::now() + resolved.patience(), resolved.stop)
    }
}

/// Everything read at one end of the measured window.
struct Edge {
    sample: Sample,
    cores: CoreReading,
    /// The server's own statistics, if it has any.
    snapshot: Option<Value>,
}

impl Edge {
    fn take(
        environment: &dyn Environment,
        (meter, traces): (&CoreMeter, &Traces),
        server: &mut RunningServer,
        load: &RunningLoad,
    ) -> Result<Self, String> {
        let pids = server.pids();
        let sample = Sample::take(environment, &pids, Some(load.pid()), Some(traces))?;
        let cores = meter.read(&pids);
        // A server that cannot answer in time is a finding, not a failure of the point.
        let snapshot = server.snapshot().unwrap_or(None);
        Ok(Self { sample, cores, snapshot })
    }
}

/// Returns the time of the processes of each side, seconds, where all that ran there are known.
fn own_times_s(
    resolved: &ResolvedPoint<'_>,
    server: &ServerResult,
    client: Option<&ClientResult>,
) -> [Option<f64>; 2] {
    let cpus = [Side::Server, Side::Client].map(|side| resolved.environment.cpus(side));
    if cpus[0].iter().any(|cpu| cpus[1].contains(cpu)) {
        return [None; 2];
    }
    let is_alone = resolved.sweep.neighbour.is_none();
    let server_s = is_alone.then(|| server.cpu_s());
    let is_alone = resolved.sweep.background_load.is_none();
    let client = client.filter(|_| is_alone && !resolved.server.is_upstream_apart());
    [server_s, client.map(ClientResult::cpu_s)]
}

/// Takes the edges of the window, and those between the samples of a day.
fn edges(
    resolved: &ResolvedPoint<'_>,
    instruments: (&CoreMeter, &Traces),
    (server, load): (&mut RunningServer, &RunningLoad),
    (from, to): (Instant, Instant),
) -> Result<Vec<Edge>, String> {
    let parts = resolved.sweep.day.map_or(1, |day| *day.samples);
    let at = |number| from + (to - from) * number / parts;
    sleep_until(from, resolved.stop)?;
    let mut edges = vec![Edge::take(resolved.environment, instruments, server, load)?];
    for number in 1..=parts {
        sleep_through(resolved, server, (at(number - 1), at(number)))?;
        edges.push(Edge::take(resolved.environment, instruments, server, load)?);
    }
    Ok(edges)
}

/// Returns the samples of a day; none if the load is no day.
fn day_samples(resolved: &ResolvedPoint<'_>, edges: &[Edge]) -> Vec<DaySample> {
    let processors = resolved.environment.cpus(Side::Server).len().max(1) as f64;
    let pairs = edges.windows(2).filter(|_| resolved.sweep.day.is_some());
    pairs.filter_map(|pair| day_sample(pair, processors)).collect()
}

/// Returns the sample of a day between two edges; `None` if the server counts nothing itself.
fn day_sample(edges: &[Edge], processors: f64) -> Option<DaySample> {
    let [from, to] = edges else { return None };
    let stats = [from, to].map(|edge| Stats::read(edge.snapshot.as_ref()?).ok());
    let [Some(before), Some(after)] = stats else { return None };
    let grown = after.since(&before).ok()?.totals;
    let Measured { kernel, server: used, .. } = measure::between(&from.sample, &to.sample);
    let total_s = kernel.window_s * processors;
    let open = after.totals.get("accepted")? - after.totals.get("closed")?;
    Some(DaySample {
        request_rate: grown.get("requests")? / grown.get("elapsed_s")?,
        open: open.max(0.0),
        user: used.cpu_user_s / total_s,
        system: used.cpu_system_s / total_s,
    })
    .filter(|sample| sample.request_rate.is_finite() && total_s > 0.0)
}

/// Adds weir's own counters; for other servers only how they ended.
fn count(result: &mut ServerResult, snapshots: [&Option<Value>; 2], ended: StopResult) {
    result.trouble = ended.how.err();
    let read = |value: Option<&Value>| value.and_then(|value| Stats::read(value).ok());
    if let [Some(first), Some(second)] = snapshots.map(|value| read(value.as_ref()))
        && let Ok(between) = second.since(&first)
    {
        result.counted = between.totals;
        result.calls = between.calls;
    }
    result.counted_whole = read(ended.stats.as_ref()).unwrap_or_default().totals;
}
