//! The matrix: every mechanism with every preset serves the same files under wrk and ab, with few
//! connections and with thousands, and is told to stop. It asks whether each reply is whole and
//! right. How fast it comes is measured elsewhere.

mod files;
#[cfg(test)]
mod liar;
mod page;
mod row;
mod with_ab;
mod with_wrk;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use weir_lab::programs;

use self::files::Asked;
use self::row::{Pair, Row};
use crate::docs;
use crate::trial::{Server, Trial};

/// The options of the matrix.
#[derive(clap::Args)]
pub(crate) struct MatrixArgs {
    /// The mechanism to run; may be given more than once [default: all]
    #[arg(long, value_name = "NAME")]
    mechanism: Vec<String>,
    /// The preset to run; may be given more than once [default: all]
    #[arg(long, value_name = "NAME")]
    preset: Vec<String>,
    /// How long each run of wrk takes, seconds
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// The folder to write to [default: results/DATE-matrix]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What wrk is run with: connections, and whether each request has one of its own.
const WRK_LOADS: [(u32, bool); 4] = [(1, false), (64, false), (64, true), (MANY, false)];

/// Connections beyond what a bitmap of 1024 descriptors, or a backlog of 4096, holds.
const MANY: u32 = 5_000;

/// How much longer wrk runs with [`MANY`]: their first replies alone take a second.
const MANY_LONGER: u32 = 3;

/// What ab is run with: connections, and the sizes of the files it asks for.
const AB_LOADS: [(u32, &[usize]); 3] = [
    (1, &[1, 1448, 49_153, (1 << 20) + 3]),
    (64, &[1, 1448, 49_153, (1 << 20) + 3]),
    (MANY, &[1448, 49_153]),
];

/// Descriptors a client needs beside its connections.
const SPARE: u64 = 100;

/// Runs the pairs that `args` asks for and writes what came of them.
pub(crate) fn run(args: &MatrixArgs) -> Result<()> {
    let trial = Trial::build()?;
    let mechanisms = chosen(&trial.weir, "mechanisms", &args.mechanism)?;
    let presets = chosen(&trial.weir, "presets", &args.preset)?;
    let missing = |tool: &&'static str| programs::find(tool).is_none();
    let skipped: Vec<&str> = ["wrk", "ab"].into_iter().filter(missing).collect();
    skipped.iter().for_each(|tool| println!("{tool} is not installed: skipped"));
    let root = trial.root()?;
    let set = files::write(&root)?;
    let matrix =
        Matrix { trial: &trial, root: &root, set: &set, skipped: &skipped, seconds: args.seconds };
    let mut pairs = Vec::new();
    for mechanism in &mechanisms {
        for preset in &presets {
            let pair = matrix.pair(mechanism, preset);
            println!("{}", pair.line());
            pairs.push(pair);
        }
    }
    let out = trial.results(args.out.as_deref(), "matrix")?;
    let (seconds, longer) = (args.seconds, args.seconds * MANY_LONGER);
    let plan = format!("wrk runs for {seconds} s, with {MANY} connections for {longer} s");
    let page = page::page(&pairs, &skipped) + &trial.set_up(&plan);
    fs::write(out.join("serve-matrix.md"), page)?;
    summary(&pairs, &out)
}

/// Returns the names of the table `table`, or those of them that are `wanted`.
fn chosen(weir: &Path, table: &str, wanted: &[String]) -> Result<Vec<String>> {
    let names = docs::first_cells(&docs::table(weir, table)?);
    for name in wanted {
        ensure!(names.contains(name), "{name} is none of the {table}: {}", names.join(", "));
    }
    Ok(if wanted.is_empty() { names } else { wanted.to_vec() })
}

fn summary(pairs: &[Pair], out: &Path) -> Result<()> {
    let failed = pairs.iter().filter(|pair| pair.failed()).count();
    let checked: u64 = pairs.iter().map(Pair::checked).sum();
    println!("{} pairs, {failed} failed, {checked} replies checked", pairs.len());
    println!("results in {}", out.display());
    ensure!(failed == 0, "{failed} pair(s) failed");
    Ok(())
}

struct Matrix<'a> {
    trial: &'a Trial,
    root: &'a Path,
    set: &'a [Asked],
    /// Tools that are not installed.
    skipped: &'a [&'static str],
    seconds: u32,
}

impl Matrix<'_> {
    fn pair(&self, mechanism: &str, preset: &str) -> Pair {
        let (mechanism, preset) = (mechanism.to_owned(), preset.to_owned());
        let mut pair = Pair { mechanism, preset, ..Pair::default() };
        if let Err(error) = self.fill(&mut pair) {
            pair.wrong.push(format!("{error:#}"));
        }
        pair
    }

    fn fill(&self, pair: &mut Pair) -> Result<()> {
        let Pair { mechanism, preset, .. } = &*pair;
        // No connection is refused: a reset would be a missing reply.
        let limits = ["--controls-off", "all", "--max-conns", "8000"];
        let options = [&["--mechanism", mechanism, "--preset", preset], &limits[..]].concat();
        let server = self.trial.start(&options, self.root)?;
        let with_wrk = WRK_LOADS.iter().filter_map(|load| self.with_wrk(&server, *load));
        let with_ab = AB_LOADS.iter().filter_map(|load| self.with_ab(&server, *load));
        pair.rows = with_wrk.chain(with_ab).collect();
        let (counted, wrong) = server.stop(pair.checked())?;
        pair.counted = counted;
        pair.wrong.extend(wrong);
        Ok(())
    }

    fn with_wrk(&self, server: &Server, (connections, close): (u32, bool)) -> Option<Row> {
        if self.skipped.contains(&"wrk") {
            return None;
        }
        if let Some(why) = self.too_many(connections) {
            let skipped = Some(why);
            return Some(Row { tool: "wrk", connections, close, skipped, ..Row::default() });
        }
        let longer = if connections == MANY { MANY_LONGER } else { 1 };
        let seconds = self.seconds * longer;
        let (wrk, load) = (self.trial.client("wrk"), (connections, close));
        Some(with_wrk::run(wrk, server.address, self.set, load, seconds, &server.dir))
    }

    fn with_ab(&self, server: &Server, (connections, sizes): (u32, &[usize])) -> Option<Row> {
        if self.skipped.contains(&"ab") {
            return None;
        }
        if let Some(why) = self.too_many(connections) {
            return Some(Row { tool: "ab", connections, skipped: Some(why), ..Row::default() });
        }
        let files = self.set.iter().filter(|file| sizes.contains(&file.bytes));
        let requests = |file: &Asked| match file.bytes {
            ..100_000 => (2 * connections).max(1_000),
            _ => (2 * connections).max(100),
        };
        let ab = || self.trial.client("ab");
        Some(with_ab::run(ab, server.address, files, connections, requests))
    }

    /// Returns why no client here can have so many connections. Where it can, one that fails is
    /// the server's fault.
    fn too_many(&self, connections: u32) -> Option<String> {
        let descriptors = self.trial.machine.open_files_max?;
        (descriptors < u64::from(connections) + SPARE)
            .then(|| format!("a process may have {descriptors} descriptors"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_failed_fails_the_matrix() {
        let pair = Pair { wrong: vec!["exit status: 1".to_owned()], ..Pair::default() };
        assert!(summary(&[pair], Path::new("x")).is_err());
        assert!(summary(&[Pair::default()], Path::new("x")).is_ok());
    }
}
