//! The URL of a server that requests are forwarded to.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use weir_server::tls::client::{ClientSettings, Connector};
use weir_server::{UpstreamAddress, UpstreamServer, files};

use super::options::UpstreamOptions;
use crate::values::{OnOff, with_option};

/// Reads the URL of a server, and finds its address; the options are those of TLS with it.
///
/// # Errors
/// A sentence: it is malformed, its host has no address, or a file is not what it should be.
pub(super) fn server(url: &str, options: &UpstreamOptions) -> Result<UpstreamServer, String> {
    let url = url.trim();
    if let Some(path) = url.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        let address = UpstreamAddress::Unix(path.into());
        return Ok(UpstreamServer { address, authority: "localhost".into(), tls: None });
    }
    let wrong = || format!("{url} is none of http://HOST:PORT, https://HOST:PORT and unix:PATH");
    let secure = url.strip_prefix("https://");
    let rest = secure.or_else(|| url.strip_prefix("http://")).ok_or_else(wrong)?;
    let port = if secure.is_some() { 443 } else { 80 };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
        return Err(wrong());
    }
    let (name, has_port) = match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, true),
        _ => (authority, false),
    };
    let resolved = if has_port {
        authority.to_socket_addrs()
    } else {
        format!("{authority}:{port}").to_socket_addrs()
    };
    let resolved = resolved.map_err(|error| format!("{url}: {error}"))?;
    let address = chosen(resolved).ok_or_else(|| format!("{url}: the host has no address"))?;
    let tls = secure.map(|_| connector(name, options)).transpose()?;
    Ok(UpstreamServer { address: UpstreamAddress::Tcp(address), authority: authority.into(), tls })
}

/// Chooses the address of a server out of those of its name, which may come in another order each
/// time: the lowest, so that a reload finds the same configuration. It is one of IPv4 if there are
/// any: a name such as localhost has an address of each kind, and most servers listen on IPv4.
fn chosen(addresses: impl Iterator<Item = SocketAddr>) -> Option<SocketAddr> {
    addresses.min_by_key(|address| (address.is_ipv6(), *address))
}

/// Prepares TLS with a server of this name or address. A sentence about an option begins with it.
fn connector(name: &str, options: &UpstreamOptions) -> Result<Arc<Connector>, String> {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let identity = match (&options.upstream_cert, &options.upstream_key) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
        (Some(_), None) => return Err("--upstream-cert and --upstream-key go together".into()),
        (None, Some(_)) => return Err("--upstream-key and --upstream-cert go together".into()),
    };
    if options.upstream_ca.is_some() && options.upstream_insecure == OnOff::On {
        return Err("--upstream-ca says whom to trust, and --upstream-insecure to trust all".into());
    }
    let settings = ClientSettings {
        server_name: options.upstream_name.clone().unwrap_or_else(|| name.to_owned()),
        ca: options.upstream_ca.clone(),
        identity,
        accepts_any: options.upstream_insecure == OnOff::On,
    };
    let files = [
        ("--upstream-ca", options.upstream_ca.as_slice()),
        ("--upstream-cert", options.upstream_cert.as_slice()),
        ("--upstream-key", options.upstream_key.as_slice()),
    ];
    let connector = Connector::new(settings, files::open);
    connector.map(Arc::new).map_err(|error| with_option(error.to_string(), &files))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options of a command line.
    fn options(line: &[&str]) -> UpstreamOptions {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            each: UpstreamOptions,
        }
        <Line as clap::Parser>::parse_from([&["weir"][..], line].concat()).each
    }

    #[test]
    fn servers_are_named_by_url_or_socket() {
        for (url, authority) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000"),
            ("http://127.0.0.1/", "127.0.0.1"),
            ("http://[::1]:80", "[::1]:80"),
            ("https://[::1]:8443", "[::1]:8443"),
            ("https://127.0.0.1", "127.0.0.1"),
            ("unix:/run/app.sock", "localhost"),
        ] {
            let server = server(url, &options(&["--upstream-insecure"])).unwrap();
            assert_eq!(server.authority, authority, "{url}");
            assert_eq!(server.tls.is_some(), url.starts_with("https:"), "{url}");
        }
        for bad in
            ["", "127.0.0.1:80", "http://", "http://a@b", "http://h:80/x", "unix:", "https://"]
        {
            assert!(server(bad, &options(&[])).is_err(), "{bad}");
        }
    }

    #[test]
    fn of_several_addresses_the_same_is_chosen_in_whatever_order_they_come() {
        let [first, second, third] = ["192.0.2.1:80", "192.0.2.2:80", "[2001:db8::1]:80"]
            .map(|it| it.parse::<SocketAddr>().unwrap());
        for order in [
            [first, second, third],
            [first, third, second],
            [second, first, third],
            [second, third, first],
            [third, first, second],
            [third, second, first],
        ] {
            assert_eq!(chosen(order.into_iter()), Some(first), "{order:?}");
        }
        assert_eq!(chosen([third].into_iter()), Some(third));
        assert_eq!(chosen(std::iter::empty()), None);
    }

    #[test]
    fn options_of_tls_that_do_not_fit_are_told_by_the_one_that_is_there() {
        for (line, says) in [
            (&["--upstream-ca=/no/such", "--upstream-insecure"][..], "--upstream-ca says whom"),
            (&["--upstream-cert=/no/such"], "--upstream-cert and"),
            (&["--upstream-key=/no/such"], "--upstream-key and"),
        ] {
            let why = server("https://127.0.0.1", &options(line)).err().unwrap_or_default();
            assert!(why.starts_with(says), "{why}");
        }
        let trusting = options(&["--upstream-ca=/no/such", "--upstream-insecure=off"]);
        let why = server("https://127.0.0.1", &trusting).err().unwrap_or_default();
        assert!(why.starts_with("--upstream-ca: /no/such"), "{why}");
    }
}
