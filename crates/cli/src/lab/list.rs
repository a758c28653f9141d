//! Lists the available experiments and checks what this machine provides for them. Runs nothing.

use std::fmt::Write;
use std::process::ExitCode;

use weir_lab::catalogue::{self, Entry};
use weir_lab::check::{self, State};
use weir_lab::plan;
use weir_lab::servers;
use weir_lab::validation::allowed_options;

use crate::print::print_text;

/// Lists the experiments and the papers.
pub(super) fn list() -> Result<ExitCode, String> {
    let entries = catalogue::all()?;
    let mut text = String::from("Experiments: weir lab run NAME\n\n");
    for entry in &entries {
        let minutes = minutes(std::slice::from_ref(entry));
        // Writing into a String cannot fail.
        let _ = writeln!(text, "  {:<32} {minutes:>8}  {}", entry.id, entry.experiment.title);
    }
    text.push_str("\nPapers: weir lab reproduce PAPER\n\n");
    for key in catalogue::papers() {
        let of = catalogue::of_paper(&key)?;
        let paper = catalogue::paper(&key, catalogue::paper_text(&key).unwrap_or_default())?;
        let minutes = minutes(&of);
        let _ = writeln!(
            text,
            "  {key:<32} {minutes:>8}  {}: {} ({})",
            paper.authors, paper.title, paper.year
        );
    }
    print_text(&text)
}

/// Formats the estimated duration of experiments.
fn minutes(entries: &[Entry]) -> String {
    let named: Vec<plan::NamedExperiment> =
        entries.iter().map(|entry| (entry.id.clone(), entry.experiment.clone())).collect();
    let steps = plan::steps(&named, 1.0, 1);
    let s: f64 = steps.iter().map(|step| step.estimate_s).sum();
    format!("~{:.0} min", (s / 60.0).ceil())
}

/// Prints the results of the checks on this machine, and on an experiment or paper if one is named.
pub(super) fn check(name: Option<&str>) -> Result<ExitCode, String> {
    let mut text = String::new();
    if let Some(name) = name {
        let entries = match catalogue::one(name) {
            Ok(entry) => vec![entry],
            Err(why) => catalogue::of_paper(name).map_err(|_| why)?,
        };
        for entry in &entries {
            let experiment = &entry.experiment;
            let (servers, sweeps) = (experiment.server.len(), experiment.sweep.len());
            let _ = writeln!(
                text,
                "{}: sound: {servers} servers, {sweeps} sweeps, {}",
                entry.id,
                minutes(std::slice::from_ref(entry))
            );
            for server in &experiment.server {
                if let Some(why) = servers::cannot(server) {
                    let _ = writeln!(text, "{}: without {}: {why}", entry.id, server.id);
                }
            }
            if let Err(why) = allowed_options::check(experiment) {
                let _ = writeln!(text, "{}: needs --allow-any-options: {why}", entry.id);
            }
        }
        text.push('\n');
    }
    for finding in check::check() {
        let mark = match finding.state {
            State::Have => "have   ",
            State::Reduced => "reduced",
            State::Missing => "missing",
        };
        let _ = writeln!(text, "{mark}  {:<12} {}", finding.what, finding.says);
    }
    print_text(&text)
}
