//! Lists of networks whose clients may use a part of a site, or may not. Pure.

use std::net::IpAddr;

use ipnet::IpNet;

use super::client::Client;

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

    /// Returns whether a client may ask. One that a proxy does not name is as little in a network
    /// that is allowed as one in none; whatever denies the proxy denies it too.
    #[must_use]
    pub fn admits(&self, client: Client) -> bool {
        let may_be_unnamed = self.allowed.is_empty() || !matches!(client, Client::Behind(_));
        may_be_unnamed && self.allows(client.address())
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
    fn a_client_that_is_not_named_is_in_no_network_that_is_allowed() {
        let behind = |proxy: &str| Client::Behind(proxy.parse().unwrap());
        let inner = list(&["10.0.0.0/8"], &[]);
        assert!(inner.admits(Client::Address("10.0.0.1".parse().unwrap())));
        assert!(!inner.admits(behind("10.0.0.1")) && !inner.admits(Client::Local));
        let open = list(&[], &["192.0.2.0/24"]);
        assert!(open.admits(behind("10.0.0.1")) && open.admits(Client::Local));
        assert!(!open.admits(behind("192.0.2.1")));
    }
}
