//! Kernel state of an epoll set: items that may be ready, one per descriptor and file.

use std::os::fd::RawFd;

use weir_sys::epoll::EventFlags;

use super::bits::ALWAYS;

/// Kernel state of a set.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) items: Vec<Item>,
}

/// A file under a descriptor number. A second file under the same number is another item, because
/// the first may live on elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) number: RawFd,
    pub(super) file: usize,
    pub(super) data: u64,
    pub(super) flags: EventFlags,
    /// The item may be ready and must be checked.
    pub(super) listed: bool,
}

impl Set {
    pub(super) fn forget(&mut self, file: usize) {
        self.items.retain(|item| item.file != file);
    }

    pub(super) fn wake(&mut self, file: usize, key: u32) {
        for item in self.items.iter_mut().filter(|item| item.file == file) {
            item.listed |= key == 0 || key & (item.flags.bits() | ALWAYS) != 0;
        }
    }

    pub(super) fn place(&self, number: RawFd, file: usize) -> Option<usize> {
        self.items.iter().position(|item| item.number == number && item.file == file)
    }
}
