//! The first page of an artifact, in Markdown: which experiments there are, how long each takes,
//! which claims rest on it, what came out where the artifact was made, and how a reader judges
//! what comes out elsewhere.

use super::claims::{Claimed, claims, verdict};
use super::names::Names;
use super::number::number;
use super::summary::{judged_by, paragraph, plain, table};
use crate::findings::Findings;

/// A paper's run in an artifact.
#[derive(Clone, Debug)]
pub struct Part {
    /// The paper's key, which is the folder of the run too.
    pub key: String,
    /// The findings of the run.
    pub findings: Findings,
    /// Minutes that each experiment takes, by its name, in the order of the chapters.
    pub minutes: Vec<(String, f64)>,
}

/// Returns the page.
pub fn artifact_readme(version: &str, parts: &[Part]) -> String {
    let mut text = String::from("# Five papers on Internet servers, measured again\n");
    let minutes: f64 =
        parts.iter().flat_map(|part| &part.minutes).map(|(_, minutes)| minutes).sum();
    paragraph(
        &mut text,
        &format!(
            "This is the artifact of weir {version}: the program, the experiments, and what came \
             out of them on the machine that is described in each `expected/KEY/summary.md`. It \
             needs a Linux from 5.11 on with two processors or more, and root for the network \
             namespaces; nothing is sent to any other machine. All of it takes about {:.1} hours, \
             in pieces: stopped, it goes on with the same command.",
            minutes / 60.0
        ),
    );
    text.push_str("\n## Run it, and compare\n\n```sh\n");
    text.push_str("./weir lab check                                # what this machine has\n");
    text.push_str("./weir lab reproduce all --quick --out quick    # a quarter of an hour\n");
    text.push_str("./weir lab reproduce all --out mine             # all of it\n");
    for part in parts {
        text.push_str(&format!("./weir lab compare expected/{0} mine/{0}\n", part.key));
    }
    text.push_str("```\n");
    paragraph(
        &mut text,
        "Open `mine/index.html`: each claim has its bound, the number measured, its interval and \
         a verdict. An outcome agrees with this one if the verdicts of its claims are the same; \
         one that is *undecided* on either side agrees with any. Ratios and shares travel between \
         machines, rates and times do not: `compare` says for each number that has an interval \
         in both runs whether the two overlap.",
    );
    text.push_str("\n## Experiments\n");
    experiments(&mut text, parts);
    text.push_str("\n## Claims\n");
    paragraph(
        &mut text,
        "*Expected* is the median measured where the artifact was made, with its interval and n.",
    );
    claims_of(&mut text, parts);
    text
}

/// Returns the number of an experiment, counted from 1 over all parts.
fn experiment_number(parts: &[Part], part: usize, chapter: usize) -> usize {
    let before: usize = parts[..part].iter().map(|part| part.findings.chapters.len()).sum();
    before + chapter + 1
}

fn experiments(text: &mut String, parts: &[Part]) {
    let mut rows = Vec::new();
    for (nth, part) in parts.iter().enumerate() {
        for (at, chapter) in part.findings.chapters.iter().enumerate() {
            let minutes = part.minutes.iter().find(|(id, _)| *id == chapter.id);
            let minutes = minutes.map_or_else(|| "–".to_owned(), |(_, m)| format!("{m:.0}"));
            rows.push(vec![
                format!("E{}", experiment_number(parts, nth, at)),
                plain(&chapter.title),
                format!("`./weir lab run {}`", chapter.id),
                minutes,
                chapter.claims().count().to_string(),
            ]);
        }
    }
    table(text, &["", "experiment", "command", "minutes", "claims"], rows.into_iter());
}

fn claims_of(text: &mut String, parts: &[Part]) {
    let mut rows = Vec::new();
    for (nth, part) in parts.iter().enumerate() {
        let names = Names::of(&part.findings);
        for claim in claims(&part.findings, &names) {
            let experiment = experiment_number(parts, nth, claim.chapter);
            rows.push(claim_row(rows.len() + 1, experiment, &part.key, &claim));
        }
    }
    let head = ["", "paper", "claim", "rests on", "the paper's", "holds if", "expected", "verdict"];
    table(text, &head, rows.into_iter());
}

fn claim_row(nth: usize, experiment: usize, key: &str, claim: &Claimed<'_>) -> Vec<String> {
    let judged = claim.judged;
    vec![
        format!("C{nth}"),
        key.to_owned(),
        format!("{} ({})", plain(&judged.text), plain(&judged.place)),
        format!("E{experiment}"),
        judged.paper.map_or_else(|| "–".to_owned(), number),
        plain(&judged.holds_if),
        judged.here.map_or_else(|| "–".to_owned(), |here| judged_by(&here)),
        verdict(judged.verdict).1.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn every_experiment_and_every_claim_has_a_number() {
        let part = |key: &str| Part {
            key: key.to_owned(),
            findings: fixtures::findings(),
            minutes: vec![(fixtures::findings().chapters[0].id.clone(), 19.4)],
        };
        let parts = [part("one"), part("two")];
        let text = artifact_readme("1.2.3", &parts);
        let chapters = parts[0].findings.chapters.len();
        assert!(text.contains(&format!("| E{} |", 2 * chapters)));
        assert!(!text.contains(&format!("| E{} |", 2 * chapters + 1)));
        let names = Names::of(&parts[0].findings);
        let count = claims(&parts[0].findings, &names).len();
        assert!(text.contains(&format!("| C{} | two |", 2 * count)));
        assert!(text.contains("compare expected/two mine/two"));
        assert!(text.contains("| 19 |"));
        let rows = text.lines().filter(|line| line.starts_with("| C")).count();
        assert_eq!(rows, 2 * count);
    }

    #[test]
    fn trials_of_a_cause_are_none_of_the_claims() {
        let findings = fixtures::findings();
        let trial = findings.chapters[1].all_judged().find(|one| one.is_trial()).unwrap().clone();
        let part = Part { key: "one".to_owned(), findings, minutes: Vec::new() };
        let text = artifact_readme("1.2.3", &[part]);
        assert!(!text.contains(&plain(&trial.text)), "{text}");
        let row = text.lines().find(|line| line.starts_with("| E2 |")).unwrap();
        assert!(row.ends_with("| – | 1 |"), "{row}");
    }
}
