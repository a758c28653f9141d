//! Replies on the client's side: bytes in, status and sizes out. The bytes of a body are counted
//! and never kept.
//!
//! The source is RFC 9112: sections 4 (status line), 6.3 (end of the body), 9.3 (persistence).

mod error;
mod head;

pub use error::{PrematureEnd, ReplyError};

pub(crate) use self::head::{BodyEnd, Head};
use crate::body::Body;
use crate::request::Framing;

/// Maximum length of a reply's head, including the interim replies before it, bytes.
pub const HEAD_BYTES_MAX: u32 = 64 << 10;

/// Parser for one reply, independent of how the input is split.
///
/// A buffer serves any number of parsers: bytes that a parser has consumed are not needed again.
/// Memory is allocated only while a head is incomplete. Each reply takes a new parser.
#[derive(Debug)]
pub struct ReplyParser {
    body: Body,
    body_bytes: u64,
    /// An incomplete head. A head that arrives whole is never stored here.
    cut: Option<Box<Head>>,
    head_bytes: u32,
    status: u16,
    part: Part,
    head_only: bool,
    keeps_open: bool,
}

/// Part of the reply that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    /// A body whose head gives its end.
    Body,
    /// A body that ends with the connection.
    UntilClose,
    /// The reply is complete.
    Done,
}

/// Result of [`ReplyParser::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that belong to this reply: all of the input, unless the reply is complete.
    pub taken: usize,
    /// Completeness of the reply.
    pub state: State,
}

/// Completeness of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// More is to come, if only the end of the connection.
    NeedMore,
    /// The reply is complete. The next one starts after the bytes taken.
    Done,
}

impl Default for ReplyParser {
    /// Creates a parser for the reply to any request but HEAD.
    fn default() -> Self {
        Self::new(false)
    }
}

impl ReplyParser {
    /// Creates a parser for the reply to the next request; `head_only` if that is HEAD.
    #[must_use]
    pub const fn new(head_only: bool) -> Self {
        Self {
            body: Body::new(Framing::None),
            body_bytes: 0,
            cut: None,
            head_bytes: 0,
            status: 0,
            part: Part::Head,
            head_only,
            keeps_open: false,
        }
    }

    /// Consumes the next bytes from the connection. Consumes none once the reply is complete.
    ///
    /// # Errors
    /// The input is not an HTTP/1 reply, or its framing is in doubt. The parser must not be used
    /// afterwards.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<Progress, ReplyError> {
        let mut rest = bytes;
        while !rest.is_empty() && self.part != Part::Done {
            let taken = match self.part {
                Part::Head => self.advance_head(rest)?,
                Part::Body => self.advance_body(rest)?,
                Part::UntilClose | Part::Done => self.count_body(rest.len()),
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        let state = if self.part == Part::Done { State::Done } else { State::NeedMore };
        Ok(Progress { taken: bytes.len() - rest.len(), state })
    }

    /// Handles the end of the connection: completes a body that ends with it, and leaves a complete
    /// reply unchanged.
    ///
    /// # Errors
    /// The part of the reply in which it was cut short.
    pub fn eof(&mut self) -> Result<(), PrematureEnd> {
        match self.part {
            Part::Head if self.started() => Err(PrematureEnd::InHead),
            Part::Head => Err(PrematureEnd::Unstarted),
            Part::Body => Err(PrematureEnd::InBody),
            Part::UntilClose | Part::Done => {
                self.part = Part::Done;
                Ok(())
            }
        }
    }

    /// Returns the status code, 200 to 599; 0 until the head is complete.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Returns the length of the head so far, including interim replies, bytes.
    #[must_use]
    pub fn head_bytes(&self) -> u64 {
        u64::from(self.head_bytes)
    }

    /// Returns the length of the content so far, without chunk heads and trailers, bytes.
    #[must_use]
    pub const fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Returns whether the connection can carry another request once this reply is complete (RFC
    /// 9112 section 9.3). False until the head is complete.
    #[must_use]
    pub const fn keeps_open(&self) -> bool {
        self.keeps_open
    }

    /// Returns whether any byte of the reply has arrived.
    #[must_use]
    pub const fn started(&self) -> bool {
        self.head_bytes > 0
    }

    /// Consumes bytes of the head. Bytes beyond the limit are not examined, so they cannot affect
    /// the result.
    fn advance_head(&mut self, input: &[u8]) -> Result<usize, ReplyError> {
        let room = (HEAD_BYTES_MAX - self.head_bytes) as usize;
        let window = input.get(..room).unwrap_or(input);
        let mut fresh = Head::default();
        let mut cut = self.cut.take();
        let head = cut.as_deref_mut().unwrap_or(&mut fresh);
        let (taken, ended) = head.advance(window)?;
        self.head_bytes += taken as u32;
        if ended {
            self.end_head(head)?;
        } else {
            self.cut = cut.or_else(|| Some(Box::new(fresh)));
        }
        if self.part == Part::Head && self.head_bytes == HEAD_BYTES_MAX {
            return Err(ReplyError { why: "head too large" });
        }
        Ok(taken)
    }

    /// Selects the part after a head, by RFC 9112 section 6.3. After an interim reply (RFC 9110
    /// section 15.2) the part is unchanged: the next head follows.
    fn end_head(&mut self, head: &Head) -> Result<(), ReplyError> {
        let bodiless = self.head_only || matches!(head.status(), 204 | 304);
        match head.status() {
            101 => return Err(ReplyError { why: "a switch of protocols nobody asked for" }),
            100..200 => return Ok(()),
            status => self.status = status,
        }
        self.keeps_open = head.keeps_open();
        let framing = match head.body_end()? {
            _ if bodiless => Framing::None,
            BodyEnd::Length(length) => Framing::Length(length),
            BodyEnd::Chunked => Framing::Chunked,
            BodyEnd::Close => {
                self.keeps_open = false;
                self.part = Part::UntilClose;
                return Ok(());
            }
        };
        self.body = Body::new(framing);
        let empty = matches!(framing, Framing::None | Framing::Length(0));
        self.part = if empty { Part::Done } else { Part::Body };
        Ok(())
    }

    fn advance_body(&mut self, input: &[u8]) -> Result<usize, ReplyError> {
        let advance =
            self.body.advance(input).map_err(|refusal| ReplyError { why: refusal.why })?;
        self.count_body(advance.payload);
        if advance.done {
            self.part = Part::Done;
        }
        Ok(advance.consumed)
    }

    fn count_body(&mut self, bytes: usize) -> usize {
        self.body_bytes += bytes as u64;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// The observable state of a parser after it was fed; or its error.
    #[derive(Debug, PartialEq)]
    struct Seen {
        taken: usize,
        state: State,
        status: u16,
        head_bytes: u64,
        body_bytes: u64,
        keeps_open: bool,
        eof: Result<(), PrematureEnd>,
    }

    fn feed<'a>(
        head_only: bool,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Seen, ReplyError> {
        let mut parser = ReplyParser::new(head_only);
        let (mut taken, mut state) = (0, State::NeedMore);
        for piece in pieces {
            let progress = parser.advance(piece)?;
            assert!(progress.state == State::Done || progress.taken == piece.len());
            assert!(state == State::NeedMore || progress == Progress { taken: 0, state });
            taken += progress.taken;
            state = progress.state;
        }
        assert!(parser.cut.is_none() || parser.part == Part::Head, "memory is held in vain");
        Ok(Seen {
            taken,
            state,
            status: parser.status(),
            head_bytes: parser.head_bytes(),
            body_bytes: parser.body_bytes(),
            keeps_open: parser.keeps_open(),
            eof: parser.eof(),
        })
    }

    fn whole(text: &str) -> Result<Seen, ReplyError> {
        feed(false, [text.as_bytes()])
    }

    fn why(text: &str) -> &'static str {
        whole(text).unwrap_err().why
    }

    #[test]
    fn a_parser_is_small() {
        assert!(size_of::<ReplyParser>() <= 48, "{}", size_of::<ReplyParser>());
    }

    #[test]
    fn a_body_of_known_length_is_counted_and_what_follows_is_left() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let seen = whole(&format!("{head}helloHTTP/1.1")).unwrap();
        assert_eq!((seen.taken, seen.state), (head.len() + 5, State::Done));
        assert_eq!((seen.status, seen.head_bytes, seen.body_bytes), (200, 38, 5));
        assert!(seen.keeps_open);
    }

    #[test]
    fn pipelined_replies_follow_each_other() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na\
                    HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n\
                    HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n\
                    HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let mut rest = text.as_bytes();
        for (status, body_bytes, keeps_open) in
            [(200, 1, true), (404, 1, true), (304, 0, true), (200, 0, false)]
        {
            let mut parser = ReplyParser::new(false);
            let progress = parser.advance(rest).unwrap();
            rest = &rest[progress.taken..];
            assert_eq!(progress.state, State::Done);
            let seen = (parser.status(), parser.body_bytes(), parser.keeps_open());
            assert_eq!(seen, (status, body_bytes, keeps_open));
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_body_may_end_with_the_connection() {
        for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n"]
        {
            let seen = whole(&format!("{head}hello")).unwrap();
            assert_eq!((seen.state, seen.body_bytes), (State::NeedMore, 5));
            assert_eq!((seen.keeps_open, seen.eof), (false, Ok(())));
        }
    }

    #[test]
    fn head_204_and_304_have_no_body() {
        let framings = ["", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"];
        for (head_only, status) in [(true, 200), (false, 204), (false, 304)] {
            for framing in framings {
                let head = format!("HTTP/1.1 {status} X\r\n{framing}\r\n");
                let seen = feed(head_only, [head.as_bytes(), b"hello"]).unwrap();
                assert_eq!((seen.taken, seen.state), (head.len(), State::Done), "{head:?}");
                assert!(seen.keeps_open, "{head:?}");
            }
        }
    }

    #[test]
    fn interim_replies_are_skipped_but_not_a_switch() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nContent-Length: 9\r\n\r\n";
        assert_eq!(whole(interim).unwrap().eof, Err(PrematureEnd::InHead));
        let seen =
            whole(&format!("{interim}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")).unwrap();
        assert_eq!((seen.status, seen.state, seen.body_bytes), (200, State::Done, 1));
        assert_eq!(seen.head_bytes, seen.taken as u64 - 1);
        assert_eq!(why("HTTP/1.1 101 X\r\n\r\n"), "a switch of protocols nobody asked for");
    }

    #[test]
    fn an_early_end_says_where() {
        let eof = |text| whole(text).unwrap().eof;
        assert_eq!(eof(""), Err(PrematureEnd::Unstarted));
        assert_eq!(eof("H"), Err(PrematureEnd::InHead));
        assert_eq!(eof("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na"), Err(PrematureEnd::InBody));
        assert_eq!(eof("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), Ok(()));
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        assert_eq!(eof(chunked), Err(PrematureEnd::InBody));
    }

    #[test]
    fn heads_are_bounded_with_the_interim_ones_before_them() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: \r\n\r\n";
        let padded = |len: usize| head.replace("A: ", &format!("A: {}", "x".repeat(len)));
        let room = HEAD_BYTES_MAX as usize - head.len();
        assert!(whole(&padded(room)).is_ok());
        assert_eq!(why(&padded(room + 1)), "head too large");
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(HEAD_BYTES_MAX as usize / 25 + 1);
        assert_eq!(why(&interim), "head too large");
    }

    #[test]
    fn broken_chunks_say_what_is_wrong() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(why(&format!("{head}x\r\n")), "malformed chunk size");
    }

    #[test]
    fn lines_may_end_in_a_line_feed_alone() {
        let seen = whole("HTTP/1.0 200 OK\nContent-Length: 2\n\nab").unwrap();
        assert_eq!((seen.state, seen.body_bytes, seen.keeps_open), (State::Done, 2, false));
    }

    const LINES: &[&str] = &[
        "HTTP/1.1 200 OK",
        "HTTP/1.1 100 Continue",
        "HTTP/1.0 304",
        "HTTP/2 200",
        "HTTP/1.1 101 X",
        "Content-Length: 5",
        "Content-Length: 12",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
        "Connection: close",
        "Connection: Keep-Alive",
        "Date: Sun, 06 Nov 1994 08:49:37 GMT",
        " folded",
        "A : b",
        "",
        "",
        "5",
        "hello",
        "0",
        "\0",
    ];

    /// Generates the lines of a reply, in an order that is valid more often than not.
    fn any_reply() -> impl Strategy<Value = Vec<u8>> {
        let end = || prop_oneof![15 => Just("\r\n"), 1 => select(vec!["\n", "\r", ""])];
        let first = prop_oneof![6 => Just(""), 1 => select(vec!["HTTP/1.0 200 OK", "XTTP", "x"])];
        let lines = vec((select(LINES), end()), 0..10);
        (first, lines).prop_map(|(first, lines)| {
            let first = if first.is_empty() { "HTTP/1.1 200 OK" } else { first };
            let lines: String = lines.iter().map(|(line, end)| format!("{line}{end}")).collect();
            format!("{first}\r\n{lines}").into_bytes()
        })
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(reply in any_reply(), head_only: bool) {
            let whole = feed(head_only, [&reply[..]]);
            prop_assert_eq!(&feed(head_only, reply.chunks(1)), &whole, "byte by byte");
            for at in 0..reply.len() {
                let (front, back) = reply.split_at(at);
                prop_assert_eq!(&feed(head_only, [front, back]), &whole, "cut at {}", at);
            }
        }

        #[test]
        fn any_cuts_of_a_chunked_reply_do_not_matter(
            chunks in vec(0..40_usize, 0..6),
            cuts in vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for len in chunks.iter().filter(|len| **len > 0) {
                reply.extend(format!("{len:x};a\r\n{}\r\n", "x".repeat(*len)).bytes());
            }
            reply.extend(b"0\r\nA: b\r\n\r\n");
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(reply.len())).collect();
            cuts.extend([0, reply.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|pair| &reply[pair[0]..pair[1]]);
            let seen = feed(false, pieces).unwrap();
            prop_assert_eq!((seen.taken, seen.state), (reply.len(), State::Done));
            prop_assert_eq!(seen.body_bytes, chunks.iter().sum::<usize>() as u64);
        }
    }
}
