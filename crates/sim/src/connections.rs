//! Connections: the state of the client and of the server's kernel and loop, in one slot, which
//! lives as long as either side or a packet in flight needs it. Holds state only, and makes no
//! decisions.

use weir_accept::Source;

use crate::scenario::{ClientKind, Sessions};

/// The time of an event that never happens.
pub(crate) const NEVER: u64 = u64::MAX;

/// The id of a connection; a reused slot has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token {
    slot: u32,
    generation: u32,
}

impl Token {
    /// Returns the token of the first connection in a slot.
    #[cfg(test)]
    pub(crate) fn first(slot: u32) -> Self {
        Self { slot, generation: 0 }
    }
}

/// State of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientState {
    Connecting,
    Waiting,
    /// Thinking; the server may have closed the connection meanwhile.
    Thinking {
        closed: bool,
    },
    Gone,
}

/// Client side of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) kind: ClientKind,
    pub(crate) source: Source,
    pub(crate) sessions: Sessions,
    pub(crate) session: u64,
    pub(crate) class: u32,
    /// Number of requests in the session, and the index of the current one.
    pub(crate) requests: u32,
    pub(crate) request: u32,
    /// Replies received on this connection.
    pub(crate) replies: u32,
    pub(crate) state: ClientState,
    /// Half of the round trip time.
    pub(crate) one_way_ns: u64,
    /// Start of the current request.
    pub(crate) began_ns: u64,
    /// Time at which the client gives up.
    pub(crate) deadline_ns: u64,
    /// True while an event is scheduled to check the client's deadline.
    pub(crate) watched: bool,
    /// Connections opened for the session.
    pub(crate) connects: u32,
    pub(crate) syns: u8,
    pub(crate) sends: u8,
}

/// State of a connection at the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SocketState {
    /// Unknown to the kernel, or forgotten.
    #[default]
    Unknown,
    /// Answered with a SYN cookie.
    Cookie,
    SynQueue,
    AcceptQueue,
    /// Accepted, and not served yet.
    Deferred,
    Open,
    Closed,
}

/// Progress of a TLS handshake at the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TlsState {
    /// Over, or not spoken.
    #[default]
    Over,
    /// Not begun.
    Awaited,
    /// Answered by the server, after this work in nanoseconds.
    Answered(u64),
}

/// Server side of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Socket {
    pub(crate) core: u32,
    pub(crate) state: SocketState,
    pub(crate) tls: TlsState,
    /// SYN-ACKs retransmitted.
    pub(crate) synacks: u8,
    /// Time of the first SYN-ACK, and the round trip time measured at the end of the handshake.
    pub(crate) synack_ns: u64,
    pub(crate) rtt_ns: u64,
    /// True while a request is ready to be read, with the time of its arrival.
    pub(crate) has_request: bool,
    pub(crate) data_ns: u64,
    /// True while bytes of an incomplete request are ready to be read.
    pub(crate) has_bytes: bool,
    /// True once the client's FIN has arrived, in order or ahead of missing data.
    pub(crate) has_fin: bool,
    pub(crate) fin_behind: bool,
    /// Member of the interest set, and reported as ready by the next wait.
    pub(crate) registered: bool,
    pub(crate) ready: bool,
    /// True while the reply waits for a later work-phase.
    pub(crate) replying: bool,
    /// Requests answered.
    pub(crate) answered: u32,
    pub(crate) accepted_ns: u64,
    /// Time from which the connection has waited for its client.
    pub(crate) waits_ns: u64,
    pub(crate) deadline_ns: u64,
    /// True while an event is scheduled to check the deadline.
    pub(crate) timed: bool,
}

impl Socket {
    pub(crate) fn new(core: u32) -> Self {
        Self { core, data_ns: NEVER, waits_ns: NEVER, deadline_ns: NEVER, ..Self::default() }
    }

    /// Returns whether the client has begun a TLS handshake, and the server has not.
    pub(crate) fn awaits_handshake(&self) -> bool {
        self.tls == TlsState::Awaited && self.has_request
    }

    /// Returns whether a read would yield data or end of file.
    pub(crate) fn is_readable(&self) -> bool {
        self.has_request || self.has_bytes || self.has_fin
    }

    /// Returns whether the connection is open and waiting for its client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state == SocketState::Open && self.waits_ns != NEVER && !self.is_readable()
    }

    /// Returns whether the connection has waited for its client since `since_ns`; a `silent` one
    /// has not been answered before.
    pub(crate) fn has_waited_since(&self, since_ns: u64, silent: bool) -> bool {
        self.is_waiting() && self.waits_ns == since_ns && (self.answered == 0) == silent
    }
}

/// Both sides of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conn {
    pub(crate) client: Client,
    pub(crate) socket: Socket,
    /// Packets in flight.
    pub(crate) packets: u32,
}

impl Conn {
    fn is_over(&self) -> bool {
        let forgotten = matches!(
            self.socket.state,
            SocketState::Unknown | SocketState::Cookie | SocketState::Closed
        );
        self.packets == 0 && self.client.state == ClientState::Gone && forgotten
    }
}

/// Table of all connections.
#[derive(Debug, Default)]
pub(crate) struct Conns {
    slots: Vec<(u32, Option<Conn>)>,
    free: Vec<u32>,
}

impl Conns {
    pub(crate) fn insert(&mut self, conn: Conn) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, entry) = &mut self.slots[slot as usize];
        *entry = Some(conn);
        Token { slot, generation: *generation }
    }

    /// Returns a connection, unless it is over.
    pub(crate) fn get(&mut self, token: Token) -> Option<&mut Conn> {
        let (generation, conn) = self.slots.get_mut(token.slot as usize)?;
        if *generation == token.generation { conn.as_mut() } else { None }
    }

    /// Frees the slot of a connection that is over on both sides.
    pub(crate) fn tidy(&mut self, token: Token) {
        if self.get(token).is_some_and(|conn| conn.is_over()) {
            let entry = &mut self.slots[token.slot as usize];
            *entry = (entry.0.wrapping_add(1), None);
            self.free.push(token.slot);
        }
    }
}
