//! Deferred disk I/O: blocking operations returned as data, to be run elsewhere before the store is
//! asked again.
//!
//! A fetch brings data into the kernel's caches and keeps nothing itself. It may therefore run on
//! any thread, more than once, or not at all. Nothing here knows of threads or rings.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use weir_sys::descriptor::SharedFd;
use weir_sys::file;

use crate::entry::{FileId, OpenFile};
use crate::path::Decoded;
use crate::tree::{OpenedFile, ResolvedPath, Tree};

/// Data or names that are not yet in the kernel's caches. A clone is the same fetch; two fetches
/// are equal if running either one serves for both.
#[derive(Clone, Debug)]
pub struct Fetch(Arc<Work>);

/// A single operation of a [`Fetch`], for submission to the kernel (`io_uring`).
#[derive(Clone, Debug)]
pub enum FetchOp<'a> {
    /// A name to open below `root` and to close again: openat2(2) with `O_RDONLY`, `O_NONBLOCK`,
    /// `O_NOCTTY`, `RESOLVE_BENEATH`, `RESOLVE_NO_MAGICLINKS` and, unless `symlinks`,
    /// `RESOLVE_NO_SYMLINKS`. A name that does not exist is a valid result too.
    Open {
        /// The root of the store.
        root: SharedFd,
        /// The path below `root`, never empty.
        path: &'a [u8],
        /// True if symbolic links are followed.
        symlinks: bool,
    },
    /// Bytes to read and discard.
    Read {
        /// The file.
        file: SharedFd,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

/// Counts of lookups and reads that found nothing in the kernel's caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColdCounts {
    /// Times a name was not in the kernel's dentry cache.
    pub lookups: u64,
    /// Times a file to be cached in memory was not in the page cache.
    pub reads: u64,
}

#[derive(Debug)]
enum Work {
    Path { tree: Arc<Tree>, key: Box<[u8]>, cold: Vec<Vec<u8>>, read_max: u64 },
    Bytes(Vec<(Arc<OpenFile>, Range<u64>)>),
}

impl Fetch {
    /// Creates a fetch of a range of a file that is sent from its descriptor.
    pub fn of_range(file: &Arc<OpenFile>, range: Range<u64>) -> Fetch {
        Fetch(Arc::new(Work::Bytes(vec![(Arc::clone(file), range)])))
    }

    /// Creates a fetch of files that are to be read into memory.
    pub(crate) fn of_files(files: Vec<Arc<OpenFile>>) -> Fetch {
        let whole = |file: Arc<OpenFile>| {
            let len = file.len();
            (file, 0..len)
        };
        Fetch(Arc::new(Work::Bytes(files.into_iter().map(whole).collect())))
    }

    /// Creates a fetch of the file at `path`, of which the names `cold` are missing: with its
    /// variants, and with the contents of files of up to `read_max` bytes.
    pub(crate) fn of_path(
        tree: &Arc<Tree>,
        path: &Decoded<'_>,
        cold: Vec<Vec<u8>>,
        read_max: u64,
    ) -> Fetch {
        let (tree, key) = (Arc::clone(tree), path.key().into());
        Fetch(Arc::new(Work::Path { tree, key, cold, read_max }))
    }

    /// Blocks until the data is in the kernel's caches or has turned out to be unavailable, in
    /// which case the next attempt reports why. For a path this covers all that the answer takes:
    /// the file, its variants, and the contents of those that are read into memory.
    pub fn run(&self) {
        let mut scratch = vec![0; SCRATCH_BYTES];
        match &*self.0 {
            Work::Path { tree, key, read_max, .. } => {
                run_path(tree, &Decoded::from_key(key), *read_max, &mut scratch);
            }
            Work::Bytes(parts) => {
                for (file, range) in parts {
                    warm(file.as_fd(), range, &mut scratch);
                }
            }
        }
    }

    /// Returns the system calls that may be run instead of [`Fetch::run`], one or several, in any
    /// order. For a path they cover only the names known to be missing: the next answer may be
    /// another fetch.
    pub fn ops(&self) -> impl Iterator<Item = FetchOp<'_>> {
        let (root, paths, parts): (_, &[Vec<u8>], &[_]) = match &*self.0 {
            Work::Path { tree, cold, .. } => (Some(tree), cold, &[]),
            Work::Bytes(parts) => (None, &[], parts),
        };
        let opens = paths.iter().filter_map(move |path| Some(open(root?, path)));
        opens.chain(parts.iter().map(read))
    }

    /// Returns the identity by which fetches are compared: a path of a tree, or ranges of files.
    fn identity(&self) -> (*const Tree, &[u8], impl Iterator<Item = (FileId, &Range<u64>)>) {
        let (tree, key, parts): (_, &[u8], &[_]) = match &*self.0 {
            Work::Path { tree, key, .. } => (Arc::as_ptr(tree), key, &[]),
            Work::Bytes(parts) => (std::ptr::null(), &[], parts),
        };
        (tree, key, parts.iter().map(|(file, range)| (file.id(), range)))
    }
}

impl PartialEq for Fetch {
    fn eq(&self, other: &Fetch) -> bool {
        let ((tree, key, parts), (its_tree, its_key, its_parts)) =
            (self.identity(), other.identity());
        std::ptr::eq(tree, its_tree) && key == its_key && parts.eq(its_parts)
    }
}

impl Eq for Fetch {}

impl Hash for Fetch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (tree, key, parts) = self.identity();
        (tree, key).hash(state);
        parts.for_each(|part| part.hash(state));
    }
}

fn open<'a>(tree: &Arc<Tree>, path: &'a [u8]) -> FetchOp<'a> {
    FetchOp::Open { root: SharedFd::of(tree), path, symlinks: tree.follows_symlinks() }
}

fn read<'a>((file, range): &(Arc<OpenFile>, Range<u64>)) -> FetchOp<'a> {
    let len = range.end.saturating_sub(range.start);
    FetchOp::Read { file: SharedFd::of(file), offset: range.start, len }
}

fn run_path(tree: &Tree, path: &Decoded<'_>, read_max: u64, scratch: &mut [u8]) {
    let Ok(ResolvedPath::File(files)) = tree.resolve(path, true) else { return };
    // The plain file decides for its variants too, as it does when they are loaded.
    if files.plain.status.len > read_max {
        return;
    }
    let variants = files.variants.iter().map(|(_, variant)| variant);
    for OpenedFile { file, status } in std::iter::once(&files.plain).chain(variants) {
        warm(file.as_fd(), &(0..status.len), scratch);
    }
}

/// Ignores errors: they occur again, and are reported, when the bytes are read to be sent.
fn warm(file: BorrowedFd<'_>, range: &Range<u64>, scratch: &mut [u8]) {
    let len = range.end.saturating_sub(range.start);
    let _ = file::warm(file, range.start, len, scratch);
}

/// Size of the read buffer: small enough to be allocated without a system call.
const SCRATCH_BYTES: usize = 64 << 10;
