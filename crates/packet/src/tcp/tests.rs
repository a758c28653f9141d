//! A connection against scripted segments, and against a server across a path that loses,
//! duplicates and reorders.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::segment::SACK_MAX;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// Sequence number of the scripted server's SYN.
const THEIR_ISS: Seq = Seq(u32::MAX - 500);

/// A segment with data of its own.
#[derive(Clone, Debug, Default)]
struct Owned {
    head: Segment<'static>,
    payload: Vec<u8>,
}

impl Owned {
    fn as_segment(&self) -> Segment<'_> {
        Segment { payload: &self.payload, ..self.head }
    }
}

#[derive(Default)]
struct Sent(Vec<Owned>);

impl Output for Sent {
    fn send(&mut self, segment: &Segment<'_>) {
        let head = Segment { payload: b"", ..*segment };
        self.0.push(Owned { head, payload: segment.payload.to_vec() });
    }
}

/// A client whose segments are collected.
struct Client {
    connection: Connection,
    settings: Settings,
    counts: Counts,
    sent: Sent,
    now_ns: u64,
}

impl Client {
    fn opened(settings: Settings) -> Self {
        Self::opened_with(settings, OpenOptions::default())
    }

    fn opened_with(settings: Settings, options: OpenOptions) -> Self {
        let (mut sent, mut counts) = (Sent::default(), Counts::default());
        let options = OpenOptions { iss: 100, ..options };
        let mut context =
            Context { now_ns: S, settings: &settings, output: &mut sent, counts: &mut counts };
        let connection = Connection::open(options, &mut context);
        Self { connection, settings, counts, sent, now_ns: S }
    }

    /// A client that has sent its SYN and the acknowledgement of the answer.
    fn established() -> Self {
        let mut client = Self::opened(Settings::default());
        client.take_one();
        let changes = client.receive(&syn_ack());
        assert!(changes.connected);
        assert_eq!(client.take_one().head.ack, Some(THEIR_ISS.plus(1)));
        client
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Connection, &mut Context<'_>) -> T) -> T {
        let mut context = Context {
            now_ns: self.now_ns,
            settings: &self.settings,
            output: &mut self.sent,
            counts: &mut self.counts,
        };
        act(&mut self.connection, &mut context)
    }

    fn receive(&mut self, segment: &Owned) -> Changes {
        self.with(|connection, context| connection.receive(&segment.as_segment(), context))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|connection, context| connection.write(bytes, context))
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut buffer = [0; 4096];
        let bytes = self.with(|connection, context| connection.read(&mut buffer, context))?;
        Ok(buffer[..bytes].to_vec())
    }

    fn close(&mut self) {
        self.with(Connection::close);
    }

    /// Lets the next timer expire.
    fn expire(&mut self) -> Changes {
        self.now_ns = self.now_ns.max(self.connection.timer_ns().unwrap());
        self.with(Connection::expire)
    }

    fn take(&mut self) -> Vec<Owned> {
        std::mem::take(&mut self.sent.0)
    }

    fn take_one(&mut self) -> Owned {
        let mut sent = self.take();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }
}

fn syn_ack() -> Owned {
    let options = Options {
        mss: Some(1460),
        window_shift: Some(7),
        may_sack: true,
        timestamps: Some(Timestamps { value: 5, echo: 0 }),
        ..Options::default()
    };
    let flags = Flags { syn: true, ..Flags::default() };
    let head = Segment {
        seq: THEIR_ISS,
        ack: Some(Seq(101)),
        window: 64_000,
        flags,
        options,
        payload: b"",
    };
    Owned { head, payload: Vec::new() }
}

/// A segment of the server: `from` bytes into its stream, acknowledging `acked` of the client's.
fn data(from: u32, payload: &[u8], acked: u32) -> Owned {
    let head = Segment {
        seq: THEIR_ISS.plus(1).plus(from),
        ack: Some(Seq(101).plus(acked)),
        window: 500,
        options: Options {
            timestamps: Some(Timestamps { value: 5, echo: 0 }),
            ..Options::default()
        },
        ..Segment::default()
    };
    Owned { head, payload: payload.to_vec() }
}

fn with_flags(mut segment: Owned, flags: Flags) -> Owned {
    segment.head.flags = flags;
    segment
}

const FIN: Flags = Flags { fin: true, syn: false, rst: false, psh: false };
const RST: Flags = Flags { rst: true, syn: false, fin: false, psh: false };

#[test]
fn an_open_idle_connection_fits_in_160_bytes() {
    assert!(size_of::<Connection>() <= 160, "{}", size_of::<Connection>());
}

#[test]
fn an_answered_syn_that_is_answered_again_is_acknowledged_and_counted() {
    let mut client = Client::established();
    assert_eq!(client.receive(&syn_ack()), Changes::default());
    assert_eq!(client.take_one().head.ack, Some(THEIR_ISS.plus(1)));
    assert_eq!((client.counts.duplicates, client.counts.violations()), (1, 0));
}

#[test]
fn a_syn_is_sent_again_as_linux_does_and_given_up() {
    let mut client = Client::opened(Settings::default());
    let syn = client.take_one();
    assert!(syn.head.flags.syn && syn.head.ack.is_none());
    assert_eq!((syn.head.options.mss, syn.head.options.window_shift), (Some(1460), Some(7)));
    let mut at_s = Vec::new();
    while !client.expire().hung_up {
        at_s.push(client.now_ns / S - 1);
        assert_eq!(client.take_one().head.seq, syn.head.seq);
    }
    // Four a second apart, then doubling (net.ipv4.tcp_syn_linear_timeouts).
    assert_eq!(at_s, [1, 2, 3, 4, 5, 7]);
    assert_eq!(client.connection.take_failure(), Some(Failure::TimedOut));
    assert_eq!((client.counts.retransmitted, client.counts.timeouts), (6, 6));
    let old = Settings { linear_syns: 0, syn_retries: 3, ..Settings::default() };
    let mut client = Client::opened(old);
    let mut at_s = Vec::new();
    while !client.expire().hung_up {
        at_s.push(client.now_ns / S - 1);
    }
    assert_eq!(at_s, [1, 3, 7]);
}

#[test]
fn the_timestamps_of_a_run_go_on_from_those_of_the_one_before() {
    let value = |settings| {
        let syn = Client::opened(settings).take_one();
        syn.head.options.timestamps.unwrap().value
    };
    // The run begins when the clock that goes on is at 7 s, and its SYN goes out a second later.
    let later = Settings { ticks_at_zero: ticks(7 * S), ..Settings::default() };
    assert_eq!(value(later), ticks(8 * S));
    assert_eq!(value(Settings::default()), ticks(S));
}

#[test]
fn a_syn_that_an_old_connection_answers_resets_it_and_is_sent_again_at_once() {
    let mut client = Client::opened(Settings::default());
    let syn = client.take_one();
    client.now_ns += 5 * MS;
    let challenge = data(0, b"", 7);
    assert_eq!(client.receive(&challenge), Changes::default());
    let reset = client.take_one();
    assert!(reset.head.flags.rst && Some(reset.head.seq) == challenge.head.ack);
    client.expire();
    assert_eq!(client.now_ns, S + 5 * MS);
    assert_eq!(client.take_one().head.seq, syn.head.seq);
    // One that is answered so again has to wait.
    client.receive(&challenge);
    assert!(client.take_one().head.flags.rst);
    client.expire();
    assert_eq!(client.now_ns, 2 * S + 5 * MS);
}

#[test]
fn a_refusal_is_told_from_a_stranger_s() {
    let mut client = Client::opened(Settings::default());
    let reset = |ack| {
        let head = Segment { ack: Some(Seq(ack)), flags: RST, ..Segment::default() };
        Owned { head, payload: Vec::new() }
    };
    assert_eq!(client.receive(&reset(7)), Changes::default());
    assert!(client.receive(&reset(101)).hung_up);
    let refused = client.write(b"x").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(client.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn a_request_and_its_reply_cost_three_segments_of_the_client() {
    let mut client = Client::established();
    assert_eq!(client.write(b"request").unwrap(), 7);
    let request = client.take_one();
    assert_eq!((request.payload.as_slice(), request.head.flags.psh), (&b"request"[..], true));
    assert_eq!(client.read().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let reply = with_flags(data(0, b"reply", 7), FIN);
    let changes = client.receive(&reply);
    assert!(changes.readable && changes.hung_up);
    assert_eq!((client.read().unwrap(), client.read().unwrap()), (b"reply".to_vec(), vec![]));
    assert!(client.take().is_empty(), "the FIN acknowledges both");
    client.close();
    let fin = client.take_one();
    assert!(fin.head.flags.fin && fin.head.ack == Some(THEIR_ISS.plus(7)));
    assert!(!client.connection.is_over());
    client.receive(&data(6, b"", 8));
    assert!(client.connection.is_over() && client.connection.timer_ns().is_none());
    assert_eq!(client.counts, Counts::default());
}

#[test]
fn the_handshake_s_acknowledgement_may_wait_for_the_request() {
    for is_written in [true, false] {
        let settings = Settings { acks_with_request: true, ..Settings::default() };
        let mut client = Client::opened(settings);
        client.take();
        assert!(client.receive(&syn_ack()).connected);
        assert!(client.take().is_empty());
        if is_written {
            client.write(b"request").unwrap();
        } else {
            client.expire();
            assert_eq!(client.now_ns, S + 40 * MS);
        }
        let first = client.take_one();
        assert_eq!(first.head.ack, Some(THEIR_ISS.plus(1)));
        assert_eq!(first.payload.len(), if is_written { 7 } else { 0 });
    }
}

#[test]
fn data_was_received_when_it_came_and_not_when_it_is_handled() {
    let mut client = Client::established();
    client.connection.note_arrival(S);
    assert_eq!(client.connection.last_received_ns(), 0);
    client.now_ns = S + 5 * MS;
    client.receive(&data(0, b"reply", 0));
    client.connection.note_arrival(S + 2 * MS);
    assert_eq!(client.connection.last_received_ns(), S + 2 * MS);
    // What has no data changes nothing.
    client.connection.note_arrival(S + 9 * MS);
    assert_eq!(client.connection.last_received_ns(), S + 2 * MS);
}

#[test]
fn a_dialogue_acknowledges_with_its_next_request() {
    let mut client = Client::established();
    client.write(b"one").unwrap();
    client.receive(&data(0, b"first", 3));
    client.read().unwrap();
    // The first reply is acknowledged at once, as any beginning is.
    assert_eq!(client.take().len(), 2);
    client.write(b"two").unwrap();
    assert_eq!(client.take_one().payload, b"two");
    client.receive(&data(5, b"second", 6));
    client.read().unwrap();
    assert!(client.take().is_empty());
    client.expire();
    assert_eq!(
        (client.now_ns, client.take_one().head.ack),
        (S + 40 * MS, Some(THEIR_ISS.plus(12)))
    );
}

#[test]
fn bytes_ahead_of_their_turn_are_reported_and_kept() {
    let mut client = Client::established();
    client.receive(&data(5, b"-more", 0));
    let ack = client.take_one();
    let block = (THEIR_ISS.plus(6), THEIR_ISS.plus(11));
    let mut sack = [None; SACK_MAX];
    sack[0] = Some(block);
    assert_eq!((ack.head.ack, ack.head.options.sack), (Some(THEIR_ISS.plus(1)), sack));
    assert_eq!(client.read().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    client.receive(&data(0, b"first", 0));
    assert_eq!(client.take_one().head.ack, Some(THEIR_ISS.plus(11)));
    assert_eq!(client.read().unwrap(), b"first-more");
    assert_eq!(client.counts.out_of_order, 1);
}

#[test]
fn a_fin_ahead_of_its_turn_counts_when_it_is_reached() {
    let mut client = Client::established();
    client.receive(&with_flags(data(5, b"", 0), FIN));
    assert!(!client.receive(&data(0, b"fir", 0)).hung_up);
    assert!(client.receive(&data(3, b"st", 0)).hung_up);
    assert_eq!((client.read().unwrap(), client.read().unwrap()), (b"first".to_vec(), vec![]));
}

#[test]
fn three_duplicate_acknowledgements_send_the_oldest_again() {
    let mut client = Client::established();
    client.write(&[7; 5000]).unwrap();
    assert_eq!(client.take().len(), 3, "the last is not full, and waits (Nagle)");
    for _ in 0..3 {
        client.receive(&data(0, b"", 0));
    }
    let again = client.take_one();
    assert_eq!((again.head.seq, again.payload.len()), (Seq(101), 1448));
    assert_eq!((client.counts.retransmitted, client.counts.timeouts), (1, 0));
    // A partial acknowledgement shows the next loss.
    client.receive(&data(0, b"", 1448));
    assert_eq!(client.take()[0].head.seq, Seq(101 + 1448));
}

#[test]
fn a_lost_request_is_sent_again_after_the_timeout_that_doubles() {
    let mut client = Client::established();
    client.write(b"request").unwrap();
    client.take();
    let mut before_ns = client.now_ns;
    let mut waits_ms = Vec::new();
    for _ in 0..4 {
        client.expire();
        assert_eq!(client.take_one().payload, b"request");
        waits_ms.push((client.now_ns - before_ns) / MS);
        before_ns = client.now_ns;
    }
    // The smoothed round trip of 0 ms and the minimum (RFC 6298, TCP_RTO_MIN).
    assert_eq!(waits_ms, [200, 400, 800, 1600]);
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut client = Client::established();
    let mut closed = data(0, b"", 0);
    closed.head.window = 0;
    closed.head.seq = closed.head.seq.plus(0);
    client.receive(&closed);
    client.write(b"request").unwrap();
    assert!(client.take().is_empty());
    for _ in 0..20 {
        client.expire();
        let probe = client.take_one();
        assert_eq!((probe.head.seq, probe.payload.len()), (Seq(100), 0));
        client.receive(&closed);
    }
    client.receive(&data(0, b"", 0));
    assert_eq!(client.take_one().payload, b"request");
}

#[test]
fn breaches_of_the_protocol_are_counted_and_survived() {
    let mut client = Client::established();
    client.receive(&data(0, b"", 9));
    assert_eq!(client.counts.wrong_acks, 1);
    let mut shrunk = data(0, b"", 0);
    shrunk.head.window = 100;
    client.receive(&shrunk);
    assert_eq!(client.counts.shrunk_windows, 1);
    client.receive(&data(70_000, b"far", 0));
    assert_eq!(client.counts.beyond_window, 1);
    client.receive(&with_flags(data(0, b"end", 0), FIN));
    client.receive(&data(4, b"more", 0));
    assert_eq!(client.counts.data_after_fin, 1);
    assert_eq!(client.counts.violations(), 4);
    assert_eq!((client.read().unwrap(), client.read().unwrap()), (b"end".to_vec(), vec![]));
}

#[test]
fn an_older_window_that_comes_late_takes_nothing_back() {
    let mut client = Client::established();
    let update = |from, window| {
        let mut segment = data(from, b"", 0);
        segment.head.window = window;
        segment
    };
    client.receive(&update(0, 600));
    // They were sent before it, with the same numbers.
    for window in [550, 500] {
        client.receive(&update(0, window));
    }
    assert_eq!(client.connection.window_end, Seq(101).plus(600 << 7));
    assert_eq!(client.counts.shrunk_windows, 0);
    // That a window is closed may be old or new: a probe will tell.
    client.receive(&update(0, 0));
    assert_eq!((client.connection.window_end, client.counts.shrunk_windows), (Seq(101), 0));
    client.receive(&update(0, 600));
    // Behind more data it is a later word.
    client.receive(&update(1, 500));
    assert_eq!(client.connection.window_end, Seq(101).plus(500 << 7));
    assert_eq!(client.counts.shrunk_windows, 1);
}

#[test]
fn a_window_that_comes_with_a_newer_acknowledgement_counts_whatever_its_number() {
    let mut client = Client::established();
    client.write(b"request").unwrap();
    client.receive(&data(5, b"-more", 0));
    // Sent again, and the server has got the request in between.
    client.receive(&data(0, b"first", 7));
    assert_eq!(client.connection.window_end, Seq(108).plus(500 << 7));
}

#[test]
fn a_reset_counts_only_where_it_is_expected() {
    let mut client = Client::established();
    client.receive(&data(0, b"reply", 0));
    client.take();
    assert!(!client.receive(&with_flags(data(100, b"", 0), RST)).hung_up);
    assert_eq!(client.take_one().head.ack, Some(THEIR_ISS.plus(6)), "a challenge");
    assert!(client.receive(&with_flags(data(5, b"", 0), RST)).hung_up);
    assert_eq!(client.read().unwrap(), b"reply");
    assert_eq!(client.read().unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(client.take().is_empty());
}

#[test]
fn a_close_with_bytes_unread_resets() {
    let mut client = Client::established();
    client.receive(&data(0, b"reply", 0));
    client.take();
    client.close();
    assert!(client.take_one().head.flags.rst && client.connection.is_over());
}

#[test]
fn bytes_for_a_closed_connection_are_reset() {
    let mut client = Client::established();
    client.close();
    assert!(client.take_one().head.flags.fin);
    client.receive(&data(0, b"late", 1));
    assert!(client.take_one().head.flags.rst && client.connection.is_over());
}

#[test]
fn both_may_close_at_once() {
    let mut client = Client::established();
    client.close();
    client.take();
    client.receive(&with_flags(data(0, b"", 0), FIN));
    assert_eq!((client.connection.state(), client.take().len()), (State::Closing, 1));
    client.receive(&data(1, b"", 1));
    assert!(client.connection.is_over());
}

#[test]
fn a_server_that_never_closes_is_given_up() {
    let mut client = Client::established();
    client.close();
    client.receive(&data(0, b"", 1));
    assert_eq!(client.connection.state(), State::FinWait2);
    client.expire();
    assert_eq!(client.now_ns, 61 * S);
    assert!(client.connection.is_over());
}

#[test]
fn strays_are_answered_as_linux_would() {
    let mut client = Client::opened(Settings::default());
    client.take();
    let strays = [
        (with_flags(data(3, b"x", 5), FIN), Some((Seq(106), Some(THEIR_ISS.plus(6)), false))),
        (data(3, b"x", 5), Some((Seq(106), None, true))),
        (with_flags(data(3, b"x", 5), RST), None),
    ];
    for (stray, expected) in strays {
        client.with(|_, context| answer_stray(&stray.as_segment(), context));
        let answer = client.take().pop();
        let answer = answer.map(|answer| (answer.head.seq, answer.head.ack, answer.head.flags.rst));
        assert_eq!(answer, expected);
    }
}

#[test]
fn a_slow_reader_has_a_small_window_from_its_syn_on_closes_it_and_opens_it_again() {
    let options = OpenOptions { window_limit: 3000, ..OpenOptions::default() };
    let mut client = Client::opened_with(Settings::default(), options);
    assert_eq!(client.take_one().head.window, 3000);
    client.receive(&syn_ack());
    // In units of the scale from now on.
    assert_eq!(client.take_one().head.window, 3000_u16.div_ceil(128));
    let mut from = 0;
    while client.connection.announced_end.is_after(client.connection.expected.plus(1000)) {
        client.receive(&data(from, &[1; 1000], 0));
        from += 1000;
    }
    assert_eq!((from, client.counts.violations()), (3000, 0));
    let closed = client.take().pop().unwrap();
    assert!(u32::from(closed.head.window) << 7 < 1128, "{closed:?}");
    let mut opened = None;
    while let Ok(bytes) = client.read() {
        assert!(!bytes.is_empty());
        opened = client.take().pop().or(opened);
    }
    assert!(u32::from(opened.unwrap().head.window) << 7 >= 1460);
}

#[test]
fn a_limit_above_the_window_of_a_syn_leaves_that_as_it_is() {
    for (window_limit, window) in [(0, 64_240), (2304, 2304), (100_000, 64_240)] {
        let options = OpenOptions { window_limit, ..OpenOptions::default() };
        let mut client = Client::opened_with(Settings::default(), options);
        assert_eq!(client.take_one().head.window, window);
        client.receive(&syn_ack());
        let edge = client.connection.expected.plus(window.into());
        assert!(!client.connection.announced_end.is_before(edge), "{window_limit}");
    }
}

#[test]
fn a_full_segment_that_reports_blocks_is_no_longer_than_any_other() {
    let mut client = Client::established();
    for from in [10, 20, 30] {
        client.receive(&data(from, b"x", 0));
    }
    client.take();
    client.write(&[7; 5000]).unwrap();
    let sent = client.take();
    // 12 bytes of timestamps, 28 of three blocks.
    assert_eq!(sent.iter().map(|part| part.payload.len()).collect::<Vec<_>>(), [1420; 3]);
    assert!(sent.iter().all(|part| part.head.options.sack_bytes() == 28));
    // One that is sent again is as long.
    client.expire();
    assert_eq!(client.take_one().payload.len(), 1420);
}

#[test]
fn a_link_with_less_than_the_smallest_segment_size_is_no_panic() {
    let settings = Settings { mss: MSS_MIN - 1, ..Settings::default() };
    let mut client = Client::opened(settings);
    client.receive(&syn_ack());
    client.take();
    client.write(b"0123456789").unwrap();
    assert_eq!(client.take_one().payload, b"0123456789");
}

/// A server that answers a request of `REQUEST` bytes with `reply` and closes. It keeps nothing
/// that comes out of order, and sends everything again when its timer expires.
struct Server {
    reply: Vec<u8>,
    request: Vec<u8>,
    has_syn: bool,
    has_fin: bool,
    acked: u32,
    window: u32,
    timer_ns: u64,
}

const REQUEST: usize = 3000;

impl Server {
    /// Handles a segment; returns its answers.
    fn receive(&mut self, segment: &Owned, now_ns: u64) -> Vec<Owned> {
        let head = &segment.head;
        assert!(head.options.timestamps.is_some() || head.flags.rst);
        if head.flags.syn {
            self.has_syn = true;
            return vec![syn_ack()];
        }
        if !self.has_syn || head.flags.rst {
            return Vec::new();
        }
        let at = Seq(101).distance_to(head.seq);
        let known = self.request.len() as i32 - at;
        if let Some(new) =
            usize::try_from(known).ok().and_then(|known| segment.payload.get(known..))
        {
            self.request.extend_from_slice(new);
        }
        self.has_fin |= head.flags.fin
            && Seq(101).distance_to(head.seq.plus(segment.payload.len() as u32))
                == self.request.len() as i32;
        let acked = THEIR_ISS.plus(1).distance_to(head.ack.unwrap()) as u32;
        self.window = u32::from(head.window) << 7;
        let was_acked = self.acked;
        self.acked = was_acked.max(acked);
        let mut answers = Vec::new();
        if !segment.payload.is_empty() || head.flags.fin {
            answers.push(data(self.acked, b"", self.their_bytes()));
        }
        if self.acked > was_acked || self.acked == 0 {
            answers.extend(self.flight(now_ns));
        }
        answers
    }

    /// Bytes of the client acknowledged, its FIN with them.
    fn their_bytes(&self) -> u32 {
        self.request.len() as u32 + u32::from(self.has_fin)
    }

    /// Sends what follows the last acknowledgement: three segments, and the FIN.
    fn flight(&mut self, now_ns: u64) -> Vec<Owned> {
        if self.request.len() < REQUEST || self.acked > self.reply.len() as u32 {
            return Vec::new();
        }
        self.timer_ns = now_ns + 300 * MS;
        let mut flight = Vec::new();
        let mut from = self.acked as usize;
        for _ in 0..3 {
            let most =
                self.window as usize - (from - self.acked as usize).min(self.window as usize);
            let to = self.reply.len().min(from + most.min(1400));
            let mut segment = data(from as u32, &self.reply[from..to], self.their_bytes());
            segment.head.flags.fin = to == self.reply.len();
            let is_last = segment.head.flags.fin;
            if to > from || is_last {
                flight.push(segment);
            }
            from = to;
            if is_last {
                break;
            }
        }
        flight
    }
}

#[derive(Clone, Copy, Debug)]
struct Storm {
    seed: u64,
    /// Chances of 256.
    lost: u8,
    doubled: u8,
    /// Longest delay, milliseconds.
    delay_ms: u64,
}

/// A path through a storm: what is on its way, by arrival and order.
struct StormyPath {
    storm: Storm,
    random: u64,
    number: u64,
    under_way: BTreeMap<(u64, u64), (bool, Owned)>,
}

impl StormyPath {
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }

    /// Sends segments, each once, twice or not at all.
    fn send(&mut self, to_server: bool, segments: Vec<Owned>, now_ns: u64) {
        for segment in segments {
            let copies = if self.draw() % 256 < self.storm.doubled.into() { 2 } else { 1 };
            for _ in 0..copies {
                if self.draw() % 256 >= self.storm.lost.into() {
                    self.number += 1;
                    let delay_ns = self.draw() % (self.storm.delay_ms * MS + 1);
                    let at = (now_ns + MS + delay_ns, self.number);
                    self.under_way.insert(at, (to_server, segment.clone()));
                }
            }
        }
    }

    fn next_ns(&self) -> u64 {
        self.under_way.keys().next().map_or(NEVER, |(at_ns, _)| *at_ns)
    }
}

/// Writes what is left of the request, and reads what there is into `read`.
fn use_connection(client: &mut Client, written: &mut usize, read: &mut Vec<u8>) -> io::Result<()> {
    if *written < REQUEST {
        match client.write(&[b'q'; REQUEST][*written..]) {
            Ok(bytes) => *written += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    loop {
        match client.read() {
            Ok(bytes) if bytes.is_empty() => {
                client.close();
                return Ok(());
            }
            Ok(bytes) => read.extend(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Runs one request through a storm; returns what the client read and how it ended.
fn through(storm: Storm, reply: &[u8]) -> (Vec<u8>, Option<io::ErrorKind>, Counts) {
    let mut path =
        StormyPath { storm, random: storm.seed | 1, number: 0, under_way: BTreeMap::new() };
    let mut client = Client::opened(Settings::default());
    let mut server = Server {
        reply: reply.to_vec(),
        request: Vec::new(),
        has_syn: false,
        has_fin: false,
        acked: 0,
        window: 0,
        timer_ns: NEVER,
    };
    let (mut read, mut written) = (Vec::new(), 0);
    for _ in 0..20_000 {
        path.send(true, client.take(), client.now_ns);
        let client_ns = client.connection.timer_ns().unwrap_or(NEVER);
        let next_ns = path.next_ns().min(client_ns).min(server.timer_ns);
        if client.connection.is_over() || next_ns == NEVER {
            break;
        }
        let (arrival_ns, now_ns) = (path.next_ns(), client.now_ns.max(next_ns));
        client.now_ns = now_ns;
        if next_ns == arrival_ns {
            let (_, (to_server, segment)) = path.under_way.pop_first().unwrap();
            if to_server {
                path.send(false, server.receive(&segment, now_ns), now_ns);
            } else {
                client.receive(&segment);
            }
        } else if next_ns == client_ns {
            client.expire();
        } else {
            server.timer_ns = NEVER;
            path.send(false, server.flight(now_ns), now_ns);
        }
        if let Err(error) = use_connection(&mut client, &mut written, &mut read) {
            return (read, Some(error.kind()), client.counts);
        }
    }
    assert!(client.connection.is_over(), "{:?}", client.connection);
    (read, None, client.counts)
}

#[test]
fn a_calm_path_loses_nothing_and_repeats_nothing() {
    let reply: Vec<u8> = (0..100_000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
    let storm = Storm { seed: 7, lost: 0, doubled: 0, delay_ms: 0 };
    let (read, error, counts) = through(storm, &reply);
    assert!(read == reply && error.is_none());
    // The scripted server answers every acknowledgement with a flight, parts of which are known.
    assert_eq!(counts, Counts { duplicates: counts.duplicates, ..Counts::default() });
}

/// Storms to be tried: `WEIR_STORMS`, or 300.
fn storms() -> ProptestConfig {
    let asked = std::env::var("WEIR_STORMS").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(asked.unwrap_or(300))
}

proptest! {
    #![proptest_config(storms())]

    #[test]
    fn a_storm_changes_no_byte(
        (seed, lost, doubled, delay_ms) in (any::<u64>(), 0_u8..90, 0_u8..90, 0_u64..400),
        length in 0_usize..30_000,
    ) {
        let reply: Vec<u8> = (0..length as u32).map(|at| ((at * 31) >> 3) as u8).collect();
        let (read, error, counts) = through(Storm { seed, lost, doubled, delay_ms }, &reply);
        prop_assert_eq!(counts.violations(), 0);
        if error.is_none() {
            prop_assert!(read == reply);
        } else {
            prop_assert!(reply.starts_with(&read));
        }
    }

    #[test]
    fn no_segment_does_harm(
        segments in prop::collection::vec(
            (any::<u8>(), -20_i32..70_000, -3_i32..20, any::<u16>(), 0_usize..3000, 0_u8..5),
            1..60,
        ),
    ) {
        let mut client = Client::established();
        client.write(b"0123456789").unwrap();
        for (flags, from, acked, window, length, then) in segments {
            let mut segment = data(from as u32, &vec![1; length], acked as u32);
            segment.head.window = window;
            let is_plain = flags & 0x70 == 0;
            let [syn, fin, rst, psh] = [1, 2, 4, 8].map(|bit| flags & bit != 0 && is_plain);
            segment.head.flags = Flags { syn, fin, rst, psh };
            client.receive(&segment);
            match then {
                0 => drop(client.read()),
                1 => drop(client.write(&[2; 100])),
                2 if client.connection.timer_ns().is_some() => drop(client.expire()),
                3 if flags == 0xff => client.close(),
                _ => {}
            }
            let held = client.connection.received.capacity();
            prop_assert!(held <= 1 << 20, "{held}");
        }
    }
}
