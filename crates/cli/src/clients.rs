//! The limits of each client: their options, and what these mean.

use clap::Args;
use weir_server::ClientLimits;
use weir_server::accept::client_limits::{
    Bandwidth, ClientLimit, ClientPrefix, IPV6_BITS_MAX, RequestRate,
};

use crate::values;

/// The options for the limits of each client.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// Connections that one client may have open at a time, all loops together; others are refused
    /// as --refuse says. Trusted proxies may have any number [default: any number]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub client_connections: Option<u32>,

    /// Requests that one client may make in the long run, as 10/s, 100/m or 1000/h; others are
    /// answered with 429 and Retry-After. Behind a trusted proxy the client is the one that it
    /// names [default: any number]
    #[arg(long, value_name = "RATE", value_parser = nanoseconds_for_each)]
    pub client_requests: Option<u64>,

    /// Requests that one client may make at once after a pause, whatever --client-requests says
    #[arg(long, value_name = "N", default_value = "20",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub client_burst: u32,

    /// Bytes per second that one client is sent in the long run, its connections together; they
    /// wait for it. The connections of trusted proxies have no limit, unless a header of the PROXY
    /// protocol names the client [default: any number]
    #[arg(long, value_name = "BYTES", value_parser = bandwidth)]
    pub client_bandwidth: Option<u64>,

    /// Bytes that one client is sent at once after a pause, whatever --client-bandwidth says
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = bandwidth)]
    pub client_bandwidth_burst: u64,

    /// The bits of an address that tell clients apart, of IPv4 and of IPv6
    #[arg(long, value_name = "IPV4,IPV6", default_value = "32,64", value_parser = prefix)]
    pub client_prefix: ClientPrefix,

    /// Clients that are known at a time, in 32 bytes each; where all have connections open, further
    /// ones are not limited (but under --arch processes)
    #[arg(long, value_name = "N", default_value = "65536",
          value_parser = clap::value_parser!(u32).range(64..=1 << 26))]
    pub client_table: u32,
}

impl ClientOptions {
    /// Returns the limits; `None` if there are none.
    pub(crate) fn limits(&self) -> Option<ClientLimits> {
        let burst = self.client_burst;
        let each = ClientLimit {
            connections: self.client_connections,
            requests: self.client_requests.map(|each_ns| RequestRate { each_ns, burst }),
            bandwidth: self.client_bandwidth.map(|bytes_per_s| Bandwidth {
                bytes_per_s,
                burst_bytes: self.client_bandwidth_burst,
            }),
        };
        (each != ClientLimit::default()).then_some(ClientLimits {
            each,
            prefix: self.client_prefix,
            entries: self.client_table as usize,
        })
    }
}

/// Parses a rate of requests; returns the nanoseconds for each.
fn nanoseconds_for_each(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err("a rate is a number per s, m or h, as 10/s".into()),
    };
    let number: u32 = number.parse().map_err(|_| "a rate is a whole number, as 10/s")?;
    let each_ns = (seconds * 1_000_000_000).checked_div(number.into());
    each_ns.filter(|each_ns| *each_ns > 0).ok_or_else(|| "that is no rate".into())
}

/// Parses a number of bytes that is not zero.
fn bandwidth(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        0 => Err("no client can be served with no bytes".into()),
        bytes => Ok(bytes),
    }
}

/// Parses the bits of an address that tell clients apart.
fn prefix(text: &str) -> Result<ClientPrefix, String> {
    let bits = |text: &str, most: u8| text.parse().ok().filter(|bits| *bits <= most);
    text.split_once(',')
        .and_then(|(ipv4, ipv6)| {
            Some(ClientPrefix { ipv4: bits(ipv4, 32)?, ipv6: bits(ipv6, IPV6_BITS_MAX)? })
        })
        .ok_or_else(|| "two numbers, of IPv4 up to 32 and of IPv6 up to 64, as 24,56".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        for (text, each_ns) in [
            ("10", 100_000_000),
            ("10/s", 100_000_000),
            ("1/m", 60_000_000_000),
            ("2/h", 1_800_000_000_000),
        ] {
            assert_eq!(nanoseconds_for_each(text), Ok(each_ns), "{text}");
        }
        for text in ["", "0", "/s", "1/d", "1.5/s", "-1", "4294967295/s", "1/s/s"] {
            assert!(nanoseconds_for_each(text).is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes_are_two_numbers() {
        assert_eq!(prefix("24,56"), Ok(ClientPrefix { ipv4: 24, ipv6: 56 }));
        for text in ["", "24", "33,56", "24,65", "24,", "a,b", "24,56,1"] {
            assert!(prefix(text).is_err(), "{text}");
        }
    }
}
