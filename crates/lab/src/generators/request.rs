//! A load to be generated, the invocation of a generator, and what is left of it for its report to
//! be read.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use super::timeline;
use crate::environment::Environment;
use crate::experiment::{Arrivals, LoadSpec};
use crate::record::{LoadResult, Times};
use crate::{programs, workload};

/// The file to which `weir load` writes a line per request, if these are needed.
pub(super) const REQUEST_LOG: &str = "each.ndjson";

/// A load to be generated.
pub struct LoadRequest<'a> {
    /// Its specification, except for the varied quantity.
    pub load: &'a LoadSpec,
    /// Measured duration, in seconds.
    pub duration_s: f64,
    /// Warm-up before the measured part, in seconds: weir only. Others measure from their start,
    /// and are run once before for a warm-up.
    pub warmup_s: f64,
    /// Time for which the load goes on after it, in seconds: weir only.
    pub cooldown_s: f64,
    /// Sessions per second of an open loop.
    pub rate: Option<f64>,
    /// Connections of a closed loop.
    pub closed: Option<u32>,
    /// Idle connections alongside the load.
    pub idle: u32,
    /// Persistent connections that share the rate.
    pub conns: Option<u32>,
    /// Steps of the load; they set the rate instead.
    pub spike: Option<Spike>,
    /// Begin and end of what happens to the server meanwhile, in seconds from the first bin; a
    /// spike has times of its own.
    pub steps_s: Option<(f64, f64)>,
    /// A log to replay; it sets the rate and the requests instead.
    pub replay: Option<&'a Replay>,
    /// Seconds between the two requests of a session, sent on one connection; replaces the
    /// workload's own sessions.
    pub twice_s: Option<f64>,
    /// Length in milliseconds of the bins in which the outcome is recorded over time.
    pub timeline_ms: Option<u32>,
    /// Source addresses; empty means that the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Prefix of the workload's path: empty, or `/.weir/burn/60`.
    pub prefix: &'a str,
    /// True if replies may be compressed.
    pub gzip: bool,
    /// True if the server speaks TLS.
    pub tls: bool,
    /// The testbed it runs on.
    pub environment: &'a dyn Environment,
    /// Path of the weir binary.
    pub weir: &'a Path,
    /// Address of the server to load.
    pub server: SocketAddr,
    /// Directory for its files.
    pub dir: &'a Path,
    /// Seed for all random choices.
    pub seed: u64,
}

impl LoadRequest<'_> {
    /// Returns the path of the workload's only file, for generators that do not support workloads.
    pub(super) fn path(&self, name: &str) -> Result<String, String> {
        let workload = &self.load.workload;
        let file = workload::file_of(workload)
            .ok_or_else(|| format!("{name} cannot make the sessions of workload {workload}"))?;
        Ok(format!("{}{file}", self.prefix.trim_end_matches('/')))
    }

    /// Rejects orders that only `weir load` can carry out.
    pub(super) fn plain(&self, name: &str) -> Result<(), String> {
        if self.idle > 0 {
            return Err(format!("{name} opens no idle connections beside its load"));
        }
        if self.conns.is_some() {
            return Err(format!("{name} has no connections that share a rate"));
        }
        if self.replay.is_some() {
            return Err(format!("{name} replays no log"));
        }
        if self.tls && !self.load.generator.speaks_tls() {
            return Err(format!("{name} is not used with TLS here: weir load, wrk and h2load are"));
        }
        if self.spike.is_some() || self.timeline_ms.is_some() || self.twice_s.is_some() {
            return Err(format!("{name} has no spikes, no timelines and no sessions of its own"));
        }
        Ok(())
    }

    /// Returns the URL of the workload's only file.
    pub(super) fn url(&self, name: &str) -> Result<String, String> {
        let scheme = if self.tls { "https" } else { "http" };
        Ok(format!("{scheme}://{}{}", self.server, self.path(name)?))
    }

    /// Returns the time bins in which the outcome is recorded, if it is.
    pub(super) fn grid(&self) -> Option<timeline::Grid> {
        Some(timeline::Grid {
            bin_ms: self.timeline_ms?,
            warmup_s: self.warmup_s,
            duration_s: self.duration_s,
            steps_s: self.spike.map_or(self.steps_s, |s| Some((s.before_s, s.before_s + s.for_s))),
        })
    }
}

/// The invocation of a generator.
pub(super) struct Invocation {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// Beginning and end of the measured part, from the start of the generator.
    pub(super) window: (Duration, Duration),
}

/// The output of a generator that has ended.
pub(super) struct GeneratorOutput<'a> {
    pub(super) status: ExitStatus,
    /// Its standard output.
    pub(super) said: String,
    /// The end of its output, in one line.
    pub(super) words: String,
    pub(super) dir: &'a Path,
}

impl GeneratorOutput<'_> {
    /// Returns its standard output, or an error for any exit status but 0.
    pub(super) fn of_success(&self) -> Result<&str, String> {
        match self.status.success() {
            true => Ok(&self.said),
            false => Err(format!("it ended with {}: {}", self.status, self.words)),
        }
    }
}

/// The parameters of a load that are needed to interpret its report.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportContext {
    pub(super) rate: Option<f64>,
    pub(super) arrivals: Option<Arrivals>,
    pub(super) requests: u32,
    pub(super) duration_s: f64,
    pub(super) timeout_s: f64,
    pub(super) grid: Option<timeline::Grid>,
}

/// Returns the result of a closed loop that counts its replies with their `times`.
pub(super) fn of_closed_loop(
    times: Times,
    window_s: f64,
    replies_refused: u64,
    errors: &[(&str, u64)],
) -> LoadResult {
    let replies = times.count;
    let errors = errors.iter().filter(|(_, count)| *count > 0);
    let nothing = (replies == 0).then(|| "nothing was measured".to_owned());
    let times = (replies > 0).then_some(times);
    LoadResult {
        valid: nothing.is_none(),
        reasons: nothing.into_iter().collect(),
        window_s,
        replies_per_s: if window_s > 0.0 { replies as f64 / window_s } else { 0.0 },
        replies,
        replies_refused,
        errors: errors.map(|(kind, count)| ((*kind).to_owned(), *count)).collect(),
        response: times,
        service: times,
        ..LoadResult::default()
    }
}

pub(super) fn installed(name: &str) -> Result<PathBuf, String> {
    let package = match name {
        "ab" => "apache2-utils",
        "h2load" => "nghttp2-client",
        other => other,
    };
    programs::find(name)
        .ok_or_else(|| format!("{name} is not installed: Debian's package {package} has it"))
}

/// Converts seconds to a duration; fails unless they are finite, not negative and in range.
pub(super) fn seconds(value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value).map_err(|_| format!("{value} s is not a length of time"))
}

/// An access log, as passed to a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The log.
    pub log: PathBuf,
    /// Speed, as a multiple of the logged one.
    pub speed: f64,
}

/// A spike, as passed to a load: rates in sessions per second, durations in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spike {
    /// Rate before and after the spike.
    pub base: f64,
    /// Rate during the spike.
    pub height: f64,
    /// Time measured before the spike.
    pub before_s: f64,
    /// Duration of the spike.
    pub for_s: f64,
    /// Time measured after the spike.
    pub after_s: f64,
}

impl Spike {
    /// Returns the arrival law for `weir load`, with arrivals evenly spaced within each step. The
    /// warm-up is part of the first step.
    pub fn law(&self, warmup_s: f64) -> String {
        let Self { base, height, before_s, for_s, after_s } = self;
        let [base, height, before_s, for_s, after_s] =
            [*base, *height, before_s + warmup_s, *for_s, *after_s].map(to_a_millionth);
        format!("steps:{base}x{before_s}s,{height}x{for_s}s,{base}x{after_s}s")
    }
}

/// Rounds to a millionth, to drop digits that come only from the binary representation.
pub(super) fn to_a_millionth(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
