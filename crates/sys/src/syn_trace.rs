//! A count of the connection requests that reach a network's links: eBPF at the tracepoint
//! `net:netif_rx`, where a device hands a packet to the kernel. Nothing has dropped it yet but the
//! device: the processor's backlog queue, the firewall, the listening socket and its filter are all
//! behind. Every SYN counts, retransmitted ones too.
//!
//! Veth and loopback devices hand all packets over there. Those that the kernel polls (NAPI) do not
//! pass it, and neither does a veth device with GRO turned on, which it is not by default.

use std::io;
use std::os::fd::BorrowedFd;

use crate::bpf::btf::Btf;
use crate::bpf::{Assembler, Cmp, Instruction, Label, Op, Reg, Size, Trace, helper};
use crate::drop_trace::Listeners;

/// A count, which ends when it is dropped.
#[derive(Debug)]
pub struct SynTrace(Trace);

impl SynTrace {
    /// Begins to count the SYNs to a port that reach a network.
    ///
    /// # Errors
    /// A sentence that says why this is not possible: no privilege (CAP_BPF and CAP_PERFMON), or a
    /// kernel that lacks what is needed (BTF).
    pub fn begin(listeners: Listeners) -> io::Result<Self> {
        Trace::begin(1, |btf, numbers| {
            let kernel = Kernel::read(btf)?;
            Ok((kernel.tracepoint, program(&kernel, listeners, numbers)))
        })
        .map(Self)
    }

    /// Returns the SYNs so far: a memory read, no call.
    pub fn count(&self) -> u64 {
        self.0.number(0)
    }
}

/// What the program must know of the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kernel {
    /// Number of the tracepoint's type, and index of the packet among its arguments.
    tracepoint: u32,
    packet: usize,
    /// Offsets of a packet's device and data, of a device's network, and of a network's inode
    /// number.
    device: i16,
    data: i16,
    network: i16,
    inode: i16,
}

impl Kernel {
    fn read(btf: &Btf) -> io::Result<Self> {
        let lacks = |what: &str| io::Error::other(format!("this kernel has no {what}"));
        let tracepoint = btf.tracepoint("netif_rx").ok_or_else(|| lacks("tracepoint netif_rx"))?;
        let offset = |structure: &str, path: &[&str]| {
            let found = btf.offset(structure, path).and_then(|at| i16::try_from(at).ok());
            found.ok_or_else(|| lacks(&format!("{structure}.{}", path.join("."))))
        };
        Ok(Self {
            tracepoint,
            packet: btf
                .argument(tracepoint, "sk_buff")
                .ok_or_else(|| lacks("packet at the tracepoint netif_rx"))?,
            device: offset("sk_buff", &["dev"])?,
            data: offset("sk_buff", &["data"])?,
            network: offset("net_device", &["nd_net", "net"])?,
            inode: offset("net", &["ns", "inum"])?,
        })
    }
}

/// Size of the header of IPv6, and of that of IPv4 with as much behind it, bytes (RFC 8200 section
/// 3, RFC 791 section 3.1).
const IP_BYTES: i32 = 40;
/// Position in the stack of a copy of such a header, and then of one of TCP.
const COPY: i16 = -(IP_BYTES as i16);
/// Size of the part of a TCP header up to its flags, bytes (RFC 9293 section 3.1).
const TCP_BYTES: i32 = 14;

/// Protocol number of TCP.
const TCP: i32 = 6;

/// Mask of FIN, SYN, RST and ACK; and SYN alone.
const FLAGS: i32 = 0x17;
const SYN: i32 = 0x02;

/// Returns a number of 16 bits in the order of the network as a load finds it.
fn of_network(number: u16) -> i32 {
    u16::from_ne_bytes(number.to_be_bytes()).into()
}

/// Assembles the program. `numbers` is the page whose first number it counts.
fn program(kernel: &Kernel, listeners: Listeners, numbers: BorrowedFd<'_>) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    let done = asm.label();
    asm.load(Size::Dw, Reg::R7, Reg::R1, (kernel.packet * 8) as i16);
    asm.load(Size::Dw, Reg::R1, Reg::R7, kernel.device);
    asm.load(Size::Dw, Reg::R1, Reg::R1, kernel.network);
    asm.load(Size::W, Reg::R0, Reg::R1, kernel.inode);
    asm.load_number(Reg::R1, listeners.network.into());
    asm.jump_if(Cmp::Ne, Reg::R0, Reg::R1, done);
    // The data begins with the network's header: the device has taken off its own.
    asm.load(Size::Dw, Reg::R8, Reg::R7, kernel.data);
    copy(&mut asm, IP_BYTES, done);
    add_ip_header(&mut asm, done);
    copy(&mut asm, TCP_BYTES, done);
    asm.load(Size::H, Reg::R0, Reg::R10, COPY + 2);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, of_network(listeners.port), done);
    asm.load(Size::B, Reg::R0, Reg::R10, COPY + 13);
    asm.op_imm(Op::And, Reg::R0, FLAGS);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, SYN, done);
    asm.load_map_value(Reg::R1, numbers);
    asm.op_imm(Op::Mov, Reg::R2, 1);
    asm.atomic_add(Reg::R1, 0, Reg::R2);
    asm.place(done);
    asm.op_imm(Op::Mov, Reg::R0, 0);
    asm.exit();
    asm.finish()
}

/// Copies `bytes` from the address in R8 to the stack.
fn copy(asm: &mut Assembler, bytes: i32, failed: Label) {
    asm.op(Op::Mov, Reg::R1, Reg::R10);
    asm.op_imm(Op::Add, Reg::R1, COPY.into());
    asm.op_imm(Op::Mov, Reg::R2, bytes);
    asm.op(Op::Mov, Reg::R3, Reg::R8);
    asm.call(helper::PROBE_READ_KERNEL);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, 0, failed);
}

/// Adds to R8 the size of the header in the stack, unless no header of TCP follows: the packet is
/// of another protocol, a fragment but the first, or has extension headers.
fn add_ip_header(asm: &mut Assembler, done: Label) {
    let (is_v6, known) = (asm.label(), asm.label());
    asm.load(Size::B, Reg::R6, Reg::R10, COPY);
    asm.op(Op::Mov, Reg::R0, Reg::R6);
    asm.op_imm(Op::Shr, Reg::R0, 4);
    asm.jump_if_imm(Cmp::Eq, Reg::R0, 6, is_v6);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, 4, done);
    asm.load(Size::B, Reg::R0, Reg::R10, COPY + 9);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, TCP, done);
    asm.load(Size::H, Reg::R0, Reg::R10, COPY + 6);
    asm.op_imm(Op::And, Reg::R0, of_network(0x1fff));
    asm.jump_if_imm(Cmp::Ne, Reg::R0, 0, done);
    asm.op_imm(Op::And, Reg::R6, 0xf);
    asm.op_imm(Op::Mul, Reg::R6, 4);
    asm.jump(known);
    asm.place(is_v6);
    asm.load(Size::B, Reg::R0, Reg::R10, COPY + 6);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, TCP, done);
    asm.op_imm(Op::Mov, Reg::R6, IP_BYTES);
    asm.place(known);
    asm.op(Op::Add, Reg::R8, Reg::R6);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use crate::bpf::in_two_networks;
    use crate::syn_filter::random;

    fn begin(port: u16) -> Option<[SynTrace; 2]> {
        in_two_networks(|network| SynTrace::begin(Listeners { network, port }))
    }

    #[test]
    fn each_request_counts_once_for_its_port_and_network_whatever_follows() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("skipped: no {address}");
                continue;
            };
            let another = TcpListener::bind(address).unwrap();
            let address = listener.local_addr().unwrap();
            let Some([trace, elsewhere]) = begin(address.port()) else { return };
            for _ in 0..7 {
                let mut client = TcpStream::connect(address).unwrap();
                client.write_all(b"a").unwrap();
                let (mut conn, _) = listener.accept().unwrap();
                conn.read_exact(&mut [0]).unwrap();
            }
            drop(TcpStream::connect(another.local_addr().unwrap()).unwrap());
            assert_eq!((trace.count(), elsewhere.count()), (7, 0), "{address}");
        }
    }

    #[test]
    fn a_request_counts_that_is_then_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let Some([trace, _]) = begin(address.port()) else { return };
        random::attach(listener.as_fd(), 1.0).unwrap();
        TcpStream::connect_timeout(&address, Duration::from_millis(1)).unwrap_err();
        assert!(trace.count() >= 1);
    }
}
