//! The state of forwarded requests, and those of them that go on without a client. What is done
//! with it is in [`crate::http::forward`].

use std::sync::Arc;

use weir_accept::upstream::{Reason, Ticket};
use weir_cache::{Flight, Reservation, Stored};
use weir_dispatch::readiness::Token;
use weir_http1::forward::Exchange;
use weir_http1::{Method, Request, Version};
use weir_sys::pipe::Pipe;

use super::log::LoggedRequest;
use super::read_rate::ReadRate;

/// Slot of the tokens of requests without a client: no connection has it.
const BACKGROUND_SLOT: u32 = u32::MAX;

/// A forwarded request.
#[derive(Debug)]
pub(crate) struct Forward {
    pub exchange: Exchange,
    pub upstream: usize,
    /// Number of the request among those of the loop.
    pub serial: u64,
    pub place: Place,
    /// The connection to the server; `None` while there is none.
    pub socket: Option<u32>,
    /// Pipe through which content passes, once it is large.
    pub pipe: Option<Pipe>,
    /// Number of connections tried.
    pub attempts: u8,
    /// True once the head of the reply has been recorded.
    pub is_recorded: bool,
    /// What an answer of our own needs to know of the request.
    pub answered: Answered,
    pub logged: Option<LoggedRequest>,
    /// True once the end of what the client sends has been passed on.
    pub is_end_sent: bool,
    /// True if the connection to the client closes after the reply, whatever the reply says.
    pub close: bool,
    /// Time at which either side last moved, nanoseconds.
    pub moved_ns: u64,
    /// Bytes of content taken from the client.
    pub content_bytes: u64,
    /// Rate at which the client sends its content or takes the reply, while it is waited for.
    pub client_rate: Option<ReadRate>,
    /// Time at which the place was given, nanoseconds.
    pub placed_ns: u64,
    /// Time until which it keeps its place though its client has gone, nanoseconds; `None` before.
    pub departed_until_ns: Option<u64>,
    /// The cache's part in it.
    pub cache: Option<Box<CachePart>>,
}

/// Place of a request at its upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It waits for one.
    Waits(Ticket),
    /// It has one.
    Has,
    /// It was refused one.
    Refused(Reason),
    /// It asked for none, since every server is down.
    Unavailable,
    /// It has given it back.
    Returned,
}

/// What a reply depends on of the request that it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// Version of the request.
    pub version: Version,
    /// True if only the head of the reply is asked for.
    pub head_only: bool,
}

impl Answered {
    /// Returns those of input that could not be parsed as a request.
    pub(crate) fn unread() -> Self {
        Self { version: Version::Http11, head_only: false }
    }

    pub(crate) fn of(request: &Request<'_>) -> Self {
        Self { version: request.version, head_only: request.method == Method::Head }
    }
}

/// Reason for which a request goes to the origin (RFC 9211 section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The cache has no part in it.
    Bypass,
    /// Its method.
    Method,
    /// Nothing is stored.
    UriMiss,
    /// Only replies that were selected otherwise are stored.
    VaryMiss,
    /// What is stored is stale.
    Stale,
    /// The client asks for it.
    Request,
}

impl Why {
    /// Returns the value of `fwd`.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Stale => "stale",
            Self::Request => "request",
        }
    }
}

/// The part of the cache in a forwarded request.
#[derive(Debug)]
pub(crate) struct CachePart {
    pub why: Why,
    /// Key of what is asked for; empty if the cache only passes the reply on.
    pub key: Box<[u8]>,
    /// Head of the client's request, to answer it from the cache.
    pub head: Box<[u8]>,
    /// The flight that it leads.
    pub flight: Option<Flight>,
    /// True if the whole is asked for, so that the reply may be stored.
    pub stores: bool,
    /// True if a reply that may not be stored says that the next will be like it.
    pub is_typical: bool,
    /// A stored reply: to be validated, or to be sent if there is no other.
    pub stale: Option<Arc<Stored>>,
    /// Time at which the request was sent, nanoseconds since 1970.
    pub sent_ns: u64,
    /// The head of the reply that is being copied, and the room taken for the copy.
    pub copying: Option<Copying>,
    /// The stored reply to be sent instead of the one that has arrived, and what Cache-Status says.
    pub answer: Option<(Arc<Stored>, &'static str)>,
}

impl CachePart {
    /// Returns the field lines that ask whether a stored reply is still valid.
    pub(crate) fn conditions(&self) -> &[u8] {
        self.stale.as_ref().filter(|_| self.stores).map_or(b"", |stale| &stale.conditions)
    }
}

/// A reply that is being copied.
#[derive(Debug)]
pub(crate) struct Copying {
    pub head: Box<[u8]>,
    pub received_ns: u64,
    pub _room: Reservation,
}

/// Requests that go on without a client: a reply that others wait for, or that is worth storing,
/// and a place that is kept while the server is at work.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// Each with its deadline, nanoseconds.
    entries: Vec<Option<(u64, Box<Forward>)>>,
    /// Entries before this one are taken.
    vacant_from: usize,
    /// No deadline is earlier, nanoseconds; `None` if there is no entry.
    due_ns: Option<u64>,
}

impl Background {
    /// Returns whether a token is one of a request without a client.
    pub(crate) fn is_token(token: Token) -> bool {
        token.slot == BACKGROUND_SLOT
    }

    /// Returns a token that no request has. [`Background::put`] must follow before the next.
    pub(crate) fn vacant(&mut self) -> Token {
        let later = self.entries.iter().skip(self.vacant_from);
        let index = self.vacant_from + later.take_while(|entry| entry.is_some()).count();
        if index == self.entries.len() {
            self.entries.push(None);
        }
        self.vacant_from = index;
        Token { slot: BACKGROUND_SLOT, generation: index as u32 }
    }

    /// Takes out a request. [`Background::put`], or its end, must follow.
    pub(crate) fn take(&mut self, token: Token) -> Option<Box<Forward>> {
        let index = token.generation as usize;
        let (_, forward) = self.entries.get_mut(index)?.take()?;
        self.vacant_from = self.vacant_from.min(index);
        Some(forward)
    }

    /// Puts a request in, or back.
    pub(crate) fn put(&mut self, token: Token, forward: Box<Forward>, deadline_ns: u64) {
        if let Some(entry) = self.entries.get_mut(token.generation as usize) {
            *entry = Some((deadline_ns, forward));
            self.due_ns = Some(self.due_ns.map_or(deadline_ns, |due_ns| due_ns.min(deadline_ns)));
        }
    }

    /// Returns the token of the request with this number.
    pub(crate) fn find(&self, serial: u64) -> Option<Token> {
        let is_it = |entry: &Option<(u64, Box<Forward>)>| {
            entry.as_ref().is_some_and(|(_, forward)| forward.serial == serial)
        };
        let index = self.entries.iter().position(is_it)?;
        Some(Token { slot: BACKGROUND_SLOT, generation: index as u32 })
    }

    /// Returns when [`Background::take_due`] is due, nanoseconds: no later than the earliest
    /// deadline.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Removes and returns a request whose deadline has come.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Box<Forward>> {
        self.due_ns.filter(|due_ns| *due_ns <= now_ns)?;
        let is_due = |entry: &Option<(u64, Box<Forward>)>| {
            entry.as_ref().is_some_and(|(deadline_ns, _)| *deadline_ns <= now_ns)
        };
        let Some(index) = self.entries.iter().position(is_due) else {
            self.due_ns = self.entries.iter().flatten().map(|(deadline_ns, _)| *deadline_ns).min();
            return None;
        };
        self.take(Token { slot: BACKGROUND_SLOT, generation: index as u32 })
    }
}
