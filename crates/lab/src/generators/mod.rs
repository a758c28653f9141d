//! Load generators: the command line of each for the same load, its measurement window, and its
//! report in the lab's terms.

mod ab;
mod h2load;
mod httperf;
mod mix;
mod request;
mod set;
mod timeline;
mod weir;
mod wrk;

use std::path::PathBuf;
use std::time::Duration;

use crate::allow_list::AllowList;
use crate::environment::Side;
use crate::experiment::{Generator, RequestClass};
use crate::process_group::ProcessGroup;
use crate::programs;
use crate::record::LoadResult;
use mix::MeasuredWindow;
use request::{GeneratorOutput, Invocation, ReportContext, installed};

pub use request::{LoadRequest, Replay, Spike};
pub use weir::INVALID;

/// Grace period for a generator to end after its window and its timeout.
const END_WITHIN: Duration = Duration::from_secs(30);

type ReadReport = fn(&GeneratorOutput<'_>, &ReportContext) -> Result<LoadResult, String>;

/// Returns the name and version of a generator. `weir load` has the version of this lab: they are
/// one binary.
///
/// # Errors
/// Returns a sentence if the generator reports no version or is not installed, with the Debian
/// package that provides it.
pub fn version(generator: Generator) -> Result<String, String> {
    let (name, flags) = match generator {
        Generator::Weir | Generator::Packet => {
            return Ok(format!("weir load {}", env!("CARGO_PKG_VERSION")));
        }
        // With --version alone, httperf continues and loads port 80 of this machine.
        Generator::Httperf => ("httperf", &["--version", "--help"][..]),
        Generator::Wrk => ("wrk", &["-v"][..]),
        Generator::Ab => ("ab", &["-V"][..]),
        Generator::H2load => ("h2load", &["--version"][..]),
    };
    let version = programs::version_of(&installed(name)?, flags);
    let version = version.ok_or_else(|| format!("{name} does not say its version"))?;
    Ok(format!("{name} {version}"))
}

/// Returns the options that an experiment may pass to a generator.
pub(crate) fn allow_list(generator: Generator) -> &'static AllowList {
    match generator {
        Generator::Weir | Generator::Packet => &weir::ALLOWED,
        Generator::Httperf => &httperf::ALLOWED,
        Generator::Wrk => &wrk::ALLOWED,
        Generator::Ab => &ab::ALLOWED,
        Generator::H2load => &h2load::ALLOWED,
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
        Generator::Weir | Generator::Packet => (weir::invocation(request)?, weir::read),
        Generator::Httperf => (httperf::invocation(request)?, |output, context| {
            httperf::result(output.of_success()?, context)
        }),
        Generator::Wrk => {
            (wrk::invocation(request)?, |output, _| wrk::result(output.of_success()?))
        }
        Generator::Ab => (ab::invocation(request)?, |output, _| ab::result(output.of_success()?)),
        Generator::H2load => (h2load::invocation(request)?, |output, context| {
            h2load::result(output.of_success()?, context)
        }),
    };
    let mut command = request.environment.command(Side::Client, invocation.program.as_os_str());
    command.args(&invocation.arguments);
    let group = ProcessGroup::start(request.environment, command, request.dir, "load")?;
    let context = ReportContext {
        rate: request.rate,
        arrivals: request.load.arrivals,
        requests: request.load.requests_per_conn.map_or(1, |count| *count),
        duration_s: request.duration_s,
        timeout_s: *request.load.timeout_s,
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
        measured: MeasuredWindow::new(
            request.warmup_s,
            request.duration_s,
            *request.load.timeout_s,
        ),
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
        let (said, words) = (group.stdout(), group.last_output());
        let output = GeneratorOutput { status: group.end()?, said, words, dir: &dir };
        let said = |why| format!("{generator}: {why}");
        let mut result = read(&output, &context).map_err(said)?;
        if !mix.is_empty() {
            result.classes = mix::read(&dir, &mix, measured).map_err(said)?;
        }
        Ok(LoadResult { generator, command, ..result })
    }
}

#[cfg(test)]
mod tests;
