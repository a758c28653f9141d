//! Networks: all addresses with the same first bits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its first address.
    pub first: IpAddr,
    /// Length of the prefix, bits.
    pub prefix: u8,
}

/// Four bytes of an address, which an instruction of a packet filter compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Offset within the address.
    pub(crate) at: u32,
    /// The bits that count.
    pub(crate) mask: u32,
    /// Their value in the network.
    pub(crate) wanted: u32,
}

impl Network {
    /// Returns the network of `address` with a prefix of `prefix` bits; `None` if that is longer
    /// than the address.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let host_bits = address_bits(address).checked_sub(prefix)?;
        let host = u128::MAX.checked_shr(128 - u32::from(host_bits)).unwrap_or(0);
        Some(Self { first: like(address, bits(address) & !host), prefix })
    }

    /// Returns whether the network has `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4()
            && Network::new(address, self.prefix) == Some(*self)
    }

    /// Returns the number of bits that tell its addresses apart.
    pub fn host_bits(&self) -> u8 {
        address_bits(self.first).saturating_sub(self.prefix)
    }

    /// Returns address number `number`.
    pub fn address(&self, number: u32) -> IpAddr {
        like(self.first, bits(self.first).wrapping_add(number.into()))
    }

    /// Returns the number of an address of the network's family; `None` if it comes before the
    /// network, or is beyond 2^32.
    pub fn number(&self, address: IpAddr) -> Option<u32> {
        let distance = bits(address).checked_sub(bits(self.first))?;
        u32::try_from(distance).ok().filter(|_| self.first.is_ipv4() == address.is_ipv4())
    }

    /// Returns part number `nth` of `parts`, which are equal and do not overlap; `None` if there
    /// are not as many addresses.
    pub fn part(&self, nth: usize, parts: usize) -> Option<Self> {
        let part_bits = parts.max(1).next_power_of_two().trailing_zeros() as u8;
        let host_bits = self.host_bits().checked_sub(part_bits)?;
        let first = like(self.first, bits(self.first) + ((nth as u128) << host_bits));
        Some(Self { first, prefix: self.prefix + part_bits })
    }

    /// Returns the words of an address that tell whether the network has it.
    pub(crate) fn words(&self) -> impl Iterator<Item = Word> {
        let all_bits = u32::from(address_bits(self.first));
        let (bits, prefix) = (bits(self.first), u32::from(self.prefix));
        (0..prefix).step_by(32).map(move |from| Word {
            at: from / 8,
            mask: u32::MAX << (32 - (prefix - from).min(32)),
            wanted: (bits >> (all_bits - 32 - from)) as u32,
        })
    }
}

fn address_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns the address of these bits, of the same family as `address`.
fn like(address: IpAddr, bits: u128) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::from_bits(bits as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(first: &str, prefix: u8) -> Network {
        Network::new(first.parse().unwrap(), prefix).unwrap()
    }

    #[test]
    fn a_network_is_its_first_bits() {
        let whole = network("10.77.129.7", 17);
        assert_eq!(whole.first, IpAddr::from([10, 77, 128, 0]));
        assert_eq!((whole.address(258), whole.host_bits()), ([10, 77, 129, 2].into(), 15));
        assert_eq!(whole.number([10, 77, 129, 2].into()), Some(258));
        assert_eq!(whole.number([10, 77, 0, 1].into()), None);
        assert_eq!(whole.number("fd00::1".parse().unwrap()), None);
        assert!(
            whole.contains([10, 77, 255, 255].into()) && !whole.contains([10, 78, 0, 0].into())
        );
        assert!(network("0.0.0.0", 0).contains([255; 4].into()));
        assert!(network("fd00::1", 128).contains("fd00::1".parse().unwrap()));
        assert!(Network::new([10, 0, 0, 0].into(), 33).is_none());
    }

    #[test]
    fn words_compare_the_prefix_alone() {
        let word = |at, mask, wanted| Word { at, mask, wanted };
        let words = |first, prefix| network(first, prefix).words().collect::<Vec<_>>();
        assert_eq!(words("10.77.128.0", 17), [word(0, 0xffff_8000, 0x0a4d_8000)]);
        assert_eq!(words("0.0.0.0", 0), []);
        let [first, second] = words("fd77:1:2::", 48)[..] else { panic!() };
        assert_eq!(first, word(0, u32::MAX, 0xfd77_0001));
        assert_eq!(second, word(4, 0xffff_0000, 0x0002_0000));
        assert_eq!(words("fd77::1", 128)[3], word(12, u32::MAX, 1));
    }
}
