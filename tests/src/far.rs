//! Callers far away on one machine: a network of its own with a link that takes its time, and on
//! which packets can be put that nobody has sent.
//!
//! The link turns around what is sent to it: a packet to any address but the server's comes back as
//! one from there, so that whoever connects to such an address reaches the server, and is that
//! address to it. It must not know what is in the packets.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_sys::{namespace, tun};

/// Where the server is.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);

/// The largest packet.
const PACKET_MAX: usize = 65_536;

/// A link, there until it is dropped.
pub struct Far {
    tun: Arc<tun::Tun>,
    ends: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

impl Far {
    /// Puts the calling thread, and the processes and threads it will start, into a network of its
    /// own, in which every address of 10.88.0.0/16 but the server's is so far away. Where that
    /// cannot be had, why.
    ///
    /// # Errors
    /// A sentence.
    pub fn begin(rtt: Duration) -> Result<Self, String> {
        namespace::leave_network().map_err(|error| format!("no network of its own: {error}"))?;
        let tun = tun::open().map_err(|error| format!("no link: {error}"))?;
        for line in [
            "link set lo up".to_owned(),
            format!("address add {SERVER}/16 dev {}", tun.name),
            format!("link set {} up", tun.name),
        ] {
            let done = Command::new("ip").args(line.split(' ')).status();
            if !done.is_ok_and(|status| status.success()) {
                return Err(format!("ip {line} failed"));
            }
        }
        let (tun, ends) = (Arc::new(tun), Arc::new(AtomicBool::new(false)));
        let mine = (Arc::clone(&tun), Arc::clone(&ends));
        let carrier = thread::spawn(move || carry(&mine.0, &mine.1, rtt / 2));
        Ok(Self { tun, ends, carrier: Some(carrier) })
    }

    /// An address of a port of the server's at which it looks as far away as it is.
    pub fn address(server: SocketAddr, caller: u16) -> SocketAddr {
        let [high, low] = caller.to_be_bytes();
        SocketAddrV4::new(Ipv4Addr::new(10, 88, high, low), server.port()).into()
    }

    /// Puts a SYN on the link that nobody has sent. What answers it is lost.
    ///
    /// # Errors
    /// write(2).
    pub fn forge_syn(&self, from: SocketAddrV4, to: SocketAddrV4) -> io::Result<()> {
        rustix::io::write(&self.tun.fd, &syn(from, to))?;
        Ok(())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
    }
}

/// A count of this thread's network: `TcpExt` of `/proc/net/netstat`.
///
/// # Panics
/// When the kernel has no such count.
pub fn tcp_count(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let mut words = || lines.next().unwrap_or_default().split_whitespace();
    let (names, values) = (words(), words());
    let found = names.zip(values).find(|(each, _)| *each == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

/// Takes what is sent, and gives it back after its time, in its order.
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

/// The packet with its addresses exchanged, which changes none of its sums; none of another
/// network, and nothing but IPv4 (RFC 791 section 3.1).
fn turn_around(packet: &[u8]) -> Option<Vec<u8>> {
    let is_ours = packet.len() >= 20 && packet[0] >> 4 == 4 && packet[16..18] == [10, 88];
    is_ours.then(|| [&packet[..12], &packet[16..20], &packet[12..16], &packet[20..]].concat())
}

/// A SYN without options (RFC 9293 section 3.1).
fn syn(from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
    let mut tcp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    tcp.extend([0; 8]);
    tcp.extend([5 << 4, 2, 0xff, 0xff, 0, 0, 0, 0]);
    let addresses = [from.ip().octets(), to.ip().octets()].concat();
    let pseudo = [&addresses[..], &[0, 6, 0, 20], &tcp].concat();
    tcp[16..18].copy_from_slice(&sum(&pseudo));
    let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    packet.extend(&addresses);
    let of_head = sum(&packet);
    packet[10..12].copy_from_slice(&of_head);
    packet.extend(tcp);
    packet
}

/// The Internet checksum (RFC 1071) of bytes of an even number.
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum = words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
