//! Framing of a request's content: counts its bytes and finds its end.
//!
//! The server needs no request's content, so nothing is kept or copied. Limits on its size and
//! duration are up to the caller.

use std::ops::Range;

use crate::extension::Extension;
use crate::grammar::{is_tchar, is_value_byte};
use crate::request::{Framing, RequestError};
use crate::status::Status;

/// Maximum number of bytes of chunk extensions and trailers per body, which stops a flood of tiny
/// chunks with huge extensions.
pub const OVERHEAD_BYTES_MAX: u32 = 16 << 10;

/// Maximum number of hexadecimal digits of a chunk size: 16 fill a `u64`.
const SIZE_DIGITS_MAX: u8 = 16;

/// Result of [`Body::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Bytes that belong to the body: all of the input, unless the body ended.
    pub consumed: usize,
    /// Bytes of content among them, without chunk heads and trailers.
    pub payload: usize,
    /// True once the body has ended. The next request starts after the consumed bytes.
    pub done: bool,
}

/// Result of [`Body::next_piece`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes that belong to the body, up to the end of the content in `data`.
    pub consumed: usize,
    /// Position in the input of the content among them; empty if there is none.
    pub data: Range<usize>,
    /// True once the body has ended.
    pub done: bool,
}

/// Decoder that finds the end of a body. The chunked decoder is strict (RFC 9112 section 7.1):
/// lines end in CRLF, a size is hexadecimal digits only, and an extension has a name.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    state: State,
    /// Bytes left of the content or chunk. While a size is being read, its value so far; 0 before.
    left: u64,
    /// Bytes of extensions and trailers so far.
    overhead_bytes: u32,
}

/// State of the decoder: the kind of byte expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Content of known length.
    Length,
    /// A digit of a chunk size, after this many; or a byte that may follow the size.
    Size(u8),
    /// More of an extension, or the CR after it.
    Extension(Extension),
    /// The LF after a size and its extensions.
    SizeLf,
    /// Data of a chunk.
    Data,
    /// The CR after a chunk's data.
    DataCr,
    /// The LF after a chunk's data.
    DataLf,
    /// The first byte of a trailer, or the CR of the last line.
    TrailerStart,
    /// More of a trailer's name, or its colon.
    TrailerName,
    /// A trailer's value, or the CR after it.
    TrailerValue,
    /// The LF after a trailer.
    TrailerLf,
    /// The LF of the last line.
    EndLf,
    /// No more bytes: the body has ended.
    Done,
}

impl Body {
    /// Creates the decoder for a request with this framing. Without content it is done from the
    /// start.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        let (state, left) = match framing {
            Framing::None | Framing::Length(0) => (State::Done, 0),
            Framing::Length(length) => (State::Length, length),
            Framing::Chunked => (State::Size(0), 0),
        };
        Self { state, left, overhead_bytes: 0 }
    }

    /// Returns how much is left of content of known length, bytes; 0 of any other.
    pub(crate) fn length_left(&self) -> u64 {
        if self.state == State::Length { self.left } else { 0 }
    }

    /// Consumes `bytes` of content of known length, which the caller has not seen.
    pub(crate) fn skip(&mut self, bytes: usize) {
        if self.state == State::Length {
            self.take_data(bytes);
        }
    }

    /// Consumes the next bytes. The result does not depend on how the input is split.
    ///
    /// # Errors
    /// 400 for malformed chunks, 413 or 431 for extensions or trailers beyond
    /// [`OVERHEAD_BYTES_MAX`].
    pub fn advance(&mut self, input: &[u8]) -> Result<Advance, RequestError> {
        let mut rest = input;
        let mut payload = 0;
        loop {
            match (self.state, rest) {
                (State::Done, _) | (_, []) => break,
                (State::Length | State::Data, _) => {
                    let taken = self.take_data(rest.len());
                    payload += taken;
                    rest = rest.get(taken..).unwrap_or_default();
                }
                (_, [byte, after @ ..]) => {
                    self.state = self.step(*byte)?;
                    rest = after;
                }
            }
        }
        let consumed = input.len() - rest.len();
        Ok(Advance { consumed, payload, done: self.state == State::Done })
    }

    /// Consumes the next bytes up to the end of the first content among them, for a caller that
    /// passes the content on. Trailers are appended to `trailers`, each ended by CRLF. To be called
    /// again while it consumes anything.
    ///
    /// # Errors
    /// As [`Body::advance`].
    pub fn next_piece(
        &mut self,
        input: &[u8],
        trailers: &mut Vec<u8>,
    ) -> Result<Piece, RequestError> {
        let mut at = 0;
        let mut data = 0..0;
        while self.state != State::Done
            && let Some((&byte, rest)) = input.get(at..).and_then(<[u8]>::split_first)
        {
            if matches!(self.state, State::Length | State::Data) {
                data = at..at + self.take_data(rest.len() + 1);
                at = data.end;
                break;
            }
            let before = self.state;
            self.state = self.step(byte)?;
            if is_trailer(before, self.state) {
                trailers.push(byte);
            }
            at += 1;
        }
        Ok(Piece { consumed: at, data, done: self.state == State::Done })
    }

    /// Returns whether the body has ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Consumes as much data as is due and available. Returns the number of bytes.
    fn take_data(&mut self, available: usize) -> usize {
        let taken = usize::try_from(self.left).map_or(available, |left| left.min(available));
        self.left -= taken as u64;
        if self.left == 0 {
            self.state = if self.state == State::Length { State::Done } else { State::DataCr };
        }
        taken
    }

    /// Returns the state after a byte that is not data.
    fn step(&mut self, byte: u8) -> Result<State, RequestError> {
        match (self.state, byte) {
            (State::Size(digits), _) => self.step_size(digits, byte),
            (State::Extension(part), b'\r') if part.may_end() => Ok(State::SizeLf),
            (State::Extension(part), _) => self.step_extension(part.step(byte)),
            (State::SizeLf, b'\n') if self.left == 0 => Ok(State::TrailerStart),
            (State::SizeLf, b'\n') => Ok(State::Data),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size(0)),
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::TrailerStart | State::TrailerName | State::TrailerValue, _) => {
                self.step_trailer(byte)
            }
            (State::SizeLf, _) => Err(RequestError::bad("chunk size not ended by CRLF")),
            (State::DataCr | State::DataLf, _) => {
                Err(RequestError::bad("chunk data not followed by CRLF"))
            }
            (State::TrailerLf | State::EndLf, _) => Err(RequestError::bad("bare CR in trailers")),
            (State::Length | State::Data | State::Done, _) => Ok(self.state),
        }
    }

    fn step_size(&mut self, digits: u8, byte: u8) -> Result<State, RequestError> {
        match (byte, char::from(byte).to_digit(16)) {
            (_, Some(_)) if digits == SIZE_DIGITS_MAX => {
                Err(RequestError::bad("chunk size too large"))
            }
            (_, Some(digit)) => {
                self.left = (self.left << 4) | u64::from(digit);
                Ok(State::Size(digits + 1))
            }
            (b'\r', _) if digits > 0 => Ok(State::SizeLf),
            (b' ' | b'\t' | b';', _) if digits > 0 => self.step_extension(Extension::begin(byte)),
            _ => Err(RequestError::bad("malformed chunk size")),
        }
    }

    /// Continues an extension with the part that the next byte belongs to. The content is ignored.
    fn step_extension(&mut self, part: Option<Extension>) -> Result<State, RequestError> {
        self.count_overhead(Status::CONTENT_TOO_LARGE)?;
        part.map(State::Extension).ok_or(RequestError::bad("malformed chunk extension"))
    }

    /// Advances within a trailer. A trailer is a field line, so the rules of the head apply.
    fn step_trailer(&mut self, byte: u8) -> Result<State, RequestError> {
        self.count_overhead(Status::HEADER_FIELDS_TOO_LARGE)?;
        match (self.state, byte) {
            (State::TrailerStart | State::TrailerName, _) if is_tchar(byte) => {
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if is_value_byte(byte) => Ok(State::TrailerValue),
            _ => Err(RequestError::bad("malformed trailer")),
        }
    }

    fn count_overhead(&mut self, status: Status) -> Result<(), RequestError> {
        if self.overhead_bytes == OVERHEAD_BYTES_MAX {
            return Err(RequestError::new(status, "too many bytes of extensions and trailers"));
        }
        self.overhead_bytes += 1;
        Ok(())
    }
}

/// Returns whether a byte that led from one state to another belongs to a trailer or ends it.
fn is_trailer(before: State, after: State) -> bool {
    matches!(after, State::TrailerName | State::TrailerValue | State::TrailerLf)
        || before == State::TrailerLf
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns consumed, payload and done; or the status code.
    fn decode(framing: Framing, input: &[u8]) -> Result<(usize, usize, bool), u16> {
        Body::new(framing)
            .advance(input)
            .map(|advance| (advance.consumed, advance.payload, advance.done))
            .map_err(|refusal| refusal.status.code())
    }

    fn chunked(input: &str) -> Result<(usize, usize, bool), u16> {
        decode(Framing::Chunked, input.as_bytes())
    }

    #[test]
    fn without_content_it_is_done_at_once() {
        assert_eq!(decode(Framing::None, b"GET"), Ok((0, 0, true)));
        assert_eq!(decode(Framing::Length(0), b"GET"), Ok((0, 0, true)));
        assert_eq!(decode(Framing::None, b""), Ok((0, 0, true)));
    }

    #[test]
    fn length_takes_what_it_was_promised() {
        assert_eq!(decode(Framing::Length(3), b"ab"), Ok((2, 2, false)));
        assert_eq!(decode(Framing::Length(3), b"abcGET"), Ok((3, 3, true)));
        assert_eq!(decode(Framing::Length(u64::MAX), b"abc"), Ok((3, 3, false)));
    }

    #[test]
    fn chunks_are_counted_and_what_follows_is_left() {
        assert_eq!(chunked("5\r\nhello\r\n0\r\n\r\n"), Ok((15, 5, true)));
        assert_eq!(chunked("5\r\nhello\r\n0\r\n\r\nGET"), Ok((15, 5, true)));
        assert_eq!(chunked("1\r\na\r\nA\r\n0123456789\r\n000\r\n\r\n"), Ok((28, 11, true)));
        assert_eq!(chunked("5\r\nhel"), Ok((6, 3, false)));
        assert_eq!(chunked("FFFFFFFFFFFFFFFF\r\nx"), Ok((19, 1, false)));
    }

    #[test]
    fn extensions_and_trailers_are_skipped() {
        assert_eq!(
            chunked("5;a=b;c=\"d e\"\r\nhello\r\n0 \t;x\r\nA: b\r\nC:\r\n\r\n").unwrap().1,
            5
        );
        assert_eq!(chunked("0\r\nA: b\r\n\r\n"), Ok((11, 0, true)));
    }

    #[test]
    fn sizes_out_of_grammar() {
        for bad in ["\r\n", ";a\r\n", " 5\r\n", "+5\r\n", "-5\r\n", "0x5\r\n", "0_2e\r\n", "g\r\n"]
        {
            assert_eq!(chunked(bad), Err(400), "{bad:?}");
        }
        assert_eq!(chunked("00000000000000005\r\n"), Err(400), "seventeen digits");
        assert_eq!(chunked("5 5\r\n"), Err(400));
        assert_eq!(chunked("5 \r\n"), Err(400));
    }

    #[test]
    fn lines_must_end_in_crlf() {
        for bad in [
            "5\n",
            "5\rx",
            "5;a\n",
            "5;a\rb",
            "1\r\nab",
            "1\r\na\n",
            "1\r\na\rx",
            "0\r\n\n",
            "0\r\n\rx",
        ] {
            assert_eq!(chunked(bad), Err(400), "{bad:?}");
        }
    }

    #[test]
    fn trailers_out_of_grammar() {
        for bad in
            [":", " A: b\r\n", "A : b\r\n", "A\r\n", "A: b\n", "A: \0", "A: b\rc", "A: b\r\n c"]
        {
            assert_eq!(chunked(&format!("0\r\n{bad}")), Err(400), "{bad:?}");
        }
    }

    #[test]
    fn controls_in_extensions() {
        assert_eq!(chunked("5;\0\r\n"), Err(400));
        assert_eq!(chunked("5;a\x7f\r\n"), Err(400));
    }

    #[test]
    fn extensions_out_of_grammar() {
        for bad in
            ["5;\r\n", "5; \r\n", "5;a;\r\n", "5;a=\r\n", "5;=a\r\n", "5;a b\r\n", "5;a=\"\r\n"]
        {
            assert_eq!(chunked(bad), Err(400), "{bad:?}");
        }
        assert_eq!(chunked("5;a=\"b\rc\"\r\n"), Err(400));
    }

    #[test]
    fn overhead_is_limited_over_the_whole_body() {
        let flood = format!("1;{}\r\na\r\n", "x".repeat(1000)).repeat(20);
        assert_eq!(chunked(&flood), Err(413));
        let trailers = format!("0\r\n{}\r\n", format!("A: {}\r\n", "b".repeat(1000)).repeat(20));
        assert_eq!(chunked(&trailers), Err(431));
        let within = format!("1;{}\r\na\r\n", "x".repeat(1000)).repeat(15);
        assert_eq!(chunked(&format!("{within}0\r\n\r\n")).unwrap().1, 15);
    }
}
