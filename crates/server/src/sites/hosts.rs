//! Hosts: the names by which a server has several sites, and the one that a request names. Pure.
//!
//! A name is exact, or `*.` and a name, which stands for all names below that and not for itself.
//! Of several such the longest counts. An address is compared as an address, so that every spelling
//! of an IPv6 address is the same host.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::paths::next_byte;

/// Maximum length of a name, bytes (RFC 1035 section 2.3.4). A longer one is of no site.
const NAME_BYTES_MAX: usize = 255;

/// A host, or all below one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// A name, in lower case.
    Name(String),
    /// All names below one, which is in lower case and begins with a dot.
    Below(String),
    /// An address.
    Address(IpAddr),
}

impl HostPattern {
    /// Parses `example.org`, `*.example.org`, `192.0.2.1`, `2001:db8::1` or `[2001:db8::1]`.
    ///
    /// # Errors
    /// A sentence: it is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let (name, is_below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let may = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(may);
        if name.len() >= NAME_BYTES_MAX || !name.split('.').all(is_label) {
            return Err(format!(
                "'{text}' is no host: it is a name such as example.org or *.example.org, or an \
                 address, without a port"
            ));
        }
        let name = name.to_ascii_lowercase();
        Ok(if is_below { Self::Below(format!(".{name}")) } else { Self::Name(name) })
    }

    /// Returns whether it is for the host that a request names, which is read as by
    /// [`HostTable::find`].
    #[must_use]
    pub fn matches(&self, host: &[u8]) -> bool {
        let mut room = [0; NAME_BYTES_MAX];
        match (self, NamedHost::of(host, &mut room)) {
            (Self::Name(own), Some(NamedHost::Name(name))) => name == own.as_bytes(),
            (Self::Below(own), Some(NamedHost::Name(name))) => is_below(name, own.as_bytes()),
            (Self::Address(own), Some(NamedHost::Address(address))) => *own == address,
            _ => false,
        }
    }

    /// Returns whether it is for all names that another is for, and for more.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(own), Self::Name(name) | Self::Below(name)) => {
                is_below(name.as_bytes(), own.as_bytes())
            }
            _ => false,
        }
    }
}

/// Returns whether a name is below another, which begins with its dot.
fn is_below(name: &[u8], parent: &[u8]) -> bool {
    name.len() > parent.len() && name.ends_with(parent)
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*{name}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Hosts, each with a value.
#[derive(Clone)]
pub struct HostTable<T> {
    names: HashMap<Box<[u8]>, T>,
    /// By the part below which names are, with its dot.
    below: HashMap<Box<[u8]>, T>,
    addresses: Vec<(IpAddr, T)>,
}

/// Shows names in order, whatever that of the maps is: two configurations are compared by this.
impl<T: fmt::Debug> fmt::Debug for HostTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTable")
            .field("names", &sorted(&self.names))
            .field("below", &sorted(&self.below))
            .field("addresses", &self.addresses)
            .finish()
    }
}

fn sorted<T>(names: &HashMap<Box<[u8]>, T>) -> BTreeMap<&[u8], &T> {
    names.iter().map(|(name, value)| (&**name, value)).collect()
}

impl<T> Default for HostTable<T> {
    fn default() -> Self {
        Self { names: HashMap::new(), below: HashMap::new(), addresses: Vec::new() }
    }
}

impl<T: Copy> HostTable<T> {
    /// Adds a host; returns false, and changes nothing, if it is there already.
    pub fn add(&mut self, host: &HostPattern, value: T) -> bool {
        if self.find_pattern(host).is_some() {
            return false;
        }
        match host {
            HostPattern::Name(name) => drop(self.names.insert(name.as_bytes().into(), value)),
            HostPattern::Below(name) => drop(self.below.insert(name.as_bytes().into(), value)),
            HostPattern::Address(address) => self.addresses.push((*address, value)),
        }
        true
    }

    /// Returns the value of a pattern that was added.
    pub fn find_pattern(&self, host: &HostPattern) -> Option<T> {
        match host {
            HostPattern::Name(name) => self.names.get(name.as_bytes()).copied(),
            HostPattern::Below(name) => self.below.get(name.as_bytes()).copied(),
            HostPattern::Address(address) => self.of_address(*address),
        }
    }

    /// Returns the value of the host that a request names, with or without a port: `uri-host [ ":"
    /// port ]` of RFC 9110 section 7.2. Upper case and percent-encodings make no difference (RFC
    /// 3986 section 6.2.2). Allocates nothing.
    pub fn find(&self, host: &[u8]) -> Option<T> {
        let mut room = [0; NAME_BYTES_MAX];
        match NamedHost::of(host, &mut room)? {
            NamedHost::Name(name) => self.names.get(name).or_else(|| self.of_parent(name)).copied(),
            NamedHost::Address(address) => self.of_address(address),
        }
    }

    fn of_parent(&self, name: &[u8]) -> Option<&T> {
        if self.below.is_empty() {
            return None;
        }
        // A name below another has a label before its dot.
        let dots = memchr::memchr_iter(b'.', name).filter(|&dot| dot > 0);
        dots.filter_map(|dot| name.get(dot..)).find_map(|parent| self.below.get(parent))
    }

    fn of_address(&self, address: IpAddr) -> Option<T> {
        self.addresses.iter().find(|(each, _)| *each == address).map(|(_, value)| *value)
    }
}

/// A host that a request names, without its port.
enum NamedHost<'r> {
    /// A name, decoded, in lower case and without a dot at its end.
    Name(&'r [u8]),
    Address(IpAddr),
}

impl<'r> NamedHost<'r> {
    /// Reads a host, whose name is built in `room`; `None` if it is longer than a name.
    fn of(host: &[u8], room: &'r mut [u8; NAME_BYTES_MAX]) -> Option<Self> {
        let (mut len, mut rest) = (0, without_port(host));
        while let Some((byte, after)) = next_byte(rest) {
            *room.get_mut(len)? = byte.to_ascii_lowercase();
            len += 1;
            rest = after;
        }
        let name = room.get(..len)?;
        Some(match address_of(name) {
            Some(address) => Self::Address(address),
            None => Self::Name(name.strip_suffix(b".").unwrap_or(name)),
        })
    }
}

/// Returns the address that a host is, if it is one.
fn address_of(host: &[u8]) -> Option<IpAddr> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    match host {
        [b'[', address @ .., b']'] => {
            let address: Ipv6Addr = text(address)?.parse().ok()?;
            Some(IpAddr::V6(address).to_canonical())
        }
        [b'0'..=b'9', ..] => text(host)?.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
        _ => None,
    }
}

/// Returns a host without its port; an IPv6 address is in brackets.
pub(crate) fn without_port(host: &[u8]) -> &[u8] {
    let end = if host.starts_with(b"[") {
        host.iter().position(|&byte| byte == b']').map(|at| at + 1)
    } else {
        host.iter().position(|&byte| byte == b':')
    };
    host.get(..end.unwrap_or(host.len())).unwrap_or(host)
}

/// Hosts that a connection to a loopback address may name. A page from elsewhere can have its own
/// name lead to 127.0.0.1, and have the browser read what is served there (DNS rebinding); but the
/// browser names the page's host.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(HostTable<()>);

impl AllowedHosts {
    /// Creates a list of these, besides localhost, the names below it, and loopback addresses.
    pub fn new(hosts: &[HostPattern]) -> Self {
        let mut table = HostTable::default();
        for host in hosts {
            table.add(host, ());
        }
        Self(table)
    }

    /// Returns whether a request may name this host. One that names none comes from no browser.
    pub fn allows(&self, host: Option<&[u8]>) -> bool {
        host.is_none_or(|host| is_local(without_port(host)) || self.0.find(host).is_some())
    }
}

fn is_local(host: &[u8]) -> bool {
    const LOCALHOST: &[u8] = b"localhost";
    if let Some(address) = address_of(host) {
        return address.is_loopback();
    }
    let host = host.strip_suffix(b".").unwrap_or(host);
    let (below, end) = host.split_at(host.len().saturating_sub(LOCALHOST.len()));
    end.eq_ignore_ascii_case(LOCALHOST) && (below.is_empty() || below.ends_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(hosts: &[&str]) -> HostTable<usize> {
        let mut table = HostTable::default();
        for (index, host) in hosts.iter().enumerate() {
            assert!(table.add(&HostPattern::parse(host).unwrap(), index), "{host}");
        }
        table
    }

    #[test]
    fn the_exact_name_counts_and_then_the_longest_above() {
        let table = table(&["a.example", "*.example", "*.b.example", "c.b.example"]);
        for (host, wanted) in [
            ("a.example", Some(0)),
            ("A.Example:8080", Some(0)),
            ("a.example.", Some(0)),
            ("b.example", Some(1)),
            ("x.b.example", Some(2)),
            ("x.y.b.example", Some(2)),
            ("c.b.example", Some(3)),
            ("%61.ex%41mple:80", Some(0)),
            ("a%2Eexample", Some(0)),
            ("a.example%2e", Some(0)),
            ("%61%zz.example", Some(1)),
            ("example", None),
            (".example", None),
            ("a.example.com", None),
            ("", None),
        ] {
            assert_eq!(table.find(host.as_bytes()), wanted, "{host}");
        }
        assert_eq!(table.find("x".repeat(300).as_bytes()), None);
    }

    #[test]
    fn a_pattern_alone_is_for_the_hosts_that_a_table_finds_by_it() {
        for text in ["a.example", "*.example", "192.0.2.1", "2001:db8::1"] {
            let (pattern, table) = (HostPattern::parse(text).unwrap(), table(&[text]));
            for host in [
                "a.example",
                "A.ex%41mple.:80",
                "b.a.example",
                "example",
                ".example",
                "aexample",
                "192.0.2.1:80",
                "[2001:DB8::0:1]",
                "",
            ] {
                let is_found = table.find(host.as_bytes()).is_some();
                assert_eq!(pattern.matches(host.as_bytes()), is_found, "{text} {host}");
            }
        }
    }

    #[test]
    fn a_pattern_of_more_names_covers_the_others() {
        let covers = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| HostPattern::parse(text).unwrap());
            one.covers(&other)
        };
        for other in ["a.example", "b.a.example", "*.a.example"] {
            assert!(covers("*.example", other), "{other}");
        }
        for other in ["example", "*.example", "*.other", "aexample", "192.0.2.1"] {
            assert!(!covers("*.example", other), "{other}");
        }
        assert!(!covers("a.example", "a.example") && !covers("a.example", "b.a.example"));
    }

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        let table = table(&["192.0.2.1", "2001:db8::1", "[::1]"]);
        for (host, wanted) in [
            ("192.0.2.1:80", Some(0)),
            ("[2001:DB8:0:0::1]:443", Some(1)),
            ("[::ffff:192.0.2.1]", Some(0)),
            ("[::1]", Some(2)),
            ("192.0.2.%31", Some(0)),
            ("192.0.2.10", None),
            ("192.0.2", None),
            ("[::2]", None),
            ("[", None),
        ] {
            assert_eq!(table.find(host.as_bytes()), wanted, "{host}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_else() {
        for text in
            ["", "*", "*.", "a..b", ".a", "a b", "a:80", "http://a", "a.*.b", "bücher.example"]
        {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
        let twice = ["a.example", "A.example."].map(|text| HostPattern::parse(text).unwrap());
        let mut table = HostTable::default();
        assert_eq!(twice.map(|host| table.add(&host, ())), [true, false]);
    }

    #[test]
    fn tables_of_the_same_hosts_are_shown_alike_and_those_of_others_are_not() {
        let names: Vec<String> = (0..8).map(|nth| format!("{nth}.example")).collect();
        let below: Vec<String> = names.iter().map(|name| format!("*.{name}")).collect();
        let hosts: Vec<&str> = names.iter().chain(&below).map(String::as_str).collect();
        let shown = |hosts: &[&str]| format!("{:?}", table(hosts));
        assert_eq!(shown(&hosts), shown(&hosts));
        assert_ne!(shown(&hosts), shown(&hosts[1..]));
        // The same names, which lead to other sites.
        let turned: Vec<&str> = hosts.iter().rev().copied().collect();
        assert_ne!(shown(&hosts), shown(&turned));
    }

    #[test]
    fn a_loopback_listener_is_asked_by_its_own_names() {
        let hosts = AllowedHosts::new(&[HostPattern::parse("app.test").unwrap()]);
        let asked = |host: &str| hosts.allows(Some(host.as_bytes()));
        for host in
            ["localhost", "LOCALHOST:1", "a.localhost", "127.0.0.1", "127.8.9.1:80", "[::1]:80"]
        {
            assert!(asked(host), "{host}");
        }
        assert!(asked("app.test:8080") && hosts.allows(None));
        for host in ["evil.example", "notlocalhost", "localhost.evil.example", "192.168.0.1", ""] {
            assert!(!asked(host), "{host}");
        }
    }
}
