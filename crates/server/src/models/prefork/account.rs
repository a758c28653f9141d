//! The account of memory that the children of all masters share, so that one budget holds for them.

use std::sync::atomic::AtomicU64;

use weir_sys::heap::{self, WORDS};
use weir_sys::shared_page::SharedNumbers;

use super::pool_size;
use crate::config::Config;

/// The account, and the share in it of each child and of those that fork them, as slices of memory
/// that lasts as long as the process. Without that memory each child has an account and a budget of
/// its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SharedAccount {
    words: &'static [AtomicU64],
    children: usize,
}

impl SharedAccount {
    /// Makes room for it, before any process is forked, and counts the memory of this one in it.
    pub(super) fn of(config: &Config) -> Self {
        let children = pool_size::children(config);
        let accounts = 2 + config.workers * children;
        let numbers = SharedNumbers::anonymous(accounts * WORDS);
        let words = numbers.map(|numbers| Box::leak(Box::new(numbers)).numbers());
        let account = Self { words: words.unwrap_or_default(), children };
        let mut accounts = account.words.chunks_exact(WORDS);
        if let (Some(all), Some(own)) = (accounts.next(), accounts.next()) {
            heap::share_as_first(all, own);
        }
        account
    }

    /// Counts the memory of this process, a child, in the account.
    pub(super) fn join(self, worker: usize, child: usize) {
        if let Some((all, own)) = self.share_of(worker, child) {
            heap::share(all, own);
        }
    }

    /// Takes the memory of a child that has ended off the account.
    pub(super) fn leave(self, worker: usize, child: usize) {
        if let Some((all, own)) = self.share_of(worker, child) {
            heap::leave(all, own);
        }
    }

    fn share_of(
        self,
        worker: usize,
        child: usize,
    ) -> Option<(&'static [AtomicU64], &'static [AtomicU64])> {
        let mut accounts = self.words.chunks_exact(WORDS);
        let all = accounts.next()?;
        // The first share is that of the processes that fork.
        Some((all, accounts.nth(1 + worker * self.children + child)?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_child_that_ends_takes_its_memory_along_and_no_other_childs() {
        let numbers = Box::leak(Box::new(SharedNumbers::anonymous(6 * WORDS).unwrap())).numbers();
        let account = SharedAccount { words: numbers, children: 2 };
        let (all, own) = account.share_of(1, 0).unwrap();
        let (_, other) = account.share_of(0, 1).unwrap();
        all[0].store(100, Ordering::Relaxed);
        own[0].store(30, Ordering::Relaxed);
        other[0].store(70, Ordering::Relaxed);
        account.leave(1, 0);
        let left = [all, own, other].map(|words| words[0].load(Ordering::Relaxed));
        assert_eq!(left, [70, 0, 70]);
        assert!(account.share_of(2, 0).is_none());
        SharedAccount::default().leave(0, 0);
    }
}
