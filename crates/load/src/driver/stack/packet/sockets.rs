//! Connections by number and by their two ends, and the choice of an end for the next.

use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

use hashbrown::{DefaultHashBuilder, HashTable};
use weir_packet::tcp::{Connection, State};

use super::super::super::action::{Interest, SocketEvent};
use super::super::super::room::{no_memory, table};
use super::paths::ClientPath;
use crate::config::{Hosts, Network};

/// First port of clients (RFC 6335 section 6: behind the system ports).
const PORT_MIN: u16 = 1024;

/// Ports of a client's address.
const PORTS: u64 = (u16::MAX - PORT_MIN) as u64;

/// The two ends of a connection, as the client sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    /// The client's end.
    pub(super) source: SocketAddr,
    /// The server's end.
    pub(super) destination: SocketAddr,
}

/// The two ends in the form that is kept: there may be a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ShortTuple {
    /// Number of the client's address within its network.
    source: u32,
    port: u16,
    /// Number of the server's end.
    destination: u16,
}

/// A server's end.
struct Destination {
    address: SocketAddr,
    /// Number of sockets connected to it.
    open: u64,
}

/// A socket.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) connection: Connection,
    tuple: ShortTuple,
    /// Number of its last event among those of its wait, if it has had one.
    pub(super) event_at: u32,
    is_taken: bool,
    /// Number it is watched with, and what for.
    pub(super) watched: Option<(u64, Interest)>,
    pub(super) path: Option<Box<ClientPath>>,
}

impl Entry {
    /// Returns the event that tells its state.
    pub(super) fn event(&self) -> SocketEvent {
        let state = self.connection.state();
        let hung_up = matches!(
            state,
            State::Closed | State::CloseWait | State::LastAck | State::TimeWait | State::Closing
        );
        SocketEvent { hung_up, has_bytes: hung_up || self.connection.has_unread() }
    }
}

/// The sockets of a thread.
pub(super) struct Sockets {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_tuple: HashTable<u32>,
    /// Of the table, whose keys nobody else chooses.
    hasher: DefaultHashBuilder,
    sources: Network,
    hosts: Hosts,
    destinations: Vec<Destination>,
    /// Number of the next end.
    next: u64,
    secret: u64,
}

impl Sockets {
    /// Creates an empty table of sockets with addresses of `sources`, with room for `room` of them.
    ///
    /// # Errors
    /// As [`no_memory`].
    pub(super) fn new(sources: Network, seed: u64, room: usize) -> io::Result<Self> {
        let entries = table(room)?;
        let mut by_tuple = HashTable::new();
        // An empty table has nothing to hash.
        by_tuple.try_reserve(room, |_| 0).map_err(|_| no_memory(room))?;
        // The ends of the last run may still be in TIME-WAIT on the server.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self {
            entries,
            free: Vec::new(),
            by_tuple,
            hasher: DefaultHashBuilder::default(),
            sources,
            hosts: Hosts::of(sources),
            destinations: Vec::new(),
            next: since.as_micros() as u64,
            secret: seed ^ since.as_nanos() as u64,
        })
    }

    /// Returns the number of sockets.
    pub(super) fn open_count(&self) -> usize {
        self.by_tuple.len()
    }

    /// Returns all sockets.
    pub(super) fn all(&self) -> Vec<u32> {
        self.by_tuple.iter().copied().collect()
    }

    /// Takes an end for a connection to `destination`; returns its number and its initial sequence
    /// number. `None` if all ends are in use.
    pub(super) fn open(
        &mut self,
        destination: SocketAddr,
        path: Option<Box<ClientPath>>,
        now_ns: u64,
    ) -> Option<(u32, u32)> {
        let destination = self.destination(destination)?;
        let tuple = self.free_tuple(destination)?;
        let socket = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            (self.entries.len() - 1) as u32
        });
        let entry = self.entries.get_mut(socket as usize)?;
        *entry = Entry { tuple, is_taken: true, path, ..Entry::default() };
        let (entries, hasher) = (&self.entries, &self.hasher);
        let hash = |socket: &u32| {
            hasher.hash_one(
                entries.get(*socket as usize).map(|entry| entry.tuple).unwrap_or_default(),
            )
        };
        self.by_tuple.insert_unique(hasher.hash_one(tuple), socket, hash);
        self.count_open(destination, 1);
        Some((socket, self.initial_sequence(tuple, now_ns)))
    }

    /// Returns the initial sequence number of a connection: a clock of 64 ns, and an offset for
    /// each pair of ends, as in RFC 6528 section 3. The clock keeps a connection's numbers apart
    /// from those of the one before it with the same ends. The offset is the table's hash (foldhash
    /// with a random seed), and not the keyed pseudorandom function that the RFC asks for against
    /// those who guess numbers from others that they have seen: on a laboratory's link all numbers
    /// can be seen anyway.
    fn initial_sequence(&self, tuple: ShortTuple, now_ns: u64) -> u32 {
        let offset = self.hasher.hash_one((self.secret, tuple)) as u32;
        offset.wrapping_add((now_ns >> 6) as u32)
    }

    /// Returns the number of a server's end.
    fn destination(&mut self, destination: SocketAddr) -> Option<u16> {
        let number = self.known_destination(destination).unwrap_or_else(|| {
            self.destinations.push(Destination { address: destination, open: 0 });
            self.destinations.len() - 1
        });
        u16::try_from(number).ok()
    }

    fn known_destination(&self, address: SocketAddr) -> Option<usize> {
        self.destinations.iter().position(|known| known.address == address)
    }

    /// Adds to the number of sockets that are connected to a destination.
    fn count_open(&mut self, destination: u16, change: i64) {
        if let Some(destination) = self.destinations.get_mut(usize::from(destination)) {
            destination.open = destination.open.saturating_add_signed(change);
        }
    }

    /// Returns the next end that is not in use. Of as many as are in use and one more, one is free;
    /// where all are in use, none is tried.
    fn free_tuple(&mut self, destination: u16) -> Option<ShortTuple> {
        let open = self.destinations.get(usize::from(destination))?.open;
        let tries = if open < self.hosts.count * PORTS { open + 1 } else { 0 };
        for _ in 0..tries {
            let tuple = self.next_tuple(destination);
            if self.find_short(&tuple).is_none() {
                return Some(tuple);
            }
        }
        None
    }

    /// Returns the next end: each address in turn, then the next port.
    fn next_tuple(&mut self, destination: u16) -> ShortTuple {
        let Hosts { first, count } = self.hosts;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        ShortTuple {
            source: first + (number % count) as u32,
            port: PORT_MIN + (number / count % PORTS) as u16,
            destination,
        }
    }

    /// Returns the socket with these ends.
    pub(super) fn find(&self, tuple: &Tuple) -> Option<u32> {
        let source = self.sources.number(tuple.source.ip())?;
        let known = self.known_destination(tuple.destination)?;
        let port = tuple.source.port();
        self.find_short(&ShortTuple { source, port, destination: known as u16 })
    }

    fn find_short(&self, tuple: &ShortTuple) -> Option<u32> {
        let hash = self.hasher.hash_one(tuple);
        let is_it =
            |socket: &u32| self.entries.get(*socket as usize).is_some_and(|it| it.tuple == *tuple);
        self.by_tuple.find(hash, is_it).copied()
    }

    /// Returns a socket that is in use.
    pub(super) fn get(&self, socket: u32) -> Option<&Entry> {
        self.entries.get(socket as usize).filter(|entry| entry.is_taken)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, socket: u32) -> Option<&mut Entry> {
        self.entries.get_mut(socket as usize).filter(|entry| entry.is_taken)
    }

    /// Returns the two ends of a socket.
    pub(super) fn tuple(&self, socket: u32) -> Option<Tuple> {
        let short = self.get(socket)?.tuple;
        let address: IpAddr = self.sources.address(short.source);
        let destination = self.destinations.get(usize::from(short.destination))?.address;
        Some(Tuple { source: SocketAddr::new(address, short.port), destination })
    }

    /// Frees a socket of which nothing more will come.
    pub(super) fn free_if_over(&mut self, socket: u32) {
        if self.get(socket).is_some_and(|entry| entry.connection.is_over()) {
            self.free(socket);
        }
    }

    /// Frees a socket.
    pub(super) fn free(&mut self, socket: u32) {
        let Some(tuple) = self.get(socket).map(|entry| entry.tuple) else { return };
        let hash = self.hasher.hash_one(tuple);
        if let Ok(found) = self.by_tuple.find_entry(hash, |other| *other == socket) {
            found.remove();
        }
        self.count_open(tuple.destination, -1);
        if let Some(entry) = self.entries.get_mut(socket as usize) {
            *entry = Entry::default();
        }
        self.free.push(socket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(prefix: u8) -> Sockets {
        let sources = Network::new([10, 7, 0, 0].into(), prefix).unwrap();
        let mut sockets = Sockets::new(sources, 1, 0).unwrap();
        sockets.next = 0;
        sockets
    }

    #[test]
    fn a_socket_is_found_by_its_ends_until_it_is_freed() {
        let mut sockets = sockets(24);
        let server: SocketAddr = ([10, 0, 0, 1], 80).into();
        let mut known = Vec::new();
        for _ in 0..1000 {
            let (socket, _) = sockets.open(server, None, 0).unwrap();
            known.push((socket, sockets.tuple(socket).unwrap()));
        }
        // Each address in turn, without the first and the last.
        assert_eq!(known[0].1.source, ([10, 7, 0, 1], 1024).into());
        assert_eq!(known[253].1.source, ([10, 7, 0, 254], 1024).into());
        assert_eq!(known[254].1.source, ([10, 7, 0, 1], 1025).into());
        for (socket, tuple) in &known {
            assert_eq!(sockets.find(tuple), Some(*socket));
        }
        for (socket, tuple) in known {
            sockets.free(socket);
            assert_eq!(sockets.find(&tuple), None);
        }
        assert_eq!(sockets.open_count(), 0);
        let (again, _) = sockets.open(server, None, 0).unwrap();
        assert!(again < 1000);
    }

    #[test]
    fn ends_in_use_are_passed_over_and_in_the_end_refused() {
        let mut sockets = sockets(32);
        let server: SocketAddr = ([10, 0, 0, 1], 80).into();
        for _ in 0..PORTS {
            assert!(sockets.open(server, None, 0).is_some());
        }
        assert!(sockets.open(server, None, 0).is_none());
        // Towards another server the same ends are free.
        assert!(sockets.open(([10, 0, 0, 2], 80).into(), None, 0).is_some());
    }

    #[test]
    fn connections_that_stay_leave_every_other_end_to_those_that_come_and_go() {
        let mut sockets = sockets(32);
        let server: SocketAddr = ([10, 0, 0, 1], 80).into();
        for _ in 0..100 {
            assert!(sockets.open(server, None, 0).is_some());
        }
        for _ in 100..PORTS {
            let (socket, _) = sockets.open(server, None, 0).unwrap();
            sockets.free(socket);
        }
        // The next hundred ends are in use, and all behind them are free.
        let (socket, _) = sockets.open(server, None, 0).unwrap();
        let source: SocketAddr = ([10, 7, 0, 0], PORT_MIN + 100).into();
        assert_eq!(sockets.tuple(socket).map(|tuple| tuple.source), Some(source));
    }

    #[test]
    fn sequence_numbers_of_the_same_ends_go_by_the_clock_and_those_of_others_lie_elsewhere() {
        let (mut sockets, server) = (sockets(24), ([10, 0, 0, 1], 80).into());
        let (first, sequence) = sockets.open(server, None, 0).unwrap();
        let (_, other) = sockets.open(server, None, 0).unwrap();
        assert_ne!(sequence, other);
        sockets.free(first);
        sockets.next = 0;
        let (_, later) = sockets.open(server, None, 64_000).unwrap();
        assert_eq!(later.wrapping_sub(sequence), 1000);
    }

    #[test]
    fn room_for_which_there_is_no_memory_is_a_sentence() {
        let sources = Network::new([10, 7, 0, 0].into(), 24).unwrap();
        for room in [usize::MAX, usize::MAX >> 9] {
            let refused = Sockets::new(sources, 1, room).map(|_| ()).unwrap_err();
            assert!(refused.to_string().contains("no memory"), "{refused}");
        }
    }

    #[test]
    fn a_socket_takes_little() {
        assert!(size_of::<Entry>() <= 200, "{}", size_of::<Entry>());
    }
}
