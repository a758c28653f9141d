//! Frames under way on the paths of their clients, by the time at which they arrive.

use rand::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};
use weir_packet::path::{Path, PathLaw, UnderWay, Way};
use weir_packet::segment::{Flags, Segment};
use weir_packet::wire::{self, Macs, TcpPacket};

use super::super::Client;

/// A frame that has arrived.
pub(super) enum Frame {
    /// At the link, on its way to the server.
    Up(Box<[u8]>),
    /// At its client.
    Down(Box<[u8]>),
}

/// The path of a client's connection. What becomes of its packets depends on nobody else's.
pub(super) struct ClientPath {
    path: Path,
    random: Xoshiro256PlusPlus,
}

/// The frames under way.
pub(super) struct Paths<'a> {
    law: &'a PathLaw,
    seed: u64,
    under_way: UnderWay<Frame>,
    /// Room to build a frame in.
    scratch: Vec<u8>,
}

impl<'a> Paths<'a> {
    /// Creates paths of a law, drawn from the seed, without a frame.
    pub(super) fn new(law: &'a PathLaw, seed: u64) -> Self {
        Self { law, seed, under_way: UnderWay::default(), scratch: Vec::new() }
    }

    /// Draws the path of a client's connection, the same whenever it is opened.
    pub(super) fn draw(&self, client: Client) -> ClientPath {
        let Client { group, number, opened } = client;
        // Each is mixed before the next comes: seeds and numbers are small, and follow each other.
        let parts = [group as u64, number, opened.into()];
        let seed = parts.into_iter().fold(self.seed, |seed, part| mixed(seed) ^ part);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        ClientPath { path: Path::draw(self.law, &mut random), random }
    }

    /// Sends a segment towards the server; returns how many packets are lost.
    pub(super) fn send_up(
        &mut self,
        path: &mut ClientPath,
        macs: Macs,
        packet: &TcpPacket<'_>,
        now_ns: u64,
    ) -> u64 {
        self.scratch.clear();
        wire::build(&mut self.scratch, macs, packet);
        self.send(path, Way::Up, now_ns)
    }

    /// Sends a segment towards the client, in packets of `mss` bytes at most: what comes in one
    /// piece on a link without a wire is lost and delayed in packets. Returns how many are lost.
    pub(super) fn send_down(
        &mut self,
        path: &mut ClientPath,
        packet: &TcpPacket<'_>,
        mss: u16,
        now_ns: u64,
    ) -> u64 {
        let segment = packet.segment;
        let parts = segment.payload.len().div_ceil(usize::from(mss.max(1))).max(1);
        let mut lost = 0;
        for nth in 0..parts {
            let from = nth * usize::from(mss);
            let to = segment.payload.len().min(from + usize::from(mss));
            let is_last = nth + 1 == parts;
            let flags = Flags {
                fin: segment.flags.fin && is_last,
                psh: segment.flags.psh && is_last,
                ..segment.flags
            };
            let part = Segment {
                seq: segment.seq.plus(from as u32),
                flags,
                payload: segment.payload.get(from..to).unwrap_or_default(),
                ..segment
            };
            self.scratch.clear();
            let packet = TcpPacket { segment: part, ..*packet };
            wire::build(&mut self.scratch, Macs::default(), &packet);
            lost += self.send(path, Way::Down, now_ns);
        }
        lost
    }

    /// Sends the frame in `scratch`; returns 1 if it is lost.
    fn send(&mut self, client: &mut ClientPath, way: Way, now_ns: u64) -> u64 {
        let bytes = self.scratch.len() - wire::ETHERNET_BYTES;
        let arrivals = client.path.send(way, bytes, now_ns, &mut client.random);
        for at_ns in arrivals.into_iter().flatten() {
            let bytes = self.scratch.clone().into_boxed_slice();
            let frame = match way {
                Way::Up => Frame::Up(bytes),
                Way::Down => Frame::Down(bytes),
            };
            self.under_way.add(at_ns, frame);
        }
        u64::from(arrivals[0].is_none())
    }

    /// Returns the time of the next arrival.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.under_way.next_ns()
    }

    /// Removes and returns a frame that has arrived.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<Frame> {
        self.under_way.take_due(now_ns)
    }

    /// Removes and returns the next frame towards the server, whether it has arrived or not. Those
    /// before it towards clients are dropped.
    pub(super) fn take_up(&mut self) -> Option<Box<[u8]>> {
        loop {
            if let Frame::Up(bytes) = self.take_due(u64::MAX)? {
                return Some(bytes);
            }
        }
    }
}

/// Mixes the bits of a seed.
fn mixed(seed: u64) -> u64 {
    SplitMix64::seed_from_u64(seed).next_u64()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use weir_packet::seq::Seq;
    use weir_packet::wire::{Checksum, Ends, Packet};

    use super::super::super::Group;
    use super::*;

    const MS: u64 = 1_000_000;

    fn ends() -> Ends {
        let [source, destination]: [SocketAddr; 2] =
            [([10, 0, 0, 1], 80).into(), ([10, 7, 0, 1], 4000).into()];
        Ends { source, destination }
    }

    fn arrival(number: u64) -> Client {
        Client { number, ..Client::default() }
    }

    #[test]
    fn a_path_and_what_becomes_of_its_packets_do_not_depend_on_other_clients() {
        let law: PathLaw = "rtt=50ms..200ms,jitter=5ms,loss=20%".parse().unwrap();
        let packet = TcpPacket { ends: ends(), segment: Segment::default() };
        let second = |packets: u64| {
            let mut paths = Paths::new(&law, 1);
            let mut first = paths.draw(arrival(0));
            for nth in 0..packets {
                paths.send_up(&mut first, Macs::default(), &packet, nth * MS);
            }
            while paths.take_due(u64::MAX).is_some() {}
            let mut second = paths.draw(arrival(1));
            let lost: Vec<u64> = (0..50)
                .map(|nth| paths.send_up(&mut second, Macs::default(), &packet, nth * MS))
                .collect();
            let arrives_ns = std::iter::from_fn(|| {
                let next_ns = paths.next_ns()?;
                paths.take_due(next_ns).map(|_| next_ns)
            });
            (second.path.rtt_ns(), lost, arrives_ns.collect::<Vec<u64>>())
        };
        let alone = second(0);
        assert!(alone.1.contains(&0) && alone.1.contains(&1), "{alone:?}");
        assert_eq!(alone, second(1));
        assert_eq!(alone, second(7));
    }

    #[test]
    fn each_seed_client_and_connection_has_a_path_of_its_own() {
        let law: PathLaw = "rtt=0s..1s".parse().unwrap();
        let mut drawn = Vec::new();
        for seed in 0..3 {
            let paths = Paths::new(&law, seed);
            let mut draw = |client| drawn.push(paths.draw(client).path.rtt_ns());
            for number in 0..3 {
                draw(arrival(number));
                draw(Client { opened: 1, ..arrival(number) });
                draw(Client { group: Group::Shared, ..arrival(number) });
            }
        }
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 27);
    }

    #[test]
    fn frames_towards_the_server_are_taken_in_their_order_before_they_have_arrived() {
        let law: PathLaw = "rtt=200ms".parse().unwrap();
        let mut paths = Paths::new(&law, 1);
        let mut path = paths.draw(Client::default());
        let segment = |seq| Segment { seq: Seq(seq), ..Segment::default() };
        for seq in 1..=3 {
            let packet = TcpPacket { ends: ends(), segment: segment(seq) };
            assert_eq!(paths.send_down(&mut path, &packet, 1460, 0), 0);
            assert_eq!(paths.send_up(&mut path, Macs::default(), &packet, 0), 0);
        }
        assert!(paths.take_due(99 * MS).is_none());
        let taken: Vec<Seq> = std::iter::from_fn(|| paths.take_up())
            .map(|frame| match wire::parse(&frame, Checksum::Unknown) {
                Ok(Packet::Tcp(packet)) => packet.segment.seq,
                _ => panic!("no segment"),
            })
            .collect();
        assert_eq!(taken, [1, 2, 3].map(Seq));
        assert_eq!(paths.next_ns(), None);
    }

    #[test]
    fn a_large_segment_is_cut_and_arrives_in_order() {
        let law: PathLaw = "rtt=20ms,down=8m".parse().unwrap();
        let mut paths = Paths::new(&law, 1);
        let mut path = paths.draw(Client::default());
        let payload: Vec<u8> = (0..3500_u32).map(|at| at as u8).collect();
        let flags = Flags { fin: true, psh: true, ..Flags::default() };
        let segment =
            Segment { seq: Seq(u32::MAX - 9), flags, payload: &payload, ..Segment::default() };
        let packet = TcpPacket { ends: ends(), segment };
        assert_eq!(paths.send_down(&mut path, &packet, 1460, 0), 0);
        assert!(paths.take_due(10 * MS).is_none());
        let mut received: Vec<u8> = Vec::new();
        let mut last_ns = 0;
        while let Some(at_ns) = paths.next_ns() {
            assert!(at_ns > last_ns);
            last_ns = at_ns;
            let Some(Frame::Down(frame)) = paths.take_due(at_ns) else { panic!("no frame") };
            let Ok(Packet::Tcp(part)) = wire::parse(&frame, Checksum::Unknown) else {
                panic!("no segment")
            };
            assert_eq!(part.segment.seq, Seq(u32::MAX - 9).plus(received.len() as u32));
            received.extend(part.segment.payload);
            assert_eq!(part.segment.flags.fin, received.len() == payload.len());
        }
        assert_eq!(received, payload);
        // 3.5 KB and the heads at 8 Mbit/s.
        assert!((13 * MS..14 * MS).contains(&last_ns), "{last_ns}");
    }
}
