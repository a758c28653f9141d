//! The header by which a proxy says whose connection it carries.

use weir_http1::proxy_protocol::{Endpoints, HEADER_BYTES_MAX, Header, Version, parse, write};

/// Checks the beginning of a connection: how it is split, and what follows a header, never matters;
/// a header is bounded; and its addresses survive being written anew in either version.
pub fn proxy_protocol(data: &[u8]) {
    let whole = parse(data);
    let mut grown = (0..=data.len()).map(|end| parse(&data[..end]));
    let decided = grown.find(|header| *header != Header::Partial);
    assert_eq!(decided.unwrap_or(Header::Partial), whole);
    let Header::Complete { bytes, endpoints } = whole else {
        assert!(whole == Header::Malformed || data.len() < HEADER_BYTES_MAX);
        return;
    };
    assert!(bytes <= data.len().min(HEADER_BYTES_MAX));
    for version in [Version::V1, Version::V2] {
        let mut written = Vec::new();
        write(&mut written, version, endpoints.as_ref());
        let Header::Complete { bytes, endpoints: again } = parse(&written) else {
            panic!("what is written is malformed");
        };
        assert_eq!(bytes, written.len());
        let source = endpoints.map(|ends| ends.source.ip().to_canonical());
        assert_eq!(again.map(|ends| ends.source.ip().to_canonical()), source);
        let ports = |ends: Endpoints| (ends.source.port(), ends.destination.port());
        assert_eq!(again.map(ports), endpoints.map(ports));
    }
}
