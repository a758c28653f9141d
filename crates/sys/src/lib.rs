//! Every system call weir makes, one file per family: descriptors in, `io::Result` out.
//!
//! This is the only crate in which `unsafe` may be written, each block with its reason. Nothing
//! here knows about HTTP, connections or policies; nothing here keeps state but the call profile,
//! how many rings there are, the queues of a ring and the memory it was lent, whether inherited
//! sockets were taken, and what numbers the signal queues.
//!
//! A descriptor comes borrowed, or, where the kernel uses it after the call, shared
//! ([`descriptor::SharedFd`]). Only what watches descriptors (poll(2), select(2), interest sets,
//! polls of a ring) takes numbers too: one that has another owner by then tells of that owner's
//! readiness, and nothing else is done to it.

pub mod bpf;
pub mod client;
pub mod descriptor;
pub mod epoll;
pub mod event;
pub mod file;
pub mod fork;
pub mod listener;
pub mod namespace;
pub mod poll;
pub mod process;
pub mod profile;
pub mod ring;
pub mod rtsig;
pub mod select;
pub mod signal;
pub mod socket;
pub mod syn_filter;
pub mod tun;

/// Whether a call failed for want of descriptors or memory, which others may give back: EMFILE,
/// ENFILE, ENOBUFS, ENOMEM.
pub fn is_exhaustion(error: &std::io::Error) -> bool {
    let wanting = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|errno| wanting.contains(&errno))
}
