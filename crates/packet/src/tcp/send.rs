//! Segments sent: data as the windows allow, acknowledgements, and what is sent again.

use super::receive::ACK_DELAY_NS;
use super::{Connection, Context, INITIAL_RTO_NS, NEVER, State};
use crate::segment::{Flags, Options, Segment, Timestamps};
use crate::seq::Seq;

/// Least retransmission timeout (TCP_RTO_MIN).
const RTO_MIN_NS: u64 = 200_000_000;

/// Longest retransmission timeout (TCP_RTO_MAX).
pub(super) const RTO_MAX_NS: u64 = 120_000_000_000;

/// Bytes of the timestamps option with its padding.
const TIMESTAMPS_BYTES: u16 = 12;

impl Connection {
    /// Sends the SYN, with the options that Linux sends.
    pub(super) fn send_syn(&mut self, context: &mut Context<'_>) {
        let value = context.settings.ticks(context.now_ns);
        let options = Options {
            mss: Some(context.settings.mss),
            window_shift: Some(context.settings.window_shift),
            may_sack: true,
            timestamps: Some(Timestamps { value, echo: 0 }),
            ..Options::default()
        };
        let flags = Flags { syn: true, ..Flags::default() };
        context.output.send(&Segment {
            seq: self.una,
            window: self.first_window(),
            flags,
            options,
            ..Segment::default()
        });
    }

    /// Sends an acknowledgement without data.
    pub(super) fn send_ack(&mut self, context: &mut Context<'_>) {
        let segment = self.segment(self.nxt, b"", Flags::default(), context);
        context.output.send(&segment);
        self.ack_sent();
    }

    /// Notes that everything received has been acknowledged.
    fn ack_sent(&mut self) {
        self.acked = self.expected;
        self.ack_ns = NEVER;
        self.owes_handshake_ack = false;
        self.quick_acks = self.quick_acks.saturating_sub(1);
    }

    /// Sends a reset (tcp_send_active_reset).
    pub(super) fn send_reset(&mut self, context: &mut Context<'_>) {
        let flags = Flags { rst: true, ..Flags::default() };
        let mut segment = self.segment(self.nxt, b"", flags, context);
        segment.options.sack = Default::default();
        context.output.send(&segment);
    }

    /// Sends the data that the windows allow, and the FIN behind it.
    pub(super) fn send_what_may(&mut self, context: &mut Context<'_>) {
        let before = self.nxt;
        while let Some((from, bytes)) = self.next_part() {
            self.send_part(from, bytes, context);
        }
        if self.may_send_fin() {
            self.send_part(self.unacked.len(), 0, context);
        }
        if self.nxt != before && self.retransmit_ns == NEVER {
            self.arm_retransmission(context.now_ns);
        }
        if self.retransmit_ns == NEVER && self.is_blocked() {
            // The peer's window is closed, and the segment that opens it may be lost: probe.
            self.retransmit_ns = context.now_ns + self.timeout_ns();
        }
    }

    /// Returns whether data waits for a window, and nothing is in flight whose acknowledgement
    /// would open it.
    pub(super) fn is_blocked(&self) -> bool {
        self.una == self.nxt && !self.unacked.is_empty()
    }

    /// Returns the place in `unacked` and the length of the next segment, if one may be sent.
    fn next_part(&self) -> Option<(usize, usize)> {
        if !matches!(
            self.state,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::LastAck
                | State::Closing
        ) {
            return None;
        }
        let in_flight = self.in_flight();
        let unsent = self.unacked.len().checked_sub(in_flight).filter(|bytes| *bytes > 0)?;
        let segment = usize::from(self.segment_bytes());
        let window = self.nxt.distance_to(self.window_end).max(0) as usize;
        let congestion = (self.congestion_window as usize).saturating_sub(in_flight);
        let bytes = unsent.min(segment).min(window);
        if bytes == 0 || congestion < bytes.min(segment) {
            return None;
        }
        // Nagle's rule (RFC 9293 section 3.7.4), and silly windows (section 3.8.6.2.1).
        let is_last = bytes == unsent;
        let may_be_small = self.sends_at_once || self.fin_queued || in_flight == 0;
        let fills_window = in_flight == 0 && bytes == window;
        (bytes == segment || fills_window || is_last && may_be_small).then_some((in_flight, bytes))
    }

    /// Returns the bytes between what is acknowledged and what is to be sent next.
    fn in_flight(&self) -> usize {
        self.una.distance_to(self.nxt) as usize
    }

    fn may_send_fin(&self) -> bool {
        let in_flight = self.in_flight();
        self.fin_queued
            && in_flight == self.unacked.len()
            && matches!(self.state, State::FinWait1 | State::LastAck | State::Closing)
    }

    /// Returns the bytes of data in a full segment, which has its options too.
    fn segment_bytes(&self) -> u16 {
        let timestamps = if self.has_timestamps { TIMESTAMPS_BYTES } else { 0 };
        let blocks = Options { sack: self.blocks(), ..Options::default() };
        // At the smallest segment size 8 bytes are left.
        self.mss.saturating_sub(timestamps + blocks.sack_bytes() as u16)
    }

    /// Sends the bytes from `from` of `unacked`, with the FIN if they are the last.
    fn send_part(&mut self, from: usize, bytes: usize, context: &mut Context<'_>) {
        let unacked = std::mem::take(&mut self.unacked);
        let end = from + bytes;
        let fin = self.fin_queued && end == unacked.len();
        let flags = Flags { fin, psh: bytes > 0 && end == unacked.len(), ..Flags::default() };
        let seq = self.una.plus(from as u32);
        let payload = unacked.get(from..end).unwrap_or_default();
        let segment = self.segment(seq, payload, flags, context);
        let segment_end = segment.end();
        context.output.send(&segment);
        self.unacked = unacked;
        if bytes > 0 && context.now_ns < self.last_received_ns.saturating_add(ACK_DELAY_NS) {
            // It answers what has just come: a dialogue (tcp_event_data_sent).
            self.is_pingpong |= self.last_received_ns > 0;
        }
        self.ack_sent();
        self.nxt = self.nxt.max(segment_end);
        if self.nxt.is_after(self.sent_end) {
            if self.timed_from_ns == 0 {
                (self.timed_end, self.timed_from_ns) = (self.nxt, context.now_ns.max(1));
            }
            self.sent_end = self.nxt;
        } else {
            context.counts.retransmitted += 1;
            // A round trip is not measured by what is sent again (RFC 6298 section 3).
            self.timed_from_ns = 0;
        }
    }

    /// Sends the oldest segment again.
    pub(super) fn send_oldest(&mut self, context: &mut Context<'_>) {
        let in_flight = self.una.distance_to(self.sent_end) as usize;
        let bytes = self.unacked.len().min(in_flight).min(self.segment_bytes().into());
        if bytes > 0 || self.fin_queued && in_flight > 0 {
            self.send_part(0, bytes, context);
        }
    }

    /// Begins to recover from the loss that three duplicate acknowledgements tell of (RFC 6582).
    pub(super) fn recover_from_loss(&mut self, context: &mut Context<'_>) {
        self.threshold = self.half_of_flight();
        self.congestion_window = self.threshold;
        self.in_recovery = true;
        self.recover = self.sent_end;
        self.send_oldest(context);
        self.arm_retransmission(context.now_ns);
    }

    /// Returns the threshold after a loss (RFC 5681 equation 4).
    pub(super) fn half_of_flight(&self) -> u32 {
        let in_flight = self.una.distance_to(self.sent_end) as u32;
        (in_flight / 2).max(2 * u32::from(self.mss))
    }

    /// Lets the congestion window grow by what was acknowledged (RFC 5681 section 3.1).
    pub(super) fn grow_congestion_window(&mut self, bytes: u32) {
        let mss = u32::from(self.mss);
        let growth = if self.congestion_window < self.threshold {
            bytes.min(mss)
        } else {
            (mss * mss / self.congestion_window.max(1)).max(1)
        };
        self.congestion_window = self.congestion_window.saturating_add(growth);
    }
}

/// The round trip and the retransmission timeout (RFC 6298).
impl Connection {
    /// Takes a sample, if `ack` covers what is timed.
    pub(super) fn measure_round_trip(&mut self, ack: Seq, now_ns: u64) {
        if self.timed_from_ns == 0 || ack.is_before(self.timed_end) {
            return;
        }
        let sample_us = (now_ns.saturating_sub(self.timed_from_ns) / 1000).clamp(1, 1 << 30) as u32;
        self.timed_from_ns = 0;
        if self.smoothed_us == 0 {
            (self.smoothed_us, self.variation_us) = (sample_us, sample_us / 2);
            return;
        }
        let distance = self.smoothed_us.abs_diff(sample_us);
        self.variation_us = self.variation_us - self.variation_us / 4 + distance / 4;
        self.smoothed_us = self.smoothed_us - self.smoothed_us / 8 + sample_us / 8;
    }

    /// Returns the retransmission timeout, doubled for each retransmission in a row. The least is
    /// added to the smoothed round trip, as Linux does it (tcp_rtt_estimator).
    pub(super) fn timeout_ns(&self) -> u64 {
        let base_ns = if self.smoothed_us == 0 {
            INITIAL_RTO_NS
        } else {
            let variation_ns = u64::from(self.variation_us) * 4000;
            u64::from(self.smoothed_us) * 1000 + variation_ns.max(RTO_MIN_NS)
        };
        base_ns.checked_shl(self.retries.min(20).into()).unwrap_or(RTO_MAX_NS).min(RTO_MAX_NS)
    }

    /// Arms the timer for what is in flight, or disarms it.
    pub(super) fn arm_retransmission(&mut self, now_ns: u64) {
        let is_in_flight = self.una != self.sent_end;
        self.retransmit_ns = if is_in_flight { now_ns + self.timeout_ns() } else { NEVER };
    }
}
