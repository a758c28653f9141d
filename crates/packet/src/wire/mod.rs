//! Segments as packets of an Ethernet link, in IPv4 or IPv6, and the questions of neighbours that
//! must be answered for addresses the kernel does not have.

mod build;
mod neighbours;
mod packet;
mod parse;
#[cfg(test)]
mod tests;

pub use self::build::{ETHERNET_BYTES, build};
pub use self::neighbours::{answer, ask};
pub use self::packet::{Checksum, Ends, Mac, Macs, Malformed, Neighbour, Packet, TcpPacket};
pub use self::parse::parse;

/// Most bytes of a frame's headers: Ethernet, IPv6, TCP with all its options.
pub const HEADERS_MAX: usize = ETHERNET_BYTES + 40 + 60;
