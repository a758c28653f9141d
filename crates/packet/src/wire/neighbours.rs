//! Neighbours: who has an address (ARP, RFC 826; neighbour discovery, RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags,
    NdiscRepr,
};

use super::packet::{Mac, Macs, Malformed, Neighbour, Packet};

const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
const BROADCAST: Mac = [0xff; 6];

/// Hops of neighbour discovery, which no router passes on (RFC 4861 section 7.1).
const ON_LINK_HOPS: u8 = 255;

pub(super) fn parse_arp(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let arp = ArpPacket::new_checked(bytes).map_err(|_| Malformed)?;
    // Anything but IPv4 on Ethernet is of no concern.
    let Ok(ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(mac),
        source_protocol_addr: from,
        target_protocol_addr: target,
        ..
    }) = ArpRepr::parse(&arp)
    else {
        return Ok(Packet::Other);
    };
    Ok(match operation {
        ArpOperation::Request => {
            Packet::Neighbour(Neighbour::Asks { target: target.into(), from: from.into(), mac })
        }
        ArpOperation::Reply => Packet::Neighbour(Neighbour::Has { address: from.into(), mac }),
        ArpOperation::Unknown(_) => Packet::Other,
    })
}

pub(super) fn parse_icmpv6<'a>(ip: &Ipv6Packet<&'a [u8]>) -> Result<Packet<'a>, Malformed> {
    let (source, destination) = (ip.src_addr(), ip.dst_addr());
    let icmp = Icmpv6Packet::new_checked(ip.payload()).map_err(|_| Malformed)?;
    let parsed = Icmpv6Repr::parse(&source, &destination, &icmp, &ChecksumCapabilities::default());
    let mac =
        |lladdr: Option<smoltcp::wire::RawHardwareAddress>| Mac::try_from(lladdr?.as_bytes()).ok();
    Ok(match parsed {
        Ok(Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr, lladdr })) => mac(lladdr)
            .map_or(Packet::Other, |mac| {
                let target = target_addr.into();
                Packet::Neighbour(Neighbour::Asks { target, from: source.into(), mac })
            }),
        Ok(Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { target_addr, lladdr, .. })) => mac(lladdr)
            .map_or(Packet::Other, |mac| {
                Packet::Neighbour(Neighbour::Has { address: target_addr.into(), mac })
            }),
        _ => Packet::Other,
    })
}

/// Appends the frame that answers a question: `mac` has the address. An answer is not answered.
pub fn answer(frames: &mut Vec<u8>, mac: Mac, question: &Neighbour) {
    let Neighbour::Asks { target, from, mac: asker } = *question else { return };
    let macs = Macs { source: mac, destination: asker };
    match (target, from) {
        (IpAddr::V4(target), IpAddr::V4(from)) => {
            write_arp(frames, macs, ArpOperation::Reply, target, (asker, from));
        }
        (IpAddr::V6(target), IpAddr::V6(from)) => {
            let flags = NdiscNeighborFlags::SOLICITED | NdiscNeighborFlags::OVERRIDE;
            let lladdr = Some(EthernetAddress(mac).into());
            let advert = NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr };
            write_ndisc(frames, macs, (target, from), advert);
        }
        _ => {}
    }
}

/// Appends the frame that asks who has `target`, on behalf of `from` at the interface `mac`.
pub fn ask(frames: &mut Vec<u8>, mac: Mac, from: IpAddr, target: IpAddr) {
    match (target, from) {
        (IpAddr::V4(target), IpAddr::V4(from)) => {
            let macs = Macs { source: mac, destination: BROADCAST };
            write_arp(frames, macs, ArpOperation::Request, from, ([0; 6], target));
        }
        (IpAddr::V6(target), IpAddr::V6(from)) => {
            let [.., high, middle, low] = target.octets();
            // The solicited-node address (RFC 4291 section 2.7.1) and its group (RFC 2464).
            let group = Ipv6Addr::new(
                0xff02,
                0,
                0,
                0,
                0,
                1,
                0xff00 | u16::from(high),
                u16::from_be_bytes([middle, low]),
            );
            let macs = Macs { source: mac, destination: [0x33, 0x33, 0xff, high, middle, low] };
            let lladdr = Some(EthernetAddress(mac).into());
            let question = NdiscRepr::NeighborSolicit { target_addr: target, lladdr };
            write_ndisc(frames, macs, (from, group), question);
        }
        _ => {}
    }
}

fn write_arp(
    frames: &mut Vec<u8>,
    macs: Macs,
    operation: ArpOperation,
    ours: Ipv4Addr,
    (target_mac, theirs): (Mac, Ipv4Addr),
) {
    let arp = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(macs.source),
        source_protocol_addr: ours,
        target_hardware_addr: EthernetAddress(target_mac),
        target_protocol_addr: theirs,
    };
    let payload = write_ethernet(frames, macs, EthernetProtocol::Arp, arp.buffer_len());
    arp.emit(&mut ArpPacket::new_unchecked(payload));
}

fn write_ndisc(
    frames: &mut Vec<u8>,
    macs: Macs,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    message: NdiscRepr<'_>,
) {
    let icmp = Icmpv6Repr::Ndisc(message);
    let ip = Ipv6Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: IpProtocol::Icmpv6,
        payload_len: icmp.buffer_len(),
        hop_limit: ON_LINK_HOPS,
    };
    let bytes = IPV6_BYTES + icmp.buffer_len();
    let payload = write_ethernet(frames, macs, EthernetProtocol::Ipv6, bytes);
    let (head, body) = payload.split_at_mut(IPV6_BYTES);
    ip.emit(&mut Ipv6Packet::new_unchecked(head));
    icmp.emit(
        &source,
        &destination,
        &mut Icmpv6Packet::new_unchecked(body),
        &ChecksumCapabilities::default(),
    );
}

/// Appends a frame's head and room for its payload, which it returns.
fn write_ethernet(
    frames: &mut Vec<u8>,
    macs: Macs,
    ethertype: EthernetProtocol,
    payload_bytes: usize,
) -> &mut [u8] {
    let start = frames.len();
    frames.resize(start + ETHERNET_BYTES + payload_bytes, 0);
    let (head, payload) = frames[start..].split_at_mut(ETHERNET_BYTES);
    let (src_addr, dst_addr) = (EthernetAddress(macs.source), EthernetAddress(macs.destination));
    EthernetRepr { src_addr, dst_addr, ethertype }.emit(&mut EthernetFrame::new_unchecked(head));
    payload
}
