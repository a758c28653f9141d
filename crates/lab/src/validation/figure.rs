//! Validation of figures, tables and matrices.

use std::collections::BTreeMap;

use super::references::{at_a_place, drawn};
use super::rules::{known_metrics, must};
use crate::experiment::{Experiment, Figure, Matrix, Sweep, Table};
use crate::metrics;

pub(super) fn figure(experiment: &Experiment, figure: &Figure) -> Result<(), String> {
    let place = format!("figure {}", figure.id);
    let sweep = drawn(experiment, &place, &figure.sweep, &figure.servers)?;
    let units = known_metrics(&place, "y", &figure.y)?;
    if let Some(odd) = units.iter().position(|unit| *unit != units[0]) {
        return Err(format!(
            "{place}: {} is in `{}` and {} in `{}`, and they share an axis",
            figure.y[0], units[0], figure.y[odd], units[odd]
        ));
    }
    must(!figure.x_log || sweep.values.iter().all(|value| *value > 0.0), || {
        format!("{place}: a logarithmic axis has no place for 0, a value of sweep {}", sweep.id)
    })
}

pub(super) fn table(experiment: &Experiment, table: &Table) -> Result<(), String> {
    let place = format!("table {}", table.id);
    let sweep = drawn(experiment, &place, &table.sweep, &table.servers)?;
    known_metrics(&place, "columns", &table.columns)?;
    must(!table.at.is_empty(), || format!("{place}: `at` names no place of the sweep"))?;
    table.at.iter().try_for_each(|at| at_a_place(&place, sweep, *at))
}

pub(super) fn matrix(experiment: &Experiment, matrix: &Matrix) -> Result<(), String> {
    let place = format!("matrix {}", matrix.id);
    known_metrics(&place, "metric", std::slice::from_ref(&matrix.metric))?;
    must(!matrix.of.is_empty(), || format!("{place}: `of` names no sweep"))?;
    let is_ratio = metrics::relative(&matrix.metric).is_some();
    for (index, cells) in matrix.of.iter().enumerate() {
        let base: Vec<String> = matrix.base(cells).cloned().into_iter().collect();
        must(base.is_empty() || !is_ratio, || {
            format!("{place}: {} is a ratio already", matrix.metric)
        })?;
        let sweep = drawn(experiment, &place, &cells.sweep, &base)?;
        at_a_place(&place, sweep, cells.at)?;
        must(matrix.of[..index].iter().all(|other| other.label != cells.label), || {
            format!("{place}: two columns are called {}", cells.label)
        })?;
        alone(experiment, sweep).map_err(|why| format!("{place}: {why}"))?;
    }
    Ok(())
}

/// Checks that no two servers of the sweep share a cell.
fn alone(experiment: &Experiment, sweep: &Sweep) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for server in experiment.servers_of(sweep, &[]).into_iter().map(|at| &experiment.server[at]) {
        let row = server.row.as_ref().unwrap_or(&server.label);
        if let Some(other) = seen.insert((row, &server.column), &server.id) {
            return Err(format!("servers {other} and {} are in one cell, of {row}", server.id));
        }
    }
    Ok(())
}
