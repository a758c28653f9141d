//! What a frame holds, and between whom.

use std::net::{IpAddr, SocketAddr};

use crate::segment::Segment;

/// An address of an Ethernet interface.
pub type Mac = [u8; 6];

/// The two ends of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Where it comes from.
    pub source: SocketAddr,
    /// Where it goes.
    pub destination: SocketAddr,
}

/// The two interfaces of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Macs {
    /// Of the sender.
    pub source: Mac,
    /// Of the receiver.
    pub destination: Mac,
}

/// A segment and where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPacket<'a> {
    /// Addresses and ports.
    pub ends: Ends,
    /// The segment.
    pub segment: Segment<'a>,
}

/// A frame's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// A segment.
    Tcp(TcpPacket<'a>),
    /// A neighbour's question, or its answer.
    Neighbour(Neighbour),
    /// Something that is of no concern here.
    Other,
}

/// A frame that is cut short, contradicts itself or has a wrong checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What is known of a frame's checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// They must be verified.
    Unknown,
    /// The segment's was verified, or left to the hardware by a sender on the same machine: it may
    /// be partial.
    Trusted,
}

/// A neighbour's question or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// Somebody asks who has an address.
    Asks {
        /// The address asked for.
        target: IpAddr,
        /// Who asks.
        from: IpAddr,
        /// Their interface.
        mac: Mac,
    },
    /// Somebody says that they have an address.
    Has {
        /// The address.
        address: IpAddr,
        /// Their interface.
        mac: Mac,
    },
}
