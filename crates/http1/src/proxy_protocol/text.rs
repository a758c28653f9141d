//! Version 1: a line of text (section 2.1).

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use super::header::{Endpoints, Header};

pub(super) const SIGNATURE: &[u8] = b"PROXY ";

/// Maximum length of the line with its end, bytes (section 2.1).
const LINE_BYTES_MAX: usize = 107;

pub(super) fn parse(input: &[u8]) -> Header {
    let window = input.get(..LINE_BYTES_MAX).unwrap_or(input);
    let Some(lf) = memchr::memchr(b'\n', window) else {
        let is_over = window.len() == LINE_BYTES_MAX;
        return if is_over { Header::Malformed } else { Header::Partial };
    };
    let line = window.get(SIGNATURE.len()..lf).and_then(|line| line.strip_suffix(b"\r"));
    match line.and_then(|line| std::str::from_utf8(line).ok()).and_then(endpoints) {
        Some(endpoints) => Header::Complete { bytes: lf + 1, endpoints },
        None => Header::Malformed,
    }
}

/// Parses what follows the signature: `None` if it is malformed, `Some(None)` if the connection is
/// not known, whatever else the line says.
fn endpoints(line: &str) -> Option<Option<Endpoints>> {
    let mut words = line.split(' ');
    let is_v6 = match words.next()? {
        "UNKNOWN" => return Some(None),
        "TCP4" => false,
        "TCP6" => true,
        _ => return None,
    };
    let mut ip = || words.next()?.parse::<IpAddr>().ok().filter(|ip| ip.is_ipv6() == is_v6);
    let (source, destination) = (ip()?, ip()?);
    let (source_port, destination_port) = (port(words.next()?)?, port(words.next()?)?);
    let source = SocketAddr::new(source, source_port);
    let destination = SocketAddr::new(destination, destination_port);
    words.next().is_none().then_some(Some(Endpoints { source, destination }))
}

/// Parses a port, written without a sign and without leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.len() == 1 || !text.starts_with('0'));
    is_plain.then(|| text.parse().ok())?
}

pub(super) fn write(out: &mut Vec<u8>, endpoints: Option<&Endpoints>) {
    // Writing into a Vec cannot fail.
    let _ = match endpoints {
        None => out.write_all(b"PROXY UNKNOWN\r\n"),
        Some(Endpoints { source, destination }) => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (source.ip(), destination.ip());
            let (from_port, to_port) = (source.port(), destination.port());
            write!(out, "PROXY {family} {from} {to} {from_port} {to_port}\r\n")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_exactly_its_words() {
        for (line, is_right) in [
            ("PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n", true),
            ("PROXY TCP6 ::1 ::2 9 10\r\n", true),
            ("PROXY UNKNOWN\r\n", true),
            ("PROXY UNKNOWN ffff::1 whatever\r\n", true),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 9 0\r\n", true),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 9 10\n", false),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 9 10 \r\n", false),
            ("PROXY TCP4  1.2.3.4 5.6.7.8 9 10\r\n", false),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 9\r\n", false),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 9 10 11\r\n", false),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 9 65536\r\n", false),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 +9 10\r\n", false),
            ("PROXY TCP4 1.2.3.4 5.6.7.8 09 10\r\n", false),
            ("PROXY TCP4 1.2.3.04 5.6.7.8 9 10\r\n", false),
            ("PROXY TCP4 ::1 ::2 9 10\r\n", false),
            ("PROXY TCP6 1.2.3.4 5.6.7.8 9 10\r\n", false),
            ("PROXY UDP4 1.2.3.4 5.6.7.8 9 10\r\n", false),
            ("PROXY \r\n", false),
        ] {
            let found = parse(line.as_bytes());
            assert_eq!(matches!(found, Header::Complete { .. }), is_right, "{line:?}: {found:?}");
        }
    }

    #[test]
    fn a_line_is_bounded() {
        let longest = format!("PROXY UNKNOWN{}\r\n", " ".repeat(LINE_BYTES_MAX - 15));
        let complete = Header::Complete { bytes: LINE_BYTES_MAX, endpoints: None };
        assert_eq!(parse(longest.as_bytes()), complete);
        let longer = longest.replace('\r', " \r");
        assert_eq!(parse(longer.as_bytes()), Header::Malformed);
    }
}
