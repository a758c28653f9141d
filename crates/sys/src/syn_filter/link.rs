//! The link as the place of a SYN filter: a classifier that sees packets as an interface receives
//! them (TCX, Linux 6.6), before IP. This file says at which interfaces SYNs for a listening socket
//! arrive, and recognizes them there; [`super::tokens`] judges them.
//!
//! A SYN is recognized by its destination alone, which must be an address of the interface: what is
//! forwarded, and what is translated to another address or port before it reaches its socket, is
//! left to the socket's filter. So are packets with IP options or extension headers, and fragments.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::{FLAGS, FLAGS_AT, SYN};
use crate::bpf::{Assembler, Cmp, Label, Op, Reg, Size};
use crate::interface::{self, Interface};

/// Offset of the protocol in a packet's context (`struct __sk_buff`), and its values.
pub(super) const PROTOCOL_AT: i16 = 16;
pub(super) const IPV6: i32 = (libc::ETH_P_IPV6 as u16).to_be() as i32;
const IPV4: i32 = (libc::ETH_P_IP as u16).to_be() as i32;

/// Offsets of the first byte of the packet, and of what follows its last, in its context.
const DATA_AT: i16 = 76;
const DATA_END_AT: i16 = 80;

/// Maximum number of addresses recognized at an interface: a SYN is compared with each.
const ADDRESSES_MAX: usize = 16;

/// Destinations recognized at one interface. They are of one IP version.
#[derive(Debug)]
pub(super) struct Target {
    /// Number of the interface.
    pub interface: u32,
    addresses: Vec<IpAddr>,
    port: u16,
}

impl Target {
    /// Returns the offset of the TCP header in a packet that is recognized.
    pub(super) fn tcp_at(&self) -> i16 {
        self.layout().tcp
    }

    fn is_v4(&self) -> bool {
        self.addresses.iter().all(IpAddr::is_ipv4)
    }

    fn layout(&self) -> Layout {
        if self.is_v4() { V4 } else { V6 }
    }
}

/// Returns the targets of a socket that listens on `address`.
pub(super) fn targets(address: SocketAddr) -> io::Result<Vec<Target>> {
    let targets = interface::all()?.into_iter().map(|each| target(&each, address));
    Ok(targets.filter(|target| !target.addresses.is_empty()).collect())
}

fn target(at: &Interface, listens_on: SocketAddr) -> Target {
    let ip = listens_on.ip();
    let wanted = |address: &IpAddr| {
        address.is_ipv4() == ip.is_ipv4() && (ip.is_unspecified() || *address == ip)
    };
    let addresses = at.addresses.iter().map(|(address, _)| *address).filter(wanted);
    let addresses = addresses.take(ADDRESSES_MAX).collect();
    Target { interface: at.index, addresses, port: listens_on.port() }
}

/// Where the fields of a packet are, from the first byte of its Ethernet header (RFC 791, RFC 8200,
/// RFC 9293 section 3.1).
struct Layout {
    ethertype: i32,
    /// Byte of the version, which in IPv4 has the length of the header too, its mask and value.
    version: (i16, i32, i32),
    protocol: i16,
    destination: i16,
    tcp: i16,
}

const ETHERNET_BYTES: i16 = 14;
const TCP_BYTES: i32 = 20;

const V4: Layout = Layout {
    ethertype: IPV4,
    version: (ETHERNET_BYTES, 0xff, 0x45),
    protocol: ETHERNET_BYTES + 9,
    destination: ETHERNET_BYTES + 16,
    tcp: ETHERNET_BYTES + 20,
};

const V6: Layout = Layout {
    ethertype: IPV6,
    version: (ETHERNET_BYTES, 0xf0, 0x60),
    protocol: ETHERNET_BYTES + 6,
    destination: ETHERNET_BYTES + 24,
    tcp: ETHERNET_BYTES + 40,
};

/// Offset of the field with the fragment's offset, and its mask with the bit for more fragments, in
/// the order of the packet (RFC 791).
const FRAGMENT_AT: i16 = ETHERNET_BYTES + 6;
const FRAGMENT: u16 = 0x3fff_u16.to_be();

/// Continues if the packet, whose context is in R6, is a SYN for the target; else at `other`.
/// Clobbers R1 to R4.
pub(super) fn recognize(asm: &mut Assembler, target: &Target, other: Label) {
    let layout = target.layout();
    asm.load(Size::W, Reg::R1, Reg::R6, PROTOCOL_AT);
    asm.jump_if_imm(Cmp::Ne, Reg::R1, layout.ethertype, other);
    asm.load(Size::W, Reg::R2, Reg::R6, DATA_AT);
    asm.load(Size::W, Reg::R3, Reg::R6, DATA_END_AT);
    asm.op(Op::Mov, Reg::R4, Reg::R2);
    asm.op_imm(Op::Add, Reg::R4, i32::from(layout.tcp) + TCP_BYTES);
    // Headers that are not in the packet's first piece.
    asm.jump_if(Cmp::Gt, Reg::R4, Reg::R3, other);
    let port = target.port.to_be();
    field_is(asm, (Size::H, layout.tcp + 2), u16::MAX.into(), port.into(), other);
    let flags_at = layout.tcp + FLAGS_AT as i16;
    field_is(asm, (Size::B, flags_at), FLAGS as i32, SYN as i32, other);
    field_is(asm, (Size::B, layout.protocol), 0xff, libc::IPPROTO_TCP, other);
    let (version_at, mask, value) = layout.version;
    field_is(asm, (Size::B, version_at), mask, value, other);
    if target.is_v4() {
        field_is(asm, (Size::H, FRAGMENT_AT), FRAGMENT.into(), 0, other);
    }
    has_destination(asm, layout.destination, &target.addresses, other);
}

/// Continues if a field, masked, has a value; else at `other`.
fn field_is(asm: &mut Assembler, (size, at): (Size, i16), mask: i32, value: i32, other: Label) {
    asm.load(size, Reg::R1, Reg::R2, at);
    asm.op_imm(Op::And, Reg::R1, mask);
    asm.jump_if_imm(Cmp::Ne, Reg::R1, value, other);
}

/// Continues if the destination is one of the addresses; else at `other`.
fn has_destination(asm: &mut Assembler, at: i16, addresses: &[IpAddr], other: Label) {
    let found = asm.label();
    for address in addresses {
        match address {
            IpAddr::V4(address) => {
                asm.load(Size::W, Reg::R1, Reg::R2, at);
                asm.load_number(Reg::R4, u32::from_ne_bytes(address.octets()).into());
                asm.jump_if(Cmp::Eq, Reg::R1, Reg::R4, found);
            }
            IpAddr::V6(address) => {
                let next = asm.label();
                for (half, at) in address.octets().as_chunks().0.iter().zip([at, at + 8]) {
                    asm.load(Size::Dw, Reg::R1, Reg::R2, at);
                    asm.load_number(Reg::R4, u64::from_ne_bytes(*half));
                    asm.jump_if(Cmp::Ne, Reg::R1, Reg::R4, next);
                }
                asm.jump(found);
                asm.place(next);
            }
        }
    }
    asm.jump(other);
    asm.place(found);
}
