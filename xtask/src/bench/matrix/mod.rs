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

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use self::files::Asked;
use self::row::Row;
use super::machine::{Plan, Setup};
use super::peers::{Server, Site, find, version};
use super::process::{Running, free_address};
use super::stop::{self, Counted};
use super::{MatrixArgs, cases, idle, stage};
use crate::tree;

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

/// Descriptors a client needs beside its connections, and no fewer ports.
const SPARE: u64 = 100;

/// Where the search for a free port starts; each server starts one further, and so finds no
/// connections of the last one lingering.
const FIRST_PORT: u16 = 23_000;

/// A mechanism with a preset, and what came of it.
#[derive(Default)]
struct Pair {
    mechanism: String,
    preset: String,
    rows: Vec<Row>,
    counted: Counted,
    /// What was wrong with the start, the stop or the counts, in words.
    wrong: Vec<String>,
}

/// Runs the pairs that `args` asks for and writes what came of them.
pub(super) fn run(args: &MatrixArgs) -> Result<()> {
    let weir = tree::build(tree::cargo(), &["--release", "--package", "weir"], "weir")?;
    let mechanisms = chosen(&weir, "mechanisms", &args.mechanism)?;
    let presets = chosen(&weir, "presets", &args.preset)?;
    let descriptors_max = idle::raise_descriptors()?;
    stage::stay_off_the_servers_core()?;
    let (versions, skipped) = tools(&weir);
    let setup = Setup::read(Plan {
        versions,
        descriptors_max,
        rounds: 1,
        seconds: args.seconds,
        warm_up_seconds: 0,
        seed: 0,
    })?;
    let folder = tempfile::Builder::new().prefix("weir-files-").tempdir()?;
    let set = files::write(folder.path())?;
    let matrix = Matrix {
        weir: &weir,
        files: folder.path(),
        set: &set,
        setup: &setup,
        next_port: Cell::new(FIRST_PORT),
    };
    let mut pairs = Vec::new();
    for mechanism in &mechanisms {
        for preset in &presets {
            let pair = matrix.pair(mechanism, preset);
            println!("{}", pair.line());
            pairs.push(pair);
        }
    }
    let out = args.out.clone().unwrap_or_else(|| setup.folder());
    fs::create_dir_all(&out)?;
    fs::write(out.join("serve-matrix.md"), page::page(&pairs, &skipped, &setup))?;
    summary(&pairs, &out)
}

/// The names of the table `table`, or those of them that are `wanted`.
fn chosen(weir: &Path, table: &str, wanted: &[String]) -> Result<Vec<String>> {
    let names = cases::names(weir, table)?;
    for name in wanted {
        ensure!(names.contains(name), "{name} is none of the {table}: {}", names.join(", "));
    }
    Ok(if wanted.is_empty() { names } else { wanted.to_vec() })
}

/// The versions of the programs there are, and the names of the tools there are not.
fn tools(weir: &Path) -> (BTreeMap<String, String>, Vec<&'static str>) {
    let mut versions = BTreeMap::from([("weir".to_owned(), version(weir, "--version"))]);
    let mut skipped = Vec::new();
    for (tool, flag) in [("wrk", "-v"), ("ab", "-V")] {
        match find(tool) {
            Some(program) => drop(versions.insert(tool.to_owned(), version(&program, flag))),
            None => skipped.push(tool),
        }
    }
    for tool in &skipped {
        println!("{tool} is not installed: skipped");
    }
    (versions, skipped)
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
    weir: &'a Path,
    files: &'a Path,
    set: &'a [Asked],
    setup: &'a Setup,
    next_port: Cell<u16>,
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
        let folder = tempfile::Builder::new().prefix("weir-run-").tempdir()?;
        let stats = folder.path().join("stats.json");
        let address = free_address(self.next_port.get())?;
        self.next_port.set(address.port() + 1);
        let site = Site { folder: folder.path(), files: self.files, address };
        let line = self.server(pair, &stats).command_line(&site)?;
        let mut server = Running::start(&line, address, folder.path())?;
        let with_wrk = WRK_LOADS.iter().filter_map(|load| self.with_wrk(&site, *load));
        let with_ab = AB_LOADS.iter().filter_map(|load| self.with_ab(&site, *load));
        for row in with_wrk.chain(with_ab) {
            pair.rows.push(row);
            if !server.is_alive() {
                break;
            }
        }
        let (counted, wrong) = stop::run(server, &stats, pair.checked())?;
        pair.counted = counted;
        pair.wrong.extend(wrong);
        Ok(())
    }

    fn server(&self, pair: &Pair, stats: &Path) -> Server {
        let stats = stats.display().to_string();
        let options = ["--mechanism", &pair.mechanism, "--preset", &pair.preset];
        let options = options.into_iter().chain(["--max-conns", "8000", "--stats-json", &stats]);
        let options = options.map(str::to_owned).collect();
        Server::Weir { program: PathBuf::from(self.weir), options }
    }

    fn with_wrk(&self, site: &Site<'_>, (connections, close): (u32, bool)) -> Option<Row> {
        self.setup.versions.get("wrk")?;
        if let Some(why) = self.too_many(connections) {
            let skipped = Some(why);
            return Some(Row { tool: "wrk", connections, close, skipped, ..Row::default() });
        }
        let longer = if connections == MANY { MANY_LONGER } else { 1 };
        let seconds = self.setup.seconds * longer;
        Some(with_wrk::run(site.address, self.set, (connections, close), seconds, site.folder))
    }

    fn with_ab(&self, site: &Site<'_>, (connections, sizes): (u32, &[usize])) -> Option<Row> {
        self.setup.versions.get("ab")?;
        if let Some(why) = self.too_many(connections) {
            return Some(Row { tool: "ab", connections, skipped: Some(why), ..Row::default() });
        }
        let files = self.set.iter().filter(|file| sizes.contains(&file.bytes));
        let requests = |file: &Asked| match file.bytes {
            ..100_000 => (2 * connections).max(1_000),
            _ => (2 * connections).max(100),
        };
        Some(with_ab::run(site.address, files, connections, requests))
    }

    /// Why no client here can have so many connections. Where it can, one that fails is the
    /// server's fault.
    fn too_many(&self, connections: u32) -> Option<String> {
        let needed = u64::from(connections) + SPARE;
        let ports = self.setup.settings.get("net.ipv4.ip_local_port_range");
        let ports = ports.and_then(|range| range_size(range)).unwrap_or(u64::MAX);
        let descriptors = self.setup.descriptors_max.unwrap_or(u64::MAX);
        if descriptors < needed {
            return Some(format!("a process may have {descriptors} descriptors"));
        }
        (ports < needed).then(|| format!("there are {ports} ports for clients"))
    }
}

fn range_size(range: &str) -> Option<u64> {
    let (first, last) = range.split_once(' ')?;
    (last.parse::<u64>().ok()? + 1).checked_sub(first.parse().ok()?)
}

impl Pair {
    fn failed(&self) -> bool {
        !self.wrong.is_empty() || self.rows.iter().any(Row::failed)
    }

    fn checked(&self) -> u64 {
        self.rows.iter().map(|row| row.checked).sum()
    }

    fn line(&self) -> String {
        let mut remarks = self.wrong.clone();
        for row in &self.rows {
            let skipped = row.skipped.iter().map(|why| format!("skipped, {why}"));
            let all = skipped.chain(row.errors.iter().cloned());
            remarks.extend(all.map(|what| format!("{} {}: {what}", row.tool, row.load())));
        }
        let verdict = if self.failed() { "FAILED" } else { "passed" };
        let (checked, open) = (self.checked(), self.counted.open_max);
        let head = format!("{} {}: {verdict}", self.mechanism, self.preset);
        let tail = if remarks.is_empty() { String::new() } else { ": ".to_owned() };
        format!("{head}, {checked} replies, {open} open at once{tail}{}", remarks.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_reply_fails_a_pair() {
        let row = Row { tool: "wrk", connections: 64, checked: 9, ..Row::default() };
        let mut pair = Pair { rows: vec![row], ..Pair::default() };
        assert!(!pair.failed() && pair.line().ends_with("passed, 9 replies, 0 open at once"));
        pair.rows[0].mismatches = 1;
        pair.rows[0].errors.push("/x is not the file".to_owned());
        assert!(pair.failed());
        assert!(pair.line().ends_with(": wrk 64: /x is not the file"), "{}", pair.line());
    }

    #[test]
    fn a_stop_that_goes_wrong_fails_a_pair() {
        let pair = Pair { wrong: vec!["exit status: 1".to_owned()], ..Pair::default() };
        assert!(pair.failed() && pair.line().contains("FAILED"));
        assert!(summary(&[pair], Path::new("x")).is_err());
        assert!(summary(&[Pair::default()], Path::new("x")).is_ok());
    }

    #[test]
    fn a_range_of_ports_has_a_size() {
        assert_eq!(range_size("32768 60999"), Some(28_232));
        assert_eq!(range_size("5"), None);
    }
}
