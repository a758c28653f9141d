//! The limits of each client, which all loops share: one table in parts, each behind a lock that is
//! held for a few instructions.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weir_accept::client_limits::{ClientPrefix, ClientTable, Opened, Reservation};
use weir_sys::heap::{Charged, Part};
use weir_sys::socket::UNKNOWN_PEER;

use crate::config::{ClientLimits, Config};

/// Parts of the table: enough that loops rarely meet at one.
const PARTS: usize = 64;

/// The clients that are known. Times are nanoseconds on a clock that all loops share.
pub(crate) struct Clients {
    prefix: ClientPrefix,
    limit_bandwidth: bool,
    parts: Charged<Vec<Mutex<ClientTable>>>,
    /// Of this process alone, so that nobody can choose addresses that lead to one place.
    hasher: RandomState,
    start: Instant,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Clients {
    pub(crate) fn new(limits: &ClientLimits) -> Self {
        let table = ClientTable::new(limits.each, limits.entries.div_ceil(PARTS));
        Self {
            prefix: limits.prefix,
            limit_bandwidth: limits.each.bandwidth.is_some(),
            parts: Charged::of(Part::Clients, || {
                (0..PARTS).map(|_| Mutex::new(table.clone())).collect()
            }),
            hasher: RandomState::new(),
            start: Instant::now(),
        }
    }

    /// Counts a connection. One of a proxy that is trusted is not counted, since it has many
    /// clients, nor one without an address.
    pub(crate) fn open(&self, peer: SocketAddr, config: &Config) -> Opened {
        if peer == UNKNOWN_PEER || config.trusts(peer.ip()) {
            return Opened::Uncounted;
        }
        let (name, hash) = self.name_of(peer.ip());
        self.part(hash).open(self.now_ns(), name, hash)
    }

    /// Counts a connection down that was counted.
    pub(crate) fn close(&self, peer: SocketAddr) {
        let (name, hash) = self.name_of(peer.ip());
        self.part(hash).close(name, hash);
    }

    /// Counts a request.
    ///
    /// # Errors
    /// Over the client's rate: the seconds after which another is allowed, at least 1.
    pub(crate) fn request(&self, client: IpAddr) -> Result<(), u64> {
        let (name, hash) = self.name_of(client);
        let over = self.part(hash).request(self.now_ns(), name, hash);
        over.map_err(|over_ns| over_ns.div_ceil(1_000_000_000).max(1))
    }

    /// Returns whether what a client is sent is limited.
    pub(crate) fn limit_bandwidth(&self) -> bool {
        self.limit_bandwidth
    }

    /// Reserves bytes to be sent on a connection: some of `wanted_bytes`, no fewer than
    /// `least_bytes`. `None` for one that is not limited: of a proxy that is trusted, or without an
    /// address.
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
        Some(self.part(hash).reserve(self.now_ns(), named, least_bytes, wanted_bytes))
    }

    /// Gives back reserved bytes that were not sent.
    pub(crate) fn give_back(&self, peer: SocketAddr, bytes: u64) {
        let (name, hash) = self.name_of(peer.ip());
        self.part(hash).give_back(name, hash, bytes);
    }

    fn name_of(&self, address: IpAddr) -> (u64, u64) {
        let name = self.prefix.name_of(address);
        (name, self.hasher.hash_one(name))
    }

    /// Returns the part for a hash, by its lowest bits: within a part the highest count.
    fn part(&self, hash: u64) -> MutexGuard<'_, ClientTable> {
        let part = &self.parts[hash as usize % PARTS];
        // No code that holds the lock can leave the table half changed.
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}
