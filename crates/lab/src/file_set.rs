//! Sets of files of equal size: the workloads `files-COUNTxKIBk`, such as `files-2000x256k`. The
//! contents are random, so that file systems can neither compress nor deduplicate them. A set is
//! written once for all runs, and evicted from the page cache before each server starts, so that it
//! is read from disk. Knows nothing of servers or loads.

use std::fs::{self, File, Permissions};
use std::io::{Error, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use weir_sys::file::evict;
use weir_sys::proc;

/// Root's directory for data that programs can regenerate (hier(7)).
const CACHE_OF_ROOT: &str = "/var/cache";

/// Maximum number of files in a set.
const COUNT_MAX: u32 = 100_000;

/// Maximum size of a file, in KiB.
const KIB_MAX: u32 = 1 << 20;

/// Bytes written between two looks at the order to stop.
const PIECE_BYTES: usize = 1 << 20;

/// Maximum size of a set, in KiB: an experiment from elsewhere must not fill a disk.
const SET_KIB_MAX: u64 = 64 << 20;

/// A set of files of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSet {
    /// Number of files.
    pub count: u32,
    /// Size of each file, in KiB.
    pub kib: u32,
}

impl FileSet {
    /// Parses the name of a workload; returns `None` if it does not name a valid set.
    pub fn named(workload: &str) -> Option<Self> {
        let (count, kib) = workload.strip_prefix("files-")?.strip_suffix('k')?.split_once('x')?;
        let set = Self { count: count.parse().ok()?, kib: kib.parse().ok()? };
        let kib = u64::from(set.count) * u64::from(set.kib);
        let sound = (1..=COUNT_MAX).contains(&set.count)
            && (1..=KIB_MAX).contains(&set.kib)
            && kib <= SET_KIB_MAX;
        // Each set has a single name: no `+16`, no `016`.
        (sound && set.name() == workload).then_some(set)
    }

    /// Returns the name of the workload, which is also the name of its folder.
    pub fn name(&self) -> String {
        format!("files-{}x{}k", self.count, self.kib)
    }

    /// Returns the path of a file, relative to the document root and with a leading slash.
    pub fn path(&self, index: u32) -> String {
        format!("/{}/{}", self.name(), file(index))
    }

    /// Writes the files below a document root, unless they are there already. Their contents are
    /// random, so that no file system can save space on them. They are readable by all users.
    ///
    /// # Errors
    /// Returns a sentence with the I/O error, or if `stop` is set meanwhile; nothing is left then.
    pub fn write(&self, root: &Path, stop: &AtomicBool) -> Result<(), String> {
        let folder = root.join(self.name());
        let said = |error| format!("cannot write the files of {}: {error}", folder.display());
        self.try_write(root, &folder, stop).map_err(said)
    }

    fn try_write(&self, root: &Path, folder: &Path, stop: &AtomicBool) -> std::io::Result<()> {
        fs::create_dir_all(root)?;
        fs::set_permissions(root, Permissions::from_mode(0o755))?;
        self.remove_forgotten(root);
        if self.is_whole(folder) {
            return Ok(());
        }
        // Only a complete set gets the final name; until then its folder has a temporary one.
        let part = root.join(format!("{}{}", self.part_prefix(), std::process::id()));
        for half in [folder, &part] {
            if half.exists() {
                fs::remove_dir_all(half)?;
            }
        }
        let written = self.fill(&part, stop).and_then(|()| fs::rename(&part, folder));
        if written.is_err() {
            let _ = fs::remove_dir_all(&part);
        }
        written
    }

    /// Returns what the names of its unfinished folders begin with; the process id of the lab that
    /// writes one follows.
    fn part_prefix(&self) -> String {
        format!("{}.part-", self.name())
    }

    /// Removes its unfinished folders of labs that were killed.
    fn remove_forgotten(&self, root: &Path) {
        let prefix = self.part_prefix();
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let lab = name.strip_prefix(&prefix).and_then(|pid| pid.parse::<u32>().ok());
            if lab.is_some_and(|pid| proc::of(pid).is_none()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    fn fill(&self, folder: &Path, stop: &AtomicBool) -> std::io::Result<()> {
        fs::create_dir(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(0o755))?;
        let mut bytes = vec![0; self.bytes() as usize];
        for index in 0..self.count {
            Xoshiro256PlusPlus::seed_from_u64(u64::from(index)).fill_bytes(&mut bytes);
            let mut file = File::create(folder.join(file(index)))?;
            for piece in bytes.chunks(PIECE_BYTES) {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::new(ErrorKind::Interrupted, "stopped"));
                }
                file.write_all(piece)?;
            }
            // Dirty pages cannot be evicted from the page cache.
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

    /// Evicts the files from the page cache, as far as the file system allows: a file system in
    /// memory keeps them ([`evict`]).
    ///
    /// # Errors
    /// Returns a sentence if a file cannot be opened or evicted.
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

/// Returns the document root of all sets, which is kept between runs.
///
/// # Errors
/// Returns a sentence if the user's cache directory cannot be determined.
pub fn kept() -> Result<PathBuf, String> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let is_root = rustix::process::geteuid().is_root();
    let cache = cache(is_root, set("XDG_CACHE_HOME"), set("HOME"));
    let cache = cache.ok_or("where to keep files between runs is not known: HOME is not set")?;
    Ok(cache.join("weir-lab/files"))
}

/// Returns the cache directory of the XDG base directory specification, but with a default of its
/// own for root.
fn cache(is_root: bool, given: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let of_root = is_root.then(|| PathBuf::from(CACHE_OF_ROOT));
    given.or(of_root).or_else(|| Some(home?.join(".cache")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: FileSet = FileSet { count: 3, kib: 2 };

    fn write(root: &Path) {
        SMALL.write(root, &AtomicBool::new(false)).unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

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
        write(root.path());
        let at = |index| root.path().join(&SMALL.path(index)[1..]);
        let first = fs::read(at(0)).unwrap();
        assert_eq!(first.len(), 2048);
        assert!(first != fs::read(at(1)).unwrap());
        fs::write(at(2), vec![7; 2048]).unwrap();
        write(root.path());
        assert_eq!(fs::read(at(2)).unwrap(), vec![7; 2048]);
        fs::write(at(1), "half").unwrap();
        write(root.path());
        assert_eq!(fs::read(at(0)).unwrap(), first);
        assert_eq!(fs::read(at(1)).unwrap().len(), 2048);
        assert!(fs::read(at(2)).unwrap() != vec![7; 2048]);
        assert_eq!(names(root.path()), ["files-3x2k"]);
    }

    #[test]
    fn only_what_a_lab_that_is_gone_has_begun_is_removed() {
        let root = tempfile::tempdir().unwrap();
        // A process id is at most 2^22 (proc(5), pid_max).
        let gone = "files-3x2k.part-4194305";
        let here = format!("files-3x2k.part-{}", std::os::unix::process::parent_id());
        let kept = [here.as_str(), "files-3x2k.part-x", "files-4x2k.part-4194305"];
        let make = |name: &str| {
            fs::create_dir(root.path().join(name)).unwrap();
            fs::write(root.path().join(name).join("00000.bin"), "half").unwrap();
        };
        [&[gone][..], &kept[..]].concat().into_iter().for_each(make);
        write(root.path());
        assert_eq!(names(root.path()), [&["files-3x2k"][..], &kept[..]].concat());
        // Also beside a set that is whole.
        make(gone);
        write(root.path());
        assert_eq!(names(root.path()), [&["files-3x2k"][..], &kept[..]].concat());
    }

    #[test]
    fn a_set_that_is_stopped_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let why = SMALL.write(root.path(), &AtomicBool::new(true)).unwrap_err();
        assert!(why.ends_with(": stopped"), "{why}");
        assert_eq!(names(root.path()), [""; 0]);
    }

    #[test]
    fn files_that_are_forgotten_are_the_same_when_they_are_read_again() {
        let root = tempfile::tempdir().unwrap();
        write(root.path());
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
