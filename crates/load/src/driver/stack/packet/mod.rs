//! weir's own TCP on a packet socket: clients of addresses that the kernel does not have, each with
//! a path of its own. One thread has a part of the addresses to itself, and shares nothing.

mod arrival;
mod events;
mod link;
mod paths;
mod sockets;

use std::io;
use std::thread;
use std::time::Duration;

use weir_dispatch::timers::TimerWheel;
use weir_packet::tcp::{self, Changes, Connection, OpenOptions};
use weir_packet::wire::{self, Checksum, Ends, Packet, TcpPacket};
use weir_sys::packet_socket::ReceiveRing;

use self::arrival::Clocks;
use self::events::Events;
use self::link::Link;
use self::paths::{ClientPath, Paths};
use self::sockets::{Sockets, Tuple};
use super::super::action::Interest;
use super::super::clock::Clock;
use super::{Client, Event, Purpose, Stack};
use crate::config::{AddressPair, Config, Destination, PacketConfig};
use crate::measure::PacketCounts;

/// Frames received per wait, so that starts are not delayed.
const FRAMES_MAX: usize = 256;

/// Receive window of a slow reader, so that the server notices the slow reading.
const SLOW_WINDOW: u32 = 2304;

/// Connections closed in a row before the answers are received: those of all at once would find no
/// room.
const CLOSES_MAX: u32 = 512;

/// Connections that may be closing when more are closed in a row.
const CLOSING_MAX: usize = 4096;

/// Longest time that they hold up the next [`CLOSES_MAX`].
const CLOSING_NS: u64 = 10_000_000;

/// Longest time that connections get to close at the end of a run, and frames to arrive.
const LINGER_NS: u64 = 1_000_000_000;

/// weir's own TCP.
pub(in super::super) struct PacketStack<'a> {
    config: &'a PacketConfig,
    /// Settings of this run's connections.
    tcp: tcp::Settings,
    clock: Clock,
    link: Link,
    sockets: Sockets,
    timers: TimerWheel,
    paths: Option<Paths<'a>>,
    events: Events,
    expired: Vec<u32>,
    /// Connections closed since the last wait, and those open before.
    closed: u32,
    open_before: usize,
    /// Frames received; `None` while they are handled.
    ring: Option<ReceiveRing>,
    /// True if frames were received lately, so that others are likely to follow.
    is_receiving: bool,
    /// Time at which the frame being handled was received.
    received_ns: u64,
    counts: PacketCounts,
}

impl<'a> PacketStack<'a> {
    /// Opens the packet socket of thread number `index`, and finds the server on the link. Sets
    /// aside room for `room` connections of the load, and for those in the background.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW; a sentence for a server that does not answer, for addresses that
    /// are fewer than the threads, and for room that is not there.
    pub(in super::super) fn new(
        config: &'a Config,
        packet: &'a PacketConfig,
        index: usize,
        clock: Clock,
        room: usize,
    ) -> io::Result<Self> {
        let sources = packet
            .sources
            .part(index, config.threads)
            .ok_or_else(|| io::Error::other("--source: there are fewer addresses than threads"))?;
        let (link, ring) = Link::open(&packet.interface, index, sources, &config.addresses)?;
        let now_ns = clock.now_ns();
        let room = room.saturating_add(config.share(config.background(), index));
        let ticks_at_zero = tcp::ticks(clock.began_ns());
        Ok(Self {
            config: packet,
            tcp: tcp::Settings { ticks_at_zero, ..packet.tcp.clone() },
            clock,
            link,
            sockets: Sockets::new(sources, config.seed, room)?,
            timers: TimerWheel::new(now_ns),
            paths: packet.path.as_ref().map(|law| Paths::new(law, config.seed)),
            events: Events::default(),
            expired: Vec::new(),
            closed: 0,
            open_before: 0,
            ring: Some(ring),
            is_receiving: false,
            received_ns: 0,
            counts: PacketCounts::default(),
        })
    }

    /// Lets a connection do something, and sees to what follows from it.
    fn with<T>(
        &mut self,
        socket: u32,
        act: impl FnOnce(&mut Connection, &mut tcp::Context<'_>) -> T,
    ) -> Option<T> {
        self.with_at(self.clock.now_ns(), socket, act)
    }

    /// The same, at a time that was just read.
    fn with_at<T>(
        &mut self,
        now_ns: u64,
        socket: u32,
        act: impl FnOnce(&mut Connection, &mut tcp::Context<'_>) -> T,
    ) -> Option<T> {
        let Tuple { source, destination } = self.sockets.tuple(socket)?;
        let entry = self.sockets.get_mut(socket)?;
        let mut output = Output {
            ends: Ends { source, destination },
            link: &mut self.link,
            path: entry.path.as_deref_mut().zip(self.paths.as_mut()),
            now_ns,
            sent: &mut self.counts.sent,
            lost: &mut self.counts.lost,
        };
        let mut context = tcp::Context {
            now_ns,
            settings: &self.tcp,
            output: &mut output,
            counts: &mut self.counts.tcp,
        };
        let answer = act(&mut entry.connection, &mut context);
        if let Some(timer_ns) = entry.connection.timer_ns() {
            self.timers.arm(socket, timer_ns);
        }
        Some(answer)
    }

    /// Reports what has changed on a watched socket.
    fn report(&mut self, socket: u32, changes: Changes) {
        if changes == Changes::default() {
            return;
        }
        let Some(entry) = self.sockets.get_mut(socket) else { return };
        let Some((token, interest)) = entry.watched else { return };
        let is_wanted = changes.readable
            || changes.hung_up
            || (changes.writable || changes.connected) && interest == Interest::ReadWrite;
        if !is_wanted {
            return;
        }
        self.events.report(token, entry.event(), &mut entry.event_at);
    }

    /// Receives a segment that has come to the end of its path.
    fn deliver(&mut self, packet: &TcpPacket<'_>) {
        let TcpPacket { ends, segment } = packet;
        let Some(socket) = self.find(ends) else { return self.answer_stray(packet) };
        let received_ns = self.received_ns;
        let changes = self.with(socket, |connection, context| {
            let changes = connection.receive(segment, context);
            connection.note_arrival(received_ns);
            changes
        });
        self.report(socket, changes.unwrap_or_default());
        self.sockets.free_if_over(socket);
    }

    fn find(&self, ends: &Ends) -> Option<u32> {
        // The packet's ends are the server's view.
        self.sockets.find(&Tuple { source: ends.destination, destination: ends.source })
    }

    fn answer_stray(&mut self, packet: &TcpPacket<'_>) {
        self.counts.strays += 1;
        if self.config.vanish {
            return;
        }
        let now_ns = self.clock.now_ns();
        let Ends { source, destination } = packet.ends;
        let mut output = Output {
            ends: Ends { source: destination, destination: source },
            link: &mut self.link,
            path: None,
            now_ns,
            sent: &mut self.counts.sent,
            lost: &mut self.counts.lost,
        };
        let mut context = tcp::Context {
            now_ns,
            settings: &self.tcp,
            output: &mut output,
            counts: &mut self.counts.tcp,
        };
        tcp::answer_stray(&packet.segment, &mut context);
    }

    /// Receives the frames that wait.
    fn receive(&mut self) {
        let Some(mut ring) = self.ring.take() else { return };
        let clocks = Clocks::read(self.clock);
        self.is_receiving = false;
        for _ in 0..FRAMES_MAX {
            // An interface that has gone down is not told here: nothing comes any more, and the
            // load's timeouts say so.
            let Some(frame) = self.link.receive(&mut ring) else { break };
            self.counts.received += 1;
            self.is_receiving = true;
            self.received_ns = clocks.run_ns(frame.received);
            let is_trusted = frame.is_trusted;
            let checksum = if is_trusted { Checksum::Trusted } else { Checksum::Unknown };
            self.arrive(frame.bytes, checksum);
        }
        self.ring = Some(ring);
    }

    /// Handles a frame from the link.
    fn arrive(&mut self, frame: &[u8], checksum: Checksum) {
        match wire::parse(frame, checksum) {
            Ok(Packet::Tcp(packet)) if self.paths.is_some() => self.enter_path(&packet),
            Ok(Packet::Tcp(packet)) => self.deliver(&packet),
            Ok(Packet::Neighbour(neighbour)) => self.link.answer(&neighbour),
            Ok(Packet::Other) => {}
            Err(wire::Malformed) => self.counts.malformed += 1,
        }
    }

    /// Sends a segment down the path of its client, or delivers it if there is none.
    fn enter_path(&mut self, packet: &TcpPacket<'_>) {
        let client = self.find(&packet.ends).and_then(|socket| self.sockets.get_mut(socket));
        let path = client.and_then(|entry| entry.path.as_deref_mut());
        let Some((path, paths)) = path.zip(self.paths.as_mut()) else {
            return self.deliver(packet);
        };
        let now_ns = self.clock.now_ns();
        self.counts.lost += paths.send_down(path, packet, self.config.tcp.mss, now_ns);
    }

    /// Lets arrive what is due on the paths: frames up to the link, and down to their connections.
    fn run_paths(&mut self, now_ns: u64) {
        self.received_ns = now_ns;
        while let Some(frame) = self.paths.as_mut().and_then(|paths| paths.take_due(now_ns)) {
            match frame {
                paths::Frame::Up(bytes) => {
                    self.link.push(|frames| frames.extend_from_slice(&bytes));
                }
                paths::Frame::Down(bytes) => {
                    // It was built here.
                    if let Ok(Packet::Tcp(packet)) = wire::parse(&bytes, Checksum::Trusted) {
                        self.deliver(&packet);
                    }
                }
            }
        }
    }

    fn run_timers(&mut self, now_ns: u64) {
        let sockets = &self.sockets;
        let timer_ns = |socket: u32| sockets.get(socket)?.connection.timer_ns();
        let mut expired = std::mem::take(&mut self.expired);
        self.timers.expire(now_ns, timer_ns, &mut expired);
        for socket in expired.drain(..) {
            let changes = self.with_at(now_ns, socket, Connection::expire);
            self.report(socket, changes.unwrap_or_default());
            self.sockets.free_if_over(socket);
        }
        self.expired = expired;
    }

    /// Does everything that is due, and receives what waits.
    fn turn(&mut self) {
        let now_ns = self.clock.now_ns();
        self.run_paths(now_ns);
        self.run_timers(now_ns);
        self.receive();
        self.link.flush();
    }

    /// Returns whether a connection is open, or a frame under way.
    fn is_busy(&self) -> bool {
        let is_under_way = self.paths.as_ref().and_then(Paths::next_ns).is_some();
        self.sockets.open_count() > 0 || is_under_way
    }

    /// Receives answers until not too many connections are closing.
    fn await_closes(&mut self) {
        let end_ns = self.clock.now_ns() + CLOSING_NS;
        loop {
            self.turn();
            let left = self.open_before.saturating_sub(self.closed as usize);
            let is_over = self.sockets.open_count() <= left + CLOSING_MAX;
            if is_over || self.clock.now_ns() >= end_ns {
                return;
            }
            self.wait_until(end_ns);
        }
    }

    /// Waits for a frame, until something is due here, at most until `end_ns`.
    fn wait_until(&self, end_ns: u64) {
        let path_ns = self.paths.as_ref().and_then(Paths::next_ns);
        let due_ns = path_ns.into_iter().chain(self.timers.next_ns()).fold(end_ns, u64::min);
        let left_ns = due_ns.saturating_sub(self.clock.now_ns());
        let coalesce_ns = if self.is_receiving { self.config.coalesce_ns } else { 0 };
        if left_ns == 0 {
            return;
        }
        if coalesce_ns > 0 {
            thread::sleep(Duration::from_nanos(left_ns.min(coalesce_ns)));
        } else {
            self.link.wait(Duration::from_nanos(left_ns));
        }
    }
}

impl Stack for PacketStack<'_> {
    type Socket = u32;

    fn open(&mut self, pair: AddressPair<'_>, client: Client, purpose: Purpose) -> io::Result<u32> {
        let Destination::Inet(destination) = pair.destination else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let now_ns = self.clock.now_ns();
        let path = self.paths.as_ref().map(|paths| Box::new(paths.draw(client)));
        let (socket, iss) =
            self.sockets.open(destination, path, now_ns).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let options = OpenOptions {
            iss,
            sends_at_once: purpose == Purpose::SlowSender,
            window_limit: if purpose == Purpose::SlowReader { SLOW_WINDOW } else { 0 },
        };
        self.with_at(now_ns, socket, |connection, context| {
            *connection = Connection::open(options, context);
        });
        Ok(socket)
    }

    fn take_error(&mut self, socket: &u32) -> Option<io::Error> {
        let failure = self.sockets.get_mut(*socket)?.connection.take_failure()?;
        Some(failure.into())
    }

    fn write(&mut self, socket: &u32, bytes: &[u8]) -> io::Result<usize> {
        let written = self.with(*socket, |connection, context| connection.write(bytes, context));
        written.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn read(&mut self, socket: &u32, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.with(*socket, |connection, context| connection.read(buffer, context));
        read.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn received_ns(&self, socket: &u32) -> Option<u64> {
        let received_ns = self.sockets.get(*socket)?.connection.last_received_ns();
        Some(received_ns).filter(|received_ns| *received_ns > 0)
    }

    fn watch(
        &mut self,
        socket: &u32,
        token: u64,
        wanted: Interest,
        _watched: Option<Interest>,
    ) -> io::Result<()> {
        let Some(entry) = self.sockets.get_mut(*socket) else { return Ok(()) };
        entry.watched = Some((token, wanted));
        let event = entry.event();
        let is_ready = event.has_bytes
            || event.hung_up
            || wanted == Interest::ReadWrite && entry.connection.is_writable();
        if is_ready {
            self.events.report(token, event, &mut entry.event_at);
        }
        Ok(())
    }

    fn close(&mut self, socket: u32, reset: bool) {
        if let Some(entry) = self.sockets.get_mut(socket) {
            entry.watched = None;
        }
        if self.config.vanish {
            return self.sockets.free(socket);
        }
        self.with(socket, |connection, context| {
            if reset { connection.reset(context) } else { connection.close(context) }
        });
        self.sockets.free_if_over(socket);
        self.closed += 1;
        if self.closed.is_multiple_of(CLOSES_MAX) {
            self.await_closes();
        }
    }

    fn wait(&mut self, timeout: Duration) {
        (self.closed, self.open_before) = (0, self.sockets.open_count());
        let end_ns = self.clock.now_ns().saturating_add(timeout.as_nanos() as u64);
        self.events.begin_wait();
        loop {
            self.turn();
            if !self.events.is_empty() || self.clock.now_ns() >= end_ns {
                return self.events.end_wait();
            }
            self.wait_until(end_ns);
        }
    }

    fn event(&self, nth: usize) -> Option<Event> {
        self.events.get(nth)
    }

    fn finish(&mut self) -> Option<PacketCounts> {
        let end_ns = self.clock.now_ns() + LINGER_NS;
        while self.is_busy() && self.clock.now_ns() < end_ns {
            self.turn();
            self.wait_until(end_ns);
        }
        for socket in self.sockets.all() {
            self.with(socket, Connection::reset);
        }
        // Those that do not arrive in time arrive now: the server is told of every close.
        while let Some(frame) = self.paths.as_mut().and_then(Paths::take_up) {
            self.link.push(|frames| frames.extend_from_slice(&frame));
        }
        self.link.flush();
        (self.counts.dropped, self.counts.refused) = (self.link.dropped, self.link.refused);
        self.counts.by_xdp = self.link.by_xdp;
        self.counts.overflowed += self.link.take_overflowed();
        Some(self.counts)
    }
}

/// Sends the segments of one connection: to the link, or into the path of its client.
struct Output<'a, 'b> {
    ends: Ends,
    link: &'a mut Link,
    path: Option<(&'a mut ClientPath, &'a mut Paths<'b>)>,
    now_ns: u64,
    sent: &'a mut u64,
    lost: &'a mut u64,
}

impl tcp::Output for Output<'_, '_> {
    fn send(&mut self, segment: &weir_packet::segment::Segment<'_>) {
        let Some(macs) = self.link.macs(self.ends.destination.ip()) else { return };
        let packet = TcpPacket { ends: self.ends, segment: *segment };
        *self.sent += 1;
        match &mut self.path {
            None => self.link.push(|frames| wire::build(frames, macs, &packet)),
            Some((path, paths)) => {
                *self.lost += paths.send_up(path, macs, &packet, self.now_ns);
            }
        }
    }
}
