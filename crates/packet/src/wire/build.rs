//! Segments into frames, with every checksum.

use std::net::IpAddr;

use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet,
    Ipv6Packet, TcpOption, TcpPacket as TcpHeader, TcpSeqNumber,
};

use super::packet::{Ends, Macs, TcpPacket};
use crate::segment::{Options, Segment};

/// Bytes of a frame's head.
pub const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;

/// Hops that a packet may take (net.ipv4.ip_default_ttl).
const HOP_LIMIT: u8 = 64;

/// Appends the frame of a segment to `frames`. A source and a destination of two families make no
/// frame.
pub fn build(frames: &mut Vec<u8>, macs: Macs, packet: &TcpPacket<'_>) {
    let TcpPacket { ends, segment } = packet;
    let ip_bytes = match (ends.source.ip(), ends.destination.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => IPV4_BYTES,
        (IpAddr::V6(_), IpAddr::V6(_)) => IPV6_BYTES,
        _ => return,
    };
    let tcp_bytes = TCP_BYTES + options_bytes(&segment.options);
    let start = frames.len();
    let head_bytes = ETHERNET_BYTES + ip_bytes + tcp_bytes;
    frames.resize(start + head_bytes, 0);
    frames.extend_from_slice(segment.payload);
    let (ethernet, rest) = frames[start..].split_at_mut(ETHERNET_BYTES);
    let mut frame = EthernetFrame::new_unchecked(ethernet);
    frame.set_src_addr(EthernetAddress(macs.source));
    frame.set_dst_addr(EthernetAddress(macs.destination));
    frame.set_ethertype(if ip_bytes == IPV4_BYTES {
        EthernetProtocol::Ipv4
    } else {
        EthernetProtocol::Ipv6
    });
    let (ip, tcp) = rest.split_at_mut(ip_bytes);
    write_ip(ip, ends, tcp.len());
    write_tcp(tcp, tcp_bytes, ends, segment);
}

fn write_ip(head: &mut [u8], ends: &Ends, payload_bytes: usize) {
    match (ends.source.ip(), ends.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = Ipv4Packet::new_unchecked(head);
            ip.set_version(4);
            ip.set_header_len(IPV4_BYTES as u8);
            ip.set_total_len((IPV4_BYTES + payload_bytes) as u16);
            ip.clear_flags();
            ip.set_dont_frag(true);
            ip.set_hop_limit(HOP_LIMIT);
            ip.set_next_header(IpProtocol::Tcp);
            ip.set_src_addr(source);
            ip.set_dst_addr(destination);
            ip.fill_checksum();
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut ip = Ipv6Packet::new_unchecked(head);
            ip.set_version(6);
            ip.set_payload_len(payload_bytes as u16);
            ip.set_next_header(IpProtocol::Tcp);
            ip.set_hop_limit(HOP_LIMIT);
            ip.set_src_addr(source);
            ip.set_dst_addr(destination);
        }
        _ => {}
    }
}

fn write_tcp(bytes: &mut [u8], head_bytes: usize, ends: &Ends, segment: &Segment<'_>) {
    let mut tcp = TcpHeader::new_unchecked(bytes);
    tcp.set_src_port(ends.source.port());
    tcp.set_dst_port(ends.destination.port());
    tcp.set_seq_number(TcpSeqNumber(segment.seq.0 as i32));
    tcp.set_ack_number(TcpSeqNumber(segment.ack.map_or(0, |ack| ack.0) as i32));
    tcp.clear_flags();
    tcp.set_header_len(head_bytes as u8);
    tcp.set_syn(segment.flags.syn);
    tcp.set_fin(segment.flags.fin);
    tcp.set_rst(segment.flags.rst);
    tcp.set_psh(segment.flags.psh);
    tcp.set_ack(segment.ack.is_some());
    tcp.set_window_len(segment.window);
    write_options(tcp.options_mut(), &segment.options);
    tcp.fill_checksum(&IpAddress::from(ends.source.ip()), &IpAddress::from(ends.destination.ip()));
}

/// Returns the bytes of the options, padded to whole words.
fn options_bytes(options: &Options) -> usize {
    let syn = if options.mss.is_some() { 4 } else { 0 };
    // SACK-permitted stands before the timestamps in place of their padding.
    let timestamps = match options.timestamps {
        Some(_) => 12,
        None if options.may_sack => 4,
        None => 0,
    };
    let scale = if options.window_shift.is_some() { 4 } else { 0 };
    syn + timestamps + scale + options.sack_bytes()
}

/// Writes the options in Linux's order (tcp_options_write).
fn write_options(bytes: &mut [u8], options: &Options) {
    let mut rest = bytes;
    let pad = |rest| TcpOption::NoOperation.emit(TcpOption::NoOperation.emit(rest));
    if let Some(mss) = options.mss {
        rest = TcpOption::MaxSegmentSize(mss).emit(rest);
    }
    if options.may_sack {
        rest = TcpOption::SackPermitted.emit(rest);
    }
    if options.may_sack != options.timestamps.is_some() {
        rest = pad(rest);
    }
    if let Some(timestamps) = options.timestamps {
        let option = TcpOption::TimeStamp { tsval: timestamps.value, tsecr: timestamps.echo };
        rest = option.emit(rest);
    }
    if let Some(shift) = options.window_shift {
        rest = TcpOption::NoOperation.emit(rest);
        rest = TcpOption::WindowScale(shift).emit(rest);
    }
    if options.sack[0].is_some() {
        let blocks = options.sack.map(|block| block.map(|(from, to)| (from.0, to.0)));
        TcpOption::SackRange(blocks).emit(pad(rest));
    }
}
