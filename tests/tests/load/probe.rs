//! `weir probe` from the user's side: the table, the JSON lines, and refused options. No test here
//! depends on how long anything takes.

use std::process::Command;

use serde_json::Value;
use weir_dispatch::readiness::TABLE;
use weir_tests::Stopped;
use weir_tests::server::run;

use crate::WEIR;

fn probe(words: &[&str]) -> Stopped {
    run(Command::new(WEIR).arg("probe").args(words))
}

#[test]
fn every_mechanism_has_a_row_for_each_cell_or_a_line_why_not() {
    let ran = probe(&["--idle", "0,150", "--active", "1,3", "--rounds", "4", "--repetitions", "2"]);
    assert_eq!(ran.status.code(), Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("Nanoseconds of processor time"), "{}", ran.stdout);
    for row in TABLE {
        let about = |line: &&str| line.split([' ', ':']).next() == Some(row.spelling);
        let lines: Vec<&str> = ran.stdout.lines().filter(about).collect();
        let impossible = lines.iter().any(|line| line.contains("not possible here"));
        assert_eq!(lines.len(), if impossible { 1 } else { 4 }, "{}", ran.stdout);
    }
}

#[test]
fn a_json_line_a_cell_has_its_counts_and_its_figures() {
    let words = ["--mechanism", "select", "--mechanism", "epoll-et", "--kind", "unix", "--idle"];
    let more = ["20", "--active", "2", "--rounds", "5", "--json"];
    let ran = probe(&[&words[..], &more].concat());
    assert_eq!(ran.status.code(), Some(0), "{}", ran.stderr);
    let lines: Vec<Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", ran.stdout);
    for line in lines {
        let count = |name: &str| line[name].as_u64().unwrap();
        assert_eq!((count("idle"), count("active"), count("repetitions")), (20, 2, 5));
        assert!(count("rounds") >= 25 && count("waits") >= count("rounds"), "{line}");
        assert_eq!(count("events"), 2 * count("rounds"), "{line}");
        let searched = line["mechanism"] == "select";
        assert_eq!(line.get("search_ns").is_some(), searched, "{line}");
        let every = ["wait_ns", "event_ns", "member_ns", "search_ns"];
        for figure in every.into_iter().take(3 + usize::from(searched)) {
            let of = |end: &str| line[figure][end].as_f64().unwrap();
            assert!(of("min") <= of("median") && of("median") <= of("max"), "{line}");
        }
    }
}

#[test]
fn an_impossible_measurement_is_refused_in_a_sentence() {
    for (words, said) in [
        (&["--idle", "4000000000"][..], "idle ones are possible"),
        (&["--idle", "many"], "--idle"),
        (&["--active", "0"], "--active"),
        (&["--mechanism", "telepathy"], "telepathy"),
        (&["--mechanism-option", "luck=1"], "luck=1"),
        (&["--seconds", "0"], "--seconds"),
        (&["--seconds", "1", "--rounds", "1"], "cannot be used with"),
        (&["--idle", "0", "--cpu", "100000"], "--cpu"),
        (&["--kind", "carrier-pigeon"], "--kind"),
    ] {
        let refused = probe(words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(said), "{words:?}: {}", refused.stderr);
        assert_eq!(refused.stderr.trim_end().lines().count(), 1, "{words:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "", "{words:?}");
    }
}
