//! The program that counts: reads of each dropped packet which socket it was for, and why it was
//! dropped.

use std::io;
use std::os::fd::BorrowedFd;

use crate::bpf::btf::Btf;
use crate::bpf::{Assembler, Cmp, Instruction, Op, Reg, Size};

/// Listening sockets whose drops are counted: all those of a port in a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listeners {
    /// Inode number of the network namespace: that of `/proc/PID/ns/net`.
    pub network: u32,
    /// Local port.
    pub port: u16,
}

/// Indices of the numbers in the page.
pub(super) mod number {
    pub(in super::super) const OVERFLOW: usize = 0;
    pub(in super::super) const OVERFLOW_OF_COOKIE: usize = 1;
    pub(in super::super) const FILTER: usize = 2;
    pub(in super::super) const OTHER: usize = 3;
    pub(in super::super) const COUNT: usize = 4;
}

/// What the program must know of the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Number of the tracepoint's type, and indices of the reason and of the socket among its
    /// arguments.
    pub(super) tracepoint: u32,
    reason: usize,
    socket: usize,
    /// Offsets of a socket's state, port and network, and of a network's inode number.
    state: i16,
    port: i16,
    network: i16,
    inode: i16,
    /// Reasons: the accept queue was full; no socket came of a cookie; a filter dropped it.
    overflow: u32,
    no_socket: u32,
    filter: u32,
}

impl Kernel {
    /// Looks everything up in the kernel's types.
    ///
    /// # Errors
    /// A sentence that names what this kernel lacks.
    pub(super) fn read(btf: &Btf) -> io::Result<Self> {
        let tracepoint =
            btf.tracepoint("kfree_skb").ok_or_else(|| lacks("no tracepoint kfree_skb"))?;
        let argument = |type_name: &str| {
            let found = btf.argument(tracepoint, type_name);
            found.ok_or_else(|| lacks(&format!("no {type_name} with a dropped packet")))
        };
        let offset = |structure: &str, path: &[&str]| {
            let found = btf.offset(structure, path).and_then(|at| i16::try_from(at).ok());
            found.ok_or_else(|| lacks(&format!("no {structure}.{}", path.join("."))))
        };
        let reason = |name: &str| {
            let found = btf.enumerator("skb_drop_reason", &format!("SKB_DROP_REASON_{name}"));
            found.ok_or_else(|| lacks(&format!("no reason {name}")))
        };
        Ok(Self {
            tracepoint,
            reason: argument("skb_drop_reason")?,
            socket: argument("sock")?,
            state: offset("sock", &["__sk_common", "skc_state"])?,
            port: offset("sock", &["__sk_common", "skc_num"])?,
            network: offset("sock", &["__sk_common", "skc_net", "net"])?,
            inode: offset("net", &["ns", "inum"])?,
            overflow: reason("TCP_LISTEN_OVERFLOW")?,
            no_socket: reason("NO_SOCKET")?,
            filter: reason("SOCKET_FILTER")?,
        })
    }
}

fn lacks(what: &str) -> io::Error {
    io::Error::other(format!("this kernel has {what}: Linux 6.11 or later is needed"))
}

/// State of a listening socket (include/net/tcp_states.h of Linux).
const LISTEN: i32 = 10;

/// Assembles the program. `numbers` is the page whose numbers it counts.
pub(super) fn program(
    kernel: &Kernel,
    listeners: Listeners,
    numbers: BorrowedFd<'_>,
) -> Vec<Instruction> {
    let mut asm = Assembler::default();
    let done = asm.label();
    asm.load(Size::Dw, Reg::R6, Reg::R1, (kernel.reason * 8) as i16);
    asm.load(Size::Dw, Reg::R7, Reg::R1, (kernel.socket * 8) as i16);
    asm.jump_if_imm(Cmp::Eq, Reg::R7, 0, done);
    asm.load(Size::B, Reg::R0, Reg::R7, kernel.state);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, LISTEN, done);
    asm.load(Size::H, Reg::R0, Reg::R7, kernel.port);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, listeners.port.into(), done);
    asm.load(Size::Dw, Reg::R7, Reg::R7, kernel.network);
    asm.load(Size::W, Reg::R0, Reg::R7, kernel.inode);
    asm.load_number(Reg::R1, listeners.network.into());
    asm.jump_if(Cmp::Ne, Reg::R0, Reg::R1, done);
    count(&mut asm, kernel, numbers);
    asm.place(done);
    asm.op_imm(Op::Mov, Reg::R0, 0);
    asm.exit();
    asm.finish()
}

/// Adds 1 to the number for the reason in R6.
fn count(asm: &mut Assembler, kernel: &Kernel, numbers: BorrowedFd<'_>) {
    let add = asm.label();
    let kinds = [
        (kernel.overflow, number::OVERFLOW),
        (kernel.no_socket, number::OVERFLOW_OF_COOKIE),
        (kernel.filter, number::FILTER),
    ];
    asm.load_map_value(Reg::R1, numbers);
    asm.op_imm(Op::Mov, Reg::R2, 1);
    for (reason, number) in kinds {
        let next = asm.label();
        asm.jump_if_imm(Cmp::Ne, Reg::R6, reason as i32, next);
        asm.op_imm(Op::Add, Reg::R1, (number * size_of::<u64>()) as i32);
        asm.jump(add);
        asm.place(next);
    }
    asm.op_imm(Op::Add, Reg::R1, (number::OTHER * size_of::<u64>()) as i32);
    asm.place(add);
    asm.atomic_add(Reg::R1, 0, Reg::R2);
}
