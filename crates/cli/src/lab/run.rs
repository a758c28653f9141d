//! A run of experiments: its results folder, its end, and its summary.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_lab::catalogue::{self, Entry};
use weir_lab::experiment::Precision;
use weir_lab::findings::{Cause, Chapter, Findings, Verdict};
use weir_lab::journal::{self, Request};
use weir_lab::run::{self, End, RunRequest};
use weir_lab::testbed::{RequestedMode, TestbedOptions};
use weir_lab::{results, time};

use super::options::RunOptions;
use super::progress::Progress;
use crate::print::{print_text, say};
use crate::signals::Stop;

/// Parent folder of runs, unless another is given.
pub(super) const RESULTS: &str = "results";

/// Exit code of a run that was stopped.
const STOPPED: u8 = 1;

/// Exit code of a run all of whose points failed or are INVALID, like that of an INVALID load.
const NOTHING_MEASURED: u8 = 3;

/// Runs an experiment.
pub(super) fn one(name: &str, options: &RunOptions) -> Result<ExitCode, String> {
    let entry = catalogue::one(name)?;
    let request = request(entry.id.clone(), None, vec![entry], options)?;
    run(request, options)
}

/// Makes the request for a run of these experiments.
pub(super) fn request(
    name: String,
    paper: Option<&str>,
    entries: Vec<Entry>,
    options: &RunOptions,
) -> Result<Request, String> {
    let found = |file: &PathBuf| {
        file.canonicalize().map_err(|error| format!("{}: {error}", file.display()))
    };
    let against = options.against.as_ref().map(found).transpose()?;
    let log = options.log.as_ref().map(found).transpose()?;
    // An experiment by itself is judged by its paper's claims too.
    let paper = paper
        .map(str::to_owned)
        .or_else(|| entries.first().and_then(|entry| entry.experiment.paper.clone()));
    let precise = |percent| Precision::new(percent, options.max_rounds);
    Ok(Request {
        name,
        paper_text: paper.as_deref().and_then(catalogue::paper_text).map(str::to_owned),
        paper,
        experiments: entries.into_iter().map(|entry| (entry.id, entry.text)).collect(),
        scale: options.scale,
        seed: options.seed,
        only: options.only.clone(),
        against,
        log,
        precision: options.precision.map(precise).transpose()?,
    })
}

/// Runs what is requested in the folder that the options name, or in one made for it.
pub(super) fn run(request: Request, options: &RunOptions) -> Result<ExitCode, String> {
    run::check_only([&request])?;
    let dir = match &options.out {
        Some(dir) => dir.clone(),
        None => folder(Path::new(RESULTS), &request),
    };
    let stop = Stop::listen()?;
    let (end, findings) = run_in(&dir, request, options, &stop)?;
    match end {
        End::Complete => {
            print_text(&summary(&findings, &dir))?;
            Ok(complete([&findings]))
        }
        End::Stopped => stopped(&dir),
    }
}

/// Returns the exit code of runs that are complete; says which of them have measured nothing.
pub(super) fn complete<'a>(runs: impl IntoIterator<Item = &'a Findings>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for findings in runs {
        if let Some(why) = findings.nothing_measured() {
            say(&format!("{}: {why}", findings.name));
            code = NOTHING_MEASURED.into();
        }
    }
    code
}

/// Says that a run was stopped and can go on.
pub(super) fn stopped(dir: &Path) -> Result<ExitCode, String> {
    print_text(&format!(
        "Stopped. What was measured is in {}; the same command goes on from there.\n",
        dir.display()
    ))?;
    Ok(ExitCode::from(STOPPED))
}

/// Runs what is requested in a folder, and draws its report: of what was measured before a failure
/// too.
pub(super) fn run_in(
    dir: &Path,
    request: Request,
    options: &RunOptions,
    stop: &Stop,
) -> Result<(End, Findings), String> {
    let weir = std::env::current_exe().map_err(|error| format!("cannot find myself: {error}"))?;
    let list = |cpus: &Option<crate::options::CpuList>| cpus.as_ref().map(|list| list.0.clone());
    let request = RunRequest {
        request,
        dir: dir.to_owned(),
        weir,
        testbed: TestbedOptions {
            mode: if options.loopback { RequestedMode::Loopback } else { RequestedMode::Auto },
            server_cpus: list(&options.server_cpus),
            client_cpus: list(&options.client_cpus),
            client_addresses: options.client_addresses,
            ..TestbedOptions::default()
        },
        command: command(),
        allow_any_options: options.allow_any_options,
        check_server: crate::serve::check,
    };
    let mut progress = Progress::new(options.quiet, dir);
    let end = run::run(&request, stop.flag(), &mut |event| progress.tell(&event));
    let findings = results::draw(dir);
    Ok((end?, findings?))
}

/// Returns the command in a form that can be run again, wherever this program is installed.
fn command() -> String {
    std::iter::once("weir".to_owned()).chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" ")
}

/// Returns the folder for a request's results: that of an unfinished run of the same request,
/// otherwise a new one with today's date.
fn folder(results: &Path, request: &Request) -> PathBuf {
    let name = request.name.replace('/', "-");
    let mut unfinished: Vec<PathBuf> = std::fs::read_dir(results)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            journal::read(path)
                .is_ok_and(|(set_up, _)| !set_up.complete && set_up.request == *request)
        })
        .collect();
    unfinished.sort();
    if let Some(found) = unfinished.pop() {
        return found;
    }
    unused(&results.join(format!("{}-{name}", time::utc_today())))
}

/// Returns this path, or with the first number after it that makes it one of nothing.
pub(super) fn unused(first: &Path) -> PathBuf {
    let others = (2..).map(|number| PathBuf::from(format!("{}-{number}", first.display())));
    let mut all = std::iter::once(first.to_owned()).chain(others);
    all.find(|path| !path.exists()).unwrap_or_else(|| first.to_owned())
}

/// Summarises the findings of a run in a few lines.
pub(super) fn summary(findings: &Findings, dir: &Path) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    // Writing into a String cannot fail.
    for chapter in &findings.chapters {
        for row in &chapter.saturations {
            let kept = row.kept.map_or(String::new(), |kept| {
                format!(", {:.0} % of it kept at {:.1} times that", kept.value * 100.0, row.offered)
            });
            let peak = &row.peak;
            let spread = match peak.has_interval() {
                true => format!("[{:.0} .. {:.0}]", peak.low, peak.high),
                false => format!("(n = {})", peak.n),
            };
            let _ = writeln!(
                text,
                "{}: peak goodput {:.0} {spread} replies/s at {:.0}/s{kept}",
                row.server, peak.value, row.at
            );
        }
        let tally = &chapter.tally;
        let _ = writeln!(
            text,
            "{}: {} points measured, {} INVALID and left out, {} late (times left out), {} \
             flagged, {} failed",
            chapter.id, tally.measured, tally.invalid, tally.late, tally.flagged, tally.failed
        );
    }
    if findings.chapters.iter().any(|chapter| chapter.claims().next().is_some()) {
        let of = if findings.paper.is_some() { "Claims of the paper" } else { "Expectations" };
        let judged = || findings.chapters.iter().flat_map(Chapter::claims);
        let count = |wanted| judged().filter(|judged| judged.verdict == wanted).count();
        let _ = writeln!(
            text,
            "{of}: {} hold, {} do not, {} are undecided, {} cannot be measured here",
            count(Verdict::Holds),
            count(Verdict::DoesNotHold),
            count(Verdict::Undecided),
            count(Verdict::NotMeasurable)
        );
        let without = judged().filter(|one| one.cause().is_some_and(|it| it != Cause::Found));
        let _ = match without.count() {
            0 => Ok(()),
            without => writeln!(text, "The cause of {without} that do not hold is unknown"),
        };
    }
    let _ = writeln!(text, "Report: {}", dir.join("report.html").display());
    text
}

#[cfg(test)]
mod tests {
    use weir_lab::findings::{Estimate, Judged, PaperHead, Saturation};

    use super::*;

    fn judged(id: &str, trial_of: Option<&str>) -> Judged {
        Judged {
            id: id.to_owned(),
            text: "More.".to_owned(),
            place: "p. 1".to_owned(),
            paper: None,
            measure: String::new(),
            holds_if: "above 1".to_owned(),
            here: None,
            verdict: Verdict::Holds,
            why: String::new(),
            rounds_more: None,
            apart: None,
            trials: None,
            trial_of: trial_of.map(str::to_owned),
        }
    }

    #[test]
    fn a_peak_of_too_few_rounds_for_an_interval_is_told_with_their_number() {
        let told = |n| {
            let saturation = Saturation {
                sweep: "up".to_owned(),
                server: "one".to_owned(),
                peak: Estimate { value: 900.0, low: 800.0, high: 1000.0, n },
                at: 1000.0,
                offered: 2.0,
                kept: None,
            };
            let chapter = Chapter { saturations: vec![saturation], ..Chapter::default() };
            let findings = Findings { chapters: vec![chapter], ..Findings::default() };
            summary(&findings, Path::new("run")).lines().next().map(str::to_owned)
        };
        let line = |spread| Some(format!("one: peak goodput 900 {spread} replies/s at 1000/s"));
        assert_eq!((told(2), told(3)), (line("(n = 2)"), line("[800 .. 1000]")));
    }

    #[test]
    fn trials_of_a_cause_are_not_among_the_claims_told_at_the_end() {
        let paper = PaperHead {
            key: "p".to_owned(),
            title: "P".to_owned(),
            authors: "A".to_owned(),
            year: 2004,
            set_up: String::new(),
        };
        let told = |judged: Vec<Judged>| {
            let chapters = vec![Chapter { judged, ..Chapter::default() }];
            let findings = Findings { paper: Some(paper.clone()), chapters, ..Findings::default() };
            summary(&findings, Path::new("run"))
        };
        let text = told(vec![judged("more", None), judged("trial", Some("less"))]);
        assert!(text.contains("Claims of the paper: 1 hold, 0 do not"), "{text}");
        let text = told(vec![judged("trial", Some("less"))]);
        assert!(!text.contains("Claims of the paper"), "{text}");
    }
}
