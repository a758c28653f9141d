//! The output paths: under a cork every file goes by the calls of the papers' server, whole and on
//! a connection that goes on, and an architecture that cannot do so refuses it.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use weir_server::{OutputPath, PRESETS, Preset, Strategy};
use weir_tests::files::{Served, settled_files};
use weir_tests::server::{Attempt, attempt};
use weir_tests::{Setup, assert_same, suite};

use crate::WEIR;

/// Sizes of the files: a byte, some segments, more than a socket takes at a time.
const SIZES: [usize; 4] = [1, 1460, 20_000, 5_000_000];

const CORKED: [&str; 4] = ["--output", "cork", "--preset", "accept1"];

/// Files at rest, which may be sent with sendfile.
static FILES: OnceLock<Vec<Served>> = OnceLock::new();

suite! {
    every_architecture:
    corked_files_arrive_whole_by_the_papers_calls,
    corked_output_is_refused_where_it_is_not_possible,
}

fn root() -> (std::path::PathBuf, &'static [Served]) {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("output");
    let named = SIZES.iter().map(|&size| (format!("{size}.bin"), size));
    let files = FILES.get_or_init(|| settled_files(&root, named));
    (root, files)
}

/// Returns whether the set-up can cork.
fn corks(setup: &Setup) -> bool {
    let strategy = Strategy { output: OutputPath::Cork, ..PRESETS[1].strategy };
    setup.excludes(&Preset { strategy, ..PRESETS[1] }).is_none()
}

fn corked_files_arrive_whole_by_the_papers_calls(setup: &Setup) {
    if !corks(setup) {
        return;
    }
    let (root, files) = root();
    let server = setup.serve(&root, &[&CORKED[..], &["--caching=on", "--profile-calls"]].concat());
    let mut client = server.connect();
    for file in files.iter().chain(files) {
        assert_same(&client.get(&file.target).body, &file.body, &file.target);
    }
    drop(client);
    let stats = server.stop_cleanly().stats();
    let made = |call: &str| stats["total"]["calls"][call]["count"].as_u64().unwrap_or(0);
    let replies = 2 * files.len() as u64;
    assert_eq!(made("setsockopt"), 2 * replies, "the cork and its end: {stats}");
    assert_eq!(made("sendto"), replies, "each head: {stats}");
    assert!(made("sendfile") >= replies, "each body: {stats}");
    // A file that the kernel has dropped from its page cache is read back into it, behind advice.
    let reads = if made("fadvise64") == 0 { made("pread") } else { 0 };
    assert_eq!(made("writev") + reads, 0, "nothing from memory: {stats}");
}

fn corked_output_is_refused_where_it_is_not_possible(setup: &Setup) {
    if corks(setup) {
        return;
    }
    let mut command = Command::new(WEIR);
    command.arg("serve").arg("/").args(setup.with(&CORKED));
    let Attempt::Refused(stopped) = attempt(&mut command) else {
        panic!("{}: a cork is accepted", setup.name);
    };
    assert_eq!(stopped.status.code(), Some(2), "{}", stopped.stderr);
    assert!(stopped.stderr.contains("--output cork"), "{}", stopped.stderr);
}
