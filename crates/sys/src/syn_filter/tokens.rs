//! A filter that lets a SYN through against a token, and keeps some of the tokens for sources that
//! have not had their share: eBPF (SO_ATTACH_BPF, socket(7)).
//!
//! The program and its owner share a page of numbers. The owner says how many SYNs may pass in all,
//! the program counts those that did: a token more is a store, and no count is ever lost between
//! the two. A source is an address (of IPv6, its /64); those of a network (/24, /48) have the
//! shares of a few together. Which of them has had its share is kept in two maps that forget who
//! has not been seen for longest, by the rules of `weir_accept::Shares`, with the numbers that the
//! owner gives: this is the same table, in the place where a SYN can still be dropped for nothing.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use super::{DROP, FLAGS, FLAGS_AT, PASS, SYN, set_option};
use crate::bpf::{self, Assembler, Cmp, Op, Reg, SharedPage, Size, helper};

/// The rules of the shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Tokens a source may have saved.
    pub burst: u32,
    /// Addresses of one network that have a share each.
    pub addresses_counted_max: u32,
    /// Length of an epoch: 2 to this power, nanoseconds.
    pub epoch_bits: u32,
}

/// Orders to the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// SYNs that may pass in all, since the filter was made.
    pub limit: u64,
    /// The last of these, kept for sources that have not had their share.
    pub reserve: u64,
    /// Time between two SYNs let through, nanoseconds, which sources share; 0 is no shares.
    pub share_ns: u64,
}

/// Counts of the filter since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// SYNs let through.
    pub passed: u64,
    /// SYNs dropped.
    pub dropped: u64,
    /// Of these, SYNs of sources that had had their share.
    pub dropped_unfair: u64,
    /// The weight of the sources seen in this epoch or the last.
    pub weight: u64,
}

/// The filter. It can be attached to several sockets, which then share its tokens.
#[derive(Debug)]
pub struct TokenFilter {
    page: SharedPage,
    program: OwnedFd,
}

/// The numbers of the page, in their order.
mod number {
    pub(super) const LIMIT: usize = 0;
    pub(super) const RESERVE: usize = 1;
    pub(super) const SHARE_NS: usize = 2;
    pub(super) const PASSED: usize = 3;
    pub(super) const DROPPED: usize = 4;
    pub(super) const DROPPED_UNFAIR: usize = 5;
    pub(super) const EPOCH: usize = 6;
    pub(super) const WEIGHT: usize = 7;
    pub(super) const WEIGHT_BEFORE: usize = 8;
    pub(super) const COUNT: usize = 9;
}

/// Sources and networks remembered.
const ADDRESSES: u32 = 8192;
const NETWORKS: u32 = 2048;

impl TokenFilter {
    /// Makes a filter that lets every SYN through.
    ///
    /// # Errors
    /// EPERM without CAP_BPF (or CAP_SYS_ADMIN); EINVAL, EACCES from kernels before 5.12; ENOMEM:
    /// bpf(2).
    pub fn new(rules: Rules) -> io::Result<Self> {
        let page = SharedPage::new(number::COUNT)?;
        page.numbers()[number::LIMIT].store(u64::MAX, Relaxed);
        let addresses = bpf::lru_hash(address::BYTES, ADDRESSES)?;
        let networks = bpf::lru_hash(network::BYTES, NETWORKS)?;
        let maps = Maps { page: page.map(), addresses: &addresses, networks: &networks };
        // The program holds on to its maps.
        let program = bpf::load_socket_filter(&program(rules, &maps))?;
        Ok(Self { page, program })
    }

    /// Puts the filter before a listening socket, in the place of the one that was there.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN where Linux asks for it ([`super::random::attach`]), or when the
    /// filter is locked (SO_LOCK_FILTER); ENOMEM past net.core.optmem_max; EBADF, ENOTSOCK:
    /// setsockopt(2).
    pub fn attach(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        set_option(listener, libc::SO_ATTACH_BPF, &self.program.as_raw_fd())
    }

    /// Says what is let through from now on.
    pub fn set(&self, tokens: Tokens) {
        let numbers = self.page.numbers();
        numbers[number::RESERVE].store(tokens.reserve, Relaxed);
        numbers[number::SHARE_NS].store(tokens.share_ns, Relaxed);
        numbers[number::LIMIT].store(tokens.limit, Relaxed);
    }

    /// Lets every SYN through.
    pub fn open(&self) {
        self.page.numbers()[number::LIMIT].store(u64::MAX, Relaxed);
    }

    /// Counts so far: a look at memory, and no call.
    pub fn counts(&self) -> Counts {
        let number = |index: usize| self.page.numbers()[index].load(Relaxed);
        Counts {
            passed: number(number::PASSED),
            dropped: number(number::DROPPED),
            dropped_unfair: number(number::DROPPED_UNFAIR),
            weight: number(number::WEIGHT).max(number(number::WEIGHT_BEFORE)),
        }
    }
}

/// What is remembered of an address: when its bucket is full again, and its last epoch.
mod address {
    pub(super) const FULL_NS: i16 = 0;
    pub(super) const EPOCH: i16 = 8;
    pub(super) const BYTES: u32 = 16;
}

/// What is remembered of a network: its last epoch, its addresses in it and in the one before.
mod network {
    pub(super) const EPOCH: i16 = 0;
    pub(super) const COUNT: i16 = 8;
    pub(super) const BEFORE: i16 = 12;
    pub(super) const BYTES: u32 = 16;
}

/// The program's stack, from its end.
mod stack {
    pub(super) const IS_FAIR: i16 = -8;
    pub(super) const EPOCH: i16 = -16;
    pub(super) const ADDRESS: i16 = -24;
    pub(super) const NETWORK: i16 = -32;
    pub(super) const NEW: i16 = -48;
    pub(super) const DUE_NS: i16 = -56;
}

/// Where the context of a packet has its protocol (`struct __sk_buff`), and IPv6's number there.
const PROTOCOL_AT: i16 = 16;
const IPV6: i32 = (libc::ETH_P_IPV6 as u16).to_be() as i32;

/// Where the source stands in the headers of IPv4 and IPv6 (RFC 791, RFC 8200), and what of it is
/// the address and the network, as bytes in their order make a number on this machine.
const V4_SOURCE: (i32, i32) = (12, 4);
const V6_SOURCE: (i32, i32) = (8, 8);
const V4_NETWORK: u64 = u64::from_ne_bytes([255, 255, 255, 0, 0, 0, 0, 0]);
const V6_NETWORK: u64 = u64::from_ne_bytes([255, 255, 255, 255, 255, 255, 0, 0]);

struct Maps<'a> {
    page: BorrowedFd<'a>,
    addresses: &'a OwnedFd,
    networks: &'a OwnedFd,
}

fn at(number: usize) -> i16 {
    (number * size_of::<u64>()) as i16
}

/// The program. R6 is the packet, R7 the page, R8 the time, R9 what is known of the address, or 0.
fn program(rules: Rules, maps: &Maps<'_>) -> Vec<bpf::Instruction> {
    let mut asm = Assembler::default();
    let (pass, count, decide) = (asm.label(), asm.label(), asm.label());
    asm.op(Op::Mov, Reg::R6, Reg::R1);
    asm.load_packet_byte(FLAGS_AT as i32);
    asm.op_imm(Op::And, Reg::R0, FLAGS as i32);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, SYN as i32, pass);
    asm.load_map_value(Reg::R7, maps.page);
    asm.op_imm(Op::Mov, Reg::R9, 0);
    asm.op_imm(Op::Mov, Reg::R1, 1);
    asm.store(Size::Dw, Reg::R10, stack::IS_FAIR, Reg::R1);
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::LIMIT));
    asm.jump_if_imm(Cmp::Eq, Reg::R1, -1, count);
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::SHARE_NS));
    asm.jump_if_imm(Cmp::Eq, Reg::R1, 0, decide);
    turn_epoch(&mut asm, rules);
    name_source(&mut asm, decide);
    find_source(&mut asm, rules, maps, decide);
    weigh_claim(&mut asm, rules);
    asm.place(decide);
    judge(&mut asm, count);
    asm.place(count);
    count_one(&mut asm, number::PASSED);
    asm.place(pass);
    asm.op_imm(Op::Mov, Reg::R0, PASS as i32);
    asm.exit();
    asm.finish()
}

/// The time, its epoch, and the weight of the epoch before when another has begun.
fn turn_epoch(asm: &mut Assembler, rules: Rules) {
    let (same, skipped) = (asm.label(), asm.label());
    asm.call(helper::KTIME_NS);
    asm.op(Op::Mov, Reg::R8, Reg::R0);
    asm.op(Op::Mov, Reg::R2, Reg::R0);
    asm.op_imm(Op::Shr, Reg::R2, rules.epoch_bits as i32);
    // None is 0, which is what a new entry has.
    asm.op_imm(Op::Add, Reg::R2, 1);
    asm.store(Size::Dw, Reg::R10, stack::EPOCH, Reg::R2);
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::EPOCH));
    asm.jump_if(Cmp::Eq, Reg::R1, Reg::R2, same);
    asm.op_imm(Op::Mov, Reg::R3, 0);
    asm.op_imm(Op::Add, Reg::R1, 1);
    asm.jump_if(Cmp::Ne, Reg::R1, Reg::R2, skipped);
    asm.load(Size::Dw, Reg::R3, Reg::R7, at(number::WEIGHT));
    asm.place(skipped);
    asm.store(Size::Dw, Reg::R7, at(number::WEIGHT_BEFORE), Reg::R3);
    asm.op_imm(Op::Mov, Reg::R3, 0);
    asm.store(Size::Dw, Reg::R7, at(number::WEIGHT), Reg::R3);
    asm.store(Size::Dw, Reg::R7, at(number::EPOCH), Reg::R2);
    asm.place(same);
}

/// The address and the network, onto the stack; one whose packet cannot be read has its share.
fn name_source(asm: &mut Assembler, decide: bpf::Label) {
    let (v6, named) = (asm.label(), asm.label());
    asm.op_imm(Op::Mov, Reg::R1, 0);
    asm.store(Size::Dw, Reg::R10, stack::ADDRESS, Reg::R1);
    asm.load(Size::W, Reg::R1, Reg::R6, PROTOCOL_AT);
    asm.jump_if_imm(Cmp::Eq, Reg::R1, IPV6, v6);
    read_source(asm, V4_SOURCE, V4_NETWORK, decide);
    asm.jump(named);
    asm.place(v6);
    read_source(asm, V6_SOURCE, V6_NETWORK, decide);
    asm.place(named);
    asm.store(Size::Dw, Reg::R10, stack::NETWORK, Reg::R1);
}

fn read_source(asm: &mut Assembler, (at, bytes): (i32, i32), mask: u64, decide: bpf::Label) {
    asm.op(Op::Mov, Reg::R1, Reg::R6);
    asm.op_imm(Op::Mov, Reg::R2, at);
    asm.op(Op::Mov, Reg::R3, Reg::R10);
    asm.op_imm(Op::Add, Reg::R3, stack::ADDRESS.into());
    asm.op_imm(Op::Mov, Reg::R4, bytes);
    asm.op_imm(Op::Mov, Reg::R5, helper::HEADER_NET);
    asm.call(helper::LOAD_BYTES_RELATIVE);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, 0, decide);
    asm.load(Size::Dw, Reg::R1, Reg::R10, stack::ADDRESS);
    asm.load_number(Reg::R2, mask);
    asm.op(Op::And, Reg::R1, Reg::R2);
}

/// What is known of the address, in R9, and of its network, in R0, both as of this epoch; the
/// weight grows by an address that is new in it.
fn find_source(asm: &mut Assembler, rules: Rules, maps: &Maps<'_>, decide: bpf::Label) {
    use std::os::fd::AsFd;
    let (turned, skipped, seen) = (asm.label(), asm.label(), asm.label());
    look_up(asm, maps.networks.as_fd(), stack::NETWORK, decide);
    asm.op(Op::Mov, Reg::R9, Reg::R0);
    asm.load(Size::Dw, Reg::R2, Reg::R10, stack::EPOCH);
    asm.load(Size::Dw, Reg::R1, Reg::R9, network::EPOCH);
    asm.jump_if(Cmp::Eq, Reg::R1, Reg::R2, turned);
    asm.op_imm(Op::Mov, Reg::R3, 0);
    asm.op_imm(Op::Add, Reg::R1, 1);
    asm.jump_if(Cmp::Ne, Reg::R1, Reg::R2, skipped);
    asm.load(Size::W, Reg::R3, Reg::R9, network::COUNT);
    asm.place(skipped);
    asm.store(Size::W, Reg::R9, network::BEFORE, Reg::R3);
    asm.op_imm(Op::Mov, Reg::R3, 0);
    asm.store(Size::W, Reg::R9, network::COUNT, Reg::R3);
    asm.store(Size::Dw, Reg::R9, network::EPOCH, Reg::R2);
    asm.place(turned);
    // The network moves to the stack, the address takes its place.
    asm.store(Size::Dw, Reg::R10, stack::NETWORK, Reg::R9);
    asm.op_imm(Op::Mov, Reg::R9, 0);
    look_up(asm, maps.addresses.as_fd(), stack::ADDRESS, decide);
    asm.op(Op::Mov, Reg::R9, Reg::R0);
    asm.load(Size::Dw, Reg::R0, Reg::R10, stack::NETWORK);
    asm.load(Size::Dw, Reg::R2, Reg::R10, stack::EPOCH);
    asm.load(Size::Dw, Reg::R1, Reg::R9, address::EPOCH);
    asm.jump_if(Cmp::Eq, Reg::R1, Reg::R2, seen);
    asm.store(Size::Dw, Reg::R9, address::EPOCH, Reg::R2);
    asm.load(Size::W, Reg::R3, Reg::R0, network::COUNT);
    asm.op_imm(Op::Add, Reg::R3, 1);
    asm.store(Size::W, Reg::R0, network::COUNT, Reg::R3);
    asm.jump_if_imm(Cmp::Gt, Reg::R3, rules.addresses_counted_max as i32, seen);
    asm.load(Size::Dw, Reg::R4, Reg::R7, at(number::WEIGHT));
    asm.op_imm(Op::Add, Reg::R4, 1);
    asm.store(Size::Dw, Reg::R7, at(number::WEIGHT), Reg::R4);
    asm.place(seen);
}

/// R0 = the entry of a key on the stack, which is made when there is none.
fn look_up(asm: &mut Assembler, map: BorrowedFd<'_>, key: i16, decide: bpf::Label) {
    let found = asm.label();
    let lookup = |asm: &mut Assembler| {
        asm.load_map(Reg::R1, map);
        asm.op(Op::Mov, Reg::R2, Reg::R10);
        asm.op_imm(Op::Add, Reg::R2, key.into());
    };
    lookup(asm);
    asm.call(helper::MAP_LOOKUP);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, 0, found);
    asm.op_imm(Op::Mov, Reg::R1, 0);
    asm.store(Size::Dw, Reg::R10, stack::NEW, Reg::R1);
    asm.store(Size::Dw, Reg::R10, stack::NEW + 8, Reg::R1);
    lookup(asm);
    asm.op(Op::Mov, Reg::R3, Reg::R10);
    asm.op_imm(Op::Add, Reg::R3, stack::NEW.into());
    asm.op_imm(Op::Mov, Reg::R4, 0);
    asm.call(helper::MAP_UPDATE);
    lookup(asm);
    asm.call(helper::MAP_LOOKUP);
    asm.jump_if_imm(Cmp::Eq, Reg::R0, 0, decide);
    asm.place(found);
}

/// Whether the address in R9, of the network in R0, has had its share, and when its bucket will be
/// full if it is let in.
fn weigh_claim(asm: &mut Assembler, rules: Rules) {
    let (more, many, heavier, later, fair) =
        (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
    let counted_max = rules.addresses_counted_max as i32;
    asm.load(Size::W, Reg::R3, Reg::R0, network::COUNT);
    asm.load(Size::W, Reg::R4, Reg::R0, network::BEFORE);
    asm.jump_if(Cmp::Ge, Reg::R3, Reg::R4, more);
    asm.op(Op::Mov, Reg::R3, Reg::R4);
    asm.place(more);
    asm.jump_if_imm(Cmp::Ge, Reg::R3, counted_max, many);
    asm.op_imm(Op::Mov, Reg::R3, counted_max);
    asm.place(many);
    asm.load(Size::Dw, Reg::R4, Reg::R7, at(number::WEIGHT));
    asm.load(Size::Dw, Reg::R5, Reg::R7, at(number::WEIGHT_BEFORE));
    asm.jump_if(Cmp::Ge, Reg::R4, Reg::R5, heavier);
    asm.op(Op::Mov, Reg::R4, Reg::R5);
    asm.place(heavier);
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::SHARE_NS));
    asm.op(Op::Mul, Reg::R1, Reg::R4);
    asm.op(Op::Mul, Reg::R1, Reg::R3);
    asm.op_imm(Op::Div, Reg::R1, counted_max);
    asm.load(Size::Dw, Reg::R2, Reg::R9, address::FULL_NS);
    asm.jump_if(Cmp::Ge, Reg::R2, Reg::R8, later);
    asm.op(Op::Mov, Reg::R2, Reg::R8);
    asm.place(later);
    asm.op(Op::Mov, Reg::R3, Reg::R2);
    asm.op(Op::Add, Reg::R3, Reg::R1);
    asm.store(Size::Dw, Reg::R10, stack::DUE_NS, Reg::R3);
    asm.op(Op::Sub, Reg::R2, Reg::R8);
    asm.op_imm(Op::Mul, Reg::R1, rules.burst.saturating_sub(1) as i32);
    asm.jump_if(Cmp::Le, Reg::R2, Reg::R1, fair);
    asm.op_imm(Op::Mov, Reg::R1, 0);
    asm.store(Size::Dw, Reg::R10, stack::IS_FAIR, Reg::R1);
    asm.place(fair);
}

/// Drops the SYN, or has its source pay and goes on at `count`.
fn judge(asm: &mut Assembler, count: bpf::Label) {
    let (known, enough, granted, dropped) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::LIMIT));
    asm.load(Size::Dw, Reg::R4, Reg::R10, stack::IS_FAIR);
    asm.jump_if_imm(Cmp::Ne, Reg::R4, 0, known);
    asm.load(Size::Dw, Reg::R3, Reg::R7, at(number::RESERVE));
    asm.jump_if(Cmp::Ge, Reg::R1, Reg::R3, enough);
    asm.op(Op::Mov, Reg::R3, Reg::R1);
    asm.place(enough);
    asm.op(Op::Sub, Reg::R1, Reg::R3);
    asm.place(known);
    asm.load(Size::Dw, Reg::R2, Reg::R7, at(number::PASSED));
    asm.jump_if(Cmp::Lt, Reg::R2, Reg::R1, granted);
    asm.jump_if_imm(Cmp::Ne, Reg::R4, 0, dropped);
    count_one(asm, number::DROPPED_UNFAIR);
    asm.place(dropped);
    count_one(asm, number::DROPPED);
    asm.op_imm(Op::Mov, Reg::R0, DROP as i32);
    asm.exit();
    asm.place(granted);
    asm.jump_if_imm(Cmp::Eq, Reg::R9, 0, count);
    asm.load(Size::Dw, Reg::R1, Reg::R10, stack::DUE_NS);
    asm.store(Size::Dw, Reg::R9, address::FULL_NS, Reg::R1);
}

fn count_one(asm: &mut Assembler, number: usize) {
    asm.op_imm(Op::Mov, Reg::R1, 1);
    asm.atomic_add(Reg::R7, at(number), Reg::R1);
}
