//! What a path stands for, loaded: the plain representation and its precompressed variants.
//!
//! Here files are read, so that what is in memory is one version of each and known to be. Nothing
//! here resolves names or decides what to keep.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;

use weir_sys::file::{self, Status};

use crate::Now;
use crate::entry::{Content, Description, Entry, OpenFile};
use crate::mime::MimeTypes;
use crate::tree::{Located, Source};
use crate::variants::{Coding, negotiate};

/// The representations of one path.
#[derive(Debug)]
pub(crate) struct Resource {
    plain: Rc<Entry>,
    variants: Vec<(Coding, Rc<Entry>)>,
    /// When it was last known to be what the path stands for, on the monotonic clock.
    checked_ns: Cell<u64>,
}

impl Resource {
    /// Loads what was located. Files of up to `memory_file_bytes_max` bytes are read, larger ones
    /// kept open. The plain file decides for its variants too, which are smaller: so a resource
    /// costs either memory or descriptors.
    ///
    /// # Errors
    /// Those of reading, and `ResourceBusy` for a small file that changes whenever it is read.
    pub(crate) fn load(
        located: Located,
        types: &MimeTypes,
        memory_file_bytes_max: u64,
        now: Now,
    ) -> io::Result<Resource> {
        let content_type = types.content_type(&located.path);
        let varies = !located.variants.is_empty();
        let entry = |source: Source, coding, bytes_max| -> io::Result<Rc<Entry>> {
            let (content, status) = load_content(source, bytes_max)?;
            let content_type = content_type.as_str();
            let description = Description { content_type, coding, varies, status };
            Ok(Rc::new(Entry::new(&description, content, now)))
        };
        let plain = entry(located.plain, None, memory_file_bytes_max)?;
        let bytes_max = match plain.content() {
            Content::Memory(_) => memory_file_bytes_max,
            Content::File(_) => 0,
        };
        let mut variants = Vec::with_capacity(located.variants.len());
        for (coding, source) in located.variants {
            variants.push((coding, entry(source, Some(coding), bytes_max)?));
        }
        Ok(Resource { plain, variants, checked_ns: Cell::new(now.monotonic_ns) })
    }

    /// The representation a client with this `Accept-Encoding` gets.
    pub(crate) fn choose(&self, accept_encoding: &[&[u8]]) -> Rc<Entry> {
        if self.variants.is_empty() {
            return Rc::clone(&self.plain);
        }
        let variant = |coding| self.variants.iter().find(|variant| variant.0 == coding);
        let chosen = negotiate(accept_encoding, |coding| variant(coding).is_some());
        Rc::clone(chosen.and_then(variant).map_or(&self.plain, |variant| &variant.1))
    }

    /// Whether these are the very versions that were located now.
    pub(crate) fn is_same(&self, located: &Located) -> bool {
        let kept = self.variants.iter().map(|(coding, entry)| (*coding, *entry.status()));
        let found = located.variants.iter().map(|(coding, source)| (*coding, source.status));
        *self.plain.status() == located.plain.status && kept.eq(found)
    }

    /// Whether a later change is bound to show. File times tick, every few milliseconds on kernels
    /// before 6.13 and in seconds on some file systems, so a file written to a moment ago may
    /// change again and keep its times: what git calls racily clean. It is served but not kept.
    pub(crate) fn is_settled(&self, now: Now) -> bool {
        let latest_ns = i128::from(now.unix_ns) - SETTLED_NS;
        self.entries().all(|entry| entry.status().ctime_ns <= latest_ns)
    }

    /// Whether it was checked within the last `valid_ns`.
    pub(crate) fn is_fresh(&self, now: Now, valid_ns: u64) -> bool {
        now.monotonic_ns.saturating_sub(self.checked_ns.get()) < valid_ns
    }

    /// Notes that it was found to be what the path stands for.
    pub(crate) fn mark_checked(&self, now: Now) {
        self.checked_ns.set(now.monotonic_ns);
    }

    /// What it costs to keep, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Resource>() + self.entries().map(Entry::memory_bytes).sum::<usize>()
    }

    /// How many files it holds open.
    pub(crate) fn descriptors(&self) -> usize {
        self.entries().filter(|entry| matches!(entry.content(), Content::File(_))).count()
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        std::iter::once(&self.plain)
            .chain(self.variants.iter().map(|(_, entry)| entry))
            .map(|e| &**e)
    }
}

/// Reads a small file, and tells which version was read: the status before and after must agree.
/// (What is rewritten in place has versions that are half old and half new, and they are served as
/// such. Who wants a change to show at once writes a new file and renames it over the old one.)
fn load_content(source: Source, bytes_max: u64) -> io::Result<(Content, Status)> {
    let Source { file, mut status } = source;
    for _ in 0..READ_TRIES {
        if status.len > bytes_max {
            return Ok((Content::File(OpenFile::new(file, status)), status));
        }
        let len = usize::try_from(status.len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut body = vec![0; len];
        let count = file::pread_full(file.as_fd(), &mut body, 0)?;
        let after = file::status(file.as_fd())?;
        if after == status && count == len {
            return Ok((Content::Memory(body.into_boxed_slice()), status));
        }
        status = after;
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// How often a file that changes while it is read is read anew.
const READ_TRIES: usize = 3;

/// The coarsest clock that file times are kept with: ext3, HFS+.
const SETTLED_NS: i128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A file as it was examined with one body, and now has another.
    fn changed(name: &str, before: &str, after: &str) -> (PathBuf, Source) {
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
        (path, Source { file, status })
    }

    #[test]
    fn a_file_that_changes_between_status_and_read_is_read_anew() {
        for after in ["NEW", "longer", "s", ""] {
            let (path, source) = changed("anew", "old", after);
            let examined = source.status;
            let (content, status) = load_content(source, 16).unwrap();
            assert!(matches!(content, Content::Memory(body) if *body == *after.as_bytes()));
            assert_eq!(status.len, after.len() as u64);
            assert_ne!(status, examined);
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_file_that_outgrows_memory_meanwhile_is_left_open() {
        let (path, source) = changed("outgrown", "old", "a longer body");
        let (content, status) = load_content(source, 4).unwrap();
        assert!(matches!(content, Content::File(file) if file.is_unchanged().unwrap()));
        assert_eq!(status.len, 13);
        fs::remove_file(path).unwrap();
    }
}
