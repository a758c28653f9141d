//! `weir lab` from the user's side: a run from its file to its page, its state after it is killed,
//! and refused input. The meaning of the figures is tested where they are computed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use weir_tests::Stopped;
use weir_tests::server::run_within;
use weir_tests::wait::until;

use crate::WEIR;

/// Held by the one test that measures: two laboratories on the same processors disturb each other,
/// and repeat their points.
static MEASURING: Mutex<()> = Mutex::new(());

/// Longest time of a run: on a machine that is busy each of its points is measured three times.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the lab.
fn run(command: &mut Command) -> Stopped {
    run_within(LIMIT, command)
}

/// Waits until no other test measures.
fn alone() -> MutexGuard<'static, ()> {
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two limits at two rates; short, because no test here depends on speed, and with points that
/// count on a machine that was too busy for the load too, because a run without any is an error.
const EXPERIMENT: &str = r#"
title = "A <small> one"
question = "Does it run?"

[[server]]
id = "one"
label = "limit 1"
kind = "weir"
options = ["--accept-limit", "1"]

[[server]]
id = "ten"
label = "limit 10"
kind = "weir"
options = ["--accept-limit", "10"]

[[sweep]]
id = "load"
x = "rate"
values = [20, 60]
repetitions = 1
client-may-limit = true
burn-us = 100

[sweep.load]
workload = "one-byte"
warmup-s = 0.1
duration-s = 0.5
timeout-s = 1.0

[[figure]]
id = "replies"
title = "Replies"
sweep = "load"
y = ["reply_rate"]

[[table]]
id = "phases"
title = "Phases"
sweep = "load"
columns = ["accept_phases", "c_avg", "reply_rate"]
"#;

/// A spike, and clients that send nothing beside a load: at low rates, because no test here depends
/// on speed.
const OVERLOAD: &str = r#"
title = "A small spike"
question = "Is it kept along time?"

[[server]]
id = "one"
label = "weir"
kind = "weir"

[[sweep]]
id = "spike"
x = "rate"
values = [100]
repetitions = 1
client-may-limit = true
timeline-ms = 100
spike = { base = 20, before-s = 0.3, for-s = 0.4, after-s = 0.3 }

[sweep.load]
workload = "one-byte"
warmup-s = 0.1
timeout-s = 5.0

[[sweep]]
id = "mute"
x = "rate"
values = [20]
repetitions = 1
client-may-limit = true
beside = { kind = "mute", factor = 4, hold-s = 0.3 }

[sweep.load]
workload = "one-byte"
warmup-s = 0.1
duration-s = 0.5
timeout-s = 5.0

[[timeline]]
id = "spike"
title = "Spike"
sweep = "spike"

[[table]]
id = "mute"
title = "Mute"
sweep = "mute"
columns = ["reply_rate", "beside.connect_rate"]
"#;

/// A day of few requests, through a proxy whose upstream is apart.
const DAY: &str = r#"
title = "A small day"
question = "Is it sampled?"

[[server]]
id = "one"
label = "weir"
kind = "weir"
proxy = true
upstream-apart = true

[[sweep]]
id = "day"
x = "rate"
values = [40]
repetitions = 1
client-may-limit = true
day = { samples = 4, objects = 10 }

[sweep.load]
workload = "day"
warmup-s = 0
duration-s = 2.0
timeout-s = 5.0

[[scatter]]
id = "cost"
title = "Cost"
sweep = "day"
"#;

/// Two mechanisms on their own, and one that does not exist.
const PROBE: &str = r#"
title = "A small probe"
question = "What does a wait cost?"

[[server]]
id = "select"
label = "select"
kind = "weir"
options = ["--caching=on", "--mechanism", "select"]

[[server]]
id = "epoll-et"
label = "epoll-ET"
kind = "weir"
options = ["--mechanism=epoll-et"]

[[server]]
id = "none"
label = "none"
kind = "weir"
options = ["--mechanism", "telepathy"]

[[sweep]]
id = "cost"
x = "idle"
values = [0, 120]
repetitions = 1

[sweep.probe]
active = 3

[[figure]]
id = "wait"
title = "A wait"
sweep = "cost"
y = ["probe_wait_ns"]
y-log = true

[[table]]
id = "cost"
title = "Cost"
sweep = "cost"
columns = ["probe_wait_ns", "probe_event_ns", "probe_member_ns"]
"#;

/// Creates a folder with the experiment's file; results go beside it.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("small.toml"), EXPERIMENT).unwrap();
    dir
}

fn lab(dir: &TempDir, words: &[&str]) -> Command {
    let mut command = Command::new(WEIR);
    command.arg("lab").args(words).current_dir(dir.path());
    command
}

fn code(stopped: &Stopped) -> Option<i32> {
    stopped.status.code()
}

fn lines(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("points.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the existing points: server, value and round.
fn points(out: &Path) -> BTreeSet<String> {
    let of_points = |line: &Value| {
        let key = &line["key"];
        (line["record"] == "point")
            .then(|| format!("{} {} {}", key["server"], key["x"], key["round"]))
    };
    lines(out).iter().filter_map(of_points).collect()
}

/// Returns the processes on this machine that were started with something in `dir`.
fn processes_of(dir: &Path) -> Vec<String> {
    let path = dir.display().to_string();
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let commands = processes.filter_map(|process| {
        let words = fs::read(process.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&words).replace('\0', " "))
    });
    commands.filter(|command| command.contains(&path)).collect()
}

#[test]
fn a_run_is_measured_kept_and_drawn() {
    let _alone = alone();
    let dir = folder();
    let out = dir.path().join("out");
    let ran = run(&mut lab(&dir, &["run", "small.toml", "--out", "out"]));
    assert_eq!(code(&ran), Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("Report: out/report.html"), "{}", ran.stdout);
    assert_eq!(points(&out).len(), 4, "{}", ran.stderr);
    for line in lines(&out) {
        assert_eq!(line["record"], "point", "{line}");
        let flags = line["flags"].as_array().unwrap();
        let counted = |flag: &&Value| flag["kind"] == "counts" || flag["kind"] == "identity";
        assert_eq!(flags.iter().find(counted), None, "{line}");
        let (client, server) = (&line["load"]["whole"], &line["server"]["counted_whole"]);
        if client["errors"] == 0 {
            assert_eq!(client["replies"].as_f64(), server["replies"].as_f64(), "{line}");
        }
        assert!(line["cores"]["server"]["busy_s"].is_number(), "{line}");
    }
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("A &lt;small&gt; one") && !page.contains("A <small> one"));
    for file in ["summary.md", "setup.json", "figures/replies.svg", "tables/phases.csv"] {
        assert!(out.join(file).exists(), "{file}");
    }
    assert!(!out.join("work").exists(), "what is needed meanwhile is taken away");
    assert_eq!(processes_of(dir.path()), Vec::<String>::new());
    assert_nothing_is_done_again(&dir, &out);
}

/// Asserts that a complete run has nothing left to do; its report can be drawn again and compared.
fn assert_nothing_is_done_again(dir: &TempDir, out: &Path) {
    let before = fs::read(out.join("points.jsonl")).unwrap();
    let again = run(&mut lab(dir, &["run", "small.toml", "--out", "out"]));
    assert_eq!(code(&again), Some(0), "{}", again.stderr);
    assert_eq!(fs::read(out.join("points.jsonl")).unwrap(), before);
    fs::remove_file(out.join("report.html")).unwrap();
    let drawn = run(&mut lab(dir, &["report", "out"]));
    assert_eq!((code(&drawn), drawn.stdout.trim()), (Some(0), "out/report.html"));
    assert!(out.join("report.html").exists());
    let compared = run(&mut lab(dir, &["compare", "out", "out"]));
    assert_eq!(code(&compared), Some(0), "{}", compared.stderr);
    assert!(compared.stdout.contains("A: small"), "{}", compared.stdout);
    let other = run(&mut lab(dir, &["run", "small.toml", "--out", "out", "--seed", "9"]));
    assert_eq!(code(&other), Some(2));
    assert!(other.stderr.contains("another run"), "{}", other.stderr);
}

#[test]
fn a_spike_is_kept_along_time_and_clients_beside_a_load_are_counted() {
    let _alone = alone();
    let dir = folder();
    let out = dir.path().join("out");
    fs::write(dir.path().join("overload.toml"), OVERLOAD).unwrap();
    let ran = run(&mut lab(&dir, &["run", "overload.toml", "--out", "out"]));
    assert_eq!(code(&ran), Some(0), "{}", ran.stderr);
    let lines = lines(&out);
    let point = |sweep: &str| {
        let of = |line: &&Value| line["record"] == "point" && line["key"]["sweep"] == sweep;
        lines.iter().rfind(of).unwrap_or_else(|| panic!("{sweep}: {}", ran.stderr))
    };
    let timeline = &point("spike")["load"]["timeline"];
    let of = |name: &str| -> Vec<u64> {
        let bins = timeline[name].as_array().unwrap().iter();
        bins.map(|count| count.as_u64().unwrap()).collect()
    };
    let (planned, replies, errors) = (of("planned"), of("replies"), of("errors"));
    assert_eq!(planned[..10], [2, 2, 2, 10, 10, 10, 10, 2, 2, 2], "{timeline}");
    // All that was planned has come to an end, wherever that was.
    let sum = |counts: &[u64]| counts.iter().sum::<u64>();
    assert_eq!(sum(&replies) + sum(&errors), 52, "{timeline}");
    let beside = &point("mute")["beside"];
    assert_eq!((&beside["kind"], &beside["load"]["replies"]), (&"mute".into(), &0.into()));
    let connected = beside["load"]["connected"].as_u64().unwrap();
    let errors = beside["load"]["errors"].as_object().unwrap();
    assert!(connected > 0 && errors.contains_key("send-timeout"), "{beside}");
    for file in ["spike-replies.svg", "spike-replies.csv", "spike-response.svg"] {
        assert!(out.join("figures").join(file).exists(), "{file}");
    }
    let table = fs::read_to_string(out.join("tables/mute.csv")).unwrap();
    assert!(table.contains("connections made beside the load"), "{table}");
    assert_eq!(processes_of(dir.path()), Vec::<String>::new());
}

#[test]
fn a_day_is_replayed_sampled_and_drawn() {
    let _alone = alone();
    let dir = folder();
    let out = dir.path().join("out");
    fs::write(dir.path().join("day.toml"), DAY).unwrap();
    let ran = run(&mut lab(&dir, &["run", "day.toml", "--out", "out"]));
    assert_eq!(code(&ran), Some(0), "{}", ran.stderr);
    let lines = lines(&out);
    let point = lines.iter().rfind(|line| line["record"] == "point").unwrap();
    let samples = point["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 4, "{point}");
    let rate = |sample: &Value| sample["request_rate"].as_f64().unwrap();
    // The night before noon has fewer requests than the noon.
    assert!(rate(&samples[0]) < rate(&samples[2]), "{point}");
    assert!(point["load"]["replies"].as_u64().unwrap() > 70, "{point}");
    assert!(out.join("figures/cost.svg").exists() && out.join("tables/cost-lines.csv").exists());
    assert_eq!(processes_of(dir.path()), Vec::<String>::new());
}

/// Runs a probe on a ground that the lab sets up; anything not possible is reported and left out.
fn a_probe_is_kept_and_drawn_on(ground: &[&str]) {
    let dir = folder();
    let out = dir.path().join("out");
    fs::write(dir.path().join("probe.toml"), PROBE).unwrap();
    let words = [&["run", "probe.toml", "--out", "out", "--scale", "0.1"][..], ground].concat();
    let ran = run(&mut lab(&dir, &words));
    assert_eq!(code(&ran), Some(0), "{}", ran.stderr);
    let lines = lines(&out);
    let (points, failed): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|line| line["record"] == "point");
    assert_eq!((points.len(), failed.len()), (4, 2), "{}", ran.stderr);
    for point in points {
        let (probe, flags) = (&point["probe"], point["flags"].as_array().unwrap());
        assert_eq!((&probe["mechanism"], &probe["active"]), (&point["key"]["server"], &3.into()));
        assert_eq!(probe["idle"].as_f64(), point["key"]["x"].as_f64(), "{point}");
        let (rounds, events) = (probe["rounds"].as_u64(), probe["events"].as_u64());
        assert_eq!(rounds.map(|rounds| 3 * rounds), events, "{point}");
        assert!(flags.iter().all(|flag| flag["kind"] == "steal"), "{point}");
        assert_eq!(point["load"]["valid"], true, "{point}");
    }
    for line in failed {
        assert!(line["why"].as_str().unwrap().contains("telepathy"), "{line}");
    }
    let table = fs::read_to_string(out.join("tables/cost.csv")).unwrap();
    assert!(table.contains("processor time of a wait"), "{table}");
    assert!(out.join("figures/wait.svg").exists());
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("no load but"), "how it was measured is said");
    assert_eq!(processes_of(dir.path()), Vec::<String>::new());
}

#[test]
fn a_probe_is_kept_and_drawn() {
    a_probe_is_kept_and_drawn_on(&[]);
}

#[test]
fn a_probe_on_loopback_is_kept_and_drawn() {
    a_probe_is_kept_and_drawn_on(&["--loopback"]);
}

#[test]
fn a_run_that_measured_nothing_says_so_and_is_an_error() {
    let dir = folder();
    fs::write(dir.path().join("probe.toml"), PROBE).unwrap();
    let words = ["run", "probe.toml", "--out", "out", "--loopback", "--only", "none", "--quiet"];
    // The second time nothing is left to do but what failed, and it fails again.
    for _ in 0..2 {
        let ran = run(&mut lab(&dir, &words));
        assert_eq!(code(&ran), Some(3), "{}", ran.stderr);
        let said =
            "probe: nothing was measured: of 2 points 2 failed and 0 are INVALID (cost: none";
        assert!(ran.stderr.contains(said) && ran.stderr.contains("telepathy"), "{}", ran.stderr);
        assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{}", ran.stderr);
    }
    let page = fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    assert!(page.contains("nothing was measured: of 2 points"), "the page says it too");
}

#[test]
fn the_experiment_that_probes_every_mechanism_is_sound() {
    let dir = folder();
    let check = run(&mut lab(&dir, &["check", "dispatch-cost"]));
    assert_eq!(code(&check), Some(0), "{}", check.stderr);
    assert!(check.stdout.contains("dispatch-cost: sound"), "{}", check.stdout);
}

fn started(dir: &TempDir, words: &[&str]) -> Child {
    let mut command = lab(dir, words);
    command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
    command.spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Runs `weir lab` with these words and kills it in the middle: no process of it remains, and a
/// rerun does the rest.
fn is_gone_on_with(words: &[&str]) {
    let _alone = alone();
    let dir = folder();
    let out = dir.path().join("out");
    let mut child = started(&dir, words);
    until("a point is on disk", || !points(&out).is_empty());
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    until("its processes are gone", || processes_of(dir.path()).is_empty());
    let before = points(&out);
    let kept = lines(&out).len();
    let ran = run(&mut lab(&dir, words));
    assert_eq!(code(&ran), Some(0), "{}", ran.stderr);
    assert_eq!(points(&out).len(), 4);
    assert!(points(&out).is_superset(&before));
    assert!(lines(&out).len() > kept);
    let set_up: Value = serde_json::from_slice(&fs::read(out.join("setup.json")).unwrap()).unwrap();
    assert_eq!(set_up["complete"], true);
    assert_eq!(set_up["stretches"].as_array().unwrap().len(), 2);
    assert_eq!(set_up["stretches"][0]["ended"], Value::Null, "it was killed");
}

#[test]
fn a_killed_run_leaves_nothing_and_is_gone_on_with() {
    is_gone_on_with(&["run", "small.toml", "--out", "out", "--quiet"]);
}

#[test]
fn a_killed_run_on_loopback_leaves_nothing_and_is_gone_on_with() {
    is_gone_on_with(&["run", "small.toml", "--out", "out", "--quiet", "--loopback"]);
}

#[test]
fn a_stopped_run_shows_what_it_has_and_says_how_to_go_on() {
    let _alone = alone();
    let dir = folder();
    let out = dir.path().join("out");
    let mut command = lab(&dir, &["run", "small.toml", "--out", "out", "--loopback"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("a point is on disk", || !points(&out).is_empty());
    signal(&child, Signal::TERM);
    let ended = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{stdout}");
    assert!(stdout.contains("the same command goes on from there"), "{stdout}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("The run is not complete"));
    assert!(page.contains("loopback"), "what is not a network of its own is said");
    assert!(!out.join("work").exists());
    assert_eq!(processes_of(dir.path()), Vec::<String>::new());
}

#[test]
fn an_invalid_experiment_is_refused_in_a_sentence() {
    let dir = folder();
    let unsound = EXPERIMENT.replace("sweep = \"load\"", "sweep = \"lode\"");
    fs::write(dir.path().join("unsound.toml"), unsound).unwrap();
    fs::write(dir.path().join("broken.toml"), "title = \"").unwrap();
    let slip = EXPERIMENT.replace("one-byte", "one-bite");
    fs::write(dir.path().join("slip.toml"), slip).unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (words, said) in [
        (&["run", "no-such"][..], "there is no experiment no-such"),
        (&["run", "papers/pariag-accept"], "there is no experiment"),
        (&["run", "absent.toml"], "absent.toml"),
        (&["run", "broken.toml"], "experiment broken"),
        (&["run", "unsound.toml"], "lode"),
        (&["run", "small.toml", "--scale", "0"], "a scale is"),
        (&["run", "small.toml", "--only", "nobody"], "none of its servers"),
        (&["run", "small.toml", "--only", "one,tne"], "no server tne; there are one, ten"),
        (&["check", "slip.toml"], "no workload one-bite: did you mean one-byte?"),
        (&["run", "slip.toml"], "no workload one-bite"),
        (&["run", "small.toml", "--out", "file"], "file"),
        (&["run", "small.toml", "--server-cpus", "4000"], "4000"),
        (&["reproduce", "no-such"], "no experiment is from a paper no-such"),
        (&["report", "."], "there is no run in it"),
        (&["compare", ".", "absent"], "there is no run in it"),
    ] {
        let refused = run(&mut lab(&dir, words));
        assert_eq!(code(&refused), Some(2), "{words:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(said), "{words:?}: {}", refused.stderr);
        assert_eq!(refused.stderr.trim_end().lines().count(), 1, "{words:?}: {}", refused.stderr);
    }
    assert!(!dir.path().join("results").exists(), "nothing was begun");
}

#[test]
fn experiments_and_papers_are_named_and_sound() {
    let dir = tempfile::tempdir().unwrap();
    let list = run(&mut lab(&dir, &["list"]));
    assert_eq!(code(&list), Some(0), "{}", list.stderr);
    for name in ["quick", "peers", "pariag-accept/one-packet", "brecht-select", "banga-scalable"] {
        assert!(list.stdout.contains(name), "{}", list.stdout);
    }
    let check = run(&mut lab(&dir, &["check", "quick"]));
    assert_eq!(code(&check), Some(0), "{}", check.stderr);
    assert!(check.stdout.contains("quick: sound") && check.stdout.contains("processors"));
}
