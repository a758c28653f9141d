//! Connections: what the client knows of one and what the server's kernel and loop know, in one
//! slot, which lives as long as either or a packet between them. Decides nothing.

use weir_accept::Source;

use crate::scenario::{Kind, Sessions};

/// No time.
pub(crate) const NEVER: u64 = u64::MAX;

/// Names a connection; a slot that is used again has another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Token {
    slot: u32,
    generation: u32,
}

impl Token {
    /// The first connection of a slot.
    #[cfg(test)]
    pub(crate) fn first(slot: u32) -> Self {
        Self { slot, generation: 0 }
    }
}

/// What a client is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Connecting,
    Waiting,
    /// Thinking; the connection may have been closed meanwhile.
    Thinking {
        closed: bool,
    },
    Gone,
}

/// The client's side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) kind: Kind,
    pub(crate) source: Source,
    pub(crate) sessions: Sessions,
    pub(crate) session: u64,
    pub(crate) class: u32,
    /// Requests of the session, and the number of the present one.
    pub(crate) requests: u32,
    pub(crate) request: u32,
    /// Replies had on this connection.
    pub(crate) replies: u32,
    pub(crate) doing: Doing,
    /// Half of the round trip time.
    pub(crate) way_ns: u64,
    /// When the present request was begun.
    pub(crate) began_ns: u64,
    /// When the client gives up.
    pub(crate) deadline_ns: u64,
    /// An event will ask it whether it gives up.
    pub(crate) watched: bool,
    /// Connections opened for the session.
    pub(crate) dials: u32,
    pub(crate) syns: u8,
    pub(crate) sends: u8,
}

/// Where the server has a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// The kernel has heard nothing, or forgotten it.
    Unknown,
    /// The kernel has sent a cookie.
    Cookie,
    SynQueue,
    AcceptQueue,
    /// Accepted, and not yet served.
    Deferred,
    Open,
    Closed,
}

/// The server's side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Socket {
    pub(crate) core: u32,
    pub(crate) seat: Seat,
    /// SYN-ACKs sent again.
    pub(crate) synacks: u8,
    /// When the first was sent, and the round trip that the end of the handshake told.
    pub(crate) synack_ns: u64,
    pub(crate) rtt_ns: u64,
    /// A request can be read; it came at this time.
    pub(crate) has_request: bool,
    pub(crate) data_ns: u64,
    /// Bytes that are no whole request can be read.
    pub(crate) has_bytes: bool,
    /// The client's FIN has come, or has come before data that is missing.
    pub(crate) has_fin: bool,
    pub(crate) fin_behind: bool,
    /// It is a member of the interest set, and reported as ready at the next wait.
    pub(crate) registered: bool,
    pub(crate) ready: bool,
    /// Its reply waits for a later work-phase.
    pub(crate) replying: bool,
    /// Requests answered.
    pub(crate) answered: u32,
    pub(crate) accepted_ns: u64,
    /// When it began to wait for its client.
    pub(crate) waits_ns: u64,
    pub(crate) deadline_ns: u64,
    /// An event will ask whether the deadline has come.
    pub(crate) timed: bool,
}

impl Socket {
    pub(crate) fn new(core: u32) -> Self {
        Self {
            core,
            seat: Seat::Unknown,
            synacks: 0,
            synack_ns: 0,
            rtt_ns: 0,
            has_request: false,
            data_ns: NEVER,
            has_bytes: false,
            has_fin: false,
            fin_behind: false,
            registered: false,
            ready: false,
            replying: false,
            answered: 0,
            accepted_ns: 0,
            waits_ns: NEVER,
            deadline_ns: NEVER,
            timed: false,
        }
    }

    /// Whether a read would give something, if only the end.
    pub(crate) fn is_readable(&self) -> bool {
        self.has_request || self.has_bytes || self.has_fin
    }

    /// Whether the loop has it and waits for its client.
    pub(crate) fn is_waiting(&self) -> bool {
        self.seat == Seat::Open && self.waits_ns != NEVER && !self.is_readable()
    }
}

/// Both sides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conn {
    pub(crate) client: Client,
    pub(crate) socket: Socket,
    /// Packets on their way.
    pub(crate) packets: u32,
}

impl Conn {
    fn is_over(&self) -> bool {
        let forgotten = matches!(self.socket.seat, Seat::Unknown | Seat::Cookie | Seat::Closed);
        self.packets == 0 && self.client.doing == Doing::Gone && forgotten
    }
}

/// Every connection there is.
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

    /// A connection, unless it is over.
    pub(crate) fn get(&mut self, token: Token) -> Option<&mut Conn> {
        let (generation, conn) = self.slots.get_mut(token.slot as usize)?;
        if *generation == token.generation { conn.as_mut() } else { None }
    }

    /// Frees the slot of a connection that nobody knows any more.
    pub(crate) fn tidy(&mut self, token: Token) {
        if self.get(token).is_some_and(|conn| conn.is_over()) {
            let entry = &mut self.slots[token.slot as usize];
            *entry = (entry.0.wrapping_add(1), None);
            self.free.push(token.slot);
        }
    }
}
