//! What gives way as the memory budget of the server is used up: caches and buffers for reuse, then
//! idle connections, then those that wait for their client. What is refused is in
//! [`super::admission`]. Lack of memory is not overload.

use weir_sys::heap;

use super::eviction::Evictable;
use super::model::{Model, Worker};
use crate::context::close_reason::CloseReason;
use crate::context::memory::MemoryLevel;
use crate::http::connection::EvictionRank;

/// Maximum number of bytes that caches give back at once: a part of a millisecond's work.
const GIVEN_BACK_BYTES_MAX: u64 = 4 << 20;

/// Maximum number of connections closed at once.
const CLOSED_AT_ONCE: usize = 64;

/// Memory that a connection must hold to be closed for it while it waits for its client, bytes: a
/// new one, which has sent nothing, holds none.
const HELD_BYTES_MIN: u64 = 1024;

impl<M: Model> Worker<M> {
    /// Settles the account of memory, and has give way what must.
    #[inline]
    pub(crate) fn keep_memory_budget(&mut self) {
        heap::settle();
        let memory = &mut self.core.context.memory;
        let level = memory.level_now();
        if level > MemoryLevel::Ample || memory.is_short() {
            self.make_way(level);
        } else {
            memory.note_ample();
        }
    }

    /// Has give way what is to at this level, a step at a time: until there is enough, and caches
    /// have made room for what comes next.
    #[cold]
    pub(super) fn make_way(&mut self, level: MemoryLevel) {
        let context = &mut self.core.context;
        let (now_ns, was_short) = (context.now_ns(), context.memory.is_short());
        if !context.memory.begin_step(level, now_ns) {
            return;
        }
        if !was_short {
            context.counters.memory_shortages.one();
            context.stores.set_keeping(false);
        }
        context.memory.measure();
        let bytes = context.memory.excess_bytes().min(GIVEN_BACK_BYTES_MAX);
        let given = if bytes > 0 { context.give_back_memory(bytes) } else { 0 };
        let closed = if level >= MemoryLevel::Idle { self.close_for_memory(level) } else { 0 };
        heap::settle();
        let has_open = self.core.table.open_count() > 0;
        let may_have_more = level >= MemoryLevel::Connections && has_open;
        let context = &mut self.core.context;
        context.memory.end_step(given > 0 || closed > 0, may_have_more, now_ns);
        if !context.memory.is_short() {
            context.stores.set_keeping(true);
        }
        // A loop without connections to serve would keep it to itself.
        self.publish();
    }

    /// Closes connections that can be spared: idle ones, and from the next level on those that hold
    /// most. Returns their number.
    fn close_for_memory(&mut self, level: MemoryLevel) -> usize {
        let mut candidates = self.sample_evictable();
        let is_idle =
            |each: &Evictable| matches!(each.rank, EvictionRank::Done | EvictionRank::KeptAlive);
        if level < MemoryLevel::Connections {
            candidates.retain(is_idle);
        } else {
            candidates.retain(|each| is_idle(each) || each.bytes >= HELD_BYTES_MIN);
        }
        let least = |each: &Evictable| (u64::MAX - each.bytes, each.rank, each.since_ns);
        candidates.sort_unstable_by_key(least);
        candidates.truncate(CLOSED_AT_ONCE.min(candidates.len().div_ceil(4)));
        self.evict(&candidates, CloseReason::Memory)
    }
}
