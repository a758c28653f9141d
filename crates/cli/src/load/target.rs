//! The target: a parsed URL and its host's addresses. Only [`Target::resolve`] queries the system;
//! nothing here opens a connection.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use url::{Host, Url};

/// Maximum length of a URL in output, characters.
const URL_SHOWN_MAX: usize = 200;

/// A parsed URL, in the form that a client needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The URL, as displayed.
    pub url: String,
    /// The value of the `Host` field.
    pub authority: String,
    /// The path, which starts with a slash.
    pub path: String,
    /// The part after the question mark.
    pub query: Option<String>,
    host: Host,
    port: u16,
    /// True for HTTPS.
    pub is_secure: bool,
    /// Where to connect to, if that is not the host: `--connect-to`.
    connect_to: Option<(Host, u16)>,
}

impl Target {
    /// Parses `text`. Without a scheme it is taken for HTTP.
    ///
    /// # Errors
    /// A sentence: it is not a URL, has no host, or has a scheme other than HTTP and HTTPS.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let refusal = |why: &str| format!("{text}: {why}");
        let full = if text.contains("://") { text.into() } else { format!("http://{text}") };
        let (scheme, rest) = full.split_once("://").unwrap_or_default();
        if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) {
            return Err(refusal("a URL is http://HOST[:PORT][/PATH], or https://…"));
        }
        // The URL standard would take the path's first part for the host.
        if rest.is_empty() || rest.starts_with(['/', '\\', '?', '#', ':']) {
            return Err(refusal("there is no host in the URL"));
        }
        let url = Url::parse(&full).map_err(|error| refusal(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refusal("a name or password goes into --header 'Authorization: …'"));
        }
        if url.port() == Some(0) {
            return Err(refusal("nothing listens on port 0"));
        }
        Self::of(&url).ok_or_else(|| refusal("there is no host in the URL"))
    }

    fn of(url: &Url) -> Option<Self> {
        let port = url.port();
        let host = url.host()?.to_owned();
        let authority = port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
        let (scheme, path) = (url.scheme(), url.path());
        Some(Self {
            url: format!("{scheme}://{authority}{path}") + &query_suffix(url.query()),
            authority,
            path: url.path().into(),
            query: url.query().map(Into::into),
            host,
            port: url.port_or_known_default()?,
            is_secure: scheme == "https",
            connect_to: None,
        })
    }

    /// Sets the address to connect to: `HOST:PORT`.
    ///
    /// # Errors
    /// A sentence: it is not that.
    pub(crate) fn connect_to(&mut self, text: &str) -> Result<(), String> {
        let wrong = || format!("--connect-to {text}: it is HOST:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = Host::parse(host).map_err(|_| wrong())?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        self.connect_to = Some((host, port));
        Ok(())
    }

    /// Returns the host as certificates name it: an address without brackets.
    pub(crate) fn host_name(&self) -> String {
        match &self.host {
            Host::Ipv6(ip) => ip.to_string(),
            host => host.to_string(),
        }
    }

    /// Returns where to connect to.
    fn endpoint(&self) -> (&Host, u16) {
        self.connect_to.as_ref().map_or((&self.host, self.port), |(host, port)| (host, *port))
    }

    /// Returns the request target: path and query.
    pub(crate) fn request_target(&self) -> String {
        format!("{}{}", self.path, query_suffix(self.query.as_deref()))
    }

    /// Returns whether the addresses connected to do not stand in the URL.
    pub(crate) fn is_named(&self) -> bool {
        self.connect_to.is_some() || matches!(self.host, Host::Domain(_))
    }

    /// Resolves the host to connect to, to its addresses of one family: that of `source`, or else
    /// IPv4 if it has any.
    ///
    /// # Errors
    /// A sentence: there is no such host, or it has no address of that family.
    pub(crate) fn resolve(&self, source: Option<IpAddr>) -> Result<Vec<SocketAddr>, String> {
        let (host, port) = self.endpoint();
        let resolved = match host {
            Host::Ipv4(ip) => vec![SocketAddr::new((*ip).into(), port)],
            Host::Ipv6(ip) => vec![SocketAddr::new((*ip).into(), port)],
            Host::Domain(name) => (name.as_str(), port)
                .to_socket_addrs()
                .map_err(|error| format!("{name}: the host has no address: {error}"))?
                .collect(),
        };
        one_family(&resolved, source).map_err(|why| format!("{host}: {why}"))
    }
}

/// Truncates a text that is too long to be displayed.
pub(crate) fn truncated(text: &str) -> String {
    match text.char_indices().nth(URL_SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

fn query_suffix(query: Option<&str>) -> String {
    query.map(|query| format!("?{query}")).unwrap_or_default()
}

/// Returns the distinct addresses of `resolved` that are of the family of `source`.
fn one_family(resolved: &[SocketAddr], source: Option<IpAddr>) -> Result<Vec<SocketAddr>, String> {
    let has_ipv4 = resolved.iter().any(SocketAddr::is_ipv4);
    let ipv4 = source.map_or(has_ipv4, |source| source.is_ipv4());
    let mut addresses = Vec::new();
    for address in resolved.iter().filter(|address| address.is_ipv4() == ipv4) {
        if !addresses.contains(address) {
            addresses.push(*address);
        }
    }
    if !addresses.is_empty() {
        return Ok(addresses);
    }
    let family = if ipv4 { "IPv4" } else { "IPv6" };
    Err(match source {
        Some(_) => format!("the host has no {family} address, and those of --source are {family}"),
        None => "the host has no address".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, String, String) {
        let target = Target::parse(text).unwrap();
        let asked = target.request_target();
        (target.url, target.authority, asked)
    }

    #[test]
    fn a_url_is_taken_apart() {
        let table = [
            ("http://h", ("http://h/", "h", "/")),
            ("HTTP://H:80/a?b#c", ("http://h/a?b", "h", "/a?b")),
            ("127.0.0.1:8080", ("http://127.0.0.1:8080/", "127.0.0.1:8080", "/")),
            ("localhost:81/x y", ("http://localhost:81/x%20y", "localhost:81", "/x%20y")),
            ("http://[::1]:8080/", ("http://[::1]:8080/", "[::1]:8080", "/")),
            ("https://h", ("https://h/", "h", "/")),
            ("HTTPS://h:443/a", ("https://h/a", "h", "/a")),
            ("https://h:80/", ("https://h:80/", "h:80", "/")),
            ("http://h?q=http://x", ("http://h/?q=http://x", "h", "/?q=http://x")),
        ];
        for (text, (url, authority, asked)) in table {
            assert_eq!(parts(text), (url.into(), authority.into(), asked.into()), "{text}");
        }
    }

    #[test]
    fn an_invalid_target_is_refused_in_a_sentence() {
        let table = [
            ("ftp://h/", "a URL is http://HOST"),
            ("http://", "no host"),
            ("http:///x", "no host"),
            ("http://:8080/", "no host"),
            ("", "no host"),
            ("http://h:99999/", "port"),
            ("http://h:x/", "port"),
            ("http://h:0/", "port 0"),
            ("http://a b/", "domain"),
            ("http://me:secret@h/", "--header"),
        ];
        for (text, sentence) in table {
            let refused = Target::parse(text).unwrap_err();
            assert!(refused.contains(sentence), "{text}: {refused}");
        }
    }

    #[test]
    fn addresses_are_of_one_family() {
        let resolved = ["[::1]:80", "127.0.0.1:80", "127.0.0.1:80", "127.0.0.2:80"]
            .map(|address| address.parse().unwrap());
        let family = |source: Option<&str>| {
            let source = source.map(|source| source.parse().unwrap());
            one_family(&resolved, source).map(|resolved| {
                resolved.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            })
        };
        assert_eq!(family(None), Ok("127.0.0.1:80 127.0.0.2:80".into()));
        assert_eq!(family(Some("::2")), Ok("[::1]:80".into()));
        assert_eq!(one_family(&resolved[..1], None), Ok(vec![resolved[0]]));
        assert!(one_family(&resolved[1..], Some("::2".parse().unwrap())).is_err());
        assert!(one_family(&[], None).is_err());
    }

    #[test]
    fn a_literal_address_needs_no_resolver() {
        let target = Target::parse("http://127.0.0.1:8080/").unwrap();
        assert_eq!(target.resolve(None), Ok(vec!["127.0.0.1:8080".parse().unwrap()]));
        assert!(target.resolve(Some("::1".parse().unwrap())).unwrap_err().contains("IPv6"));
        assert!(!target.is_named());
        assert_eq!(target.host_name(), "127.0.0.1");
        let named = Target::parse("http://localhost:1/").unwrap();
        assert!(named.is_named() && named.resolve(None).is_ok());
    }

    #[test]
    fn another_address_may_be_connected_to_than_the_url_s() {
        let mut target = Target::parse("https://example.org/x").unwrap();
        assert!(target.is_secure);
        for (to, address) in [("127.0.0.1:8443", "127.0.0.1:8443"), ("[::1]:1", "[::1]:1")] {
            target.connect_to(to).unwrap();
            assert_eq!(target.resolve(None), Ok(vec![address.parse().unwrap()]));
            assert_eq!((target.authority.as_str(), target.is_named()), ("example.org", true));
        }
        for wrong in ["h", "h:", "h:0", ":80", "h:x", "h:80/x"] {
            assert!(target.connect_to(wrong).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
        assert_eq!(Target::parse("https://[::1]/").unwrap().host_name(), "::1");
    }
}
