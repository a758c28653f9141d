//! The grammar of `host[:port]` (RFC 9110 section 7.2, RFC 3986 section 3.2).
//!
//! Only the syntax is checked, not whether the server answers for a name.

use core::net::Ipv6Addr;

/// Returns whether `value` is a non-empty `uri-host [ ":" port ]`.
///
/// User information, zone identifiers and `IPvFuture` are not accepted. The port may be empty, as
/// the grammar allows, or a number up to 65535.
pub(crate) fn is_host_and_port(value: &[u8]) -> bool {
    match split_host(value) {
        Some((host, b"")) => host,
        Some((host, [b':', port @ ..])) => host && is_port(port),
        _ => false,
    }
}

/// Splits off the host: returns whether it is well formed, and the rest.
fn split_host(value: &[u8]) -> Option<(bool, &[u8])> {
    if let [b'[', rest @ ..] = value {
        let (address, after) = rest.split_at_checked(memchr::memchr(b']', rest)?)?;
        return Some((is_ipv6(address), after.get(1..)?));
    }
    let end = memchr::memchr(b':', value).unwrap_or(value.len());
    let (name, after) = value.split_at_checked(end)?;
    Some((!name.is_empty() && is_reg_name(name), after))
}

fn is_ipv6(address: &[u8]) -> bool {
    str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Matches a `reg-name`, which covers IPv4 addresses too.
fn is_reg_name(mut name: &[u8]) -> bool {
    loop {
        name = match name {
            [] => return true,
            [b'%', a, b, rest @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => rest,
            [byte, rest @ ..] if is_unreserved_or_sub_delim(*byte) => rest,
            _ => return false,
        };
    }
}

fn is_unreserved_or_sub_delim(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

fn is_port(port: &[u8]) -> bool {
    port.is_empty() || crate::grammar::decimal(port).is_some_and(|n| n <= u64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_authorities() {
        for good in [
            "a",
            "example.org",
            "example.org:80",
            "example.org:",
            "127.0.0.1:65535",
            "a_b",
            "%41",
            "[::1]",
            "[::1]:8080",
            "[2001:db8::ffff:1.2.3.4]",
        ] {
            assert!(is_host_and_port(good.as_bytes()), "{good:?}");
        }
    }

    #[test]
    fn malformed_authorities() {
        for bad in [
            "",
            ":80",
            "a b",
            "a/b",
            "u@a",
            "a:b",
            "a:65536",
            "a:80:80",
            "a:-1",
            "[::1",
            "[::1]x",
            "[]",
            "[::1%25eth0]",
            "[v1.x]",
            "::1",
            "%4",
            "%zz",
            "a\0",
            "a\tb",
            "a#",
            "a?",
            "a\\b",
        ] {
            assert!(!is_host_and_port(bad.as_bytes()), "{bad:?}");
        }
        assert!(!is_host_and_port(b"caf\xe9"));
    }
}
