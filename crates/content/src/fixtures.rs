//! The status of a file, for the tests of what follows from one.

use weir_sys::file::{Kind, Status};

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
