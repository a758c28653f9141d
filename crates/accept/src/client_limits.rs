//! Limits of each client: how many connections it may have open, how many requests it may make in
//! a second, and how many bytes it may be sent, in a table whose size never changes.
//!
//! A client is a network: an address, or as many of its first bits as the operator says. Its
//! requests fill a bucket that empties at the rate allowed, so that an entry is a name, a number
//! and a time (the generic cell rate algorithm, ITU-T I.371, in its form as a virtual schedule),
//! and its bytes fill another. Requests beyond the rate are refused. Bytes are reserved, each for a
//! time that may be later, so that of many connections of a client each has its turn and asks once.
//! An entry without open connections whose buckets are empty says nothing, and is taken for the
//! next client. Where a flood from many networks leaves no such entry, the one that would be empty
//! soonest is forgotten. An entry with open connections never is: what it counts would be counted
//! down without it. Where there is no other, a client is not limited: nothing is known of it.

use std::net::IpAddr;

/// Entries among which that of a client is looked for.
pub(crate) const WAYS: usize = 8;

/// Turns of a client's connections in a second, and the bytes of one.
const TURNS_PER_S: u64 = 10;
const TURN_BYTES_MIN: u64 = 1 << 10;
const TURN_BYTES_MAX: u64 = 64 << 10;

/// Bits of an IPv6 address that tell clients apart at most: what follows belongs to one host.
pub const IPV6_BITS_MAX: u8 = 64;

/// Limits of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLimit {
    /// Connections that it may have open; `None`: any number.
    pub connections: Option<u32>,
    /// Requests that it may make; `None`: any number.
    pub requests: Option<RequestRate>,
    /// Bytes that it may be sent; `None`: any number.
    pub bandwidth: Option<Bandwidth>,
}

/// A rate of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// Nanoseconds for each request, in the long run; at least 1.
    pub each_ns: u64,
    /// Requests that may be made at once, after a pause; at least 1.
    pub burst: u32,
}

impl RequestRate {
    /// Charges a request to a bucket that is empty at `empty_ns`; returns the time at which it is
    /// empty then, nanoseconds.
    ///
    /// # Errors
    /// Over the rate: the nanoseconds after which another is allowed.
    pub(crate) fn charge(self, empty_ns: u64, now_ns: u64) -> Result<u64, u64> {
        let each_ns = self.each_ns.max(1);
        let empty_ns = empty_ns.max(now_ns);
        let room_ns = u64::from(self.burst.max(1) - 1).saturating_mul(each_ns);
        match (empty_ns - now_ns).checked_sub(room_ns) {
            None | Some(0) => Ok(empty_ns.saturating_add(each_ns)),
            Some(over_ns) => Err(over_ns),
        }
    }
}

/// A rate of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes per second, in the long run; at least 1.
    pub bytes_per_s: u64,
    /// Bytes that may be sent at once, after a pause; at least 1.
    pub burst_bytes: u64,
}

impl Bandwidth {
    /// Returns the time for which `bytes` fill the bucket, nanoseconds.
    pub(crate) fn time_ns(self, bytes: u64) -> u64 {
        let time_ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s.max(1));
        u64::try_from(time_ns).unwrap_or(u64::MAX)
    }

    /// Returns the bytes that take a time, nanoseconds.
    fn bytes_in(self, time_ns: u64) -> u64 {
        let bytes = u128::from(time_ns) * u128::from(self.bytes_per_s) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Returns the bytes of a turn: so many that turns are not too frequent, and so few that those
    /// of other connections come soon.
    fn turn_bytes(self) -> u64 {
        (self.bytes_per_s / TURNS_PER_S).clamp(TURN_BYTES_MIN, TURN_BYTES_MAX)
    }

    /// Reserves some of `wanted_bytes`, but no fewer than `least_bytes`, in a bucket that is empty
    /// at `sent_ns`; returns the time at which it is empty then, nanoseconds.
    pub(crate) fn reserve(
        self,
        sent_ns: u64,
        now_ns: u64,
        least_bytes: u64,
        wanted_bytes: u64,
    ) -> (u64, Reservation) {
        let burst_ns = self.time_ns(self.burst_bytes.max(1));
        let sent_ns = sent_ns.max(now_ns);
        let left_ns = burst_ns.saturating_sub(sent_ns - now_ns);
        let turn_bytes = self.turn_bytes().max(self.bytes_in(left_ns)).max(least_bytes);
        let bytes = wanted_bytes.max(least_bytes).min(turn_bytes);
        let sent_ns = sent_ns.saturating_add(self.time_ns(bytes));
        // More than the burst at once waits for what exceeds it.
        let wait_ns = (sent_ns - now_ns).saturating_sub(burst_ns);
        (sent_ns, Reservation { bytes, wait_ns })
    }
}

/// Bytes of a client that may be sent, from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The bytes.
    pub bytes: u64,
    /// Time until they may be sent, nanoseconds.
    pub wait_ns: u64,
}

impl Reservation {
    /// Creates one of all that is wanted, at once: there is no limit.
    pub(crate) fn unlimited(wanted_bytes: u64) -> Self {
        Self { bytes: wanted_bytes, wait_ns: 0 }
    }
}

/// First bits of an address that say whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPrefix {
    /// Bits of an IPv4 address: 32 at most.
    pub ipv4: u8,
    /// Bits of an IPv6 address: [`IPV6_BITS_MAX`] at most.
    pub ipv6: u8,
}

impl Default for ClientPrefix {
    fn default() -> Self {
        Self { ipv4: 32, ipv6: IPV6_BITS_MAX }
    }
}

impl ClientPrefix {
    /// Returns the number that stands for the client with an address: the bits that count, behind a
    /// first one that tells the two versions of the protocol apart.
    pub fn name_of(&self, address: IpAddr) -> u64 {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let rest = 32 - u32::from(self.ipv4.min(32));
                u64::from(address.to_bits()).checked_shr(rest).unwrap_or(0) << rest
            }
            IpAddr::V6(address) => {
                let rest = 64 - u32::from(self.ipv6.min(IPV6_BITS_MAX));
                let bits = (address.to_bits() >> 64) as u64;
                // 0 in all global addresses (2000::/3), and elsewhere 1: nothing is lost by it.
                (bits.checked_shr(rest).unwrap_or(0).checked_shl(rest).unwrap_or(0)) | 1 << 63
            }
        }
    }
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is counted, until [`ClientTable::close`].
    Counted,
    /// It is not counted: there is no limit, or no entry for its client.
    Uncounted,
    /// Its client has as many as it may have.
    Refused,
}

/// The clients known, each in one of the entries that its name leads to.
#[derive(Clone, Debug)]
pub struct ClientTable {
    limit: ClientLimit,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    name: u64,
    /// Time at which the bucket is empty, nanoseconds.
    empty_ns: u64,
    /// Time at which the bucket of bytes is empty, nanoseconds.
    sent_ns: u64,
    /// Connections open.
    open: u32,
}

impl Entry {
    fn says_nothing(&self, now_ns: u64) -> bool {
        self.open == 0 && self.over_ns() <= now_ns
    }

    /// Returns the time at which both buckets are empty, nanoseconds.
    fn over_ns(&self) -> u64 {
        self.empty_ns.max(self.sent_ns)
    }
}

impl ClientTable {
    /// Creates a table of `entries`, rounded up to a multiple of eight.
    pub fn new(limit: ClientLimit, entries: usize) -> Self {
        let entries = entries.max(1).next_multiple_of(WAYS);
        Self { limit, entries: vec![Entry::default(); entries] }
    }

    /// Counts a connection of a client. `hash`: of its name, by a function that clients cannot
    /// foresee.
    pub fn open(&mut self, now_ns: u64, name: u64, hash: u64) -> Opened {
        let Some(most) = self.limit.connections else { return Opened::Uncounted };
        match self.entry(now_ns, name, hash) {
            None => Opened::Uncounted,
            Some(entry) if entry.open >= most => Opened::Refused,
            Some(entry) => {
                entry.open += 1;
                Opened::Counted
            }
        }
    }

    /// Counts a connection down that was [`Opened::Counted`].
    pub fn close(&mut self, name: u64, hash: u64) {
        let ways = self.ways(hash);
        if let Some(entry) = ways.iter_mut().find(|entry| entry.name == name && entry.open > 0) {
            entry.open -= 1;
        }
    }

    /// Counts a request of a client.
    ///
    /// # Errors
    /// Over its rate: the nanoseconds after which another is allowed. The request is not counted,
    /// so that a client that goes on asking has its rate, and not nothing.
    pub fn request(&mut self, now_ns: u64, name: u64, hash: u64) -> Result<(), u64> {
        let Some(rate) = self.limit.requests else { return Ok(()) };
        let Some(entry) = self.entry(now_ns, name, hash) else { return Ok(()) };
        entry.empty_ns = rate.charge(entry.empty_ns, now_ns)?;
        Ok(())
    }

    /// Reserves bytes to be sent to a client: some of `wanted_bytes`, but no fewer than
    /// `least_bytes`. They count as sent until [`ClientTable::give_back`].
    pub fn reserve(
        &mut self,
        now_ns: u64,
        (name, hash): (u64, u64),
        least_bytes: u64,
        wanted_bytes: u64,
    ) -> Reservation {
        let all = Reservation::unlimited(wanted_bytes);
        let Some(rate) = self.limit.bandwidth else { return all };
        let Some(entry) = self.entry(now_ns, name, hash) else { return all };
        let (sent_ns, reserved) = rate.reserve(entry.sent_ns, now_ns, least_bytes, wanted_bytes);
        entry.sent_ns = sent_ns;
        reserved
    }

    /// Gives back reserved bytes that were not sent.
    pub fn give_back(&mut self, name: u64, hash: u64, bytes: u64) {
        let Some(rate) = self.limit.bandwidth else { return };
        let ways = self.ways(hash);
        if let Some(entry) = ways.iter_mut().find(|entry| entry.name == name) {
            entry.sent_ns = entry.sent_ns.saturating_sub(rate.time_ns(bytes));
        }
    }

    fn ways(&mut self, hash: u64) -> &mut [Entry] {
        let set = set_of(hash, self.entries.len() / WAYS);
        &mut self.entries[set * WAYS..(set + 1) * WAYS]
    }

    /// Returns the entry of a client, one taken for it, or none if each has open connections.
    fn entry(&mut self, now_ns: u64, name: u64, hash: u64) -> Option<&mut Entry> {
        let ways = self.ways(hash);
        let says_something = |entry: &Entry| entry.open > 0 || entry.over_ns() > 0;
        let own = ways.iter().position(|entry| entry.name == name && says_something(entry));
        let free = || ways.iter().position(|entry| entry.says_nothing(now_ns));
        let soonest = || {
            let idle = ways.iter().enumerate().filter(|(_, entry)| entry.open == 0);
            Some(idle.min_by_key(|(_, entry)| entry.over_ns())?.0)
        };
        if own.is_none() {
            let index = free().or_else(soonest)?;
            ways[index] = Entry { name, ..Entry::default() };
            return ways.get_mut(index);
        }
        ways.get_mut(own?)
    }
}

/// Returns the set of entries that a hash leads to, of `sets`.
pub(crate) fn set_of(hash: u64, sets: usize) -> usize {
    // The upper half of a product spreads the hash over any number of sets.
    ((u128::from(hash) * sets as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn table(connections: Option<u32>, rate: Option<(u32, u32)>, entries: usize) -> ClientTable {
        let requests = rate.map(|(per_second, burst)| {
            let each_ns = SECOND_NS / u64::from(per_second);
            RequestRate { each_ns, burst }
        });
        ClientTable::new(ClientLimit { connections, requests, bandwidth: None }, entries)
    }

    /// A hash for tests: it leads names that are near to sets that are far.
    fn hash(name: u64) -> u64 {
        name.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn requests(table: &mut ClientTable, now_ns: u64, name: u64, asked: u32) -> usize {
        (0..asked).filter(|_| table.request(now_ns, name, hash(name)).is_ok()).count()
    }

    #[test]
    fn a_client_has_its_burst_and_then_its_rate() {
        let mut table = table(None, Some((10, 5)), 64);
        assert_eq!(requests(&mut table, 0, 7, 100), 5);
        assert_eq!(table.request(0, 7, hash(7)), Err(SECOND_NS / 10));
        assert_eq!(requests(&mut table, SECOND_NS / 10, 7, 100), 1);
        assert_eq!(requests(&mut table, SECOND_NS, 7, 100), 5);
        assert_eq!(requests(&mut table, SECOND_NS, 8, 100), 5);
    }

    #[test]
    fn connections_are_counted_up_and_down() {
        let mut table = table(Some(2), None, 64);
        let open = |table: &mut ClientTable, name| table.open(0, name, hash(name));
        assert_eq!(open(&mut table, 1), Opened::Counted);
        assert_eq!(open(&mut table, 1), Opened::Counted);
        assert_eq!(open(&mut table, 1), Opened::Refused);
        assert_eq!(open(&mut table, 2), Opened::Counted);
        table.close(1, hash(1));
        assert_eq!(open(&mut table, 1), Opened::Counted);
        assert_eq!(open(&mut table, 1), Opened::Refused);
    }

    #[test]
    fn a_flood_of_names_forgets_no_open_connection() {
        let mut table = table(Some(1), Some((1, 1)), WAYS);
        assert_eq!(table.open(0, 1, hash(1)), Opened::Counted);
        for name in 2..10_000 {
            assert_eq!(table.request(0, name, hash(name)), Ok(()));
        }
        assert_eq!(table.open(0, 1, hash(1)), Opened::Refused);
    }

    #[test]
    fn a_million_clients_take_no_more_room_than_a_few_and_none_of_the_few_is_let_off() {
        let mut table = table(Some(1), Some((1, 2)), 1 << 10);
        let room = table.entries.capacity();
        assert_eq!(table.open(0, 1, hash(1)), Opened::Counted);
        let mut now_ns = 0;
        for name in 2..1_000_002 {
            now_ns += 1_000;
            assert_eq!(table.request(now_ns, name, hash(name)), Ok(()), "{name}");
        }
        assert_eq!((table.entries.capacity(), table.entries.len()), (room, 1 << 10));
        assert_eq!(table.open(now_ns, 1, hash(1)), Opened::Refused);
        assert_eq!(requests(&mut table, now_ns, 7, 100), 2);
    }

    #[test]
    fn a_client_without_an_entry_is_not_limited() {
        let mut table = table(Some(1), Some((1, 1)), WAYS);
        for name in 0..WAYS as u64 {
            assert_eq!(table.open(0, name, hash(name)), Opened::Counted);
        }
        assert_eq!(table.open(0, 100, hash(100)), Opened::Uncounted);
        assert_eq!(requests(&mut table, 0, 100, 10), 10);
        assert_eq!(table.entries.len(), WAYS);
    }

    fn of_bytes(bytes_per_s: u64, burst_bytes: u64, entries: usize) -> ClientTable {
        let bandwidth = Some(Bandwidth { bytes_per_s, burst_bytes });
        ClientTable::new(ClientLimit { bandwidth, ..ClientLimit::default() }, entries)
    }

    #[test]
    fn bytes_of_the_burst_go_at_once_and_then_each_turn_has_its_time() {
        let mut table = of_bytes(100_000, 50_000, 64);
        let mut reserve = |now_ns, wanted| {
            let Reservation { bytes, wait_ns } = table.reserve(now_ns, (7, hash(7)), 0, wanted);
            (bytes, wait_ns / 1_000_000)
        };
        assert_eq!(reserve(0, 40_000), (40_000, 0));
        assert_eq!(reserve(0, 40_000), (10_000, 0));
        assert_eq!(reserve(0, 40_000), (10_000, 100));
        assert_eq!(reserve(0, 40_000), (10_000, 200), "another connection, behind it");
        assert_eq!(reserve(0, 500), (500, 205));
        assert_eq!(reserve(SECOND_NS, 90_000), (50_000, 0));
    }

    #[test]
    fn what_was_not_sent_is_given_back_and_what_must_go_together_waits_for_all_of_it() {
        let mut table = of_bytes(1000, 1000, 64);
        let all = |bytes, wait_s| Reservation { bytes, wait_ns: wait_s * SECOND_NS };
        assert_eq!(table.reserve(0, (1, hash(1)), 5000, 5000), all(5000, 4));
        table.give_back(1, hash(1), 5000);
        assert_eq!(table.reserve(0, (1, hash(1)), 0, 1000), all(1000, 0));
        assert_eq!(table.reserve(0, (2, hash(2)), 0, 1000), all(1000, 0), "another client");
    }

    #[test]
    fn names_are_the_bits_that_count() {
        let name = |prefix: ClientPrefix, address: &str| prefix.name_of(address.parse().unwrap());
        let whole = ClientPrefix::default();
        let short = ClientPrefix { ipv4: 24, ipv6: 48 };
        assert_ne!(name(whole, "192.0.2.1"), name(whole, "192.0.2.2"));
        assert_eq!(name(short, "192.0.2.1"), name(short, "192.0.2.2"));
        assert_ne!(name(short, "192.0.2.1"), name(short, "192.0.3.1"));
        assert_eq!(name(whole, "::ffff:192.0.2.1"), name(whole, "192.0.2.1"));
        assert_eq!(name(whole, "2001:db8::1"), name(whole, "2001:db8::2"));
        assert_ne!(name(whole, "2001:db8::1"), name(whole, "2001:db8:0:1::1"));
        assert_eq!(name(short, "2001:db8::1"), name(short, "2001:db8:0:1::1"));
        let none = ClientPrefix { ipv4: 0, ipv6: 0 };
        assert_eq!(name(none, "192.0.2.1"), name(none, "10.0.0.1"));
        assert_ne!(name(none, "192.0.2.1"), name(none, "2001:db8::1"));
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_the_burst_and_the_rate(
            per_second in 1_u32..1000,
            burst in 1_u32..50,
            gaps in prop::collection::vec(0_u64..SECOND_NS / 50, 1..300),
        ) {
            let mut table = table(None, Some((per_second, burst)), 64);
            let mut now_ns = 0;
            let mut allowed_ns = Vec::new();
            for gap in gaps {
                now_ns += gap;
                if table.request(now_ns, 3, hash(3)).is_ok() {
                    allowed_ns.push(now_ns);
                }
            }
            for (index, first_ns) in allowed_ns.iter().enumerate() {
                for (last, last_ns) in allowed_ns.iter().enumerate().skip(index) {
                    let window = u128::from(last_ns - first_ns) * u128::from(per_second);
                    // The interval between two is rounded down to a nanosecond.
                    let slack = u128::from(per_second) * (last - index) as u128;
                    let most = u128::from(burst) * u128::from(SECOND_NS) + window + slack;
                    prop_assert!((last - index) as u128 * u128::from(SECOND_NS) <= most);
                }
            }
        }

        #[test]
        fn no_client_is_sent_more_than_the_burst_and_the_rate(
            bytes_per_s in 1_u64..100_000_000,
            burst_bytes in 1_u64..1_000_000,
            asked in prop::collection::vec((0_u64..SECOND_NS / 5, 1_u64..300_000), 1..200),
        ) {
            let mut table = of_bytes(bytes_per_s, burst_bytes, 64);
            let (mut now_ns, mut total_bytes) = (0, 0);
            for (gap_ns, wanted) in asked {
                let Reservation { bytes, wait_ns } = table.reserve(now_ns, (3, hash(3)), 0, wanted);
                prop_assert!(bytes > 0 && bytes <= wanted);
                total_bytes += u128::from(bytes);
                let elapsed_ns = u128::from(now_ns + wait_ns);
                let rate_bytes = elapsed_ns * u128::from(bytes_per_s) / 1_000_000_000;
                // Each time is rounded down to a nanosecond.
                let slack = u128::from(bytes_per_s) * 201 / 1_000_000_000 + 1;
                let allowed = u128::from(burst_bytes) + rate_bytes + slack;
                prop_assert!(total_bytes <= allowed, "{total_bytes} {allowed}");
                now_ns += gap_ns;
            }
        }

        #[test]
        fn a_client_that_asks_less_than_its_rate_is_never_refused(
            per_second in 1_u32..1000,
            others in prop::collection::vec(0_u64..1000, 1..300),
        ) {
            let mut table = table(None, Some((per_second, 1)), WAYS);
            for (index, other) in others.iter().enumerate() {
                let now_ns = index as u64 * (SECOND_NS / u64::from(per_second) + 1);
                prop_assert!(table.request(now_ns, 5000, hash(5000)).is_ok());
                let _ = table.request(now_ns, *other, hash(*other));
            }
        }
    }
}
