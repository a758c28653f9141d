//! Packets between clients and servers, each on the path of its client. Holds the packets and
//! decides when each arrives; sends none itself, and reads no clock.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hashbrown::HashMap;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use weir_packet::path::{Path, PathLaw, UnderWay, Way};

/// Most bytes under way: what is sent beyond them is lost, so that a path without a bandwidth
/// cannot take all memory.
const BYTES_MAX: usize = 256 << 20;

/// Most clients that have a path.
pub(super) const CLIENTS_MAX: usize = 1 << 20;

/// Counts of the packets of one way, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WayCounts {
    /// Packets that entered the link.
    pub sent: u64,
    /// Packets that the receiving kernel took, copies included.
    pub arrived: u64,
    /// Packets lost, or dropped by a full queue, as the law has it.
    pub lost: u64,
    /// Packets dropped for want of room in the emulator.
    pub overflowed: u64,
    /// Packets that the receiving kernel refused.
    pub refused: u64,
    /// Packets of clients beyond the most that have a path, which were dropped.
    pub without_path: u64,
}

/// The packets under way.
pub(super) struct Emulator<'a> {
    law: &'a PathLaw,
    seed: u64,
    clients: HashMap<IpAddr, Client>,
    under_way: UnderWay<InFlight>,
    bytes: usize,
    pub(super) up: WayCounts,
    pub(super) down: WayCounts,
}

/// A client's path. What becomes of its packets depends on nobody else's.
struct Client {
    path: Path,
    random: Xoshiro256PlusPlus,
}

/// A packet under way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) way: Way,
    pub(super) due_ns: u64,
    pub(super) packet: Box<[u8]>,
}

impl<'a> Emulator<'a> {
    /// Creates a link of paths of a law, drawn from the seed.
    pub(super) fn new(law: &'a PathLaw, seed: u64) -> Self {
        Self {
            law,
            seed,
            clients: HashMap::new(),
            under_way: UnderWay::default(),
            bytes: 0,
            up: WayCounts::default(),
            down: WayCounts::default(),
        }
    }

    /// Sends an IP packet down its path. What is no IP packet is left out.
    pub(super) fn send(&mut self, way: Way, packet: &[u8], now_ns: u64) {
        let Some(address) = client_address(way, packet) else { return };
        self.counts(way).sent += 1;
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&address) {
            self.counts(way).without_path += 1;
            return;
        }
        let client =
            self.clients.entry(address).or_insert_with(|| draw(self.law, self.seed, address));
        let arrivals = client.path.send(way, packet.len(), now_ns, &mut client.random);
        self.counts(way).lost += u64::from(arrivals[0].is_none());
        for due_ns in arrivals.into_iter().flatten() {
            if self.bytes + packet.len() > BYTES_MAX {
                self.counts(way).overflowed += 1;
                continue;
            }
            self.bytes += packet.len();
            self.under_way.add(due_ns, InFlight { way, due_ns, packet: packet.into() });
        }
    }

    /// Returns the time of the next arrival, nanoseconds.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.under_way.next_ns()
    }

    /// Removes and returns the next packet that has arrived by `now_ns`.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<InFlight> {
        let due = self.under_way.take_due(now_ns)?;
        self.bytes -= due.packet.len();
        Some(due)
    }

    /// Counts a packet that was handed to the receiving kernel, which took it or refused it.
    pub(super) fn handed_over(&mut self, way: Way, is_taken: bool) {
        let counts = self.counts(way);
        counts.arrived += u64::from(is_taken);
        counts.refused += u64::from(!is_taken);
    }

    /// Returns the number of clients seen.
    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    fn counts(&mut self, way: Way) -> &mut WayCounts {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }
}

/// Draws the path of a client, the same whenever it comes.
fn draw(law: &PathLaw, seed: u64, address: IpAddr) -> Client {
    let bits = match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    };
    let seed = seed.rotate_left(32) ^ bits as u64 ^ (bits >> 64) as u64;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    Client { path: Path::draw(law, &mut random), random }
}

/// Returns the client's address of an IP packet (RFC 791 section 3.1, RFC 8200 section 3).
fn client_address(way: Way, packet: &[u8]) -> Option<IpAddr> {
    let part = |v4: usize, v6: usize| -> Option<IpAddr> {
        match packet.first()? >> 4 {
            4 => Some(Ipv4Addr::from(*packet.get(v4..)?.first_chunk::<4>()?).into()),
            6 => Some(Ipv6Addr::from(*packet.get(v6..)?.first_chunk::<16>()?).into()),
            _ => None,
        }
    };
    match way {
        Way::Up => part(12, 8),
        Way::Down => part(16, 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn packet_v4(from: [u8; 4], to: [u8; 4], bytes: usize) -> Vec<u8> {
        let mut packet = vec![0; bytes];
        packet[0] = 0x45;
        packet[12..16].copy_from_slice(&from);
        packet[16..20].copy_from_slice(&to);
        packet
    }

    #[test]
    fn each_client_has_the_same_path_both_ways_whatever_others_do() {
        let law: PathLaw = "rtt=20ms..200ms".parse().unwrap();
        let (client, server) = ([10, 0, 1, 1], [10, 0, 0, 2]);
        let arrivals = |others: u8| {
            let mut link = Emulator::new(&law, 7);
            for other in 0..others {
                link.send(Way::Up, &packet_v4([10, 0, 2, other], server, 40), 0);
            }
            link.send(Way::Up, &packet_v4(client, server, 41), 0);
            link.send(Way::Down, &packet_v4(server, client, 41), 0);
            let all = std::iter::from_fn(|| link.take_due(u64::MAX));
            all.filter(|due| due.packet.len() == 41).map(|due| due.due_ns).collect::<Vec<_>>()
        };
        let alone = arrivals(0);
        assert_eq!(alone, arrivals(9));
        assert_eq!(alone[0], alone[1]);
        assert!((10 * MS..=100 * MS).contains(&alone[0]), "{alone:?}");
    }

    #[test]
    fn clients_do_not_share_a_bandwidth() {
        let law: PathLaw = "rtt=0s,down=8m,queue=10ms".parse().unwrap();
        let mut link = Emulator::new(&law, 7);
        for _ in 0..20 {
            for client in 1..=2 {
                let packet = packet_v4([10, 0, 0, 2], [10, 0, 1, client], 1000);
                link.send(Way::Down, &packet, 0);
            }
        }
        // A millisecond each; those that would wait longer than the queue are lost.
        assert_eq!((link.down.sent, link.down.lost, link.clients()), (40, 18, 2));
        assert!(link.take_due(MS - 1).is_none());
        assert_eq!(link.next_ns(), Some(MS));
        let arrived = std::iter::from_fn(|| link.take_due(11 * MS)).count();
        assert_eq!((arrived, link.next_ns()), (22, None));
    }

    #[test]
    fn a_packet_arrives_when_the_kernel_takes_it() {
        let law: PathLaw = "rtt=0s".parse().unwrap();
        let mut link = Emulator::new(&law, 7);
        for is_taken in [true, true, false] {
            link.send(Way::Up, &packet_v4([10, 0, 1, 1], [10, 0, 0, 2], 40), 0);
            let due = link.take_due(MS).unwrap();
            link.handed_over(due.way, is_taken);
        }
        let counts = WayCounts { sent: 3, arrived: 2, refused: 1, ..WayCounts::default() };
        assert_eq!((link.up, link.down), (counts, WayCounts::default()));
    }

    #[test]
    fn what_is_no_ip_packet_goes_nowhere() {
        let law: PathLaw = "lan".parse().unwrap();
        let mut link = Emulator::new(&law, 7);
        for packet in [&[][..], &[0x45; 15], &[0x60; 23], &[0x12; 60]] {
            link.send(Way::Up, packet, 0);
        }
        assert_eq!((link.up, link.next_ns()), (WayCounts::default(), None));
        let mut packet = [0x60; 60];
        packet[8..24].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        link.send(Way::Up, &packet, 0);
        assert_eq!(link.up.sent, 1);
        assert_eq!(client_address(Way::Up, &packet), Some(Ipv6Addr::LOCALHOST.into()));
    }

    #[test]
    fn memory_is_bounded() {
        let law: PathLaw = "rtt=1h".parse().unwrap();
        let mut link = Emulator::new(&law, 7);
        let packet = packet_v4([10, 0, 1, 1], [10, 0, 0, 2], 1 << 20);
        for _ in 0..300 {
            link.send(Way::Up, &packet, 0);
        }
        assert_eq!((link.up.sent, link.up.overflowed), (300, 44));
    }
}
