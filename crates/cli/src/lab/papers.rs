//! Reproduces a paper, or all papers one after the other, with a front page for all of them. A run
//! of all takes hours, so that each paper has a folder of its own, and the same command goes on
//! where it stopped.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_lab::catalogue::{self, Entry};
use weir_lab::findings::Findings;
use weir_lab::journal::{self, Request};
use weir_lab::run::End;
use weir_lab::{report, results, time};

use super::options::RunOptions;
use super::progress::span;
use super::run::{self, RESULTS};
use crate::print::print_text;
use crate::signals::Stop;

/// Scale of a quick run: one round of points of three fifths of what the experiments say.
const QUICK_SCALE: f64 = 0.1;

/// Title of the front page.
const TITLE: &str = "Five papers on Internet servers, measured again";

/// Runs the experiments of a paper.
pub(super) fn one(key: &str, quick: bool, options: &RunOptions) -> Result<ExitCode, String> {
    let options = scaled(quick, options);
    run::run(request(key, quick, &options)?, &options)
}

/// Runs the experiments of all papers.
pub(super) fn all(quick: bool, options: &RunOptions) -> Result<ExitCode, String> {
    let options = scaled(quick, options);
    let keys = catalogue::papers();
    let requests: Vec<(String, Request)> = keys
        .into_iter()
        .map(|key| Ok((key.clone(), request(&key, quick, &options)?)))
        .collect::<Result<_, String>>()?;
    // A server may be in one paper only.
    weir_lab::run::check_only(requests.iter().map(|(_, request)| request))?;
    let dir = match &options.out {
        Some(dir) => dir.clone(),
        None => folder(Path::new(RESULTS), &requests),
    };
    let stop = Stop::listen()?;
    let mut left_s: Vec<f64> = Vec::new();
    for (key, request) in &requests {
        left_s.push(if is_done(&dir.join(key), request) {
            0.0
        } else {
            weir_lab::run::left_s(&dir.join(key), request)?
        });
    }
    let mut done: Vec<(String, Findings)> = Vec::new();
    for (nth, (key, request)) in requests.iter().enumerate() {
        let at = dir.join(key);
        if is_done(&at, request) {
            done.push((key.clone(), results::findings(&at)?));
            continue;
        }
        if !options.quiet {
            let all_s = span(left_s[nth..].iter().sum());
            eprintln!("Paper {} of {}, {key}: about {all_s} to go", nth + 1, requests.len());
        }
        let (end, findings) = run::run_in(&at, request.clone(), &options, &stop)?;
        done.push((key.clone(), findings));
        // Written after each, so that it can be read while the next is measured.
        report::write_front(TITLE, &done, &dir)?;
        if matches!(end, End::Stopped) {
            return run::stopped(&dir);
        }
    }
    report::write_front(TITLE, &done, &dir)?;
    let mut text = String::new();
    for (key, findings) in &done {
        text.push_str(&format!("{key}\n{}\n", run::summary(findings, &dir.join(key))));
    }
    text.push_str(&format!("Front page: {}\n", dir.join("index.html").display()));
    print_text(&text)?;
    Ok(run::complete(done.iter().map(|(_, findings)| findings)))
}

/// Draws the reports of a run of all papers again, and its front page; returns the path of that, or
/// `None` if the folder has no paper's run.
pub(super) fn redraw(dir: &Path) -> Result<Option<PathBuf>, String> {
    let mut done: Vec<(String, Findings)> = Vec::new();
    for key in catalogue::papers() {
        let at = dir.join(&key);
        if at.join(journal::SET_UP).is_file() {
            done.push((key, results::draw(&at)?));
        }
    }
    if done.is_empty() {
        return Ok(None);
    }
    report::write_front(TITLE, &done, dir)?;
    Ok(Some(dir.join("index.html")))
}

/// Returns the options with the scale of a quick run, if it is one.
fn scaled(quick: bool, options: &RunOptions) -> RunOptions {
    let scale = if quick { QUICK_SCALE } else { options.scale };
    RunOptions { scale, ..options.clone() }
}

fn request(key: &str, quick: bool, options: &RunOptions) -> Result<Request, String> {
    let entries = if quick { vec![quick_entry(key)?] } else { catalogue::of_paper(key)? };
    run::request(key.to_owned(), Some(key), entries, options)
}

/// Returns the experiment that stands for a paper in a quick run.
fn quick_entry(key: &str) -> Result<Entry, String> {
    // Says which papers there are, if this is none.
    catalogue::of_paper(key)?;
    let paper = catalogue::paper(key, catalogue::paper_text(key).unwrap_or_default())?;
    catalogue::one(&paper.quick)
}

fn is_done(dir: &Path, request: &Request) -> bool {
    journal::read(dir).is_ok_and(|(set_up, _)| set_up.complete && set_up.request == *request)
}

/// Returns the folder for all: that of an unfinished run of the same requests, otherwise a new one
/// with today's date.
fn folder(results: &Path, requests: &[(String, Request)]) -> PathBuf {
    let mut unfinished: Vec<PathBuf> = std::fs::read_dir(results)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| is_unfinished(path, requests))
        .collect();
    unfinished.sort();
    if let Some(found) = unfinished.pop() {
        return found;
    }
    run::unused(&results.join(format!("{}-papers", time::utc_today())))
}

/// Returns whether a folder has a run of one of the requests, none of another, and not all of them
/// whole.
fn is_unfinished(dir: &Path, requests: &[(String, Request)]) -> bool {
    let mut whole = 0;
    let mut any = false;
    for (key, request) in requests {
        match journal::read(&dir.join(key)) {
            Ok((set_up, _)) if set_up.request == *request => {
                any = true;
                whole += usize::from(set_up.complete);
            }
            Ok(_) => return false,
            Err(_) => {}
        }
    }
    any && whole < requests.len()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::command::{Cli, Task};
    use crate::lab::options::LabTask;

    fn quick_options() -> RunOptions {
        let cli = Cli::try_parse_from(["weir", "lab", "reproduce", "all", "--quick"]).unwrap();
        let Task::Lab(lab) = cli.task else { panic!() };
        let LabTask::Reproduce { paper, quick: true, options } = lab.task else { panic!() };
        assert_eq!(paper, "all");
        scaled(true, &options)
    }

    #[test]
    fn a_quick_run_of_all_papers_takes_a_quarter_of_an_hour() {
        let options = quick_options();
        let mut all_s = 0.0;
        for key in catalogue::papers() {
            let request = request(&key, true, &options).unwrap();
            assert_eq!(request.experiments.len(), 1, "{key}");
            assert_eq!(request.paper.as_deref(), Some(key.as_str()));
            all_s += weir_lab::run::left_s(Path::new("no such run"), &request).unwrap();
        }
        assert!((600.0..1000.0).contains(&all_s), "{all_s} s");
    }

    #[test]
    fn a_run_of_all_goes_on_in_its_folder_until_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let options = quick_options();
        let requests: Vec<(String, Request)> = catalogue::papers()
            .into_iter()
            .map(|key| (key.clone(), request(&key, true, &options).unwrap()))
            .collect();
        let first = folder(dir.path(), &requests);
        assert!(!first.exists());
        let write = |key: &str, request: &Request, complete: bool| {
            let set_up = serde_json::json!({
                "request": request, "stretches": [], "complete": complete,
            });
            std::fs::create_dir_all(first.join(key)).unwrap();
            std::fs::write(first.join(key).join(journal::POINTS), "").unwrap();
            std::fs::write(first.join(key).join(journal::SET_UP), set_up.to_string()).unwrap();
        };
        write(&requests[0].0, &requests[0].1, true);
        assert_eq!(folder(dir.path(), &requests), first);
        for (key, request) in &requests {
            write(key, request, true);
        }
        assert_ne!(folder(dir.path(), &requests), first);
        // Another seed is another run.
        let other = Request { seed: 77, ..requests[0].1.clone() };
        write(&requests[0].0, &other, false);
        assert_ne!(folder(dir.path(), &requests), first);
    }
}
