//! Lays out tables: a row per server, a column per metric, at places of a sweep, with the paper's
//! numbers in the cells they fit.

use super::estimate::{Pick, Side, peak};
use super::figures::info;
use super::labels;
use super::study::{PEAK_OF, PointIndex, Study, is_valid};
use super::values;
use crate::experiment::{At, Position, Table};
use crate::findings::{Row, Sheet};
use crate::paper::Value;

/// Returns a table, and for each of `values` whether it was placed in a cell.
pub(super) fn sheet(study: &Study<'_>, table: &Table, values: &[&Value]) -> (Sheet, Vec<bool>) {
    let mut used = vec![false; values.len()];
    let mut rows = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    notes.extend((!table.note.is_empty()).then(|| table.note.clone()));
    let index = study.experiment.sweep.iter().position(|sweep| sweep.id == table.sweep);
    if let Some(index) = index {
        let servers = study.experiment.servers_of(study.sweep(index), &table.servers);
        let common = common(study, index, &servers);
        notes.extend(table.at.iter().filter_map(|at| note(study, index, *at, common)));
        for server in servers {
            for at in &table.at {
                let value = value_index(study, index, server, *at, common);
                let spot = value.map(|value| PointIndex { sweep: index, server, value });
                let mut row = row(study, table, server, spot);
                if table.at.len() > 1 {
                    row.label += &format!(", {}", at_words(study, index, *at));
                } else {
                    fill(study, table, server, &mut row, values, &mut used);
                }
                rows.push(row);
            }
        }
    }
    let columns = table.columns.iter().map(|name| info(name)).map(|info| (info.label, info.unit));
    let sheet = Sheet {
        id: table.id.clone(),
        title: table.title.clone(),
        note: notes.join(" "),
        columns: columns.collect(),
        rows,
        ..Sheet::default()
    };
    (sheet, used)
}

fn row(study: &Study<'_>, table: &Table, server: usize, spot: Option<PointIndex>) -> Row {
    let cell = |metric: &String| (spot.and_then(|spot| values::valid(study, spot, metric)), None);
    let cells = table.columns.iter().map(cell).collect();
    Row { label: study.label(server).to_owned(), cells }
}

fn fill(
    study: &Study<'_>,
    table: &Table,
    server: usize,
    row: &mut Row,
    values: &[&Value],
    used: &mut [bool],
) {
    let id = &study.experiment.server[server].id;
    for (cell, metric) in row.cells.iter_mut().zip(&table.columns) {
        let fits = |value: &&Value| {
            value.server.as_ref() == Some(id) && value.metric.as_ref() == Some(metric)
        };
        if let Some(found) = values.iter().position(fits) {
            cell.1 = Some(values[found].value);
            used[found] = true;
        }
    }
}

/// Returns the first and last value of the sweep at which every server with any valid point has
/// one: a table compares servers, so all are read at the same place.
pub(super) fn common(
    study: &Study<'_>,
    sweep: usize,
    servers: &[usize],
) -> (Option<usize>, Option<usize>) {
    let has = |server: usize, value: usize| {
        study.points(PointIndex { sweep, server, value }).any(|(_, point)| is_valid(point))
    };
    let count = study.sweep(sweep).values.len();
    let there: Vec<usize> =
        servers.iter().copied().filter(|one| (0..count).any(|value| has(*one, value))).collect();
    let all = |value: &usize| !there.is_empty() && there.iter().all(|one| has(*one, *value));
    ((0..count).find(all), (0..count).rev().find(all))
}

pub(super) fn value_index(
    study: &Study<'_>,
    sweep: usize,
    server: usize,
    at: At,
    (first, last): (Option<usize>, Option<usize>),
) -> Option<usize> {
    match at {
        At::Value(x) => study.sweep(sweep).index_of(x),
        At::Named(Position::First) => first,
        At::Named(Position::Last) => last,
        At::Named(Position::Peak) => {
            let curve = study.curve(sweep, server, PEAK_OF);
            let side = Side { pick: Pick::Fixed(0), curve, base: None };
            peak(&side.curve, &side.rounds())
        }
    }
}

fn at_words(study: &Study<'_>, sweep: usize, at: At) -> String {
    match at {
        At::Value(x) => format!("at {}", labels::place(study, study.sweep(sweep), x)),
        At::Named(Position::First) => "at the lowest".to_owned(),
        At::Named(Position::Last) => "at the highest".to_owned(),
        At::Named(Position::Peak) => "at its peak".to_owned(),
    }
}

/// Describes where the table is taken, and why that is not the end of the sweep.
pub(super) fn note(
    study: &Study<'_>,
    index: usize,
    at: At,
    (first, last): (Option<usize>, Option<usize>),
) -> Option<String> {
    let sweep = study.sweep(index);
    let ends = (Some(0), sweep.values.len().checked_sub(1));
    let (here, end, name) = match at {
        At::Value(x) => return Some(format!("At {}.", labels::place(study, sweep, x))),
        At::Named(Position::Peak) => {
            let peak = "Each server's peak is where its median goodput is highest: replies that \
                        are no refusals, in time.";
            return Some(peak.to_owned());
        }
        At::Named(Position::First) => (first, ends.0, "lowest"),
        At::Named(Position::Last) => (last, ends.1, "highest"),
    };
    let Some(value) = here else {
        return Some(format!("The {name} has no value: no value of the sweep is valid for all."));
    };
    let x = labels::place(study, sweep, *sweep.values.get(value)?);
    Some(match here == end {
        true => format!("The {name} is {x}."),
        false => format!(
            "The {name} is {x}, the {name} value of the sweep with valid points of every server."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::experiment::Experiment;
    use crate::record::Line;

    fn value(server: &str, metric: &str) -> Value {
        let paper = fixtures::paper(&format!(
            "[[value]]\nfigure = \"table-1\"\nwhat = \"w\"\nvalue = 3\nunit = \"u\"\n\
             where = \"p\"\nserver = \"{server}\"\nmetric = \"{metric}\"\n"
        ));
        paper.value[0].clone()
    }

    #[test]
    fn a_cell_has_the_number_here_and_the_papers() {
        let experiment = fixtures::experiment();
        let lines = fixtures::both();
        let study = Study::new("p/e", &experiment, &lines);
        let values = [value("two", "response_p99"), value("six", "response_p99")];
        let values: Vec<&Value> = values.iter().collect();
        let (sheet, used) = sheet(&study, &experiment.table[0], &values);
        assert_eq!(used, [true, false]);
        let of = |row: usize, column: usize| sheet.rows[row].cells[column].0.unwrap().value;
        assert_eq!((of(0, 0), of(1, 0), of(1, 1)), (550.0, 1500.0, 1.0));
        assert_eq!((sheet.rows[0].cells[1].1, sheet.rows[1].cells[1].1), (None, Some(3.0)));
        assert_eq!(sheet.note, "The highest is 4 × the capacity of accept 1.");
    }

    #[test]
    fn a_peak_is_where_most_was_served_and_not_where_most_was_refused() {
        let experiment = fixtures::experiment();
        let line = |x, replies, good| {
            let mut point = fixtures::point("two", x, 0, replies);
            point.load.good_per_s = Some(good);
            Line::Point(Box::new(point))
        };
        let lines = [line(1.0, 900.0, 900.0), line(2.0, 1900.0, 950.0), line(4.0, 3900.0, 920.0)];
        let study = Study::new("p/e", &experiment, &lines);
        let peak = value_index(&study, 0, 1, At::Named(Position::Peak), (Some(0), Some(2)));
        assert_eq!(peak, Some(1));
    }

    #[test]
    fn the_last_place_is_one_where_all_are_valid() {
        let experiment = fixtures::experiment();
        let mut lines = fixtures::lines("one", &[(1.0, [1.0; 3]), (2.0, [2.0; 3])]);
        lines.extend(fixtures::lines("two", &[(1.0, [3.0; 3]), (2.0, [4.0; 3]), (4.0, [5.0; 3])]));
        lines.push(fixtures::invalid("one", 4.0, 0, "late"));
        let study = Study::new("p/e", &experiment, &lines);
        let (sheet, _) = sheet(&study, &experiment.table[0], &[]);
        assert_eq!(sheet.rows[1].cells[0].0.unwrap().value, 4.0);
        assert!(sheet.note.contains("the highest value of the sweep with valid"), "{}", sheet.note);
    }

    #[test]
    fn several_places_are_several_rows() {
        let text = fixtures::TEXT.replace("columns", "at = [1, \"peak\"]\ncolumns");
        let experiment = Experiment::parse(&text).unwrap();
        let lines = fixtures::both();
        let study = Study::new("p/e", &experiment, &lines);
        let values = [value("two", "response_p99")];
        let (sheet, used) = sheet(&study, &experiment.table[0], &[&values[0]]);
        assert_eq!(used, [false]);
        let labels: Vec<&str> = sheet.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels[0], "accept 1, at 1 × the capacity of accept 1");
        assert_eq!(labels[3], "nginx, at its peak");
        assert_eq!(sheet.rows[1].cells[0].0.unwrap().value, 1200.0);
        let peak = "Each server's peak is where its median goodput is highest";
        assert!(sheet.note.contains(peak), "{}", sheet.note);
    }
}
