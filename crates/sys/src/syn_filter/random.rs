//! A filter that drops a random share of all SYNs: classic BPF (SO_ATTACH_FILTER, socket(7)), which
//! every kernel supports.

use std::io;
use std::os::fd::BorrowedFd;

use super::{DROP, FLAGS, FLAGS_AT, PASS, SYN, detach, set_option};

/// Drops a share of the SYNs that arrive from now on. `share` is clamped to 0 to 1; NaN is 0. 0
/// removes the filter. Any previous filter is replaced at once; each SYN is an independent draw.
/// Does nothing on a Unix socket.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN over the network namespace, unless `share` is 0: Linux requires it
/// since commit 5d39580f68e6 (June 2026; in stable kernels too), older ones do not. EPERM as well
/// when the filter is locked (SO_LOCK_FILTER). ENOMEM past net.core.optmem_max; EBADF, ENOTSOCK:
/// setsockopt(2). After an error the filter is unchanged.
pub fn attach(listener: BorrowedFd<'_>, share: f64) -> io::Result<()> {
    // NaN is not above 0 either.
    if share > 0.0 { attach_program(listener, &mut program(share)) } else { detach(listener) }
}

/// Offset from which a filter loads a random number.
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;

/// Builds a program that passes everything except SYNs that draw a number up to `share` of 2³².
fn program(share: f64) -> [libc::sock_filter; 7] {
    use libc::{
        BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_LD, BPF_RET, BPF_W,
    };
    // The conversion saturates, so that 1 and more leave no number above.
    let above = (share * 2f64.powi(32)) as u32;
    [
        step(BPF_LD | BPF_B | BPF_ABS, FLAGS_AT),
        step(BPF_ALU | BPF_AND, FLAGS),
        branch(BPF_JMP | BPF_JEQ, SYN, 0, 2),
        step(BPF_LD | BPF_W | BPF_ABS, RANDOM),
        branch(BPF_JMP | BPF_JGT, above, 0, 1),
        step(BPF_RET, PASS),
        step(BPF_RET, DROP),
    ]
}

fn step(code: u32, k: u32) -> libc::sock_filter {
    branch(code, k, 0, 0)
}

/// Builds a comparison that skips `yes` instructions if it holds, else `no`.
fn branch(code: u32, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: yes, jf: no, k }
}

fn attach_program(fd: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = program.len() as libc::c_ushort;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    set_option(fd, libc::SO_ATTACH_FILTER, &program)
}
