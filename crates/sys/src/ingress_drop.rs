//! Dropping packets that only a packet socket is to see: without it the kernel looks for a route
//! for each, and allocates one to find that there is none.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::bpf::{self, Assembler, Cmp, Label, Op, Reg, Size, helper, verdict};
use crate::network::{Network, Word};

/// A classifier that drops what an interface receives for the addresses of a network, after packet
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
    pub fn attach(index: u32, network: Network) -> io::Result<Self> {
        let program = bpf::load_classifier(&program(network))?;
        let link = bpf::attach_ingress(program.as_fd(), index)?;
        Ok(Self { _link: link, _program: program })
    }
}

fn program(network: Network) -> Vec<bpf::Instruction> {
    let (ethertype, address_at) =
        if network.first.is_ipv4() { (libc::ETH_P_IP, 16) } else { (libc::ETH_P_IPV6, 24) };
    let mut asm = Assembler::default();
    let next = asm.label();
    asm.op(Op::Mov, Reg::R6, Reg::R1);
    asm.load(Size::W, Reg::R1, Reg::R6, PROTOCOL);
    // The context has it in the network's order.
    asm.jump_if_imm(Cmp::Ne, Reg::R1, (ethertype as u16).to_be().into(), next);
    for word in network.words() {
        test_word(&mut asm, address_at, word, next);
    }
    asm.op_imm(Op::Mov, Reg::R0, verdict::DROP);
    asm.exit();
    asm.place(next);
    asm.op_imm(Op::Mov, Reg::R0, verdict::NEXT);
    asm.exit();
    asm.finish()
}

/// Goes to `next` unless the word of the address at `address_at` of the header is the network's.
fn test_word(asm: &mut Assembler, address_at: i32, word: Word, next: Label) {
    asm.op(Op::Mov, Reg::R1, Reg::R6);
    asm.op_imm(Op::Mov, Reg::R2, address_at + word.at as i32);
    asm.op(Op::Mov, Reg::R3, Reg::R10);
    asm.op_imm(Op::Add, Reg::R3, WORD.into());
    asm.op_imm(Op::Mov, Reg::R4, 4);
    asm.op_imm(Op::Mov, Reg::R5, helper::HEADER_NET);
    asm.call(helper::LOAD_BYTES_RELATIVE);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, 0, next);
    asm.load(Size::W, Reg::R1, Reg::R10, WORD);
    // As it stands in the packet.
    asm.load_number(Reg::R2, word.mask.to_be().into());
    asm.op(Op::And, Reg::R1, Reg::R2);
    asm.load_number(Reg::R2, word.wanted.to_be().into());
    asm.jump_if(Cmp::Ne, Reg::R1, Reg::R2, next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_accepts_every_network() {
        let networks = [("10.77.128.0", 17), ("10.0.0.1", 32), ("fd77::", 64), ("fd77::1", 128)];
        for (first, prefix) in networks {
            let network = Network { first: first.parse().unwrap(), prefix };
            match bpf::load_classifier(&program(network)) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return println!("skipped: no eBPF program may be loaded: {error}");
                }
                loaded => drop(loaded.unwrap()),
            }
        }
    }
}
