//! `weir load link`: joins two network namespaces by a link on which each client has a path of its
//! own, for programs that have no paths themselves. Each end is a TUN device; between them this
//! process delays, loses and queues what passes.

mod emulator;

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use weir_packet::path::{PathLaw, Way};
use weir_sys::tun::{self, Tun};
use weir_sys::{interface, namespace, process};

pub use self::emulator::WayCounts;
use self::emulator::{CLIENTS_MAX, Emulator};
use crate::config::Network;

/// Packets that wait in a device until they are read.
const QUEUE: u16 = 10_000;

/// Largest IP packet.
const PACKET_MAX: usize = 65_535;

/// Packets taken from a device before the other has its turn.
const BATCH: usize = 64;

/// Time around packets in which the link does not sleep: it would wake 50 us late.
const AWAKE_NS: u64 = 1_000_000;

/// Largest lateness that is told apart, nanoseconds.
const LATE_COUNTED_MAX_NS: u64 = 60_000_000_000;

/// Interval at which a link without packets looks whether it is to end.
const STOP_POLL: Duration = Duration::from_millis(50);

/// Latest that a packet may arrive behind its time, at the 99th percentile, for the paths to be
/// called those asked for.
const LATE_MAX_NS: u64 = 1_000_000;

/// A link to be built.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Network namespace of the clients: a link in `/proc/PID/ns` or a file below `/run/netns`.
    pub clients: PathBuf,
    /// Network namespace of the servers, likewise.
    pub servers: PathBuf,
    /// Network of the link. The clients' end has its first address behind that of the network, the
    /// servers' end its second; others can be added to either.
    pub network: Network,
    /// Name of both interfaces.
    pub interface: String,
    /// Law of the paths.
    pub law: PathLaw,
    /// Seed of all random draws.
    pub seed: u64,
}

/// A link between two network namespaces, which goes when this is dropped.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    clients: Tun,
    servers: Tun,
}

/// Counts and times of what passed a link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkSummary {
    /// Clients seen.
    pub clients: usize,
    /// From the clients to the servers.
    pub up: WayCounts,
    /// From the servers to the clients.
    pub down: WayCounts,
    /// Packets that found no room in a device, before their path began.
    pub missed: u64,
    /// Median of the time by which packets arrived too late, nanoseconds.
    pub late_p50_ns: u64,
    /// Its 99th percentile.
    pub late_p99_ns: u64,
    /// Reasons why the paths were not those asked for; none if they were.
    pub reasons: Vec<String>,
}

impl Link {
    /// Builds a link.
    ///
    /// # Errors
    /// A sentence: what is lacking, or cannot be had.
    pub fn open(config: LinkConfig) -> Result<Self, String> {
        if config.network.host_bits() < 2 {
            return Err("a network of a link has four addresses at least".into());
        }
        let inode = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        let clients = inode(&config.clients);
        if clients.is_some() && clients == inode(&config.servers) {
            return Err("clients and servers are in one network namespace: give two".into());
        }
        let [ours, theirs] = addresses(config.network);
        let clients = end(&config.clients, &config.interface, ours, config.network.prefix)?;
        let servers = end(&config.servers, &config.interface, theirs, config.network.prefix)?;
        Ok(Self { config, clients, servers })
    }

    /// Returns the addresses of the clients' end and of the servers'.
    pub fn addresses(&self) -> [IpAddr; 2] {
        addresses(self.config.network)
    }

    /// Carries packets until `stop` is set, or for `duration`.
    ///
    /// # Errors
    /// A sentence: an end is gone.
    pub fn run(
        &self,
        stop: &AtomicBool,
        duration: Option<Duration>,
    ) -> Result<LinkSummary, String> {
        // Without it packets are late by up to 50 us.
        let _ = process::set_timer_slack();
        let began = Instant::now();
        let now_ns = || began.elapsed().as_nanos() as u64;
        let mut emulator = Emulator::new(&self.config.law, self.config.seed);
        let mut late_ns = Histogram::new_with_bounds(1, LATE_COUNTED_MAX_NS, 3)
            .map_err(|error| error.to_string())?;
        let mut busy_ns = 0;
        let mut buffer = vec![0; PACKET_MAX];
        while !stop.load(Ordering::Relaxed) && duration.is_none_or(|all| began.elapsed() < all) {
            for (way, tun) in [(Way::Up, &self.clients), (Way::Down, &self.servers)] {
                let taken = take_in(tun, way, &mut emulator, &mut buffer, now_ns)
                    .map_err(|error| gone(&error))?;
                busy_ns = if taken > 0 { now_ns() } else { busy_ns };
            }
            let time_ns = now_ns();
            while let Some(due) = emulator.take_due(time_ns) {
                late_ns.saturating_record(time_ns.saturating_sub(due.due_ns));
                let is_taken = self.end_of(due.way).send(&due.packet).is_ok();
                emulator.handed_over(due.way, is_taken);
            }
            let (time_ns, next_ns) = (now_ns(), emulator.next_ns().unwrap_or(u64::MAX));
            let left_ns = next_ns.saturating_sub(AWAKE_NS).saturating_sub(time_ns);
            if left_ns > 0 && time_ns > busy_ns + AWAKE_NS {
                let left = Duration::from_nanos(left_ns).min(STOP_POLL);
                tun::wait([&self.clients, &self.servers], left);
            }
        }
        Ok(self.summary(&emulator, &late_ns))
    }

    /// Returns the device at the end of a way.
    fn end_of(&self, way: Way) -> &Tun {
        match way {
            Way::Up => &self.servers,
            Way::Down => &self.clients,
        }
    }

    fn summary(&self, emulator: &Emulator<'_>, late_ns: &Histogram<u64>) -> LinkSummary {
        let missed = [(&self.config.clients, &self.clients), (&self.config.servers, &self.servers)]
            .map(|(namespace, tun)| missed(namespace, &tun.name).unwrap_or(0));
        let mut summary = LinkSummary {
            clients: emulator.clients(),
            up: emulator.up,
            down: emulator.down,
            missed: missed.iter().sum(),
            late_p50_ns: late_ns.value_at_quantile(0.5),
            late_p99_ns: late_ns.value_at_quantile(0.99),
            reasons: Vec::new(),
        };
        summary.reasons = reasons(&summary);
        summary
    }
}

/// Returns why the paths were not those asked for.
fn reasons(summary: &LinkSummary) -> Vec<String> {
    let both = |count: fn(&WayCounts) -> u64| count(&summary.up) + count(&summary.down);
    let overflowed = both(|way| way.overflowed);
    let without_path = both(|way| way.without_path);
    let refused = both(|way| way.refused);
    let all = [
        (summary.missed > 0).then(|| {
            format!(
                "{} packets found no room in a device: give the link a processor",
                summary.missed
            )
        }),
        (overflowed > 0).then(|| {
            format!("{overflowed} packets found no room here: give the paths a bandwidth")
        }),
        (without_path > 0).then(|| {
            format!(
                "{without_path} packets were of clients behind the first {CLIENTS_MAX}, which \
                 have no path: use fewer addresses"
            )
        }),
        (refused > 0).then(|| {
            format!("{refused} packets were refused by the kernel: leave both interfaces up")
        }),
        (summary.late_p99_ns > LATE_MAX_NS).then(|| {
            let late_ms = summary.late_p99_ns as f64 / 1e6;
            format!("one packet of 100 was late by {late_ms:.1} ms: give the link a processor")
        }),
    ];
    all.into_iter().flatten().collect()
}

fn addresses(network: Network) -> [IpAddr; 2] {
    [network.address(1), network.address(2)]
}

/// Reads packets that wait in a device, a batch at most; returns how many.
fn take_in(
    tun: &Tun,
    way: Way,
    emulator: &mut Emulator<'_>,
    buffer: &mut [u8],
    now_ns: impl Fn() -> u64,
) -> io::Result<usize> {
    for taken in 0..BATCH {
        let Some(bytes) = tun.receive(buffer)? else { return Ok(taken) };
        emulator.send(way, buffer.get(..bytes).unwrap_or_default(), now_ns());
    }
    Ok(BATCH)
}

fn gone(error: &io::Error) -> String {
    format!("an end of the link is down or gone: {error}")
}

/// Creates an end of the link.
fn end(namespace: &Path, name: &str, address: IpAddr, prefix: u8) -> Result<Tun, String> {
    let create = || {
        let tun = tun::open(name)?;
        interface::bring_up(&tun.name, address, prefix, QUEUE)?;
        Ok(tun)
    };
    inside(namespace, create).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "a link needs CAP_NET_ADMIN and CAP_SYS_ADMIN: run it as root".into()
        }
        io::ErrorKind::NotFound => {
            format!("{}: no such network namespace, or no /dev/net/tun", namespace.display())
        }
        io::ErrorKind::ResourceBusy => {
            format!("{}: there is an interface {name} already", namespace.display())
        }
        _ => format!("{}: {error}", namespace.display()),
    })
}

/// Runs `task` in a network namespace.
fn inside<T: Send>(namespace: &Path, task: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let enter = || {
        namespace::enter_network(namespace)?;
        task()
    };
    let joined = thread::scope(|scope| scope.spawn(enter).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns how many packets an interface dropped because nobody read them.
fn missed(namespace: &Path, name: &str) -> io::Result<u64> {
    let table = inside(namespace, || std::fs::read_to_string("/proc/thread-self/net/dev"))?;
    Ok(send_drops(&table, name).unwrap_or(0))
}

/// Returns the packets dropped on their way out of an interface: the twelfth number of its line in
/// /proc/net/dev (proc_pid_net(5)).
fn send_drops(table: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = lines.find(|(found, _)| found.trim() == name)?;
    numbers.split_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_interface_on_its_way_out() {
        let table = "Inter-|   Receive          |  Transmit\n face |bytes    packets errs drop\n\
                     lo:  1 2 3 4 5 6 7 8 9 10 11 12 13\n\
                     weir0: 1 2 3 4 5 6 7 8 9 10 11 42 13 14\n";
        assert_eq!(send_drops(table, "weir0"), Some(42));
        assert_eq!((send_drops(table, "eth0"), send_drops("weir0: 1", "weir0")), (None, None));
    }

    #[test]
    fn a_link_of_one_namespace_or_of_two_addresses_is_refused() {
        let config = |clients: &str, servers: &str, prefix| LinkConfig {
            clients: clients.into(),
            servers: servers.into(),
            network: Network::new([10, 79, 0, 0].into(), prefix).unwrap(),
            interface: "weir0".into(),
            law: "lan".parse().unwrap(),
            seed: 1,
        };
        let refused = |config| Link::open(config).unwrap_err();
        let own = "/proc/self/ns/net";
        assert!(refused(config(own, own, 16)).contains("one network namespace"));
        assert!(refused(config(own, "/proc/thread-self/ns/net", 16)).contains("one network"));
        assert!(refused(config(own, "/run/netns/nobody", 31)).contains("four addresses"));
        let sentence = refused(config("/run/netns/nobody", own, 16));
        assert!(sentence.contains("no such network") || sentence.contains("root"), "{sentence}");
    }

    #[test]
    fn a_link_that_kept_its_word_has_no_reasons() {
        let kept = LinkSummary {
            clients: 1,
            up: WayCounts { sent: 5, lost: 5, ..WayCounts::default() },
            down: WayCounts::default(),
            missed: 0,
            late_p50_ns: 20_000,
            late_p99_ns: LATE_MAX_NS,
            reasons: Vec::new(),
        };
        assert_eq!(reasons(&kept), [""; 0]);
        let late = LinkSummary { late_p99_ns: 5_200_000, missed: 3, ..kept };
        let said = reasons(&late);
        assert!(said[0].starts_with("3 packets") && said[1].contains("5.2 ms"), "{said:?}");
    }

    #[test]
    fn a_packet_that_no_path_or_no_kernel_took_is_a_reason_of_its_own() {
        let up = WayCounts { refused: 2, without_path: 4, ..WayCounts::default() };
        let down = WayCounts { refused: 1, ..WayCounts::default() };
        let summary = LinkSummary {
            clients: 1,
            up,
            down,
            missed: 0,
            late_p50_ns: 0,
            late_p99_ns: 0,
            reasons: Vec::new(),
        };
        let said = reasons(&summary);
        assert!(said[0].starts_with("4 packets were of clients behind the first 1048576"));
        assert!(said[1].starts_with("3 packets were refused") && said.len() == 2, "{said:?}");
    }
}
