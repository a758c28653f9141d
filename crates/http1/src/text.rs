//! Numbers and addresses as text, appended without `core::fmt`, because this code runs on every
//! request.

use std::io::Write;
use std::net::IpAddr;

/// Appends a number.
pub fn push_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends an address, without brackets.
pub fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            let [first, rest @ ..] = address.octets();
            push_u64(out, first.into());
            for octet in rest {
                out.push(b'.');
                push_u64(out, octet.into());
            }
        }
        // Rare, and not simple (RFC 5952). Writing into a Vec cannot fail.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_the_standard_library_does() {
        for address in ["0.0.0.0", "192.0.2.255", "::", "2001:db8::1", "::ffff:1.2.3.4"] {
            let mut out = Vec::new();
            push_address(&mut out, address.parse().unwrap());
            assert_eq!(out, address.as_bytes());
        }
    }
}
