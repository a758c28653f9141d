//! A filter that admits SYNs against tokens, and reserves some of the tokens for sources that have
//! not used up their share: eBPF (SO_ATTACH_BPF, socket(7)).
//!
//! The program and its owner share a page of numbers. The owner sets how many SYNs may pass in
//! total, and the program counts those that did: adding a token is a store, and no count is ever
//! lost between the two. A source is an address (for IPv6, its /64); the sources of one network
//! (/24, /48) share the allotment of a few. Two LRU maps record which of them, and which networks,
//! have used up their share, by the rules of `weir_accept::Shares` and with parameters set by the
//! owner. It is the same table, at the place where dropping a SYN still costs nothing.
//!
//! A third one remembers SYNs that were dropped. A client sends the same again, after a second or
//! so (RFC 6298 section 2); some of the tokens can be kept for those who send their first.
//!
//! The same program can run at the link too (`link.rs`): a SYN that is dropped there has cost
//! the kernel neither the work of IP nor the lookup of its socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use super::link::{self, Target};
use super::{DROP, FLAGS, FLAGS_AT, PASS, SYN, set_option};
use crate::bpf::{self, Assembler, Cmp, Op, Reg, SharedPage, Size, helper, verdict};

/// Parameters of the shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Maximum number of tokens a source may save up.
    pub burst: u32,
    /// Number of addresses of one network that each get a share.
    pub addresses_counted_max: u32,
    /// Length of an epoch, as a power of two of nanoseconds.
    pub epoch_bits: u32,
    /// Maximum number of dropped SYNs remembered, of 80 bytes each, by which those that come again
    /// are known; 0: none are.
    pub dropped_max: u32,
}

/// Admission limits set by the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// SYNs that may pass in total since the filter was created.
    pub limit: u64,
    /// The last tokens of the limit, reserved for sources that have not used up their share.
    pub reserve: u64,
    /// Interval between admitted SYNs, nanoseconds, divided among the sources; 0 disables shares.
    pub share_ns: u64,
    /// The last tokens of the limit, kept for SYNs that were not dropped before; 0: those are told
    /// apart no longer, nor remembered.
    pub for_first: u64,
}

/// Counters of the filter since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// SYNs admitted.
    pub passed: u64,
    /// SYNs dropped.
    pub dropped: u64,
    /// SYNs dropped from sources that had used up their share; included in `dropped`.
    pub dropped_unfair: u64,
    /// SYNs dropped that had been dropped before; included in `dropped`.
    pub dropped_again: u64,
    /// Weight of the sources seen in this epoch or in the previous one, whichever is greater.
    pub weight: u64,
}

/// The filter. It can be attached to several sockets, which then share its tokens.
#[derive(Debug)]
pub struct TokenFilter {
    rules: Rules,
    maps: Maps,
    program: OwnedFd,
    /// Attachments to interfaces, which last as long as this.
    links: Vec<OwnedFd>,
}

/// What the program shares with its owner, and what it remembers.
#[derive(Debug)]
struct Maps {
    page: SharedPage,
    addresses: OwnedFd,
    networks: OwnedFd,
    /// Dropped SYNs, if any are remembered.
    dropped: Option<OwnedFd>,
}

/// Indices of the numbers in the page. A filter may be of an earlier build's process, whose page
/// has fewer, so that others come at the end.
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
    pub(super) const FOR_FIRST: usize = 9;
    pub(super) const DROPPED_AGAIN: usize = 10;
    pub(super) const COUNT: usize = 11;
}

/// Maximum numbers of sources and of networks remembered.
const ADDRESSES: u32 = 8192;
const NETWORKS: u32 = 2048;

impl TokenFilter {
    /// Creates a filter that passes every SYN.
    ///
    /// # Errors
    /// EPERM without CAP_BPF (or CAP_SYS_ADMIN); EINVAL, EACCES from kernels before 5.12; ENOMEM:
    /// bpf(2).
    pub fn new(rules: Rules) -> io::Result<Self> {
        let page = SharedPage::new(number::COUNT)?;
        page.numbers()[number::LIMIT].store(u64::MAX, Relaxed);
        let addresses = bpf::lru_hash(address::BYTES, ADDRESSES)?;
        let networks = bpf::lru_hash(network::BYTES, NETWORKS)?;
        let dropped = match rules.dropped_max {
            0 => None,
            most => Some(bpf::lru_hash(dropped::BYTES, most)?),
        };
        let maps = Maps { page, addresses, networks, dropped };
        let program = bpf::load_socket_filter(&program(rules, &maps, &Place::Socket))?;
        Ok(Self { rules, maps, program, links: Vec::new() })
    }

    /// Attaches the filter to the interfaces at which SYNs for a socket that listens on `address`
    /// arrive, for as long as the filter lives, and returns their number. It drops there while it
    /// has a limit; what arrives elsewhere, or is not recognized, is left to the socket's filter,
    /// which judges no SYN twice. Does nothing if it is attached to interfaces already.
    ///
    /// The interfaces are those of Ethernet that have the address, or any for an unspecified one;
    /// addresses that they are given later are not recognized.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN and CAP_BPF; EINVAL before Linux 6.6: bpf(2). Errors of
    /// getifaddrs(3). After an error it is attached to no interface.
    pub fn attach_to_links(&mut self, address: SocketAddr) -> io::Result<usize> {
        if self.links.is_empty() {
            let attach = |target: &Target| {
                let place = Place::Link(target);
                let program = bpf::load_classifier(&program(self.rules, &self.maps, &place))?;
                bpf::attach_ingress(program.as_fd(), target.interface)
            };
            self.links = link::targets(address)?.iter().map(attach).collect::<io::Result<_>>()?;
        }
        Ok(self.links.len())
    }

    /// Takes over a filter that another process has made by these rules, by its parts. It remembers
    /// dropped SYNs if the rules of that process say so.
    ///
    /// # Errors
    /// EINVAL: these are no parts of a filter. ENOMEM, ENODEV: mmap(2).
    pub fn of_parts(rules: Rules, parts: Vec<OwnedFd>) -> io::Result<Self> {
        let mut parts = parts.into_iter();
        let mut next = || parts.next().ok_or(io::ErrorKind::InvalidInput);
        let (page, addresses, networks, program) = (next()?, next()?, next()?, next()?);
        let page = SharedPage::of(page, number::COUNT)?;
        let maps = Maps { page, addresses, networks, dropped: next().ok() };
        Ok(Self { rules, maps, program, links: Vec::new() })
    }

    /// Returns its maps and its program, at most [`Self::PARTS_MAX`], for another process of this
    /// build, or of a later one: the numbers have no other description.
    pub fn parts(&self) -> Vec<BorrowedFd<'_>> {
        let Maps { page, addresses, networks, dropped } = &self.maps;
        let all = [page.map(), addresses.as_fd(), networks.as_fd(), self.program.as_fd()];
        all.into_iter().chain(dropped.as_ref().map(AsFd::as_fd)).collect()
    }

    /// Maximum number of parts.
    pub const PARTS_MAX: usize = 5;

    /// Returns its program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Attaches the filter to a listening socket, replacing any other.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN where Linux requires it ([`super::random::attach`]), or when the
    /// filter is locked (SO_LOCK_FILTER); ENOMEM past net.core.optmem_max; EBADF, ENOTSOCK:
    /// setsockopt(2).
    pub fn attach(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        attach_program(listener, self.program.as_fd())
    }

    /// Sets the limits that apply from now on.
    pub fn set(&self, tokens: Tokens) {
        let numbers = self.maps.page.numbers();
        numbers[number::RESERVE].store(tokens.reserve, Relaxed);
        numbers[number::SHARE_NS].store(tokens.share_ns, Relaxed);
        numbers[number::FOR_FIRST].store(tokens.for_first, Relaxed);
        numbers[number::LIMIT].store(tokens.limit, Relaxed);
    }

    /// Passes every SYN.
    pub fn open(&self) {
        self.maps.page.numbers()[number::LIMIT].store(u64::MAX, Relaxed);
    }

    /// Returns the counters so far: memory reads, no call.
    pub fn counts(&self) -> Counts {
        let number = |index: usize| self.maps.page.numbers()[index].load(Relaxed);
        Counts {
            passed: number(number::PASSED),
            dropped: number(number::DROPPED),
            dropped_unfair: number(number::DROPPED_UNFAIR),
            dropped_again: number(number::DROPPED_AGAIN),
            weight: number(number::WEIGHT).max(number(number::WEIGHT_BEFORE)),
        }
    }
}

/// [`TokenFilter::attach`], by the program of a filter.
///
/// # Errors
/// As there.
pub fn attach_program(listener: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    set_option(listener, libc::SO_ATTACH_BPF, &program.as_raw_fd())
}

/// Layout of an address's entry: the time when its bucket is full again, and its last epoch.
mod address {
    pub(super) const FULL_NS: i16 = 0;
    pub(super) const EPOCH: i16 = 8;
    pub(super) const BYTES: u32 = 16;
}

/// Layout of a network's entry: its last epoch, its number of addresses in that and in the
/// preceding one, and the time when its bucket is full again.
mod network {
    pub(super) const EPOCH: i16 = 0;
    pub(super) const COUNT: i16 = 8;
    pub(super) const BEFORE: i16 = 12;
    pub(super) const FULL_NS: i16 = 16;
    pub(super) const BYTES: u32 = 24;
}

/// Layout of a dropped SYN's entry, which only has to be there.
mod dropped {
    pub(super) const BYTES: u32 = 8;
}

/// Layout of the program's stack, relative to its end.
mod stack {
    pub(super) const IS_FAIR: i16 = -8;
    pub(super) const EPOCH: i16 = -16;
    pub(super) const ADDRESS: i16 = -24;
    pub(super) const NETWORK: i16 = -32;
    pub(super) const NEW: i16 = -56;
    pub(super) const DUE_NS: i16 = -64;
    pub(super) const NETWORK_DUE_NS: i16 = -72;
    pub(super) const ATTEMPT: i16 = -80;
    pub(super) const SYN: i16 = -88;
}

/// Knowledge of a SYN: none, that it is the first, or that it was dropped before.
mod attempt {
    pub(super) const UNKNOWN: i32 = 0;
    pub(super) const FIRST: i32 = 1;
    pub(super) const AGAIN: i32 = 2;
}

/// Offset of a packet's field that classifiers may write and the protocols leave alone, in its
/// context (`struct __sk_buff`), and the value there of a SYN that was judged at the link. Only
/// disciplines that Linux has removed (dsmark, tcindex) ever read it.
const TC_INDEX_AT: i16 = 44;
const JUDGED: i32 = 0x5ea1;

/// Offset of the sequence number in a TCP header (RFC 9293 section 3.1).
const SEQUENCE_AT: i32 = 4;

/// An odd number, by which a multiplication is one to one (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Offset and length of the source in the headers of IPv4 and IPv6 (RFC 791, RFC 8200), up to an
/// IPv6 /64, and masks of the network in it, in this machine's byte order.
const V4_SOURCE: (i32, i32) = (12, 4);
const V6_SOURCE: (i32, i32) = (8, 8);
const V4_NETWORK: u64 = u64::from_ne_bytes([255, 255, 255, 0, 0, 0, 0, 0]);
const V6_NETWORK: u64 = u64::from_ne_bytes([255, 255, 255, 255, 255, 255, 0, 0]);

/// Place of a program.
enum Place<'a> {
    /// At the listening socket.
    Socket,
    /// At an interface.
    Link(&'a Target),
}

impl Place<'_> {
    /// Offset of the TCP header in what the program sees of a packet.
    fn tcp_at(&self) -> i32 {
        match self {
            Self::Socket => 0,
            Self::Link(target) => target.tcp_at().into(),
        }
    }
}

fn at(number: usize) -> i16 {
    (number * size_of::<u64>()) as i16
}

/// Builds the program of a place. R6 is the packet, R7 the page, R8 the time, R9 the entry of the
/// address, or 0.
fn program(rules: Rules, maps: &Maps, place: &Place<'_>) -> Vec<bpf::Instruction> {
    let mut asm = Assembler::default();
    let (other, count, decide, dropped) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.op(Op::Mov, Reg::R6, Reg::R1);
    match place {
        Place::Socket => enter_socket(&mut asm, maps, other),
        Place::Link(target) => enter_link(&mut asm, maps, target, other),
    }
    asm.op_imm(Op::Mov, Reg::R9, 0);
    asm.op_imm(Op::Mov, Reg::R1, 1);
    asm.store(Size::Dw, Reg::R10, stack::IS_FAIR, Reg::R1);
    asm.op_imm(Op::Mov, Reg::R1, attempt::UNKNOWN);
    asm.store(Size::Dw, Reg::R10, stack::ATTEMPT, Reg::R1);
    asm.store(Size::Dw, Reg::R10, stack::SYN, Reg::R1);
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::LIMIT));
    asm.jump_if_imm(Cmp::Eq, Reg::R1, -1, count);
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::SHARE_NS));
    asm.load(Size::Dw, Reg::R2, Reg::R7, at(number::FOR_FIRST));
    asm.op(Op::Or, Reg::R1, Reg::R2);
    asm.jump_if_imm(Cmp::Eq, Reg::R1, 0, decide);
    name_source(&mut asm, decide);
    if let Some(dropped) = &maps.dropped {
        recognize_syn(&mut asm, dropped.as_fd(), place.tcp_at());
    }
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::SHARE_NS));
    asm.jump_if_imm(Cmp::Eq, Reg::R1, 0, decide);
    turn_epoch(&mut asm, rules);
    find_source(&mut asm, rules, maps, decide);
    weigh_claim(&mut asm, rules);
    asm.place(decide);
    judge(&mut asm, maps, count, dropped);
    asm.place(count);
    count_one(&mut asm, number::PASSED);
    let (pass, drop) = match place {
        Place::Socket => (PASS as i32, DROP as i32),
        Place::Link(_) => {
            asm.op_imm(Op::Mov, Reg::R1, JUDGED);
            asm.store(Size::W, Reg::R6, TC_INDEX_AT, Reg::R1);
            (verdict::NEXT, verdict::DROP)
        }
    };
    asm.place(other);
    asm.op_imm(Op::Mov, Reg::R0, pass);
    asm.exit();
    asm.place(dropped);
    asm.op_imm(Op::Mov, Reg::R0, drop);
    asm.exit();
    asm.finish()
}

/// Continues at `other` with a packet that is no SYN, or one that was judged at the link.
fn enter_socket(asm: &mut Assembler, maps: &Maps, other: bpf::Label) {
    asm.load_packet(Size::B, FLAGS_AT as i32);
    asm.op_imm(Op::And, Reg::R0, FLAGS as i32);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, SYN as i32, other);
    asm.load(Size::W, Reg::R1, Reg::R6, TC_INDEX_AT);
    asm.jump_if_imm(Cmp::Eq, Reg::R1, JUDGED, other);
    asm.load_map_value(Reg::R7, maps.page.map());
}

/// Continues at `other` with all packets while there is no limit, which costs a few instructions
/// each, and with one that is not a SYN for the target.
fn enter_link(asm: &mut Assembler, maps: &Maps, target: &Target, other: bpf::Label) {
    asm.load_map_value(Reg::R7, maps.page.map());
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::LIMIT));
    asm.jump_if_imm(Cmp::Eq, Reg::R1, -1, other);
    link::recognize(asm, target, other);
}

/// Reads the time and computes its epoch. When a new epoch has begun, saves the weight of the
/// preceding one.
fn turn_epoch(asm: &mut Assembler, rules: Rules) {
    let (same, skipped) = (asm.label(), asm.label());
    asm.call(helper::KTIME_NS);
    asm.op(Op::Mov, Reg::R8, Reg::R0);
    asm.op(Op::Mov, Reg::R2, Reg::R0);
    asm.op_imm(Op::Shr, Reg::R2, rules.epoch_bits as i32);
    // No epoch is 0, the value in a new entry.
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

/// Stores the address and the network on the stack. A packet that cannot be read is treated as
/// fair.
fn name_source(asm: &mut Assembler, decide: bpf::Label) {
    let (v6, named) = (asm.label(), asm.label());
    asm.op_imm(Op::Mov, Reg::R1, 0);
    asm.store(Size::Dw, Reg::R10, stack::ADDRESS, Reg::R1);
    asm.load(Size::W, Reg::R1, Reg::R6, link::PROTOCOL_AT);
    asm.jump_if_imm(Cmp::Eq, Reg::R1, link::IPV6, v6);
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

/// Determines whether this SYN was dropped before, if some tokens are for others. One that comes
/// again has the source, the port and the sequence number of the first (RFC 9293 section 3.10.8).
fn recognize_syn(asm: &mut Assembler, dropped: BorrowedFd<'_>, tcp_at: i32) {
    let (known, first) = (asm.label(), asm.label());
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::FOR_FIRST));
    asm.jump_if_imm(Cmp::Eq, Reg::R1, 0, known);
    asm.load_packet(Size::W, tcp_at + SEQUENCE_AT);
    asm.store(Size::Dw, Reg::R10, stack::SYN, Reg::R0);
    asm.load_packet(Size::H, tcp_at);
    asm.op_imm(Op::Shl, Reg::R0, 32);
    asm.load(Size::Dw, Reg::R1, Reg::R10, stack::SYN);
    asm.op(Op::Or, Reg::R1, Reg::R0);
    // Spread over all bits, those of the address change it into no other SYN's.
    asm.load_number(Reg::R2, SPREAD);
    asm.op(Op::Mul, Reg::R1, Reg::R2);
    asm.load(Size::Dw, Reg::R2, Reg::R10, stack::ADDRESS);
    asm.op(Op::Xor, Reg::R1, Reg::R2);
    asm.store(Size::Dw, Reg::R10, stack::SYN, Reg::R1);
    find_on_stack(asm, dropped, stack::SYN);
    asm.call(helper::MAP_LOOKUP);
    asm.op_imm(Op::Mov, Reg::R1, attempt::FIRST);
    asm.jump_if_imm(Cmp::Eq, Reg::R0, 0, first);
    // An entry that was found outlives later ones in a full map: if dropped again, it is a new one.
    find_on_stack(asm, dropped, stack::SYN);
    asm.call(helper::MAP_DELETE);
    asm.op_imm(Op::Mov, Reg::R1, attempt::AGAIN);
    asm.place(first);
    asm.store(Size::Dw, Reg::R10, stack::ATTEMPT, Reg::R1);
    asm.place(known);
}

/// Looks up the entries of the address, in R9, and of its network, in R0, and brings both to the
/// current epoch. An address new in the epoch adds to the weight.
fn find_source(asm: &mut Assembler, rules: Rules, maps: &Maps, decide: bpf::Label) {
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
    // The network moves to the stack; the address takes its place.
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

/// R0 = the entry of a key on the stack, which is created if absent.
fn look_up(asm: &mut Assembler, map: BorrowedFd<'_>, key: i16, decide: bpf::Label) {
    let found = asm.label();
    find_on_stack(asm, map, key);
    asm.call(helper::MAP_LOOKUP);
    asm.jump_if_imm(Cmp::Ne, Reg::R0, 0, found);
    insert(asm, map, key);
    find_on_stack(asm, map, key);
    asm.call(helper::MAP_LOOKUP);
    asm.jump_if_imm(Cmp::Eq, Reg::R0, 0, decide);
    asm.place(found);
}

/// Prepares a call about the entry of a key on the stack.
fn find_on_stack(asm: &mut Assembler, map: BorrowedFd<'_>, key: i16) {
    asm.load_map(Reg::R1, map);
    asm.op(Op::Mov, Reg::R2, Reg::R10);
    asm.op_imm(Op::Add, Reg::R2, key.into());
}

/// Creates the entry of a key on the stack, all zero, of 24 bytes at most.
fn insert(asm: &mut Assembler, map: BorrowedFd<'_>, key: i16) {
    asm.op_imm(Op::Mov, Reg::R1, 0);
    for at in [0, 8, 16] {
        asm.store(Size::Dw, Reg::R10, stack::NEW + at, Reg::R1);
    }
    find_on_stack(asm, map, key);
    asm.op(Op::Mov, Reg::R3, Reg::R10);
    asm.op_imm(Op::Add, Reg::R3, stack::NEW.into());
    asm.op_imm(Op::Mov, Reg::R4, 0);
    asm.call(helper::MAP_UPDATE);
}

/// Determines whether the address in R9, or the network in R0, has used up its share, and when its
/// bucket will be full if the SYN is admitted.
fn weigh_claim(asm: &mut Assembler, rules: Rules) {
    let (more, many, heavier) = (asm.label(), asm.label(), asm.label());
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
    asm.op(Op::Mov, Reg::R5, Reg::R1);
    asm.op(Op::Mul, Reg::R5, Reg::R3);
    asm.op_imm(Op::Div, Reg::R5, counted_max);
    weigh_bucket(asm, (Reg::R9, address::FULL_NS), rules.burst, stack::DUE_NS);
    asm.op(Op::Mov, Reg::R5, Reg::R1);
    asm.op_imm(Op::Div, Reg::R5, counted_max);
    let burst = rules.burst.saturating_mul(rules.addresses_counted_max);
    weigh_bucket(asm, (Reg::R0, network::FULL_NS), burst, stack::NETWORK_DUE_NS);
}

/// Determines whether a bucket of `burst` tokens, at its place in an entry, has one left, and puts
/// on the stack when it will be full again without it. A token lasts R5. Clobbers R2, R3 and R5.
fn weigh_bucket(asm: &mut Assembler, (entry, full_at): (Reg, i16), burst: u32, due_at: i16) {
    let (later, fair) = (asm.label(), asm.label());
    asm.load(Size::Dw, Reg::R2, entry, full_at);
    asm.jump_if(Cmp::Ge, Reg::R2, Reg::R8, later);
    asm.op(Op::Mov, Reg::R2, Reg::R8);
    asm.place(later);
    asm.op(Op::Mov, Reg::R3, Reg::R2);
    asm.op(Op::Add, Reg::R3, Reg::R5);
    asm.store(Size::Dw, Reg::R10, due_at, Reg::R3);
    asm.op(Op::Sub, Reg::R2, Reg::R8);
    asm.op_imm(Op::Mul, Reg::R5, burst.saturating_sub(1) as i32);
    asm.jump_if(Cmp::Le, Reg::R2, Reg::R5, fair);
    asm.op_imm(Op::Mov, Reg::R5, 0);
    asm.store(Size::Dw, Reg::R10, stack::IS_FAIR, Reg::R5);
    asm.place(fair);
}

/// Continues at `dropped`, or charges the source and continues at `count`: the address, and its
/// network for what the address gets as its share.
fn judge(asm: &mut Assembler, maps: &Maps, count: bpf::Label, dropped: bpf::Label) {
    let (shared, known, granted, fair) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.load(Size::Dw, Reg::R1, Reg::R7, at(number::LIMIT));
    asm.load(Size::Dw, Reg::R4, Reg::R10, stack::IS_FAIR);
    asm.jump_if_imm(Cmp::Ne, Reg::R4, 0, shared);
    keep(asm, number::RESERVE);
    asm.place(shared);
    asm.load(Size::Dw, Reg::R5, Reg::R10, stack::ATTEMPT);
    asm.jump_if_imm(Cmp::Ne, Reg::R5, attempt::AGAIN, known);
    keep(asm, number::FOR_FIRST);
    asm.place(known);
    asm.load(Size::Dw, Reg::R2, Reg::R7, at(number::PASSED));
    asm.jump_if(Cmp::Lt, Reg::R2, Reg::R1, granted);
    asm.jump_if_imm(Cmp::Ne, Reg::R4, 0, fair);
    count_one(asm, number::DROPPED_UNFAIR);
    asm.place(fair);
    count_one(asm, number::DROPPED);
    if let Some(syns) = &maps.dropped {
        remember(asm, syns.as_fd(), dropped);
    }
    asm.jump(dropped);
    asm.place(granted);
    asm.jump_if_imm(Cmp::Eq, Reg::R9, 0, count);
    asm.load(Size::Dw, Reg::R1, Reg::R10, stack::DUE_NS);
    asm.store(Size::Dw, Reg::R9, address::FULL_NS, Reg::R1);
    asm.jump_if_imm(Cmp::Eq, Reg::R4, 0, count);
    asm.load(Size::Dw, Reg::R1, Reg::R10, stack::NETWORK_DUE_NS);
    asm.load(Size::Dw, Reg::R2, Reg::R10, stack::NETWORK);
    asm.store(Size::Dw, Reg::R2, network::FULL_NS, Reg::R1);
}

/// Takes from the limit in R1 what is kept for others.
fn keep(asm: &mut Assembler, number: usize) {
    let enough = asm.label();
    asm.load(Size::Dw, Reg::R3, Reg::R7, at(number));
    asm.jump_if(Cmp::Ge, Reg::R1, Reg::R3, enough);
    asm.op(Op::Mov, Reg::R3, Reg::R1);
    asm.place(enough);
    asm.op(Op::Sub, Reg::R1, Reg::R3);
}

/// Records a dropped SYN, whose attempt is in R5, and continues at `dropped`, or behind.
fn remember(asm: &mut Assembler, syns: BorrowedFd<'_>, dropped: bpf::Label) {
    let first = asm.label();
    asm.jump_if_imm(Cmp::Eq, Reg::R5, attempt::UNKNOWN, dropped);
    asm.jump_if_imm(Cmp::Eq, Reg::R5, attempt::FIRST, first);
    count_one(asm, number::DROPPED_AGAIN);
    asm.place(first);
    insert(asm, syns, stack::SYN);
}

fn count_one(asm: &mut Assembler, number: usize) {
    asm.op_imm(Op::Mov, Reg::R1, 1);
    asm.atomic_add(Reg::R7, at(number), Reg::R1);
}
