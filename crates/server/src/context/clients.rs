//! The limits of each client, which all loops share: one table in parts, each behind a lock that is
//! held for a few instructions; or, for processes, numbers that they share.

mod shared;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weir_accept::client_limits::{ClientPrefix, ClientTable, Opened, Reservation};
use weir_sys::heap::{Charged, Part};
use weir_sys::socket::UNKNOWN_PEER;

use crate::config::{ClientLimits, Config, Error};
use shared::SharedClients;

/// Parts of the table: enough that loops rarely meet at one.
const PARTS: usize = 64;

/// The clients that are known. Times are nanoseconds on a clock that all loops share.
pub(crate) struct Clients {
    prefix: ClientPrefix,
    limit_bandwidth: bool,
    table: Table,
    /// Hasher of this process and those it forks: nobody can choose addresses that lead to one
    /// place.
    hasher: RandomState,
    start: Instant,
}

/// Table of the clients known.
enum Table {
    Loops(Charged<Vec<Mutex<ClientTable>>>),
    Processes(SharedClients),
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Clients {
    /// Makes a table for the loops of this process.
    pub(crate) fn new(limits: &ClientLimits) -> Self {
        let table = ClientTable::new(limits.each, limits.entries.div_ceil(PARTS));
        let parts = || (0..PARTS).map(|_| Mutex::new(table.clone())).collect();
        Self::with(limits, Table::Loops(Charged::of(Part::Clients, parts)))
    }

    /// Makes a table for this many processes, of up to `open_max` connections each, that this one
    /// is about to fork. Each uses [`Clients::of_process`].
    ///
    /// # Errors
    /// A message: there is no memory for it.
    pub(crate) fn shared(
        limits: &ClientLimits,
        processes: usize,
        open_max: usize,
    ) -> Result<Self, Error> {
        let table = SharedClients::map(limits, processes, open_max)
            .map_err(|error| Error(format!("no memory for the table of clients: {error}")))?;
        Ok(Self::with(limits, Table::Processes(table)))
    }

    fn with(limits: &ClientLimits, table: Table) -> Self {
        Self {
            prefix: limits.prefix,
            limit_bandwidth: limits.each.bandwidth.is_some(),
            table,
            hasher: RandomState::new(),
            start: Instant::now(),
        }
    }

    /// Returns the table as one of the processes that share it uses it; `None` if none do.
    pub(crate) fn of_process(&self, process: usize) -> Option<Self> {
        let Table::Processes(table) = &self.table else { return None };
        let table = Table::Processes(table.of_process(process));
        Some(Self { table, hasher: self.hasher.clone(), ..*self })
    }

    /// Counts down all connections of a process that has ended.
    pub(crate) fn leave(&self, process: usize) {
        if let Table::Processes(table) = &self.table {
            table.places.leave(process);
        }
    }

    /// Counts a connection. One of a proxy that is trusted is not counted, since it has many
    /// clients, nor one without an address.
    pub(crate) fn open(&self, peer: SocketAddr, config: &Config) -> Opened {
        if peer == UNKNOWN_PEER || config.trusts(peer.ip()) {
            return Opened::Uncounted;
        }
        let (name, hash) = self.name_of(peer.ip());
        match &self.table {
            Table::Loops(parts) => part(parts, hash).open(self.now_ns(), name, hash),
            Table::Processes(table) => table.open(name),
        }
    }

    /// Counts a connection down that was counted.
    pub(crate) fn close(&self, peer: SocketAddr) {
        let (name, hash) = self.name_of(peer.ip());
        match &self.table {
            Table::Loops(parts) => part(parts, hash).close(name, hash),
            Table::Processes(table) => table.close(name),
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// Over the client's rate: the seconds after which another is allowed, at least 1.
    pub(crate) fn request(&self, client: IpAddr) -> Result<(), u64> {
        let (name, hash) = self.name_of(client);
        let now_ns = self.now_ns();
        let over = match &self.table {
            Table::Loops(parts) => part(parts, hash).request(now_ns, name, hash),
            Table::Processes(table) => table.buckets.request(now_ns, name, hash),
        };
        over.map_err(|over_ns| over_ns.div_ceil(1_000_000_000).max(1))
    }

    /// Returns whether what a client is sent is limited.
    pub(crate) fn limit_bandwidth(&self) -> bool {
        self.limit_bandwidth
    }

    /// Reserves bytes to be sent on a connection: some of `wanted_bytes`, no fewer than
    /// `least_bytes`. `None` for one that is not limited: of a proxy that is trusted, or without an
    /// address. `peer`: the client that a header of the PROXY protocol has named, if there was one.
    pub(crate) fn reserve(
        &self,
        peer: SocketAddr,
        least_bytes: u64,
        wanted_bytes: u64,
        config: &Config,
    ) -> Option<Reservation> {
        if peer == UNKNOWN_PEER || config.trusts(peer.ip()) {
            return None;
        }
        let named @ (_, hash) = self.name_of(peer.ip());
        let now_ns = self.now_ns();
        Some(match &self.table {
            Table::Loops(parts) => {
                part(parts, hash).reserve(now_ns, named, least_bytes, wanted_bytes)
            }
            Table::Processes(table) => {
                table.buckets.reserve(now_ns, named, least_bytes, wanted_bytes)
            }
        })
    }

    /// Gives back reserved bytes that were not sent.
    pub(crate) fn give_back(&self, peer: SocketAddr, bytes: u64) {
        let (name, hash) = self.name_of(peer.ip());
        match &self.table {
            Table::Loops(parts) => part(parts, hash).give_back(name, hash, bytes),
            Table::Processes(table) => table.buckets.give_back(name, hash, bytes),
        }
    }

    fn name_of(&self, address: IpAddr) -> (u64, u64) {
        let name = self.prefix.name_of(address);
        (name, self.hasher.hash_one(name))
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Returns the part for a hash, by its lowest bits: within a part the highest count.
fn part(parts: &[Mutex<ClientTable>], hash: u64) -> MutexGuard<'_, ClientTable> {
    let part = &parts[hash as usize % PARTS];
    // No code that holds the lock can leave the table half changed.
    part.lock().unwrap_or_else(PoisonError::into_inner)
}
