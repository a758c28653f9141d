//! Table of behaviours: each is a good server with a few settings changed. Also builds the bytes of
//! replies. Does no I/O.

use std::time::{Duration, Instant};

use super::behaviour::Behaviour;

/// Treatment of each connection by a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    /// Immediate end of the connection, if any.
    pub at_accept: Option<End>,
    /// True if it reads at all.
    pub reads: bool,
    /// Time of the answer.
    pub wait: Wait,
    /// Form of the answer.
    pub form: Form,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// Part of the answer that is sent.
    pub share: Share,
    /// Sending rate, bytes per second.
    pub bytes_per_s: Option<u64>,
    /// End of the connection after the first answer; `None` keeps it open as long as the client
    /// likes.
    pub after: Option<End>,
}

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Close,
    Reset,
}

/// Time at which a request is answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    No,
    Forever,
    For(Duration),
    /// During the last `length` of each period, until its end.
    Stall {
        every: Duration,
        length: Duration,
    },
}

/// Form of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Length,
    Http10,
    Chunked,
    UntilClose,
    Interim,
    TwoLengths,
    Garbage,
}

/// Part of a reply that is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Share {
    Nothing,
    HalfHead,
    HalfBody,
    All,
}

const GOOD: Script = Script {
    at_accept: None,
    reads: true,
    wait: Wait::No,
    form: Form::Length,
    body_bytes: Behaviour::BODY_BYTES,
    share: Share::All,
    bytes_per_s: None,
    after: None,
};

const CLOSES: Script = Script { after: Some(End::Close), ..GOOD };
const RESETS: Script = Script { after: Some(End::Reset), ..GOOD };

impl Script {
    /// Returns the script of a behaviour.
    ///
    /// # Panics
    /// For what a connection cannot do: not be accepted, or be mixed in itself.
    pub(super) fn of(behaviour: &Behaviour) -> Script {
        let ms = Duration::from_millis;
        match *behaviour {
            Behaviour::Good { body_bytes } => Script { body_bytes, ..GOOD },
            Behaviour::GoodOneRequest => CLOSES,
            Behaviour::Http10 => Script { form: Form::Http10, ..CLOSES },
            Behaviour::Chunked => Script { form: Form::Chunked, ..GOOD },
            Behaviour::CloseFramed => Script { form: Form::UntilClose, ..CLOSES },
            Behaviour::Interim100 => Script { form: Form::Interim, ..GOOD },
            Behaviour::ResetOnAccept => Script { at_accept: Some(End::Reset), ..GOOD },
            Behaviour::ResetAfterRequest => Script { share: Share::Nothing, ..RESETS },
            Behaviour::ResetMidReply => Script { share: Share::HalfBody, ..RESETS },
            Behaviour::CloseOnAccept => Script { at_accept: Some(End::Close), ..GOOD },
            Behaviour::CloseAfterRequest => Script { share: Share::Nothing, ..CLOSES },
            Behaviour::CloseMidHead => Script { share: Share::HalfHead, ..CLOSES },
            Behaviour::CloseMidBody => Script { share: Share::HalfBody, ..CLOSES },
            Behaviour::Garbage => Script { form: Form::Garbage, ..GOOD },
            Behaviour::WrongLength => Script { form: Form::TwoLengths, ..GOOD },
            Behaviour::Silent => Script { wait: Wait::Forever, ..GOOD },
            Behaviour::NeverReads => Script { reads: false, ..GOOD },
            Behaviour::Trickle { bytes_per_s } => {
                Script { bytes_per_s: Some(bytes_per_s.max(1)), ..GOOD }
            }
            Behaviour::Sleep { ms: time } => Script { wait: Wait::For(ms(time)), ..GOOD },
            Behaviour::Stall { every_ms, length_ms } => {
                Script { wait: Wait::Stall { every: ms(every_ms), length: ms(length_ms) }, ..GOOD }
            }
            Behaviour::Refuse | Behaviour::NeverAccepts | Behaviour::Mixed(_) => {
                panic!("{behaviour:?} is not what one connection of many can meet")
            }
        }
    }

    /// Returns when to answer a request that arrived at `now`, on a server running since `start`.
    pub(super) fn answer_at(&self, start: Instant, now: Instant) -> Option<Instant> {
        match self.wait {
            Wait::No => Some(now),
            Wait::Forever => None,
            Wait::For(time) => Some(now + time),
            Wait::Stall { every, length } => {
                let into_ns = (now - start).as_nanos() % every.as_nanos().max(1);
                let left = every - Duration::from_nanos(into_ns as u64);
                Some(if left <= length { now + left } else { now })
            }
        }
    }

    /// Returns how the connection ends after an answer to a client that wants to `keep` it.
    pub(super) fn end(&self, keep: bool) -> Option<End> {
        self.after.or((!keep).then_some(End::Close))
    }

    /// Returns the answer, as far as it is sent.
    pub(super) fn answer(&self, head_only: bool, keep: bool) -> Vec<u8> {
        let (head, mut body) = self.reply(self.end(keep).is_some());
        if head_only {
            body.clear();
        }
        let (head, body) = match self.share {
            Share::Nothing => ("", ""),
            Share::HalfHead => (&head[..head.len() / 2], ""),
            Share::HalfBody => (&*head, &body[..body.len() / 2]),
            Share::All => (&*head, &*body),
        };
        [head.as_bytes(), body.as_bytes()].concat()
    }

    /// Returns the head and the body.
    fn reply(&self, closes: bool) -> (String, String) {
        let len = self.body_bytes;
        let body = "x".repeat(len);
        let close = if closes { "Connection: close\r\n" } else { "" };
        let ok = format!("HTTP/1.1 200 OK\r\n{close}");
        match self.form {
            Form::Length => (format!("{ok}Content-Length: {len}\r\n\r\n"), body),
            Form::Http10 => (format!("HTTP/1.0 200 OK\r\nContent-Length: {len}\r\n\r\n"), body),
            Form::Chunked => (format!("{ok}Transfer-Encoding: chunked\r\n\r\n"), chunked(&body)),
            Form::UntilClose => (format!("{ok}\r\n"), body),
            Form::Interim => {
                let interim = "HTTP/1.1 100 Continue\r\n\r\n";
                (format!("{interim}{ok}Content-Length: {len}\r\n\r\n"), body)
            }
            Form::TwoLengths => {
                let longer = len + 1;
                let lengths = format!("Content-Length: {len}\r\nContent-Length: {longer}\r\n");
                (format!("{ok}{lengths}\r\n"), body)
            }
            Form::Garbage => ("\x16\x03\x01 this is no HTTP\r\n\r\n".to_owned(), String::new()),
        }
    }
}

/// Encodes the body in chunks of 400 bytes (RFC 9112 section 7.1).
fn chunked(body: &str) -> String {
    let chunks = body.as_bytes().chunks(400).map(<[u8]>::len);
    let chunks: String = chunks.map(|len| format!("{len:x}\r\n{}\r\n", "x".repeat(len))).collect();
    chunks + "0\r\n\r\n"
}
