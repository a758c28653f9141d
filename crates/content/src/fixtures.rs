//! The status of a file, and an entry of one, for the tests of what follows from them.

use std::sync::Arc;

use weir_sys::file::{Kind, Status};

use crate::entry::{Content, Description, Entry};
use crate::time::Now;

/// An empty file of root's, written in 1994.
pub(crate) const FILE: Status = Status {
    kind: Kind::File,
    dev: 1,
    ino: 2,
    len: 0,
    nlink: 1,
    uid: 0,
    gid: 0,
    mode: 0o644,
    mtime_ns: 784_111_777_000_000_000,
    ctime_ns: 784_111_777_000_000_000,
};

/// An entry in memory of a text file at rest since 1994.
pub(crate) fn entry_of(body: &[u8]) -> Arc<Entry> {
    let status = Status { len: body.len() as u64, ..FILE };
    let description =
        Description { content_type: "text/plain", coding: None, varies: true, status };
    let now = Now { monotonic_ns: 0, unix_ns: 1_000_000_000_000_000_000 };
    Arc::new(Entry::new(&description, Content::Memory(Arc::from(body)), now))
}
