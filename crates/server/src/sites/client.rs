//! The client that a request comes from, by what trusted proxies in front say of it in
//! `X-Forwarded-For` or `Forwarded` (RFC 7239). Pure.
//!
//! Each proxy adds its entry at the end, so that everything is read from there: what an untrusted
//! client has written in front, be it an open quote, changes nothing of what is behind it.

use std::net::{IpAddr, Ipv6Addr};

use weir_http1::forward;

/// The client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// A client with this address.
    Address(IpAddr),
    /// A client behind this proxy, which names it by no address.
    Behind(IpAddr),
    /// A client on a Unix socket.
    Local,
}

impl Client {
    /// Returns the client's address: that of the nearest proxy to it if its own is not told, and
    /// `None` if it has none.
    #[must_use]
    pub fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) | Self::Behind(address) => Some(address),
            Self::Local => None,
        }
    }

    /// Returns whether a proxy says anything in this head of the client that it comes from.
    #[must_use]
    pub fn is_said(head: &[u8]) -> bool {
        Said::of(head).nodes().next().is_some()
    }

    /// Finds the client of a request with this head: the last address said that is none of the
    /// trusted proxies'. `peer`: the other end of the connection.
    pub fn of(peer: IpAddr, head: &[u8], is_trusted: impl Fn(IpAddr) -> bool) -> Self {
        let mut client = peer.to_canonical();
        if !is_trusted(client) {
            return Self::Address(client);
        }
        let said = Said::of(head);
        for node in said.nodes() {
            let Some(address) = node.and_then(address_of) else { return Self::Behind(client) };
            client = address;
            if !is_trusted(client) {
                break;
            }
        }
        Self::Address(client)
    }
}

/// The values of the fields that say where a request comes from, in order.
#[derive(Default)]
struct Said<'b> {
    values: Vec<&'b [u8]>,
    /// True if they are those of `Forwarded`, which counts where there is no `X-Forwarded-For`.
    is_forwarded: bool,
}

impl<'b> Said<'b> {
    fn of(head: &'b [u8]) -> Self {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for (name, value) in forward::lines(head) {
            match name.len() {
                15 if name.eq_ignore_ascii_case(b"x-forwarded-for") => old.push(value),
                9 if name.eq_ignore_ascii_case(b"forwarded") => new.push(value),
                _ => {}
            }
        }
        let is_forwarded = old.is_empty();
        Self { values: if is_forwarded { new } else { old }, is_forwarded }
    }

    /// Iterates over the nodes said, the last first; `None` for one that is not told. Empty
    /// elements are none (RFC 9110 section 5.6.1.2).
    fn nodes(&self) -> impl Iterator<Item = Option<&'b [u8]>> {
        let elements = self.values.iter().rev().flat_map(|value| FromEnd::new(value, b','));
        let elements = elements.filter(|element| !element.is_empty());
        elements.map(|element| if self.is_forwarded { for_of(element) } else { Some(element) })
    }
}

/// Returns the value of `for` in an element of Forwarded; `None` if there is not exactly one.
fn for_of(element: &[u8]) -> Option<&[u8]> {
    let mut found = None;
    for pair in FromEnd::new(element, b';') {
        let equals = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at_checked(equals)?;
        if name.eq_ignore_ascii_case(b"for") && found.replace(value.get(1..)?).is_some() {
            return None;
        }
    }
    found
}

/// Parts of a value, trimmed, from the last to the first. A delimiter in a quoted string is none.
struct FromEnd<'b> {
    rest: Option<&'b [u8]>,
    delimiter: u8,
}

impl<'b> FromEnd<'b> {
    fn new(value: &'b [u8], delimiter: u8) -> Self {
        Self { rest: Some(value), delimiter }
    }
}

impl<'b> Iterator for FromEnd<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        let rest = self.rest.take()?;
        let mut is_quoted = false;
        for (at, &byte) in rest.iter().enumerate().rev() {
            let (before, part) = rest.split_at(at);
            is_quoted ^= byte == b'"' && !is_escaped(before);
            if byte == self.delimiter && !is_quoted {
                self.rest = Some(before);
                return part.get(1..).map(<[u8]>::trim_ascii);
            }
        }
        Some(rest.trim_ascii())
    }
}

/// Returns whether a quote behind these bytes is the second half of a quoted pair.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// Parses a node (RFC 7239 section 6), also as proxies write it in X-Forwarded-For: an address,
/// in quotes or not, with a port or without; an IPv6 address in brackets or not. `None` for a name
/// that hides the address, and for whatever is none of these.
fn address_of(node: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(node).ok()?;
    let unquoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let text = unquoted.unwrap_or(text).trim_ascii();
    let address = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            let is_end = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
            Some(IpAddr::V6(ipv6_of(inside)?)).filter(|_| is_end)
        }
        None => bare_address(text),
    };
    address.map(|address| address.to_canonical())
}

/// Parses an address without brackets, with or without a port. One of IPv6 has a port only where it
/// can be nothing else.
fn bare_address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Some(address) = ipv6_of(text) {
        return Some(IpAddr::V6(address));
    }
    let (address, port) = text.rsplit_once(':')?;
    let is_whole = address.contains('.') || !address.contains("::");
    address.parse().ok().filter(|_| is_whole && is_port(port))
}

/// Parses an IPv6 address, with or without a zone (RFC 4007 section 11).
fn ipv6_of(text: &str) -> Option<Ipv6Addr> {
    let (address, _zone) = text.split_once('%').unwrap_or((text, ""));
    address.parse().ok()
}

/// Matches a `node-port`.
fn is_port(port: &str) -> bool {
    let is_hidden = |name: &str| {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        !name.is_empty() && name.bytes().all(may)
    };
    let is_number = matches!(port.len(), 1..=5) && port.bytes().all(|byte| byte.is_ascii_digit());
    is_number || port.strip_prefix('_').is_some_and(is_hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(peer: &str, lines: &[&str]) -> Client {
        let trusted = |address: IpAddr| address.to_string().starts_with("10.");
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        Client::of(peer.parse().unwrap(), head.as_bytes(), trusted)
    }

    fn at(address: &str) -> Client {
        Client::Address(address.parse().unwrap())
    }

    fn behind(address: &str) -> Client {
        Client::Behind(address.parse().unwrap())
    }

    /// The client by an X-Forwarded-For with these values.
    fn by(peer: &str, values: &[&str]) -> Client {
        let lines: Vec<_> = values.iter().map(|each| format!("X-Forwarded-For: {each}")).collect();
        of(peer, &lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn a_trusted_proxy_says_who_its_client_is() {
        assert_eq!(by("192.0.2.1", &["1.1.1.1"]), at("192.0.2.1"));
        assert_eq!(by("10.0.0.1", &["1.1.1.1"]), at("1.1.1.1"));
        assert_eq!(by("10.0.0.1", &["6.6.6.6, 1.1.1.1, 10.0.0.2"]), at("1.1.1.1"));
        assert_eq!(by("10.0.0.1", &["6.6.6.6", "1.1.1.1"]), at("1.1.1.1"));
        assert_eq!(by("10.0.0.1", &["10.0.0.3"]), at("10.0.0.3"));
        assert_eq!(by("10.0.0.1", &[]), at("10.0.0.1"));
        assert_eq!(by("::ffff:10.0.0.1", &["::ffff:1.1.1.1"]), at("1.1.1.1"));
        assert_eq!(by("10.0.0.1", &["6.6.6.6, ,1.1.1.1,", ""]), at("1.1.1.1"));
    }

    #[test]
    fn an_address_counts_in_every_form_that_proxies_write() {
        for (node, address) in [
            ("192.0.2.1", "192.0.2.1"),
            (" 192.0.2.1\t", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("\"192.0.2.1:4711\"", "192.0.2.1"),
            ("192.0.2.1:_port-1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("\"[2001:db8::1]:80\"", "2001:db8::1"),
            ("2001:DB8:0:0:0:0:0:1:65535", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1:80", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25]:80", "fe80::1"),
        ] {
            assert_eq!(by("10.0.0.1", &[node]), at(address), "{node}");
            let quoted = node.trim_ascii().trim_matches('"');
            let line = format!("Forwarded: proto=http;For=\"{quoted}\" ; by=10.0.0.1");
            assert_eq!(of("10.0.0.1", &[&line]), at(address), "{line}");
        }
    }

    #[test]
    fn a_client_that_is_not_told_is_behind_the_last_proxy_known() {
        for node in [
            "unknown",
            "_hidden",
            "\"_gazonk\"",
            "192.0.2",
            "192.0.2.1:",
            "192.0.2.1:x",
            "192.0.2.1:123456",
            "192.0.2.1:80:80",
            "192.0.2.1 192.0.2.2",
            "192.0.2.01",
            "[192.0.2.1]",
            "[2001:db8::1",
            "[2001:db8::1]80",
            "\"192.0.2.1",
            "for=192.0.2.1",
            "\u{e9}",
        ] {
            assert_eq!(by("10.0.0.1", &[node]), behind("10.0.0.1"), "{node}");
            let nodes = format!("6.6.6.6, {node}, 10.0.0.2:80");
            assert_eq!(by("10.0.0.1", &[&nodes]), behind("10.0.0.2"), "{nodes}");
        }
        assert_eq!(behind("10.0.0.2").address(), at("10.0.0.2").address());
        assert_eq!(Client::Local.address(), None);
    }

    #[test]
    fn forwarded_counts_where_there_is_no_x_forwarded_for() {
        let last = "Forwarded: for=6.6.6.6, for=1.1.1.1;proto=https, for=\"10.0.0.2:80\"";
        assert_eq!(of("10.0.0.1", &[last]), at("1.1.1.1"));
        assert_eq!(of("192.0.2.1", &[last]), at("192.0.2.1"));
        assert_eq!(of("10.0.0.1", &[last, "X-Forwarded-For: 2.2.2.2"]), at("2.2.2.2"));
        assert_eq!(of("10.0.0.1", &["Forwarded: for=6.6.6.6", last]), at("1.1.1.1"));
        for hidden in ["proto=http", "for=unknown", "for=\"_x\"", "for=1.1.1.1;for=2.2.2.2", "for"]
        {
            let line = format!("Forwarded: for=6.6.6.6, {hidden}");
            assert_eq!(of("10.0.0.1", &[&line]), behind("10.0.0.1"), "{line}");
        }
    }

    #[test]
    fn an_open_quote_of_a_client_swallows_no_entry_behind_it() {
        for before in ["for=\"x", "for=\"x\\", "\"", "for=\"6.6.6.6\\\"", "for=\"a, for=\"b"] {
            for entry in ["for=1.1.1.1", "for=\"1.1.1.1:80\";host=\"a,for=6.6.6.6;b\";by=\"_\\\"\""]
            {
                let line = format!("Forwarded: {before}, {entry}");
                assert_eq!(of("10.0.0.1", &[&line]), at("1.1.1.1"), "{line}");
            }
        }
        assert_eq!(by("10.0.0.1", &["\"6.6.6.6, 1.1.1.1"]), at("1.1.1.1"));
    }
}
