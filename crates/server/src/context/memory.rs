//! The account of memory of the whole server, and its budget.

use weir_stats::Counters;
use weir_sys::heap::{self, Part};

/// The account and the budget, as a loop sees them.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    limit_bytes: Option<u64>,
    /// Bytes that connections have come to hold and that were not charged yet.
    pub(crate) connections: i64,
    /// Bytes of kept buffers that were not charged yet.
    pub(crate) buffers: i64,
}

impl MemoryBudget {
    /// Creates the budget of a server.
    pub(crate) fn new(limit_bytes: Option<u64>) -> Self {
        Self { limit_bytes, connections: 0, buffers: 0 }
    }

    /// Sets the statistics of memory, which all loops share.
    #[inline]
    pub(crate) fn note(&mut self, counters: &mut Counters) {
        heap::charge(Part::Connections, std::mem::take(&mut self.connections));
        heap::charge(Part::Buffers, std::mem::take(&mut self.buffers));
        let parts = [
            Part::Connections,
            Part::Buffers,
            Part::Tls,
            Part::Content,
            Part::Listings,
            Part::Upstreams,
            Part::Clients,
            Part::Stacks,
        ];
        counters
            .set_memory([self.limit_bytes.unwrap_or(0), heap::bytes()], parts.map(heap::bytes_of));
    }
}
