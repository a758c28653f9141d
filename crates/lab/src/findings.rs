//! Findings of a run, ready to be shown: chapters of figures, tables and verdicts. Plain data
//! between the analysis, which makes it, and the report, which draws it.

use serde::{Deserialize, Serialize};

/// The findings of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Findings {
    /// Name of the run: `quick`, `pariag-accept`.
    pub name: String,
    /// Heading: the title of an experiment or of the paper.
    pub title: String,
    /// The paper, if the run reproduces one: authors, title, year, set-up.
    pub paper: Option<PaperHead>,
    /// The machine and the testbed, as names and values in display order.
    pub set_up: Vec<(String, String)>,
    /// Warnings shown before everything else: loopback instead of namespaces, missing servers,
    /// missing points.
    pub warnings: Vec<String>,
    /// Chapters, one per experiment.
    pub chapters: Vec<Chapter>,
}

impl Findings {
    /// Returns a sentence if all the points that ended failed or are INVALID, so that no number and
    /// no verdict rests on anything.
    pub fn nothing_measured(&self) -> Option<String> {
        let sum = |of: fn(&Tally) -> u32| -> u32 {
            self.chapters.iter().map(|chapter| of(&chapter.tally)).sum()
        };
        let (failed, invalid) = (sum(|tally| tally.failed), sum(|tally| tally.invalid));
        let ended = sum(|tally| tally.measured) + failed;
        if ended == 0 || ended > failed + invalid {
            return None;
        }
        let first = self.chapters.iter().find_map(|chapter| chapter.remarks.first());
        let first = first.map_or(String::new(), |(place, why)| format!(" ({place}: {why})"));
        Some(format!(
            "nothing was measured: of {ended} points {failed} failed and {invalid} are \
             INVALID{first}"
        ))
    }
}

impl Chapter {
    /// Returns the judged claims of the chapter, trials of a cause left out.
    pub fn claims(&self) -> impl Iterator<Item = &Judged> {
        self.all_judged().filter(|judged| !judged.is_trial())
    }

    /// Returns everything judged in the chapter, about its figures, about its tables, and other:
    /// claims, and trials of a cause.
    pub fn all_judged(&self) -> impl Iterator<Item = &Judged> {
        let pictures = self.pictures.iter().flat_map(|picture| &picture.judged);
        let sheets = self.sheets.iter().flat_map(|sheet| &sheet.judged);
        pictures.chain(sheets).chain(&self.judged)
    }
}

/// Bibliographic data of a paper, for readers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PaperHead {
    /// The paper's key.
    pub key: String,
    /// The paper's title.
    pub title: String,
    /// The paper's authors.
    pub authors: String,
    /// Year of publication.
    pub year: u32,
    /// The set-up used in the paper.
    pub set_up: String,
}

/// The findings of an experiment.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Chapter {
    /// Name of the experiment: `pariag-accept/one-packet`.
    pub id: String,
    /// The experiment's title.
    pub title: String,
    /// The experiment's question.
    pub question: String,
    /// Paragraphs that describe the experiment.
    pub about: Vec<String>,
    /// The servers: label, and command or configuration.
    pub servers: Vec<(String, String)>,
    /// The sweeps, a sentence each: workload, rates, durations, repetitions, what slows the server.
    pub sweeps: Vec<String>,
    /// The figures.
    pub pictures: Vec<Picture>,
    /// The tables.
    pub sheets: Vec<Sheet>,
    /// Peak, and what is left of it past the peak, for sweeps of rates.
    pub saturations: Vec<Saturation>,
    /// Judged claims that belong to no figure or table of this chapter.
    pub judged: Vec<Judged>,
    /// Number of points measured, left out as INVALID, flagged and failed.
    pub tally: Tally,
    /// Points left out, flagged or failed: where, and the reason.
    pub remarks: Vec<(String, String)>,
}

/// Point counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Tally {
    /// Points in the plan.
    pub planned: u32,
    /// Points measured.
    pub measured: u32,
    /// Measured points that are INVALID: shown, not used.
    pub invalid: u32,
    /// Measured points that are late, but by so little that only their times are left out.
    #[serde(default)]
    pub late: u32,
    /// Measured, valid points that are flagged: used and named.
    pub flagged: u32,
    /// Points that could not be measured.
    pub failed: u32,
}

/// A figure.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Picture {
    /// Figure id, unique in the run together with the chapter: `fig-4.12`.
    pub id: String,
    /// Title of the figure.
    pub title: String,
    /// Note for interpreting the figure.
    pub note: String,
    /// Label of the horizontal axis, with its unit: `requests offered, 1/s`.
    pub x_label: String,
    /// Label of the vertical axis, with its unit.
    pub y_label: String,
    /// True if the vertical axis is logarithmic.
    pub y_log: bool,
    /// True if the horizontal axis is logarithmic.
    pub x_log: bool,
    /// The lines.
    pub series: Vec<Series>,
    /// The paper's numbers for the figure.
    pub values: Vec<PaperValue>,
    /// Judged claims about the figure.
    pub judged: Vec<Judged>,
}

/// A line of a figure.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Series {
    /// Name in the legend.
    pub label: String,
    /// The points, in ascending order.
    pub marks: Vec<Mark>,
    /// Drawing style of the line.
    #[serde(default)]
    pub stroke: Stroke,
}

/// Drawing style of a line of a figure.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Stroke {
    /// Marks with an interval at each point, in a distinct style.
    #[default]
    Marks,
    /// A plain line, for too many points to mark.
    Line {
        /// Colour index; lines that belong together share one.
        colour: u32,
        /// Index of the dash, of three that lines of one colour have; 0 is a solid line.
        dash: u32,
    },
    /// Marks without intervals that no line joins, for samples.
    Dots {
        /// Colour index; series that belong together share one.
        colour: u32,
        /// Index of the mark's shape.
        shape: u32,
    },
    /// Grey steps, for the offered load as opposed to the results.
    Offered,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Mark {
    /// Horizontal position, as drawn.
    pub x: f64,
    /// Value of the sweep: the same in every run of the experiment.
    pub at: f64,
    /// Estimate from the valid points.
    pub estimate: Option<Estimate>,
    /// Number of INVALID repetitions.
    pub invalid: u32,
    /// Median of the INVALID repetitions: drawn hollow and unconnected.
    pub invalid_value: Option<f64>,
    /// Number of valid repetitions that are flagged.
    pub flagged: u32,
}

/// A median and an interval around it. They are finite in figures and tables; that of a claim's
/// ratio is infinite where what is divided by is 0.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
pub struct Estimate {
    /// The median.
    #[serde(with = "extended")]
    pub value: f64,
    /// The lower end of the interval, or of the range of too few values for one; equal to the
    /// median if there is only one value.
    #[serde(with = "extended")]
    pub low: f64,
    /// The upper end of the interval.
    #[serde(with = "extended")]
    pub high: f64,
    /// Number of points the median is taken over.
    pub n: u32,
}

/// Number of values below which there is no interval: two make a range.
pub const INTERVAL_N_MIN: u32 = 3;

impl Estimate {
    /// Returns whether there are enough values for an interval; with fewer, nothing is decided.
    pub const fn has_interval(&self) -> bool {
        self.n >= INTERVAL_N_MIN
    }

    /// Returns half the width of the interval as a share of the median, infinite around a median of
    /// 0 and with one infinite end; `None` where there are too few values for an interval.
    pub fn half_width(&self) -> Option<f64> {
        // Infinities are compared first: their difference and their quotient are no numbers.
        let half = if self.high == self.low { 0.0 } else { (self.high - self.low) / 2.0 };
        let is_share = half == 0.0 || half.is_infinite();
        let share = if is_share { half } else { half / self.value.abs() };
        self.has_interval().then_some(share)
    }
}

/// Numbers that may be infinite: JSON has none, and they are texts there.
mod extended {
    use serde::{Deserialize, Deserializer, Serializer, de};

    const INFINITE: &str = "∞";
    const BELOW_ALL: &str = "-∞";

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        match value.is_infinite() {
            true if *value > 0.0 => to.serialize_str(INFINITE),
            true => to.serialize_str(BELOW_ALL),
            false => to.serialize_f64(*value),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        match Written::deserialize(from)? {
            Written::Number(value) => Ok(value),
            Written::Text(text) => match text.as_str() {
                INFINITE => Ok(f64::INFINITY),
                BELOW_ALL => Ok(f64::NEG_INFINITY),
                _ => Err(de::Error::custom("a number that is none")),
            },
        }
    }
}

/// A table.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Sheet {
    /// Table id: `table-4.1`.
    pub id: String,
    /// Title of the table.
    pub title: String,
    /// Note for interpreting the table.
    pub note: String,
    /// The columns: name and unit (empty for a dimensionless number).
    pub columns: Vec<(String, String)>,
    /// The rows.
    pub rows: Vec<Row>,
    /// The paper's numbers that fit no cell.
    pub values: Vec<PaperValue>,
    /// Judged claims about the table.
    pub judged: Vec<Judged>,
}

/// A row of a table.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Row {
    /// The server, and the place along the sweep if there are several.
    pub label: String,
    /// Cells, one per column: the estimate measured here, and the paper's number.
    pub cells: Vec<(Option<Estimate>, Option<f64>)>,
}

/// A number from the paper, shown beside a figure.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PaperValue {
    /// Description of the number.
    pub what: String,
    /// The number.
    pub value: f64,
    /// Unit of the number.
    pub unit: String,
    /// Place in the paper's text.
    pub place: String,
}

/// The peak of a server along a sweep, and what is left of it past the peak.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Saturation {
    /// The sweep.
    pub sweep: String,
    /// The server's label.
    pub server: String,
    /// Highest median goodput, in replies per second.
    pub peak: Estimate,
    /// Offered rate at the peak, in sessions per second (the sweep's value for closed loops).
    pub at: f64,
    /// Highest rate offered with a valid point, as a multiple of the rate at the peak.
    pub offered: f64,
    /// Share of the peak left at the highest rate, paired within rounds.
    pub kept: Option<Estimate>,
}

/// A judged claim.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Judged {
    /// The claim's id.
    pub id: String,
    /// The claim, in words.
    pub text: String,
    /// Place in the paper's text.
    pub place: String,
    /// The number given in the paper.
    pub paper: Option<f64>,
    /// The quantity measured, in words: `replies/s of accept 10 at its peak ÷ that of accept 1`.
    pub measure: String,
    /// Condition for the claim to hold: `above 1.05`.
    pub holds_if: String,
    /// Estimate measured here.
    pub here: Option<Estimate>,
    /// The verdict.
    pub verdict: Verdict,
    /// Reason, where it is not obvious: what is missing, or that the interval contains both
    /// answers.
    pub why: String,
    /// Number of further rounds after which an undecided claim would be decided, if the median
    /// stays where it is and the interval narrows with the root of their number.
    #[serde(default)]
    pub rounds_more: Option<u32>,
    /// For a claim that does not hold: how many times the median is away from the paper's number,
    /// or from the bound where the text gives none. None if it is of another sign, 0 or infinite.
    #[serde(default)]
    pub apart: Option<f64>,
    /// For a paper's claim that does not hold: the conditions that were changed to find out why.
    #[serde(default)]
    pub trials: Option<Vec<Trial>>,
    /// For a trial: id of the paper's claim whose effect is looked for under a changed condition.
    /// A trial is shown, and counts as no claim.
    #[serde(default)]
    pub trial_of: Option<String>,
}

/// A condition that was changed to bring back the effect that a paper claims.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Trial {
    /// The condition, in words that follow "with".
    pub condition: String,
    /// The verdict on the effect under that condition.
    pub verdict: Verdict,
    /// The experiment that changed it.
    pub experiment: String,
}

/// Result of the trials of a claim that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A changed condition brought the effect back.
    Found,
    /// All that were changed did not.
    NotAmongTrials,
    /// None of those changed is known to bring the effect back, and some are undecided.
    Open,
    /// No experiment of the run changed a condition.
    NotLookedFor,
}

impl Judged {
    /// Returns whether this looks for the cause of a disagreement and is no claim of its own.
    pub fn is_trial(&self) -> bool {
        self.trial_of.is_some()
    }

    /// Returns what is known of the cause of a disagreement with a paper; `None` if there is
    /// none.
    pub fn cause(&self) -> Option<Cause> {
        let trials = self.trials.as_deref()?;
        let any = |verdict| trials.iter().any(|one| one.verdict == verdict);
        let all_fail = || trials.iter().all(|one| one.verdict == Verdict::DoesNotHold);
        Some(match trials {
            [] => Cause::NotLookedFor,
            _ if any(Verdict::Holds) => Cause::Found,
            _ if all_fail() => Cause::NotAmongTrials,
            _ => Cause::Open,
        })
    }
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval meets the condition.
    Holds,
    /// The whole interval fails the condition.
    DoesNotHold,
    /// The interval contains both answers, or there is none.
    Undecided,
    /// The claim cannot be measured here.
    NotMeasurable,
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFINITE: f64 = f64::INFINITY;

    fn estimate(value: f64, low: f64, high: f64) -> Estimate {
        Estimate { value, low, high, n: 6 }
    }

    #[test]
    fn nothing_is_measured_if_each_point_failed_or_is_invalid() {
        let run = |tallies: &[(u32, u32, u32)]| {
            let chapter = |&(measured, invalid, failed): &(u32, u32, u32)| Chapter {
                tally: Tally { planned: 9, measured, invalid, failed, ..Tally::default() },
                remarks: vec![("up: nginx at 1".to_owned(), "no h2o".to_owned()); failed as usize],
                ..Chapter::default()
            };
            let chapters = tallies.iter().map(chapter).collect();
            Findings { chapters, ..Findings::default() }.nothing_measured()
        };
        let said = "nothing was measured: of 5 points 2 failed and 3 are INVALID (up: nginx at 1: \
                    no h2o)";
        assert_eq!(run(&[(3, 3, 0), (0, 0, 2)]).as_deref(), Some(said));
        // A point is enough; and of a run that has only begun nothing is said.
        assert_eq!([run(&[(3, 3, 0), (1, 0, 2)]), run(&[(0, 0, 0)])], [None, None]);
    }

    #[test]
    fn half_the_width_of_an_interval_with_one_infinite_end_is_infinite_and_of_two_is_0() {
        assert_eq!(estimate(4.0, 3.0, 5.0).half_width(), Some(0.25));
        assert_eq!(estimate(4.0, 3.0, INFINITE).half_width(), Some(INFINITE));
        assert_eq!(estimate(INFINITE, 3.0, INFINITE).half_width(), Some(INFINITE));
        assert_eq!(estimate(INFINITE, INFINITE, INFINITE).half_width(), Some(0.0));
        assert_eq!(estimate(0.0, 0.0, 0.0).half_width(), Some(0.0));
        assert_eq!(estimate(0.0, 0.0, 1.0).half_width(), Some(INFINITE));
    }

    #[test]
    fn an_infinite_estimate_is_written_as_json_and_read_again() {
        for here in [estimate(INFINITE, -INFINITE, INFINITE), estimate(2.0, 1.5, INFINITE)] {
            let text = serde_json::to_string(&here).unwrap();
            assert!(text.contains("\"∞\"") && !text.contains("null"), "{text}");
            assert_eq!(serde_json::from_str::<Estimate>(&text).unwrap(), here);
        }
        let whole = r#"{"value":2,"low":1,"high":3.5,"n":6}"#;
        assert_eq!(serde_json::from_str::<Estimate>(whole).unwrap(), estimate(2.0, 1.0, 3.5));
        assert!(serde_json::from_str::<Estimate>(&whole.replace("3.5", "\"x\"")).is_err());
    }
}
