//! Frames into segments. Whatever comes is parsed or refused; nothing in a frame is trusted.

use std::net::{IpAddr, SocketAddr};

use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpOption,
    TcpPacket as TcpHeader,
};

use super::neighbours;
use super::packet::{Checksum, Ends, Malformed, Packet, TcpPacket};
use crate::segment::{Flags, Options, SACK_MAX, Segment, Timestamps};
use crate::seq::Seq;

/// Parses a frame.
///
/// # Errors
/// The frame is no Ethernet frame, or its IP packet or its segment is malformed.
pub fn parse(bytes: &[u8], checksum: Checksum) -> Result<Packet<'_>, Malformed> {
    let frame = EthernetFrame::new_checked(bytes).map_err(|_| Malformed)?;
    match frame.ethertype() {
        EthernetProtocol::Arp => neighbours::parse_arp(frame.payload()),
        EthernetProtocol::Ipv4 => parse_ipv4(frame.payload(), checksum),
        EthernetProtocol::Ipv6 => parse_ipv6(frame.payload(), checksum),
        _ => Ok(Packet::Other),
    }
}

fn parse_ipv4(bytes: &[u8], checksum: Checksum) -> Result<Packet<'_>, Malformed> {
    let ip = Ipv4Packet::new_checked(bytes).map_err(|_| Malformed)?;
    if !ip.verify_checksum() {
        return Err(Malformed);
    }
    let is_fragment = ip.more_frags() || ip.frag_offset() > 0;
    if ip.version() != 4 || ip.next_header() != IpProtocol::Tcp || is_fragment {
        return Ok(Packet::Other);
    }
    let addresses = (IpAddr::V4(ip.src_addr()), IpAddr::V4(ip.dst_addr()));
    parse_tcp(ip.payload(), addresses, checksum)
}

fn parse_ipv6(bytes: &[u8], checksum: Checksum) -> Result<Packet<'_>, Malformed> {
    let ip = Ipv6Packet::new_checked(bytes).map_err(|_| Malformed)?;
    let (source, destination) = (ip.src_addr(), ip.dst_addr());
    match ip.next_header() {
        IpProtocol::Tcp => {
            parse_tcp(ip.payload(), (IpAddr::V6(source), IpAddr::V6(destination)), checksum)
        }
        IpProtocol::Icmpv6 => neighbours::parse_icmpv6(&ip),
        _ => Ok(Packet::Other),
    }
}

fn parse_tcp(
    bytes: &[u8],
    (source, destination): (IpAddr, IpAddr),
    checksum: Checksum,
) -> Result<Packet<'_>, Malformed> {
    let tcp = TcpHeader::new_checked(bytes).map_err(|_| Malformed)?;
    let is_sound = checksum == Checksum::Trusted
        || tcp.verify_checksum(&IpAddress::from(source), &IpAddress::from(destination));
    if !is_sound {
        return Err(Malformed);
    }
    let ends = Ends {
        source: SocketAddr::new(source, tcp.src_port()),
        destination: SocketAddr::new(destination, tcp.dst_port()),
    };
    let segment = Segment {
        seq: Seq(tcp.seq_number().0 as u32),
        ack: tcp.ack().then(|| Seq(tcp.ack_number().0 as u32)),
        window: tcp.window_len(),
        flags: Flags { syn: tcp.syn(), fin: tcp.fin(), rst: tcp.rst(), psh: tcp.psh() },
        options: parse_options(tcp.options())?,
        payload: tcp.payload(),
    };
    Ok(Packet::Tcp(TcpPacket { ends, segment }))
}

fn parse_options(bytes: &[u8]) -> Result<Options, Malformed> {
    let mut options = Options::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (next, option) = TcpOption::parse(rest).map_err(|_| Malformed)?;
        match option {
            TcpOption::EndOfList => break,
            TcpOption::MaxSegmentSize(mss) => options.mss = Some(mss),
            TcpOption::WindowScale(shift) => options.window_shift = Some(shift),
            TcpOption::SackPermitted => options.may_sack = true,
            TcpOption::SackRange(blocks) => {
                let known: [_; SACK_MAX] = blocks;
                options.sack = known.map(|block| block.map(|(from, to)| (Seq(from), Seq(to))));
            }
            TcpOption::TimeStamp { tsval: value, tsecr: echo } => {
                options.timestamps = Some(Timestamps { value, echo });
            }
            TcpOption::NoOperation | TcpOption::Unknown { .. } => {}
        }
        rest = next;
    }
    Ok(options)
}
