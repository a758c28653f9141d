//! Every system call weir makes, one file per family: descriptors in, `io::Result` out.
//!
//! This is the only crate in which `unsafe` may be written, each block with its reason. Nothing
//! here knows about HTTP, connections or policies; nothing here keeps state but the call profile,
//! the queues of a ring and the memory it was lent, and what numbers the signal queues.

pub mod client;
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

/// Whether a call failed for want of descriptors or memory, which others may give back: EMFILE,
/// ENFILE, ENOBUFS, ENOMEM.
pub fn is_exhaustion(error: &std::io::Error) -> bool {
    let wanting = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|errno| wanting.contains(&errno))
}
