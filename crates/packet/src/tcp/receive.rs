//! Segments received (RFC 9293 section 3.10.7).

use thin_vec::ThinVec;

use super::holes::Holes;
use super::{Changes, Connection, Context, Counts, Failure, NEVER, Settings, State};
use crate::segment::{Segment, Timestamps};
use crate::seq::Seq;

/// Largest scale that counts (RFC 7323 section 2.3).
const SHIFT_MAX: u8 = 14;

/// Window in a SYN (Linux: 64 KiB less what does not fill a segment).
const SYN_WINDOW: u16 = 64_240;

/// Largest window: half of 6 MiB, as net.ipv4.tcp_adv_win_scale has it.
const WINDOW_MAX: u32 = 3 << 20;

/// Acknowledgements sent at once when data begins to come (TCP_MAX_QUICKACKS).
const QUICK_ACKS: u8 = 16;

/// Delay of an acknowledgement that waits for data to go with it (TCP_ATO_MIN).
pub(super) const ACK_DELAY_NS: u64 = 40_000_000;

/// Segments of the first flight (RFC 6928).
const FIRST_FLIGHT: u32 = 10;

/// Doublings of the interval between answered probes of a window.
const PROBES_APART: u8 = 8;

/// Smallest segment size that is believed (TCP_MIN_MSS less the options), bytes.
pub const MSS_MIN: u16 = 48;

impl Connection {
    /// Handles a segment of this connection.
    pub fn receive(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) -> Changes {
        match self.state {
            State::Closed | State::TimeWait => {
                answer_stray(segment, context);
                Changes::default()
            }
            State::SynSent => self.receive_in_syn_sent(segment, context),
            _ => self.receive_synchronised(segment, context),
        }
    }

    /// Notes that the last segment was received earlier than it is handled.
    pub fn note_arrival(&mut self, at_ns: u64) {
        self.last_received_ns = self.last_received_ns.min(at_ns);
    }

    /// Returns the time at which the last segment with data was received; 0 before the first.
    pub fn last_received_ns(&self) -> u64 {
        self.last_received_ns
    }

    /// Handles the answer to the SYN (section 3.10.7.3).
    fn receive_in_syn_sent(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) -> Changes {
        if segment.ack.is_some_and(|ack| ack != self.nxt) {
            answer_stray(segment, context);
            if self.retries == 0 {
                // The answer is that of an old connection of the same ends, which the reset ends:
                // the SYN need not wait (tcp_rcv_synsent_state_process).
                self.retransmit_ns = context.now_ns;
            }
            return Changes::default();
        }
        if segment.flags.rst {
            return if segment.ack.is_some() {
                self.fail(Failure::Refused)
            } else {
                Changes::default()
            };
        }
        if !segment.flags.syn {
            return Changes::default();
        }
        if segment.ack.is_none() {
            // A simultaneous open is nothing that a server does.
            return self.fail(Failure::Violation);
        }
        self.establish(segment, context);
        Changes { connected: true, writable: true, ..Changes::default() }
    }

    fn establish(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) {
        let options = &segment.options;
        self.state = State::Established;
        self.una = self.nxt;
        self.expected = segment.seq.plus(1);
        self.acked = self.expected;
        self.announced_end = self.expected.plus(self.first_window().into());
        // No clamp, which would panic on a link with less than the least.
        self.mss = options.mss.unwrap_or(536).min(context.settings.mss).max(MSS_MIN);
        self.has_timestamps = options.timestamps.is_some();
        self.may_sack = options.may_sack;
        self.peer_timestamp = options.timestamps.map_or(0, |timestamps| timestamps.value);
        // Without the option neither side scales.
        self.peer_shift = options.window_shift.map_or(0, |shift| shift.min(SHIFT_MAX));
        self.is_scaled = options.window_shift.is_some();
        self.window_end = self.una.plus(segment.window.into());
        self.window_seq = segment.seq;
        self.congestion_window = FIRST_FLIGHT * u32::from(self.mss);
        if self.retries == 0 {
            self.measure_round_trip(self.una, context.now_ns);
        }
        self.timed_from_ns = 0;
        self.retries = 0;
        self.retransmit_ns = NEVER;
        self.quick_acks = QUICK_ACKS;
        if context.settings.acks_with_request {
            self.owes_handshake_ack = true;
            self.ack_ns = context.now_ns + ACK_DELAY_NS;
        } else {
            self.send_ack(context);
        }
    }

    fn receive_synchronised(
        &mut self,
        segment: &Segment<'_>,
        context: &mut Context<'_>,
    ) -> Changes {
        if !self.is_acceptable(segment, context.counts) {
            if !segment.flags.rst {
                self.send_ack(context);
            }
            return Changes::default();
        }
        if segment.flags.rst {
            if segment.seq == self.expected {
                return self.fail(Failure::Reset);
            }
            // A challenge (RFC 5961 section 3.2).
            self.send_ack(context);
            return Changes::default();
        }
        if segment.flags.syn {
            // Likewise (section 4.2).
            context.counts.duplicates += u64::from(!segment.end().is_after(self.expected));
            self.send_ack(context);
            return Changes::default();
        }
        let Some(ack) = segment.ack else { return Changes::default() };
        if ack.is_after(self.sent_end) {
            context.counts.wrong_acks += 1;
            self.send_ack(context);
            return Changes::default();
        }
        self.note_timestamp(segment);
        let mut changes = Changes::default();
        self.receive_ack(ack, segment, context, &mut changes);
        if self.state == State::Closed {
            return changes;
        }
        self.receive_data(segment, context, &mut changes);
        if self.state != State::Closed {
            self.send_what_may(context);
        }
        changes
    }

    /// Returns whether the segment is neither too old nor beyond the window (section 3.10.7.4,
    /// first, RFC 7323 section 5.3 and tcp_sequence).
    fn is_acceptable(&self, segment: &Segment<'_>, counts: &mut Counts) -> bool {
        let is_old = |Timestamps { value, .. }: Timestamps| {
            (value.wrapping_sub(self.peer_timestamp) as i32) < 0
        };
        let timestamps = segment.options.timestamps.filter(|_| self.has_timestamps);
        let is_late = !segment.flags.rst && timestamps.is_some_and(is_old);
        let is_beyond = segment.seq.is_after(self.announced_end);
        let is_known = is_late || segment.end().is_before(self.acked);
        let has_bytes = segment.space() > 0;
        counts.duplicates += u64::from(is_known && has_bytes);
        counts.beyond_window += u64::from(is_beyond && !is_known && has_bytes);
        !is_known && !is_beyond
    }

    /// Takes the timestamp to be echoed (RFC 7323 section 4.3).
    fn note_timestamp(&mut self, segment: &Segment<'_>) {
        if let Some(Timestamps { value, .. }) = segment.options.timestamps
            && !segment.seq.is_after(self.acked)
        {
            self.peer_timestamp = value;
        }
    }

    fn receive_ack(
        &mut self,
        ack: Seq,
        segment: &Segment<'_>,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        let is_in_flight = self.una != self.sent_end;
        let old_window_end = self.window_end;
        self.take_window(ack, segment, context.counts);
        if ack.is_after(self.una) {
            self.acknowledged(ack, context, changes);
        } else if ack == self.una
            && is_in_flight
            && segment.space() == 0
            && self.window_end == old_window_end
        {
            self.duplicate_acks = self.duplicate_acks.saturating_add(1);
            if self.duplicate_acks == 3 && !self.in_recovery {
                self.recover_from_loss(context);
            }
        }
    }

    /// Takes the peer's window, unless the segment is older than the one that last set it
    /// (tcp_may_update_window). Two with the same numbers may have passed each other on their way:
    /// of those the wider window counts, or a closed one, and neither takes anything back.
    fn take_window(&mut self, ack: Seq, segment: &Segment<'_>, counts: &mut Counts) {
        if ack.is_before(self.una) {
            return;
        }
        let end = ack.plus(u32::from(segment.window) << self.peer_shift);
        let is_newer = ack.is_after(self.una) || segment.seq.is_after(self.window_seq);
        let is_wider = end.is_after(self.window_end) || segment.window == 0;
        if !is_newer && (segment.seq != self.window_seq || !is_wider) {
            return;
        }
        // What does not fill a unit of the scale comes and goes.
        let slack = (1 << self.peer_shift) - 1;
        let is_shrunk = is_newer && end.plus(slack).is_before(self.window_end);
        counts.shrunk_windows += u64::from(is_shrunk);
        self.window_end = end;
        self.window_seq = segment.seq;
        if self.is_blocked() {
            // A probe was answered: the peer lives. An open window ends the probing.
            let is_open = end.is_after(self.nxt);
            self.retries = if is_open { 0 } else { self.retries.min(PROBES_APART) };
            self.retransmit_ns = if is_open { NEVER } else { self.retransmit_ns };
        }
    }

    /// Handles the acknowledgement of something new.
    fn acknowledged(&mut self, ack: Seq, context: &mut Context<'_>, changes: &mut Changes) {
        let bytes = self.una.distance_to(ack) as usize;
        let is_fin_acked = self.fin_queued && bytes > self.unacked.len();
        let was_full = self.unacked.len() >= super::SEND_MAX;
        self.measure_round_trip(ack, context.now_ns);
        self.unacked.drain(..bytes.min(self.unacked.len()));
        if self.unacked.is_empty() {
            self.unacked = ThinVec::new();
        }
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        (self.retries, self.duplicate_acks) = (0, 0);
        changes.writable |= was_full;
        if self.in_recovery {
            if ack.is_before(self.recover) {
                // A partial acknowledgement: the next segment is lost as well (RFC 6582 section
                // 3.2).
                self.send_oldest(context);
            } else {
                self.in_recovery = false;
                self.congestion_window = self.threshold;
            }
        } else {
            self.grow_congestion_window(bytes as u32);
        }
        self.arm_retransmission(context.now_ns);
        if is_fin_acked {
            self.fin_acknowledged(context);
        }
    }

    fn fin_acknowledged(&mut self, context: &Context<'_>) {
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                // Nothing is in flight any more: the timer is the peer's to close.
                self.retransmit_ns = context.now_ns + context.settings.fin_timeout_ns;
            }
            State::Closing => self.enter_time_wait(),
            State::LastAck => self.end(),
            _ => {}
        }
    }

    /// Handles the segment's data and its FIN, and decides when to acknowledge them.
    fn receive_data(
        &mut self,
        segment: &Segment<'_>,
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) {
        let end = segment.end();
        if segment.space() == 0 {
            return;
        }
        if !end.is_after(self.expected) {
            context.counts.duplicates += 1;
            return self.send_ack(context);
        }
        if matches!(self.state, State::CloseWait | State::Closing | State::LastAck) {
            context.counts.data_after_fin += 1;
            return self.send_ack(context);
        }
        if self.is_orphan && !segment.payload.is_empty() {
            // Nobody will read it (RFC 9293 section 3.10.4; tcp_rcv_state_process).
            return self.reset(context);
        }
        let room = segment.seq.distance_to(self.announced_end).max(0) as usize;
        let payload = &segment.payload[..segment.payload.len().min(room)];
        // One byte more is a probe of the window.
        context.counts.beyond_window += u64::from(segment.payload.len() > room + 1);
        let has_fin = segment.flags.fin && payload.len() == segment.payload.len();
        if segment.seq.is_after(self.expected) {
            context.counts.out_of_order += 1;
            if !payload.is_empty() {
                self.holes.get_or_insert_default().add(segment.seq, payload);
            }
            if has_fin {
                self.early_fin = Some(end);
            }
            // So that the peer knows at once (RFC 5681 section 4.2).
            return self.send_ack(context);
        }
        let known = segment.seq.distance_to(self.expected) as usize;
        context.counts.duplicates += u64::from(known > 0);
        let fills_hole = self.holes.is_some();
        let before = self.expected;
        self.take_in(payload.get(known..).unwrap_or_default());
        self.take_from_holes();
        changes.readable |= self.expected != before;
        let is_fin = has_fin && end == self.expected.plus(1)
            || self.early_fin == Some(self.expected.plus(1));
        if is_fin {
            self.receive_fin(changes);
        }
        // In a connection that this side still uses, its next segment acknowledges the FIN.
        let answers_close = is_fin && self.state != State::CloseWait;
        self.schedule_ack(answers_close || fills_hole, context);
        self.last_received_ns = context.now_ns;
    }

    fn take_in(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
        self.expected = self.expected.plus(bytes.len() as u32);
        self.received_bytes = self.received_bytes.saturating_add(bytes.len() as u32);
    }

    fn take_from_holes(&mut self) {
        let Some(mut holes) = self.holes.take() else { return };
        while let Some(bytes) = holes.take(self.expected) {
            self.take_in(&bytes);
        }
        if !holes.is_empty() {
            self.holes = Some(holes);
        }
    }

    fn receive_fin(&mut self, changes: &mut Changes) {
        self.expected = self.expected.plus(1);
        self.early_fin = None;
        // tcp_fin.
        self.is_pingpong |= self.state == State::Established;
        self.state = match self.state {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            _ => State::TimeWait,
        };
        (changes.readable, changes.hung_up) = (true, true);
    }

    /// Acknowledges now, or with a delay (__tcp_ack_snd_check).
    fn schedule_ack(&mut self, now: bool, context: &mut Context<'_>) {
        let owed = self.acked.distance_to(self.expected).max(0) as u32;
        let is_quick = self.quick_acks > 0 && !self.is_pingpong;
        if now || is_quick || owed > u32::from(self.mss) || self.holes.is_some() {
            self.send_ack(context);
            if self.state == State::TimeWait {
                self.enter_time_wait();
            }
        } else {
            self.ack_ns = self.ack_ns.min(context.now_ns + ACK_DELAY_NS);
        }
    }
}

/// The window that is announced.
impl Connection {
    /// Returns the window in the SYN, which no scale applies to (RFC 7323 section 2.2).
    pub(super) fn first_window(&self) -> u16 {
        match self.window_limit {
            0 => SYN_WINDOW,
            limit => u16::try_from(limit).unwrap_or(u16::MAX).min(SYN_WINDOW),
        }
    }

    /// Returns the window for a segment that is about to be sent, and remembers its right edge.
    pub(super) fn announce(&mut self, settings: &Settings) -> u16 {
        let shift = if self.is_scaled { settings.window_shift.min(SHIFT_MAX) } else { 0 };
        let end = self.expected.plus(self.open_window());
        self.announced_end = self.announced_end.max(end);
        let window = self.expected.distance_to(self.announced_end).max(0) as u32;
        // Rounded up, so that the edge does not move back.
        let units = window.div_ceil(1 << shift).min(u16::MAX.into());
        self.announced_end = self.expected.plus(units << shift);
        units as u16
    }

    /// Returns the most bytes that the window covers.
    fn window_limit(&self) -> u32 {
        match self.window_limit {
            // It grows as fast as Linux's: by twice what has been received (tcp_rcv_space_adjust).
            0 => u32::from(u16::MAX)
                .saturating_add(self.received_bytes.saturating_mul(2))
                .min(WINDOW_MAX),
            limit => limit,
        }
    }

    /// Returns the window that there is room for, which does not open by little (RFC 9293 section
    /// 3.8.6.2.2).
    fn open_window(&self) -> u32 {
        let limit = self.window_limit();
        let unread = self.received.len() as u32 - self.read_bytes;
        let room = limit.saturating_sub(unread);
        let announced = self.expected.distance_to(self.announced_end).max(0) as u32;
        let least = u32::from(self.mss).min(limit / 2);
        if room < announced + least && announced > 0 || room < least { announced } else { room }
    }

    /// Tells the peer of room that reading has made, if it is much.
    pub(super) fn announce_room(&mut self, context: &mut Context<'_>) {
        let announced = self.expected.distance_to(self.announced_end).max(0) as u32;
        let is_receiving =
            matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        // tcp_cleanup_rbuf: when what is announced falls below half, and has doubled.
        if is_receiving
            && 2 * announced <= self.window_limit()
            && self.open_window() >= 2 * announced.max(1)
        {
            self.send_ack(context);
        }
    }

    /// Returns the blocks to be reported with a segment.
    pub(super) fn blocks(&self) -> [Option<(Seq, Seq)>; crate::segment::SACK_MAX] {
        let holes = self.holes.as_deref().filter(|_| self.may_sack);
        holes.map(Holes::sack).unwrap_or_default()
    }
}

/// Answers a segment of no connection: one of TIME-WAIT, which Linux acknowledges, or any other,
/// which gets a reset (RFC 9293 section 3.10.7.1). A FIN that comes again needs no record of its
/// connection: all that its answer says is in the segment.
pub fn answer_stray(segment: &Segment<'_>, context: &mut Context<'_>) {
    if segment.flags.rst {
        return;
    }
    let mut answer = Segment::default();
    match segment.ack {
        Some(ack) if segment.flags.fin => {
            (answer.seq, answer.ack) = (ack, Some(segment.end()));
            let value = context.settings.ticks(context.now_ns);
            let peer = segment.options.timestamps;
            answer.options.timestamps = peer.map(|peer| Timestamps { value, echo: peer.value });
        }
        Some(ack) => (answer.seq, answer.flags.rst) = (ack, true),
        None => (answer.ack, answer.flags.rst) = (Some(segment.end()), true),
    }
    context.output.send(&answer);
}
