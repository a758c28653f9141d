//! The experiments and papers in `experiments/`: each file is read into its type, and every name in
//! it is looked up. Nothing is run, and nothing here knows what a metric is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot read its files fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use weir_lab::experiment::{
    At, Axis, Claim, Experiment, Generator, Pace, Quantity, RateUnit, Sweep,
};
use weir_lab::paper::Paper;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

/// Returns the files of a directory and its subdirectories, by their path from `from` without
/// `.toml`.
fn files(directory: &Path, from: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files(&path, from));
        } else {
            let id = path.strip_prefix(from).unwrap().with_extension("");
            found.insert(id.to_str().unwrap().to_owned(), path);
        }
    }
    found
}

fn read<T>(path: &Path, parse: fn(&str) -> Result<T, String>) -> T {
    let text = fs::read_to_string(path).unwrap();
    parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn experiments() -> BTreeMap<String, Experiment> {
    let all = files(&root(), &root()).into_iter();
    let experiments = all.filter(|(id, _)| !id.starts_with("papers/"));
    experiments.map(|(id, path)| (id, read(&path, Experiment::parse))).collect()
}

fn papers() -> BTreeMap<String, Paper> {
    let from = root().join("papers");
    files(&from, &from).into_iter().map(|(key, path)| (key, read(&path, Paper::parse))).collect()
}

fn sweep<'a>(experiment: &'a Experiment, id: &str, place: &str) -> &'a Sweep {
    let found = experiment.sweep.iter().find(|sweep| sweep.id == id);
    found.unwrap_or_else(|| panic!("{place}: there is no sweep {id}"))
}

fn servers<'a>(experiment: &'a Experiment, sweep: &'a Sweep) -> BTreeSet<&'a str> {
    if sweep.servers.is_empty() {
        experiment.server.iter().map(|server| server.id.as_str()).collect()
    } else {
        sweep.servers.iter().map(String::as_str).collect()
    }
}

fn has(sweep: &Sweep, at: At) -> bool {
    match at {
        At::Named(_) => true,
        At::Value(x) => sweep.values.iter().any(|value| (value - x).abs() < 1e-9),
    }
}

#[test]
fn every_sweep_names_servers_that_exist_and_its_values_ascend() {
    let experiments = experiments();
    assert!(experiments.contains_key("quick"));
    for (id, experiment) in &experiments {
        let known: BTreeSet<_> = experiment.server.iter().map(|server| &server.id).collect();
        assert_eq!(known.len(), experiment.server.len(), "{id}: two servers have one id");
        for sweep in &experiment.sweep {
            let place = format!("{id}: sweep {}", sweep.id);
            for server in sweep.servers.iter().chain(&sweep.reference) {
                assert!(known.contains(server), "{place}: there is no server {server}");
            }
            let referred = sweep.rate_unit == RateUnit::Reference;
            assert_eq!(referred, sweep.reference.is_some(), "{place}: reference");
            assert!(!sweep.values.is_empty(), "{place}: no values");
            assert!(sweep.values.windows(2).all(|pair| pair[0] < pair[1]), "{place}: ascending");
            let from_elsewhere = sweep.rate.is_some() || sweep.load.pace != Pace::Open;
            let needed = sweep.x != Axis::Rate && sweep.probe.is_none();
            assert_eq!(needed, from_elsewhere, "{place}: one source of the rate");
        }
    }
}

#[test]
fn an_open_loop_is_warmed_up_for_as_long_as_clients_wait() {
    for (id, experiment) in &experiments() {
        for sweep in &experiment.sweep {
            let load = &sweep.load;
            // httperf and wrk have no warm-up, and the samples of a day are those of all of it.
            let has_none = load.generator != Generator::Weir || sweep.day.is_some();
            let warmed = has_none || *load.warmup_s >= *load.timeout_s;
            assert!(warmed, "{id}: sweep {}", sweep.id);
        }
    }
}

#[test]
fn every_figure_and_table_is_drawn_from_what_its_sweep_measures() {
    for (id, experiment) in &experiments() {
        let mut seen = BTreeSet::new();
        let figures = experiment.figure.iter();
        let tables = experiment.table.iter();
        let along_time = experiment.timeline.iter();
        let drawn = figures
            .map(|figure| (&figure.id, &figure.sweep, &figure.servers))
            .chain(along_time.map(|figure| (&figure.id, &figure.sweep, &figure.servers)));
        for (name, from, named) in
            drawn.chain(tables.map(|table| (&table.id, &table.sweep, &table.servers)))
        {
            let place = format!("{id}: {name}");
            assert!(seen.insert(name), "{place}: twice");
            let measured = servers(experiment, sweep(experiment, from, &place));
            for server in named {
                assert!(measured.contains(server.as_str()), "{place}: no server {server}");
            }
        }
        for table in &experiment.table {
            let sweep = sweep(experiment, &table.sweep, id);
            assert!(table.at.iter().all(|at| has(sweep, *at)), "{id}: {}: at", table.id);
        }
        for figure in &experiment.timeline {
            let sweep = sweep(experiment, &figure.sweep, id);
            assert!(sweep.timeline_ms.is_some() && has(sweep, figure.at), "{id}: {}", figure.id);
        }
    }
}

/// Returns the sweeps, and the metrics that a figure, a table or a matrix takes from each.
fn drawn_metrics(experiment: &Experiment) -> Vec<(&str, &[String])> {
    let figures = experiment.figure.iter().map(|one| (one.sweep.as_str(), one.y.as_slice()));
    let tables = experiment.table.iter().map(|one| (one.sweep.as_str(), one.columns.as_slice()));
    let matrices = experiment.matrix.iter().flat_map(|one| {
        one.of.iter().map(|cells| (cells.sweep.as_str(), std::slice::from_ref(&one.metric)))
    });
    figures.chain(tables).chain(matrices).collect()
}

#[test]
fn a_metric_of_a_timeline_of_clients_beside_or_of_a_probe_is_of_a_sweep_that_has_them() {
    for (id, experiment) in &experiments() {
        for (from, metrics) in drawn_metrics(experiment) {
            let sweep = sweep(experiment, from, id);
            let any = |family: &str| metrics.iter().any(|metric| metric.starts_with(family));
            assert!(sweep.timeline_ms.is_some() || !any("timeline."), "{id}: sweep {from}");
            assert!(sweep.background_load.is_some() || !any("beside."), "{id}: sweep {from}");
            assert_eq!(sweep.probe.is_some(), any("probe_"), "{id}: sweep {from}");
        }
    }
}

#[test]
fn a_figure_that_draws_times_in_calls_has_a_sweep_that_counts_them() {
    for (id, experiment) in &experiments() {
        for (from, metrics) in drawn_metrics(experiment) {
            let counted = sweep(experiment, from, id).calls;
            let needed = metrics.iter().any(|metric| metric.starts_with("calls."));
            assert!(counted || !needed, "{id}: sweep {from} does not count calls");
        }
    }
}

#[test]
fn every_experiment_of_a_paper_has_its_paper_and_the_other_way_round() {
    let papers = papers();
    let mut reproduced = BTreeSet::new();
    for (id, experiment) in &experiments() {
        let Some(key) = &experiment.paper else { continue };
        assert!(papers.contains_key(key), "{id}: there is no paper {key}");
        assert!(id.starts_with(&format!("{key}/")), "{id}: not in the folder of {key}");
        reproduced.insert(key.clone());
    }
    assert_eq!(reproduced, papers.keys().cloned().collect());
}

#[test]
fn every_claim_is_judged_by_points_that_are_measured_or_says_why_not() {
    let experiments = experiments();
    for (key, paper) in &papers() {
        let mut seen = BTreeSet::new();
        for claim in &paper.claim {
            let place = format!("{key}: claim {}", claim.id);
            assert!(seen.insert(&claim.id), "{place}: twice");
            assert!(!claim.text.is_empty() && !claim.place.is_empty(), "{place}: says nothing");
            let judged = claim.top.is_some() && (claim.above.is_some() || claim.below.is_some());
            assert_ne!(judged, claim.not_measurable.is_some(), "{place}: judged, or why not");
            if judged {
                let experiment = experiments.get(&claim.experiment);
                let experiment = experiment.unwrap_or_else(|| panic!("{place}: no experiment"));
                assert_eq!(experiment.paper.as_ref(), Some(key), "{place}: another's experiment");
                judge(&place, claim, experiment);
                assert_eq!(paper.fits(&claim.experiment, experiment), Ok(()), "{place}");
            }
        }
    }
}

fn judge(place: &str, claim: &Claim, experiment: &Experiment) {
    if let (Some(above), Some(below)) = (claim.above, claim.below) {
        assert!(above < below, "{place}: nothing is between");
    }
    let figures = experiment.figure.iter().map(|figure| &figure.id);
    let mut drawn = figures.chain(experiment.table.iter().map(|table| &table.id));
    assert!(drawn.any(|id| *id == claim.figure), "{place}: no figure {}", claim.figure);
    for quantity in claim.quantities() {
        let Quantity { metric, server, at, sweep: named } = quantity;
        let sweep = sweep(experiment, named.as_ref().unwrap_or(&claim.sweep), place);
        assert!(servers(experiment, sweep).contains(server.as_str()), "{place}: {server}");
        assert!(has(sweep, *at), "{place}: {at:?} is not a value of the sweep");
        assert!(sweep.calls || !metric.starts_with("calls."), "{place}: calls are not counted");
    }
}

/// Claims whose words ask for tighter bounds than half and twice of their number, because what they
/// compare is alike or follows from the workload.
const TIGHT: [&str; 11] = [
    "banga-scalable: day-cached-similar",
    "gammo-epoll: ctl-sum-poll",
    "gammo-epoll: ctl-sum-epoll2-lt",
    "gammo-epoll: ctl-ctlv-time",
    "pariag-accept: demand-spec",
    "pariag-accept: demand-one",
    "pariag-accept: one-gone-accounts",
    "pariag-accept: tux-one-completes-inf",
    "pariag-accept: tux-one-completes-1",
    "pariag-accept: drops-tux-others",
    "pariag-accept: drops-tux-overflow",
];

#[test]
fn two_bounds_are_half_and_twice_of_a_number_or_one_is_the_root_of_a_ratio_but_for_tight_ones() {
    let near = |bound: f64, rule: f64| (bound - rule).abs() <= 0.02 * rule.abs();
    let mut others = Vec::new();
    for (key, paper) in &papers() {
        for claim in &paper.claim {
            let bounds = claim.paper.zip(claim.above.zip(claim.below));
            let Some((number, (above, below))) = bounds else { continue };
            let is_of_number = near(above, number / 2.0) && near(below, 2.0 * number);
            let has_root = near(above, number.sqrt()) || near(below, number.sqrt());
            if !is_of_number && !has_root {
                others.push(format!("{key}: {}", claim.id));
            }
        }
    }
    assert_eq!(others, TIGHT);
}

#[test]
fn every_value_that_names_a_server_or_a_metric_is_beside_something() {
    let experiments = experiments();
    for (key, paper) in &papers() {
        let of_paper = experiments.values().filter(|one| one.paper.as_ref() == Some(key));
        let of_paper: Vec<_> = of_paper.collect();
        for value in &paper.value {
            let place = format!("{key}: {}: {}", value.figure, value.what);
            assert!(value.value.is_finite() && !value.place.is_empty(), "{place}");
            let drawn = of_paper.iter().find(|one| {
                let figures = one.figure.iter().map(|figure| &figure.id);
                let tables = one.table.iter().map(|table| &table.id);
                let scatters = one.scatter.iter().map(|scatter| &scatter.id);
                figures.chain(tables).chain(scatters).any(|id| *id == value.figure)
            });
            let drawn = drawn.unwrap_or_else(|| panic!("{place}: nothing draws it"));
            if let Some(server) = &value.server {
                assert!(drawn.server.iter().any(|one| one.id == *server), "{place}: {server}");
            }
        }
    }
}

#[test]
fn every_experiment_and_paper_is_sound_and_fits() {
    let entries = weir_lab::catalogue::all().unwrap();
    assert_eq!(entries.len(), experiments().len());
    for key in weir_lab::catalogue::papers() {
        let text = weir_lab::catalogue::paper_text(&key).unwrap();
        let paper = weir_lab::catalogue::paper(&key, text).unwrap();
        for entry in &entries {
            assert_eq!(paper.fits(&entry.id, &entry.experiment), Ok(()), "{key}");
            if entry.experiment.paper.as_ref() == Some(&key) {
                assert_eq!(paper.has_looked_for(&entry.experiment), Ok(()), "{}", entry.id);
            }
        }
    }
}
