//! Room for another connection: evicts connections that wait for their client, and pauses accepting
//! when there is none to evict. Lack of room is not overload.

use std::io;

use weir_dispatch::readiness::Token;

use super::model::{Model, Worker};
use crate::context::close_reason::CloseReason;
use crate::http::connection::EvictionRank;

/// Pause in accepting after an error, such as a lack of descriptors with no connection to evict,
/// nanoseconds.
const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// Maximum number of connections evicted at once to make room.
pub(super) const EVICTED_AT_ONCE: usize = 32;

/// Maximum number of connections sampled when looking for the longest-waiting ones to evict.
const SAMPLE_MAX: usize = 512;

/// A connection that can be spared.
pub(super) struct Evictable {
    /// Cost to its client.
    pub(super) rank: EvictionRank,
    /// Time that is earlier the longer it has waited for its client, nanoseconds.
    pub(super) since_ns: u64,
    /// Memory that it holds, bytes.
    pub(super) bytes: u64,
    slot: u32,
}

impl<M: Model> Worker<M> {
    /// Returns whether there is no slot for another connection.
    pub(crate) fn is_full(&mut self) -> bool {
        let table = &self.core.table;
        table.open_count() >= table.open_max()
    }

    /// Closes up to `count` connections that can be spared, the least valuable and longest waiting
    /// first, from a sample that continues where the last one ended. Returns the number closed. The
    /// cause is lack of room, not load.
    pub(crate) fn make_room(&mut self, count: usize) -> usize {
        let mut candidates = self.sample_evictable();
        candidates.sort_unstable_by_key(|each| (each.rank, each.since_ns));
        // A quarter of the sample only: in a small one even the longest wait may be short.
        candidates.truncate(count.min(candidates.len().div_ceil(4)));
        let evicted = self.evict(&candidates, CloseReason::Evicted);
        self.core.context.counters.evicted.add(evicted as u64);
        evicted
    }

    /// Returns connections that can be spared, from where the last sample ended on.
    pub(super) fn sample_evictable(&mut self) -> Vec<Evictable> {
        let core = &mut self.core;
        let mut candidates = Vec::new();
        let now_ns = core.context.now_ns();
        let mut last = core.eviction_cursor;
        for (slot, conn) in core.table.walk(core.eviction_cursor, usize::MAX) {
            last = slot;
            if let Some((rank, since_ns)) = conn.eviction_rank(now_ns) {
                candidates.push(Evictable { rank, since_ns, bytes: conn.held_bytes(), slot });
            }
            if candidates.len() == SAMPLE_MAX {
                break;
            }
        }
        core.eviction_cursor = last + 1;
        candidates
    }

    /// Closes connections that can be spared. Returns the number closed.
    pub(super) fn evict(&mut self, candidates: &[Evictable], reason: CloseReason) -> usize {
        let before = self.core.table.open_count();
        let reason = if self.core.context.draining { CloseReason::Drained } else { reason };
        for &Evictable { rank, slot, .. } in candidates {
            match rank {
                EvictionRank::KeptAlive => M::close_idle(self, slot, reason),
                _ => M::close(self, slot, reason),
            }
        }
        before - self.core.table.open_count()
    }

    /// Handles a lack of descriptors or memory for another connection: open connections continue,
    /// and some that can be spared are closed, if that helps.
    pub(crate) fn free_descriptors(&mut self, error: &io::Error) {
        let core = &mut self.core;
        core.context.counters.accept_failed.one();
        core.context.stores.release_descriptors();
        let evicted = if M::closing_helps(error) { self.make_room(EVICTED_AT_ONCE) } else { 0 };
        if evicted == 0 {
            self.pause_after_error(error);
        } else {
            self.core
                .tell(&format!("cannot accept: {error}; {evicted} waiting connection(s) closed"));
        }
    }

    /// Pauses accepting after an error, and reports the reason.
    pub(crate) fn pause_after_error(&mut self, error: &io::Error) {
        self.pause_accepting(ACCEPT_PAUSE_NS);
        self.core.tell(&format!("cannot accept, pausing: {error}"));
    }

    /// Pauses accepting for `pause_ns`, or until a connection closes.
    pub(crate) fn pause_accepting(&mut self, pause_ns: u64) {
        self.core.paused_until_ns = Some(self.core.context.now_ns() + pause_ns);
        self.watch_listeners(false);
    }

    /// Takes a connection out of its slot, and resumes accepting.
    pub(crate) fn vacate(&mut self, slot: u32) -> Option<(M::Connection, Token)> {
        let core = &mut self.core;
        let vacated = core.table.remove(slot)?;
        core.paused_until_ns = None;
        self.watch_listeners(true);
        Some(vacated)
    }

    pub(crate) fn watch_listeners(&mut self, wanted: bool) {
        let wanted = wanted && self.core.paused_until_ns.is_none() && self.model.can_accept();
        for index in 0..self.core.listeners.len() {
            if self.core.listeners[index].watched == wanted {
                continue;
            }
            match M::watch_listener(self, index, wanted) {
                Ok(()) => {
                    let core = &mut self.core;
                    core.listeners[index].set_watched(wanted, core.iterations);
                }
                // Lack of memory: tried again when the pause is over.
                Err(_) => {
                    let now_ns = self.core.context.now_ns();
                    self.core.paused_until_ns = Some(now_ns + ACCEPT_PAUSE_NS);
                }
            }
        }
    }
}
