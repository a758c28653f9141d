//! Trials: a release build of weir serves on a testbed of the lab's while clients load it, and is
//! asked whether its replies and its counts are right. How fast it is the lab's experiments tell.

pub(crate) mod stop;
pub(crate) mod wrk;

use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Error, Result};
use serde_json::json;
use tempfile::TempDir;
use weir_lab::environment::{Environment, Side};
use weir_lab::experiment::{Generator, Kind, ServerSpec};
use weir_lab::machine::Machine;
use weir_lab::servers::{self, Launch, RunningServer};
use weir_lab::testbed::{Testbed, TestbedOptions};
use weir_lab::{generators, machine, setup_summary, time};

use crate::tree;

/// Port of the first server; each server has the next one, free of the last one's connections.
const FIRST_PORT: u16 = 23_000;

/// A testbed, and what runs on it.
pub(crate) struct Trial {
    /// The release build of weir.
    pub(crate) weir: PathBuf,
    pub(crate) machine: Machine,
    testbed: Testbed,
    scratch: TempDir,
    next_port: Cell<u16>,
}

/// A server of a trial.
pub(crate) struct Server {
    running: RunningServer,
    pub(crate) address: SocketAddr,
    /// A directory of its own; clients may use it too.
    pub(crate) dir: PathBuf,
}

impl Trial {
    /// Builds weir and the testbed.
    ///
    /// # Errors
    /// The build fails, or the machine has no two processors.
    pub(crate) fn build() -> Result<Self> {
        let weir = tree::build(tree::cargo(), &["--release", "--package", "weir"], "weir")?;
        let testbed = Testbed::build(&TestbedOptions::default(), &weir).map_err(Error::msg)?;
        let scratch = tempfile::Builder::new().prefix("weir-trial-").tempdir()?;
        let (machine, next_port) = (machine::machine(), Cell::new(FIRST_PORT));
        Ok(Self { weir, machine, testbed, scratch, next_port })
    }

    /// Returns a directory for the files that are served, empty at first.
    pub(crate) fn root(&self) -> Result<PathBuf> {
        let root = self.scratch.path().join("root");
        fs::create_dir_all(&root)?;
        Ok(root)
    }

    /// Starts weir with these options.
    pub(crate) fn start(&self, options: &[&str], root: &Path) -> Result<Server> {
        let port = self.next_port.get();
        self.next_port.set(port + 1);
        let dir = self.scratch.path().join(port.to_string());
        fs::create_dir_all(&dir)?;
        let spec = spec(options)?;
        let running = servers::start(&Launch {
            spec: &spec,
            environment: &self.testbed,
            weir: &self.weir,
            root,
            dir: &dir,
            port,
            upstream: None,
            serves_files: false,
            calls: false,
            bench_endpoints: false,
            workers: 1,
            groups: &[],
        });
        let address = SocketAddr::new(self.testbed.server_address(), port);
        Ok(Server { running: running.map_err(Error::msg)?, address, dir })
    }

    /// Returns the command of a client.
    pub(crate) fn client(&self, program: &str) -> Command {
        self.testbed.command(Side::Client, OsStr::new(program))
    }

    /// Returns the directory for results: `out`, or one below `results/` with the date and `name`.
    pub(crate) fn results(&self, out: Option<&Path>, name: &str) -> Result<PathBuf> {
        let dated = || tree::root().join(format!("results/{}-{name}", time::utc_today()));
        let folder = out.map_or_else(dated, Path::to_path_buf);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Formats the section of a page about machine, testbed and programs; `plan` says how long
    /// things ran.
    pub(crate) fn set_up(&self, plan: &str) -> String {
        let mut section = format!("\n## Set-up\n\n- {plan}\n");
        let weir = servers::version(Kind::Weir, &self.weir);
        let wanted = [Generator::Wrk, Generator::Ab].map(generators::version);
        for program in [weir].into_iter().chain(wanted).flatten() {
            let _ = writeln!(section, "- {program}");
        }
        let rows = setup_summary::machine(&self.machine).into_iter();
        for (name, value) in rows.chain(setup_summary::testbed(self.testbed.description())) {
            let _ = writeln!(section, "- {name}: {value}");
        }
        section
    }
}

fn spec(options: &[&str]) -> Result<ServerSpec> {
    let spec = json!({ "id": "weir", "label": "weir", "kind": { "weir": {} }, "options": options });
    serde_json::from_value(spec).context("the server's options")
}

impl Server {
    /// Stops it; see [`stop::check`].
    pub(crate) fn stop(self, seen: u64) -> Result<(stop::Counted, Vec<String>)> {
        stop::check(&self.running.stop(), seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_its_options() {
        let spec = spec(&["--preset", "eager"]).unwrap();
        assert_eq!(
            (spec.kind(), spec.options),
            (Kind::Weir, vec!["--preset".to_owned(), "eager".to_owned()])
        );
    }
}
