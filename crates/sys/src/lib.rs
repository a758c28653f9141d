//! Every system call weir makes, one file per family: descriptors in, `io::Result` out.
//!
//! This is the only crate in which `unsafe` may be written, each block with its reason. It depends
//! on nothing about HTTP, connections or policies. Its only state is the call profile, the account
//! of memory, the number of rings, the queues of a ring and the memory lent to it, a flag for
//! inherited sockets already taken, the way to the process that keeps the privileges, with what it
//! is to keep, and the numbers of the signals used by signal queues.
//!
//! Descriptors are passed borrowed or, where the kernel uses them after the call, shared
//! ([`descriptor::SharedFd`]). Only functions that watch descriptors (poll(2), select(2), interest
//! sets, polls of a ring) also take numbers. A number that has been reused by then reports the
//! readiness of its new owner; no other operation is applied to it.

pub mod bpf;
pub mod client;
pub mod descent;
pub mod descriptor;
pub mod drop_trace;
pub mod epoll;
pub mod fiber_stack;
pub mod file;
pub mod fork;
pub mod hand_over;
pub mod heap;
pub mod huge_pages;
pub mod ingress_drop;
pub mod interface;
pub mod listener;
pub mod memory_limit;
pub mod namespace;
pub mod network;
pub mod packet_socket;
pub mod perf_event;
pub mod pipe;
pub mod poll;
pub mod privileged;
pub mod proc;
pub mod process;
pub mod profile;
pub mod ring;
pub mod rtsig;
pub mod run_dir;
pub mod sandbox;
pub mod select;
pub mod shared_page;
pub mod signal;
pub mod socket;
pub mod socket_file;
pub mod syn_filter;
pub mod syn_trace;
pub mod tun;
pub mod user;
pub mod waker;

use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the error that the C library left behind an answer of -1.
fn check(answer: i32) -> std::io::Result<()> {
    if answer == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets an option of a socket (setsockopt(2)). `T` is the type that the option takes;
/// pointers in it are valid.
fn set_option<T>(fd: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> std::io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads the value, whose address and size are given, and for a classic
    // filter the instructions, whose number stands next to their address; all outlive the call.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const *value).cast(), size)
    })
}

/// Returns whether a call failed for lack of descriptors or memory, a condition that may pass:
/// EMFILE, ENFILE, ENOBUFS, ENOMEM.
pub fn is_exhaustion(error: &std::io::Error) -> bool {
    let wanting = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|errno| wanting.contains(&errno))
}
