//! Runs experiments: builds the testbed, performs the steps that are not on disk yet, records each
//! at once, and takes everything down again. Progress is reported to the caller; nothing is printed
//! here.

mod against;
mod background_load;
mod capacity;
mod day;
mod disturbance;
mod neighbour;
mod point;
mod prepare;
mod probe;
mod resolved_point;
mod rounds;
mod runner;
mod sources;
mod wait;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::experiment::{
    Experiment, Kind, ServerSpec, Sweep, UpstreamKind, UpstreamSpec, WeirSettings,
};
use crate::journal::{self, Journal, Request, Session};
use crate::metrics;
use crate::paper::Paper;
use crate::plan::{self, NamedExperiment, Step, Task};
use crate::programs;
use crate::record::{Failed, Line};
use crate::servers;
use crate::testbed::{Testbed, TestbedOptions};
use crate::time::utc_now;
use crate::validation::allowed_options;
use against::AGAINST;
use rounds::Rounds;
use runner::Runner;

/// Maximum number of attempts at a point whose load was INVALID or that was disturbed: the
/// disturbance may be over.
pub const ATTEMPTS_MAX: usize = 2;

/// Specification of a run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The experiments and their parameters.
    pub request: Request,
    /// The directory of its results.
    pub dir: PathBuf,
    /// The weir executable, used to serve and to load.
    pub weir: PathBuf,
    /// The desired testbed; settings of experiments are added to it.
    pub testbed: TestbedOptions,
    /// The command, for the record.
    pub command: String,
    /// True if options of other programs that are on no allow-list are passed on: the operator
    /// trusts the experiment as much as a program.
    pub allow_any_options: bool,
    /// The server's own check of a command line, from its subcommand on; its error is a
    /// sentence.
    pub check_server: fn(&[String]) -> Result<(), String>,
}

/// Progress of a run.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// The run begins or resumes.
    Begun {
        /// Number of steps already done.
        done: usize,
        /// Total number of steps.
        total: usize,
        /// Estimated time for the remaining steps, seconds.
        left_s: f64,
    },
    /// A warning that readers of the results need.
    Warning(&'a str),
    /// A step begins.
    StepBegun {
        /// Its number, from 1.
        number: usize,
        /// Total number of steps.
        total: usize,
        /// The step.
        step: &'a Step,
        /// Estimated time for this step and those after it, seconds.
        left_s: f64,
    },
    /// A step is done and recorded on disk.
    StepEnded(&'a Line),
}

/// Outcome of a run that could be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every step was done or recorded as failed.
    Complete,
    /// The run was told to stop; running it again resumes here.
    Stopped,
}

/// Returns the experiments of a request, without the servers that were not requested, with those
/// of the build that it is compared with, and with the precision that it asks for.
///
/// # Errors
/// Returns a message if an experiment is invalid or contains none of the requested servers.
pub fn experiments(request: &Request) -> Result<Vec<NamedExperiment>, String> {
    let paper = request.paper_text.as_deref().map(Paper::parse).transpose()?;
    let read = |(name, text): &(String, String)| -> Result<NamedExperiment, String> {
        let mut experiment =
            Experiment::parse(text).map_err(|why| format!("experiment {name}: {why}"))?;
        retain_servers(&mut experiment, |_, id| {
            request.only.is_empty() || request.only.iter().any(|o| o == id)
        })
        .map_err(|why| format!("experiment {name}: {why}"))?;
        if request.against.is_some() {
            against::add_copies(&mut experiment);
        }
        if request.precision.is_some() {
            experiment.sweep.iter_mut().for_each(|sweep| sweep.precision = request.precision);
        }
        experiment.metrics_of_paper =
            paper.as_ref().map_or_else(Vec::new, |paper| paper.metrics_of(name));
        Ok((name.clone(), experiment))
    };
    request.experiments.iter().map(read).collect()
}

/// Rejects requests, made together, that are restricted to servers of which one is in no experiment
/// of theirs.
///
/// # Errors
/// A message: there is no such server, or an experiment cannot be read.
pub fn check_only<'a>(requests: impl IntoIterator<Item = &'a Request>) -> Result<(), String> {
    let (mut only, mut all) = (Vec::new(), Vec::new());
    for request in requests {
        only.clone_from(&request.only);
        all.extend(experiments(request)?);
    }
    known_servers(&only, &all)
}

fn known_servers(only: &[String], experiments: &[NamedExperiment]) -> Result<(), String> {
    let all = || experiments.iter().flat_map(|(_, experiment)| &experiment.server);
    let Some(unknown) = only.iter().find(|id| !all().any(|server| server.id == **id)) else {
        return Ok(());
    };
    let mut ids: Vec<&str> = all().map(|server| server.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    Err(format!("--only: there is no server {unknown}; there are {}", ids.join(", ")))
}

/// Removes servers from the sweeps of an experiment; those used as a reference stay defined.
fn retain_servers(
    experiment: &mut Experiment,
    wanted: impl Fn(&Sweep, &str) -> bool,
) -> Result<(), String> {
    let all: Vec<String> = experiment.server.iter().map(|server| server.id.clone()).collect();
    for sweep in &mut experiment.sweep {
        if sweep.servers.is_empty() {
            sweep.servers.clone_from(&all);
        }
        let mut servers = std::mem::take(&mut sweep.servers);
        servers.retain(|id| wanted(sweep, id));
        sweep.servers = servers;
    }
    experiment.sweep.retain(|sweep| !sweep.servers.is_empty());
    if experiment.sweep.is_empty() {
        return Err(format!("none of its servers is left; it has {}", all.join(", ")));
    }
    let sweeps: BTreeMap<String, Vec<String>> =
        experiment.sweep.iter().map(|one| (one.id.clone(), one.servers.clone())).collect();
    let is_left = |sweep: &String, servers: &mut Vec<String>| {
        let Some(left) = sweeps.get(sweep) else { return false };
        let named = !servers.is_empty();
        servers.retain(|id| left.contains(id));
        !named || !servers.is_empty()
    };
    experiment.figure.retain_mut(|figure| is_left(&figure.sweep, &mut figure.servers));
    experiment.timeline.retain_mut(|figure| is_left(&figure.sweep, &mut figure.servers));
    experiment.scatter.retain_mut(|figure| is_left(&figure.sweep, &mut figure.servers));
    experiment.table.retain_mut(|table| is_left(&table.sweep, &mut table.servers));
    for matrix in &mut experiment.matrix {
        matrix.of.retain(|cells| sweeps.contains_key(&cells.sweep));
    }
    experiment.matrix.retain(|matrix| !matrix.of.is_empty());
    Ok(())
}

/// Runs the request until it is done or `stop` is set.
///
/// # Errors
/// Returns a message if the run cannot start or cannot record its results. Results already recorded
/// are kept.
pub fn run(
    request: &RunRequest,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<End, String> {
    let mut experiments = experiments(&request.request)?;
    if !request.allow_any_options {
        allowed(&experiments)?;
    }
    supported(&experiments, request.check_server)?;
    let (programs, missing) = programs(&mut experiments, request)?;
    let mut testbed = request.testbed.clone();
    settings(&experiments, &mut testbed)?;
    let prepared = prepare::prepare(&experiments, stop);
    if prepared.is_err() && stop.load(Ordering::Relaxed) {
        return stopped_before_a_step(request);
    }
    prepared?;
    let mut testbed = Testbed::build(&testbed, &request.weir)?;
    // Opened last, so that a rejected request leaves no directory behind.
    let mut journal = Journal::open(&request.dir, &request.request)?;
    let description = testbed.description().clone();
    missing.iter().for_each(|why| tell(Event::Warning(why)));
    description.warnings.iter().for_each(|why| tell(Event::Warning(why)));
    journal.set_up.sessions.push(Session {
        began: utc_now(),
        ended: None,
        command: request.command.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: programs::build_of(&request.weir),
        inputs: Some(inputs(&request.request)),
        machine: crate::machine::machine(),
        testbed: description,
        programs,
        missing,
    });
    journal.set_up.complete = false;
    journal.keep_set_up()?;
    let end = all_steps(request, &experiments, &mut journal, &mut testbed, (stop, tell));
    drop(testbed);
    let tidied = journal.tidy();
    if let Some(session) = journal.set_up.sessions.last_mut() {
        session.ended = Some(utc_now());
    }
    journal.set_up.complete = end == Ok(End::Complete);
    journal.keep_set_up()?;
    tidied.and(end)
}

/// Ends a run that was told to stop before it had a testbed. It has its directory all the same, by
/// which it is found when it is to go on.
fn stopped_before_a_step(request: &RunRequest) -> Result<End, String> {
    let mut journal = Journal::open(&request.dir, &request.request)?;
    journal.set_up.complete = false;
    journal.keep_set_up()?;
    Ok(End::Stopped)
}

/// Returns the checksums of the files that a run is of, besides the programs.
fn inputs(request: &Request) -> Vec<(String, String)> {
    let files = [(AGAINST, &request.against), ("access log", &request.log)];
    let sum = |(name, path): (&str, &Option<PathBuf>)| {
        Some((name.to_owned(), programs::build_of(path.as_ref()?)?))
    };
    files.into_iter().filter_map(sum).collect()
}

/// Rejects experiments with options that need the operator's permission.
fn allowed(experiments: &[NamedExperiment]) -> Result<(), String> {
    experiments.iter().try_for_each(|(name, experiment)| {
        allowed_options::check(experiment).map_err(|why| format!("experiment {name}: {why}"))
    })
}

/// Rejects experiments with a `weir serve` whose architecture cannot do what it is told, in the
/// server's own words. Other servers that do not start are failed points.
fn supported(
    experiments: &[NamedExperiment],
    check: fn(&[String]) -> Result<(), String>,
) -> Result<(), String> {
    for (name, experiment) in experiments {
        let chosen = |server: &&ServerSpec| server.weir().is_some_and(WeirSettings::has_arch);
        for server in experiment.server.iter().filter(chosen) {
            let Some(words) = servers::command_line(server) else { continue };
            check(&words)
                .map_err(|why| format!("experiment {name}: server {}: {why}", server.id))?;
        }
    }
    Ok(())
}

/// Names of programs with their versions.
type Programs = Vec<(String, String)>;

/// Returns the programs of the servers with their versions, and those missing, whose servers are
/// left out.
fn programs(
    experiments: &mut [NamedExperiment],
    request: &RunRequest,
) -> Result<(Programs, Vec<String>), String> {
    let mut kinds: Vec<Kind> = experiments
        .iter()
        .flat_map(|(_, experiment)| experiment.server.iter().map(ServerSpec::kind))
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let (mut found, mut missing, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for kind in kinds {
        match servers::version(kind, &request.weir) {
            Ok(version) => found.push((kind.name().to_owned(), version)),
            Err(why) => {
                missing.push(format!("{why}: its servers are left out"));
                gone.push(kind);
            }
        }
    }
    if let Some(build) = &request.request.against {
        found.push((AGAINST.to_owned(), servers::version(Kind::Weir, build)?));
    }
    let lost = applications(experiments, &mut found, &mut missing);
    for (name, experiment) in experiments.iter_mut() {
        let (there, without) = able(&experiment.server, &gone, servers::cannot);
        missing.extend(without.into_iter().map(|why| format!("experiment {name}: {why}")));
        let has_upstream = |sweep: &Sweep| {
            sweep.upstream.as_ref().is_none_or(|upstream| !lost.contains(&upstream.kind))
        };
        retain_servers(experiment, |sweep, id| {
            has_upstream(sweep) && there.iter().any(|there| there == id)
        })
        .map_err(|why| format!("experiment {name}: {why}; {}", missing.join("; ")))?;
    }
    Ok((found, missing))
}

/// Adds the versions of the applications behind servers, and a sentence for each that is missing;
/// returns the missing ones, whose sweeps are left out.
fn applications(
    experiments: &[NamedExperiment],
    found: &mut Programs,
    missing: &mut Vec<String>,
) -> Vec<UpstreamKind> {
    let used = |kind: &UpstreamKind| {
        let mut sweeps = experiments.iter().flat_map(|(_, experiment)| &experiment.sweep);
        sweeps.any(|sweep| {
            sweep.upstream.as_ref().is_some_and(|one: &UpstreamSpec| one.kind == *kind)
        })
    };
    let mut lost = Vec::new();
    for kind in UpstreamKind::ALL.into_iter().filter(used) {
        match servers::application_version(kind) {
            Ok(version) => found.extend(version.map(|version| (kind.name().to_owned(), version))),
            Err(why) => {
                missing.push(format!("{why}: what stands before it is left out"));
                lost.push(kind);
            }
        }
    }
    lost
}

/// Returns the ids of the servers whose programs are not among the missing ones and which can do
/// what is asked of them, and a sentence for each that cannot and is left out.
fn able(
    servers: &[ServerSpec],
    gone: &[Kind],
    cannot: fn(&ServerSpec) -> Option<String>,
) -> (Vec<String>, Vec<String>) {
    let (mut there, mut without) = (Vec::new(), Vec::new());
    for server in servers.iter().filter(|server| !gone.contains(&server.kind())) {
        match cannot(server) {
            None => there.push(server.id.clone()),
            Some(why) => without.push(format!("{why}: server {} is left out", server.id)),
        }
    }
    (there, without)
}

/// Adds the settings of the experiments to the options: a run has one testbed.
fn settings(experiments: &[NamedExperiment], testbed: &mut TestbedOptions) -> Result<(), String> {
    for (name, experiment) in experiments {
        for (setting, &value) in &experiment.sysctl {
            let before = testbed.sysctl.insert(setting.clone(), value);
            if before.is_some_and(|before| before != value) {
                return Err(format!(
                    "experiment {name} wants another {setting} than those before it; run it alone"
                ));
            }
        }
    }
    Ok(())
}

/// Returns about how long the planned steps take that a folder has not measured yet, in seconds;
/// all of them, if it holds no such run.
///
/// # Errors
/// Returns a message if an experiment is invalid.
pub fn left_s(dir: &Path, request: &Request) -> Result<f64, String> {
    let experiments = experiments(request)?;
    let found = journal::read(dir).ok().filter(|(set_up, _)| set_up.request == *request);
    let lines = found.map_or_else(Vec::new, |(_, lines)| lines);
    let steps = plan::steps(&experiments, request.scale, request.seed);
    let left = steps.iter().filter(|step| !is_done(&lines, &experiments, step));
    Ok(left.map(|step| step.estimate_s).sum())
}

fn all_steps(
    request: &RunRequest,
    experiments: &[NamedExperiment],
    journal: &mut Journal,
    testbed: &mut Testbed,
    (stop, tell): (&AtomicBool, &mut dyn FnMut(Event<'_>)),
) -> Result<End, String> {
    let steps = plan::steps(experiments, request.request.scale, request.request.seed);
    let (done, mut left): (Vec<Step>, Vec<Step>) =
        steps.into_iter().partition(|step| is_done(&journal.lines, experiments, step));
    let mut total = done.len() + left.len();
    let mut rounds = Rounds::new(experiments, &request.request)?;
    let programs = journal.set_up.sessions.last().map_or(&[][..], |session| &session.programs);
    let mut runner = Runner::new(&request.weir, &request.request, journal.work()?, programs);
    let mut pace = Pace::default();
    tell(Event::Begun { done: done.len(), total, left_s: pace.left_s(&left) });
    let mut number = done.len();
    left.reverse();
    loop {
        let Some(step) = left.pop() else {
            let steps = rounds.next(experiments, &journal.lines);
            if steps.is_empty() {
                return Ok(End::Complete);
            }
            total += steps.len();
            left = steps
                .into_iter()
                .rev()
                .filter(|step| !is_done(&journal.lines, experiments, step))
                .collect();
            number = total - left.len();
            continue;
        };
        if stop.load(Ordering::Relaxed) {
            return Ok(End::Stopped);
        }
        testbed.check_alive()?;
        number += 1;
        let left_s = pace.left_s(&left) + pace.of(&step);
        tell(Event::StepBegun { number, total, step: &step, left_s });
        let began = Instant::now();
        let (_, experiment) = &experiments[step.experiment];
        let measured = runner.measure(&*testbed, experiment, &step, &journal.lines, stop);
        if stop.load(Ordering::Relaxed) {
            // An interrupted step is not recorded.
            return Ok(End::Stopped);
        }
        let line =
            measured.unwrap_or_else(|why| Line::Failed(Failed::of(step.task, &step.key, why)));
        pace.learn(began.elapsed().as_secs_f64(), &step);
        tell(Event::StepEnded(&line));
        let is_point = matches!(line, Line::Point(_));
        journal.keep(line)?;
        if is_point && !is_done(&journal.lines, experiments, &step) {
            number -= 1;
            left.push(step);
        }
    }
}

fn is_done(lines: &[Line], experiments: &[NamedExperiment], step: &Step) -> bool {
    match step.task {
        Task::Capacity => journal::has_capacity(lines, &step.key),
        Task::Point => {
            let (_, experiment) = &experiments[step.experiment];
            let mut wanted = metrics::wanted(experiment.metrics());
            // A day is too long for the idle counter, and does without it.
            if experiment.sweep[step.sweep].day.is_some() {
                (wanted.server_cores, wanted.client_cores) = (false, false);
            }
            journal::has_point(lines, &step.key, wanted, ATTEMPTS_MAX)
        }
        Task::Calls => journal::has_calls(lines, &step.key),
    }
}

/// Ratio of the time steps take to their estimates.
#[derive(Default)]
struct Pace {
    took_s: f64,
    estimated_s: f64,
}

impl Pace {
    fn learn(&mut self, took_s: f64, step: &Step) {
        self.took_s += took_s;
        self.estimated_s += step.estimate_s;
    }

    fn of(&self, step: &Step) -> f64 {
        let factor = if self.estimated_s > 0.0 { self.took_s / self.estimated_s } else { 1.0 };
        step.estimate_s * factor
    }

    fn left_s(&self, steps: &[Step]) -> f64 {
        steps.iter().map(|step| self.of(step)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Point;

    const TEXT: &str = "title = \"t\"\nquestion = \"q?\"\n\
        [[server]]\nid = \"a\"\nlabel = \"A\"\nkind = \"lighttpd\"\ngzip = true\n\
        [[server]]\nid = \"b\"\nlabel = \"B\"\nkind = \"lighttpd\"\n\
        [[server]]\nid = \"c\"\nlabel = \"C\"\nkind = \"nginx\"\n\
        [[sweep]]\nid = \"s\"\nx = \"rate\"\nvalues = [1]\n";

    #[test]
    fn what_is_left_of_a_run_is_without_what_was_measured() {
        let dir = tempfile::tempdir().unwrap();
        let request = Request::of("t", vec![("t".to_owned(), TEXT.to_owned())]);
        let all_s = left_s(dir.path(), &request).unwrap();
        let steps = plan::steps(&experiments(&request).unwrap(), 1.0, 1);
        let mut journal = Journal::open(dir.path(), &request).unwrap();
        journal.keep_set_up().unwrap();
        assert!((left_s(dir.path(), &request).unwrap() - all_s).abs() < 1e-9);
        let step = steps.iter().find(|step| step.task == Task::Point).unwrap();
        let mut point = Point { key: step.key.clone(), ..Point::default() };
        point.load.valid = true;
        journal.keep(Line::Point(Box::new(point))).unwrap();
        let left_s_now = left_s(dir.path(), &request).unwrap();
        assert!((all_s - left_s_now - step.estimate_s).abs() < 1e-9, "{all_s} {left_s_now}");
        // Of another request nothing was measured.
        let other = Request { seed: 2, ..request };
        assert!((left_s(dir.path(), &other).unwrap() - all_s).abs() < 1e-9);
    }

    #[test]
    fn core_time_and_times_are_wanted_where_they_are_shown_or_claimed() {
        let wanted = |text: &str, paper: Option<&str>| {
            let mut request = Request::of("t", vec![("p/t".to_owned(), text.to_owned())]);
            request.paper_text = paper.map(str::to_owned);
            metrics::wanted(experiments(&request).unwrap()[0].1.metrics())
        };
        let wants = |text: &str, paper: Option<&str>| wanted(text, paper).server_cores;
        let of_paper = format!("paper = \"p\"\n{TEXT}");
        let claim = |experiment: &str, metric: &str| {
            format!(
                "title = \"T\"\nauthors = \"A\"\nyear = 2004\nset-up = \"s\"\n[[claim]]\n\
                 id = \"c\"\nfigure = \"f\"\ntext = \"t\"\nwhere = \"w\"\nabove = 1\n\
                 experiment = \"{experiment}\"\nsweep = \"s\"\n\
                 top = {{ metric = \"{metric}\", server = \"a\", at = 1 }}\n"
            )
        };
        assert!(!wants(TEXT, None) && !wants(&of_paper, None));
        assert!(!wants(&of_paper, Some(&claim("p/t", "reply_rate"))));
        assert!(!wants(&of_paper, Some(&claim("p/other", "core_busy"))));
        assert!(wants(&of_paper, Some(&claim("p/t", "core_busy"))));
        let figure = "[[figure]]\nid = \"f\"\ntitle = \"F\"\nsweep = \"s\"\n";
        assert!(!wants(&format!("{TEXT}{figure}y = [\"reply_rate\"]"), None));
        assert!(wants(&format!("{TEXT}{figure}y = [\"core_us_per_reply\"]"), None));
        let times = format!("{TEXT}{figure}y = [\"response_p99\"]");
        assert!(wanted(&times, None).times && !wanted(TEXT, None).times);
        assert!(wanted(&of_paper, Some(&claim("p/t", "response_p99"))).times);
        assert!(!wanted(&of_paper, Some(&claim("p/t", "reply_rate"))).times);
        let spike = "timeline-ms = 100\n[[timeline]]\nid = \"s\"\ntitle = \"S\"\nsweep = \"s\"\n";
        assert!(wanted(&format!("{TEXT}{spike}"), None).times, "response times are drawn");
    }

    #[test]
    fn a_server_that_no_experiment_has_is_refused_beside_one_that_is_there() {
        let named = [("t".to_owned(), Experiment::parse(TEXT).unwrap())];
        let only = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(known_servers(&only(&["a", "c"]), &named), Ok(()));
        let refused = known_servers(&only(&["a", "ngnix"]), &named).unwrap_err();
        assert_eq!(refused, "--only: there is no server ngnix; there are a, b, c");
    }

    #[test]
    fn figures_of_samples_are_without_the_servers_that_are_left_out() {
        let sweep = |id: &str, servers: &str| {
            format!(
                "[[sweep]]\nid = \"{id}\"\nx = \"rate\"\nvalues = [1]\nday = {{}}\n\
                 load = {{ workload = \"day\", warmup-s = 0 }}\nservers = {servers}\n"
            )
        };
        let figure = |id: &str, sweep: &str, servers: &str| {
            format!(
                "[[scatter]]\nid = \"{id}\"\ntitle = \"{id}\"\nsweep = \"{sweep}\"\n\
                 servers = {servers}\n"
            )
        };
        let [both, second] = ["[\"a\", \"b\"]", "[\"b\"]"];
        let text = [
            "title = \"t\"\nquestion = \"q?\"\n".to_owned(),
            "[[server]]\nid = \"a\"\nlabel = \"A\"\nkind = \"weir\"\n".to_owned(),
            "[[server]]\nid = \"b\"\nlabel = \"B\"\nkind = \"weir\"\n".to_owned(),
            sweep("s", both) + &sweep("without", second),
            figure("kept", "s", both) + &figure("empty", "s", second),
            figure("gone", "without", "[]"),
        ];
        let mut request = Request::of("t", vec![("t".to_owned(), text.concat())]);
        request.only = vec!["a".to_owned()];
        let left = experiments(&request).unwrap().remove(0).1.scatter;
        let left: Vec<_> = left.into_iter().map(|figure| (figure.id, figure.servers)).collect();
        assert_eq!(left, [("kept".to_owned(), vec!["a".to_owned()])]);
    }

    #[test]
    fn a_server_that_cannot_do_what_is_asked_is_left_out_once_with_the_package() {
        let servers = Experiment::parse(TEXT).unwrap().server;
        let cannot = |server: &ServerSpec| server.gzip().then(|| "no module: package m".to_owned());
        let (there, without) = able(&servers, &[Kind::Nginx], cannot);
        assert_eq!(there, ["b"]);
        assert_eq!(without, ["no module: package m: server a is left out"]);
    }
}
