//! Tools that see what tests do not, over the crates that keep memory and kernel state by hand: the
//! address sanitizer, Miri and valgrind. One that is not installed is skipped, and said so.
//!
//! Nothing here knows what the tests prove.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::tree;

/// Histories of the fault model for each mechanism under Miri, which is a thousand times slower.
const MIRI_HISTORIES: &str = "1";

/// What valgrind exits with when it found something; no test program does.
const VALGRIND_FOUND: &str = "77";

/// One tool: how to see whether it is here, and what it does.
struct Tool {
    name: &'static str,
    probe: fn() -> Command,
    check: fn() -> Command,
}

const TOOLS: &[Tool] = &[
    Tool { name: "address sanitizer", probe: nightly_version, check: address_sanitizer },
    Tool { name: "miri", probe: miri_version, check: miri },
    Tool { name: "valgrind", probe: valgrind_version, check: valgrind },
];

/// Runs every tool that is here; fails when one found something.
pub(crate) fn run() -> Result<()> {
    let mut failed = Vec::new();
    for tool in TOOLS {
        if !is_here(tool) {
            println!("sanitize: SKIPPED: no {} here", tool.name);
            continue;
        }
        println!("sanitize: {}", tool.name);
        let status = (tool.check)().status().with_context(|| tool.name)?;
        if !status.success() {
            failed.push(tool.name);
        }
    }
    ensure!(failed.is_empty(), "found something: {}", failed.join(", "));
    println!("sanitize: nothing was found");
    Ok(())
}

fn is_here(tool: &Tool) -> bool {
    let quiet = (tool.probe)().stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// Cargo of the nightly toolchain, with a build folder of its own.
fn nightly(arguments: &[&str], folder: &str) -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly").args(arguments).current_dir(tree::root());
    // Cargo set these for this program, and they would choose its toolchain for the other.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command.env("CARGO_TARGET_DIR", target(folder));
    command
}

fn target(folder: &str) -> PathBuf {
    let usual = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    usual.unwrap_or_else(|| tree::root().join("target")).join(folder)
}

fn nightly_version() -> Command {
    nightly(&["--version"], "asan")
}

/// With a target named, build scripts are not instrumented.
fn address_sanitizer() -> Command {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let crates = ["-p", "weir-sys", "-p", "weir-dispatch"];
    let mut command = nightly(&["test", "--tests", "--target", &target], "asan");
    command.args(crates).env("RUSTFLAGS", "-Zsanitizer=address");
    command
}

fn miri_version() -> Command {
    nightly(&["miri", "--version"], "miri")
}

/// The fault model alone: the fake kernel makes no calls that Miri does not know.
fn miri() -> Command {
    let mut command = nightly(&["miri", "test", "-p", "weir-dispatch", "--lib"], "miri");
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    command.env("WEIR_FAULTS_HISTORIES", MIRI_HISTORIES);
    command.args(["--", "faults::every_mechanism", "faults::a_plain_mechanism"]);
    command
}

fn valgrind_version() -> Command {
    let mut command = Command::new("valgrind");
    command.arg("--version");
    command
}

/// The signals' own calls, which neither of the others sees into. Cargo runs the test program by
/// way of it.
fn valgrind() -> Command {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let runner = format!("CARGO_TARGET_{}_RUNNER", target.to_uppercase().replace('-', "_"));
    let exit = format!("--error-exitcode={VALGRIND_FOUND}");
    let mut command = tree::cargo();
    command.args(["test", "-p", "weir-sys", "--lib", "rtsig"]);
    command.env(runner, format!("valgrind --quiet {exit} --fair-sched=yes"));
    command
}
