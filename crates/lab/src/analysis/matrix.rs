//! Lays out matrices: one metric of many servers, with a row for each kind of server and a column
//! for each sweep and each variant of a kind.

use std::collections::BTreeSet;

use super::figures::info;
use super::study::{PointIndex, Study};
use super::tables::{common, note, value_index};
use super::values;
use crate::experiment::{Cells, Matrix, ServerSpec};
use crate::findings::{Row, Sheet};

/// A column: cells of a sweep, for the servers that have this column name.
struct Column<'a> {
    cells: &'a Cells,
    sweep: usize,
    of: &'a str,
}

/// Returns a matrix as a table.
pub(super) fn sheet(study: &Study<'_>, matrix: &Matrix) -> Sheet {
    let columns = columns(study, matrix);
    let label = |row: &str| Row {
        label: row.to_owned(),
        cells: columns.iter().map(|column| (cell(study, matrix, row, column), None)).collect(),
    };
    let unit = |column: &Column<'_>| match matrix.base(column.cells) {
        Some(_) => "times".to_owned(),
        None => info(&matrix.metric).unit,
    };
    let head = columns.iter().map(|column| (column.label(), unit(column))).collect();
    let mut notes = vec![format!("{}.", info(&matrix.metric).label)];
    notes.extend((!matrix.note.is_empty()).then(|| matrix.note.clone()));
    notes.extend(places(study, matrix, &columns));
    Sheet {
        id: matrix.id.clone(),
        title: matrix.title.clone(),
        note: notes.join(" "),
        columns: head,
        rows: rows(study, &columns).into_iter().map(label).collect(),
        ..Sheet::default()
    }
}

impl Column<'_> {
    fn label(&self) -> String {
        match self.of.is_empty() {
            true => self.cells.label.clone(),
            false => format!("{}, {}", self.cells.label, self.of),
        }
    }
}

/// Returns the name of a server's row.
fn row_of(server: &ServerSpec) -> &str {
    server.row.as_deref().unwrap_or(&server.label)
}

/// Returns the names of the rows, in the order of the servers: those that a column measures.
fn rows<'a>(study: &Study<'a>, columns: &[Column<'_>]) -> Vec<&'a str> {
    let sweeps = columns.iter().map(|column| study.sweep(column.sweep));
    let measured: BTreeSet<usize> =
        sweeps.flat_map(|sweep| study.experiment.servers_of(sweep, &[])).collect();
    distinct(measured.into_iter().map(|at| row_of(&study.experiment.server[at])))
}

/// Returns the columns, sweep by sweep, in the order of the servers.
fn columns<'a>(study: &Study<'a>, matrix: &'a Matrix) -> Vec<Column<'a>> {
    let sweeps = &study.experiment.sweep;
    let each = matrix.of.iter().filter_map(|cells| {
        let sweep = sweeps.iter().position(|sweep| sweep.id == cells.sweep)?;
        let servers = study.experiment.servers_of(study.sweep(sweep), &[]);
        let all = servers.into_iter().map(|at| study.experiment.server[at].column.as_str());
        Some(distinct(all).into_iter().map(move |of| Column { cells, sweep, of }))
    });
    each.flatten().collect()
}

fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    all.for_each(|one| {
        if !seen.contains(&one) {
            seen.push(one);
        }
    });
    seen
}

fn cell(
    study: &Study<'_>,
    matrix: &Matrix,
    row: &str,
    column: &Column<'_>,
) -> Option<crate::findings::Estimate> {
    let sweep = column.sweep;
    let servers = study.experiment.servers_of(study.sweep(sweep), &[]);
    let server = servers.iter().copied().find(|at| {
        let spec = &study.experiment.server[*at];
        row_of(spec) == row && spec.column == column.of
    })?;
    let common = common(study, sweep, &servers);
    let spot = |server| {
        let value = value_index(study, sweep, server, column.cells.at, common)?;
        Some(PointIndex { sweep, server, value })
    };
    match matrix.base(column.cells) {
        Some(base) => {
            let base = spot(study.server(base)?)?;
            values::ratio(study, spot(server)?, base, &matrix.metric)
        }
        None => values::valid(study, spot(server)?, &matrix.metric),
    }
}

/// Describes where the columns are taken; a single sentence if all are taken at the same place.
fn places(study: &Study<'_>, matrix: &Matrix, columns: &[Column<'_>]) -> Vec<String> {
    let mut said: Vec<(&str, String)> = Vec::new();
    for cells in &matrix.of {
        let Some(column) = columns.iter().find(|column| column.cells.label == cells.label) else {
            continue;
        };
        let servers = study.experiment.servers_of(study.sweep(column.sweep), &[]);
        let common = common(study, column.sweep, &servers);
        let place = note(study, column.sweep, cells.at, common);
        said.extend(place.map(|place| (cells.label.as_str(), place)));
    }
    match said.first() {
        Some((_, first)) if said.iter().all(|(_, place)| place == first) => vec![first.clone()],
        _ => said.into_iter().map(|(label, place)| format!("{label}: {place}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::experiment::Experiment;

    const ROWS: &str = r#"
[[matrix]]
id = "m"
title = "M"
metric = "reply_rate"
of = [{ sweep = "up", label = "first", at = 1 }, { sweep = "up", label = "peak", at = "peak" }]
"#;

    fn sheet_of(text: &str) -> Sheet {
        let experiment = Experiment::parse(&format!("{text}{ROWS}")).unwrap();
        let lines = fixtures::both();
        let study = Study::new("p/e", &experiment, &lines);
        sheet(&study, &experiment.matrix[0])
    }

    fn numbers(row: &Row) -> Vec<Option<f64>> {
        row.cells.iter().map(|(cell, _)| cell.map(|cell| cell.value)).collect()
    }

    #[test]
    fn servers_without_rows_are_rows_and_sweeps_are_columns() {
        let sheet = sheet_of(fixtures::TEXT);
        let heads: Vec<&str> = sheet.columns.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(heads, ["first", "peak"]);
        assert_eq!(sheet.columns[0].1, "replies/s");
        let labels: Vec<&str> = sheet.rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(labels, ["accept 1", "nginx"]);
        assert_eq!(numbers(&sheet.rows[0]), [Some(1000.0), Some(1200.0)]);
        assert!(sheet.note.starts_with("replies. first: At 1 × the capacity"), "{}", sheet.note);
    }

    #[test]
    fn cells_relative_to_a_server_are_ratios_within_rounds() {
        let experiment = format!("{}{ROWS}relative-to = \"one\"\n", fixtures::TEXT);
        let experiment = Experiment::parse(&experiment).unwrap();
        let lines = fixtures::both();
        let study = Study::new("p/e", &experiment, &lines);
        let sheet = sheet(&study, &experiment.matrix[0]);
        assert_eq!(sheet.columns[0].1, "times");
        let first = |row: &Row| row.cells[0].0.unwrap();
        assert_eq!((first(&sheet.rows[0]).value, first(&sheet.rows[1]).value), (1.0, 1.1));
        assert!((first(&sheet.rows[1]).high - 1.1).abs() < 1e-9);
    }

    #[test]
    fn a_column_may_be_relative_to_a_server_of_its_own_and_rows_are_those_measured() {
        let rows = ROWS.replace("at = 1 }", "at = 1, relative-to = \"two\" }");
        let text = fixtures::TEXT.replace("burn-us = 60", "servers = [\"two\"]");
        let experiment = Experiment::parse(&format!("{text}{rows}")).unwrap();
        let lines = fixtures::both();
        let study = Study::new("p/e", &experiment, &lines);
        let sheet = sheet(&study, &experiment.matrix[0]);
        let units: Vec<&str> = sheet.columns.iter().map(|(_, unit)| unit.as_str()).collect();
        assert_eq!(units, ["times", "replies/s"]);
        let [row] = &sheet.rows[..] else { panic!("{} rows", sheet.rows.len()) };
        assert_eq!((row.label.as_str(), numbers(row)[0]), ("nginx", Some(1.0)));
    }

    #[test]
    fn servers_of_one_row_are_its_columns() {
        let text = fixtures::TEXT
            .replace("label = \"accept 1\"", "label = \"accept 1\"\nrow = \"r\"\ncolumn = \"a\"")
            .replace("label = \"nginx\"", "label = \"nginx\"\nrow = \"r\"\ncolumn = \"b\"");
        let sheet = sheet_of(&text);
        let heads: Vec<&str> = sheet.columns.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(heads, ["first, a", "first, b", "peak, a", "peak, b"]);
        let [row] = &sheet.rows[..] else { panic!("{} rows", sheet.rows.len()) };
        assert_eq!((row.label.as_str(), numbers(row)[0]), ("r", Some(1000.0)));
        assert!(numbers(row).iter().all(Option::is_some));
    }

    #[test]
    fn a_row_without_a_server_of_a_column_has_an_empty_cell() {
        let text = fixtures::TEXT.replace("kind = \"nginx\"", "kind = \"nginx\"\ncolumn = \"b\"");
        let sheet = sheet_of(&text);
        assert_eq!(sheet.columns.len(), 4);
        assert_eq!(numbers(&sheet.rows[0]), [Some(1000.0), None, Some(1200.0), None]);
    }
}
