//! The buckets of clients: those of [`ClientTable`](crate::client_limits::ClientTable), in numbers
//! that several processes change at the same time.
//!
//! A bucket is one number, so that a charge is whole or not there. An entry is three, and is taken
//! for another client by its name: a charge that was on its way to it meanwhile counts for that
//! client, and one of two entries taken for a client at the same time is left to the next. Either
//! is worth a request or a turn of bytes, and nothing that lasts.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::client_limits::{ClientLimit, Reservation, WAYS, set_of};

/// Numbers of an entry: its client's name, and the times at which its buckets are empty.
const NUMBERS: usize = 3;

/// Entries among which that of a client is looked for: their names, the times at which their
/// buckets of requests are empty, and those of bytes, nanoseconds. A cache line each.
type Set = [[AtomicU64; WAYS]; NUMBERS];

/// The buckets of the clients known, in numbers that processes share.
#[derive(Clone, Copy, Debug)]
pub struct SharedBuckets<'a> {
    limit: ClientLimit,
    sets: &'a [Set],
}

/// The buckets of a client.
struct Buckets<'a> {
    requests: &'a AtomicU64,
    bytes: &'a AtomicU64,
}

/// An entry as it was seen.
struct Seen<'a> {
    place: &'a AtomicU64,
    name: u64,
    buckets: [(&'a AtomicU64, u64); 2],
}

impl<'a> SharedBuckets<'a> {
    /// Returns how many numbers a table of `entries` has, which are rounded up to a multiple of
    /// eight.
    pub fn numbers(entries: usize) -> usize {
        entries.max(1).next_multiple_of(WAYS) * NUMBERS
    }

    /// Creates a view of numbers that were zero at first.
    pub fn new(limit: ClientLimit, numbers: &'a [AtomicU64]) -> Self {
        let (arrays, _) = numbers.as_chunks::<WAYS>();
        Self { limit, sets: arrays.as_chunks::<NUMBERS>().0 }
    }

    /// Counts a request of a client. `hash`: of its name, by a function that clients cannot
    /// foresee.
    ///
    /// # Errors
    /// Over its rate: the nanoseconds after which another is allowed. The request is not counted.
    pub fn request(&self, now_ns: u64, name: u64, hash: u64) -> Result<(), u64> {
        let Some(rate) = self.limit.requests else { return Ok(()) };
        let Some(buckets) = self.buckets(now_ns, name, hash) else { return Ok(()) };
        let mut over_ns = 0;
        let charged = buckets.requests.fetch_update(Relaxed, Relaxed, |empty_ns| {
            rate.charge(empty_ns, now_ns).inspect_err(|ns| over_ns = *ns).ok()
        });
        charged.map(|_| ()).map_err(|_| over_ns)
    }

    /// Reserves bytes to be sent to a client: some of `wanted_bytes`, but no fewer than
    /// `least_bytes`. They count as sent until [`SharedBuckets::give_back`].
    pub fn reserve(
        &self,
        now_ns: u64,
        (name, hash): (u64, u64),
        least_bytes: u64,
        wanted_bytes: u64,
    ) -> Reservation {
        let mut reserved = Reservation::unlimited(wanted_bytes);
        let Some(rate) = self.limit.bandwidth else { return reserved };
        let Some(buckets) = self.buckets(now_ns, name, hash) else { return reserved };
        let _ = buckets.bytes.fetch_update(Relaxed, Relaxed, |sent_ns| {
            let (sent_ns, bytes) = rate.reserve(sent_ns, now_ns, least_bytes, wanted_bytes);
            reserved = bytes;
            Some(sent_ns)
        });
        reserved
    }

    /// Gives back reserved bytes that were not sent.
    pub fn give_back(&self, name: u64, hash: u64, bytes: u64) {
        let Some(rate) = self.limit.bandwidth else { return };
        if let Some(buckets) = self.set(hash).and_then(|set| own(set, name)) {
            let time_ns = rate.time_ns(bytes);
            let less = |sent_ns: u64| Some(sent_ns.saturating_sub(time_ns));
            let _ = buckets.bytes.fetch_update(Relaxed, Relaxed, less);
        }
    }

    fn set(&self, hash: u64) -> Option<&'a Set> {
        self.sets.get(set_of(hash, self.sets.len()))
    }

    /// Returns the buckets of a client; the entry that is empty soonest is taken for it if it has
    /// none.
    fn buckets(&self, now_ns: u64, name: u64, hash: u64) -> Option<Buckets<'a>> {
        let set = self.set(hash)?;
        loop {
            if let Some(buckets) = own(set, name) {
                return Some(buckets);
            }
            // The first of those that say nothing.
            let Seen { place, name: seen, buckets } =
                entries(set).min_by_key(|entry| entry.over_ns().max(now_ns))?;
            if place.compare_exchange(seen, name, Relaxed, Relaxed).is_ok() {
                // Unless another process has charged it already, for the same client.
                for (bucket, seen_ns) in buckets {
                    let _ = bucket.compare_exchange(seen_ns, 0, Relaxed, Relaxed);
                }
            }
        }
    }
}

impl Seen<'_> {
    /// Returns the time at which both buckets are empty, nanoseconds.
    fn over_ns(&self) -> u64 {
        let [(_, requests_ns), (_, bytes_ns)] = self.buckets;
        requests_ns.max(bytes_ns)
    }
}

/// Returns the buckets of the first entry with a name.
fn own(set: &Set, name: u64) -> Option<Buckets<'_>> {
    let [names, requests, bytes] = set;
    let way = names.iter().position(|it| it.load(Relaxed) == name)?;
    Some(Buckets { requests: requests.get(way)?, bytes: bytes.get(way)? })
}

/// Returns the entries of a set. A name is loaded before what is said of it, so that an entry which
/// is taken meanwhile is not taken again.
fn entries(set: &Set) -> impl Iterator<Item = Seen<'_>> {
    let [names, requests, bytes] = set;
    names.iter().zip(requests).zip(bytes).map(|((place, requests), bytes)| {
        let name = place.load(Relaxed);
        let buckets = [requests, bytes].map(|bucket| (bucket, bucket.load(Relaxed)));
        Seen { place, name, buckets }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::client_limits::{Bandwidth, ClientTable, RequestRate};

    const SECOND_NS: u64 = 1_000_000_000;

    /// A hash for tests: it leads names that are near to sets that are far.
    fn hash(name: u64) -> u64 {
        name.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn limit(burst: u32, burst_bytes: u64) -> ClientLimit {
        ClientLimit {
            connections: None,
            requests: Some(RequestRate { each_ns: SECOND_NS, burst }),
            bandwidth: Some(Bandwidth { bytes_per_s: 1000, burst_bytes }),
        }
    }

    fn zeroes(entries: usize) -> Vec<AtomicU64> {
        (0..SharedBuckets::numbers(entries)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn threads_that_ask_at_once_have_the_burst_of_one_client_together() {
        let numbers = zeroes(64);
        let table = SharedBuckets::new(limit(1000, 1), &numbers);
        // The entry is there, so that no two are taken for the client.
        assert_eq!(table.request(0, 7, hash(7)), Ok(()));
        let ask = || (0..1000).filter(|_| table.request(0, 7, hash(7)).is_ok()).count();
        let allowed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(allowed, 999);
        assert_eq!(table.request(0, 7, hash(7)), Err(SECOND_NS));
        assert_eq!(table.request(0, 8, hash(8)), Ok(()), "another client");
    }

    #[test]
    fn two_that_look_at_the_same_numbers_see_one_table() {
        let numbers = zeroes(64);
        let tables = [(); 2].map(|()| SharedBuckets::new(limit(2, 5000), &numbers));
        let all = Reservation { bytes: 5000, wait_ns: 0 };
        assert_eq!(tables[0].request(0, 7, hash(7)), Ok(()));
        assert_eq!(tables[1].request(0, 7, hash(7)), Ok(()));
        assert_eq!(tables[0].request(0, 7, hash(7)), Err(SECOND_NS));
        assert_eq!(tables[0].reserve(0, (7, hash(7)), 0, 5000), all);
        tables[1].give_back(7, hash(7), 5000);
        assert_eq!(tables[1].reserve(0, (7, hash(7)), 0, 5000), all);
        assert_eq!(tables[0].reserve(0, (7, hash(7)), 0, 500).wait_ns, SECOND_NS / 2);
    }

    #[test]
    fn an_entry_that_is_taken_says_nothing_of_the_client_before() {
        let numbers = zeroes(1);
        let table = SharedBuckets::new(limit(1, 1), &numbers);
        for name in 1..100 {
            assert_eq!(table.request(0, name, hash(name)), Ok(()), "{name}");
            assert_eq!(table.request(0, name, hash(name)), Err(SECOND_NS), "{name}");
        }
        assert_eq!(numbers.len(), WAYS * NUMBERS);
    }

    proptest! {
        #[test]
        fn one_process_alone_answers_as_the_table_of_loops(
            asked in prop::collection::vec((0_u64..SECOND_NS, 1_u64..20, 0_u64..3000), 1..200),
        ) {
            let numbers = zeroes(WAYS);
            let shared = SharedBuckets::new(limit(3, 2000), &numbers);
            let mut of_loops = ClientTable::new(limit(3, 2000), WAYS);
            let mut now_ns = 0;
            for (gap_ns, name, bytes) in asked {
                now_ns += gap_ns;
                let named = (name, hash(name));
                let answers = [
                    shared.request(now_ns, name, named.1),
                    of_loops.request(now_ns, name, named.1),
                ];
                prop_assert_eq!(answers[0], answers[1]);
                let reserved = [
                    shared.reserve(now_ns, named, 1, bytes),
                    of_loops.reserve(now_ns, named, 1, bytes),
                ];
                prop_assert_eq!(reserved[0], reserved[1]);
            }
        }
    }
}
