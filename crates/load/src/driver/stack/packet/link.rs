//! The link: a packet socket, the neighbours on it, and frames that wait to be sent together.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use weir_packet::wire::{self, Checksum, Mac, Macs, Neighbour, Packet};
use weir_sys::ingress_drop::IngressDrop;
use weir_sys::interface::Interface;
use weir_sys::packet_socket::{self, PacketSocket, ReceiveRing, ReceivedFrame, XdpSender};

use crate::config::{Hosts, Network};

/// Frames that may wait to be received: those of a hundredth of a second at 400,000/s.
const RECEIVE_FRAMES: usize = 4096;

/// Questions for a neighbour, a second apart (RFC 4861 section 10: MAX_MULTICAST_SOLICIT).
const QUESTIONS: u32 = 3;

/// Frames that are sent together at the latest.
const FLUSH_AT: usize = 64;

/// The link.
pub(super) struct Link {
    socket: PacketSocket,
    /// Sends frames in place of the socket, where it may.
    sender: Option<XdpSender>,
    /// Spares the kernel a look at what is not for it; `None` where that may not be had.
    _drop: Option<IngressDrop>,
    mac: Mac,
    sources: Network,
    /// The servers and their interfaces.
    servers: Vec<(IpAddr, Mac)>,
    /// Frames to be sent, and their ends.
    frames: Vec<u8>,
    ends: Vec<usize>,
    /// Frames sent through AF_XDP.
    pub(super) by_xdp: u64,
    /// Frames dropped behind the interface, which is where a link that is full drops them.
    pub(super) dropped: u64,
    /// Frames that the interface refused for another reason.
    pub(super) refused: u64,
}

impl Link {
    /// Opens a packet socket for the addresses `sources`, and asks for the interface of each
    /// server.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW; a sentence for a server that does not answer.
    pub(super) fn open(
        interface: &Interface,
        thread: usize,
        sources: Network,
        servers: &[SocketAddr],
    ) -> io::Result<(Self, ReceiveRing)> {
        let socket = PacketSocket::open(interface.index, sources)?;
        let mut ring = socket.receive_ring(RECEIVE_FRAMES)?;
        let mut link = Self {
            socket,
            sender: sender(interface, thread),
            _drop: IngressDrop::attach(interface.index, sources).ok(),
            mac: interface.mac,
            sources,
            servers: Vec::new(),
            frames: Vec::new(),
            ends: Vec::new(),
            by_xdp: 0,
            dropped: 0,
            refused: 0,
        };
        for server in servers {
            if link.macs(server.ip()).is_none() {
                let mac = link.resolve(server.ip(), &mut ring)?;
                link.servers.push((server.ip(), mac));
            }
        }
        Ok((link, ring))
    }

    /// Asks who has an address.
    fn resolve(&mut self, server: IpAddr, ring: &mut ReceiveRing) -> io::Result<Mac> {
        let (mac, from) = (self.mac, self.sources.address(Hosts::of(self.sources).first));
        for _ in 0..QUESTIONS {
            self.push(|frames| wire::ask(frames, mac, from, server));
            self.flush();
            let asked = Instant::now();
            while let Some(left) = Duration::from_secs(1).checked_sub(asked.elapsed()) {
                self.wait(left);
                while let Some(frame) = self.receive(ring) {
                    if let Some(mac) = self.answer_in(frame.bytes, server) {
                        return Ok(mac);
                    }
                }
            }
        }
        Err(io::Error::other(format!("{server} does not answer on the link (ARP, ND)")))
    }

    /// Returns the interface of `server`, if the frame tells it. Answers questions.
    fn answer_in(&mut self, frame: &[u8], server: IpAddr) -> Option<Mac> {
        match wire::parse(frame, Checksum::Unknown) {
            Ok(Packet::Neighbour(Neighbour::Has { address, mac })) if address == server => {
                Some(mac)
            }
            Ok(Packet::Neighbour(question)) => {
                self.answer(&question);
                self.flush();
                None
            }
            _ => None,
        }
    }

    /// Answers a question for one of our addresses.
    pub(super) fn answer(&mut self, question: &Neighbour) {
        let mac = self.mac;
        if let Neighbour::Asks { target, .. } = question
            && self.sources.contains(*target)
        {
            self.push(|frames| wire::answer(frames, mac, question));
        }
    }

    /// Returns the interfaces for frames to a server.
    pub(super) fn macs(&self, server: IpAddr) -> Option<Macs> {
        let (_, destination) = self.servers.iter().find(|(address, _)| *address == server)?;
        Some(Macs { source: self.mac, destination: *destination })
    }

    /// Has a frame appended to those that are to be sent.
    pub(super) fn push(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.frames);
        if self.ends.last().copied().unwrap_or(0) < self.frames.len() {
            self.ends.push(self.frames.len());
        }
        if self.ends.len() >= FLUSH_AT {
            self.flush();
        }
    }

    /// Sends the frames that wait. One that cannot be sent is lost, as on any link.
    pub(super) fn flush(&mut self) {
        let mut first = 0;
        while first < self.ends.len() {
            let start = first.checked_sub(1).map_or(0, |before| self.ends[before]);
            let ends = &self.ends[first..];
            let sent = match &mut self.sender {
                Some(sender) => sender.send(&self.frames, start, ends),
                None => self.socket.send(&self.frames, start, ends),
            };
            match sent {
                Ok(sent) if sent > 0 => {
                    first += sent;
                    self.by_xdp += if self.sender.is_some() { sent as u64 } else { 0 };
                }
                Err(error) if packet_socket::is_drop(&error) => {
                    self.dropped += 1;
                    first += 1;
                }
                _ => {
                    self.refused += 1;
                    first += 1;
                }
            }
        }
        let losses = self.sender.as_mut().map(XdpSender::take_losses).unwrap_or_default();
        self.dropped += losses.dropped;
        self.refused += losses.refused;
        self.frames.clear();
        self.ends.clear();
    }

    /// Returns the next frame received, if one waits.
    pub(super) fn receive<'a>(&self, ring: &'a mut ReceiveRing) -> Option<ReceivedFrame<'a>> {
        ring.next(self.socket.as_fd())
    }

    /// Waits for a frame, at most for `timeout`.
    pub(super) fn wait(&self, timeout: Duration) {
        self.socket.wait(timeout);
    }

    /// Returns how many frames found no room in the socket since the last call.
    pub(super) fn take_overflowed(&self) -> u64 {
        self.socket.take_dropped().unwrap_or(0)
    }
}

/// Opens the sender of a thread, which takes the queue of its number; `None` where it cannot be
/// had, as for the threads behind the interface's last queue.
fn sender(interface: &Interface, thread: usize) -> Option<XdpSender> {
    let frame_max = interface.mtu as usize + wire::ETHERNET_BYTES;
    if frame_max > XdpSender::FRAME_MAX {
        return None;
    }
    XdpSender::open(interface.index, u32::try_from(thread).ok()?).ok()
}
