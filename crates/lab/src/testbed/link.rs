//! The link between the two networks: a veth pair (veth(4)), its addresses, and the processors that
//! handle its packets. Also the addresses on loopback.
//!
//! The only program started here is ip(8).

use std::ffi::OsStr;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::cpus;
use super::namespace_holder::NamespaceHolder;
use crate::environment::{PacketLink, Side};

/// Maximum number of client addresses: with more than 512 neighbours, entries are evicted again and
/// again (arp(7), `gc_thresh2`), and each address has 64,000 ports.
pub const ADDRESSES_MAX: u32 = 500;

/// MTU in bytes, as on an Ethernet.
const MTU: u32 = 1500;
/// Prefix length of the addresses.
const PREFIX: u8 = 16;

/// The server's address, in the network set apart for benchmarks (RFC 2544 appendix C.2.2).
pub(super) const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
/// The client's first address.
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
/// Address of a server with a TCP of its own, which neither kernel has.
const PACKET_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2));
/// Addresses of clients with a TCP of their own, which neither kernel has.
const PACKET_CLIENTS: &str = "198.18.128.0/17";
/// The server's address without namespaces.
pub(super) const LOOPBACK_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The client's first address without namespaces: all of 127.0.0.0/8 is there (RFC 1122 section
/// 3.2.1.3).
const LOOPBACK_CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Returns the name of a side's interface.
pub(super) fn interface(side: Side) -> &'static str {
    match side {
        Side::Server => "server",
        Side::Client => "client",
    }
}

/// Returns the link for a TCP that is not the kernel's.
pub(super) fn packet_link() -> PacketLink {
    PacketLink {
        interface: interface(Side::Client).to_owned(),
        network: PACKET_CLIENTS.to_owned(),
        server_interface: interface(Side::Server).to_owned(),
        server_address: PACKET_SERVER,
    }
}

/// Returns `count` addresses of the client on the link.
pub(super) fn client_addresses(count: u32) -> Vec<IpAddr> {
    following(CLIENT, count)
}

/// Returns `count` addresses of the client on loopback.
pub(super) fn loopback_client_addresses(count: u32) -> Vec<IpAddr> {
    following(LOOPBACK_CLIENT, count)
}

fn following(first: Ipv4Addr, count: u32) -> Vec<IpAddr> {
    let first = u32::from(first);
    (first..first.saturating_add(count)).map(|bits| IpAddr::V4(bits.into())).collect()
}

/// Creates the link between two holders' networks. `inside` returns a command that runs a program
/// in one of them.
///
/// # Errors
/// Returns the error of ip(8).
pub(super) fn create(
    ip: &Path,
    inside: impl Fn(Side, &OsStr) -> Command,
    client: &NamespaceHolder,
    sources: &[IpAddr],
) -> Result<(), String> {
    // One queue at each end, so that one mask of processors covers all packets.
    let queues = ["numtxqueues", "1", "numrxqueues", "1"];
    let [ours, theirs] = [Side::Server, Side::Client].map(interface);
    let network = client.proc().join("ns/net");
    let mut add = inside(Side::Server, ip.as_os_str());
    add.args(["link", "add", ours, "mtu", &MTU.to_string()]).args(queues).args(["type", "veth"]);
    add.args(["peer", "name", theirs, "mtu", &MTU.to_string()]).args(queues);
    add.arg("netns").arg(network);
    judge(add.output())?;
    batch(inside(Side::Server, ip.as_os_str()), Side::Server, &[SERVER])?;
    batch(inside(Side::Client, ip.as_os_str()), Side::Client, sources)
}

/// Adds the addresses to a side's interface, and brings it up.
fn batch(mut ip: Command, side: Side, addresses: &[IpAddr]) -> Result<(), String> {
    let name = interface(side);
    let mut lines: Vec<String> = addresses
        .iter()
        .map(|address| format!("address add {address}/{PREFIX} dev {name}\n"))
        .collect();
    lines.push(format!("link set lo up\nlink set {name} up\n"));
    if side == Side::Server {
        // By way of one neighbour: a table of neighbours has no room for all of them.
        lines.push(format!("route add {PACKET_CLIENTS} via {CLIENT} dev {name}\n"));
    }
    ip.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let fed = ip.spawn().and_then(|mut child| {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(lines.concat().as_bytes())?;
        }
        child.wait_with_output()
    });
    judge(fed)
}

fn judge(output: std::io::Result<Output>) -> Result<(), String> {
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip: {}", String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

/// Has a side's packets handled by its own processors, by receive packet steering (the kernel's
/// Documentation/networking/scaling.rst). Returns the mask as read back.
///
/// # Errors
/// Returns the kernel's error.
pub(super) fn set_packet_cpus(
    holder: &mut NamespaceHolder,
    side: Side,
    own: &[usize],
) -> Result<String, String> {
    let file = packet_cpus_file(Path::new("/"), side).display().to_string();
    holder.write(&file, &cpus::format_mask(own))?;
    holder.read(&file)
}

/// Returns the file of the processors that handle a side's packets, below a root directory.
pub(super) fn packet_cpus_file(root: &Path, side: Side) -> PathBuf {
    root.join(format!("sys/class/net/{}/queues/rx-0/rps_cpus", interface(side)))
}

/// Returns the MTU of an interface in bytes, as read back.
pub(super) fn mtu(holder: &mut NamespaceHolder, interface: &str) -> Option<u32> {
    holder.read(&format!("/sys/class/net/{interface}/mtu")).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_addresses_are_many_distinct_and_never_the_servers() {
        for (addresses, server) in [
            (client_addresses(ADDRESSES_MAX), SERVER),
            (loopback_client_addresses(ADDRESSES_MAX), LOOPBACK_SERVER),
        ] {
            let distinct: std::collections::BTreeSet<_> = addresses.iter().collect();
            assert_eq!(distinct.len() as u32, ADDRESSES_MAX);
            assert!(!distinct.contains(&server));
        }
        assert_eq!(client_addresses(2)[1].to_string(), "198.18.1.2");
        assert_eq!(loopback_client_addresses(1)[0].to_string(), "127.0.0.2");
    }
}
