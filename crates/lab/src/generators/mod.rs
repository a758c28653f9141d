//! Load generators: the command line of each for the same load, its measurement window, and its
//! report in the lab's terms.

mod ab;
mod httperf;
mod mix;
mod set;
mod timeline;
mod weir;
mod wrk;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::allow_list::AllowList;
use crate::environment::{Environment, Side};
use crate::experiment::{Generator, LoadSpec, RequestClass};
use crate::plan::Spike;
use crate::process_group::ProcessGroup;
use crate::programs;
use crate::record::LoadResult;
use mix::MeasuredWindow;

/// Grace period for a generator to end after its window and its timeout.
const END_WITHIN: Duration = Duration::from_secs(30);

/// The file to which `weir load` writes a line per request, if these are needed.
const REQUEST_LOG: &str = "each.ndjson";

/// A load to be generated.
pub struct LoadRequest<'a> {
    /// Its specification, except for the varied quantity.
    pub load: &'a LoadSpec,
    /// Measured duration, in seconds.
    pub duration_s: f64,
    /// Warm-up before the measured part, in seconds: weir only. Others measure from their start,
    /// and are run once before for a warm-up.
    pub warmup_s: f64,
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

/// The invocation of a generator.
struct Invocation {
    program: PathBuf,
    arguments: Vec<String>,
    /// Beginning and end of the measured part, from the start of the generator.
    window: (Duration, Duration),
}

/// The output of a generator that has ended.
struct GeneratorOutput<'a> {
    status: ExitStatus,
    /// Its standard output.
    said: String,
    /// The end of its output, in one line.
    words: String,
    dir: &'a Path,
}

type ReadReport = fn(&GeneratorOutput<'_>, &ReportContext) -> Result<LoadResult, String>;

/// The parameters of a load that are needed to interpret its report.
#[derive(Clone, Copy, Debug)]
struct ReportContext {
    rate: Option<f64>,
    requests: u32,
    duration_s: f64,
    timeout_s: f64,
    grid: Option<timeline::Grid>,
}

/// Returns the name and version of a generator. `weir load` has the version of this lab: they are
/// one binary.
///
/// # Errors
/// Returns a sentence if the generator reports no version or is not installed, with the Debian
/// package that provides it.
pub fn version(generator: Generator) -> Result<String, String> {
    let (name, flags) = match generator {
        Generator::Weir => return Ok(format!("weir load {}", env!("CARGO_PKG_VERSION"))),
        // With --version alone, httperf continues and loads port 80 of this machine.
        Generator::Httperf => ("httperf", &["--version", "--help"][..]),
        Generator::Wrk => ("wrk", &["-v"][..]),
        Generator::Ab => ("ab", &["-V"][..]),
    };
    let version = programs::version_of(&installed(name)?, flags);
    let version = version.ok_or_else(|| format!("{name} does not say its version"))?;
    Ok(format!("{name} {version}"))
}

fn installed(name: &str) -> Result<PathBuf, String> {
    let package = if name == "ab" { "apache2-utils" } else { name };
    programs::find(name)
        .ok_or_else(|| format!("{name} is not installed: Debian's package {package} has it"))
}

/// Returns the options that an experiment may pass to a generator.
pub(crate) fn allow_list(generator: Generator) -> &'static AllowList {
    match generator {
        Generator::Weir => &weir::ALLOWED,
        Generator::Httperf => &httperf::ALLOWED,
        Generator::Wrk => &wrk::ALLOWED,
        Generator::Ab => &ab::ALLOWED,
    }
}

/// Returns the allow lists of all generators.
pub(crate) fn allow_lists() -> impl Iterator<Item = AllowList> {
    Generator::ALL.into_iter().map(|generator| *allow_list(generator))
}

/// Starts a load.
///
/// # Errors
/// Returns a sentence if the generator cannot make this load, is not installed, or does not start.
pub fn start(request: &LoadRequest<'_>) -> Result<RunningLoad, String> {
    let generator = request.load.generator;
    let (invocation, read): (Invocation, ReadReport) = match generator {
        Generator::Weir => (weir::invocation(request)?, weir::read),
        Generator::Httperf => (httperf::invocation(request)?, httperf::read),
        Generator::Wrk => (wrk::invocation(request)?, wrk::read),
        Generator::Ab => (ab::invocation(request)?, ab::read),
    };
    mix::write(request)?;
    set::write(request)?;
    let mut command = request.environment.command(Side::Client, invocation.program.as_os_str());
    command.args(&invocation.arguments);
    let group = ProcessGroup::start(request.environment, command, request.dir, "load")?;
    let context = ReportContext {
        rate: request.rate,
        requests: request.load.requests_per_conn.unwrap_or(1).max(1),
        duration_s: request.duration_s,
        timeout_s: request.load.timeout_s,
        grid: request.grid(),
    };
    Ok(RunningLoad {
        group,
        command: shown(&invocation, request),
        generator: version(generator)?,
        window: invocation.window,
        dir: request.dir.to_owned(),
        context,
        read,
        mix: request.rate.map_or_else(Vec::new, |_| request.load.mix.clone()),
        measured: MeasuredWindow::new(request.warmup_s, request.duration_s, request.load.timeout_s),
    })
}

/// Formats the command for the report, without the paths of this run.
fn shown(invocation: &Invocation, request: &LoadRequest<'_>) -> String {
    let program = invocation.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = std::iter::once(program).chain(invocation.arguments.iter().map(|word| {
        let word = word.replace(&request.dir.display().to_string(), "DIR");
        if word.contains([' ', '\\']) { format!("'{word}'") } else { word }
    }));
    words.collect::<Vec<_>>().join(" ")
}

/// A load in progress. Dropping it kills its generator.
pub struct RunningLoad {
    group: ProcessGroup,
    command: String,
    generator: String,
    window: (Duration, Duration),
    dir: PathBuf,
    context: ReportContext,
    read: ReadReport,
    /// Request classes of an open loop, to be evaluated for the requests of `measured`.
    mix: Vec<RequestClass>,
    measured: MeasuredWindow,
}

impl RunningLoad {
    /// Returns the beginning and end of the measured part, from the start of the generator. The
    /// length is exact; the position is known to some tens of milliseconds, the time a process
    /// takes to start.
    pub fn window(&self) -> (Duration, Duration) {
        self.window
    }

    /// Returns the id of the generator's process.
    pub fn pid(&self) -> u32 {
        self.group.pid()
    }

    /// Returns whether the generator has ended.
    pub fn finished(&mut self) -> bool {
        self.group.ended()
    }

    /// Waits for the generator to end, and reads its report.
    ///
    /// # Errors
    /// Returns a sentence if the generator failed, did not end in time, or left an unreadable
    /// report.
    pub fn wait(self) -> Result<LoadResult, String> {
        let Self { group, command, generator, window, dir, context, read, mix, measured } = self;
        let patience = window.1 + Duration::from_secs_f64(context.timeout_s.max(0.0)) + END_WITHIN;
        if !group.ended_within(patience) {
            return Err(format!("{generator} did not end in time: {}", group.last_output()));
        }
        let (said, words) = (group.said(), group.last_output());
        let output = GeneratorOutput { status: group.end()?, said, words, dir: &dir };
        let said = |why| format!("{generator}: {why}");
        let mut result = read(&output, &context).map_err(said)?;
        if !mix.is_empty() {
            result.classes = mix::read(&dir, &mix, measured).map_err(said)?;
        }
        Ok(LoadResult { generator, command, ..result })
    }
}

impl GeneratorOutput<'_> {
    /// Returns an error for any exit status but 0.
    fn ended_well(&self) -> Result<(), String> {
        if self.status.success() {
            return Ok(());
        }
        Err(format!("it ended with {}: {}", self.status, self.words))
    }
}

impl LoadRequest<'_> {
    /// Returns the path of the workload's only file, for generators that do not support workloads.
    fn path(&self, name: &str) -> Result<String, String> {
        let workload = &self.load.workload;
        let file = crate::servers::file_of(workload)
            .ok_or_else(|| format!("{name} cannot make the sessions of workload {workload}"))?;
        Ok(format!("{}{file}", self.prefix.trim_end_matches('/')))
    }

    /// Rejects orders that only `weir load` can carry out.
    fn plain(&self, name: &str) -> Result<(), String> {
        if self.idle > 0 {
            return Err(format!("{name} opens no idle connections beside its load"));
        }
        if self.conns.is_some() {
            return Err(format!("{name} has no connections that share a rate"));
        }
        if self.spike.is_some() || self.timeline_ms.is_some() || self.twice_s.is_some() {
            return Err(format!("{name} has no spikes, no timelines and no sessions of its own"));
        }
        Ok(())
    }

    /// Returns the time bins in which the outcome is recorded, if it is.
    fn grid(&self) -> Option<timeline::Grid> {
        Some(timeline::Grid {
            bin_ms: self.timeline_ms?,
            warmup_s: self.warmup_s,
            duration_s: self.duration_s,
            steps_s: self.spike.map(|spike| (spike.before_s, spike.before_s + spike.for_s)),
        })
    }
}

/// Converts seconds to a duration; fails unless they are finite, not negative and in range.
fn seconds(value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value).map_err(|_| format!("{value} s is not a length of time"))
}

#[cfg(test)]
mod tests;
