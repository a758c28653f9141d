//! Reason why a step did not complete: it would have blocked on a disk, or it failed.

use std::io;

/// Error type of a step that must not block. `T` is the data or names that it would have waited
/// for.
#[derive(Debug)]
pub(crate) enum ColdError<T> {
    /// The data is not in the kernel's caches, and the step was told not to block.
    Cold(T),
    /// The operation failed.
    Failed(io::Error),
}

impl<T> From<io::Error> for ColdError<T> {
    fn from(error: io::Error) -> Self {
        ColdError::Failed(error)
    }
}

impl<T> From<io::ErrorKind> for ColdError<T> {
    fn from(kind: io::ErrorKind) -> Self {
        ColdError::Failed(kind.into())
    }
}
