//! A link of Ethernet in a network namespace of its own, with a server at one end and weir's own
//! TCP at the other.

use weir_sys::namespace;

use crate::link::ip;

/// The server's end: interface, address, and the same in IPv6.
pub const SERVER_V4: &str = "10.77.0.2";
/// The server's end in IPv6.
pub const SERVER_V6: &str = "fd77::2";
/// Interface of the clients' end.
pub const INTERFACE: &str = "weir-c";
/// Addresses of clients, which the kernel does not have.
pub const CLIENTS_V4: &str = "10.77.128.0/17";
/// Addresses of clients in IPv6.
pub const CLIENTS_V6: &str = "fd77:0:0:1::/64";

/// Moves the calling thread, and the processes and threads it will start, into a network namespace
/// with the link.
///
/// # Errors
/// A sentence that says why this is not possible.
pub fn enter() -> Result<(), String> {
    namespace::unshare_network().map_err(|error| format!("no network of its own: {error}"))?;
    let route_v4 = format!("route add {CLIENTS_V4} dev weir-s");
    let route_v6 = format!("-6 route add {CLIENTS_V6} dev weir-s");
    for line in [
        "link set lo up",
        "link add weir-s type veth peer name weir-c",
        "address add 10.77.0.2/16 dev weir-s",
        "address add 10.77.0.1/16 dev weir-c",
        "-6 address add fd77::2/48 dev weir-s nodad",
        "-6 address add fd77::1/48 dev weir-c nodad",
        "link set weir-s up",
        "link set weir-c up",
        &route_v4,
        &route_v6,
    ] {
        ip(line)?;
    }
    Ok(())
}
