//! The page of the server of this process, for an observer that has others to answer meanwhile: it
//! gives up much sooner than one of another process.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use weir_stats::page::{Layout, PageError, Snapshot, Words};
use weir_sys::process::{monotonic_ns, unix_ns};

use crate::usage::Usages;

/// Delay before the page is copied again whose writer was interrupted in the middle of a
/// publication, and number of such copies: 50 ms in all, which is longer than a thread is
/// interrupted for by another.
const RETRY_DELAY: Duration = Duration::from_micros(500);
const RETRIES: u32 = 100;

/// The page of the server of this process, as the server handed it over.
pub struct OwnPage {
    layout: Layout,
    words: Arc<dyn Words + Send + Sync>,
}

impl OwnPage {
    /// Takes over a page of this layout.
    pub fn new(layout: Layout, words: Arc<dyn Words + Send + Sync>) -> Self {
        Self { layout, words }
    }

    /// Returns the numbers of every loop, those of the kernel included where /proc shows them.
    ///
    /// # Errors
    /// [`PageError::Busy`] if a loop does not run for 50 ms that was interrupted as it published.
    pub fn snapshot(&self) -> Result<Snapshot, PageError> {
        let mut snapshot = self.published()?;
        let mut usages = Usages::default();
        snapshot.add_usage(|owner| usages.of(owner));
        Ok(snapshot)
    }

    /// Returns the numbers of every loop as it published them, without those of the kernel.
    ///
    /// # Errors
    /// As [`OwnPage::snapshot`].
    pub fn published(&self) -> Result<Snapshot, PageError> {
        for _ in 0..RETRIES {
            match self.layout.snapshot(&*self.words, monotonic_ns(), unix_ns()) {
                Err(PageError::Busy) => thread::sleep(RETRY_DELAY),
                done => return done,
            }
        }
        Err(PageError::Busy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use weir_stats::TABLE;
    use weir_stats::page::{Description, Owner, State};

    use super::*;

    struct Memory(Vec<AtomicU64>);

    impl Words for Memory {
        fn load(&self, index: usize) -> Option<u64> {
            Some(self.0.get(index)?.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_page_in_this_process_is_read_and_is_busy_in_the_middle_of_a_move() {
        let layout = Layout::new(Description { slots: 1, ..Description::of_this_build() });
        let words = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
        let memory = Arc::new(Memory(words));
        let slot = layout.slot(&memory.0, 0).unwrap();
        slot.set_owner(&Owner { state: State::Live, ..Owner::default() });
        slot.publish(1, &[1; TABLE.len()], &[]);
        let page = OwnPage::new(layout.clone(), memory.clone());
        let total = page.snapshot().unwrap().total();
        assert_eq!(total.iter().find(|row| row.name == "accepted").unwrap().value, Some(1));
        layout.move_between(&memory.0, || {
            assert_eq!(page.snapshot(), Err(PageError::Busy));
        });
        assert!(page.snapshot().is_ok());
    }
}
