//! A trace of the packets that listening TCP sockets drop, by the reason that the kernel gives:
//! eBPF at the tracepoint `skb:kfree_skb`. Counts only; what a drop means is known elsewhere.
//!
//! A SYN that finds a queue full is not among them: for the kernel it is a packet that was dealt
//! with (`consume_skb` in `tcp_rcv_state_process`), and only its counters ListenDrops and
//! ListenOverflows move. They move with a third ACK too, which is among them, and so the two are
//! told apart.

mod program;

use std::io;

pub use program::Listeners;

use crate::bpf::Trace;
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
pub struct DropTrace(Trace);

impl DropTrace {
    /// Begins to count.
    ///
    /// # Errors
    /// A sentence that says why this is not possible: no privilege (CAP_BPF and CAP_PERFMON), or a
    /// kernel that lacks what is needed (before 6.11, or without BTF).
    pub fn begin(listeners: Listeners) -> io::Result<Self> {
        Trace::begin(number::COUNT, |btf, numbers| {
            let kernel = program::Kernel::read(btf)?;
            Ok((kernel.tracepoint, program::program(&kernel, listeners, numbers)))
        })
        .map(Self)
    }

    /// Returns the counts so far: memory reads, no call.
    pub fn counts(&self) -> Counts {
        let number = |index: usize| self.0.number(index);
        Counts {
            overflow: number(number::OVERFLOW),
            overflow_of_cookie: number(number::OVERFLOW_OF_COOKIE),
            filter: number(number::FILTER),
            other: number(number::OTHER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::in_two_networks;
    use crate::syn_filter::random;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    /// Begins traces of a port, in this network and in another; or says that this skips.
    fn begin(port: u16) -> Option<[DropTrace; 2]> {
        in_two_networks(|network| DropTrace::begin(Listeners { network, port }))
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
}
