//! Why a step came to no end: it would have had to wait for a disk, or it failed.
//!
//! Nothing here knows what is waited for, or who waits.

use std::io;

/// What a step gives back instead of its result. `T` is what it would have waited for.
#[derive(Debug)]
pub(crate) enum Stop<T> {
    /// This is not in the kernel's caches, and the step was told not to wait.
    Cold(T),
    /// It cannot be had.
    Failed(io::Error),
}

impl<T> From<io::Error> for Stop<T> {
    fn from(error: io::Error) -> Self {
        Stop::Failed(error)
    }
}

impl<T> From<io::ErrorKind> for Stop<T> {
    fn from(kind: io::ErrorKind) -> Self {
        Stop::Failed(kind.into())
    }
}
