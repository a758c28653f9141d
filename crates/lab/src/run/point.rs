//! Measures a point: runs the planned load, and records the counts of the server, the kernel and
//! the processors in the measured window.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde_json::Value;

use super::neighbour::Neighbour;
use super::place::Place;
use super::stage::{Stage, over, until};
use crate::generators::{self, Order};
use crate::ground::{Ground, Side};
use crate::measure::weir_stats::Stats;
use crate::measure::{self, Sample, identity};
use crate::record::{Line, Point, ServerResult};
use crate::servers::{Ended, Running};
use crate::time::utc_now;

impl Stage {
    pub(super) fn point(
        &self,
        ground: &dyn Ground,
        place: &Place<'_>,
        mut server: Running,
        stop: &AtomicBool,
    ) -> Result<Line, String> {
        let (began, at) = (utc_now(), Instant::now());
        let timeline_ms = place.sweep.timeline_ms;
        let mut load = generators::start(&Order { timeline_ms, ..self.order(ground, place) })?;
        let started = Instant::now();
        let cpus = ground.cpus(Side::Server);
        let neighbour =
            place.sweep.neighbour.map(|spec| Neighbour::start(spec, cpus)).transpose()?;
        let (from, to) = load.window();
        let beside = self.beside(ground, place, (from, to))?;
        until(started + from, stop)?;
        let first = look(ground, &mut server)?;
        until(started + to, stop)?;
        let second = look(ground, &mut server)?;
        let latest = started + to + place.patience();
        over(&mut load, latest, stop)?;
        neighbour.map_or(Ok(()), Neighbour::end)?;
        let beside = beside.map(|beside| beside.end(latest, stop)).transpose()?;
        let load = load.wait()?;
        let config = server.config().map(str::to_owned);
        let (version, command) = (self.version(place.server.kind), server.command().to_owned());
        let (kernel, cores, used) = measure::between(&first.0, &second.0);
        let snapshots = [first.1, second.1];
        let result = ServerResult {
            version,
            command,
            config,
            cpu_user_s: used.cpu_user_s,
            cpu_system_s: used.cpu_system_s,
            rss_max_bytes: used.rss_max_bytes,
            processes: used.processes,
            disk_read_bytes: used.disk_read_bytes,
            ..counted(snapshots, server.stop())
        };
        let mut point = Point {
            key: place.step.key.clone(),
            began,
            took_s: at.elapsed().as_secs_f64(),
            rate: place.rate,
            load,
            server: result,
            kernel,
            cores,
            beside,
            probe: None,
            flags: Vec::new(),
        };
        point.flags = identity::flags(&point);
        Ok(Line::Point(Box::new(point)))
    }
}

fn look(ground: &dyn Ground, server: &mut Running) -> Result<(Sample, Option<Value>), String> {
    let sample = Sample::take(ground, &server.pids())?;
    // A server that cannot answer in time is a finding, not a failure of the point.
    let snapshot = server.snapshot().unwrap_or(None);
    Ok((sample, snapshot))
}

/// Returns weir's own counters; for other servers only how they ended.
fn counted(snapshots: [Option<Value>; 2], ended: Ended) -> ServerResult {
    let mut result = ServerResult { trouble: ended.how.err(), ..ServerResult::default() };
    let read = |value: Option<Value>| value.and_then(|value| Stats::read(&value).ok());
    if let [Some(first), Some(second)] = snapshots.map(read)
        && let Ok(between) = second.since(&first)
    {
        result.counted = between.totals;
        result.calls = between.calls;
    }
    result.counted_whole = read(ended.stats).unwrap_or_default().totals;
    result
}
