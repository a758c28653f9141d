//! Fair shares for sources: detects sources admitted more often than their share, in bounded
//! memory.
//!
//! A source is an address (of IPv6, its /64), and the sources of one network (/24, of IPv6 /48)
//! together have at most thirty-two shares: many addresses of one network are more likely to be one
//! client than are addresses of many networks. Each source has a bucket that fills by a token per
//! share, which lasts as long as what is served divided by the weight of all sources seen recently;
//! so a share is never less than what a source gets when all ask for as much as they can (max-min
//! fairness), and what some leave goes to the first to claim it. A network has a bucket too, of
//! thirty-two sources: that of an address never seen before is full, and who has a whole IPv6 /48
//! may change its addresses with each connection.
//!
//! The filter on the listening socket does the same in the kernel (`sys::syn_filter`), with the
//! constants of this file; the simulator uses this implementation in its place, and the server
//! charges requests on open connections to it.

use std::net::IpAddr;

/// Maximum number of tokens a source may save: its burst.
pub const BURST: u64 = 8;

/// Number of addresses in a network that have a share each; any more share these.
pub const ADDRESSES_COUNTED_MAX: u32 = 32;

/// Length of an epoch: about a second, 2^30 ns. Sources seen in this epoch or the last are counted.
pub const EPOCH_BITS: u32 = 30;

/// Capacity of the table of addresses.
const ADDRESSES: usize = 4096;

/// Capacity of the table of networks.
const NETWORKS: usize = 1024;

/// Places probed per name.
const PROBES: usize = 4;

/// Source of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The address; of IPv6, the first 64 bits.
    pub address: u64,
    /// The network: the first 24 bits, of IPv6 the first 48.
    pub network: u64,
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::v4(address.to_bits()),
            IpAddr::V6(address) => {
                let bits = (address.to_bits() >> 64) as u64;
                Self { address: bits, network: bits >> 16 }
            }
        }
    }
}

impl Source {
    /// Returns the source of an IPv4 address, given as its bits.
    pub fn v4(bits: u32) -> Self {
        Self { address: bits.into(), network: (bits >> 8).into() }
    }
}

/// Account of admissions, by source.
#[derive(Clone, Debug)]
pub struct Shares {
    burst: u64,
    addresses: Places<Address>,
    networks: Places<Network>,
    epoch: u64,
    /// Weight of the sources seen in this epoch, and in the last.
    weight: u32,
    weight_before: u32,
}

/// A source's claim to be admitted.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// True if neither the source nor its network has used up its share.
    pub is_fair: bool,
    /// Place of the address, and the time at which its bucket is full again once it is charged.
    place: usize,
    due_ns: u64,
    /// The same of the network.
    network: usize,
    network_due_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Address {
    /// Time at which the bucket is full again.
    full_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Network {
    /// Addresses of the network seen in this epoch, and in the last.
    count: u32,
    before: u32,
    /// Time at which the bucket is full again.
    full_ns: u64,
}

impl Shares {
    /// Creates an empty account. A source may save `burst` tokens.
    pub fn new(burst: u64) -> Self {
        Self {
            burst,
            addresses: Places::new(ADDRESSES),
            networks: Places::new(NETWORKS),
            epoch: 0,
            weight: 0,
            weight_before: 0,
        }
    }

    /// Registers a claim of a source to be admitted, while one can be admitted every `each_ns` and
    /// sources of at least this weight compete.
    pub fn claim(&mut self, now_ns: u64, source: Source, each_ns: u64, weight: u32) -> Claim {
        let epoch = now_ns >> EPOCH_BITS;
        if self.epoch != epoch {
            self.weight_before = if self.epoch + 1 == epoch { self.weight } else { 0 };
            (self.weight, self.epoch) = (0, epoch);
        }
        let (place, seen) = self.addresses.find(source.address, epoch);
        let (network, network_seen) = self.networks.find(source.network, epoch);
        let Network { count, before, full_ns } = &mut self.networks.places[network].value;
        let network_full_ns = *full_ns;
        match network_seen {
            Seen::InThisEpoch => {}
            Seen::InTheLast => (*before, *count) = (*count, 0),
            Seen::Before => (*before, *count) = (0, 0),
        }
        if seen != Seen::InThisEpoch {
            *count += 1;
            self.weight += u32::from(*count <= ADDRESSES_COUNTED_MAX);
        }
        let addresses = u64::from((*count).max(*before)).max(1);
        let weight = u64::from(self.weight().max(weight));
        let counted_max = u64::from(ADDRESSES_COUNTED_MAX);
        let weighted_ns = each_ns.saturating_mul(weight);
        let share_ns = weighted_ns.saturating_mul(addresses.max(counted_max)) / counted_max;
        let full_ns = self.addresses.places[place].value.full_ns;
        let (has_token, due_ns) = weigh(now_ns, full_ns, share_ns, self.burst);
        let (share_ns, burst) = (weighted_ns / counted_max, self.burst * counted_max);
        let (network_has_token, network_due_ns) = weigh(now_ns, network_full_ns, share_ns, burst);
        let is_fair = has_token && network_has_token;
        Claim { is_fair, place, due_ns, network, network_due_ns }
    }

    /// Admits the claiming source. No other claim may have been made in between.
    pub fn grant(&mut self, claim: Claim) {
        self.addresses.places[claim.place].value.full_ns = claim.due_ns;
        // What a source gets beyond its share costs the others of its network nothing.
        if claim.is_fair {
            self.networks.places[claim.network].value.full_ns = claim.network_due_ns;
        }
    }

    /// Returns the weight of all sources seen recently.
    pub fn weight(&self) -> u32 {
        self.weight.max(self.weight_before)
    }
}

/// Returns whether a bucket of `burst` tokens, which is full again at `full_ns`, has one, and when
/// it would be full again without it.
fn weigh(now_ns: u64, full_ns: u64, share_ns: u64, burst: u64) -> (bool, u64) {
    let full_ns = full_ns.max(now_ns);
    let has_token = full_ns - now_ns <= burst.saturating_sub(1).saturating_mul(share_ns);
    (has_token, full_ns.saturating_add(share_ns))
}

/// A table of fixed size, in which the entry seen longest ago is replaced.
#[derive(Clone, Debug)]
struct Places<T> {
    places: Vec<Place<T>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place<T> {
    name: u64,
    /// Epoch in which the name was last seen.
    epoch: u64,
    value: T,
}

/// Previous appearance of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    InThisEpoch,
    InTheLast,
    /// In an earlier epoch, or never.
    Before,
}

impl<T: Copy + Default> Places<T> {
    fn new(size: usize) -> Self {
        Self { places: vec![Place { epoch: u64::MAX, ..Place::default() }; size] }
    }

    /// Finds or creates the place of a name; returns it with the name's previous appearance.
    fn find(&mut self, name: u64, epoch: u64) -> (usize, Seen) {
        let mask = self.places.len() - 1;
        // Fibonacci hashing.
        let start = (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        let at = |probe: usize| (start + probe) & mask;
        let holds = |place: &Place<T>| place.name == name && place.epoch != u64::MAX;
        if let Some(index) = (0..PROBES).map(at).find(|&index| holds(&self.places[index])) {
            let before = std::mem::replace(&mut self.places[index].epoch, epoch);
            let seen = match epoch.saturating_sub(before) {
                0 => Seen::InThisEpoch,
                1 => Seen::InTheLast,
                _ => Seen::Before,
            };
            return (index, seen);
        }
        let age = |index: &usize| self.places[*index].epoch.wrapping_add(1);
        let index = (0..PROBES).map(at).min_by_key(age).unwrap_or(start & mask);
        self.places[index] = Place { name, epoch, value: T::default() };
        (index, Seen::Before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND_NS: u64 = 1_000_000_000;

    /// Simulates sources that claim at a rate each, for ten seconds, where one claim per
    /// millisecond can be admitted and fair claims go first. Returns the admitted share of each
    /// source's claims in the last five seconds.
    fn shares(sources: &[(u32, u64)]) -> Vec<f64> {
        let mut shares = Shares::new(BURST);
        let mut asked = vec![(0_u64, 0_u64); sources.len()];
        let mut asks: Vec<(u64, usize)> = Vec::new();
        for (index, (_, rate)) in sources.iter().enumerate() {
            let gap_ns = SECOND_NS / rate;
            asks.extend((0..10 * rate).map(|n| (n * gap_ns + 997 * index as u64, index)));
        }
        asks.sort_unstable();
        for (at_ns, index) in asks {
            let claim = shares.claim(at_ns, Source::v4(sources[index].0), MS, 0);
            let late = at_ns > 5 * SECOND_NS;
            asked[index].0 += u64::from(late);
            if claim.is_fair {
                shares.grant(claim);
                asked[index].1 += u64::from(late);
            }
        }
        asked.iter().map(|(asked, got)| *got as f64 / *asked as f64).collect()
    }

    #[test]
    fn who_asks_for_less_than_a_share_has_all_of_it() {
        let mut sources: Vec<(u32, u64)> = (0..200).map(|n| (n << 8, 3)).collect();
        sources.extend((0..9).map(|n| ((1000 + n) << 8, 500)));
        let got = shares(&sources);
        assert!(got[..200].iter().all(|part| *part == 1.0), "{got:?}");
        assert!(got[200..].iter().all(|part| *part < 0.02), "{got:?}");
    }

    #[test]
    fn the_addresses_of_one_network_are_told_apart() {
        let mut sources: Vec<(u32, u64)> = (0..200).map(|n| (n, 3)).collect();
        sources.extend((0..9).map(|n| (200 + n, 500)));
        let got = shares(&sources);
        assert!(got[..200].iter().all(|part| *part == 1.0), "{got:?}");
        assert!(got[200..].iter().all(|part| *part < 0.02), "{got:?}");
    }

    #[test]
    fn a_network_has_the_shares_of_thirty_two() {
        // 240 addresses of one network, and 32 networks.
        let mut sources: Vec<(u32, u64)> = (0..32).map(|n| ((1000 + n) << 8, 100)).collect();
        sources.extend((0..240).map(|n| (n, 100)));
        let got = shares(&sources);
        let rate = |part: &[f64]| part.iter().sum::<f64>() * 100.0;
        let (many, one) = (rate(&got[..32]), rate(&got[32..]));
        assert!((450.0..550.0).contains(&many), "{many}");
        assert!((450.0..550.0).contains(&one), "{one}");
    }

    #[test]
    fn a_network_gains_nothing_by_changing_its_addresses() {
        let (mut shares, mut got) = (Shares::new(BURST), [0_u64; 2]);
        let mut claim = |at_ns, source| {
            let claim = shares.claim(at_ns, source, MS, 0);
            if claim.is_fair {
                shares.grant(claim);
            }
            u64::from(claim.is_fair && at_ns > 5 * SECOND_NS)
        };
        // 60,000 /64s of one /48, each of which asks once in three seconds, and 32 networks.
        for n in 0..200_000_u64 {
            let at_ns = n * 50_000;
            let address = 0x2001_0db8_0001_0000 | (n % 60_000);
            got[0] += claim(at_ns, Source { address, network: address >> 16 });
            if n % 200 == 0 {
                for other in 0..32 {
                    got[1] += claim(at_ns, Source::v4((1000 + other) << 8));
                }
            }
        }
        let [one, many] = got.map(|claims| claims as f64 / 5.0);
        assert!(one < 550.0, "{one}");
        assert!(many > 450.0, "{many}");
    }

    #[test]
    fn a_source_that_gets_more_than_its_share_costs_its_network_nothing() {
        let mut shares = Shares::new(BURST);
        let mut is_fair = |source| {
            let claim = shares.claim(0, Source::v4(source), MS, 0);
            shares.grant(claim);
            claim.is_fair
        };
        assert_eq!((0..1000).filter(|_| is_fair(1)).count() as u64, BURST);
        assert!((2..20).all(is_fair));
    }

    #[test]
    fn who_is_alone_has_everything() {
        let got = shares(&[(7, 500)]);
        assert_eq!(got, [1.0]);
        let got = shares(&[(7, 2_000)]);
        assert!((0.49..0.51).contains(&got[0]), "{got:?}");
    }

    #[test]
    fn a_newcomer_is_let_in_at_once_and_a_few_times() {
        let mut shares = Shares::new(BURST);
        let fair = (0..10).filter(|_| {
            let claim = shares.claim(SECOND_NS, Source::v4(1), MS, 0);
            shares.grant(claim);
            claim.is_fair
        });
        assert_eq!(fair.count() as u64, BURST);
    }

    #[test]
    fn names_beyond_what_is_remembered_push_out_the_oldest() {
        let mut shares = Shares::new(BURST);
        for n in 0..1_000_000_u32 {
            let claim = shares.claim(u64::from(n) * 1000, Source::v4(n.wrapping_mul(7919)), MS, 0);
            assert!(claim.is_fair);
            shares.grant(claim);
        }
        assert!(shares.weight() > 1_000);
    }

    #[test]
    fn an_address_names_its_network() {
        let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("192.0.2.1").network, of("192.0.2.254").network);
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::1"));
        assert_eq!(of("2001:db8:1:2::1").network, of("2001:db8:1:3::1").network);
        assert_ne!(of("2001:db8:1:2::1").network, of("2001:db8:2:2::1").network);
    }
}
