//! The model against the real server: each point of a measured ladder is simulated at the offered
//! rate, and its goodput must agree within a few percent. `--nocapture` shows the table.
//!
//! Two numbers are taken from the run itself, because they belong to the machine: the cost of a
//! request, from the goodput of a server with a short backlog at twice its capacity, and with it
//! the capacity of the core. All other costs are the model's defaults. Points during which the host
//! took the processor away for more than a twentieth of the time are left out: the model has no
//! such host.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a broken expectation is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use weir_accept::{PolicyConfig, PolicyName};
use weir_sim::{Class, Distribution, SECOND_NS, Scenario, Step, run};

/// Paths of the measured runs, below `results`.
const RUNS: [&str; 1] = ["2026-11-23-2core-epyc/overload/ladder-600us/points.jsonl"];

/// The server, and its load, whose goodput calibrates the cost of a request.
const CALIBRATED_BY: (&str, &str) = ("weir-backlog-64", "2");

/// Maximum difference between simulated and measured goodput, as a share of the capacity.
const ERROR_MAX: f64 = 0.05;

/// Offered and good requests per second, for each valid repetition.
type Points = BTreeMap<(String, String), Vec<(f64, f64)>>;

fn measured() -> Points {
    let mut points = Points::new();
    for line in RUNS.iter().flat_map(|run| lines(run)) {
        if line["record"] == "point" && is_sound(&line) {
            let key = &line["key"];
            let place = (key["server"].as_str().unwrap().to_owned(), key["x"].to_string());
            let good = line["load"]["good_per_s"].as_f64().unwrap();
            let planned = line["load"]["planned_per_s"].as_f64().unwrap();
            let place = (place.0, place.1.trim_end_matches(".0").to_owned());
            points.entry(place).or_default().push((planned, good));
        }
    }
    points
}

fn lines(run: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results").join(run);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn is_sound(line: &Value) -> bool {
    let load = &line["load"];
    let counts = load["valid"] == true || load["late_only"] == true;
    let flags = line["flags"].as_array().into_iter().flatten();
    counts && !flags.into_iter().any(|flag| flag["kind"] == "steal")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Returns the setting of a server of the ladder, if the model can run it.
fn policy(server: &str) -> Option<PolicyConfig> {
    let (name, backlog) = match server {
        "weir" => (PolicyName::Adaptive, 4096),
        "weir-limit" => (PolicyName::Limit, 4096),
        "weir-backlog-64" => (PolicyName::Limit, 64),
        _ => return None,
    };
    Some(PolicyConfig { name, backlog, ..PolicyConfig::default() })
}

fn scenario(policy: PolicyConfig, capacity: f64, rate: f64) -> Scenario {
    let with = |service_ns: u64| Scenario {
        policy,
        classes: vec![Class { weight: 1.0, service: Distribution::Fixed(service_ns) }],
        load: vec![Step { from_ns: 0, rate }],
        duration_ns: 8 * SECOND_NS,
        measured_from_ns: 2 * SECOND_NS,
        ..Scenario::default()
    };
    let rest_ns = 1e9 / with(0).capacity();
    with((1e9 / capacity - rest_ns) as u64)
}

#[test]
fn the_model_says_what_was_measured() {
    let points = measured();
    let by = (CALIBRATED_BY.0.to_owned(), CALIBRATED_BY.1.to_owned());
    let capacity = median(points[&by].iter().map(|(_, good)| *good));
    println!("capacity {capacity:.0}/s\nserver, times capacity, offered, measured, model, error");
    let mut wrong = Vec::new();
    let mut compared = 0;
    for ((server, times), values) in &points {
        let Some(policy) = policy(server) else { continue };
        let offered = median(values.iter().map(|(planned, _)| *planned));
        let good = median(values.iter().map(|(_, good)| *good));
        let model = run(&scenario(policy, capacity, offered), 1).goodput();
        let error = (model - good) / capacity;
        let line = format!(
            "{server}, {times}, {offered:.0}, {good:.0}, {model:.0}, {:+.1} %",
            100.0 * error
        );
        println!("{line}");
        compared += 1;
        if error.abs() > ERROR_MAX {
            wrong.push(line);
        }
    }
    assert!(compared >= 12, "{compared} points to compare with");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
