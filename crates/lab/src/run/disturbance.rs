//! Disturbances of the application behind a server during a point: it gets less of its processor
//! for a while, or dies and is started again.

use std::time::{Duration, Instant};

use super::resolved_point::ResolvedPoint;
use super::wait::sleep_until;
use crate::experiment::DisturbanceKind;
use crate::plan::Disturbance;
use crate::servers::RunningServer;

/// Sleeps from the start of the measured time to its end, and disturbs the application in between
/// if the sweep says so.
///
/// # Errors
/// Returns a message if the disturbance fails or the run is to end.
pub(super) fn sleep_through(
    resolved: &ResolvedPoint<'_>,
    server: &mut RunningServer,
    (from, to): (Instant, Instant),
) -> Result<(), String> {
    if let Some(disturbance) = &resolved.disturbance {
        sleep_until(from + Duration::from_secs_f64(disturbance.from_s), resolved.stop)?;
        begin(disturbance, server)?;
        sleep_until(from + Duration::from_secs_f64(disturbance.to_s), resolved.stop)?;
        end(disturbance, resolved, server)?;
    }
    sleep_until(to, resolved.stop)
}

fn begin(disturbance: &Disturbance, server: &mut RunningServer) -> Result<(), String> {
    match disturbance.kind {
        DisturbanceKind::Slow => {
            server.upstreams().set_cpu_percent(disturbance.cpu_percent_meanwhile)
        }
        DisturbanceKind::Death => server.upstreams().kill_last(),
    }
}

fn end(
    disturbance: &Disturbance,
    resolved: &ResolvedPoint<'_>,
    server: &mut RunningServer,
) -> Result<(), String> {
    match disturbance.kind {
        DisturbanceKind::Slow => server.upstreams().set_cpu_percent(disturbance.cpu_percent),
        DisturbanceKind::Death => server.upstreams().start_last(resolved.environment),
    }
}
