//! The options that say which requests are forwarded, to which servers, and how many at a time.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use weir_server::accept::Limit;
use weir_server::accept::upstream::{self, UpstreamConfig};
use weir_server::{IpNet, Route, Upstream, UpstreamAddress, UpstreamServer};

use crate::values::{self, ns};

/// Name of the upstream that `weir proxy` makes.
const ONLY: &str = "default";

/// Admission to upstreams, and what their connections keep to.
#[derive(Debug, Args)]
pub(crate) struct ForwardOptions {
    /// Requests in flight at each upstream, all loops together; auto: as many as it answers more
    /// requests with
    #[arg(long, value_name = "N|inf|auto", default_value = "auto", help_heading = "Upstreams")]
    pub max_in_flight: Limit,

    /// How the number in flight is found, where it is auto (docs/proxy.md)
    #[arg(long, value_name = "NAME", default_value = upstream::TABLE[0].spelling,
          value_parser = policies(), help_heading = "Upstreams")]
    pub in_flight_policy: String,

    /// Time for which a request may wait for a place before it is refused with 503
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = values::limit,
          help_heading = "Upstreams")]
    pub queue_target: Duration,

    /// The Host of forwarded requests
    #[arg(long, value_name = "WHOSE", default_value = "client", help_heading = "Upstreams")]
    pub upstream_host: HostChoice,

    /// Time limit of a connect to an upstream
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::limit,
          help_heading = "Upstreams")]
    pub connect_timeout: Duration,

    /// Time limit from a request to an upstream's reply, and between two bytes of either
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::limit,
          help_heading = "Upstreams")]
    pub upstream_timeout: Duration,

    /// Idle connections to each server that each loop keeps
    #[arg(long, value_name = "N", default_value = "256", help_heading = "Upstreams")]
    pub keep_idle: usize,

    /// Time for which an idle connection to a server is kept
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::limit,
          help_heading = "Upstreams")]
    pub keep_idle_for: Duration,

    /// Networks of proxies in front, whose X-Forwarded-* and Forwarded are passed on; may be
    /// repeated
    #[arg(long, value_name = "CIDR", value_parser = network, help_heading = "Upstreams")]
    pub trusted_proxy: Vec<IpNet>,
}

/// Upstreams and routes of a server that serves files besides.
#[derive(Debug, Args)]
pub(crate) struct RouteOptions {
    /// A name for one or more servers that requests may be forwarded to: http://HOST:PORT or
    /// unix:PATH, separated by commas; may be repeated
    #[arg(long, value_name = "NAME=URL,...", value_parser = values::pair,
          help_heading = "Upstreams")]
    pub upstream: Vec<(String, String)>,

    /// The requests for a host and a path, with all below it, and the upstream that they go to, or
    /// `files`; may be repeated: the longest path counts, and one with a host before one without
    #[arg(long, value_name = "[HOST]/PATH=NAME", value_parser = values::pair,
          help_heading = "Upstreams")]
    pub route: Vec<(String, String)>,
}

/// Host that forwarded requests name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HostChoice {
    /// The one that the client named
    Client,
    /// The server's own name
    Server,
}

fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(upstream::TABLE.iter().map(|row| row.spelling))
}

pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse().map(|address: std::net::IpAddr| IpNet::from(address));
    text.parse().or_else(|_| address()).map_err(|_| "a network is ADDRESS/BITS".into())
}

/// Upstreams, and the routes to them.
pub(crate) struct Forwarding {
    pub upstreams: Vec<Upstream>,
    pub routes: Vec<Route>,
}

/// Returns the one upstream of `weir proxy`, to which everything is forwarded.
///
/// # Errors
/// A sentence: a URL is none of a server.
pub(crate) fn of_proxy(urls: &[String], options: &ForwardOptions) -> Result<Forwarding, String> {
    let upstream = upstream(ONLY, urls.iter().map(String::as_str), options)?;
    let route = Route { host: None, path: "/".into(), upstream: Some(0) };
    Ok(Forwarding { upstreams: vec![upstream], routes: vec![route] })
}

/// Returns the upstreams and routes named by options.
///
/// # Errors
/// A sentence: one of them is malformed, or names what is not there.
pub(crate) fn of_routes(
    named: &RouteOptions,
    options: &ForwardOptions,
) -> Result<Forwarding, String> {
    let mut upstreams: Vec<Upstream> = Vec::new();
    for (name, urls) in &named.upstream {
        if name == "files" || upstreams.iter().any(|known| known.name == *name) {
            return Err(format!("--upstream: the name {name} is taken"));
        }
        upstreams.push(upstream(name, urls.split(','), options)?);
    }
    let mut routes = Vec::new();
    for (from, to) in &named.route {
        let path_at = from.find('/').ok_or_else(|| {
            format!("--route {from}={to}: it begins with a path such as /api, or HOST/api")
        })?;
        let (host, path) = from.split_at(path_at);
        let found = upstreams.iter().position(|known| known.name == *to);
        if found.is_none() && to != "files" {
            return Err(format!("--route {from}={to}: there is no --upstream {to}"));
        }
        routes.push(Route {
            host: (!host.is_empty()).then(|| host.to_ascii_lowercase()),
            path: path.to_owned(),
            upstream: found,
        });
    }
    if let Some(unused) = upstreams.iter().enumerate().find_map(|(index, upstream)| {
        let is_used = routes.iter().any(|route| route.upstream == Some(index));
        (!is_used).then_some(&upstream.name)
    }) {
        return Err(format!("--upstream {unused}: no --route leads to it"));
    }
    routes.sort_by_key(|route| (route.host.is_none(), usize::MAX - route.path.len()));
    Ok(Forwarding { upstreams, routes })
}

fn upstream<'a>(
    name: &str,
    urls: impl Iterator<Item = &'a str>,
    options: &ForwardOptions,
) -> Result<Upstream, String> {
    let policy = upstream::TABLE.iter().find(|row| row.spelling == options.in_flight_policy);
    Ok(Upstream {
        name: name.into(),
        servers: urls.map(server).collect::<Result<_, _>>()?,
        admission: UpstreamConfig {
            policy: policy.unwrap_or(&upstream::TABLE[0]).spelling,
            limit: options.max_in_flight,
            target_ns: ns(options.queue_target),
        },
        names_server: options.upstream_host == HostChoice::Server,
        idle_max: options.keep_idle,
        idle_ns: ns(options.keep_idle_for),
        connect_ns: ns(options.connect_timeout),
        reply_ns: ns(options.upstream_timeout),
    })
}

/// Reads the URL of a server.
fn server(url: &str) -> Result<UpstreamServer, String> {
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
