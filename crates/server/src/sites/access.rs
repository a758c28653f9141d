//! Lists of networks whose clients may use a part of a site, or may not. Pure.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks that are allowed, and networks that are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    allowed: Vec<IpNet>,
    denied: Vec<IpNet>,
}

impl AccessList {
    /// Creates a list; `None` if it would be empty.
    #[must_use]
    pub fn new(allowed: Vec<IpNet>, denied: Vec<IpNet>) -> Option<Self> {
        (!allowed.is_empty() || !denied.is_empty()).then_some(Self { allowed, denied })
    }

    /// Returns whether a client may ask; `None` for one without an address. The smallest network
    /// that it is in counts, and of two that are the same the one that denies. A client in none is
    /// denied if any network is allowed.
    #[must_use]
    pub fn allows(&self, client: Option<IpAddr>) -> bool {
        let bits = |networks: &[IpNet]| {
            let client = client?.to_canonical();
            let found = networks.iter().filter(|network| network.contains(&client));
            found.map(IpNet::prefix_len).max()
        };
        match (bits(&self.allowed), bits(&self.denied)) {
            (Some(allowed), Some(denied)) => allowed > denied,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => self.allowed.is_empty(),
        }
    }
}

/// Returns the client that a request comes from, by what trusted proxies say: the last address of
/// `X-Forwarded-For` that is none of theirs. `peer`: the other end of the connection, `None` on a
/// Unix socket; `said`: the values of the field, in order.
pub fn client<'a>(
    peer: Option<IpAddr>,
    said: impl DoubleEndedIterator<Item = &'a [u8]>,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut client = peer?.to_canonical();
    for value in said.rev() {
        for address in value.rsplit(|&byte| byte == b',') {
            if !is_trusted(client) {
                return Some(client);
            }
            let text = std::str::from_utf8(address.trim_ascii()).ok();
            // Who a proxy says nothing sensible about is nobody in particular.
            client = text?.parse::<IpAddr>().ok()?.to_canonical();
        }
    }
    Some(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(allowed: &[&str], denied: &[&str]) -> AccessList {
        let networks = |all: &[&str]| all.iter().map(|each| each.parse().unwrap()).collect();
        AccessList::new(networks(allowed), networks(denied)).unwrap()
    }

    fn allows(list: &AccessList, client: &str) -> bool {
        list.allows(Some(client.parse().unwrap()))
    }

    #[test]
    fn the_smallest_network_counts() {
        let inner = list(&["10.0.0.0/8", "10.1.2.3/32"], &["10.1.0.0/16", "10.0.0.0/8"]);
        assert!(!allows(&inner, "10.2.0.1"), "the one that denies, of two that are the same");
        assert!(allows(&inner, "10.1.2.3") && !allows(&inner, "10.1.2.4"));
        assert!(!allows(&inner, "192.0.2.1") && !inner.allows(None));
        let open = list(&[], &["192.0.2.0/24", "2001:db8::/32"]);
        assert!(allows(&open, "10.0.0.1") && open.allows(None));
        assert!(!allows(&open, "192.0.2.9") && !allows(&open, "::ffff:192.0.2.9"));
        assert!(!allows(&open, "2001:db8::5"));
        assert_eq!(AccessList::new(Vec::new(), Vec::new()), None);
    }

    #[test]
    fn a_trusted_proxy_says_who_its_client_is() {
        let trusted = |address: IpAddr| address.to_string().starts_with("10.");
        let of = |peer: &str, said: &[&str]| {
            let said = said.iter().map(|text| text.as_bytes());
            client(Some(peer.parse().unwrap()), said, trusted).map(|client| client.to_string())
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(of("192.0.2.1", &["1.1.1.1"]), is("192.0.2.1"));
        assert_eq!(of("10.0.0.1", &["1.1.1.1"]), is("1.1.1.1"));
        assert_eq!(of("10.0.0.1", &["6.6.6.6, 1.1.1.1, 10.0.0.2"]), is("1.1.1.1"));
        assert_eq!(of("10.0.0.1", &["6.6.6.6", "1.1.1.1"]), is("1.1.1.1"));
        assert_eq!(of("10.0.0.1", &["10.0.0.3"]), is("10.0.0.3"));
        assert_eq!(of("10.0.0.1", &[]), is("10.0.0.1"));
        assert_eq!(of("10.0.0.1", &["unknown"]), None);
        assert_eq!(client(None, [&b"1.1.1.1"[..]].into_iter(), trusted), None);
    }
}
