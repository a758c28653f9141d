//! Load generators: how each is told the same load, when it measures, and what its own report
//! means in the lab's terms. Nothing here serves or judges a server.

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
use crate::child::Group;
use crate::experiment::{Class, Generator, LoadSpec};
use crate::ground::{Ground, Side};
use crate::plan::Spike;
use crate::programs;
use crate::record::LoadResult;
use mix::Stretch;

/// How long after what it measures a generator may take, beside its timeout.
const END_WITHIN: Duration = Duration::from_secs(30);

/// The file in which `weir load` has a line for each request, where these are looked at.
const EACH: &str = "each.ndjson";

/// A load to be made.
pub struct Order<'a> {
    /// What of it does not vary.
    pub load: &'a LoadSpec,
    /// How long is measured, seconds.
    pub duration_s: f64,
    /// How long, before that, is not: weir only. Others measure from their start.
    pub warmup_s: f64,
    /// Sessions a second, in an open loop.
    pub rate: Option<f64>,
    /// Connections of a closed loop.
    pub closed: Option<u32>,
    /// Idle connections beside the load.
    pub idle: u32,
    /// Persistent connections that share the rate.
    pub conns: Option<u32>,
    /// Steps of the load; the rate is then theirs.
    pub spike: Option<Spike>,
    /// Sessions of two requests, so many seconds apart on one connection, whatever the workload's
    /// are.
    pub twice_s: Option<f64>,
    /// The length of the bins in which what came of it is kept, milliseconds.
    pub timeline_ms: Option<u32>,
    /// The addresses it comes from; none means that the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// What comes before the workload's path: nothing, or `/.weir/burn/60`.
    pub prefix: &'a str,
    /// Whether replies may be compressed.
    pub gzip: bool,
    /// Where it runs.
    pub ground: &'a dyn Ground,
    /// The binary of weir.
    pub weir: &'a Path,
    /// Whom to load.
    pub server: SocketAddr,
    /// A directory for what it writes.
    pub dir: &'a Path,
    /// What all chance is drawn from.
    pub seed: u64,
}

/// How a generator is run.
struct Recipe {
    program: PathBuf,
    arguments: Vec<String>,
    /// From its start to the beginning and to the end of what is measured.
    window: (Duration, Duration),
}

/// What a generator left when it ended.
struct Left<'a> {
    status: ExitStatus,
    /// What it printed to standard output.
    said: String,
    /// The end of what it printed, in one line.
    words: String,
    dir: &'a Path,
}

type Read = fn(&Left<'_>, &Asked) -> Result<LoadResult, String>;

/// What a report is read against.
#[derive(Clone, Copy, Debug)]
struct Asked {
    rate: Option<f64>,
    requests: u32,
    duration_s: f64,
    timeout_s: f64,
    grid: Option<timeline::Grid>,
}

/// Name and version of a generator. That of weir is the version of this lab: it is one binary.
///
/// # Errors
/// A sentence: it is not installed, and the Debian package that has it.
pub fn version(generator: Generator) -> Result<String, String> {
    let (name, flags) = match generator {
        Generator::Weir => return Ok(format!("weir load {}", env!("CARGO_PKG_VERSION"))),
        // With --version alone, httperf goes on and loads this machine's port 80.
        Generator::Httperf => ("httperf", &["--version", "--help"][..]),
        Generator::Wrk => ("wrk", &["-v"][..]),
    };
    let version = programs::version_of(&installed(name)?, flags);
    let version = version.ok_or_else(|| format!("{name} does not say its version"))?;
    Ok(format!("{name} {version}"))
}

fn installed(name: &str) -> Result<PathBuf, String> {
    programs::find(name)
        .ok_or_else(|| format!("{name} is not installed: Debian's package {name} has it"))
}

/// The options that an experiment may pass to a generator.
pub(crate) fn allow_list(generator: Generator) -> &'static AllowList {
    match generator {
        Generator::Weir => &weir::ALLOWED,
        Generator::Httperf => &httperf::ALLOWED,
        Generator::Wrk => &wrk::ALLOWED,
    }
}

/// Those of all generators.
pub(crate) fn allow_lists() -> impl Iterator<Item = AllowList> {
    Generator::ALL.into_iter().map(|generator| *allow_list(generator))
}

/// Starts a load.
///
/// # Errors
/// A sentence: the generator cannot make this load, is not installed, or does not start.
pub fn start(order: &Order<'_>) -> Result<RunningLoad, String> {
    let generator = order.load.generator;
    let (recipe, read): (Recipe, Read) = match generator {
        Generator::Weir => (weir::recipe(order)?, weir::read),
        Generator::Httperf => (httperf::recipe(order)?, httperf::read),
        Generator::Wrk => (wrk::recipe(order)?, wrk::read),
    };
    mix::write(order)?;
    set::write(order)?;
    let mut command = order.ground.command(Side::Client, recipe.program.as_os_str());
    command.args(&recipe.arguments);
    let group = Group::start(order.ground, command, order.dir, "load")?;
    let asked = Asked {
        rate: order.rate,
        requests: order.load.requests_per_conn.unwrap_or(1).max(1),
        duration_s: order.duration_s,
        timeout_s: order.load.timeout_s,
        grid: order.grid(),
    };
    Ok(RunningLoad {
        group,
        command: shown(&recipe, order),
        generator: version(generator)?,
        window: recipe.window,
        dir: order.dir.to_owned(),
        asked,
        read,
        mix: order.rate.map_or_else(Vec::new, |_| order.load.mix.clone()),
        stretch: Stretch::new(order.warmup_s, order.duration_s, order.load.timeout_s),
    })
}

/// The command for the report, without the paths of this run.
fn shown(recipe: &Recipe, order: &Order<'_>) -> String {
    let program = recipe.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = std::iter::once(program).chain(recipe.arguments.iter().map(|word| {
        let word = word.replace(&order.dir.display().to_string(), "DIR");
        if word.contains([' ', '\\']) { format!("'{word}'") } else { word }
    }));
    words.collect::<Vec<_>>().join(" ")
}

/// A load that goes on. Dropping it kills its generator.
pub struct RunningLoad {
    group: Group,
    command: String,
    generator: String,
    window: (Duration, Duration),
    dir: PathBuf,
    asked: Asked,
    read: Read,
    /// What is read of it besides, of an open loop, and of which of its requests.
    mix: Vec<Class>,
    stretch: Stretch,
}

impl RunningLoad {
    /// From the start of the generator to the beginning and to the end of what is measured. The
    /// length is exact; where it lies is known to some tens of milliseconds, which a process takes
    /// to begin.
    pub fn window(&self) -> (Duration, Duration) {
        self.window
    }

    /// Whether the generator has ended.
    pub fn finished(&mut self) -> bool {
        self.group.ended()
    }

    /// Waits for the end, and reads what the generator reports.
    ///
    /// # Errors
    /// A sentence: it refused, did not end, or left a report that cannot be read.
    pub fn wait(self) -> Result<LoadResult, String> {
        let Self { group, command, generator, window, dir, asked, read, mix, stretch } = self;
        let patience = window.1 + Duration::from_secs_f64(asked.timeout_s.max(0.0)) + END_WITHIN;
        if !group.ended_within(patience) {
            return Err(format!("{generator} did not end in time: {}", group.last_words()));
        }
        let (said, words) = (group.said(), group.last_words());
        let left = Left { status: group.end()?, said, words, dir: &dir };
        let said = |why| format!("{generator}: {why}");
        let mut result = read(&left, &asked).map_err(said)?;
        if !mix.is_empty() {
            result.classes = mix::read(&dir, &mix, stretch).map_err(said)?;
        }
        Ok(LoadResult { generator, command, ..result })
    }
}

impl Left<'_> {
    /// Refuses what ended with another code than 0.
    fn ended_well(&self) -> Result<(), String> {
        if self.status.success() {
            return Ok(());
        }
        Err(format!("it ended with {}: {}", self.status, self.words))
    }
}

impl Order<'_> {
    /// The path of the one file that is asked for, for generators that know no workload.
    fn path(&self, name: &str) -> Result<String, String> {
        let workload = &self.load.workload;
        let file = crate::servers::file_of(workload)
            .ok_or_else(|| format!("{name} cannot make the sessions of workload {workload}"))?;
        Ok(format!("{}{file}", self.prefix.trim_end_matches('/')))
    }

    /// Refuses what only `weir load` can do.
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

    /// How what comes of it is folded along time.
    fn grid(&self) -> Option<timeline::Grid> {
        Some(timeline::Grid {
            bin_ms: self.timeline_ms?,
            warmup_s: self.warmup_s,
            duration_s: self.duration_s,
            steps_s: self.spike.map(|spike| (spike.before_s, spike.before_s + spike.for_s)),
        })
    }
}

/// A number of seconds, which must be one that a run can take.
fn seconds(value: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value).map_err(|_| format!("{value} s is not a length of time"))
}

#[cfg(test)]
mod tests;
