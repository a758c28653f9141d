//! The URL of a server that requests are forwarded to.

use std::net::{SocketAddr, ToSocketAddrs};

use weir_server::{UpstreamAddress, UpstreamServer};

/// Reads the URL of a server, and finds its address.
///
/// # Errors
/// A sentence: it is malformed, or its host has no address.
pub(super) fn server(url: &str) -> Result<UpstreamServer, String> {
    let url = url.trim();
    if let Some(path) = url.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        let address = UpstreamAddress::Unix(path.into());
        return Ok(UpstreamServer { address, authority: "localhost".into() });
    }
    let wrong = || format!("{url} is none of http://HOST:PORT and unix:PATH");
    if url.starts_with("https://") {
        return Err(format!("{url}: a server is spoken to over plain HTTP only"));
    }
    let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.is_empty() || authority.contains(['/', '?', '#', '@']) {
        return Err(wrong());
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    let resolved = if has_port {
        authority.to_socket_addrs()
    } else {
        format!("{authority}:80").to_socket_addrs()
    };
    let addresses: Vec<SocketAddr> = resolved.map_err(|error| format!("{url}: {error}"))?.collect();
    // A name such as localhost has an address of each kind, and most servers listen on IPv4.
    let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
    let address = *address.ok_or_else(|| format!("{url}: the host has no address"))?;
    Ok(UpstreamServer { address: UpstreamAddress::Tcp(address), authority: authority.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_url_or_socket() {
        for (url, authority) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000"),
            ("http://127.0.0.1/", "127.0.0.1"),
            ("http://[::1]:80", "[::1]:80"),
            ("unix:/run/app.sock", "localhost"),
        ] {
            assert_eq!(server(url).map(|server| server.authority), Ok(authority.into()), "{url}");
        }
        for bad in
            ["", "127.0.0.1:80", "http://", "http://a@b", "http://h:80/x", "unix:", "https://a"]
        {
            assert!(server(bad).is_err(), "{bad}");
        }
    }
}
