//! The programs that `bench load` needs: ours is built, the others are looked for. What is not
//! installed is skipped, and said to be.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::generator::Generator;
use crate::bench::peers::{Server, find, version};
use crate::tree;

/// What there is to run.
pub(super) struct Tools {
    pub(super) weir: PathBuf,
    nginx: Option<PathBuf>,
    /// The load generators there are, ours first.
    pub(super) generators: Vec<Generator>,
    /// What is not installed.
    pub(super) skipped: Vec<&'static str>,
    pub(super) versions: BTreeMap<String, String>,
}

impl Tools {
    /// Builds ours, unless it is given, and looks for the others.
    pub(super) fn gather(weir: Option<&Path>) -> Result<Self> {
        let weir = match weir {
            Some(path) => fs::canonicalize(path).with_context(|| path.display().to_string())?,
            None => tree::build(tree::cargo(), &["--release", "--package", "weir"], "weir")?,
        };
        let versions = BTreeMap::from([("weir".to_owned(), version(&weir, "--version"))]);
        let generators = vec![Generator::Weir(weir.clone())];
        let mut tools = Self { weir, nginx: None, generators, skipped: Vec::new(), versions };
        tools.nginx = tools.look_for("nginx", "-v");
        let flags =
            [(Generator::Wrk, "-v"), (Generator::Ab, "-V"), (Generator::Httperf, "--version")];
        for (generator, flag) in flags {
            if tools.look_for(generator.name(), flag).is_some() {
                tools.generators.push(generator);
            }
        }
        Ok(tools)
    }

    fn look_for(&mut self, name: &'static str, flag: &str) -> Option<PathBuf> {
        let Some(program) = find(name) else {
            println!("{name} is not installed: skipped");
            self.skipped.push(name);
            return None;
        };
        self.versions.insert(name.to_owned(), version(&program, flag));
        Some(program)
    }

    /// The servers there are, ours first.
    pub(super) fn servers(&self) -> Vec<(&'static str, Server)> {
        let nginx = self.nginx.iter().map(|program| ("nginx", Server::Nginx(program.clone())));
        [("weir serve", self.serve(&[]))].into_iter().chain(nginx).collect()
    }

    /// `weir serve` with these options.
    pub(super) fn serve(&self, options: &[&str]) -> Server {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Server::Weir { program: self.weir.clone(), options }
    }

    /// `weir load`.
    pub(super) fn weir_load(&self) -> Generator {
        Generator::Weir(self.weir.clone())
    }
}
