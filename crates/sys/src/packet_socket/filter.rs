//! The filter of a packet socket: which frames the kernel keeps for it.

use std::io;
use std::os::fd::BorrowedFd;

use crate::network::Network;
use crate::set_option;

/// Attaches the filter (the kernel's Documentation/networking/filter.rst).
pub(super) fn attach(fd: BorrowedFd<'_>, network: Network) -> io::Result<()> {
    let mut steps = filter(network);
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Returns the filter: TCP for the addresses of `network`, and what neighbours say: ARP, or all of
/// ICMPv6.
fn filter(network: Network) -> Vec<libc::sock_filter> {
    let is_v4 = network.first.is_ipv4();
    let (ethertype, protocol_at, address_at) =
        if is_v4 { (libc::ETH_P_IP, 23, 30) } else { (libc::ETH_P_IPV6, 20, 38) };
    let is = |ethertype: i32| (load(libc::BPF_H, 12), None, ethertype as u32);
    let holds = |protocol: i32| (load(libc::BPF_B, protocol_at), None, protocol as u32);
    let words = network
        .words()
        .map(|word| (load(libc::BPF_W, address_at + word.at), Some(word.mask), word.wanted));
    let tcp: Vec<Test> =
        [is(ethertype), holds(libc::IPPROTO_TCP)].into_iter().chain(words).collect();
    let neighbour = if is_v4 {
        vec![is(libc::ETH_P_ARP)]
    } else {
        vec![is(ethertype), holds(libc::IPPROTO_ICMPV6)]
    };
    let mut steps = all_of(&tcp);
    steps.extend(all_of(&neighbour));
    steps.push(step(libc::BPF_RET | libc::BPF_K, 0));
    steps
}

/// A load, a mask for what it loads, and the value that is wanted.
type Test = (libc::sock_filter, Option<u32>, u32);

/// Accepts a packet that passes every test; another goes on behind.
fn all_of(tests: &[Test]) -> Vec<libc::sock_filter> {
    let mut steps = Vec::new();
    let bytes: Vec<usize> = tests.iter().map(|test| 2 + usize::from(test.1.is_some())).collect();
    for (nth, (load, mask, wanted)) in tests.iter().enumerate() {
        steps.push(*load);
        steps.extend(mask.map(|mask| step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask)));
        // Behind the remaining tests and the acceptance.
        let skipped = bytes[nth + 1..].iter().sum::<usize>() + 1;
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        steps.push(libc::sock_filter { code, jt: 0, jf: skipped as u8, k: *wanted });
    }
    steps.push(step(libc::BPF_RET | libc::BPF_K, u32::MAX));
    steps
}

fn load(size: u32, at: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_ABS | size, at)
}

fn step(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}
