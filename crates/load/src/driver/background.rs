//! Background connections beside the load: idle ones, and clients that send or read slowly
//! (banga-scalable's load-adding client, idleconn). They follow no schedule, and nothing of the
//! load waits for them.

use std::collections::VecDeque;
use std::io;

use weir_http1::reply_parser::{ReplyParser, State};

use super::action::{Action, Interest, SocketEvent};
use super::recorder::{Recorder, UNPLANNED};
use super::send_pacer::{PartRate, TICK_NS};
use super::stack::{Client, Group, Purpose, Stack};
use super::stream::{Delivery, Stream};
use crate::config::Config;
use crate::session::RequestId;
use crate::tls::Connector;

/// Delay before a lost connection is reopened.
const REOPEN_DELAY_NS: u64 = 100_000_000;

/// Slow clients served per tick, limited so that they do not delay a start.
const PARTS_MAX: usize = 32;

/// Reads per event that discard unsolicited data on an idle connection; with more, it is closed.
const READS_MAX: usize = 16;

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Idle,
    SlowSender,
    SlowReader,
}

impl Kind {
    fn purpose(self) -> Purpose {
        match self {
            Kind::Idle => Purpose::Load,
            Kind::SlowSender => Purpose::SlowSender,
            Kind::SlowReader => Purpose::SlowReader,
        }
    }
}

/// A request that is sent slowly, or whose reply is read slowly.
struct SlowRequest {
    /// Bytes of the request already sent.
    sent: usize,
    parser: ReplyParser,
}

/// The background connections of a thread. Their slots come before those of the load.
pub(super) struct Background<'a, K> {
    config: &'a Config,
    /// Number of the thread.
    index: usize,
    /// Makes the TLS of connections; `None`: they have none.
    connector: Option<Connector>,
    /// The stream of each client that has one: of the idle ones, then of the slow senders, then of
    /// the slow readers. There may be a million idle ones: what only a slow one needs stands
    /// elsewhere.
    streams: Vec<Option<Stream<K>>>,
    /// Number of the first client of each kind after the first.
    firsts: [u32; 2],
    /// The request and the reply under way of each slow client.
    requests: Vec<Option<SlowRequest>>,
    /// Slots to open, each with the earliest time to do so.
    absent: VecDeque<(u32, u64)>,
    /// Slow clients, ordered by the time of their next action.
    slow: VecDeque<(u64, u32)>,
    open_interval_ns: u64,
    /// Time at which the pace allows the next connection.
    pub(super) next_open_ns: u64,
    /// Number of open background connections.
    pub(super) open: u64,
    /// Counter that selects the next pair of addresses and sources.
    next_pair: usize,
    /// Number of connections opened again.
    reopened: u32,
}

impl<'a, K> Background<'a, K> {
    /// Creates the share of thread `index`, with nothing open yet.
    pub(super) fn new(config: &'a Config, connector: Option<Connector>, index: usize) -> Self {
        let [idle, senders, readers] = [config.idle, config.slow_senders, config.slow_readers]
            .map(|all| config.share(all, index));
        let count = idle + senders + readers;
        let rate = (config.background_rate / config.threads.max(1) as f64).max(0.001);
        Self {
            config,
            index,
            connector,
            absent: (0..count as u32).map(|slot| (slot, 0)).collect(),
            streams: (0..count).map(|_| None).collect(),
            firsts: [idle as u32, (idle + senders) as u32],
            requests: (0..senders + readers).map(|_| None).collect(),
            slow: VecDeque::new(),
            open_interval_ns: (SECOND_NS as f64 / rate) as u64,
            next_open_ns: 0,
            open: 0,
            next_pair: index,
            reopened: 0,
        }
    }

    /// Number of background connections, which is also the number of the load's first slot.
    pub(super) fn len(&self) -> u32 {
        self.streams.len() as u32
    }

    fn kind(&self, slot: u32) -> Kind {
        match self.firsts {
            [senders, _] if slot < senders => Kind::Idle,
            [_, readers] if slot < readers => Kind::SlowSender,
            _ => Kind::SlowReader,
        }
    }

    /// Returns the client of a slot, whose next connection is to be opened. Those after the first
    /// are counted together: a count for each slot would take memory.
    fn client(&mut self, slot: u32, is_first: bool) -> Client {
        let (group, first) = match self.kind(slot) {
            Kind::Idle => (Group::Idle, 0),
            Kind::SlowSender => (Group::SlowSenders, self.firsts[0]),
            Kind::SlowReader => (Group::SlowReaders, self.firsts[1]),
        };
        self.reopened += u32::from(!is_first);
        let number = self.config.number_of_all((slot - first).into(), self.index);
        Client { group, number, opened: if is_first { 0 } else { self.reopened } }
    }

    /// Returns the place of a slow client's request; `None` for an idle client.
    fn request(&mut self, slot: u32) -> Option<&mut Option<SlowRequest>> {
        self.requests.get_mut(slot.checked_sub(self.firsts[0])? as usize)
    }

    fn stream(&mut self, slot: u32) -> Option<&mut Stream<K>> {
        self.streams.get_mut(slot as usize)?.as_mut()
    }

    /// Returns whether each connection has been opened or attempted.
    pub(super) fn is_ready(&self) -> bool {
        self.absent.iter().all(|(_, from_ns)| *from_ns > 0)
    }

    /// Returns whether the pace allows opening another connection ahead of the run, and if so
    /// counts it as opened.
    pub(super) fn may_open(&mut self, now_ns: u64) -> bool {
        let may = self.next_open_ns <= now_ns;
        if may {
            self.next_open_ns =
                self.next_open_ns.max(now_ns.saturating_sub(TICK_NS)) + self.open_interval_ns;
        }
        may
    }

    /// Returns the time of the next action.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let open_ns = self.absent.front().map(|(_, from_ns)| self.next_open_ns.max(*from_ns));
        let slow_ns = self.slow.front().map(|(at_ns, _)| *at_ns);
        open_ns.into_iter().chain(slow_ns).min()
    }

    /// Opens the connections that are due.
    pub(super) fn open_due(
        &mut self,
        now_ns: u64,
        stack: &mut impl Stack<Socket = K>,
        recorder: &mut Recorder,
    ) {
        while let Some((slot, from_ns)) = self.absent.front().copied()
            && from_ns <= now_ns
            && self.may_open(now_ns)
        {
            self.absent.pop_front();
            let client = self.client(slot, from_ns == 0);
            self.open_one(slot, client, now_ns, stack, recorder);
        }
        if self.absent.is_empty() {
            // At the start all were in it: 16 bytes of memory for each.
            self.absent = VecDeque::new();
        }
    }

    fn open_one(
        &mut self,
        slot: u32,
        client: Client,
        now_ns: u64,
        stack: &mut impl Stack<Socket = K>,
        recorder: &mut Recorder,
    ) {
        recorder.counts_at(UNPLANNED).background_opened += 1;
        let kind = self.kind(slot);
        let connected = self.connect(kind, client, stack);
        let connected = match kind {
            Kind::Idle => connected.and_then(|stream| watched(stream, slot, stack)),
            Kind::SlowSender | Kind::SlowReader => connected,
        };
        match connected {
            Ok(stream) => {
                if kind != Kind::Idle {
                    self.slow.push_back((now_ns + self.rate().interval_ns, slot));
                    let begun = SlowRequest { sent: 0, parser: self.parser() };
                    if let Some(request) = self.request(slot) {
                        *request = Some(begun);
                    }
                }
                self.streams[slot as usize] = Some(stream);
                self.open += 1;
            }
            Err(_) => {
                recorder.counts_at(UNPLANNED).background_lost += 1;
                self.absent.push_back((slot, now_ns + REOPEN_DELAY_NS));
            }
        }
    }

    fn connect(
        &mut self,
        kind: Kind,
        client: Client,
        stack: &mut impl Stack<Socket = K>,
    ) -> io::Result<Stream<K>> {
        self.next_pair = self.next_pair.wrapping_add(1);
        let tls = self.connector.as_ref().map(Connector::connect).transpose();
        let tls = tls.map_err(io::Error::other)?;
        let pair = self.config.pair(self.next_pair).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut stream = Stream::new(stack.open(pair, client, kind.purpose())?);
        if let Some(tls) = tls {
            stream.secure(tls).map_err(io::Error::other)?;
        }
        Ok(stream)
    }

    /// Handles an event on an idle connection: its end, unsolicited data, or a step of its TLS.
    pub(super) fn event(
        &mut self,
        slot: u32,
        now_ns: u64,
        event: SocketEvent,
        buffer: &mut [u8],
        stack: &mut impl Stack<Socket = K>,
        recorder: &mut Recorder,
    ) {
        if event.hung_up {
            return self.lose(slot, now_ns, stack, recorder);
        }
        let Some(stream) = self.stream(slot) else { return };
        if !stays_quiet(stream, stack, buffer) {
            self.lose(slot, now_ns, stack, recorder);
        }
    }

    /// Closes a connection that has ended, and schedules it to be reopened.
    fn lose(
        &mut self,
        slot: u32,
        now_ns: u64,
        stack: &mut impl Stack<Socket = K>,
        recorder: &mut Recorder,
    ) {
        let Some(stream) = self.streams.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        if let Some(request) = self.request(slot) {
            *request = None;
        }
        stack.close(stream.into_socket(), false);
        self.open -= 1;
        recorder.counts_at(UNPLANNED).background_lost += 1;
        self.absent.push_back((slot, now_ns + REOPEN_DELAY_NS));
    }

    /// Closes all connections, at the end of the run.
    pub(super) fn close_all(&mut self, stack: &mut impl Stack<Socket = K>, buffer: &mut [u8]) {
        let is_silent = self.config.vanishes();
        for stream in self.streams.iter_mut().filter_map(Option::take) {
            stream.close(stack, buffer, false, is_silent);
        }
    }

    /// Performs the actions that are due: opens connections, sends and reads parts.
    pub(super) fn tick(
        &mut self,
        now_ns: u64,
        stack: &mut impl Stack<Socket = K>,
        buffer: &mut [u8],
        recorder: &mut Recorder,
    ) {
        self.open_due(now_ns, stack, recorder);
        for _ in 0..PARTS_MAX {
            let Some((_, slot)) = self.slow.front().copied().filter(|(at_ns, _)| *at_ns <= now_ns)
            else {
                return;
            };
            self.slow.pop_front();
            if self.go_on(slot, stack, buffer, recorder) {
                self.slow.push_back((now_ns + self.rate().interval_ns, slot));
            } else {
                self.lose(slot, now_ns, stack, recorder);
            }
        }
    }

    /// Creates a parser for the reply to a slow client's request.
    fn parser(&self) -> ReplyParser {
        let request = self.config.requests.get(RequestId(0));
        ReplyParser::new(request.is_some_and(|request| request.head_only))
    }

    /// Returns the rate of a slow client.
    fn rate(&self) -> PartRate {
        PartRate::new(self.config.slow_rate)
    }

    /// Sends or reads one part; returns whether to keep the connection.
    fn go_on(
        &mut self,
        slot: u32,
        stack: &mut impl Stack<Socket = K>,
        buffer: &mut [u8],
        recorder: &mut Recorder,
    ) -> bool {
        let part_bytes = self.rate().bytes;
        let kind = self.kind(slot);
        let Some(Some(stream)) = self.streams.get_mut(slot as usize) else { return false };
        let slow = slot.checked_sub(self.firsts[0]);
        let slow = slow.and_then(|slow| self.requests.get_mut(slow as usize)?.as_mut());
        let Some(slow) = slow else { return false };
        if stream.is_handshaking() {
            return stream.handshake(stack, buffer, true, false).is_ok();
        }
        let Some(request) = self.config.requests.get(RequestId(0)) else { return false };
        let rest = request.keep.get(slow.sent..).unwrap_or_default();
        let would_block = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if !rest.is_empty() {
            let most = if kind == Kind::SlowSender { part_bytes } else { rest.len() };
            return match stream.write(stack, &rest[..rest.len().min(most)]) {
                Ok(bytes) => {
                    slow.sent += bytes;
                    true
                }
                Err(error) => would_block(&error),
            };
        }
        let most = if kind == Kind::SlowReader { part_bytes } else { buffer.len() };
        let room = buffer.len().min(most);
        let head_only = request.head_only;
        let received = |delivery: Delivery<'_>| slow.received(delivery, head_only, recorder);
        let read = read(stream, stack, &mut buffer[..room], received);
        read.is_ok_and(|read| read != Read::Ended)
    }
}

impl SlowRequest {
    /// Handles a part of the reply; returns whether to keep the connection. `head_only`: replies
    /// have no body.
    fn received(
        &mut self,
        delivery: Delivery<'_>,
        head_only: bool,
        recorder: &mut Recorder,
    ) -> bool {
        let Delivery::Bytes(bytes @ [_, ..]) = delivery else {
            let is_whole = self.parser.started() && self.parser.eof().is_ok();
            recorder.counts_at(UNPLANNED).background_replies += u64::from(is_whole);
            return false;
        };
        match self.parser.advance(bytes) {
            Ok(progress) if progress.state == State::Done => {
                let goes_on = self.parser.keeps_open();
                recorder.counts_at(UNPLANNED).background_replies += 1;
                self.sent = 0;
                self.parser = ReplyParser::new(head_only);
                goes_on
            }
            Ok(_) => true,
            Err(_) => false,
        }
    }
}

/// Watches the stream of an idle client, and closes it if that cannot be: its end would go
/// unnoticed.
///
/// # Errors
/// Errors of epoll_ctl(2).
fn watched<S: Stack>(
    stream: Stream<S::Socket>,
    slot: u32,
    stack: &mut S,
) -> io::Result<Stream<S::Socket>> {
    // With TLS there is something to send once it is connected.
    let wanted = if stream.is_secure() { Interest::ReadWrite } else { Interest::Read };
    match stack.watch(stream.socket(), slot.into(), wanted, None) {
        Ok(()) => Ok(stream),
        Err(error) => {
            stack.close(stream.into_socket(), false);
            Err(error)
        }
    }
}

/// Result of a read in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// There was something.
    Some,
    /// There was nothing.
    Nothing,
    /// The connection is of no further use.
    Ended,
}

/// Reads once, and hands what it was to `received`, which returns whether to keep the connection.
///
/// # Errors
/// Errors of recv(2).
fn read<S: Stack>(
    stream: &mut Stream<S::Socket>,
    stack: &mut S,
    buffer: &mut [u8],
    mut received: impl FnMut(Delivery<'_>) -> bool,
) -> io::Result<Read> {
    let bytes = match stream.read(stack, buffer) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Read::Nothing),
        Err(error) => return Err(error),
    };
    let delivered = stream.deliver(buffer.get_mut(..bytes).unwrap_or_default(), |delivery| {
        if received(delivery) { Action::Read } else { Action::Close }
    });
    Ok(if delivered == Ok(Action::Read) { Read::Some } else { Read::Ended })
}

/// Reads what has come on an idle connection; returns whether to keep it.
fn stays_quiet<S: Stack>(stream: &mut Stream<S::Socket>, stack: &mut S, buffer: &mut [u8]) -> bool {
    if stream.is_handshaking() {
        let progress = stream.handshake(stack, buffer, true, false);
        let is_done = progress.as_ref().is_ok_and(|progress| progress.resumed.is_some());
        return progress.is_ok() && (!is_done || stream.flush(stack).is_ok());
    }
    for _ in 0..READS_MAX {
        let is_content = |delivery: Delivery<'_>| matches!(delivery, Delivery::Bytes([_, ..]));
        match read(stream, stack, buffer, is_content) {
            Ok(Read::Some) => {}
            Ok(Read::Nothing) => return true,
            Ok(Read::Ended) | Err(_) => return false,
        }
    }
    // It will not be quiet.
    false
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixtures::{S, config};
    use super::super::stack::Event;
    use super::*;
    use crate::config::AddressPair;
    use crate::measure::PacketCounts;

    /// A stack whose sockets connect at once, and of which none can be watched.
    #[derive(Default)]
    struct Unwatchable {
        closed: u64,
    }

    impl Stack for Unwatchable {
        type Socket = ();

        fn open(&mut self, _: AddressPair<'_>, _: Client, _: Purpose) -> io::Result<()> {
            Ok(())
        }

        fn take_error(&mut self, _: &()) -> Option<io::Error> {
            None
        }

        fn write(&mut self, _: &(), _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn read(&mut self, _: &(), _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn received_ns(&self, _: &()) -> Option<u64> {
            None
        }

        fn watch(&mut self, _: &(), _: u64, _: Interest, _: Option<Interest>) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn close(&mut self, _: (), _: bool) {
            self.closed += 1;
        }

        fn wait(&mut self, _: Duration) {}

        fn event(&self, _: usize) -> Option<Event> {
            None
        }

        fn finish(&mut self) -> Option<PacketCounts> {
            None
        }
    }

    #[test]
    fn an_idle_connection_that_cannot_be_watched_is_lost_and_opened_again() {
        let config = Config { idle: 2, background_rate: 1e6, ..config() };
        let mut background = Background::new(&config, None, 0);
        let (mut stack, mut recorder) = (Unwatchable::default(), Recorder::new());
        background.open_due(S, &mut stack, &mut recorder);
        let counts = *recorder.counts_at(UNPLANNED);
        assert_eq!((counts.background_opened, counts.background_lost), (2, 2));
        assert_eq!((background.open, stack.closed), (0, 2));
        assert_eq!(background.next_ns(), Some(S + REOPEN_DELAY_NS));
    }
}
