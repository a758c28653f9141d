//! Untrusted experiments: the limits of what a file from elsewhere can make `weir lab` do.

use std::fs;
use std::process::Command;

use tempfile::TempDir;
use weir_tests::Stopped;
use weir_tests::server::run;

use crate::WEIR;

/// Name of a file of the experiment's that shows that something was run or written.
const TRACE: &str = "trace";

/// Returns an experiment with these options for the server and for the load.
fn experiment(kind: &str, options: &str, load: &str) -> String {
    format!(
        r#"
title = "From elsewhere"
question = "What does it reach?"

[[server]]
id = "it"
label = "it"
kind = "{kind}"
options = [{options}]

[[sweep]]
id = "load"
x = "rate"
values = [20]
repetitions = 1
client-may-limit = true

[sweep.load]
workload = "one-byte"
warmup-s = 0.1
duration-s = 0.3
{load}

[[table]]
id = "replies"
title = "Replies"
sweep = "load"
columns = ["reply_rate"]
"#
    )
}

fn lab(dir: &TempDir, text: &str, words: &[&str]) -> Stopped {
    fs::write(dir.path().join("sent.toml"), text.replace("DIR", dir.path().to_str().unwrap()))
        .unwrap();
    let mut command = Command::new(WEIR);
    run(command.arg("lab").args(words).current_dir(dir.path()))
}

/// Runs an experiment, which must be refused before it has any effect.
fn is_refused(text: &str, said: &str) {
    let dir = tempfile::tempdir().unwrap();
    let ran = lab(&dir, text, &["run", "sent.toml", "--out", "out", "--loopback"]);
    assert_eq!(ran.status.code(), Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    assert_eq!(ran.stderr.trim_end().lines().count(), 1, "{}", ran.stderr);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(left, [dir.path().join("sent.toml")]);
}

const LEAVE: &str = "--allow-any-options";

#[test]
fn a_directive_that_runs_a_command_is_refused() {
    let lighttpd = r#""include_shell \"touch DIR/trace\"""#;
    for (kind, options) in [
        ("lighttpd", lighttpd),
        ("nginx", r#""load_module DIR/x.so""#),
        ("h2o", r#""error-log: \"| touch DIR/trace\"""#),
        ("apache", r#""ErrorLog \"|/usr/bin/touch DIR/trace\"""#),
        ("haproxy", r#""insecure-fork-wanted""#),
        ("nginx", r#""multi_accept on; } error_log DIR/trace; events {""#),
        ("haproxy", r#""tune.maxaccept 1\ninsecure-fork-wanted""#),
    ] {
        is_refused(&experiment(kind, options, ""), LEAVE);
    }
}

#[test]
fn an_option_that_writes_or_reads_a_file_is_refused() {
    for options in [
        r#""--access-log", "DIR/trace""#,
        r#""--access-log=DIR/trace""#,
        r#""--stats-json", "DIR/trace""#,
        r#""--config", "DIR/sent.toml""#,
        r#""--listen", "unix:DIR/trace""#,
        r#""--error-page", "404=/etc/passwd""#,
    ] {
        is_refused(&experiment("weir", options, ""), LEAVE);
    }
}

#[test]
fn a_load_that_runs_a_script_or_writes_a_file_is_refused() {
    for load in [
        "generator = \"wrk\"\noptions = [\"-s\", \"DIR/x.lua\"]",
        "generator = \"httperf\"\noptions = [\"--wlog=y,/etc/passwd\"]",
        "options = [\"--ndjson\", \"DIR/trace\"]",
        "options = [\"http://192.0.2.1/\"]",
    ] {
        let text = experiment("weir", "", load);
        let text = match load.contains("wrk") {
            true => text
                .replace("x = \"rate\"\nvalues = [20]", "x = \"idle\"\nvalues = [1]")
                .replace("duration-s", "closed = 1\nduration-s"),
            false => text,
        };
        is_refused(&text, LEAVE);
    }
}

#[test]
fn a_workload_is_no_path() {
    let text = experiment("weir", "", "");
    let named = |name: &str| text.replace("\"one-byte\"", &format!("\"{name}\""));
    is_refused(&named("../../trace"), "letters, digits and dashes");
    is_refused(&named("/DIR/trace"), "letters, digits and dashes");
    let mb = "options = [\"--mb\", \"/../../../trace\"]";
    let text = experiment("weir", "", mb).replace("one-byte", "specweb99");
    is_refused(&text, "--mb is a number of MiB");
}

#[test]
fn a_setting_is_of_the_runs_own_network() {
    for name in ["kernel.core_pattern", "net.core/../../kernel/core_pattern", "net.nf_log.x"] {
        let text = experiment("weir", "", "");
        is_refused(&format!("sysctl = {{ \"{name}\" = 1 }}\n{text}"), "below net.core");
    }
}

#[test]
fn a_text_does_not_reach_a_terminal_as_a_command_to_it() {
    let text = experiment("weir", "", "").replace("label = \"it\"", r#"label = "\u001b]0;x""#);
    is_refused(&text, "control character");
    let dir = tempfile::tempdir().unwrap();
    let ran = lab(&dir, &text, &["run", "sent.toml", "--loopback"]);
    assert!(!ran.stderr.contains('\u{1b}'), "{:?}", ran.stderr);
}

#[test]
fn with_leave_every_option_is_passed_on_and_a_check_says_that_it_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let text = experiment("weir", r#""--access-log", "DIR/trace""#, "");
    let checked = lab(&dir, &text, &["check", "sent.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains("needs --allow-any-options"), "{}", checked.stdout);
    let words = ["run", "sent.toml", "--out", "out", "--loopback", LEAVE];
    let ran = lab(&dir, &text, &words);
    assert_eq!(ran.status.code(), Some(0), "{}", ran.stderr);
    assert!(dir.path().join(TRACE).exists(), "{}", ran.stderr);
}
