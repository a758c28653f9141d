//! The PROXY protocol: what a proxy sends before anything else on a connection, to say whose
//! connection it carries. The source is HAProxy's `doc/proxy-protocol.txt`, versions 1 (a line of
//! text, section 2.1) and 2 (a block of binary, section 2.2).
//!
//! A receiver must know beforehand that a header comes: one that guesses lets clients say who they
//! are. Nothing here decides that.

mod binary;
mod header;
mod text;

pub use header::{Endpoints, HEADER_BYTES_MAX, Header};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// A block of binary.
    V2,
}

/// Parses the header at the beginning of a connection. The result does not depend on how many of
/// the bytes behind it have arrived.
#[must_use]
pub fn parse(input: &[u8]) -> Header {
    if begins_like(input, binary::SIGNATURE) {
        binary::parse(input)
    } else if begins_like(input, text::SIGNATURE) {
        text::parse(input)
    } else {
        Header::Malformed
    }
}

/// Appends the header of a connection that is carried for a client. `endpoints`: its ends, if they
/// are known.
pub fn write(out: &mut Vec<u8>, version: Version, endpoints: Option<&Endpoints>) {
    let ends = endpoints.map(Endpoints::of_one_family);
    match version {
        Version::V1 => text::write(out, ends.as_ref()),
        Version::V2 => binary::write(out, ends.as_ref()),
    }
}

/// Appends the header of a connection that carries nothing but the sender's own requests, as those
/// by which it checks a server's health, or brings up to date what it stores.
pub fn write_own(out: &mut Vec<u8>, version: Version) {
    match version {
        Version::V1 => text::write(out, None),
        Version::V2 => binary::write_local(out),
    }
}

/// Returns whether the input is a part of the signature, or begins with it.
fn begins_like(input: &[u8], signature: &[u8]) -> bool {
    let length = input.len().min(signature.len());
    input.get(..length) == signature.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(source: &str, destination: &str) -> Endpoints {
        Endpoints { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    #[test]
    fn what_is_written_is_read() {
        for (source, destination) in
            [("192.0.2.1:56324", "198.51.100.9:443"), ("[2001:db8::1]:1", "[2001:db8::2]:65535")]
        {
            let wanted = ends(source, destination);
            for version in [Version::V1, Version::V2] {
                let mut header = Vec::new();
                write(&mut header, version, Some(&wanted));
                let bytes = header.len();
                header.extend_from_slice(b"GET / HTTP/1.1\r\n");
                let complete = Header::Complete { bytes, endpoints: Some(wanted) };
                assert_eq!(parse(&header), complete);
                for end in 0..bytes {
                    assert_eq!(parse(&header[..end]), Header::Partial, "{version:?} {end}");
                }
            }
        }
    }

    #[test]
    fn unknown_and_own_connections_carry_no_addresses() {
        for version in [Version::V1, Version::V2] {
            let (mut unknown, mut own) = (Vec::new(), Vec::new());
            write(&mut unknown, version, None);
            write_own(&mut own, version);
            for header in [unknown, own] {
                let bytes = header.len();
                assert_eq!(parse(&header), Header::Complete { bytes, endpoints: None });
            }
        }
    }

    #[test]
    fn addresses_of_two_families_are_written_as_ipv6() {
        let mut header = Vec::new();
        write(&mut header, Version::V1, Some(&ends("192.0.2.1:5", "[2001:db8::2]:6")));
        assert_eq!(header, b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 5 6\r\n");
        header.clear();
        write(&mut header, Version::V1, Some(&ends("[::ffff:192.0.2.1]:5", "192.0.2.2:6")));
        assert_eq!(header, b"PROXY TCP4 192.0.2.1 192.0.2.2 5 6\r\n");
    }

    #[test]
    fn anything_else_is_malformed_at_its_first_wrong_byte() {
        for wrong in ["GET / HTTP/1.1\r\n", "P ", "PROXYING", "\r\n\r\n\0\r\nQUIT!"] {
            assert_eq!(parse(wrong.as_bytes()), Header::Malformed, "{wrong:?}");
        }
        for partial in ["", "P", "PROXY", "\r\n\r\n"] {
            assert_eq!(parse(partial.as_bytes()), Header::Partial, "{partial:?}");
        }
    }
}
