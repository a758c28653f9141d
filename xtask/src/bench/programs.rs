//! The programs a measurement needs: ours are built, the others looked for. What is not installed
//! is skipped, and said to be.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::peers::{Server, find, version};
use crate::tree;

/// Makes the server's counters cost nothing, to measure what they cost.
const COUNTERS_OFF: &str = "--cfg weir_counters_off";

type MakePeer = fn(PathBuf) -> Server;

/// The other servers: name, constructor, the flag that makes them say their version.
const PEERS: &[(&str, MakePeer, &str)] = &[
    ("nginx", Server::Nginx, "-v"),
    ("h2o", Server::H2o, "-v"),
    ("lighttpd", Server::Lighttpd, "-v"),
];

/// What there is to run.
pub(super) struct Programs {
    /// `weir`, release build.
    pub(super) weir: PathBuf,
    /// The same without counters; built only when asked for.
    pub(super) counters_off: Option<PathBuf>,
    /// The bare epoll loop.
    pub(super) bare: PathBuf,
    /// The other servers that are installed.
    pub(super) peers: Vec<(&'static str, Server)>,
    /// Those that are not.
    pub(super) skipped: Vec<&'static str>,
    /// The version of each program, the load generator's too.
    pub(super) versions: BTreeMap<String, String>,
}

impl Programs {
    /// Builds ours, `counters_off` too when it is wanted, and looks for the others.
    pub(super) fn gather(counters_off: bool) -> Result<Self> {
        let wrk = find("wrk").context("wrk is not installed, and nothing can be measured")?;
        let release = ["--release", "--package", "weir"];
        let weir = tree::build(tree::cargo(), &release, "weir")?;
        let counters_off = counters_off.then(build_counters_off).transpose()?;
        let example = ["--release", "--package", "weir-sys", "--example", "bare_loop"];
        let bare = tree::build(tree::cargo(), &example, "bare_loop")?;
        let mut versions = BTreeMap::new();
        versions.insert("wrk".to_owned(), version(&wrk, "-v"));
        versions.insert("weir".to_owned(), version(&weir, "--version"));
        let mut programs =
            Self { weir, counters_off, bare, peers: Vec::new(), skipped: Vec::new(), versions };
        programs.look_for_peers();
        Ok(programs)
    }

    fn look_for_peers(&mut self) {
        for (name, make, flag) in PEERS {
            let Some(program) = find(name) else {
                println!("{name} is not installed: skipped");
                self.skipped.push(name);
                continue;
            };
            self.versions.insert((*name).to_owned(), version(&program, flag));
            self.peers.push((name, make(program)));
        }
    }
}

/// Other flags mean another folder, or each build would undo the other's.
fn build_counters_off() -> Result<PathBuf> {
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    let target = env::var_os("CARGO_TARGET_DIR").map_or(tree::root().join("target"), PathBuf::from);
    let mut cargo = tree::cargo();
    cargo.env("RUSTFLAGS", format!("{flags} {COUNTERS_OFF}"));
    cargo.env("CARGO_TARGET_DIR", target.join("counters-off"));
    tree::build(cargo, &["--release", "--package", "weir"], "weir")
}
