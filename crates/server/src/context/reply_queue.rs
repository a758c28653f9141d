//! The part of a forwarded reply that waits for a slow client behind the output: chunks of memory
//! that is bounded for all loops together.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::upstream::buffers::{BufferPool, Lease};

/// Size of a chunk, bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Room in a chunk that is left for what frames the content, bytes.
const FRAMING_BYTES: usize = 256;

/// Room in the last chunk below which another is begun, bytes.
const ROOM_BYTES_MIN: usize = 8 << 10;

/// Chunks in the order in which they are sent.
#[derive(Debug, Default)]
pub(crate) struct ReplyQueue {
    chunks: VecDeque<Vec<u8>>,
    lease: Lease,
}

impl ReplyQueue {
    /// Returns whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Number of bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    /// Capacity of its chunks, bytes.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }

    /// Returns whether more would be taken now. `bytes_max`: the memory that it has at most.
    pub(crate) fn may_take(&self, pool: &BufferPool, bytes_max: usize) -> bool {
        self.room() > 0 || self.lease.may_grow(pool, CHUNK_BYTES, bytes_max)
    }

    /// Returns the chunk that what comes next is appended to, and how much of the content may be;
    /// `None` if there is no memory for it.
    pub(crate) fn tail(
        &mut self,
        pool: &Arc<BufferPool>,
        bytes_max: usize,
    ) -> Option<(&mut Vec<u8>, usize)> {
        if self.room() == 0 {
            if !self.lease.grow(pool, CHUNK_BYTES, bytes_max) {
                return None;
            }
            self.chunks.push_back(Vec::with_capacity(CHUNK_BYTES));
        }
        let room = self.room();
        Some((self.chunks.back_mut()?, room))
    }

    /// Room for content in the last chunk, bytes; 0 if another is to be begun.
    fn room(&self) -> usize {
        let Some(last) = self.chunks.back() else { return 0 };
        let room = (CHUNK_BYTES - FRAMING_BYTES).saturating_sub(last.len());
        if room < ROOM_BYTES_MIN { 0 } else { room }
    }

    /// Removes and returns the first chunk that has bytes. Its memory counts as that of an output
    /// from then on.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        loop {
            let chunk = self.chunks.pop_front()?;
            self.lease.shrink(CHUNK_BYTES);
            if !chunk.is_empty() {
                return Some(chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_comes_out_in_order_and_gives_its_memory_back() {
        let pool = Arc::new(BufferPool::new(64 * CHUNK_BYTES));
        let mut queue = ReplyQueue::default();
        let (mut pushed, mut nth) = (0, 0_u8);
        while let Some((tail, room)) = queue.tail(&pool, 4 * CHUNK_BYTES) {
            let bytes = room.min(10_000);
            tail.extend(std::iter::repeat_n(nth, bytes));
            (pushed, nth) = (pushed + bytes, nth.wrapping_add(1));
        }
        assert!(!queue.may_take(&pool, 4 * CHUNK_BYTES));
        assert_eq!((queue.bytes(), pool.used_bytes()), (pushed, 4 * CHUNK_BYTES));
        assert_eq!(queue.buffer_bytes(), 4 * CHUNK_BYTES);
        let out: Vec<u8> = std::iter::from_fn(|| queue.pop()).flatten().collect();
        assert!(out.is_sorted() && out.len() == pushed);
        assert!(queue.is_empty() && queue.may_take(&pool, CHUNK_BYTES));
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_chunk_without_bytes_is_not_sent() {
        let pool = Arc::new(BufferPool::new(4 * CHUNK_BYTES));
        let mut queue = ReplyQueue::default();
        assert!(queue.tail(&pool, CHUNK_BYTES).is_some());
        assert_eq!(queue.pop(), None);
        assert_eq!(pool.used_bytes(), 0);
        drop(queue);
    }

    #[test]
    fn a_queue_that_is_dropped_gives_its_memory_back() {
        let pool = Arc::new(BufferPool::new(4 * CHUNK_BYTES));
        let mut queue = ReplyQueue::default();
        assert!(queue.tail(&pool, CHUNK_BYTES).is_some());
        assert_eq!(pool.used_bytes(), CHUNK_BYTES);
        drop(queue);
        assert_eq!(pool.used_bytes(), 0);
    }
}
