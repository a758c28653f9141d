//! Memory in which forwarded replies wait for slow clients, and content of requests for the rest of
//! it, bounded for all loops together. Who holds some may have more as long as more than that is
//! left: many slow clients leave room for the next (Choudhury and Hahne, Dynamic Queue Length
//! Thresholds for Shared-Memory Packet Switches, IEEE/ACM Transactions on Networking 6(2), 1998).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of all loops.
#[derive(Debug)]
pub(crate) struct BufferPool {
    bytes_max: usize,
    used_bytes: AtomicUsize,
}

impl BufferPool {
    /// Creates one of `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, used_bytes: AtomicUsize::new(0) }
    }

    /// Returns the number of bytes in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether a holder that would have `bytes` may, with so many in use before.
    fn allows(&self, bytes: usize, used_bytes: usize) -> bool {
        bytes <= self.bytes_max.saturating_sub(used_bytes)
    }
}

/// A holder's part of the memory, given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// `None` before the first byte.
    pool: Option<Arc<BufferPool>>,
    bytes: usize,
}

impl Lease {
    /// Number of bytes that it has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether `more` bytes would be given now. `bytes_max`: those it has at most.
    pub(crate) fn may_grow(&self, pool: &BufferPool, more: usize, bytes_max: usize) -> bool {
        let bytes = self.bytes + more;
        bytes <= bytes_max && pool.allows(bytes, pool.used_bytes())
    }

    /// Takes `more` bytes; returns whether it was given them. `bytes_max`: those it has at most.
    pub(crate) fn grow(&mut self, pool: &Arc<BufferPool>, more: usize, bytes_max: usize) -> bool {
        let bytes = self.bytes + more;
        let used_bytes = pool.used_bytes.fetch_add(more, Ordering::Relaxed);
        if bytes > bytes_max || !pool.allows(bytes, used_bytes) {
            pool.used_bytes.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.bytes = bytes;
        self.pool.get_or_insert_with(|| Arc::clone(pool));
        true
    }

    /// Gives back `bytes`.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if let Some(pool) = &self.pool {
            pool.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_no_more_than_is_left_besides() {
        let pool = Arc::new(BufferPool::new(100));
        let (mut first, mut second) = (Lease::default(), Lease::default());
        assert!(first.grow(&pool, 50, usize::MAX));
        assert!(!first.may_grow(&pool, 1, usize::MAX) && !first.grow(&pool, 1, usize::MAX));
        assert!(second.may_grow(&pool, 25, usize::MAX) && second.grow(&pool, 25, usize::MAX));
        assert!(!second.grow(&pool, 1, usize::MAX));
        assert_eq!(pool.used_bytes(), 75);
        drop(first);
        assert!(second.grow(&pool, 1, usize::MAX));
        second.shrink(20);
        assert_eq!(pool.used_bytes(), 6);
        drop(second);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_holder_has_no_more_than_its_own_maximum() {
        let pool = Arc::new(BufferPool::new(1000));
        let mut lease = Lease::default();
        assert!(lease.grow(&pool, 10, 10) && !lease.grow(&pool, 1, 10));
        assert!(!lease.may_grow(&pool, 1, 10));
        lease.shrink(1000);
        assert_eq!(pool.used_bytes(), 0);
        assert!(!Lease::default().grow(&Arc::new(BufferPool::new(0)), 1, 10));
    }
}
