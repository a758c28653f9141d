//! A server that keeps nothing of its connections: for as many of them as a client can hold open.
//! It answers each SYN, acknowledges what it is sent, closes when its client does, and replies to
//! nothing.
//!
//! `tcp_sink INTERFACE ADDRESS` serves every port of ADDRESS, which the kernel must not have, until
//! it is killed. Experiments start it as `kind = "sink"`. As root, behind a veth:
//!
//! ```sh
//! cargo run --release -p weir-load --example tcp_sink -- eth0 10.77.0.3
//! weir load http://10.77.0.3/ --stack packet --interface load --source 10.77.128.0/17 \
//!     --idle 1000000 --background-rate 50000 --rate 1 --duration 5s
//! ```

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use weir_packet::segment::{Flags, Options, Segment, Timestamps};
use weir_packet::seq::Seq;
use weir_packet::wire::{self, Checksum, Ends, Macs, Neighbour, Packet, TcpPacket};
use weir_sys::interface;
use weir_sys::network::Network;
use weir_sys::packet_socket::{BATCH, PacketSocket};

/// Room for frames that wait.
const RECEIVE_FRAMES: usize = 1 << 15;

/// Window announced, in units of 128 bytes.
const WINDOW: u16 = 500;

fn main() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, address] = words.as_slice() else {
        return Err("usage: tcp_sink INTERFACE ADDRESS".into());
    };
    let address: IpAddr = address.parse().map_err(|_| format!("{address} is not an address"))?;
    let interface = interface::find(name).map_err(|error| format!("{name}: {error}"))?;
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    let network = Network { first: address, prefix };
    let said = |error| format!("{name}: {error}");
    let socket = PacketSocket::open(interface.index, network).map_err(said)?;
    let mut ring = socket.receive_ring(RECEIVE_FRAMES).map_err(said)?;
    println!("{address} answers");
    let (mut out, mut ends) = (Vec::new(), Vec::new());
    loop {
        out.clear();
        ends.clear();
        while ends.len() < BATCH
            && let Some(frame) = ring.next(socket.as_fd())
        {
            answer(frame.bytes, address, interface.mac, &mut out);
            if ends.last().copied().unwrap_or(0) < out.len() {
                ends.push(out.len());
            }
        }
        if ends.is_empty() {
            socket.wait(Duration::from_secs(1));
        }
        // What finds no room is sent again by the client.
        let _ = socket.send(&out, 0, &ends);
    }
}

/// Appends the answer to a frame, if it gets one.
fn answer(frame: &[u8], address: IpAddr, mac: wire::Mac, out: &mut Vec<u8>) {
    match wire::parse(frame, Checksum::Trusted) {
        Ok(Packet::Neighbour(question @ Neighbour::Asks { target, .. })) if target == address => {
            wire::answer(out, mac, &question);
        }
        Ok(Packet::Tcp(TcpPacket { ends, segment })) => {
            let Some(peer) = frame.get(6..12).and_then(|peer| peer.try_into().ok()) else { return };
            if let Some(segment) = reply(&segment) {
                let ends = Ends { source: ends.destination, destination: ends.source };
                let macs = Macs { source: mac, destination: peer };
                wire::build(out, macs, &TcpPacket { ends, segment });
            }
        }
        _ => {}
    }
}

/// Returns the answer to a segment. All that it says is in the segment itself.
fn reply(segment: &Segment<'_>) -> Option<Segment<'static>> {
    let echo = segment.options.timestamps.map(|theirs| Timestamps { value: 1, echo: theirs.value });
    let mut answer = Segment {
        seq: segment.ack.unwrap_or(Seq(0)),
        ack: Some(segment.end()),
        window: WINDOW,
        options: Options { timestamps: echo, ..Options::default() },
        ..Segment::default()
    };
    if segment.flags.rst || segment.space() == 0 {
        return None;
    }
    if segment.flags.syn {
        answer.flags = Flags { syn: true, ..Flags::default() };
        answer.options.mss = Some(1460);
        answer.options.may_sack = segment.options.may_sack;
        answer.options.window_shift = segment.options.window_shift.map(|_| 7);
    }
    answer.flags.fin = segment.flags.fin;
    Some(answer)
}
