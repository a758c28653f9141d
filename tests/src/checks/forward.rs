//! A forwarded request and its reply, under any bytes of either side in any order: the other server
//! reads exactly the requests that were made, the client one reply to each, or a reply cut short.
//! What comes out is read by [`canonical`], which shares no code with what wrote it.

use weir_http1::forward::{Exchange, ReplyFacts, ReplyPart, RequestFacts};
use weir_http1::{Body, HeadParser, Limits, Method, Parse, Request, Version};

use crate::canonical;

/// The line between the three parts of an input.
const RULE: &[u8] = b"\n=\n";

const FACTS: ReplyFacts<'static> = ReplyFacts {
    close: false,
    date: b"Date: now\r\n",
    fields: b"Server: weir\r\n",
    more_fields: b"",
    removed: &[],
    cache_control: b"",
};

/// Runs a script: what the client sends, what the other server sends, and the order of events, each
/// part ended by a line with `=`. An event is a byte: its lowest two bits say whose turn it is, the
/// others how many bytes move.
pub fn forward(data: &[u8]) {
    let (client, rest) = split(data);
    let (server, events) = split(rest);
    let mut play = Play { client, server, events, sent: Vec::new(), keeps: true };
    while play.keeps && play.request() {}
}

fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data.windows(RULE.len()).position(|window| window == RULE).unwrap_or(data.len());
    (&data[..at], data.get(at + RULE.len()..).unwrap_or_default())
}

/// What is left of the script, and one connection to the other server.
struct Play<'a> {
    client: &'a [u8],
    server: &'a [u8],
    events: &'a [u8],
    /// Bytes sent to the other server.
    sent: Vec<u8>,
    /// True while both connections may carry another request.
    keeps: bool,
}

impl<'a> Play<'a> {
    /// Forwards the client's next request. Returns false if there is none.
    fn request(&mut self) -> bool {
        let limits = Limits::default();
        let Parse::Complete(request) = HeadParser::default().parse(self.client, &limits) else {
            return false;
        };
        if matches!(request.method, Method::Connect | Method::Trace) {
            return false;
        }
        let (head, rest) = self.client.split_at(request.head_len);
        self.client = rest;
        let facts = RequestFacts {
            host: None,
            host_otherwise: b"origin",
            client: None,
            is_trusted: rest.len() % 2 == 0,
            began_unix_ms: 0,
            is_whole: false,
            fields: b"",
            request_id: None,
            proxy_protocol: None,
            endpoints: None,
            is_own: false,
            takes_content_first: false,
            is_last: false,
            is_tls: false,
        };
        let mut exchange = Exchange::new(&request, head, &facts);
        let start = self.sent.len();
        let mut out = Vec::new();
        let outcome = self.exchange(&mut exchange, &mut out);
        self.check_sent(&request, rest, &exchange, start);
        check_reply(&request, &exchange, outcome, &out);
        self.keeps = outcome == Outcome::Answered && exchange.keeps_upstream();
        true
    }

    /// Moves bytes as the script says, and then all that are left.
    fn exchange(&mut self, exchange: &mut Exchange, out: &mut Vec<u8>) -> Outcome {
        loop {
            let (event, is_last) = match self.events.split_first() {
                Some((&event, rest)) => {
                    self.events = rest;
                    (event, false)
                }
                None => (0xff, true),
            };
            let count = if is_last { usize::MAX } else { usize::from(event >> 2) };
            for turn in 0..3 {
                if !(is_last || event & 3 == turn) {
                    continue;
                }
                let moved = match turn {
                    0 => self.take(exchange, count),
                    1 => {
                        self.send(exchange, count);
                        true
                    }
                    _ => self.receive(exchange, count, out),
                };
                if !moved {
                    return Outcome::Failed;
                }
                if exchange.part() == ReplyPart::Done {
                    return Outcome::Answered;
                }
            }
            let has_more = exchange.wants_client() && !self.client.is_empty();
            if is_last && !has_more {
                self.send(exchange, usize::MAX);
                let ended = exchange.end(out).is_ok();
                return if ended { Outcome::Answered } else { Outcome::Failed };
            }
        }
    }

    fn take(&mut self, exchange: &mut Exchange, count: usize) -> bool {
        if !exchange.wants_client() {
            return true;
        }
        let input = &self.client[..count.min(self.client.len())];
        match exchange.take(input) {
            Ok(taken) => {
                self.client = &self.client[taken..];
                true
            }
            Err(error) => {
                assert!((400..500).contains(&error.status.code()));
                false
            }
        }
    }

    fn send(&mut self, exchange: &mut Exchange, count: usize) {
        let unsent = exchange.unsent();
        let count = count.min(unsent.len());
        self.sent.extend_from_slice(&unsent[..count]);
        exchange.note_sent(count);
    }

    fn receive(&mut self, exchange: &mut Exchange, count: usize, out: &mut Vec<u8>) -> bool {
        let (now, later) = self.server.split_at(count.min(self.server.len()));
        self.server = later;
        exchange.receive(now, out, &FACTS).is_ok()
    }

    /// Checks what the other server was sent: the request that was made, or a part of it, that
    /// looks whole only if it is.
    fn check_sent(&self, request: &Request<'_>, rest: &[u8], exchange: &Exchange, start: usize) {
        let mut sent = &self.sent[start..];
        let read = canonical::request(sent).unwrap_or_else(|why| panic!("{why}: {}", show(sent)));
        let content = content(request, rest);
        let Some((message, len)) = read else {
            assert!(!(exchange.request_taken() && exchange.unsent().is_empty()), "{}", show(sent));
            return;
        };
        let method = request.method.as_str();
        assert!(message.line.starts_with(&format!("{method} ")), "{message:?}");
        assert_eq!(Some(&message.body), content.as_ref(), "{}", show(sent));
        sent = &sent[len..];
        // Bytes of another protocol may follow a request that asked for one.
        let upgrades = message.values("upgrade").next().is_some();
        assert!(sent.is_empty() || upgrades && exchange.status() == 101, "{}", show(sent));
        let via = if request.version == Version::Http10 { "1.0 weir" } else { "1.1 weir" };
        assert!(message.values("via").any(|value| value == via));
        assert!(message.values("x-forwarded-for").count() == 1, "{message:?}");
    }
}

/// Result of a forwarded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Answered,
    Failed,
}

/// Returns the content of a request, without its framing; `None` if it is malformed or incomplete.
fn content(request: &Request<'_>, input: &[u8]) -> Option<Vec<u8>> {
    let mut body = Body::new(request.framing);
    let (mut content, mut rest) = (Vec::new(), input);
    loop {
        let piece = body.next_piece(rest, &mut Vec::new()).ok()?;
        content.extend_from_slice(&rest[piece.data]);
        rest = &rest[piece.consumed..];
        match (piece.done, piece.consumed) {
            (true, _) => return Some(content),
            (false, 0) => return None,
            (false, _) => {}
        }
    }
}

/// Checks what the client was sent: interim replies, and then one reply if it was answered, or what
/// cannot be taken for one.
fn check_reply(request: &Request<'_>, exchange: &Exchange, outcome: Outcome, out: &[u8]) {
    let to_head = request.method == Method::Head;
    let mut rest = out;
    loop {
        let has_ended = exchange.ends_by_close() && outcome == Outcome::Answered;
        let read = canonical::reply(rest, to_head, has_ended);
        let read = read.unwrap_or_else(|why| panic!("{why}: {}", show(out)));
        let Some((message, len)) = read else {
            assert_eq!(outcome, Outcome::Failed, "{}", show(out));
            return;
        };
        rest = &rest[len..];
        match message.status() {
            // Another protocol follows.
            101 => return assert_eq!(exchange.status(), 101),
            100..200 => {}
            status => {
                assert_eq!((status, outcome), (exchange.status(), Outcome::Answered));
                assert!(rest.is_empty(), "{}", show(rest));
                return;
            }
        }
    }
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
