//! The state of forwarded requests, and those of them that go on without a client. What is done
//! with it is in [`crate::http::forward`].

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_accept::upstream::{Asked, Departure, Reason, Ticket};
use weir_cache::{Flight, Reservation, Stored};
use weir_dispatch::readiness::Token;
use weir_http1::forward::Exchange;
use weir_http1::{Method, Request, Version};
use weir_sys::pipe::Pipe;

use super::log::LoggedRequest;
use super::read_rate::ReadRate;
use crate::sites::ruling::Ruling;
use crate::upstream::buffers::Lease;

/// Slot of the tokens of requests without a client: no connection has it.
const BACKGROUND_SLOT: u32 = u32::MAX;

/// Time after a request within which the end of its client's side belongs to it, nanoseconds. A
/// client that sends nothing more, and waits for the reply, ends its side with its request (RFC
/// 9112 section 9.6); one that leaves does so once it has waited. On the wire the two look alike.
pub(crate) const END_WITH_REQUEST_NS: u64 = 50_000_000;

/// A forwarded request.
#[derive(Debug)]
pub(crate) struct Forward {
    pub exchange: Exchange,
    pub upstream: usize,
    /// Number of the request among those of the loop.
    pub serial: u64,
    pub place: Place,
    /// Description of the request for the admission.
    pub asked: Asked,
    /// Memory of the content that has been taken from the client and not sent.
    pub content_lease: Lease,
    /// True if the client waits to be told by a 100 that its content is wanted.
    pub owes_continue: bool,
    /// The connection to the server; `None` while there is none.
    pub socket: Option<u32>,
    /// Pipe through which the content of the reply passes, once it is large.
    pub pipe: Option<Pipe>,
    /// Time at which that was last filled, nanoseconds.
    pub pipe_filled_ns: u64,
    /// Pipe through which the client's content passes, once it is large.
    pub content_pipe: Option<Pipe>,
    /// Number of connections tried.
    pub attempts: u8,
    /// Servers to which none could be made.
    pub tried: Vec<usize>,
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
    /// Time at which the client last sent anything, or its request began, nanoseconds; the largest
    /// number while it is not read, if it may have ended its side right behind that.
    pub received_ns: u64,
    /// True once it was read again after such a time, until it sends something: a later pause, such
    /// as while the reply is sent, puts off no end.
    pub is_read_again: bool,
    /// True once the client has ended its side, and waits for the reply.
    pub has_client_ended: bool,
    /// Maximum of `content_bytes`.
    pub content_bytes_max: u64,
    /// The rule for the request.
    pub ruling: Option<Ruling>,
    /// Rate at which the client sends its content or takes the reply, while it is waited for.
    pub client_rate: Option<ReadRate>,
    /// Wait for the client alone; `None` while there is none.
    pub client_wait: Option<ClientWait>,
    /// Time at which it asked for a place, nanoseconds.
    pub arrived_ns: u64,
    /// Time at which the place was given, nanoseconds.
    pub placed_ns: u64,
    /// True if it never had a client: the cache asks for itself.
    pub is_own: bool,
    /// Time for which it keeps its place without a client; `None` unless the server was at work for
    /// it without one.
    pub departure: Option<Departure>,
    /// The cache's part in it.
    pub cache: Option<Box<CachePart>>,
}

impl Forward {
    /// Returns the memory that it holds, except for its connection to the server, bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        let tried_bytes = self.tried.capacity() * size_of::<usize>();
        size_of::<Self>() + self.exchange.held_bytes() + tried_bytes
    }
}

/// A wait for the client of a forwarded request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientWait {
    /// Time since which the client has neither sent nor been sent anything, nanoseconds.
    pub since_ns: u64,
    /// Bytes that it had sent of the content, and been sent since the accept, by then.
    pub moved_bytes: u64,
}

/// Place of a request at its upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It has not asked for one, since its content is still to come.
    Unasked,
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
    /// True if the client's word on where the request comes from is passed on.
    pub is_trusted: bool,
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
    /// Deadlines, nanoseconds, each with the index of its entry.
    deadlines: BTreeSet<(u64, u32)>,
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
        Self::token(index)
    }

    fn token(index: usize) -> Token {
        Token { slot: BACKGROUND_SLOT, generation: index as u32 }
    }

    /// Takes out a request. [`Background::put`], or its end, must follow.
    pub(crate) fn take(&mut self, token: Token) -> Option<Box<Forward>> {
        let index = token.generation as usize;
        let (deadline_ns, forward) = self.entries.get_mut(index)?.take()?;
        self.deadlines.remove(&(deadline_ns, token.generation));
        self.vacant_from = self.vacant_from.min(index);
        Some(forward)
    }

    /// Takes out a request, if the token is still that of the one with this number.
    pub(crate) fn take_numbered(&mut self, token: Token, serial: u64) -> Option<Box<Forward>> {
        let (_, forward) = self.entries.get(token.generation as usize)?.as_ref()?;
        if forward.serial == serial { self.take(token) } else { None }
    }

    /// Takes out all requests.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Box<Forward>> + use<> {
        std::mem::take(self).entries.into_iter().flatten().map(|(_, forward)| forward)
    }

    /// Puts a request in, or back. `deadline_ns`: [`u64::MAX`] is never.
    pub(crate) fn put(&mut self, token: Token, forward: Box<Forward>, deadline_ns: u64) {
        if let Some(entry) = self.entries.get_mut(token.generation as usize) {
            *entry = Some((deadline_ns, forward));
            self.deadlines.insert((deadline_ns, token.generation));
        }
    }

    /// Returns the token of the request with this number.
    pub(crate) fn find(&self, serial: u64) -> Option<Token> {
        let is_it = |entry: &Option<(u64, Box<Forward>)>| {
            entry.as_ref().is_some_and(|(_, forward)| forward.serial == serial)
        };
        self.entries.iter().position(is_it).map(Self::token)
    }

    /// Returns when [`Background::take_due`] is due, nanoseconds.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let (deadline_ns, _) = self.deadlines.first()?;
        Some(*deadline_ns).filter(|&deadline_ns| deadline_ns < u64::MAX)
    }

    /// Removes and returns a request whose deadline has come, the earliest first, with its token,
    /// under which it may be put back.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<(Token, Box<Forward>)> {
        self.due_ns().filter(|&due_ns| due_ns <= now_ns)?;
        let (_, index) = self.deadlines.pop_first()?;
        let token = Self::token(index as usize);
        self.take(token).map(|forward| (token, forward))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_accept::upstream::Class;
    use weir_http1::forward::RequestFacts;
    use weir_http1::{HeadParser, Limits, Parse};

    fn forward(serial: u64) -> Box<Forward> {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let Parse::Complete(request) = HeadParser::default().parse(head, &Limits::default()) else {
            panic!("not a request")
        };
        let facts = RequestFacts {
            host: None,
            host_otherwise: b"a",
            client: None,
            is_trusted: false,
            began_unix_ms: 0,
            is_whole: false,
            fields: b"",
            request_id: None,
            proxy_protocol: None,
            endpoints: None,
            is_own: false,
            is_tls: false,
            takes_content_first: false,
            is_last: false,
        };
        Box::new(Forward {
            exchange: Exchange::new(&request, head, &facts),
            upstream: 0,
            serial,
            place: Place::Returned,
            asked: Asked { class: Class::Normal, user: 0 },
            content_lease: Lease::default(),
            owes_continue: false,
            socket: None,
            pipe: None,
            pipe_filled_ns: 0,
            content_pipe: None,
            attempts: 0,
            tried: Vec::new(),
            is_recorded: false,
            answered: Answered::of(&request),
            logged: None,
            is_end_sent: false,
            close: false,
            moved_ns: 0,
            content_bytes: 0,
            content_bytes_max: u64::MAX,
            ruling: None,
            received_ns: 0,
            is_read_again: false,
            has_client_ended: false,
            client_rate: None,
            client_wait: None,
            arrived_ns: 0,
            placed_ns: 0,
            is_own: false,
            departure: None,
            cache: None,
        })
    }

    /// Requests with these deadlines, numbered from 0, and their tokens.
    fn background<const N: usize>(deadlines_ns: [u64; N]) -> (Background, [Token; N]) {
        let mut background = Background::default();
        let mut serial = 0;
        let tokens = deadlines_ns.map(|deadline_ns| {
            let token = background.vacant();
            background.put(token, forward(serial), deadline_ns);
            serial += 1;
            token
        });
        (background, tokens)
    }

    fn due(background: &mut Background, now_ns: u64) -> Option<u64> {
        let due = background.take_due(now_ns);
        serial(due.map(|(_, forward)| forward))
    }

    fn serial(forward: Option<Box<Forward>>) -> Option<u64> {
        forward.map(|forward| forward.serial)
    }

    #[test]
    fn a_token_is_given_again_once_its_request_has_ended() {
        let (mut background, tokens) = background([10, 20, 30]);
        assert!(tokens.iter().all(|&token| Background::is_token(token)));
        assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2] && tokens[0] != tokens[2]);
        assert_eq!(serial(background.take(tokens[2])), Some(2));
        assert_eq!(serial(background.take(tokens[0])), Some(0));
        assert_eq!(serial(background.take(tokens[0])), None);
        for token in [tokens[0], tokens[2]] {
            assert_eq!(background.vacant(), token);
            background.put(token, forward(9), 40);
        }
        assert!(!tokens.contains(&background.vacant()));
    }

    #[test]
    fn a_request_is_found_by_its_number_and_not_taken_for_another() {
        let (mut background, tokens) = background([10, 20]);
        assert_eq!(background.find(1), Some(tokens[1]));
        assert_eq!(serial(background.take_numbered(tokens[1], 0)), None);
        assert_eq!(serial(background.take_numbered(tokens[1], 1)), Some(1));
        assert_eq!(serial(background.take_numbered(tokens[1], 1)), None);
        assert_eq!(background.find(1), None);
    }

    #[test]
    fn those_due_are_taken_by_their_deadlines() {
        let (mut background, tokens) = background([30, 10, u64::MAX, 20, 10]);
        assert_eq!((background.due_ns(), due(&mut background, 9)), (Some(10), None));
        let all: Vec<_> = std::iter::from_fn(|| due(&mut background, 20)).collect();
        assert_eq!((all, background.due_ns()), (vec![1, 4, 3], Some(30)));
        // Put back, it is due when it says then.
        let first = background.take(tokens[0]).unwrap();
        assert_eq!(background.due_ns(), None);
        background.put(tokens[0], first, 50);
        assert_eq!((due(&mut background, 49), background.due_ns()), (None, Some(50)));
        assert_eq!(due(&mut background, 50), Some(0));
        assert_eq!((due(&mut background, u64::MAX), background.due_ns()), (None, None));
    }

    #[test]
    fn none_is_left_once_all_are_taken() {
        let (mut background, tokens) = background([10, u64::MAX]);
        background.take(tokens[0]);
        assert_eq!(background.take_all().map(|forward| forward.serial).collect::<Vec<_>>(), [1]);
        assert_eq!((background.due_ns(), background.find(1)), (None, None));
        assert_eq!(background.vacant(), tokens[0]);
    }
}
