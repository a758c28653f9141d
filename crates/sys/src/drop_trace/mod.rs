//! A trace of the packets that listening TCP sockets drop, by the reason that the kernel gives:
//! eBPF at the tracepoint `skb:kfree_skb`. Counts only; what a drop means is known elsewhere.
//!
//! A SYN that finds a queue full is not among them: for the kernel it is a packet that was dealt
//! with (`consume_skb` in `tcp_rcv_state_process`), and only its counters ListenDrops and
//! ListenOverflows move. They move with a third ACK too, which is among them, and so the two are
//! told apart.

mod btf;
mod program;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

pub use program::Listeners;

use crate::bpf::{self, SharedPage};
use program::number;

/// Packets dropped by the listeners since the trace began, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Third ACKs that found the accept queue full (TCP_LISTEN_OVERFLOW). Each counts once as
    /// ListenOverflows and ListenDrops, but twice among the socket's own
    /// [drops](crate::listener::drops): for the connection, and for the packet.
    pub overflow: u64,
    /// Third ACKs with a valid SYN cookie that found the accept queue full (NO_SOCKET). Each counts
    /// once as ListenOverflows, ListenDrops, and the socket's own drop.
    pub overflow_of_cookie: u64,
    /// Packets dropped by the socket's filter (SOCKET_FILTER), which no counter of the namespace
    /// has. Each counts once as the socket's own drop.
    pub filter: u64,
    /// Packets dropped for another reason: retransmissions of a SYN, resets, and what is no part of
    /// a handshake.
    pub other: u64,
}

/// A trace, which ends when it is dropped.
#[derive(Debug)]
pub struct DropTrace {
    page: SharedPage,
    /// Attachment of the program, which keeps the program and its map.
    _attached: OwnedFd,
}

impl DropTrace {
    /// Begins to count.
    ///
    /// # Errors
    /// A sentence that says why this is not possible: no privilege (CAP_BPF and CAP_PERFMON), or a
    /// kernel that lacks what is needed (before 6.11, or without BTF).
    pub fn begin(listeners: Listeners) -> io::Result<Self> {
        let types = btf::Btf::of_this_kernel()
            .map_err(|error| because(&error, "the kernel's types cannot be read"))?;
        let kernel = program::Kernel::read(&types)?;
        let page = SharedPage::new(number::COUNT)
            .map_err(|error| because(&error, "no eBPF map can be had"))?;
        let program = program::program(&kernel, listeners, page.map());
        let program = bpf::load_tracepoint(&program, kernel.tracepoint)
            .map_err(|error| because(&error, "the kernel does not load the program"))?;
        let attached = bpf::attach_tracepoint(program.as_fd())
            .map_err(|error| because(&error, "the tracepoint kfree_skb cannot be had"))?;
        Ok(Self { page, _attached: attached })
    }

    /// Returns the counts so far: memory reads, no call.
    pub fn counts(&self) -> Counts {
        let number = |index: usize| self.page.numbers()[index].load(Relaxed);
        Counts {
            overflow: number(number::OVERFLOW),
            overflow_of_cookie: number(number::OVERFLOW_OF_COOKIE),
            filter: number(number::FILTER),
            other: number(number::OTHER),
        }
    }
}

fn because(error: &io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syn_filter::random;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    fn here() -> u32 {
        std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino() as u32
    }

    /// Begins traces of a port, in this network and in another; or says that this skips.
    fn begin(port: u16) -> Option<[DropTrace; 2]> {
        let traces =
            [here(), here() - 1].map(|network| DropTrace::begin(Listeners { network, port }));
        match traces {
            [Ok(here), Ok(elsewhere)] => Some([here, elsewhere]),
            [Err(error), _] | [_, Err(error)] => {
                println!("skipped: {error}");
                None
            }
        }
    }

    #[test]
    fn a_drop_counts_for_its_port_and_network_only() {
        let listeners = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [one, another] = listeners.each_ref().map(|it| it.local_addr().unwrap());
        let Some([trace, elsewhere]) = begin(one.port()) else { return };
        for listener in &listeners {
            random::attach(listener.as_fd(), 1.0).unwrap();
        }
        for address in [one, another] {
            let short = std::time::Duration::from_millis(1);
            TcpStream::connect_timeout(&address, short).unwrap_err();
        }
        let counts = trace.counts();
        assert!(counts.filter > 0);
        assert_eq!(counts, Counts { filter: counts.filter, ..Counts::default() });
        assert_eq!(elsewhere.counts(), Counts::default());
    }

    #[test]
    fn an_error_says_what_cannot_be_had_and_keeps_its_kind() {
        let error = because(&io::ErrorKind::PermissionDenied.into(), "no eBPF map can be had");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(error.to_string(), "no eBPF map can be had: permission denied");
    }
}
