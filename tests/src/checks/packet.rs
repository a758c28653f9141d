//! weir's own TCP under any frame and any segment, at any time.

use weir_packet::segment::{Flags, Options, Segment, Timestamps};
use weir_packet::seq::Seq;
use weir_packet::tcp::{Connection, Context, Counts, OpenOptions, Output, Settings};
use weir_packet::wire::{self, Checksum, Ends, Macs, Packet, TcpPacket};

/// Bytes that a connection may hold: what its windows allow, and the growth of a vector.
const HELD_MAX: usize = 16 << 20;

/// Our initial sequence number, and the server's, which wrap soon.
const OURS: u32 = u32::MAX - 40;
const THEIRS: u32 = u32::MAX - 60;

/// Checks a script: records of an operation, a length, and as many bytes. `f` is a frame, `s` a
/// segment of the server, `w` writes the bytes, `r` reads, `e` lets a timer expire, `c` closes, `x`
/// resets; anything else waits as many milliseconds as the length says.
pub fn packet(data: &[u8]) {
    let mut client = Client::opened(data.first().is_some_and(|first| first % 2 == 1));
    let mut rest = data;
    while let [operation, length, behind @ ..] = rest {
        let (bytes, next) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = next;
        client.run(*operation, bytes);
        assert!(client.connection.held_bytes() <= HELD_MAX);
    }
}

struct Client {
    connection: Connection,
    settings: Settings,
    now_ns: u64,
}

impl Client {
    fn opened(acks_with_request: bool) -> Self {
        let settings = Settings { acks_with_request, ..Settings::default() };
        let (mut sent, mut counts) = (Sent, Counts::default());
        let options = OpenOptions { iss: OURS, ..OpenOptions::default() };
        let mut context =
            Context { now_ns: 1, settings: &settings, output: &mut sent, counts: &mut counts };
        let connection = Connection::open(options, &mut context);
        Self { connection, settings, now_ns: 1 }
    }

    fn run(&mut self, operation: u8, bytes: &[u8]) {
        let (mut sent, mut counts) = (Sent, Counts::default());
        if operation == b'e' {
            self.now_ns = self.now_ns.max(self.connection.timer_ns().unwrap_or(0));
        }
        let mut context = Context {
            now_ns: self.now_ns,
            settings: &self.settings,
            output: &mut sent,
            counts: &mut counts,
        };
        let connection = &mut self.connection;
        match operation {
            b'f' => frame(bytes),
            b's' => drop(connection.receive(&segment(bytes), &mut context)),
            b'w' => drop(connection.write(bytes, &mut context)),
            b'r' => drop(connection.read(&mut [0; 512], &mut context)),
            b'e' => drop(connection.expire(&mut context)),
            b'c' => connection.close(&mut context),
            b'x' => connection.reset(&mut context),
            _ => self.now_ns += bytes.len() as u64 * 1_000_000,
        }
    }
}

/// Reads a segment: flags (SYN 1, FIN 2, RST 4, PSH 8, no ACK 16, timestamps 32), distances from
/// the server's and from our first number and the window, two bytes each, and the data.
fn segment(bytes: &[u8]) -> Segment<'_> {
    let flags = bytes.first().copied().unwrap_or(0);
    let number = |at: usize| {
        let pair = bytes.get(at..at + 2).and_then(|pair| pair.try_into().ok());
        u32::from(u16::from_be_bytes(pair.unwrap_or_default()))
    };
    let has = |bit: u8| flags & bit != 0;
    Segment {
        seq: Seq(THEIRS).plus(number(1)),
        ack: (!has(16)).then(|| Seq(OURS).plus(number(3))),
        window: number(5) as u16,
        flags: Flags { syn: has(1), fin: has(2), rst: has(4), psh: has(8) },
        options: Options {
            timestamps: has(32).then_some(Timestamps { value: number(5), echo: 0 }),
            window_shift: has(1).then_some(7),
            ..Options::default()
        },
        payload: bytes.get(7..).unwrap_or_default(),
    }
}

/// Checks a frame: it is parsed or refused, and what is a segment is one again when it is built.
fn frame(bytes: &[u8]) {
    let trusted = wire::parse(bytes, Checksum::Trusted);
    let verified = wire::parse(bytes, Checksum::Unknown);
    assert!(verified.is_err() || verified == trusted);
    if let Ok(Packet::Tcp(packet)) = trusted {
        built(&packet);
    }
}

/// Builds a packet, and parses it again.
fn built(packet: &TcpPacket<'_>) {
    let mut frame = Vec::new();
    wire::build(&mut frame, Macs::default(), packet);
    assert!(frame.len() <= wire::HEADERS_MAX + packet.segment.payload.len());
    let again = wire::parse(&frame, Checksum::Unknown);
    let Ok(Packet::Tcp(again)) = again else { panic!("{again:?} of {packet:?}") };
    assert_eq!((again.ends, again.segment.payload), (packet.ends, packet.segment.payload));
    assert_eq!((again.segment.seq, again.segment.ack), (packet.segment.seq, packet.segment.ack));
}

/// What a connection sends is sound.
struct Sent;

impl Output for Sent {
    fn send(&mut self, segment: &Segment<'_>) {
        let ends = Ends {
            source: ([10, 77, 128, 1], 4000).into(),
            destination: ([10, 77, 0, 2], 80).into(),
        };
        built(&TcpPacket { ends, segment: *segment });
    }
}
