//! The server kernel's handling of packets, and its cost on the core that receives them. Changes
//! socket state; the only effect on the loop is to wake it.

use weir_accept::SynDecision;

use crate::clients::RTO_MIN_NS;
use crate::connections::{Conn, NEVER, SocketState, Token};
use crate::events::{Answer, Event, Packet};
use crate::kernel::{Reason, Syn};
use crate::server::Core;
use crate::simulation::Simulation;
use crate::time::SECOND_NS;

impl Simulation<'_> {
    pub(crate) fn server_receives(&mut self, token: Token, packet: Packet) {
        let Some(conn) = self.conns.get(token) else { return };
        let core = conn.socket.core;
        let admitted = self.cores[core as usize].softirq.admits(self.now_ns);
        let costs = &self.scenario.costs;
        match packet {
            Packet::Syn if admitted => self.syn(token, core),
            Packet::Ack if admitted => {
                self.charge(core, costs.ack);
                self.third_ack(token);
            }
            Packet::AckAndData if admitted => {
                self.charge(core, costs.ack);
                self.third_ack(token);
                self.data(token, core);
            }
            Packet::Data if admitted => self.data(token, core),
            // The core had no time for it: its own timer sends it again.
            Packet::Syn | Packet::Ack | Packet::AckAndData => {}
            Packet::Data => self.data_lost(token),
            Packet::Fin => {
                self.charge(core, costs.fin);
                self.fin(token);
            }
            Packet::Rst => {
                self.charge(core, costs.fin);
                self.reset(token);
            }
            Packet::LastAck => self.charge(core, costs.fin),
        }
    }

    fn charge(&mut self, core: u32, cost_ns: u64) {
        self.cores[core as usize].softirq.charge(self.now_ns, cost_ns);
    }

    fn syn(&mut self, token: Token, core: u32) {
        let Some(Conn { client, socket, .. }) = self.conns.get(token) else { return };
        let costs = &self.scenario.costs;
        match socket.state {
            SocketState::Unknown | SocketState::Cookie => {}
            // It is known already, so that the answer alone is sent again.
            _ => {
                self.charge(core, costs.syn);
                return self.answer(token, Answer::SynAck);
            }
        }
        let source = client.source;
        let Core { listener, filter, .. } = &mut self.cores[core as usize];
        let filtered = filter.drops(self.now_ns, source, &mut self.filter_rng);
        let became = listener.syn(&self.scenario.rules, filtered);
        self.judge_syn(core, token, became);
        let cost_ns = match became {
            Syn::Dropped(Reason::Filter) => costs.syn_filtered,
            Syn::Dropped(_) => costs.syn_dropped,
            Syn::Queued | Syn::Cookie => costs.syn,
        };
        self.charge(core, cost_ns);
        let Some(Conn { socket, .. }) = self.conns.get(token) else { return };
        match became {
            Syn::Dropped(_) => return,
            Syn::Cookie => socket.state = SocketState::Cookie,
            Syn::Queued => {
                socket.state = SocketState::SynQueue;
                socket.synack_ns = self.now_ns;
                self.events.push(self.now_ns + SECOND_NS, Event::SynAckTimer(token));
            }
        }
        self.answer(token, Answer::SynAck);
    }

    /// Records a drop on account of load: by a filter that does more than to keep the queue from
    /// overflowing, or by a queue that was shortened.
    fn judge_syn(&mut self, core: u32, token: Token, became: Syn) {
        let Core { listener, filter, .. } = &self.cores[core as usize];
        let backlog = self.scenario.policy.backlog;
        let guards = matches!(filter.decision(), SynDecision::Guard { window, .. }
            if window >= backlog);
        let is_short = listener.backlog < backlog;
        match became {
            Syn::Dropped(Reason::Filter) if !guards => self.record_drop(core, token),
            Syn::Dropped(Reason::AcceptQFull) if is_short => self.record_refusal(core, token),
            _ => {}
        }
    }

    /// Handles a segment with an ACK, which may end the handshake.
    fn third_ack(&mut self, token: Token) {
        let Some(Conn { client, socket, .. }) = self.conns.get(token) else { return };
        let listener = &mut self.cores[socket.core as usize].listener;
        match socket.state {
            SocketState::SynQueue | SocketState::Cookie => {
                if !listener.establish(token) {
                    if listener.backlog < self.scenario.policy.backlog {
                        let core = socket.core;
                        self.record_refusal(core, token);
                    }
                    return;
                }
                // The kernel counts from the first SYN-ACK, even if an ACK before this one found no
                // room; it takes the packet's timestamp where it does not know that time.
                let is_timed = socket.state == SocketState::SynQueue && socket.synacks == 0;
                let counted_ns = self.now_ns - socket.synack_ns;
                socket.rtt_ns = if is_timed { counted_ns } else { 2 * client.one_way_ns };
                if socket.state == SocketState::SynQueue {
                    listener.forget(socket.synacks == 0);
                }
                socket.state = SocketState::AcceptQueue;
                let core = socket.core;
                if self.cores[core as usize].watched {
                    self.wake_loop(core);
                }
            }
            SocketState::Unknown => self.answer(token, Answer::Rst),
            SocketState::AcceptQueue
            | SocketState::Deferred
            | SocketState::Open
            | SocketState::Closed => {}
        }
    }

    fn data(&mut self, token: Token, core: u32) {
        self.charge(core, self.scenario.costs.data);
        self.third_ack(token);
        let now_ns = self.now_ns;
        let Some(Conn { client, socket, .. }) = self.conns.get(token) else { return };
        match socket.state {
            SocketState::AcceptQueue | SocketState::Deferred | SocketState::Open => {
                socket.data_ns = now_ns;
                socket.has_fin |= socket.fin_behind;
                if client.kind.asks() {
                    socket.has_request = true;
                } else {
                    socket.has_bytes = true;
                }
                self.readable(token);
            }
            SocketState::Closed => self.answer(token, Answer::Rst),
            SocketState::Unknown | SocketState::Cookie | SocketState::SynQueue => {}
        }
    }

    /// Handles a FIN. It arrives behind data that may still be missing, and may end the handshake.
    fn fin(&mut self, token: Token) {
        self.third_ack(token);
        let Some(Conn { client, socket, .. }) = self.conns.get(token) else { return };
        if client.kind.asks() && socket.data_ns == NEVER {
            socket.fin_behind = true;
        } else {
            socket.has_fin = true;
            self.readable(token);
        }
    }

    /// Retransmits lost data that was acknowledged: the client's model no longer does.
    fn data_lost(&mut self, token: Token) {
        let Some(conn) = self.conns.get(token) else { return };
        if conn.socket.data_ns != NEVER {
            conn.packets += 1;
            let at_ns = self.now_ns + RTO_MIN_NS;
            self.events.push(at_ns, Event::ToServer(token, Packet::Data));
        }
    }

    fn reset(&mut self, token: Token) {
        let Some(Conn { socket, .. }) = self.conns.get(token) else { return };
        if socket.state == SocketState::SynQueue {
            let young = socket.synacks == 0;
            socket.state = SocketState::Unknown;
            self.cores[socket.core as usize].listener.forget(young);
        }
    }

    /// Handles the SYN-ACK timer of a request in the SYN queue.
    pub(crate) fn retransmit_synack(&mut self, token: Token) {
        let rules = &self.scenario.rules;
        let Some(Conn { socket, .. }) = self.conns.get(token) else { return };
        if socket.state != SocketState::SynQueue {
            return;
        }
        let listener = &mut self.cores[socket.core as usize].listener;
        if socket.synacks >= listener.synack_retries(rules) {
            listener.forget(socket.synacks == 0);
            socket.state = SocketState::Unknown;
            return self.conns.tidy(token);
        }
        if socket.synacks == 0 {
            listener.young -= 1;
        }
        socket.synacks += 1;
        let (core, gap_ns) = (socket.core, SECOND_NS << socket.synacks);
        self.charge(core, self.scenario.costs.syn);
        self.answer(token, Answer::SynAck);
        self.events.push(self.now_ns + gap_ns, Event::SynAckTimer(token));
    }

    /// Marks a connection as ready if it is a member of the interest set, and wakes the loop.
    fn readable(&mut self, token: Token) {
        let Some(Conn { socket, .. }) = self.conns.get(token) else { return };
        if socket.state == SocketState::Open
            && socket.registered
            && !socket.ready
            && !socket.replying
        {
            socket.ready = true;
            let core = socket.core;
            self.cores[core as usize].ready.push(token);
            self.wake_loop(core);
        }
    }
}
