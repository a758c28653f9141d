//! The limits of each client in memory that processes share: mapped before the first is forked, and
//! as long as each of them lives. Knows nothing of how these are started and end.

use std::io;

use weir_accept::client_limits::Opened;
use weir_accept::shared_clients::{Places, SharedBuckets};
use weir_sys::heap::{MappedCharge, Part};
use weir_sys::shared_page::SharedNumbers;

use crate::config::ClientLimits;

/// Limits of each client for several processes, as one of them uses them.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedClients {
    pub(super) buckets: SharedBuckets<'static>,
    pub(super) places: Places<'static>,
    /// Connections that a client may have open; `None`: any number.
    connections: Option<u32>,
    /// The number of the process that uses it.
    process: usize,
}

impl SharedClients {
    /// Maps memory for the clients of processes with up to `open_max` connections each, and charges
    /// it to this one.
    ///
    /// # Errors
    /// ENOMEM: mmap(2).
    pub(super) fn map(
        limits: &ClientLimits,
        processes: usize,
        open_max: usize,
    ) -> io::Result<Self> {
        let of_buckets = SharedBuckets::numbers(limits.entries);
        let len = of_buckets + Places::numbers(processes, open_max);
        let charge = MappedCharge::of(Part::Clients, len * size_of::<u64>());
        let (numbers, _) = Box::leak(Box::new((SharedNumbers::anonymous(len)?, charge)));
        let (buckets, places) = numbers.numbers().split_at(of_buckets);
        Ok(Self {
            buckets: SharedBuckets::new(limits.each, buckets),
            places: Places::new(places, open_max),
            connections: limits.each.connections,
            process: 0,
        })
    }

    /// Returns it as another process uses it.
    pub(super) fn of_process(&self, process: usize) -> Self {
        Self { process, ..*self }
    }

    /// Counts a connection of this process.
    pub(super) fn open(&self, name: u64) -> Opened {
        let open = |most| self.places.open(self.process, name, most);
        self.connections.map_or(Opened::Uncounted, open)
    }

    /// Counts a connection of this process down that was counted.
    pub(super) fn close(&self, name: u64) {
        self.places.close(self.process, name);
    }
}
