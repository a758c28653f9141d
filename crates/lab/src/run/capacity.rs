//! Measures the capacity of a server in a closed loop, and counts its system calls from outside.

use std::time::Instant;

use super::resolved_point::ResolvedPoint;
use super::runner::Runner;
use super::wait::{await_end, sleep_until};
use crate::experiment::LoadSpec;
use crate::generators::{self, LoadRequest};
use crate::measure::calls::Counting;
use crate::plan;
use crate::record::{CallsRun, Capacity, Line};
use crate::servers::RunningServer;
use crate::time::utc_now;

impl Runner {
    /// Measures sessions per second in a closed loop of clients without a path, which would be
    /// measured in the place of the server: the clients would be on their way. Only the count is
    /// used, so the validity of the times does not matter; a limit of the generator's own does.
    pub(super) fn capacity(&self, resolved: &ResolvedPoint<'_>) -> Result<Line, String> {
        let near = LoadSpec { path: None, ..resolved.sweep.load.clone() };
        let load_request = LoadRequest {
            load: &near,
            duration_s: plan::CAPACITY_S,
            warmup_s: plan::CAPACITY_WARMUP_S,
            cooldown_s: 0.0,
            rate: None,
            closed: Some(*resolved.sweep.capacity_connections),
            spike: None,
            steps_s: None,
            conns: None,
            ..self.load_request(resolved)
        };
        let began = Some(utc_now());
        let mut load = generators::start(&load_request)?;
        await_end(&mut load, Instant::now() + resolved.patience(), resolved.stop)?;
        let result = load.wait()?;
        let sessions_per_s = result.sessions_per_s.unwrap_or(result.replies_per_s);
        if sessions_per_s <= 0.0 {
            return Err("no session of the closed loop ended well".to_owned());
        }
        let may_limit = result.has_valid_counts() || resolved.sweep.client_may_limit;
        let limited_by = if may_limit { Vec::new() } else { result.reasons };
        let key = resolved.step.key.clone();
        Ok(Line::Capacity(Capacity { key, sessions_per_s, began, limited_by }))
    }

    /// Counts system calls under the load of a point; the counting slows the server down.
    pub(super) fn calls(
        &self,
        resolved: &ResolvedPoint<'_>,
        server: &RunningServer,
    ) -> Result<Line, String> {
        let at = utc_now();
        let mut load = generators::start(&self.load_request(resolved))?;
        let began = Instant::now();
        let (from, to) = load.window();
        sleep_until(began + from, resolved.stop)?;
        let counting = Counting::start(&server.pids())?;
        sleep_until(began + to, resolved.stop)?;
        let calls = counting.stop()?;
        await_end(&mut load, began + to + resolved.patience(), resolved.stop)?;
        let result = load.wait()?;
        // What it slowed down is answered after it has ended, and is counted as replies too.
        let replies = (result.replies_per_s * result.window_s).round() as u64;
        let (key, by) = (resolved.step.key.clone(), "strace".to_owned());
        Ok(Line::Calls(CallsRun { key, by, calls, replies, began: Some(at) }))
    }
}
