//! The options that say which requests are forwarded, to which servers, and how many at a time.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args, ValueEnum};
use weir_server::accept::Limit;
use weir_server::accept::upstream;
use weir_server::proxy_protocol::Version;
use weir_server::sites::hosts::HostPattern;
use weir_server::sites::paths::PathPattern;
use weir_server::{HighPriority, IpNet, KeepIdle};

use crate::values::{self, OnOff};

/// Heading of the options that a table `[[upstream]]` has too.
pub(crate) const EACH: &str = "Each upstream";

/// Options of forwarding.
#[derive(Debug, Args)]
pub(crate) struct ForwardOptions {
    #[command(flatten)]
    pub each: UpstreamOptions,

    /// Requests for a host and a path, with all below it, that are sent before others wherever they
    /// are forwarded to, and refused after them; may be repeated
    #[arg(long, value_name = "[HOST]/PATH", value_parser = high_priority,
          help_heading = "Upstreams")]
    pub high_priority: Vec<HighPriority>,

    /// Memory for replies that wait for slow clients, and for content that has not arrived whole,
    /// all loops together; none of them takes more than the others leave; 0: none wait
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = values::size,
          help_heading = "Upstreams")]
    pub buffers_total: u64,

    /// Networks of proxies in front, whose X-Forwarded-* and Forwarded are passed on; may be
    /// repeated
    #[arg(long, value_name = "CIDR", value_parser = network, help_heading = "Upstreams")]
    pub trusted_proxy: Vec<IpNet>,

    /// Connections from those networks, and on Unix sockets, begin with a header of the PROXY
    /// protocol, of version 1 or 2, which says who the client is
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true, help_heading = "Upstreams")]
    pub proxy_protocol_in: OnOff,
}

/// Options of each upstream: admission to it, and what its connections keep to. A table
/// `[[upstream]]` has them for one.
#[derive(Clone, Debug, Args)]
pub(crate) struct UpstreamOptions {
    /// Requests in flight at each upstream, all loops together; auto: as many as it answers more
    /// requests with
    #[arg(long, value_name = "N|inf|auto", default_value = "auto", value_parser = in_flight,
          help_heading = EACH)]
    pub max_in_flight: Limit,

    /// How the number in flight is found, where it is auto (docs/proxy.md)
    #[arg(long, value_name = "NAME", default_value = upstream::TABLE[0].spelling,
          value_parser = policies(), help_heading = EACH)]
    pub in_flight_policy: String,

    /// Which requests are sent first, and how many wait (docs/proxy.md)
    #[arg(long, value_name = "NAME", default_value = upstream::QUEUE_TABLE[0].spelling,
          value_parser = queue_policies(), help_heading = EACH)]
    pub queue_policy: String,

    /// Time for which a request may wait for a place before it is refused with 503
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = values::limit,
          help_heading = EACH)]
    pub queue_target: Duration,

    /// The Host of forwarded requests
    #[arg(long, value_name = "WHOSE", default_value = "client", help_heading = EACH)]
    pub upstream_host: HostChoice,

    /// Certificates of those who issue certificates to servers with https://, in PEM; by default
    /// those that the system trusts
    #[arg(long, value_name = "FILE", help_heading = EACH)]
    pub upstream_ca: Option<PathBuf>,

    /// The name or address that certificates of servers with https:// must be for, which a name is
    /// also sent as (SNI); by default that of the URL
    #[arg(long, value_name = "NAME", help_heading = EACH)]
    pub upstream_name: Option<String>,

    /// The certificate to present to servers with https:// that ask for one, in PEM
    #[arg(long, value_name = "FILE", help_heading = EACH)]
    pub upstream_cert: Option<PathBuf>,

    /// The private key of that certificate, in PEM
    #[arg(long, value_name = "FILE", help_heading = EACH)]
    pub upstream_key: Option<PathBuf>,

    /// Accept any certificate of a server with https://: whoever is in between can read and change
    /// everything
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true, help_heading = EACH)]
    pub upstream_insecure: OnOff,

    /// Time limit of a connect to an upstream, with its TLS handshake
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::limit,
          help_heading = EACH)]
    pub connect_timeout: Duration,

    /// Time limit from the last byte of a request to the first of the reply
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::limit,
          help_heading = EACH)]
    pub first_byte_timeout: Duration,

    /// Time limit between two bytes of a request or of its reply
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::limit,
          help_heading = EACH)]
    pub upstream_idle_timeout: Duration,

    /// Time limit of a request at an upstream, from its place to the last byte of the reply; 0:
    /// none
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::duration,
          help_heading = EACH)]
    pub upstream_timeout: Duration,

    /// Memory in which each reply waits for a client that takes it more slowly than the server
    /// sends it, so that the server's place and connection are free once it has sent the whole; 0:
    /// none
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = values::size,
          help_heading = EACH)]
    pub reply_buffer: u64,

    /// Content of a request up to this length is taken whole before a place at the server is asked
    /// for, so that a client that sends it slowly keeps none; 0: none
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = values::size,
          help_heading = EACH)]
    pub request_buffer: u64,

    /// Begin each connection to a server with a header of the PROXY protocol, which says who the
    /// client is; no connection is then kept for another request
    #[arg(long, value_name = "VERSION", help_heading = EACH)]
    pub proxy_protocol_out: Option<HeaderVersion>,

    /// Idle connections to each server that each loop keeps; auto: 256, and none while the server
    /// takes sixty times as long for a reply as a connect
    #[arg(long, value_name = "N|auto", default_value = "auto", help_heading = EACH)]
    pub keep_idle: KeepIdle,

    /// Time for which an idle connection to a server is kept
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = values::limit,
          help_heading = EACH)]
    pub keep_idle_for: Duration,

    /// Ask every server for this path from time to time, and forward no request to one that does
    /// not answer with a status from 200 to 399
    #[arg(long, value_name = "PATH", value_parser = health_path, help_heading = EACH)]
    pub health_check: Option<String>,

    /// Time between two health checks of a server
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::limit,
          help_heading = EACH)]
    pub health_interval: Duration,

    /// Time limit of a health check
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::limit,
          help_heading = EACH)]
    pub health_timeout: Duration,

    /// Health checks in a row that a server must pass to be up again
    #[arg(long, value_name = "N", default_value = "2", help_heading = EACH,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub health_rise: u32,

    /// Health checks in a row that a server must fail to be down
    #[arg(long, value_name = "N", default_value = "3", help_heading = EACH,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub health_fall: u32,

    /// Time over which a server that has recovered is given its whole share, where there are others
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::duration,
          help_heading = EACH)]
    pub slow_start: Duration,
}

impl UpstreamOptions {
    /// Returns the names of the options that were given and are for servers with https://.
    pub(crate) fn of_tls(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("upstream-ca", self.upstream_ca.is_some()),
            ("upstream-name", self.upstream_name.is_some()),
            ("upstream-cert", self.upstream_cert.is_some()),
            ("upstream-key", self.upstream_key.is_some()),
            ("upstream-insecure", self.upstream_insecure == OnOff::On),
        ];
        all.into_iter().filter_map(|(option, is_given)| is_given.then_some(option))
    }
}

/// Upstreams and routes of a server that serves files besides.
#[derive(Debug, Args)]
pub(crate) struct RouteOptions {
    /// A name for one or more servers that requests may be forwarded to: http://HOST:PORT,
    /// https://HOST:PORT or unix:PATH, separated by commas; may be repeated
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

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HeaderVersion {
    /// A line of text
    V1,
    /// A block of binary
    V2,
}

impl From<HeaderVersion> for Version {
    fn from(version: HeaderVersion) -> Self {
        match version {
            HeaderVersion::V1 => Self::V1,
            HeaderVersion::V2 => Self::V2,
        }
    }
}

/// Parses the number of requests that may be in flight, which is spelled as an accept-limit is; but
/// for 0, by which the papers mean any number, and a reader none.
fn in_flight(text: &str) -> Result<Limit, String> {
    let limit: Option<Limit> = text.parse().ok();
    let limit = limit.filter(|limit| *limit != Limit::Inf || text.eq_ignore_ascii_case("inf"));
    limit.ok_or_else(|| "it is a number of requests from 1, `inf` or `auto`".into())
}

fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(upstream::TABLE.iter().map(|row| row.spelling))
}

fn queue_policies() -> PossibleValuesParser {
    PossibleValuesParser::new(upstream::QUEUE_TABLE.iter().map(|row| row.spelling))
}

fn high_priority(text: &str) -> Result<HighPriority, String> {
    let (host, path) =
        values::host_and_path(text).ok_or("it begins with a path such as /pay, or HOST/pay")?;
    let host = host.map(HostPattern::parse).transpose()?;
    Ok(HighPriority { host, path: PathPattern::parse(path, false)? })
}

/// Parses a network, or an address.
pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse().map(|address: IpAddr| IpNet::from(address));
    let network = text.parse().or_else(|_| address()).map_err(|_| "a network is ADDRESS/BITS")?;
    Ok(canonical(network))
}

/// Returns a network of IPv4 addresses that are mapped to IPv6 (RFC 4291 section 2.5.5.2) as one of
/// IPv4, as which clients are looked for; any other as it is.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else { return network };
    match (mapped.addr().to_canonical(), mapped.prefix_len().checked_sub(MAPPED_BITS)) {
        (address @ IpAddr::V4(_), Some(bits)) => IpNet::new(address, bits).unwrap_or(network),
        _ => network,
    }
}

/// Bits that all mapped addresses have in common.
const MAPPED_BITS: u8 = 96;

fn health_path(text: &str) -> Result<String, String> {
    let is_target = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_target.then(|| text.to_owned()).ok_or_else(|| "a path begins with / and has no space".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_flight_is_from_1_and_0_is_not_all() {
        for (text, limit) in [("7", Limit::Count(7)), ("Inf", Limit::Inf), ("auto", Limit::Auto)] {
            assert_eq!(in_flight(text), Ok(limit), "{text}");
        }
        for text in ["0", "00", "-1", "many", ""] {
            let why = in_flight(text).expect_err(text);
            assert!(why.contains("a number of requests from 1"), "{text}: {why}");
        }
    }

    #[test]
    fn a_part_of_high_priority_has_a_host_that_a_request_can_name() {
        let host = |text: &str| high_priority(text).map(|part| part.host);
        let pattern = |text: &str| Some(HostPattern::parse(text).unwrap());
        assert_eq!(host("/pay"), Ok(None));
        assert_eq!(host("shop.example./pay"), Ok(pattern("shop.example")));
        assert_eq!(host("*.Shop.example/pay"), Ok(pattern("*.shop.example")));
        for text in
            ["pay", "shop.example:8080/pay", "http://shop.example/pay", "*/pay", "/pay/../x"]
        {
            assert!(host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_network_of_mapped_addresses_is_one_of_ipv4() {
        for (text, expected) in [
            ("::ffff:203.0.113.9", "203.0.113.9/32"),
            ("::ffff:203.0.113.0/120", "203.0.113.0/24"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:0:0/95", "::ffff:0:0/95"),
            ("203.0.113.9", "203.0.113.9/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("2001:db8::1", "2001:db8::1/128"),
        ] {
            assert_eq!(network(text), Ok(expected.parse().unwrap()), "{text}");
        }
        assert!(network("203.0.113.9/33").is_err() && network("a").is_err());
    }
}
