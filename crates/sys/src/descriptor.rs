//! Descriptors with several owners.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// A share in the owner of a descriptor, which keeps the descriptor open. The owner cannot be
/// changed meanwhile, because a borrow of it may last as long as the share.
#[derive(Clone)]
pub struct SharedFd(Arc<dyn AsFd>);

impl SharedFd {
    /// Creates a share in `owner`.
    pub fn of<T: AsFd + 'static>(owner: &Arc<T>) -> Self {
        Self(Arc::clone(owner) as _)
    }
}

impl AsFd for SharedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self.0).as_fd()
    }
}

impl fmt::Debug for SharedFd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SharedFd").field(&self.as_fd().as_raw_fd()).finish()
    }
}
