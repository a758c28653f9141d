//! A client's connection, as a state machine. It is told of segments, of what the application does
//! and of timers that are due, and hands the segments that it sends to an [`Output`]. It reads no
//! clock and makes no system call.
//!
//! ```text
//!  open ──► SynSent ──► Established ──close──► FinWait1 ──► FinWait2 ──► TimeWait
//!              │            │ FIN                 │ FIN ──► Closing ───────▲
//!              │            ▼                     └────── FIN and ACK ─────┘
//!              │        CloseWait ──close──► LastAck ──► Closed ◄── reset, from any state
//!              └──► Closed
//! ```
//!
//! An open connection without data in flight owns no memory outside this structure. Behaviour
//! follows Linux, whose source is named by function where no RFC decides.

mod holes;
mod receive;
mod send;
#[cfg(test)]
mod tests;
mod timers;

use std::io;

use thin_vec::ThinVec;

use self::holes::Holes;
pub use self::receive::{MSS_MIN, answer_stray};
use crate::segment::{Flags, Options, Segment, Timestamps};
use crate::seq::Seq;

/// Settings common to all connections. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum segment size announced, bytes: the link's MTU less the headers without options, at
    /// least [`MSS_MIN`].
    pub mss: u16,
    /// Scale of the windows announced, bits, at most 14 (RFC 7323 section 2.3).
    pub window_shift: u8,
    /// True if the handshake's acknowledgement waits for the request, to be sent with it.
    pub acks_with_request: bool,
    /// SYNs sent a second apart before the interval begins to double
    /// (net.ipv4.tcp_syn_linear_timeouts).
    pub linear_syns: u8,
    /// SYNs sent again before the connection is given up (net.ipv4.tcp_syn_retries).
    pub syn_retries: u8,
    /// Retransmissions before the connection is given up (net.ipv4.tcp_retries2).
    pub retries: u8,
    /// Longest time in FIN-WAIT-2 (net.ipv4.tcp_fin_timeout).
    pub fin_timeout_ns: u64,
    /// Clock of the timestamps at time 0, as [`ticks`] counts it. It has to go on from run to run:
    /// a server that has a connection of the same ends in TIME-WAIT takes a SYN for a new one only
    /// if its timestamp is newer (RFC 6191 section 2).
    pub ticks_at_zero: u32,
}

/// Initial retransmission timeout (RFC 6298 section 2).
pub const INITIAL_RTO_NS: u64 = 1_000_000_000;

impl Default for Settings {
    fn default() -> Self {
        Self {
            mss: 1460,
            window_shift: 7,
            acks_with_request: false,
            linear_syns: 4,
            syn_retries: 6,
            retries: 15,
            fin_timeout_ns: 60_000_000_000,
            ticks_at_zero: ticks(0),
        }
    }
}

impl Settings {
    /// Returns the clock of the timestamps.
    fn ticks(&self, now_ns: u64) -> u32 {
        self.ticks_at_zero.wrapping_add((now_ns / TICK_NS) as u32)
    }
}

/// Returns the clock of the timestamps (TCP_TS_HZ) at a time of another clock, milliseconds. It
/// does not begin at 0, which some take for no timestamp.
pub fn ticks(at_ns: u64) -> u32 {
    ((at_ns / TICK_NS) as u32).wrapping_add(1 << 20)
}

/// Tick of the timestamps: a millisecond.
const TICK_NS: u64 = 1_000_000;

/// Receives the segments that a connection sends.
pub trait Output {
    /// Sends a segment.
    fn send(&mut self, segment: &Segment<'_>);
}

/// What surrounds a call: the time, the settings, and where segments go.
pub struct Context<'a> {
    /// The current time, nanoseconds.
    pub now_ns: u64,
    /// Settings of all connections.
    pub settings: &'a Settings,
    /// Takes what is sent.
    pub output: &'a mut dyn Output,
    /// Counts what happens.
    pub counts: &'a mut Counts,
}

/// The states of a client's connection (RFC 9293 section 3.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// There is none, or it has ended.
    #[default]
    Closed,
    /// A SYN was sent.
    SynSent,
    /// Data may go both ways.
    Established,
    /// This side has closed; its FIN is not acknowledged.
    FinWait1,
    /// This side has closed; the peer has not.
    FinWait2,
    /// The peer has closed; this side has not.
    CloseWait,
    /// Both have closed at once; this side's FIN is not acknowledged.
    Closing,
    /// Both have closed, the peer first; this side's FIN is not acknowledged.
    LastAck,
    /// Both have closed, this side first.
    TimeWait,
}

/// What a call has changed for the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The connection was established.
    pub connected: bool,
    /// There is more to read, or its end.
    pub readable: bool,
    /// There is room to write again.
    pub writable: bool,
    /// The peer has closed, or the connection has failed.
    pub hung_up: bool,
}

/// Errors that end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A SYN was answered by a reset.
    Refused,
    /// The peer has reset the connection.
    Reset,
    /// The peer did not answer.
    TimedOut,
    /// The peer has broken the protocol so that the connection cannot go on.
    Violation,
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        io::Error::from(match failure {
            Failure::Refused => io::ErrorKind::ConnectionRefused,
            Failure::Reset => io::ErrorKind::ConnectionReset,
            Failure::TimedOut => io::ErrorKind::TimedOut,
            Failure::Violation => io::ErrorKind::InvalidData,
        })
    }
}

/// Events of a connection that are counted: those that Linux counts in /proc/net/netstat, and
/// breaches of the protocol by the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments sent again: SYNs, data and FINs.
    pub retransmitted: u64,
    /// Among them those sent again because a timer expired.
    pub timeouts: u64,
    /// Segments received again, or in part.
    pub duplicates: u64,
    /// Segments received ahead of their turn.
    pub out_of_order: u64,
    /// Data or another FIN behind the peer's FIN.
    pub data_after_fin: u64,
    /// Acknowledgements of what was never sent.
    pub wrong_acks: u64,
    /// Windows whose right edge was taken back (RFC 9293 section 3.8.6: must not be), by a segment
    /// that is newer by its numbers.
    pub shrunk_windows: u64,
    /// Data beyond the window that was announced.
    pub beyond_window: u64,
}

impl Counts {
    /// Returns the number of breaches of the protocol by the peer.
    pub fn violations(&self) -> u64 {
        self.data_after_fin + self.wrong_acks + self.shrunk_windows + self.beyond_window
    }

    /// Adds the counts of another connection.
    pub fn add(&mut self, other: &Counts) {
        self.retransmitted += other.retransmitted;
        self.timeouts += other.timeouts;
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
        self.data_after_fin += other.data_after_fin;
        self.wrong_acks += other.wrong_acks;
        self.shrunk_windows += other.shrunk_windows;
        self.beyond_window += other.beyond_window;
    }
}

/// A connection. Times are nanoseconds, sizes bytes.
#[derive(Debug, Default)]
pub struct Connection {
    state: State,
    failure: Option<Failure>,
    /// The application has closed: nothing it reads or writes follows.
    is_orphan: bool,
    /// The application writes no more: a FIN follows the data.
    fin_queued: bool,
    has_timestamps: bool,
    may_sack: bool,
    /// Windows are scaled (RFC 7323 section 2.2).
    is_scaled: bool,
    /// The acknowledgement of the handshake waits for the request.
    owes_handshake_ack: bool,
    /// Interactive: acknowledgements wait for data to go with them (inet_csk_in_pingpong_mode).
    is_pingpong: bool,
    sends_at_once: bool,
    /// Acknowledgements to be sent at once (tcp_enter_quickack_mode).
    quick_acks: u8,
    duplicate_acks: u8,
    /// Retransmissions in a row.
    retries: u8,
    /// Scale of the windows received.
    peer_shift: u8,
    /// Largest segment to be sent, without options.
    mss: u16,
    /// Bytes of `received` already read.
    read_bytes: u32,
    /// Most bytes that the receive window covers, from the SYN on; 0: it grows as Linux's does.
    window_limit: u32,
    /// Oldest number not acknowledged.
    una: Seq,
    /// Next number to be sent.
    nxt: Seq,
    /// Number behind everything ever sent.
    sent_end: Seq,
    /// Recovery from a loss ends with the acknowledgement of this number (RFC 6582).
    recover: Seq,
    in_recovery: bool,
    /// Right edge of the peer's window.
    window_end: Seq,
    /// Sequence and acknowledgement number of the segment that last set the window.
    window_seq: Seq,
    congestion_window: u32,
    threshold: u32,
    /// Next number expected.
    expected: Seq,
    /// Last number acknowledged to the peer.
    acked: Seq,
    /// Number behind a FIN that came ahead of its turn.
    early_fin: Option<Seq>,
    /// Right edge of the window last announced.
    announced_end: Seq,
    /// Bytes received so far, which the window grows with.
    received_bytes: u32,
    /// The peer's last timestamp, to be echoed.
    peer_timestamp: u32,
    /// Smoothed round trip and its variation; 0 before the first sample. Microseconds.
    smoothed_us: u32,
    variation_us: u32,
    /// A round trip is measured until this number is acknowledged.
    timed_end: Seq,
    timed_from_ns: u64,
    /// Time at which something is to be sent again; `NEVER` if nothing is.
    retransmit_ns: u64,
    /// Time at which an acknowledgement is to be sent; `NEVER` if none is owed.
    ack_ns: u64,
    last_received_ns: u64,
    /// Bytes from `una` on: not acknowledged, and behind them not sent.
    unacked: ThinVec<u8>,
    /// Bytes received in order and not read.
    received: ThinVec<u8>,
    /// Bytes received ahead of their turn.
    holes: Option<Box<Holes>>,
}

/// No time at all.
const NEVER: u64 = u64::MAX;

/// Send buffer (net.ipv4.tcp_wmem, default).
const SEND_MAX: usize = 64 << 10;

/// What a client may set on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Initial sequence number.
    pub iss: u32,
    /// Small segments do not wait for the acknowledgement of those before (TCP_NODELAY).
    pub sends_at_once: bool,
    /// Most bytes that the receive window covers (SO_RCVBUF); 0: as Linux chooses.
    pub window_limit: u32,
}

/// What the application does.
impl Connection {
    /// Opens a connection: sends a SYN.
    pub fn open(options: OpenOptions, context: &mut Context<'_>) -> Self {
        let iss = Seq(options.iss);
        let mut connection = Self {
            state: State::SynSent,
            sends_at_once: options.sends_at_once,
            window_limit: options.window_limit,
            mss: context.settings.mss,
            una: iss,
            nxt: iss.plus(1),
            sent_end: iss.plus(1),
            recover: iss,
            retransmit_ns: context.now_ns + INITIAL_RTO_NS,
            ack_ns: NEVER,
            threshold: u32::MAX,
            timed_end: iss.plus(1),
            timed_from_ns: context.now_ns.max(1),
            ..Self::default()
        };
        connection.send_syn(context);
        connection
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Removes and returns the error that has ended the connection, as SO_ERROR does.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Accepts bytes to be sent, as far as there is room.
    ///
    /// # Errors
    /// `WouldBlock` without room, or before the connection is established; `BrokenPipe` after its
    /// end; what has ended it, once.
    pub fn write(&mut self, bytes: &[u8], context: &mut Context<'_>) -> io::Result<usize> {
        if let Some(failure) = self.take_failure() {
            return Err(failure.into());
        }
        match self.state {
            State::SynSent => return Err(io::ErrorKind::WouldBlock.into()),
            State::Established | State::CloseWait if !self.fin_queued => {}
            _ => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        let room = SEND_MAX.saturating_sub(self.unacked.len()).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.unacked.extend_from_slice(&bytes[..room]);
        self.send_what_may(context);
        Ok(room)
    }

    /// Reads bytes received in order; 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` while there are none; what has ended the connection, once.
    pub fn read(&mut self, buffer: &mut [u8], context: &mut Context<'_>) -> io::Result<usize> {
        let rest = self.received.get(self.read_bytes as usize..).unwrap_or_default();
        if rest.is_empty() {
            if let Some(failure) = self.take_failure() {
                return Err(failure.into());
            }
            let has_ended = !matches!(
                self.state,
                State::SynSent | State::Established | State::FinWait1 | State::FinWait2
            );
            return if has_ended { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        self.read_bytes += bytes as u32;
        if self.read_bytes as usize == self.received.len() {
            // An idle connection owns no memory.
            self.received = ThinVec::new();
            self.read_bytes = 0;
        }
        self.announce_room(context);
        Ok(bytes)
    }

    /// Closes: the data not sent yet and a FIN follow. With bytes that were not read it resets
    /// instead (RFC 2525 section 2.17), and before the connection is established it just ends.
    pub fn close(&mut self, context: &mut Context<'_>) {
        self.is_orphan = true;
        let is_unread = self.has_unread();
        self.received = ThinVec::new();
        self.read_bytes = 0;
        match self.state {
            State::Established | State::CloseWait if is_unread => return self.reset(context),
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            State::SynSent => return self.end(),
            _ => return,
        }
        self.fin_queued = true;
        self.send_what_may(context);
    }

    /// Resets the connection (a close with SO_LINGER and no time).
    pub fn reset(&mut self, context: &mut Context<'_>) {
        if !matches!(self.state, State::Closed | State::SynSent | State::TimeWait) {
            self.send_reset(context);
        }
        self.is_orphan = true;
        self.end();
    }

    /// Returns the bytes of memory that the connection owns outside this structure.
    pub fn held_bytes(&self) -> usize {
        let ahead = self.holes.as_deref().map_or(0, Holes::held_bytes);
        self.unacked.capacity() + self.received.capacity() + ahead
    }

    /// Returns whether there are bytes to read.
    pub fn has_unread(&self) -> bool {
        self.received.len() > self.read_bytes as usize
    }

    /// Returns whether a write would find room, or tell an error.
    pub fn is_writable(&self) -> bool {
        self.state != State::SynSent && self.unacked.len() < SEND_MAX
    }

    /// Returns whether nothing more will come of the connection.
    pub fn is_over(&self) -> bool {
        self.is_orphan && matches!(self.state, State::Closed | State::TimeWait)
    }

    /// Ends the connection without a further segment.
    fn end(&mut self) {
        self.state = State::Closed;
        (self.retransmit_ns, self.ack_ns) = (NEVER, NEVER);
        self.unacked = ThinVec::new();
        self.holes = None;
    }

    /// Ends the connection, whose end both sides know of.
    fn enter_time_wait(&mut self) {
        self.end();
        self.state = State::TimeWait;
    }

    /// Ends the connection because of an error.
    fn fail(&mut self, failure: Failure) -> Changes {
        self.end();
        self.failure = Some(failure);
        Changes { hung_up: true, readable: true, writable: true, ..Changes::default() }
    }
}

/// Builds the head of every segment but a SYN.
impl Connection {
    fn segment<'a>(
        &mut self,
        seq: Seq,
        payload: &'a [u8],
        flags: Flags,
        context: &Context<'_>,
    ) -> Segment<'a> {
        let options = Options {
            timestamps: self.has_timestamps.then(|| self.timestamps(context)),
            sack: self.blocks(),
            ..Options::default()
        };
        Segment {
            seq,
            ack: Some(self.expected),
            window: self.announce(context.settings),
            flags,
            options,
            payload,
        }
    }

    fn timestamps(&self, context: &Context<'_>) -> Timestamps {
        let value = context.settings.ticks(context.now_ns);
        Timestamps { value, echo: self.peer_timestamp }
    }
}
