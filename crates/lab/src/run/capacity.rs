//! Measures the capacity of a server in a closed loop, and counts its system calls from outside.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::place::Place;
use super::stage::{Stage, over, until};
use crate::generators::{self, Order};
use crate::ground::Ground;
use crate::measure::calls::Counting;
use crate::plan;
use crate::record::{CallsRun, Capacity, Line};
use crate::servers::Running;

impl Stage {
    /// Measures sessions per second in a closed loop. Only the count is used, so the validity of
    /// the times does not matter.
    pub(super) fn capacity(
        &self,
        ground: &dyn Ground,
        place: &Place<'_>,
        stop: &AtomicBool,
    ) -> Result<Line, String> {
        let order = Order {
            duration_s: plan::CAPACITY_S,
            warmup_s: plan::CAPACITY_WARMUP_S,
            rate: None,
            closed: Some(place.sweep.capacity_connections),
            spike: None,
            conns: None,
            ..self.order(ground, place)
        };
        let mut load = generators::start(&order)?;
        over(&mut load, Instant::now() + place.patience(), stop)?;
        let result = load.wait()?;
        let sessions_per_s = result.sessions_per_s.unwrap_or(result.replies_per_s);
        if sessions_per_s <= 0.0 {
            return Err("no session of the closed loop ended well".to_owned());
        }
        Ok(Line::Capacity(Capacity { key: place.step.key.clone(), sessions_per_s }))
    }

    /// Counts system calls under the load of a point; the counting slows the server down.
    pub(super) fn calls(
        &self,
        ground: &dyn Ground,
        place: &Place<'_>,
        server: &Running,
        stop: &AtomicBool,
    ) -> Result<Line, String> {
        let mut load = generators::start(&self.order(ground, place))?;
        let began = Instant::now();
        let (from, to) = load.window();
        until(began + from, stop)?;
        let counting = Counting::start(&server.pids())?;
        until(began + to, stop)?;
        let calls = counting.stop()?;
        over(&mut load, began + to + place.patience(), stop)?;
        let replies = load.wait()?.replies;
        let by = "strace".to_owned();
        Ok(Line::Calls(CallsRun { key: place.step.key.clone(), by, calls, replies }))
    }
}
