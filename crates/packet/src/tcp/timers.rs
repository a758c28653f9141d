//! Timers: retransmission, probes of a closed window, delayed acknowledgements, FIN-WAIT-2.

use super::send::RTO_MAX_NS;
use super::{Changes, Connection, Context, Failure, INITIAL_RTO_NS, NEVER, State};
use crate::segment::Flags;
use crate::seq::Seq;

impl Connection {
    /// Returns the time of the next timer; `None` while nothing is to be done by itself.
    pub fn timer_ns(&self) -> Option<u64> {
        let next_ns = self.retransmit_ns.min(self.ack_ns);
        (self.state != State::Closed && next_ns != NEVER).then_some(next_ns)
    }

    /// Handles the timers that are due.
    pub fn expire(&mut self, context: &mut Context<'_>) -> Changes {
        if self.ack_ns <= context.now_ns {
            // Whoever answers so late is not in a dialogue (tcp_delack_timer_handler).
            self.is_pingpong = false;
            self.send_ack(context);
        }
        if self.retransmit_ns > context.now_ns {
            return Changes::default();
        }
        match self.state {
            State::SynSent => self.expire_syn(context),
            State::FinWait2 => {
                self.end();
                Changes::default()
            }
            State::Closed | State::TimeWait => Changes::default(),
            _ => self.expire_data(context),
        }
    }

    fn expire_syn(&mut self, context: &mut Context<'_>) -> Changes {
        let settings = context.settings;
        if self.retries >= settings.syn_retries {
            return self.fail(Failure::TimedOut);
        }
        self.retries += 1;
        let doublings = self.retries.saturating_sub(settings.linear_syns);
        let interval_ns = INITIAL_RTO_NS.checked_shl(doublings.into()).unwrap_or(RTO_MAX_NS);
        self.retransmit_ns = context.now_ns + interval_ns.min(RTO_MAX_NS);
        context.counts.retransmitted += 1;
        context.counts.timeouts += 1;
        self.send_syn(context);
        Changes::default()
    }

    fn expire_data(&mut self, context: &mut Context<'_>) -> Changes {
        if self.retries >= context.settings.retries {
            return self.fail(Failure::TimedOut);
        }
        if self.una == self.sent_end {
            self.probe(context);
        } else {
            (self.threshold, self.congestion_window) = (self.half_of_flight(), u32::from(self.mss));
            self.in_recovery = false;
            self.duplicate_acks = 0;
            context.counts.timeouts += 1;
            // Everything in flight counts as lost, and is sent again as acknowledgements come.
            self.nxt = self.una;
            self.send_oldest(context);
        }
        self.retries += 1;
        self.retransmit_ns = context.now_ns + self.timeout_ns();
        Changes::default()
    }

    /// Probes a closed window with a segment that must be answered (tcp_xmit_probe_skb).
    fn probe(&mut self, context: &mut Context<'_>) {
        let seq = Seq(self.una.0.wrapping_sub(1));
        let segment = self.segment(seq, b"", Flags::default(), context);
        context.output.send(&segment);
    }
}
