//! Sets of files of one size that no two bytes of a disk can be saved on: the workloads
//! `files-COUNTxKIBk`, such as `files-2000x256k`. Written once for all runs, and put out of memory
//! before each server, so that the disk is asked for them. Knows no server and no load.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use weir_sys::file::evict;

/// Where root keeps what programs made and can make again (hier(7)).
const CACHE_OF_ROOT: &str = "/var/cache";

/// Files of a set at most.
const COUNT_MAX: u32 = 100_000;

/// The largest file, KiB.
const KIB_MAX: u32 = 1 << 20;

/// The largest set, KiB: an experiment from elsewhere does not fill a disk.
const SET_KIB_MAX: u64 = 64 << 20;

/// A set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSet {
    /// How many files.
    pub count: u32,
    /// How large each is, KiB.
    pub kib: u32,
}

impl FileSet {
    /// The set that a workload's name means; none if it means something else.
    pub fn named(workload: &str) -> Option<Self> {
        let (count, kib) = workload.strip_prefix("files-")?.strip_suffix('k')?.split_once('x')?;
        let set = Self { count: count.parse().ok()?, kib: kib.parse().ok()? };
        let kib = u64::from(set.count) * u64::from(set.kib);
        let sound = (1..=COUNT_MAX).contains(&set.count)
            && (1..=KIB_MAX).contains(&set.kib)
            && kib <= SET_KIB_MAX;
        // One set has one name: no `+16`, no `016`.
        (sound && set.name() == workload).then_some(set)
    }

    /// The workload's name, and its folder's.
    pub fn name(&self) -> String {
        format!("files-{}x{}k", self.count, self.kib)
    }

    /// The path of a file below the document root.
    pub fn path(&self, index: u32) -> String {
        format!("/{}/{}", self.name(), file(index))
    }

    /// Writes the files below a document root, unless they are there. Their bytes are of chance, so
    /// that no file system can do without them. Everybody may read them.
    ///
    /// # Errors
    /// A sentence with what the disk says.
    pub fn write(&self, root: &Path) -> Result<(), String> {
        let folder = root.join(self.name());
        let said = |error| format!("cannot write the files of {}: {error}", folder.display());
        self.try_write(root, &folder).map_err(said)
    }

    fn try_write(&self, root: &Path, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(root)?;
        fs::set_permissions(root, Permissions::from_mode(0o755))?;
        if self.is_whole(folder) {
            return Ok(());
        }
        // A folder with the name has all files: half of a set goes by another.
        let part = root.join(format!("{}.part-{}", self.name(), std::process::id()));
        for half in [folder, &part] {
            if half.exists() {
                fs::remove_dir_all(half)?;
            }
        }
        let written = self.fill(&part).and_then(|()| fs::rename(&part, folder));
        if written.is_err() {
            let _ = fs::remove_dir_all(&part);
        }
        written
    }

    fn fill(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        let mut bytes = vec![0; self.bytes() as usize];
        for index in 0..self.count {
            Xoshiro256PlusPlus::seed_from_u64(u64::from(index)).fill_bytes(&mut bytes);
            let mut file = File::create(folder.join(file(index)))?;
            file.write_all(&bytes)?;
            // What is not on the disk cannot be put out of memory.
            file.sync_all()?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        u64::from(self.kib) << 10
    }

    fn is_whole(&self, folder: &Path) -> bool {
        let has = |index| fs::metadata(folder.join(file(index))).map(|about| about.len()).ok();
        (0..self.count).all(|index| has(index) == Some(self.bytes()))
    }

    /// Puts the files out of the page cache, as far as the file system lets go of them: one in
    /// memory keeps them ([`evict`]).
    ///
    /// # Errors
    /// A sentence: a file cannot be opened.
    pub fn forget(&self, root: &Path) -> Result<(), String> {
        let folder = root.join(self.name());
        (0..self.count).try_for_each(|index| {
            let path = folder.join(file(index));
            let evicted = File::open(&path).and_then(|file| evict(file.as_fd(), 0, 0));
            evicted.map(drop).map_err(|error| format!("{}: {error}", path.display()))
        })
    }
}

fn file(index: u32) -> String {
    format!("{index:05}.bin")
}

/// The document root of all sets, which stays from one run to the next.
///
/// # Errors
/// A sentence: nobody says where this user's cache is.
pub fn kept() -> Result<PathBuf, String> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let is_root = rustix::process::geteuid().is_root();
    let cache = cache(is_root, set("XDG_CACHE_HOME"), set("HOME"));
    let cache = cache.ok_or("where to keep files between runs is not known: HOME is not set")?;
    Ok(cache.join("weir-lab/files"))
}

/// As the XDG base directory specification has it, but for root.
fn cache(is_root: bool, given: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let of_root = is_root.then(|| PathBuf::from(CACHE_OF_ROOT));
    given.or(of_root).or_else(|| Some(home?.join(".cache")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: FileSet = FileSet { count: 3, kib: 2 };

    #[test]
    fn a_set_is_known_by_its_name_alone() {
        assert_eq!(FileSet::named("files-3x2k"), Some(SMALL));
        assert_eq!(SMALL.path(2), "/files-3x2k/00002.bin");
        let no = [
            "files-0x2k",
            "files-3x0k",
            "files-03x2k",
            "files-3x2",
            "files-x2k",
            "files-3x+2k",
            "specweb99",
            "files-100001x1k",
            "files-1x1048577k",
            "files-65x1048576k",
        ];
        for name in no {
            assert_eq!(FileSet::named(name), None, "{name}");
        }
    }

    #[test]
    fn a_set_is_written_once_and_again_where_a_file_of_it_is_not_whole() {
        let root = tempfile::tempdir().unwrap();
        SMALL.write(root.path()).unwrap();
        let at = |index| root.path().join(&SMALL.path(index)[1..]);
        let first = fs::read(at(0)).unwrap();
        assert_eq!(first.len(), 2048);
        assert!(first != fs::read(at(1)).unwrap());
        fs::write(at(2), vec![7; 2048]).unwrap();
        SMALL.write(root.path()).unwrap();
        assert_eq!(fs::read(at(2)).unwrap(), vec![7; 2048]);
        fs::write(at(1), "half").unwrap();
        SMALL.write(root.path()).unwrap();
        assert_eq!(fs::read(at(0)).unwrap(), first);
        assert_eq!(fs::read(at(1)).unwrap().len(), 2048);
        assert!(fs::read(at(2)).unwrap() != vec![7; 2048]);
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn files_that_are_forgotten_are_the_same_when_they_are_read_again() {
        let root = tempfile::tempdir().unwrap();
        SMALL.write(root.path()).unwrap();
        SMALL.forget(root.path()).unwrap();
        assert!(SMALL.is_whole(&root.path().join(SMALL.name())));
        let other = FileSet { count: 4, ..SMALL };
        assert!(other.forget(root.path()).unwrap_err().contains("files-4x2k"));
    }

    #[test]
    fn the_cache_is_where_the_user_says_or_where_it_is_by_custom() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(cache(true, path("/x"), path("/root")), path("/x"));
        assert_eq!(cache(true, None, path("/root")), path("/var/cache"));
        assert_eq!(cache(false, None, path("/a")), path("/a/.cache"));
        assert_eq!(cache(false, None, None), None);
    }
}
