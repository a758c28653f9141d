//! A compressed form of one version of a file, and what tells forms apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_sys::file::Status;

use super::level::Level;
use crate::entry::FileId;
use crate::variants::Coding;

/// Identity of a form: a version of a file, and a coding. A file that is at rest when it is
/// examined, and has these times and this length, has this content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FormId {
    file: FileId,
    len: u64,
    mtime_ns: i128,
    ctime_ns: i128,
    pub(crate) coding: Coding,
}

impl FormId {
    pub(crate) fn of(plain: &Status, coding: Coding) -> FormId {
        let Status { dev, ino, len, mtime_ns, ctime_ns, .. } = *plain;
        FormId { file: (dev, ino), len, mtime_ns, ctime_ns, coding }
    }
}

/// A compressed form, or the knowledge that there is none worth sending.
#[derive(Debug)]
pub struct Form {
    /// The compressed bytes; `None` if they are not fewer.
    pub(crate) body: Option<Arc<[u8]>>,
    pub(crate) level: Level,
    /// Processor time that it took to make, nanoseconds.
    pub(crate) spent_ns: u64,
    is_counted: AtomicBool,
}

impl Form {
    /// Creates a form. `body`: the compressed bytes, if they are worth sending.
    pub fn new(body: Option<Vec<u8>>, level: Level, spent_ns: u64) -> Form {
        let body = body.map(Arc::from);
        Form { body, level, spent_ns, is_counted: AtomicBool::new(false) }
    }

    /// Returns whether nobody has counted it yet, and marks it as counted.
    pub(crate) fn is_first_count(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }

    /// Memory use, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Form>() + self.body.as_ref().map_or(0, |body| body.len())
    }
}
