//! Loaded resources: the plain representation of a path and its precompressed variants.
//!
//! Files are read here, with a check that each body in memory is a single, known version. Nothing
//! here resolves names or manages the cache.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_sys::file::{self, Status};

use crate::cold_error::ColdError;
use crate::compression::FILE_BYTES_MIN;
use crate::entry::{Content, Description, Entry, OpenFile};
use crate::mime::{MimeTypes, is_compressible};
use crate::time::Now;
use crate::tree::{OpenedFile, ResolvedFiles};
use crate::variants::{Coding, negotiate, stands_for};

/// The representations of a path.
#[derive(Debug)]
pub(crate) struct Resource {
    plain: Arc<Entry>,
    variants: Vec<(Coding, Arc<Entry>)>,
    /// True if it may be compressed on the fly.
    is_compressible: bool,
    /// Time of the last check that it is still what the path resolves to, on the monotonic clock.
    checked_ns: AtomicU64,
}

/// Reason why a resource was not loaded: cold files, or an error.
pub(crate) type LoadError = ColdError<Vec<Arc<OpenFile>>>;

type Loaded = (Content, Status);

/// Rules for loading resources.
#[derive(Clone, Copy)]
pub(crate) struct LoadRules<'a> {
    pub(crate) types: &'a MimeTypes,
    /// Size up to which files are read, bytes; larger ones are kept open.
    pub(crate) memory_file_bytes_max: u64,
    /// Size up to which files are compressed on the fly, bytes; 0 if none are.
    pub(crate) compressed_file_bytes_max: u64,
}

impl Resource {
    /// Loads resolved files. Small ones are read, larger ones kept open. The size of the plain file
    /// decides for its variants too, which are smaller; a resource therefore costs either memory or
    /// descriptors. A file without variants may be compressed on the fly.
    ///
    /// # Errors
    /// The cold files, if it must not block (`waits` is false). Otherwise those of reading, and
    /// `ResourceBusy` for a small file that changes each time it is read.
    pub(crate) fn load(
        files: ResolvedFiles,
        rules: LoadRules<'_>,
        waits: bool,
        now: Now,
    ) -> Result<Resource, LoadError> {
        let LoadRules { types, memory_file_bytes_max, compressed_file_bytes_max } = rules;
        let content_type = types.content_type(&files.path);
        let is_compressible = files.variants.is_empty()
            && (FILE_BYTES_MIN..=compressed_file_bytes_max).contains(&files.plain.status.len)
            && is_compressible(&content_type);
        let varies = is_compressible || !files.variants.is_empty();
        let mut cold = Vec::new();
        let mut entry = |source, coding, bytes_max| -> io::Result<Option<Arc<Entry>>> {
            let (content, status) = match load_content(source, bytes_max, waits) {
                Ok(loaded) => loaded,
                Err(ColdError::Failed(error)) => return Err(error),
                Err(ColdError::Cold(file)) => {
                    cold.push(file);
                    return Ok(None);
                }
            };
            let content_type = content_type.as_str();
            let description = Description { content_type, coding, varies, status };
            Ok(Some(Arc::new(Entry::new(&description, content, now))))
        };
        let plain = entry(files.plain, None, memory_file_bytes_max)?;
        let bytes_max = match plain.as_ref().map(|plain| plain.content()) {
            Some(Content::Memory(_)) | None => memory_file_bytes_max,
            Some(Content::File(_)) => 0,
        };
        let mut variants = Vec::with_capacity(files.variants.len());
        for (coding, source) in files.variants {
            variants.extend(entry(source, Some(coding), bytes_max)?.map(|entry| (coding, entry)));
        }
        let checked_ns = AtomicU64::new(now.monotonic_ns);
        match plain {
            Some(plain) if cold.is_empty() => {
                // What was read may be later than what was resolved.
                variants.retain(|(_, variant)| stands_for(variant.status(), plain.status()));
                Ok(Resource { plain, variants, is_compressible, checked_ns })
            }
            _ => Err(ColdError::Cold(cold)),
        }
    }

    /// Selects the representation for a client with this `Accept-Encoding`.
    pub(crate) fn choose(&self, accept_encoding: &[&[u8]]) -> Arc<Entry> {
        if self.variants.is_empty() {
            return Arc::clone(&self.plain);
        }
        let variant = |coding| self.variants.iter().find(|variant| variant.0 == coding);
        let chosen = negotiate(accept_encoding, |coding| variant(coding).is_some());
        Arc::clone(chosen.and_then(variant).map_or(&self.plain, |variant| &variant.1))
    }

    /// Returns the plain representation, if it may be compressed on the fly.
    pub(crate) fn compressible(&self) -> Option<&Arc<Entry>> {
        self.is_compressible.then_some(&self.plain)
    }

    /// Returns whether the loaded versions are those that were just resolved.
    pub(crate) fn is_same(&self, files: &ResolvedFiles) -> bool {
        let kept = self.variants.iter().map(|(coding, entry)| (*coding, *entry.status()));
        let found = files.variants.iter().map(|(coding, source)| (*coding, source.status));
        *self.plain.status() == files.plain.status && kept.eq(found)
    }

    /// Returns whether a later change is guaranteed to be detectable: see [`is_settled`]. If not,
    /// the resource is served but not cached.
    pub(crate) fn is_settled(&self, now: Now) -> bool {
        self.entries().all(|entry| is_settled(entry.status(), now))
    }

    /// Returns whether the resource was checked within the last `valid_ns`.
    pub(crate) fn is_fresh(&self, now: Now, valid_ns: u64) -> bool {
        now.monotonic_ns.saturating_sub(self.checked_ns.load(Ordering::Relaxed)) < valid_ns
    }

    /// Records that the path was found to resolve to this resource still.
    pub(crate) fn mark_checked(&self, now: Now) {
        self.checked_ns.store(now.monotonic_ns, Ordering::Relaxed);
    }

    /// Memory use while cached, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Resource>() + self.entries().map(Entry::memory_bytes).sum::<usize>()
    }

    /// Number of files held open.
    pub(crate) fn descriptors(&self) -> usize {
        self.entries().filter(|entry| matches!(entry.content(), Content::File(_))).count()
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.plain)
            .chain(self.variants.iter().map(|(_, entry)| entry))
            .map(|e| &**e)
    }
}

/// Returns whether a later change of the file with this status is guaranteed to be detectable. File
/// times have a granularity of a few milliseconds on kernels before 6.13, and of seconds on some
/// file systems. A file written within the last tick may therefore change again and keep its times:
/// git calls this racily clean.
pub(crate) fn is_settled(status: &Status, now: Now) -> bool {
    status.ctime_ns <= i128::from(now.unix_ns) - SETTLED_NS
}

/// Reads a small file and returns its content and the version that was read: the status before and
/// after must agree. (A file rewritten in place passes through versions that are half old and half
/// new, and these are served as they are. For a change to show atomically, write a new file and
/// rename it over the old one.)
fn load_content(
    source: OpenedFile,
    bytes_max: u64,
    waits: bool,
) -> Result<Loaded, ColdError<Arc<OpenFile>>> {
    let OpenedFile { file, mut status } = source;
    let read = if waits { file::pread_full } else { file::pread_full_nowait };
    for _ in 0..READ_TRIES {
        if status.len > bytes_max {
            return Ok((Content::File(Arc::new(OpenFile::new(file, status))), status));
        }
        let len = usize::try_from(status.len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut body: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let count = match read(file.as_fd(), Arc::make_mut(&mut body), 0) {
            Err(error) if !waits && error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ColdError::Cold(Arc::new(OpenFile::new(file, status))));
            }
            count => count?,
        };
        let after = file::status(file.as_fd())?;
        if after == status && count == len {
            return Ok((Content::Memory(body), status));
        }
        status = after;
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Maximum number of attempts to read a file that changes while it is read.
const READ_TRIES: usize = 3;

/// Coarsest granularity of file times: ext3, HFS+.
const SETTLED_NS: i128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// Creates a file that was examined with one body and now has another.
    fn changed(name: &str, before: &str, after: &str) -> (PathBuf, OpenedFile) {
        let directory = std::env::temp_dir();
        let name = format!("weir-resource-{}-{name}", std::process::id());
        let path = directory.join(&name);
        fs::write(&path, before).unwrap();
        let root = file::open_root(&directory).unwrap();
        let file = file::open_beneath(root.as_fd(), name.as_bytes(), false).unwrap();
        let status = file::status(file.as_fd()).unwrap();
        // At another tick of the clock that file times are kept with.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, after).unwrap();
        (path, OpenedFile { file, status })
    }

    #[test]
    fn a_file_that_changes_between_status_and_read_is_read_anew() {
        for after in ["NEW", "longer", "s", ""] {
            let (path, source) = changed("anew", "old", after);
            let examined = source.status;
            let (content, status) = load_content(source, 16, true).unwrap();
            assert!(matches!(content, Content::Memory(body) if *body == *after.as_bytes()));
            assert_eq!(status.len, after.len() as u64);
            assert_ne!(status, examined);
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_file_that_outgrows_memory_meanwhile_is_left_open() {
        let (path, source) = changed("outgrown", "old", "a longer body");
        let (content, status) = load_content(source, 4, true).unwrap();
        assert!(matches!(content, Content::File(file) if file.is_unchanged().unwrap()));
        assert_eq!(status.len, 13);
        fs::remove_file(path).unwrap();
    }
}
