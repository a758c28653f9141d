//! Descriptors with several owners. Knows nothing of what they lead to.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// A descriptor that stays open as long as this is there: a share in what owns it. Nobody can
/// change the owner meanwhile, for a borrow of it could last as long as the share does.
#[derive(Clone)]
pub struct SharedFd(Arc<dyn AsFd>);

impl SharedFd {
    /// A share in an owner.
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
