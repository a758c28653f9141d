//! Clients: connecting, sending requests, waiting, thinking, giving up and retrying, and their
//! kernel's retransmissions. They see packets only, and nothing of the server.

use crate::connections::{Client, ClientState, Conn, NEVER, Socket, SocketState, TlsState, Token};
use crate::events::{Answer, Event, Packet};
use crate::rng::Draw;
use crate::scenario::{Class, ClientKind};
use crate::simulation::Simulation;
use crate::statistics::RequestOutcome;
use crate::time::{MILLI_NS, SECOND_NS};

/// The shortest retransmission timeout of data: TCP_RTO_MIN.
pub(crate) const RTO_MIN_NS: u64 = 200 * MILLI_NS;

/// Maximum number of times data is sent by the kernel of a client that has gone
/// (`tcp_orphan_retries`).
const SENDS_MAX: u8 = 8;

impl Simulation<'_> {
    pub(crate) fn begin_session(&mut self, group: u32) {
        self.sessions += 1;
        let session = self.sessions;
        let group = &self.scenario.groups[group as usize];
        let kind = group.kind;
        let sessions = group.sessions.unwrap_or(self.scenario.sessions);
        let draw = |draw| self.request_rng.draw(draw, session, 0);
        let (fewest, most) = sessions.requests;
        let span = f64::from(most.saturating_sub(fewest) + 1);
        let class = class_of(&self.scenario.classes, draw(Draw::Class));
        self.connect(Client {
            kind,
            source: group.source(draw(Draw::Source)),
            sessions,
            session,
            class,
            requests: fewest + (draw(Draw::Requests) * span) as u32,
            request: 0,
            replies: 0,
            state: ClientState::Connecting,
            one_way_ns: self.scenario.rtt.at(draw(Draw::Rtt)) / 2,
            began_ns: self.now_ns,
            deadline_ns: 0,
            watched: false,
            connects: 0,
            syns: 0,
            sends: 0,
        });
    }

    /// Begins a request on a connection of its own.
    fn connect(&mut self, client: Client) {
        let token = self.open_connection(Client { began_ns: self.now_ns, ..client });
        self.record(token, RequestOutcome::Offered);
    }

    /// Opens a connection, to a core chosen at random as by a hash of its port.
    fn open_connection(&mut self, client: Client) -> Token {
        let uniform = self.request_rng.draw(Draw::Core, client.session, client.connects);
        let core = (uniform * f64::from(self.scenario.cores)) as u32;
        let client = Client {
            replies: 0,
            state: ClientState::Connecting,
            watched: false,
            connects: client.connects + 1,
            syns: 0,
            sends: 0,
            ..client
        };
        let tls = self.scenario.tls.map_or(TlsState::Over, |_| TlsState::Awaited);
        let socket = Socket { tls, ..Socket::new(core) };
        let token = self.conns.insert(Conn { client, socket, packets: 0 });
        if client.kind == ClientKind::Spoofed {
            self.send(token, Packet::Syn);
            return token;
        }
        self.arm_deadline(token);
        self.send_syn(token);
        token
    }

    /// Sets the client's deadline for what it waits for next.
    fn arm_deadline(&mut self, token: Token) {
        let (now_ns, scenario) = (self.now_ns, self.scenario);
        let Some(Conn { client, .. }) = self.conns.get(token) else { return };
        client.deadline_ns = match client.kind {
            ClientKind::Honest => now_ns + scenario.timeout_ns,
            ClientKind::Reconnecting => client.began_ns + scenario.timeout_ns,
            ClientKind::Mute | ClientKind::Slow => client.began_ns + scenario.stay_ns,
            ClientKind::Spoofed => NEVER,
        };
        if !std::mem::replace(&mut client.watched, true) {
            self.events.push(client.deadline_ns, Event::ClientDeadline(token));
        }
    }

    fn send_syn(&mut self, token: Token) {
        let Some(conn) = self.conns.get(token) else { return };
        conn.client.syns += 1;
        let gap_ns = self.scenario.rules.syn_gap_ns(conn.client.syns);
        // The timer of the last one ends the attempt; no client waits that long.
        if conn.client.syns <= self.scenario.rules.syn_retries {
            self.events.push(self.now_ns + gap_ns, Event::SynTimer(token));
        }
        self.send(token, Packet::Syn);
    }

    pub(crate) fn retransmit_syn(&mut self, token: Token) {
        let connecting = |conn: &mut Conn| conn.client.state == ClientState::Connecting;
        if self.conns.get(token).is_some_and(connecting) {
            self.send_syn(token);
        }
    }

    pub(crate) fn client_receives(&mut self, token: Token, answer: Answer) {
        match answer {
            Answer::SynAck => self.connected(token),
            Answer::Handshake => self.secured(token),
            Answer::Reply { closes } => self.replied(token, closes),
            Answer::Unavailable => self.refused(token, true),
            Answer::Fin => self.refused(token, true),
            Answer::Rst => self.refused(token, false),
        }
    }

    fn connected(&mut self, token: Token) {
        let Some(Conn { client, .. }) = self.conns.get(token) else { return };
        match client.state {
            _ if client.kind == ClientKind::Spoofed => client.state = ClientState::Gone,
            ClientState::Connecting if client.kind == ClientKind::Mute => {
                client.state = ClientState::Waiting;
                self.send(token, Packet::Ack);
            }
            ClientState::Connecting => {
                client.state = ClientState::Waiting;
                if client.kind == ClientKind::Slow {
                    self.events.push(self.now_ns + SECOND_NS, Event::Think(token));
                }
                self.arm_deadline(token);
                self.send(token, Packet::AckAndData);
                self.arm_data_timer(token);
            }
            // Nothing of the connection is left but this answer to it.
            ClientState::Gone if client.sends == 0 => self.send(token, Packet::Rst),
            _ => self.send(token, Packet::Ack),
        }
    }

    /// Ends a TLS handshake, and sends the first request with that.
    fn secured(&mut self, token: Token) {
        let waits = |conn: &mut Conn| conn.client.state == ClientState::Waiting;
        if self.conns.get(token).is_some_and(waits) {
            self.send(token, Packet::Data);
        }
    }

    /// Sets the retransmission timer of data just sent.
    fn arm_data_timer(&mut self, token: Token) {
        let Some(Conn { client, .. }) = self.conns.get(token) else { return };
        let rtt_ns = 2 * client.one_way_ns;
        let rto_ns = (rtt_ns + RTO_MIN_NS.max(2 * rtt_ns)) << client.sends;
        client.sends += 1;
        if client.sends <= SENDS_MAX {
            self.events.push(self.now_ns + rto_ns, Event::DataTimer(token));
        }
    }

    /// Retransmits data that has not arrived. Acknowledgements are never lost, so the client need
    /// not see them.
    pub(crate) fn retransmit_data(&mut self, token: Token) {
        let Some(Conn { socket, .. }) = self.conns.get(token) else { return };
        if socket.data_ns == NEVER && socket.state != SocketState::Closed {
            self.send(token, Packet::Data);
            self.arm_data_timer(token);
        }
    }

    fn replied(&mut self, token: Token, closes: bool) {
        let now_ns = self.now_ns;
        let Some(Conn { client, .. }) = self.conns.get(token) else { return };
        let was_waiting = client.state == ClientState::Waiting;
        if was_waiting {
            let response_ns = now_ns - client.began_ns;
            client.replies += 1;
            client.request += 1;
            let more = client.request < client.requests;
            client.state =
                if more { ClientState::Thinking { closed: closes } } else { ClientState::Gone };
            let (session, request) = (client.session, client.request);
            let one_in = u64::from(client.sessions.closes_one_in);
            let ends = one_in > 0 && session.is_multiple_of(one_in);
            let client = *client;
            if more {
                let uniform = self.request_rng.draw(Draw::Think, session, request);
                let at_ns = now_ns + client.sessions.think.at(uniform);
                self.events.push(at_ns, Event::Think(token));
            }
            self.record_good(token, response_ns);
            if !more && !closes && ends {
                self.send(token, Packet::Fin);
            }
        }
        if closes {
            self.send(token, Packet::LastAck);
        }
    }

    fn record_good(&mut self, token: Token, response_ns: u64) {
        self.record(token, RequestOutcome::Good { response_ns });
    }

    /// Handles a connection that the server ends without a useful reply.
    fn refused(&mut self, token: Token, acknowledged: bool) {
        let Some(Conn { client, .. }) = self.conns.get(token) else { return };
        let was = client.state;
        match &mut client.state {
            ClientState::Thinking { closed } => *closed = true,
            ClientState::Gone => {}
            doing => *doing = ClientState::Gone,
        }
        let client = *client;
        if acknowledged {
            self.send(token, Packet::LastAck);
        }
        if matches!(was, ClientState::Waiting | ClientState::Connecting) {
            self.retry_or_give_up(token, client);
        }
    }

    /// Retries at once if the connection had served a reply before, as browsers do; otherwise only
    /// a reconnecting client that has not timed out retries.
    fn retry_or_give_up(&mut self, token: Token, client: Client) {
        if client.kind.asks() && client.replies > 0 {
            self.open_connection(client);
            return;
        }
        let patient = client.began_ns + self.scenario.timeout_ns > self.now_ns;
        if client.kind == ClientKind::Reconnecting && patient {
            self.open_connection(client);
        } else {
            self.record(token, RequestOutcome::Refused);
        }
    }

    /// Sends the next request, or a slow client's next byte.
    pub(crate) fn send_next(&mut self, token: Token) {
        let Some(Conn { client, .. }) = self.conns.get(token) else { return };
        match client.state {
            ClientState::Thinking { closed: true } => {
                client.state = ClientState::Gone;
                let client = *client;
                self.connect(client);
                self.conns.tidy(token);
            }
            ClientState::Thinking { closed: false } => {
                client.state = ClientState::Waiting;
                client.began_ns = self.now_ns;
                self.arm_deadline(token);
                self.record(token, RequestOutcome::Offered);
                self.send(token, Packet::Data);
            }
            ClientState::Waiting => {
                self.events.push(self.now_ns + SECOND_NS, Event::Think(token));
                self.send(token, Packet::Data);
            }
            ClientState::Connecting | ClientState::Gone => {}
        }
    }

    pub(crate) fn time_out(&mut self, token: Token) {
        let Some(Conn { client, .. }) = self.conns.get(token) else { return };
        let was = client.state;
        client.watched = false;
        if !matches!(was, ClientState::Waiting | ClientState::Connecting) {
            return;
        }
        if client.deadline_ns > self.now_ns {
            client.watched = true;
            self.events.push(client.deadline_ns, Event::ClientDeadline(token));
            return;
        }
        client.state = ClientState::Gone;
        self.record(token, RequestOutcome::TimedOut);
        if was == ClientState::Waiting {
            self.send(token, Packet::Fin);
        }
        self.conns.tidy(token);
    }
}

/// Returns the class that a uniform number in [0, 1) selects.
fn class_of(classes: &[Class], uniform: f64) -> u32 {
    let mut left = uniform * classes.iter().map(|class| class.weight).sum::<f64>();
    let fits = |class: &Class| {
        left -= class.weight;
        left < 0.0
    };
    classes.iter().position(fits).unwrap_or(classes.len() - 1) as u32
}
