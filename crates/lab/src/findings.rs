//! What a run found, ready to be shown: chapters of figures, tables and verdicts. Plain data
//! between the analysis, which makes it, and the report, which draws it.

use serde::{Deserialize, Serialize};

/// All of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Findings {
    /// The run's name: `quick`, `pariag-accept`.
    pub name: String,
    /// The heading: an experiment's title, or the paper's.
    pub title: String,
    /// The paper, if it is one's: authors, title, year, set-up.
    pub paper: Option<PaperHead>,
    /// The machine and the testbed, as names and values, in the order to show.
    pub set_up: Vec<(String, String)>,
    /// What a reader must be told before all else: loopback instead of namespaces, servers missing,
    /// points missing.
    pub warnings: Vec<String>,
    /// An experiment each.
    pub chapters: Vec<Chapter>,
}

impl Chapter {
    /// Every claim that is judged in it: about its figures, its tables, and no one of them.
    pub fn all_judged(&self) -> impl Iterator<Item = &Judged> {
        let pictures = self.pictures.iter().flat_map(|picture| &picture.judged);
        let sheets = self.sheets.iter().flat_map(|sheet| &sheet.judged);
        pictures.chain(sheets).chain(&self.judged)
    }
}

/// A paper, for a reader.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PaperHead {
    /// Its key.
    pub key: String,
    /// Its title.
    pub title: String,
    /// Its authors.
    pub authors: String,
    /// Its year.
    pub year: u32,
    /// What it used.
    pub set_up: String,
}

/// An experiment's part.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Chapter {
    /// The experiment: `pariag-accept/one-packet`.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its question.
    pub question: String,
    /// Paragraphs about it.
    pub about: Vec<String>,
    /// Its servers: label, and command or configuration.
    pub servers: Vec<(String, String)>,
    /// Its sweeps, each in a sentence: workload, rates, durations, repetitions, what slows the
    /// server.
    pub sweeps: Vec<String>,
    /// Its figures.
    pub pictures: Vec<Picture>,
    /// Its tables.
    pub sheets: Vec<Sheet>,
    /// Peak and what is left of it, for sweeps of rates.
    pub saturations: Vec<Saturation>,
    /// Verdicts about no figure of this chapter.
    pub judged: Vec<Judged>,
    /// How many points were measured, left out as INVALID, flagged, and could not be measured.
    pub tally: Tally,
    /// What was left out, flagged or failed: point, and why.
    pub remarks: Vec<(String, String)>,
}

/// How many points.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Tally {
    /// In the plan.
    pub planned: u32,
    /// Measured.
    pub measured: u32,
    /// Of these INVALID: shown, not used.
    pub invalid: u32,
    /// Of these late, by so little that only their times are left out.
    #[serde(default)]
    pub late: u32,
    /// Of those measured, flagged: used and named.
    pub flagged: u32,
    /// Not measurable.
    pub failed: u32,
}

/// A figure.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Picture {
    /// Its id, unique in the run with its chapter: `fig-4.12`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What to know when looking at it.
    pub note: String,
    /// The horizontal axis, with its unit: `requests offered, 1/s`.
    pub x_label: String,
    /// The vertical axis, with its unit.
    pub y_label: String,
    /// Whether it is logarithmic.
    pub y_log: bool,
    /// Whether the horizontal axis is.
    pub x_log: bool,
    /// The lines.
    pub series: Vec<Series>,
    /// The paper's numbers for it.
    pub values: Vec<PaperValue>,
    /// The paper's claims about it, judged.
    pub judged: Vec<Judged>,
}

/// A line of a figure.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Its points, ascending.
    pub marks: Vec<Mark>,
    /// How it is drawn.
    #[serde(default)]
    pub stroke: Stroke,
}

/// How a line of a figure is drawn.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Stroke {
    /// With a mark and an interval at each point, in a look of its own.
    #[default]
    Marks,
    /// A line alone: too many points for marks.
    Line {
        /// The number of its colour: lines that belong together have the same.
        colour: u32,
        /// Whether it is dashed.
        dashed: bool,
    },
    /// Steps, in grey: what was offered, and not what came of it.
    Offered,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Mark {
    /// Where, as drawn.
    pub x: f64,
    /// Where, as the value of the sweep: the same in every run of the experiment.
    pub at: f64,
    /// What was measured, of valid points.
    pub estimate: Option<Estimate>,
    /// How many repetitions were INVALID.
    pub invalid: u32,
    /// The median of these: shown hollow, joined to nothing.
    pub invalid_value: Option<f64>,
    /// How many of the valid ones are flagged.
    pub flagged: u32,
}

/// A median and an interval around it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
pub struct Estimate {
    /// The median.
    pub value: f64,
    /// The lower end of the interval; the value itself when there is only one.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Of how many points.
    pub n: u32,
}

/// A table.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Sheet {
    /// Its id: `table-4.1`.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What to know when looking at it.
    pub note: String,
    /// The columns: name and unit (empty for a pure number).
    pub columns: Vec<(String, String)>,
    /// The rows.
    pub rows: Vec<Row>,
    /// The paper's numbers that fit no cell.
    pub values: Vec<PaperValue>,
    /// The paper's claims about it, judged.
    pub judged: Vec<Judged>,
}

/// A row of a table.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Row {
    /// The server, and where along the sweep when there are several places.
    pub label: String,
    /// A cell a column: what was measured here, and the paper's number.
    pub cells: Vec<(Option<Estimate>, Option<f64>)>,
}

/// A number of the paper's, to show beside a figure.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PaperValue {
    /// Of what.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where the text says it.
    pub place: String,
}

/// Peak and what is left of it past it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Saturation {
    /// The sweep.
    pub sweep: String,
    /// The server's label.
    pub server: String,
    /// The highest median of replies a second.
    pub peak: Estimate,
    /// The rate offered there, sessions a second (or the sweep's value where loops are closed).
    pub at: f64,
    /// The highest rate offered and validly measured, as a multiple of that.
    pub offered: f64,
    /// What share of the peak is left there, paired within rounds.
    pub kept: Option<Estimate>,
}

/// A claim, judged.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Judged {
    /// Its id.
    pub id: String,
    /// What the paper says.
    pub text: String,
    /// Where.
    pub place: String,
    /// The paper's number.
    pub paper: Option<f64>,
    /// What is measured, in words: `replies/s of accept 10 at its peak ÷ that of accept 1`.
    pub measure: String,
    /// What would hold: `above 1.05`.
    pub holds_if: String,
    /// What was measured here.
    pub here: Option<Estimate>,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, where that is not plain: what is missing, or that the interval holds both answers.
    pub why: String,
}

/// A verdict.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval says so.
    Holds,
    /// The whole interval says it does not.
    DoesNotHold,
    /// The interval has both.
    Undecided,
    /// It cannot be measured here.
    NotMeasurable,
}
