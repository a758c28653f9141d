//! Version 2: a block of binary (section 2.2). Its extensions are skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::header::{Endpoints, HEADER_BYTES_MAX, Header};

pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Length of the part that every header has: signature, version and command, family and protocol,
/// length of the rest.
const FIXED_BYTES: usize = 16;

/// Version and command of the sender's own connection (LOCAL), and of one that is carried (PROXY).
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;

/// Families and protocols of TCP, and what is said of none.
const UNSPECIFIED: u8 = 0x00;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

pub(super) fn parse(input: &[u8]) -> Header {
    let Some((fixed, rest)) = input.split_at_checked(FIXED_BYTES) else { return Header::Partial };
    let &[command, transport, high, low] = fixed.get(SIGNATURE.len()..).unwrap_or_default() else {
        return Header::Malformed;
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let Some(addresses_length) = addresses_length(transport) else { return Header::Malformed };
    let is_short = command == PROXY && length < addresses_length;
    if !matches!(command, LOCAL | PROXY) || is_short || FIXED_BYTES + length > HEADER_BYTES_MAX {
        return Header::Malformed;
    }
    let Some(rest) = rest.get(..length) else { return Header::Partial };
    let endpoints = if command == PROXY { endpoints(transport, rest) } else { None };
    Header::Complete { bytes: FIXED_BYTES + length, endpoints }
}

/// Returns the length of the addresses of a family, for any protocol that there is; `None` for one
/// that there is not.
fn addresses_length(transport: u8) -> Option<usize> {
    let (family, protocol) = (transport >> 4, transport & 0xf);
    // Unspecified, streams, datagrams.
    if protocol > 2 {
        return None;
    }
    match family {
        0 => Some(0),
        1 => Some(12),
        2 => Some(36),
        // Two paths.
        3 => Some(216),
        _ => None,
    }
}

fn endpoints(transport: u8, rest: &[u8]) -> Option<Endpoints> {
    match transport {
        TCP4 => {
            let (source, rest) = rest.split_first_chunk::<4>()?;
            let (destination, rest) = rest.split_first_chunk::<4>()?;
            with_ports(Ipv4Addr::from(*source).into(), Ipv4Addr::from(*destination).into(), rest)
        }
        TCP6 => {
            let (source, rest) = rest.split_first_chunk::<16>()?;
            let (destination, rest) = rest.split_first_chunk::<16>()?;
            with_ports(Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), rest)
        }
        _ => None,
    }
}

fn with_ports(source: IpAddr, destination: IpAddr, ports: &[u8]) -> Option<Endpoints> {
    let (source_port, rest) = ports.split_first_chunk::<2>()?;
    let destination_port = rest.first_chunk::<2>()?;
    Some(Endpoints {
        source: SocketAddr::new(source, u16::from_be_bytes(*source_port)),
        destination: SocketAddr::new(destination, u16::from_be_bytes(*destination_port)),
    })
}

/// Appends a header. Both addresses are of one family.
pub(super) fn write(out: &mut Vec<u8>, endpoints: Option<&Endpoints>) {
    let mut addresses = Vec::new();
    let transport = match endpoints.map(|ends| (ends, ends.source.ip(), ends.destination.ip())) {
        Some((ends, IpAddr::V4(source), IpAddr::V4(destination))) => {
            addresses.extend_from_slice(&source.octets());
            addresses.extend_from_slice(&destination.octets());
            push_ports(&mut addresses, ends);
            TCP4
        }
        Some((ends, IpAddr::V6(source), IpAddr::V6(destination))) => {
            addresses.extend_from_slice(&source.octets());
            addresses.extend_from_slice(&destination.octets());
            push_ports(&mut addresses, ends);
            TCP6
        }
        _ => UNSPECIFIED,
    };
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&[PROXY, transport, 0, addresses.len() as u8]);
    out.extend_from_slice(&addresses);
}

fn push_ports(out: &mut Vec<u8>, ends: &Endpoints) {
    out.extend_from_slice(&ends.source.port().to_be_bytes());
    out.extend_from_slice(&ends.destination.port().to_be_bytes());
}

pub(super) fn write_local(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&[LOCAL, UNSPECIFIED, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, transport: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [SIGNATURE, &[command, transport], &length, rest].concat()
    }

    fn found(command: u8, transport: u8, rest: &[u8]) -> Option<Option<Endpoints>> {
        match parse(&header(command, transport, rest)) {
            Header::Complete { bytes, endpoints } => {
                assert_eq!(bytes, FIXED_BYTES + rest.len());
                Some(endpoints)
            }
            Header::Partial => panic!("it is complete"),
            Header::Malformed => None,
        }
    }

    #[test]
    fn extensions_are_skipped() {
        let ends = [1, 2, 3, 4, 5, 6, 7, 8, 0, 80, 1, 187];
        let extensions = [0x02, 0, 2, b'a', b'b', 0x04, 0, 0];
        let endpoints = found(PROXY, TCP4, &[&ends[..], &extensions].concat()).unwrap().unwrap();
        assert_eq!(endpoints.source, "1.2.3.4:80".parse().unwrap());
        assert_eq!(endpoints.destination, "5.6.7.8:443".parse().unwrap());
        assert_eq!(found(PROXY, TCP4, &vec![0; HEADER_BYTES_MAX - FIXED_BYTES + 1]), None);
    }

    #[test]
    fn what_is_no_tcp_has_no_addresses() {
        // Datagrams, Unix sockets, nothing known; a header of the proxy's own, whatever it holds.
        for transport in [0x12, 0x31, 0x32, 0x00, 0x01, 0x10] {
            assert_eq!(found(PROXY, transport, &[1; 216]), Some(None), "{transport:#x}");
        }
        assert_eq!(found(LOCAL, TCP4, &[1; 12]), Some(None));
        assert_eq!(found(LOCAL, TCP4, &[]), Some(None));
    }

    #[test]
    fn what_there_is_not_is_malformed() {
        for (command, transport, length) in [
            (0x11, TCP4, 12),
            (0x22, TCP4, 12),
            (PROXY, 0x13, 12),
            (PROXY, 0x41, 12),
            (PROXY, TCP4, 11),
            (PROXY, TCP6, 35),
            (PROXY, 0x31, 215),
        ] {
            assert_eq!(found(command, transport, &vec![0; length]), None, "{command:#x}");
        }
    }
}
