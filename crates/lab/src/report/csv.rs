//! Writes figures and tables as CSV (RFC 4180, but lines end with LF), with full precision.

use super::claims::{cause, verdict};
use crate::findings::{Estimate, Findings, Picture, Sheet};

/// Returns a figure as CSV: a line for each point of each series. The last two columns are the
/// labels of the axes, which contain the units.
pub fn csv(picture: &Picture) -> String {
    let mut text = line(&[
        "series",
        "x",
        "median",
        "low",
        "high",
        "valid_points",
        "invalid_points",
        "invalid_median",
        "flagged_points",
        "x_axis",
        "y_axis",
    ]);
    for series in &picture.series {
        for mark in &series.marks {
            let mut fields = vec![series.label.clone(), plain(mark.x)];
            fields.extend(estimate(mark.estimate.as_ref()));
            fields.push(mark.invalid.to_string());
            fields.push(mark.invalid_value.map_or_else(String::new, plain));
            fields.push(mark.flagged.to_string());
            fields.push(picture.x_label.clone());
            fields.push(picture.y_label.clone());
            text.push_str(&line(&fields));
        }
    }
    text
}

/// Returns a table as CSV: a line for each row. Each column of the table becomes five: median, ends
/// of the interval, number of points, and the paper's number.
pub fn sheet_csv(sheet: &Sheet) -> String {
    let mut head = vec!["row".to_owned()];
    for (name, unit) in &sheet.columns {
        let unit = if unit.is_empty() { String::new() } else { format!(" [{unit}]") };
        head.extend(["", " low", " high"].map(|what| format!("{name}{what}{unit}")));
        head.push(format!("{name} points"));
        head.push(format!("{name} paper{unit}"));
    }
    let mut text = line(&head);
    for row in &sheet.rows {
        let mut fields = vec![row.label.clone()];
        for nth in 0..sheet.columns.len() {
            let (here, paper) = row.cells.get(nth).copied().unwrap_or_default();
            fields.extend(estimate(here.as_ref()));
            fields.push(paper.map_or_else(String::new, plain));
        }
        text.push_str(&line(&fields));
    }
    text
}

/// Returns the verdicts as CSV: a line for each claim and for each trial of a cause, which says in
/// the last column whose, with the number of points and half the width of the interval in percent
/// of the median.
pub fn claims_csv(findings: &Findings) -> String {
    let mut text = line(&[
        "experiment",
        "claim",
        "place",
        "median",
        "low",
        "high",
        "points",
        "half_width [%]",
        "paper",
        "holds_if",
        "verdict",
        "rounds_more",
        "why",
        "text",
        "times_apart",
        "cause",
        "trial_of",
    ]);
    for chapter in &findings.chapters {
        for judged in chapter.all_judged() {
            let half = judged.here.and_then(|here| here.half_width());
            let mut fields = vec![chapter.id.clone(), judged.id.clone(), judged.place.clone()];
            fields.extend(estimate(judged.here.as_ref()));
            fields.push(half.map_or_else(String::new, |share| plain(100.0 * share)));
            fields.push(judged.paper.map_or_else(String::new, plain));
            fields.push(judged.holds_if.clone());
            fields.push(verdict(judged.verdict).1.to_owned());
            fields.push(judged.rounds_more.map_or_else(String::new, |rounds| rounds.to_string()));
            fields.extend([judged.why.clone(), judged.text.clone()]);
            fields.push(judged.apart.map_or_else(String::new, plain));
            fields.push(cause(judged));
            fields.push(judged.trial_of.clone().unwrap_or_default());
            text.push_str(&line(&fields));
        }
    }
    text
}

fn estimate(estimate: Option<&Estimate>) -> [String; 4] {
    estimate.map_or_else(Default::default, |estimate| {
        let [value, low, high] = [estimate.value, estimate.low, estimate.high].map(extended);
        [value, low, high, estimate.n.to_string()]
    })
}

/// Formats a number for programs, which read `inf`; empty if it is none.
fn extended(value: f64) -> String {
    if value.is_nan() { String::new() } else { value.to_string() }
}

/// Formats a number for programs; empty if it is not finite.
fn plain(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}

fn line<T: AsRef<str>>(fields: &[T]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| quoted(field.as_ref())).collect();
    fields.join(",") + "\n"
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{Mark, Row, Series, Stroke};
    use crate::report::fixtures;

    #[test]
    fn fields_with_commas_quotes_and_line_ends_are_quoted() {
        assert_eq!(line(&["a", "b,c", "d\"e", "f\ng"]), "a,\"b,c\",\"d\"\"e\",\"f\ng\"\n");
    }

    #[test]
    fn a_figure_has_a_line_a_point_and_leaves_what_is_absent_empty() {
        let mut picture = fixtures::findings().chapters[0].pictures[0].clone();
        let estimate = Some(Estimate { value: 1.25, low: 1.0, high: 2.0, n: 3 });
        let good = Mark { x: 10.0, at: 1.0, estimate, invalid: 0, invalid_value: None, flagged: 1 };
        let bad = Mark {
            x: 20.0,
            at: 2.0,
            estimate: None,
            invalid: 2,
            invalid_value: Some(9.5),
            flagged: 0,
        };
        picture.series = vec![Series {
            label: "a, \"b\"".to_owned(),
            marks: vec![good, bad],
            stroke: Stroke::Marks,
        }];
        picture.x_label = "rate, 1/s".to_owned();
        picture.y_label = "ratio".to_owned();
        let lines: Vec<String> = csv(&picture).lines().skip(1).map(str::to_owned).collect();
        assert_eq!(
            lines,
            [
                r#""a, ""b""",10,1.25,1,2,3,0,,1,"rate, 1/s",ratio"#,
                r#""a, ""b""",20,,,,,2,9.5,0,"rate, 1/s",ratio"#,
            ]
        );
    }

    #[test]
    fn each_verdict_has_its_number_of_points_and_its_width() {
        let text = claims_csv(&fixtures::findings());
        let lines: Vec<&str> = text.lines().collect();
        let findings = fixtures::findings();
        let all: usize = findings.chapters.iter().map(|one| one.all_judged().count()).sum();
        assert_eq!(lines.len() - 1, all);
        assert!(lines.iter().any(|line| line.contains(",undecided,14,")), "{text}");
        let trial = lines.iter().find(|line| line.contains(",inf-idle,")).unwrap();
        assert!(trial.contains(",inf,2,inf,5,,") && trial.ends_with(",inf-past"), "{trial}");
        let trials = lines.iter().skip(1).filter(|line| !line.ends_with(',')).count();
        assert_eq!(trials, 1, "{text}");
    }

    #[test]
    fn a_table_has_as_many_fields_in_each_line_as_in_its_head() {
        let mut sheet = fixtures::findings().chapters[0].sheets[0].clone();
        sheet.columns = vec![("C_avg".to_owned(), String::new()), ("p99".to_owned(), "ms".into())];
        let here = Some(Estimate { value: 2.0, low: 1.0, high: 3.0, n: 5 });
        let cells = vec![(here, Some(8.81))];
        sheet.rows = vec![Row { label: "accept 10".to_owned(), cells }];
        assert_eq!(
            sheet_csv(&sheet),
            "row,C_avg,C_avg low,C_avg high,C_avg points,C_avg paper,\
             p99 [ms],p99 low [ms],p99 high [ms],p99 points,p99 paper [ms]\n\
             accept 10,2,1,3,5,8.81,,,,,\n"
        );
    }
}
