//! Parser for the pool of source addresses given by `--source`. Whether this machine has these
//! addresses is not checked here.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// Largest number of source addresses of a run.
pub const SOURCES_MAX: usize = 65_536;

/// Parses `--source`: addresses and ranges of them, `127.0.0.2,127.0.1.0-127.0.1.9,::1`, in the
/// given order.
///
/// # Errors
///
/// A sentence about the part that is not an address, is a range that runs backwards or from IPv4 to
/// IPv6, occurs twice, or exceeds [`SOURCES_MAX`] addresses.
pub fn parse_sources(text: &str) -> Result<Vec<IpAddr>, String> {
    let mut addresses = Vec::new();
    let mut known = HashSet::new();
    for part in text.split(',').map(str::trim) {
        let blame = |why: &str| format!("--source {part}: {why}");
        let room = SOURCES_MAX - addresses.len();
        for address in range(part, room).map_err(|why| blame(&why))? {
            if !known.insert(address) {
                return Err(blame(&format!("{address} stands twice")));
            }
            addresses.push(address);
        }
    }
    Ok(addresses)
}

fn range(part: &str, room: usize) -> Result<Vec<IpAddr>, String> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    match (address(first)?, address(last)?) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            let bits = between(first.to_bits().into(), last.to_bits().into(), room)?;
            Ok(bits.map(|bits| Ipv4Addr::from_bits(bits as u32).into()).collect())
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            let bits = between(first.to_bits(), last.to_bits(), room)?;
            Ok(bits.map(|bits| Ipv6Addr::from_bits(bits).into()).collect())
        }
        _ => Err("a range is of one family, IPv4 or IPv6".into()),
    }
}

fn between(first: u128, last: u128, room: usize) -> Result<RangeInclusive<u128>, String> {
    if first > last {
        return Err("the range runs backwards: the lower address comes first".into());
    }
    if last - first >= room as u128 {
        return Err(format!("that makes more than {SOURCES_MAX} addresses"));
    }
    Ok(first..=last)
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.trim().parse().map_err(|_| format!("{text:?} is not an address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_addresses_and_ranges() {
        let shown =
            |text| parse_sources(text).map(|found| found.iter().map(IpAddr::to_string).collect());
        let found: Vec<String> =
            shown("127.0.0.2, 127.0.0.255-127.0.1.1,::1,::ffff-::1:1").unwrap();
        let expected = [
            "127.0.0.2",
            "127.0.0.255",
            "127.0.1.0",
            "127.0.1.1",
            "::1",
            "::ffff",
            "::1:0",
            "::1:1",
        ];
        assert_eq!(found, expected);
        assert_eq!(
            parse_sources("127.1.0.0-127.1.255.255").map(|found| found.len()),
            Ok(SOURCES_MAX)
        );
        let end = "255.255.255.255-255.255.255.255";
        assert_eq!(parse_sources(end), Ok(vec![Ipv4Addr::BROADCAST.into()]));
    }

    #[test]
    fn a_source_that_is_none_is_refused_by_name() {
        let table = [
            ("", "--source : \"\" is not an address"),
            ("127.0.0.2,", "--source : \"\" is not"),
            ("127.0.0.2,here", "--source here: \"here\" is not an address"),
            ("127.0.0.9-127.0.0.2", "--source 127.0.0.9-127.0.0.2: the range runs backwards"),
            ("127.0.0.1-::1", "one family, IPv4 or IPv6"),
            ("127.0.0.0-127.1.0.0", "more than 65536 addresses"),
            ("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "more than 65536 addresses"),
            ("127.1.0.0-127.1.255.255,127.2.0.0", "--source 127.2.0.0: that makes more than"),
            ("127.0.0.1-127.0.0.3,127.0.0.2", "--source 127.0.0.2: 127.0.0.2 stands twice"),
        ];
        for (text, sentence) in table {
            let refused = parse_sources(text).unwrap_err();
            assert!(refused.contains(sentence), "{text}: {refused}");
        }
    }
}
