//! The configuration of a run: target addresses, arrivals, workload, duration and limits. Plain
//! values without behaviour.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use weir_packet::path::{PRESETS as PATH_PRESETS, PathLaw};
pub use weir_packet::tcp;
pub use weir_sys::interface::Interface;
pub use weir_sys::network::Network;

use crate::measure::{ErrorKind, Interval, Timestamps};
use crate::schedule::ArrivalLaw;
use crate::session::{RequestId, RequestTable, SessionSource};
use crate::tls::TlsSettings;

/// The configuration of a run. Times are nanoseconds; for an optional limit, 0 means none.
#[derive(Clone)]
pub struct Config {
    /// Target addresses. Connections use them round-robin.
    pub addresses: Vec<SocketAddr>,
    /// Unix socket that connections go to in place of the addresses; of the kernel's stack only.
    pub unix_socket: Option<PathBuf>,
    /// The TLS of all connections; `None`: plain HTTP.
    pub tls: Option<Arc<TlsSettings>>,
    /// When sessions begin: open or closed loop.
    pub model: LoadModel,
    /// Duration of the arrivals; `u64::MAX / 4` for a run that ends with its sessions.
    pub duration_ns: u64,
    /// Maximum number of arrivals; 0 is no limit.
    pub arrivals_max: u64,
    /// Warm-up at the start of the duration, which is not measured.
    pub warmup_ns: u64,
    /// Time at the end of the duration that is not measured either: arrivals go on, so that those
    /// before it end while the load lasts.
    pub cooldown_ns: u64,
    /// The sessions that arrivals carry out.
    pub workload: Arc<dyn Workload>,
    /// The bytes of the requests that sessions name.
    pub requests: Arc<RequestTable>,
    /// Number of persistent connections shared by all requests, over all threads; 0: each arrival
    /// opens its own. A request takes a free connection, or waits for one.
    pub shared_conns: usize,
    /// True if connections outlive their sessions: the next session of a shared or closed-loop
    /// connection continues on the same socket.
    pub keep_open: bool,
    /// Number of connections that stay idle; each is reopened when the server closes it.
    pub idle: usize,
    /// Number of connections that repeatedly send a request slowly.
    pub slow_senders: usize,
    /// Number of connections that repeatedly read a reply slowly.
    pub slow_readers: usize,
    /// Rate of the slow senders and readers, bytes per second.
    pub slow_rate: u64,
    /// Send rate of the load's own requests, bytes per second. `Some(0)`: connect, but never send;
    /// `None`: send at full speed.
    pub send_rate: Option<u64>,
    /// Rate at which idle and slow connections are opened, connections per second.
    pub background_rate: f64,
    /// The longest wait without progress: on connect, on send, for the first and for each further
    /// byte of a reply.
    pub timeout_ns: u64,
    /// The longest time from the planned start to the last byte; 0 is no limit.
    pub deadline_ns: u64,
    /// Source addresses, used round-robin; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// True if connections are closed by a reset, which leaves no TIME_WAIT on either side.
    pub reset: bool,
    /// Maximum number of open connections, over all threads; 0: as many as there are descriptors.
    pub conns_max: usize,
    /// Number of driving threads.
    pub threads: usize,
    /// Processors to which the threads are pinned, round-robin; empty: not pinned.
    pub cpus: Vec<usize>,
    /// The TCP that connections use.
    pub stack: StackKind,
    /// Seed of all random draws.
    pub seed: u64,
    /// True if each request's timestamps are passed to [`RunObserver::requests`].
    pub each: bool,
}

impl Config {
    /// Returns the addresses of connection number `number`. Successive numbers go through all
    /// pairs, so that every port of every source is usable towards every destination.
    pub(crate) fn pair(&self, number: usize) -> Option<AddressPair<'_>> {
        if let Some(path) = &self.unix_socket {
            return Some(AddressPair { destination: Destination::Unix(path), source: None });
        }
        let destinations = self.addresses.len().max(1);
        let destination = Destination::Inet(*self.addresses.get(number % destinations)?);
        let source = self.sources.get(number / destinations % self.sources.len().max(1)).copied();
        Some(AddressPair { destination, source })
    }

    /// Returns the share of thread number `index` in `all` connections.
    pub(crate) fn share(&self, all: usize, index: usize) -> usize {
        let threads = self.threads.max(1);
        all / threads + usize::from(index < all % threads)
    }

    /// Returns the number, among those of all threads, of connection number `nth` of the share of
    /// thread number `index`.
    pub(crate) fn number_of_all(&self, nth: u64, index: usize) -> u64 {
        nth * self.threads.max(1) as u64 + index as u64
    }

    /// Returns the number of connections in the background.
    pub(crate) fn background(&self) -> usize {
        self.idle.saturating_add(self.slow_senders).saturating_add(self.slow_readers)
    }

    /// Returns whether clients vanish where others close.
    pub(crate) fn vanishes(&self) -> bool {
        matches!(&self.stack, StackKind::Packet(packet) if packet.vanish)
    }

    /// Returns the deadline of a request planned for `planned_ns`; `u64::MAX` without one.
    pub(crate) fn deadline_of(&self, planned_ns: u64) -> u64 {
        if self.deadline_ns == 0 { u64::MAX } else { planned_ns.saturating_add(self.deadline_ns) }
    }

    /// Returns whether connections keep their slots from session to session.
    pub(crate) fn keeps_slots(&self) -> bool {
        self.shared_conns > 0 || matches!(self.model, LoadModel::Closed(_))
    }
}

/// A TCP.
#[derive(Clone, Debug, PartialEq)]
pub enum StackKind {
    /// The kernel's.
    Kernel,
    /// weir's own, on an interface.
    Packet(Arc<PacketConfig>),
}

/// The settings of weir's own TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketConfig {
    /// The interface.
    pub interface: Interface,
    /// The addresses of the clients, which the kernel does not have.
    pub sources: Network,
    /// Timeouts and options.
    pub tcp: tcp::Settings,
    /// The paths of the clients; `None`: the link as it is.
    pub path: Option<PathLaw>,
    /// True if clients vanish where others close: they send no FIN and answer nothing more.
    pub vanish: bool,
    /// Longest time that received packets wait to be handled together, nanoseconds.
    pub coalesce_ns: u64,
}

impl PacketConfig {
    /// Returns the number of addresses that the clients have: those of hosts in the part of each of
    /// `threads`. 0 if there are fewer addresses than threads.
    pub fn hosts(&self, threads: usize) -> u64 {
        let parts = (0..threads).filter_map(|nth| self.sources.part(nth, threads));
        parts.map(|part| Hosts::of(part).count).sum()
    }
}

/// The addresses of a network that are hosts': not the first and the last, which are the network's
/// own and its broadcast address (RFC 1122 section 3.2.1.3). A network of one or two addresses has
/// its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hosts {
    /// Number of the first of them within the network.
    pub(crate) first: u32,
    /// Number of them, of the first 2^32: networks of IPv6 have more.
    pub(crate) count: u64,
}

impl Hosts {
    /// Returns the hosts' addresses of a network.
    pub(crate) fn of(network: Network) -> Self {
        let all = 1_u64 << network.host_bits().min(32);
        let first = u32::from(network.host_bits() > 1);
        Self { first, count: all.saturating_sub(2).max(1) }
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressPair<'a> {
    /// Where to connect to.
    pub(crate) destination: Destination<'a>,
    /// Address to connect from; `None`: the kernel chooses.
    pub(crate) source: Option<IpAddr>,
}

/// The server's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination<'a> {
    /// An address and a port.
    Inet(SocketAddr),
    /// A Unix socket.
    Unix(&'a Path),
}

/// The model of the load: when its sessions begin.
#[derive(Clone, Debug, PartialEq)]
pub enum LoadModel {
    /// Open loop: arrivals follow the schedule, whatever the server does.
    Open(ArrivalLaw),
    /// Closed loop: this many connections, each of which starts its next session when the last one
    /// ends.
    Closed(usize),
}

/// Creates the session sources, one per thread.
pub trait Workload: Send + Sync {
    /// Creates a source of sessions that takes its random draws from `seed`. All threads get the
    /// same seed: what an arrival does depends on its number alone, not on the thread that runs it.
    fn source(&self, seed: u64) -> Box<dyn SessionSource>;
}

/// A completed request, for consumers that want each one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSample {
    /// Its timestamps.
    pub timestamps: Timestamps,
    /// Its number in the request table.
    pub request: RequestId,
    /// The reply's status, or the kind of error.
    pub end: Result<u16, ErrorKind>,
}

/// Observes a run in progress; called from the thread that called [`crate::run`].
pub trait RunObserver {
    /// Receives a second that all threads have completed.
    fn second(&mut self, interval: &Interval);

    /// Receives completed requests, in no particular order, if [`Config::each`] is set.
    fn requests(&mut self, samples: &[RequestSample]);

    /// Returns whether the run is to stop now; called several times per second.
    fn stop(&mut self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(first: &str, prefix: u8) -> Network {
        Network::new(first.parse().unwrap(), prefix).unwrap()
    }

    #[test]
    fn the_first_host_is_the_first_address_only_of_a_network_that_has_no_other() {
        let first = |prefix| {
            let network = network("10.7.0.0", prefix);
            network.address(Hosts::of(network).first)
        };
        assert_eq!([32, 31].map(first), [IpAddr::from([10, 7, 0, 0]); 2]);
        assert_eq!([30, 24].map(first), [IpAddr::from([10, 7, 0, 1]); 2]);
        let count = |first, prefix| Hosts::of(network(first, prefix)).count;
        assert_eq!([32, 31, 30, 24].map(|prefix| count("10.7.0.0", prefix)), [1, 1, 2, 254]);
        assert_eq!([128, 64].map(|prefix| count("fd00::", prefix)), [1, (1_u64 << 32) - 2]);
    }

    #[test]
    fn each_thread_s_part_of_the_addresses_has_a_first_and_a_last_that_are_no_host_s() {
        let hosts = |prefix, threads| {
            let config = PacketConfig {
                interface: Interface { index: 1, mac: [0; 6], mtu: 1500, addresses: Vec::new() },
                sources: network("10.7.0.0", prefix),
                tcp: tcp::Settings::default(),
                path: None,
                vanish: false,
                coalesce_ns: 0,
            };
            config.hosts(threads)
        };
        assert_eq!([1, 2, 3].map(|threads| hosts(24, threads)), [254, 252, 3 * 62]);
        assert_eq!([hosts(32, 1), hosts(31, 2), hosts(32, 2)], [1, 2, 0]);
    }
}
