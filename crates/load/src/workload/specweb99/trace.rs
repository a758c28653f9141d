//! SPECweb99 sessions as a file, and a comparison of their shares with the expected ones.
//!
//! A trace is a seed and a number of sessions: it can be counted and written without being stored.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use super::{
    CLASS_SHARES, FILE_SHARES, FileMix, FileSet, REQUESTS_MAX, REQUESTS_MIN, SINGLE_SHARE, SetFile,
    SpecSource, directory_shares,
};
use crate::config::Workload;
use crate::session::Session;
use crate::workload::target::below;

/// Relative tolerance of a share, independent of the number of draws.
const TOLERANCE: f64 = 0.01;

/// Tolerance in standard deviations of the mean of the draws, used if it is larger.
const TOLERANCE_SIGMAS: f64 = 3.0;

/// Number of seeds tried to find a trace that is accepted.
const SEEDS_TRIED: u64 = 16;

/// Number of directories with a row of their own; the others share rows.
const DIRECTORIES_ALONE: usize = 32;

/// Sessions drawn from a seed, the same as in a run with this seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecTrace {
    set: FileSet,
    sessions: u64,
    seed: u64,
}

impl SpecTrace {
    /// Creates a trace of `sessions` sessions.
    pub fn new(set: FileSet, sessions: u64, seed: u64) -> Self {
        Self { set, sessions, seed }
    }

    /// Returns the first trace that is accepted, with this seed or one of the 15 after it. About
    /// one in eight is not accepted, because there are some fifty marginals.
    pub fn accepted(set: FileSet, sessions: u64, seed: u64) -> Option<(Self, Marginals)> {
        (0..SEEDS_TRIED)
            .map(|more| Self::new(set, sessions, seed.wrapping_add(more)))
            .map(|trace| (trace, trace.marginals()))
            .find(|(_, marginals)| marginals.accepted())
    }

    /// Returns the seed of the trace.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the trace's shares with their expected values.
    pub fn marginals(&self) -> Marginals {
        let mut counts = Counts::new(self.set);
        self.sessions().for_each(|files| counts.session(&files));
        counts.marginals(self.set)
    }

    /// Writes the trace in the format of httperf's `--wsesslog`, with targets below the path
    /// `base`. It is meant for a think time X of 0. httperf itself accepts at most 1000 sessions.
    ///
    /// # Errors
    /// Any error of `out`.
    pub fn write(&self, base: &str, out: &mut impl Write) -> io::Result<()> {
        let Self { set, sessions, seed } = self;
        let count = set.directories();
        writeln!(out, "# SPECweb99-like: {sessions} sessions, {count} directories, seed {seed}")?;
        writeln!(out, "# For httperf --wsesslog {sessions},0,FILE")?;
        for files in self.sessions() {
            writeln!(out)?;
            files.iter().try_for_each(|file| writeln!(out, "{}", below(base, &file.path())))?;
        }
        Ok(())
    }

    /// Returns the files that each session requests.
    fn sessions(&self) -> impl Iterator<Item = Vec<SetFile>> + use<> {
        let mix = Arc::new(FileMix::new(self.set));
        let mut draws = SpecSource { mix, close: true, key: 0 }.source(self.seed);
        let mut session = Session::default();
        (0..self.sessions).map(move |arrival| {
            session.steps.clear();
            draws.fill(arrival, &mut session);
            session.steps.iter().map(|step| SetFile::from_index(step.request.0)).collect()
        })
    }
}

/// A share or a mean, with its expected value.
#[derive(Clone, Debug, PartialEq)]
pub struct Marginal {
    /// Name of the share or mean.
    pub name: String,
    /// Expected value.
    pub target: f64,
    /// Value in the trace.
    pub achieved: f64,
    /// Largest accepted difference: 1 % of the target, or three standard deviations of the mean of
    /// the draws, whichever is larger.
    pub tolerance: f64,
}

impl Marginal {
    /// Returns whether the difference is within the tolerance.
    pub fn accepted(&self) -> bool {
        (self.achieved - self.target).abs() <= self.tolerance
    }

    fn new(name: String, target: f64, deviation: f64, sum: f64, draws: u64) -> Self {
        let draws = draws.max(1) as f64;
        let sampling = TOLERANCE_SIGMAS * deviation / draws.sqrt();
        let tolerance = (TOLERANCE * target).max(sampling);
        Self { name, target, achieved: sum / draws, tolerance }
    }

    fn share(name: String, target: f64, count: u64, draws: u64) -> Self {
        let deviation = (target * (1.0 - target)).max(0.0).sqrt();
        Self::new(name, target, deviation, count as f64, draws)
    }
}

/// The shares that characterize a trace: classes, files of all classes, directories, requests per
/// connection; then the means that follow from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Marginals(pub Vec<Marginal>);

impl Marginals {
    /// Returns whether all marginals are accepted.
    pub fn accepted(&self) -> bool {
        self.0.iter().all(Marginal::accepted)
    }
}

impl fmt::Display for Marginals {
    /// Formats a table: name, target, achieved, tolerance, and whether it is accepted.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ("marginal", "target", "achieved", "tolerance");
        writeln!(out, "{:<26} {:>12} {:>12} {:>12}", head.0, head.1, head.2, head.3)?;
        for marginal in &self.0 {
            let Marginal { name, target, achieved, tolerance } = marginal;
            let verdict = if marginal.accepted() { "ok" } else { "OUT" };
            writeln!(out, "{name:<26} {target:12.5} {achieved:12.5} {tolerance:12.5} {verdict}")?;
        }
        Ok(())
    }
}

/// Numbers of sessions, requests and bytes, and of draws by class, file, directory and length.
struct Counts {
    sessions: u64,
    requests: u64,
    bytes: u64,
    classes: Vec<u64>,
    files: Vec<u64>,
    directories: Vec<u64>,
    lengths: Vec<u64>,
}

impl Counts {
    fn new(set: FileSet) -> Self {
        Self {
            sessions: 0,
            requests: 0,
            bytes: 0,
            classes: vec![0; CLASS_SHARES.len()],
            files: vec![0; FILE_SHARES.len()],
            directories: vec![0; set.directories() as usize],
            lengths: vec![0; REQUESTS_MAX as usize + 1],
        }
    }

    fn session(&mut self, files: &[SetFile]) {
        self.sessions += 1;
        self.requests += files.len() as u64;
        self.lengths[files.len()] += 1;
        for file in files {
            self.bytes += file.bytes();
            self.classes[file.class as usize] += 1;
            self.files[file.file as usize] += 1;
            self.directories[file.directory as usize] += 1;
        }
    }

    fn marginals(&self, set: FileSet) -> Marginals {
        let mut rows = self.shares("class", &CLASS_SHARES, &self.classes);
        rows.extend(self.shares("file of a class", &FILE_SHARES, &self.files));
        rows.extend(self.directories(&directory_shares(set)));
        rows.extend(self.lengths());
        rows.extend(self.means());
        Marginals(rows)
    }

    fn shares(&self, of: &str, shares: &[f64], counts: &[u64]) -> Vec<Marginal> {
        let row = |(index, (share, count)): (usize, (&f64, &u64))| {
            Marginal::share(format!("{of} {index}"), *share, *count, self.requests)
        };
        shares.iter().zip(counts).enumerate().map(row).collect()
    }

    /// Returns a row for each of the first directories; the others are grouped, each group as large
    /// as all directories before it, because they are requested too rarely to be judged alone.
    fn directories(&self, shares: &[f64]) -> Vec<Marginal> {
        let alone = shares.len().min(DIRECTORIES_ALONE);
        let mut rows = self.shares("directory", &shares[..alone], &self.directories);
        let mut first = alone;
        while first < shares.len() {
            let end = shares.len().min(2 * first);
            let name = format!("directories {first}-{}", end - 1);
            let share = shares[first..end].iter().sum();
            let count = self.directories[first..end].iter().sum();
            rows.push(Marginal::share(name, share, count, self.requests));
            first = end;
        }
        rows
    }

    fn lengths(&self) -> impl Iterator<Item = Marginal> {
        lengths().map(|(length, share)| {
            let name = format!("connections of {length}");
            Marginal::share(name, share, self.lengths[length as usize], self.sessions)
        })
    }

    fn means(&self) -> [Marginal; 2] {
        let (length, length_deviation) =
            moments(lengths().map(|(length, share)| (share, length as f64)));
        let (bytes, bytes_deviation) = moments(sizes());
        let mean = |name: &str, target, deviation, sum: u64, draws| {
            Marginal::new(name.into(), target, deviation, sum as f64, draws)
        };
        [
            mean("requests a connection", length, length_deviation, self.requests, self.sessions),
            mean("bytes a transfer", bytes, bytes_deviation, self.bytes, self.requests),
        ]
    }
}

/// Returns the possible numbers of requests per connection, with their probabilities.
fn lengths() -> impl Iterator<Item = (u64, f64)> {
    let each = (1.0 - SINGLE_SHARE) / (REQUESTS_MAX - REQUESTS_MIN + 1) as f64;
    let more = (REQUESTS_MIN..=REQUESTS_MAX).map(move |length| (length, each));
    [(1, SINGLE_SHARE)].into_iter().chain(more)
}

/// Returns the probability and size of each file of a directory.
fn sizes() -> impl Iterator<Item = (f64, f64)> {
    (0..36).map(SetFile::from_index).map(|file| {
        let share = CLASS_SHARES[file.class as usize] * FILE_SHARES[file.file as usize];
        (share, file.bytes() as f64)
    })
}

/// Returns mean and standard deviation of values with their probabilities.
fn moments(values: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (mean, square) = values.fold((0.0, 0.0), |(mean, square), (share, value)| {
        (mean + share * value, square + share * value * value)
    });
    (mean, (square - mean * mean).max(0.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::RequestTemplate;
    use crate::workload::fixtures::filled;
    use crate::workload::sessions::SessionLog;

    fn row<'a>(marginals: &'a Marginals, name: &str) -> &'a Marginal {
        marginals.0.iter().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn a_million_requests_are_drawn_as_often_as_they_should_be() {
        let set = FileSet::new(100).unwrap();
        let marginals = SpecTrace::new(set, 137_000, 1).marginals();
        assert!(marginals.accepted(), "{marginals}");
        // Where 1 % is more than three deviations of a million draws, 1 % it is.
        for name in ["class 0", "class 1", "file of a class 4", "directory 0"] {
            let row = row(&marginals, name);
            assert_eq!(row.tolerance, 0.01 * row.target);
        }
        // The rarest class: a standard deviation is 0.995 % of it.
        let class3 = row(&marginals, "class 3");
        assert!(class3.tolerance < 0.03 * class3.target, "{class3:?}");
    }

    #[test]
    fn a_million_sessions_are_as_long_as_they_should_be() {
        let set = FileSet::new(100).unwrap();
        let marginals = SpecTrace::new(set, 1_000_000, 1).marginals();
        assert!(marginals.accepted(), "{marginals}");
        // A million draws leave every row of them within 1 % or very nearly.
        assert!(marginals.0.iter().all(|row| row.tolerance < 0.0121 * row.target), "{marginals}");
    }

    #[test]
    fn the_means_are_those_of_the_papers() {
        let marginals = SpecTrace::new(FileSet::new(1).unwrap(), 1, 1).marginals();
        assert!((row(&marginals, "requests a connection").target - 7.3).abs() < 1e-9);
        let bytes = row(&marginals, "bytes a transfer").target;
        assert!((14_700.0..14_800.0).contains(&bytes), "{bytes}");
    }

    #[test]
    fn every_distribution_adds_up_to_one() {
        let rows = SpecTrace::new(FileSet::new(1000).unwrap(), 100, 1).marginals().0;
        for of in ["class", "file of a class", "director", "connections of"] {
            let of_it = || rows.iter().filter(|row| row.name.starts_with(of));
            let sum: f64 = of_it().map(|row| row.target).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{of}: {sum}");
            let sum: f64 = of_it().map(|row| row.achieved).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{of}: {sum}");
        }
    }

    #[test]
    fn a_trace_with_the_wrong_mix_is_not_accepted() {
        let set = FileSet::new(100).unwrap();
        let mut counts = Counts::new(set);
        // Every tenth connection of one request is left out.
        let mut singles = 0;
        for files in SpecTrace::new(set, 20_000, 1).sessions() {
            singles += u64::from(files.len() == 1);
            if files.len() > 1 || singles % 10 != 0 {
                counts.session(&files);
            }
        }
        let marginals = counts.marginals(set);
        assert!(!row(&marginals, "connections of 1").accepted(), "{marginals}");
        assert!(row(&marginals, "class 1").accepted(), "{marginals}");
        assert!(!marginals.accepted());
        assert!(marginals.to_string().contains("OUT"));
    }

    #[test]
    fn an_accepted_trace_is_found_whatever_the_seed() {
        let set = FileSet::new(1000).unwrap();
        for seed in [1, 2, 3, u64::MAX] {
            let (trace, marginals) = SpecTrace::accepted(set, 5_000, seed).unwrap();
            assert!(marginals.accepted());
            assert_eq!(trace.marginals(), marginals);
        }
    }

    #[test]
    fn a_written_trace_is_the_run_of_the_same_seed() {
        let set = FileSet::new(20).unwrap();
        let mut text = Vec::new();
        SpecTrace::new(set, 50, 1).write("/base", &mut text).unwrap();
        let log = SessionLog::parse("trace", &text).unwrap();
        let from_file = log.build(&RequestTemplate::default(), 50, 0, true);
        let drawn = set.build(&RequestTemplate::default(), "/base", true);
        let (file_requests, drawn_requests) = (from_file.requests, drawn.requests);
        let (from_file, drawn) =
            (filled(&*from_file.workload, 0..60), filled(&*drawn.workload, 0..50));
        assert_eq!(from_file.len(), 50);
        for (one, other) in from_file.iter().zip(&drawn) {
            assert_eq!(one.steps.len(), other.steps.len());
            for (step, same) in one.steps.iter().zip(&other.steps) {
                assert!(!step.piped && step.think_ns == 0);
                let request = file_requests.get(step.request);
                assert_eq!(request, drawn_requests.get(same.request));
            }
        }
    }
}
