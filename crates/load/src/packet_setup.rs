//! Checks before weir's own TCP sends a packet: the interface, the addresses of the clients, and
//! that the server is on a laboratory's link. Forged clients have no business anywhere else.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use weir_sys::interface::{self, Interface};
use weir_sys::packet_socket::PacketSocket;

use crate::config::{Network, PacketConfig, PathLaw, tcp};

/// Bytes of the headers without options: IPv4 or IPv6, and TCP.
const HEADERS_V4: u32 = 40;
const HEADERS_V6: u32 = 60;

/// Private and link-local networks (RFC 1918, RFC 3927, RFC 4193, RFC 4291), and that of benchmarks
/// (RFC 2544).
const LABORATORY: [&str; 7] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "198.18.0.0/15",
    "fc00::/7",
    "fe80::/10",
];

/// What an operator asks for.
#[derive(Clone, Debug)]
pub struct PacketRequest {
    /// Name of the interface.
    pub interface: String,
    /// Network of the clients, such as 10.77.128.0/17.
    pub sources: String,
    /// The servers.
    pub servers: Vec<SocketAddr>,
    /// Timeouts and options; the segment size comes from the interface.
    pub tcp: tcp::Settings,
    /// The clients' paths.
    pub path: Option<PathLaw>,
    /// True if clients vanish where others close.
    pub vanish: bool,
    /// Longest time that received packets wait to be handled together.
    pub coalesce: Duration,
}

/// Checks a request.
///
/// # Errors
/// A sentence: what is wrong, or lacking, and what to give.
pub fn prepare(request: PacketRequest) -> Result<PacketConfig, String> {
    let PacketRequest { interface: name, sources, servers, tcp, path, vanish, coalesce } = request;
    let network =
        laboratory_network(&sources).map_err(|why| format!("--source {sources}: {why}"))?;
    let interface = find(&name)?;
    check_servers(&name, &interface, network, &servers)?;
    check_sources(&interface, network).map_err(|why| format!("--source {sources}: {why}"))?;
    let mss = mss(&interface, network).map_err(|why| format!("--interface {name}: {why}"))?;
    PacketSocket::open(interface.index, network).map_err(|error| no_socket(&name, &error))?;
    let tcp = tcp::Settings { mss, ..tcp };
    let coalesce_ns = coalesce.as_nanos() as u64;
    Ok(PacketConfig { interface, sources: network, tcp, path, vanish, coalesce_ns })
}

/// Reads a network that a laboratory may use: private, or link-local.
///
/// # Errors
/// A sentence: what is wrong.
pub fn laboratory_network(text: &str) -> Result<Network, String> {
    let network = network(text)?;
    if is_laboratory(network) {
        Ok(network)
    } else {
        Err("these addresses are not private, nor link-local".into())
    }
}

/// Reads a network: an address and the length of its prefix.
fn network(text: &str) -> Result<Network, String> {
    let wrong = || "give a network of addresses that nobody has, such as 10.77.128.0/17".to_owned();
    let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
    Network::new(address, prefix).ok_or_else(wrong)
}

fn find(name: &str) -> Result<Interface, String> {
    interface::find(name).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            format!("--interface {name}: it is not of Ethernet; a veth or a bridge is")
        }
        _ if error.raw_os_error() == Some(NO_DEVICE) => {
            format!("--interface {name}: there is no such interface (`ip link`)")
        }
        _ => format!("--interface {name}: {error}"),
    })
}

/// ENODEV.
const NO_DEVICE: i32 = 19;

fn no_socket(name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "--stack packet needs CAP_NET_RAW: run it as root, or give weir the capability".into()
        }
        io::ErrorKind::NetworkDown => format!("--interface {name}: it is down (`ip link set`)"),
        _ => format!("--interface {name}: {error}"),
    }
}

/// Checks that each server is on the link, in a laboratory's network, and of the clients' family.
fn check_servers(
    name: &str,
    interface: &Interface,
    sources: Network,
    servers: &[SocketAddr],
) -> Result<(), String> {
    let on_link: Vec<Network> = networks(interface).collect();
    for server in servers.iter().map(SocketAddr::ip) {
        if server.is_ipv4() != sources.first.is_ipv4() {
            return Err(format!("--source: {} and {server} are of two families", sources.first));
        }
        if !on_link.iter().any(|network| network.contains(server)) {
            return Err(format!(
                "{server} is not on the link of {name}: --stack packet loads only what is"
            ));
        }
        if !laboratory().any(|network| network.contains(server)) {
            return Err(format!(
                "{server} is a public address: --stack packet loads only private and link-local \
                 ones"
            ));
        }
        if interface.addresses.iter().any(|(ours, _)| *ours == server) {
            return Err(format!(
                "{server} is this side of {name}: the server is behind it, in another namespace \
                 or machine"
            ));
        }
        if sources.contains(server) {
            return Err(format!("--source: the server's address {server} is one of these"));
        }
    }
    Ok(())
}

/// Checks that the clients' addresses are not the kernel's.
fn check_sources(interface: &Interface, sources: Network) -> Result<(), String> {
    let taken = interface.addresses.iter().find(|(ours, _)| sources.contains(*ours));
    taken.map_or(Ok(()), |(ours, _)| {
        Err(format!("the kernel has {ours}, and would answer for it: give a network without it"))
    })
}

/// Returns the maximum segment size of a link, which has room for the smallest at least.
fn mss(interface: &Interface, sources: Network) -> Result<u16, String> {
    let headers = if sources.first.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
    let (mtu, mtu_min) = (interface.mtu, headers + u32::from(tcp::MSS_MIN));
    if mtu < mtu_min {
        return Err(format!("its MTU of {mtu} is too small: clients of TCP need {mtu_min} bytes"));
    }
    Ok(u16::try_from(mtu - headers).unwrap_or(u16::MAX))
}

fn networks(interface: &Interface) -> impl Iterator<Item = Network> {
    interface.addresses.iter().filter_map(|(address, prefix)| Network::new(*address, *prefix))
}

/// Returns whether all of a network is a laboratory's.
fn is_laboratory(network: Network) -> bool {
    laboratory().any(|whole| whole.prefix <= network.prefix && whole.contains(network.first))
}

fn laboratory() -> impl Iterator<Item = Network> {
    LABORATORY.into_iter().filter_map(|text| network(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> Interface {
        let addresses = vec![([10, 77, 0, 1].into(), 16), ([8, 8, 8, 1].into(), 24)];
        Interface { index: 3, mac: [2, 0, 0, 0, 0, 1], mtu: 1500, addresses }
    }

    fn servers(text: &str) -> Result<(), String> {
        let sources = network("10.77.128.0/17").unwrap();
        check_servers("veth0", &interface(), sources, &[text.parse().unwrap()])
    }

    #[test]
    fn only_a_laboratory_s_server_on_the_link_is_loaded() {
        assert_eq!(servers("10.77.0.2:80"), Ok(()));
        for (server, sentence) in [
            ("10.78.0.2:80", "not on the link"),
            ("8.8.8.8:80", "public"),
            ("10.77.0.1:80", "this side"),
            ("10.77.200.1:80", "one of these"),
            ("[fd00::1]:80", "two families"),
            ("127.0.0.1:80", "not on the link"),
        ] {
            let refused = servers(server).unwrap_err();
            assert!(refused.contains(sentence), "{server}: {refused}");
        }
    }

    #[test]
    fn only_a_laboratory_s_addresses_are_forged() {
        let sources = |text| check_sources(&interface(), laboratory_network(text)?);
        assert_eq!(sources("10.77.128.0/17"), Ok(()));
        assert_eq!(sources("fd00:1::/64"), Ok(()));
        for (text, sentence) in [
            ("9.0.0.0/8", "not private"),
            ("8.0.0.0/5", "not private"),
            ("0.0.0.0/0", "not private"),
            ("10.77.0.0/24", "the kernel has 10.77.0.1"),
        ] {
            assert!(sources(text).unwrap_err().contains(sentence), "{text}");
        }
    }

    #[test]
    fn a_link_has_room_for_the_smallest_segments_or_is_refused() {
        let of = |mtu, sources| mss(&Interface { mtu, ..interface() }, network(sources).unwrap());
        let (v4, v6) = ("10.77.128.0/17", "fd00:1::/64");
        assert_eq!([of(1500, v4), of(88, v4)], [Ok(1460), Ok(48)]);
        assert_eq!([of(1500, v6), of(108, v6)], [Ok(1440), Ok(48)]);
        assert_eq!(of(1 << 20, v4), Ok(u16::MAX));
        for (mtu, sources, least) in [(87, v4, "88 bytes"), (107, v6, "108 bytes"), (0, v4, "88")] {
            let refused = of(mtu, sources).unwrap_err();
            assert!(refused.contains(least), "{mtu}: {refused}");
        }
    }

    #[test]
    fn a_network_that_is_none_gets_one_sentence() {
        for text in ["", "10.0.0.1", "10.0.0.0/33", "x/8", "10.0.0.0/-1", "fd00::/129"] {
            assert!(network(text).unwrap_err().contains("10.77.128.0/17"), "{text}");
        }
        assert_eq!(network("10.77.129.7/17").unwrap().first, IpAddr::from([10, 77, 128, 0]));
    }

    #[test]
    fn parts_of_a_network_do_not_overlap() {
        let whole = network("10.77.128.0/17").unwrap();
        let parts: Vec<Network> = (0..3).map(|nth| whole.part(nth, 3).unwrap()).collect();
        assert_eq!(parts[2], network("10.77.192.0/19").unwrap());
        assert!(!parts[0].contains(parts[1].first) && !parts[1].contains(parts[0].first));
        assert!(whole.contains(parts[1].first));
        assert!(network("10.0.0.1/32").unwrap().part(0, 2).is_none());
    }

    #[test]
    fn an_interface_that_is_not_there_gets_one_sentence() {
        assert!(find("lo").unwrap_err().contains("not of Ethernet"));
        assert!(find("nothing0").unwrap_err().contains("no such interface"));
    }
}
