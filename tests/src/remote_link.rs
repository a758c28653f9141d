//! Distant clients on one machine: a network namespace with a link that has a delay, and into which
//! forged packets can be injected.
//!
//! The link returns every packet with its addresses exchanged: a packet to any address but the
//! server's comes back as one from there, so that a client that connects to such an address reaches
//! the server, and appears to have that address. The contents of the packets do not matter.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_sys::tun;

use crate::link;

/// Address of the server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);

/// Maximum size of a packet.
const PACKET_MAX: usize = 65_536;

/// A link, removed when dropped.
pub struct RemoteLink {
    tun: Arc<tun::Tun>,
    ends: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

impl RemoteLink {
    /// Moves the calling thread, and the processes and threads it will start, into a network
    /// namespace in which every address of 10.88.0.0/16 but the server's is `rtt` away.
    ///
    /// # Errors
    /// A sentence that says why this is not possible.
    pub fn begin(rtt: Duration) -> Result<Self, String> {
        let tun = link::begin(SERVER)?;
        link::ip("link set lo up")?;
        let (tun, ends) = (Arc::new(tun), Arc::new(AtomicBool::new(false)));
        let mine = (Arc::clone(&tun), Arc::clone(&ends));
        let carrier = thread::spawn(move || carry(&mine.0, &mine.1, rtt / 2));
        Ok(Self { tun, ends, carrier: Some(carrier) })
    }

    /// Returns an address at which the server's port is reached from afar, one for each `caller`.
    pub fn address(server: SocketAddr, caller: u16) -> SocketAddr {
        let [high, low] = caller.to_be_bytes();
        SocketAddrV4::new(Ipv4Addr::new(10, 88, high, low), server.port()).into()
    }

    /// Injects a forged SYN into the link. The answer to it is lost.
    ///
    /// # Errors
    /// write(2).
    pub fn forge_syn(&self, from: SocketAddrV4, to: SocketAddrV4) -> io::Result<()> {
        rustix::io::write(&self.tun.fd, &link::packet(from, to, link::SYN, 0, 0))?;
        Ok(())
    }
}

impl Drop for RemoteLink {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
    }
}

/// Returns a counter of this thread's network namespace: `TcpExt` of `/proc/net/netstat`.
///
/// # Panics
/// When the kernel has no such counter.
pub fn tcp_count(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let mut words = || lines.next().unwrap_or_default().split_whitespace();
    let (names, values) = (words(), words());
    let found = names.zip(values).find(|(each, _)| *each == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

/// Carries packets: returns each after the delay, in order.
fn carry(tun: &tun::Tun, ends: &AtomicBool, way: Duration) {
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut packet = vec![0; PACKET_MAX];
    while !ends.load(Ordering::Relaxed) {
        let now = Instant::now();
        while under_way.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, packet)) = under_way.pop_front() else { break };
            // Want of memory: lost, as packets are.
            let _ = rustix::io::write(&tun.fd, &packet);
        }
        let until = under_way.front().map_or(Duration::from_millis(20), |(due, _)| *due - now);
        let until = Timespec { tv_sec: 0, tv_nsec: until.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(tun.fd.as_fd(), PollFlags::IN)];
        if !poll(&mut fds, Some(&until)).is_ok_and(|ready| ready > 0) {
            continue;
        }
        if let Ok(count) = rustix::io::read(&tun.fd, &mut packet)
            && let Some(turned) = turn_around(&packet[..count])
        {
            under_way.push_back((Instant::now() + way, turned));
        }
    }
}

/// Returns the packet with its addresses exchanged, which changes none of its checksums; `None` for
/// packets of other networks and anything but IPv4 (RFC 791 section 3.1).
fn turn_around(packet: &[u8]) -> Option<Vec<u8>> {
    let is_ours = packet.len() >= 20 && packet[0] >> 4 == 4 && packet[16..18] == [10, 88];
    is_ours.then(|| [&packet[..12], &packet[16..20], &packet[12..16], &packet[20..]].concat())
}
