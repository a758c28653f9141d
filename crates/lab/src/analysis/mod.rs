//! Turns points into findings: medians of the valid repetitions with their intervals, peaks, ratios
//! within rounds, and verdicts about a paper's claims, all computed from the records on disk. It
//! reads no file and no clock: the same input gives the same findings.

mod claims;
mod estimate;
mod figures;
#[cfg(test)]
mod fixtures;
mod labels;
mod machine_drift;
mod matrix;
pub(crate) mod precision;
mod remarks;
mod saturation;
mod scatter;
mod study;
mod tables;
mod terms;
mod timelines;
mod upstream;
mod values;

pub(crate) use claims::number;
pub use estimate::INTERVALS;

use study::{PointIndex, Study};

use crate::experiment::Experiment;
use crate::findings::{Chapter, Findings, Judged, PaperHead, PaperValue, Tally, Verdict};
use crate::paper::{Paper, Value};
use crate::record::{Key, Line};

/// The input of the analysis.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The run's name.
    pub name: &'a str,
    /// The heading.
    pub title: &'a str,
    /// The paper, by its key.
    pub paper: Option<(&'a str, &'a Paper)>,
    /// The experiments, by their ids, in the order of the chapters.
    pub experiments: &'a [(String, Experiment)],
    /// The measured lines. If several lines describe the same point, the last one counts.
    pub lines: &'a [Line],
    /// Properties of the machine and the testbed, in display order.
    pub set_up: Vec<(String, String)>,
    /// Warnings shown before everything else.
    pub warnings: Vec<String>,
    /// The points of the plan.
    pub planned: &'a [Key],
    /// The scale of the run: a factor on repetitions and durations.
    pub scale: f64,
}

/// Computes the findings of a run. Adds an explanation of the intervals to the set-up
/// ([`INTERVALS`]), a warning for each experiment with points that are planned but not on disk, and
/// one if nothing was measured at all.
pub fn findings(input: &Input<'_>) -> Findings {
    let studies: Vec<Study<'_>> = input
        .experiments
        .iter()
        .map(|(id, experiment)| Study::new(id, experiment, input.lines))
        .collect();
    let mut set_up = input.set_up.clone();
    set_up.push(("intervals".to_owned(), INTERVALS.to_owned()));
    let mut findings = Findings {
        name: input.name.to_owned(),
        title: input.title.to_owned(),
        paper: input.paper.map(|(key, paper)| head(key, paper)),
        set_up,
        warnings: input.warnings.clone(),
        chapters: studies.iter().map(|study| chapter(input, study)).collect(),
    };
    place_own_claims(&studies, &mut findings.chapters);
    for chapter in &findings.chapters {
        let Tally { planned, measured, failed, .. } = chapter.tally;
        let there = measured + failed;
        if there < planned {
            let missing = planned - there;
            let id = &chapter.id;
            findings.warnings.push(format!("{id}: {missing} of {planned} points are missing"));
        }
    }
    findings.warnings.extend(findings.nothing_measured());
    if let Some((_, paper)) = input.paper {
        place_claims(paper, &studies, &mut findings.chapters);
        place_values(paper, input.experiments, &mut findings.chapters);
    }
    findings
}

fn head(key: &str, paper: &Paper) -> PaperHead {
    PaperHead {
        key: key.to_owned(),
        title: paper.title.clone(),
        authors: paper.authors.clone(),
        year: paper.year,
        set_up: paper.set_up.clone(),
    }
}

fn chapter(input: &Input<'_>, study: &Study<'_>) -> Chapter {
    let experiment = study.experiment;
    let mut remarks = remarks::remarks(study);
    let mut pictures = Vec::new();
    for figure in &experiment.figure {
        let (picture, remark) = figures::picture(study, figure);
        remarks.extend(remark.map(|remark| (figure.id.clone(), remark)));
        pictures.push(picture);
    }
    for figure in &experiment.timeline {
        let (pair, remark) = timelines::pictures(study, figure);
        remarks.extend(remark.map(|remark| (figure.id.clone(), remark)));
        pictures.extend(pair);
    }
    let mut lines = Vec::new();
    for figure in &experiment.scatter {
        let Some((picture, sheet, remark)) = scatter::scatter(study, figure) else { continue };
        remarks.extend(remark.map(|remark| (figure.id.clone(), remark)));
        pictures.push(picture);
        lines.push(sheet);
    }
    pictures.extend(machine_drift::picture(study));
    if study.stray > 0 {
        let text = format!("{} points that the experiment no longer has are not used", study.stray);
        remarks.push((study.id.to_owned(), text));
    }
    let values = input.paper.map_or(&[][..], |(_, paper)| &paper.value);
    let sheets = experiment.table.iter().map(|table| {
        let of_table = values.iter().filter(|value| value.figure == table.id);
        let of_table: Vec<&Value> = of_table.collect();
        let (mut sheet, used) = tables::sheet(study, table, &of_table);
        let left = of_table.iter().zip(used).filter(|(_, used)| !used);
        sheet.values = left.map(|(value, _)| paper_value(value)).collect();
        sheet
    });
    let matrices = experiment.matrix.iter().map(|one| matrix::sheet(study, one));
    Chapter {
        id: study.id.to_owned(),
        title: experiment.title.clone(),
        question: experiment.question.clone(),
        about: paragraphs(&experiment.about),
        servers: servers(study),
        sweeps: sweeps(input, study),
        pictures,
        sheets: lines.into_iter().chain(matrices).chain(sheets).collect(),
        saturations: saturation::saturations(study),
        judged: Vec::new(),
        tally: remarks::tally(study, input.planned),
        remarks,
    }
}

/// Splits text into paragraphs at empty lines.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in text.lines().map(str::trim) {
        if line.is_empty() {
            paragraphs.push(String::new());
        } else if let Some(last) = paragraphs.last_mut() {
            *last += if last.is_empty() { "" } else { " " };
            *last += line;
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// Returns each server with the command of its first point, its version and its configuration.
fn servers(study: &Study<'_>) -> Vec<(String, String)> {
    let ran = |server: usize| {
        let mut points = study.repetitions().filter(|(spot, _)| spot.server == server);
        let (PointIndex { sweep, value, .. }, _) = points.next()?;
        let (_, point) = study.points(PointIndex { sweep, server, value }).next()?;
        let ran = &point.server;
        let mut text = match ran.version.is_empty() {
            true => ran.command.clone(),
            false => format!("{} ({})", ran.command, ran.version),
        };
        if let Some(config) = &ran.config {
            text.push_str("\n\n");
            text.push_str(config);
        }
        Some(text)
    };
    let specs = study.experiment.server.iter().enumerate();
    specs
        .map(|(index, spec)| {
            (spec.label.clone(), ran(index).unwrap_or_else(|| "not measured".to_owned()))
        })
        .collect()
}

/// Describes each sweep in a sentence, with the planned repetitions if there are any.
fn sweeps(input: &Input<'_>, study: &Study<'_>) -> Vec<String> {
    let specs = study.experiment.sweep.iter().enumerate();
    specs
        .map(|(index, sweep)| {
            let mine = input
                .planned
                .iter()
                .filter(|key| key.experiment == study.id && key.sweep == sweep.id);
            let repetitions = mine.map(|key| key.round + 1).max().unwrap_or(*sweep.repetitions);
            labels::sweep(study, index, repetitions, input.scale)
        })
        .collect()
}

/// Attaches each claim to its figure or table: in the chapter of its experiment, else in the first
/// chapter that has it, else at the end of the chapter of its experiment. Claims without an
/// experiment go to the last chapter. Claims whose experiment and figure are both absent from the
/// run are left out.
fn place_claims(paper: &Paper, studies: &[Study<'_>], chapters: &mut [Chapter]) {
    for claim in &paper.claim {
        let own = chapters.iter().position(|chapter| chapter.id == claim.experiment);
        let order = own.into_iter().chain(0..chapters.len());
        let with = order.into_iter().find(|index| has(&chapters[*index], &claim.figure));
        let last = claim.experiment.is_empty().then(|| chapters.len().saturating_sub(1));
        let Some(chapter) = with.or(own).or(last).and_then(|index| chapters.get_mut(index)) else {
            continue;
        };
        let mut judged = claims::judge(claim, paper.than(claim), studies);
        claims::add_trials(&mut judged, studies);
        background_load(chapter, &claim.figure).push(judged);
    }
}

/// Attaches the claims that an experiment makes itself, and its trials of a cause, to its figures
/// and tables.
fn place_own_claims(studies: &[Study<'_>], chapters: &mut [Chapter]) {
    for (study, chapter) in studies.iter().zip(chapters) {
        for claim in &study.experiment.claim {
            let judged = claims::judge(&claim.of_experiment(study.id), None, studies);
            background_load(chapter, &claim.figure).push(judged);
        }
    }
}

fn has(chapter: &Chapter, figure: &str) -> bool {
    chapter.pictures.iter().any(|picture| picture.id == figure)
        || chapter.sheets.iter().any(|sheet| sheet.id == figure)
}

/// Returns the verdicts of a figure, of a table, or of the chapter.
fn background_load<'a>(chapter: &'a mut Chapter, figure: &str) -> &'a mut Vec<Judged> {
    if let Some(picture) = chapter.pictures.iter_mut().find(|picture| picture.id == figure) {
        return &mut picture.judged;
    }
    if let Some(sheet) = chapter.sheets.iter_mut().find(|sheet| sheet.id == figure) {
        return &mut sheet.judged;
    }
    &mut chapter.judged
}

/// Attaches the paper's numbers to its figures. Numbers of figures that the run does not draw go to
/// the last chapter, if the run has all experiments that the paper's claims name.
fn place_values(paper: &Paper, run: &[(String, Experiment)], chapters: &mut [Chapter]) {
    let part = |id: &str| id.is_empty() || run.iter().any(|(other, _)| other == id);
    let whole = paper.claim.iter().all(|claim| part(&claim.experiment));
    for (index, value) in paper.value.iter().enumerate() {
        let pictures = chapters.iter_mut().flat_map(|chapter| &mut chapter.pictures);
        for picture in pictures.filter(|picture| picture.id == value.figure) {
            picture.values.push(paper_value(value));
        }
        if !whole || chapters.iter().any(|chapter| has(chapter, &value.figure)) {
            continue;
        }
        if let Some(last) = chapters.last_mut() {
            last.judged.push(not_drawn(index, value));
        }
    }
}

fn paper_value(value: &Value) -> PaperValue {
    PaperValue {
        what: value.what.clone(),
        value: value.value,
        unit: value.unit.clone(),
        place: value.place.clone(),
    }
}

fn not_drawn(index: usize, value: &Value) -> Judged {
    Judged {
        id: format!("value-{}", index + 1),
        text: format!("{}, in {}", value.what, value.unit),
        place: value.place.clone(),
        paper: Some(value.value),
        measure: String::new(),
        holds_if: String::new(),
        here: None,
        verdict: Verdict::NotMeasurable,
        why: format!("no experiment of this run draws {}", value.figure),
        rounds_more: None,
        apart: None,
        trials: None,
        trial_of: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: &str = r#"
[[value]]
figure = "fig-1"
what = "peak"
value = 3
unit = "replies/s"
where = "p. 1"
[[value]]
figure = "fig-9"
what = "drops"
value = 7
unit = "1/s"
where = "p. 9"
[[value]]
figure = "table-1"
what = "p99"
value = 2
unit = "ms"
where = "p. 2"
server = "two"
metric = "response_p99"
[[claim]]
id = "more"
figure = "fig-1"
text = "More."
where = "p. 2"
experiment = "p/e"
sweep = "up"
top = { metric = "reply_rate", server = "two", at = "peak" }
bottom = { metric = "reply_rate", server = "one", at = "peak" }
above = 1.2
[[claim]]
id = "less"
figure = "fig-8"
text = "Less."
where = "p. 2"
experiment = "p/e"
sweep = "up"
top = { metric = "reply_rate", server = "two", at = "last" }
below = 3
[[claim]]
id = "tux"
figure = "fig-2"
text = "In the kernel."
where = "p. 3"
not-measurable = "there is no TUX"
"#;

    fn found(paper: &Paper, experiments: &[(String, Experiment)]) -> Findings {
        let lines = fixtures::both();
        let planned: Vec<Key> = (0..4).map(|round| fixtures::key("one", 1.0, round)).collect();
        let mut keys = planned.clone();
        for (server, x) in [("one", 2.0), ("one", 4.0), ("two", 1.0), ("two", 2.0), ("two", 4.0)] {
            keys.extend((0..3).map(|round| fixtures::key(server, x, round)));
        }
        findings(&Input {
            name: "run",
            title: "Title",
            paper: Some(("p", paper)),
            experiments,
            lines: &lines,
            set_up: vec![("kernel".to_owned(), "6".to_owned())],
            warnings: vec!["loopback".to_owned()],
            planned: &keys,
            scale: 1.0,
        })
    }

    #[test]
    fn a_run_becomes_chapters_with_the_papers_words_beside_the_figures() {
        let experiments = [
            ("p/e".to_owned(), fixtures::experiment()),
            ("p/f".to_owned(), fixtures::experiment()),
        ];
        let findings = found(&fixtures::paper(PAPER), &experiments);
        assert_eq!(findings.set_up.len(), 2);
        assert_eq!(findings.warnings, ["loopback", "p/e: 1 of 19 points are missing"]);
        let [first, last] = &findings.chapters[..] else { panic!() };
        assert_eq!(first.about, ["One paragraph.", "Another."]);
        assert_eq!(first.servers[0], ("accept 1".to_owned(), "one --run".to_owned()));
        assert_eq!(last.servers[0].1, "not measured");
        let picture = &first.pictures[0];
        assert_eq!((picture.values.len(), picture.judged.len()), (1, 1));
        assert_eq!(picture.judged[0].verdict, Verdict::Holds);
        assert_eq!(first.sheets[0].rows[1].cells[1].1, Some(2.0));
        assert!(first.sheets[0].values.is_empty());
        assert_eq!(first.judged.len(), 1);
        assert_eq!(
            (first.judged[0].id.as_str(), first.judged[0].verdict),
            ("less", Verdict::DoesNotHold)
        );
        let ids: Vec<&str> = last.judged.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["tux", "value-2"]);
        assert!(first.sweeps[0].contains("measured 4 times for 3 s"), "{}", first.sweeps[0]);
    }

    #[test]
    fn a_part_of_a_paper_says_nothing_of_the_rest() {
        let experiments = [("p/other".to_owned(), fixtures::experiment())];
        let findings = found(&fixtures::paper(PAPER), &experiments);
        let chapter = &findings.chapters[0];
        let ids: Vec<&str> = chapter.judged.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["tux"]);
        let judged = &chapter.pictures[0].judged[0];
        assert_eq!(judged.why, "the experiment p/e is not part of this run");
    }

    #[test]
    fn an_experiment_has_its_own_claims_judged_without_a_paper() {
        let claim = "[[claim]]\nid = \"bar\"\nfigure = \"table-1\"\ntext = \"More.\"\n\
                     where = \"the bar\"\nsweep = \"up\"\nabove = 1.2\n\
                     top = { metric = \"reply_rate\", server = \"two\", at = \"peak\" }\n\
                     bottom = { metric = \"reply_rate\", server = \"one\", at = \"peak\" }\n";
        let experiment = Experiment::parse(&format!("{}{claim}", fixtures::TEXT)).unwrap();
        let experiments = [("p/e".to_owned(), experiment)];
        let findings = found(&fixtures::paper(""), &experiments);
        let judged = &findings.chapters[0].sheets[0].judged;
        assert_eq!((judged.len(), judged[0].verdict), (1, Verdict::Holds));
    }

    #[test]
    fn trials_of_a_cause_are_judged_and_are_none_of_the_claims() {
        let trial = "[[claim]]\nid = \"less-burnt\"\nfigure = \"table-1\"\ntext = \"Less.\"\n\
                     where = \"p. 2\"\nsweep = \"up\"\nbelow = 3\n\
                     looks-for = \"less\"\ncondition = \"burnt work\"\n\
                     top = { metric = \"reply_rate\", server = \"two\", at = \"last\" }\n";
        let text = format!("paper = \"p\"\n{}{trial}", fixtures::TEXT);
        let experiments = [("p/e".to_owned(), Experiment::parse(&text).unwrap())];
        let findings = found(&fixtures::paper(PAPER), &experiments);
        let chapter = &findings.chapters[0];
        let [judged] = &chapter.sheets[0].judged[..] else { panic!("not one trial") };
        assert_eq!((judged.id.as_str(), judged.trial_of.as_deref()), ("less-burnt", Some("less")));
        assert_eq!((judged.is_trial(), judged.verdict), (true, Verdict::DoesNotHold));
        let ids: Vec<&str> = chapter.claims().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["more", "less", "tux", "value-2"]);
        assert_eq!(chapter.all_judged().count(), 5);
        // What the trial found stands with the claim whose effect it looks for.
        let less = chapter.claims().find(|one| one.id == "less").unwrap();
        assert_eq!(less.trials.as_ref().unwrap()[0].condition, "burnt work");
    }

    #[test]
    fn the_same_input_gives_the_same_findings() {
        let experiments = [("p/e".to_owned(), fixtures::experiment())];
        let paper = fixtures::paper(PAPER);
        let text = |_| serde_json::to_string(&found(&paper, &experiments)).unwrap();
        let texts: Vec<String> = (0..2).map(text).collect();
        assert_eq!(texts[0], texts[1]);
    }
}
