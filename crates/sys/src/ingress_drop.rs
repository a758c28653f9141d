//! Dropping packets that only a packet socket is to see: without it the kernel looks for a route
//! for each, and allocates one to find that there is none.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use crate::bpf::{self, Assembler, Cmp, Label, Op, Reg, Size, helper, verdict};
use crate::packet_socket::Addresses;

/// A classifier that drops what an interface receives for a range of addresses, after packet
/// sockets have seen it. It goes when this is dropped.
#[derive(Debug)]
pub struct IngressDrop {
    _link: OwnedFd,
    _program: OwnedFd,
}

/// Offset of the protocol in the context (struct __sk_buff).
const PROTOCOL: i16 = 16;

/// Offset below the frame pointer of a word of the address.
const WORD: i16 = -8;

impl IngressDrop {
    /// Attaches a classifier to the interface number `index`.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_NET_ADMIN; EINVAL before Linux 6.6: bpf(2).
    pub fn attach(index: u32, addresses: Addresses) -> io::Result<Self> {
        let program = bpf::load_classifier(&program(addresses))?;
        let link = bpf::attach_ingress(program.as_fd(), index)?;
        Ok(Self { _link: link, _program: program })
    }
}

fn program(addresses: Addresses) -> Vec<bpf::Instruction> {
    let (ethertype, address_at, words) = match addresses.network {
        IpAddr::V4(network) => (libc::ETH_P_IP, 16, vec![network.octets()]),
        IpAddr::V6(network) => {
            let octets = network.octets();
            let words = octets.chunks_exact(4).filter_map(|word| word.try_into().ok()).collect();
            (libc::ETH_P_IPV6, 24, words)
        }
    };
    let mut asm = Assembler::default();
    let next = asm.label();
    asm.op(Op::Mov, Reg::R6, Reg::R1);
    asm.load(Size::W, Reg::R1, Reg::R6, PROTOCOL);
    // The context has it in the network's order.
    asm.jump_if_imm(Cmp::Ne, Reg::R1, (ethertype as u16).to_be().into(), next);
    let mut left = u32::from(addresses.prefix);
    for (nth, word) in words.into_iter().enumerate() {
        let bits = left.min(32);
        left -= bits;
        if bits > 0 {
            let mask = (u32::MAX << (32 - bits)).to_be();
            test_word(
                &mut asm,
                address_at + 4 * nth as i32,
                (mask, u32::from_ne_bytes(word)),
                next,
            );
        }
    }
    asm.op_imm(Op::Mov, Reg::R0, verdict::DROP);
    asm.exit();
    asm.place(next);
    asm.op_imm(Op::Mov, Reg::R0, verdict::NEXT);
    asm.exit();
    asm.finish()
}

/// Goes to `next` unless the word at `at` of the network's header is that of the network.
fn test_word(asm: &mut Assembler, at: i32, (mask, word): (u32, u32), next: Label) {
    asm.op(Op::Mov, Reg::R1, Reg::R6);
    asm.op_imm(Op::Mov, Reg::R2, at);
    asm.op(Op::Mov, Reg::R3, Reg::R10);
    asm.op_imm(Op::Add, Reg::R3, WORD.into());
    asm.op_imm(Op::Mov, Reg::R4, 4);
    asm.op_imm(Op::Mov, Reg::R5, helper::HEADER_NET);
    asm.call(helper::LOAD_BYTES_RELATIVE);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, 0, next);
    asm.load(Size::W, Reg::R1, Reg::R10, WORD);
    asm.load_number(Reg::R2, mask.into());
    asm.op(Op::And, Reg::R1, Reg::R2);
    asm.load_number(Reg::R2, (word & mask).into());
    asm.jump_if(Cmp::Ne, Reg::R1, Reg::R2, next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_accepts_every_network() {
        for (network, prefix) in
            [("10.77.128.0", 17), ("10.0.0.1", 32), ("fd77::", 64), ("fd77::1", 128)]
        {
            let addresses = Addresses { network: network.parse().unwrap(), prefix };
            match bpf::load_classifier(&program(addresses)) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return println!("skipped: no eBPF program may be loaded: {error}");
                }
                loaded => drop(loaded.unwrap()),
            }
        }
    }
}
