//! The static part of SPECweb99: its files, and the probability with which each is requested.
//!
//! Follows the SPECweb99 design document. Random draws depend only on the seed and the arrival's
//! number.

use std::sync::Arc;

use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use super::built::BuiltWorkload;
use super::draw::{cumulative, pick};
use super::target::below;
use crate::config::Workload;
use crate::session::{
    RequestId, RequestTable, RequestTemplate, Session, SessionSource, SessionStep,
};

mod trace;

pub use trace::{Marginal, Marginals, SpecTrace};

/// Probability of each class of files.
pub const CLASS_SHARES: [f64; 4] = [0.35, 0.50, 0.14, 0.01];

/// Probability of each file within its class.
pub const FILE_SHARES: [f64; 9] = [0.039, 0.059, 0.088, 0.177, 0.353, 0.118, 0.071, 0.050, 0.045];

/// Share of the connections with a single request; the others have [`REQUESTS_MIN`] to
/// [`REQUESTS_MAX`], uniformly distributed.
pub const SINGLE_SHARE: f64 = 0.3;

/// Smallest number of requests of a connection with more than one.
pub const REQUESTS_MIN: u64 = 5;

/// Largest number of requests of a connection.
pub const REQUESTS_MAX: u64 = 15;

/// Size of a directory of 36 files, bytes.
pub const DIRECTORY_BYTES: u64 = 5_119_484;

/// Largest file set, MiB: its requests are all kept in memory.
pub const MB_MAX: u64 = 100_000;

const CLASSES: u32 = CLASS_SHARES.len() as u32;
const FILES: u32 = FILE_SHARES.len() as u32;

/// A file set. Directory `d` (0-based) is requested in proportion to `1 / (d + 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSet {
    directories: u32,
}

impl FileSet {
    /// Creates a set with as many directories as fit into `mb` MiB, but at least one.
    ///
    /// # Errors
    /// `mb` is more than [`MB_MAX`].
    pub fn new(mb: u64) -> Result<Self, String> {
        if mb > MB_MAX {
            return Err(format!("a file set of {mb} MB is too large: {MB_MAX} at most"));
        }
        // At most MB_MAX MiB in parts of 5 MB: this fits.
        let directories = ((mb << 20) / DIRECTORY_BYTES).max(1) as u32;
        Ok(Self { directories })
    }

    /// Returns the number of directories.
    pub fn directories(&self) -> u32 {
        self.directories
    }

    /// Returns the path of each file below the root, without a leading slash, and its size in
    /// bytes.
    pub fn files(&self) -> impl Iterator<Item = (String, u64)> + use<> {
        (0..self.directories * CLASSES * FILES).map(|index| {
            let file = SetFile::from_index(index);
            (file.path(), file.bytes())
        })
    }

    /// Builds the workload that requests the files below the path `base`. `close`: the last request
    /// of a connection asks for a close, as the benchmark's HTTP/1.0 connections of one request do.
    pub fn build(self, template: &RequestTemplate, base: &str, close: bool) -> BuiltWorkload {
        let mut requests = RequestTable::default();
        for (path, _) in self.files() {
            requests.push(template.request("GET", &below(base, &path), b""));
        }
        let mix = Arc::new(FileMix::new(self));
        BuiltWorkload { workload: Arc::new(SpecSource { mix, close, key: 0 }), requests }
    }
}

/// A file of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetFile {
    directory: u32,
    class: u32,
    file: u32,
}

impl SetFile {
    /// Returns the file's index in the set, which is also its index in the request table.
    fn index(self) -> u32 {
        (self.directory * CLASSES + self.class) * FILES + self.file
    }

    fn from_index(index: u32) -> Self {
        let (directory, class) = (index / FILES / CLASSES, index / FILES % CLASSES);
        Self { directory, class, file: index % FILES }
    }

    fn path(self) -> String {
        format!("file_set/dir{:05}/class{}_{}", self.directory, self.class, self.file)
    }

    /// Returns the size in bytes: `floor(102.4 * 10^class * (file + 1))`.
    fn bytes(self) -> u64 {
        1024 * 10_u64.pow(self.class) * u64::from(self.file + 1) / 10
    }
}

/// Cumulative probabilities of directories, classes and files.
#[derive(Debug)]
struct FileMix {
    directories: Vec<f64>,
    classes: Vec<f64>,
    files: Vec<f64>,
}

impl FileMix {
    fn new(set: FileSet) -> Self {
        Self {
            directories: cumulative(&directory_shares(set)),
            classes: cumulative(&CLASS_SHARES),
            files: cumulative(&FILE_SHARES),
        }
    }

    fn draw(&self, chance: &mut Xoshiro256PlusPlus) -> SetFile {
        let directory = pick(&self.directories, chance.random());
        let class = pick(&self.classes, chance.random());
        SetFile { directory, class, file: pick(&self.files, chance.random()) }
    }
}

/// Returns the probability of each directory: Zipf's law with exponent 1.
fn directory_shares(set: FileSet) -> Vec<f64> {
    let weights = (1..=set.directories).map(|rank| 1.0 / f64::from(rank));
    let total: f64 = weights.clone().sum();
    weights.map(|weight| weight / total).collect()
}

fn requests_of_connection(chance: &mut Xoshiro256PlusPlus) -> u64 {
    if chance.random::<f64>() < SINGLE_SHARE {
        1
    } else {
        chance.random_range(REQUESTS_MIN..=REQUESTS_MAX)
    }
}

#[derive(Clone)]
struct SpecSource {
    mix: Arc<FileMix>,
    close: bool,
    key: u64,
}

impl Workload for SpecSource {
    fn source(&self, seed: u64) -> Box<dyn SessionSource> {
        let key = SplitMix64::seed_from_u64(seed).next_u64();
        Box::new(Self { key, ..self.clone() })
    }
}

impl SessionSource for SpecSource {
    fn fill(&mut self, arrival: u64, session: &mut Session) -> bool {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(self.key ^ arrival);
        let requests = requests_of_connection(&mut chance);
        session.steps.extend((0..requests).map(|_| {
            let request = RequestId(self.mix.draw(&mut chance).index());
            SessionStep { request, think_ns: 0, piped: false }
        }));
        session.last_closes = self.close;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::{filled, targets};

    #[test]
    fn a_directory_has_the_files_of_the_design_document() {
        let files: Vec<_> = FileSet::new(1).unwrap().files().collect();
        let sizes: Vec<u64> = files.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(sizes[..9], [102, 204, 307, 409, 512, 614, 716, 819, 921]);
        let sums: Vec<u64> = sizes.chunks(9).map(|class| class.iter().sum()).collect();
        assert_eq!(sums, [4_604, 46_080, 460_800, 4_608_000]);
        assert_eq!(sizes.iter().sum::<u64>(), DIRECTORY_BYTES);
        assert_eq!(files[35], ("file_set/dir00000/class3_8".into(), 921_600));
    }

    #[test]
    fn a_set_has_the_directories_that_go_into_it() {
        for (mb, directories) in [(0, 1), (1, 1), (9, 1), (10, 2), (100, 20), (1000, 204)] {
            let set = FileSet::new(mb).unwrap();
            assert_eq!(set.directories(), directories);
            assert_eq!(set.files().count(), 36 * directories as usize);
        }
        assert!(FileSet::new(MB_MAX).is_ok());
        assert!(FileSet::new(u64::MAX).is_err());
    }

    #[test]
    fn the_table_of_requests_is_in_the_order_of_the_files() {
        let set = FileSet::new(10).unwrap();
        let BuiltWorkload { workload, requests } =
            set.build(&RequestTemplate::default(), "/", true);
        assert_eq!(requests.len(), 72);
        let seen: Vec<_> =
            filled(&*workload, 0..200).iter().flat_map(|s| targets(&requests, s)).collect();
        assert!(seen.contains(&"/file_set/dir00001/class1_4".into()));
        for index in 0..72 {
            assert_eq!(SetFile::from_index(index).index(), index);
        }
    }

    #[test]
    fn a_session_depends_only_on_its_number_and_the_seed() {
        let BuiltWorkload { workload, .. } =
            FileSet::new(100).unwrap().build(&RequestTemplate::default(), "", false);
        let all = filled(&*workload, 0..100);
        assert_eq!(filled(&*workload, 50..100), all[50..]);
        let mut other = Session::default();
        let differ = |arrival: &u64| {
            other.steps.clear();
            workload.source(2).fill(*arrival, &mut other);
            other != all[*arrival as usize]
        };
        assert!((0..100).filter(differ).count() > 90);
    }

    #[test]
    fn a_connection_of_one_request_asks_for_a_close_as_the_others_do() {
        for close in [false, true] {
            let BuiltWorkload { workload, .. } =
                FileSet::new(1).unwrap().build(&RequestTemplate::default(), "", close);
            let sessions = filled(&*workload, 0..100);
            assert!(sessions.iter().any(|session| session.steps.len() == 1));
            assert!(sessions.iter().all(|session| session.last_closes == close));
        }
    }
}
