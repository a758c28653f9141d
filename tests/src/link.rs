//! A network namespace with a link whose other end is this program, and packets made by hand to
//! send into it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

use weir_sys::{namespace, tun};

/// Flag of a TCP packet that begins a connection (RFC 9293 section 3.1).
pub const SYN: u8 = 0x02;
/// Flag of a TCP packet that resets the connection.
pub const RST: u8 = 0x04;
/// Flag of a TCP packet whose acknowledgement number is valid.
pub const ACK: u8 = 0x10;

/// Moves the calling thread, and the processes and threads it will start, into a network namespace
/// with a link to the /16 of `server`, which is the address of its near end.
///
/// # Errors
/// A sentence that says why this is not possible.
pub fn begin(server: Ipv4Addr) -> Result<tun::Tun, String> {
    namespace::unshare_network().map_err(|error| format!("no network of its own: {error}"))?;
    let tun = tun::open("tun%d").map_err(|error| format!("no link: {error}"))?;
    ip(&format!("address add {server}/16 dev {}", tun.name))?;
    ip(&format!("link set {} up", tun.name))?;
    Ok(tun)
}

/// Runs ip(8) in the network namespace of the calling thread.
///
/// # Errors
/// A sentence when it cannot be run or fails.
pub fn ip(arguments: &str) -> Result<(), String> {
    let done = Command::new("ip").args(arguments.split(' ')).status();
    let is_done = done.is_ok_and(|status| status.success());
    if is_done { Ok(()) } else { Err(format!("ip {arguments} failed")) }
}

/// Builds a TCP packet without options or data (RFC 9293 section 3.1, RFC 791 section 3.1).
pub fn packet(from: SocketAddrV4, to: SocketAddrV4, flags: u8, ours: u32, theirs: u32) -> Vec<u8> {
    let mut tcp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    tcp.extend([ours.to_be_bytes(), theirs.to_be_bytes()].concat());
    tcp.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    let addresses = [from.ip().octets(), to.ip().octets()].concat();
    let pseudo = [&addresses[..], &[0, 6, 0, 20], &tcp].concat();
    tcp[16..18].copy_from_slice(&sum(&pseudo));
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend(&addresses);
    let of_head = sum(&packet);
    packet[10..12].copy_from_slice(&of_head);
    packet.extend(tcp);
    packet
}

/// Returns the Internet checksum (RFC 1071) of an even number of bytes.
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum = words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
