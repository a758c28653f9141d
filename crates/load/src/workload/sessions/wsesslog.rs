//! `--wsesslog N,X,F`: sessions described by a file.
//!
//! Each line is a request: its target, then `method=`, `think=` and `contents=` in any order. An
//! indented line belongs to the burst of the line above. A blank line ends a session; a line that
//! begins with `#` is a comment. Contents may be in quotes of either kind, and may contain `\n`,
//! `\r`, `\t` and a line end after a backslash. Where httperf guesses, this parser reports an
//! error: a method that only begins like a known one, an unclosed quote.

use std::path::PathBuf;
use std::str::FromStr;

use super::{SessionTable, burst_step, seconds_ns, usage};
use crate::session::{RequestTemplate, SessionStep};
use crate::workload::at_line;
use crate::workload::built::{BuiltWorkload, RequestInterner};
use crate::workload::target::parse_target;

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"];

/// N sessions from the file F, with a think time of X seconds after bursts that do not specify one
/// (httperf(1)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wsesslog {
    /// Number of sessions in total; those of the file are played in turn.
    pub sessions: u64,
    /// Think time from the last reply to a burst to the first request of the next, nanoseconds.
    pub think_ns: u64,
    /// Path of the file.
    pub file: PathBuf,
}

impl FromStr for Wsesslog {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (sessions, rest) = text.split_once(',')?;
            let (think, file) = rest.split_once(',')?;
            let sessions = sessions.parse().ok().filter(|sessions| *sessions > 0)?;
            let think_ns = seconds_ns(think)?;
            (!file.is_empty()).then(|| Self { sessions, think_ns, file: file.into() })
        };
        parse().ok_or_else(|| {
            usage(text, "N,X,FILE: sessions (1 or more), seconds of thinking, a file")
        })
    }
}

/// The sessions of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionLog(Vec<Vec<Burst>>);

/// Requests of a burst: the first is sent alone, then the others together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Burst {
    calls: Vec<Call>,
    /// Think time after the burst, if specified.
    think_ns: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    method: &'static str,
    target: String,
    contents: Vec<u8>,
}

impl SessionLog {
    /// Parses a file, named `name` in errors.
    ///
    /// # Errors
    /// A line that does not have the format, with its number; a file without a request.
    pub fn parse(name: &str, text: &[u8]) -> Result<Self, String> {
        let mut parser = Parser { rest: text, line: 1, sessions: Vec::new(), fresh: true };
        while !parser.rest.is_empty() {
            parser.line().map_err(|what| at_line(name, parser.line, what))?;
        }
        if parser.sessions.is_empty() {
            return Err(format!("{name}: there is no request in it"));
        }
        Ok(Self(parser.sessions))
    }

    /// Builds the workload of `sessions` sessions, with a think time of `think_ns` where the file
    /// does not specify one. `close`: the last request of a session asks the server to close.
    pub fn build(
        &self,
        template: &RequestTemplate,
        sessions: u64,
        think_ns: u64,
        close: bool,
    ) -> BuiltWorkload {
        let mut interner = RequestInterner::new(template);
        let mut table = SessionTable::default();
        for bursts in &self.0 {
            table.push(steps(bursts, think_ns, &mut interner));
        }
        BuiltWorkload {
            workload: table.into_workload(sessions, close),
            requests: interner.requests,
        }
    }
}

fn steps(bursts: &[Burst], think_ns: u64, interner: &mut RequestInterner<'_>) -> Vec<SessionStep> {
    let mut steps = Vec::new();
    let mut before_ns = 0;
    for burst in bursts {
        for (position, call) in burst.calls.iter().enumerate() {
            let request = interner.id(call.method, &call.target, &call.contents);
            steps.push(burst_step(position, request, before_ns));
        }
        before_ns = burst.think_ns.unwrap_or(think_ns);
    }
    steps
}

/// The parser's state: the sessions so far, and the remaining text.
struct Parser<'a> {
    rest: &'a [u8],
    line: usize,
    sessions: Vec<Vec<Burst>>,
    /// True if the next request begins a session.
    fresh: bool,
}

impl<'a> Parser<'a> {
    /// Parses a line, or several if contents continue.
    fn line(&mut self) -> Result<(), String> {
        let indented = self.rest.first().is_some_and(|&byte| is_blank(byte));
        if self.rest.first() == Some(&b'#') {
            self.take_while(|byte| byte != b'\n');
        } else {
            self.take_while(is_blank);
            match self.word() {
                b"" => self.fresh = true,
                word => self.request(word, indented)?,
            }
        }
        if !self.rest.is_empty() {
            self.advance();
        }
        Ok(())
    }

    fn request(&mut self, word: &[u8], indented: bool) -> Result<(), String> {
        let target = parse_target(word).ok_or_else(|| {
            format!("{} is no request target, which begins with a slash", word.escape_ascii())
        })?;
        let mut call = Call { method: "GET", target, contents: Vec::new() };
        let mut think_ns = None;
        loop {
            self.take_while(is_blank);
            if self.rest.first().is_none_or(|&byte| byte == b'\n') {
                break;
            }
            self.argument(&mut call, &mut think_ns)?;
        }
        self.add(call, think_ns, indented);
        Ok(())
    }

    fn argument(&mut self, call: &mut Call, think_ns: &mut Option<u64>) -> Result<(), String> {
        if let Some(rest) = self.rest.strip_prefix(b"contents=") {
            self.rest = rest;
            call.contents = self.contents()?;
            return Ok(());
        }
        let word = str::from_utf8(self.word()).map_err(|_| "an argument is not text")?;
        match word.split_once('=') {
            Some(("method", method)) => {
                let known = METHODS.into_iter().find(|known| *known == method);
                call.method = known.ok_or_else(|| {
                    format!("{method:?} is no method; there are {}", METHODS.join(", "))
                })?;
            }
            Some(("think", seconds)) => {
                let wrong = || format!("{seconds:?} is no think time in seconds");
                *think_ns = Some(seconds_ns(seconds).ok_or_else(wrong)?);
            }
            _ => return Err(format!("{word:?} is not method=, think= or contents=")),
        }
        Ok(())
    }

    /// Parses contents up to the first blank that is neither quoted nor escaped.
    fn contents(&mut self) -> Result<Vec<u8>, String> {
        let mut contents = Vec::new();
        let mut quote = None;
        while let Some(&byte) = self.rest.first() {
            match (byte, quote) {
                (b'\\', _) => {
                    self.advance();
                    contents.push(self.escaped()?);
                }
                (b'\n', Some(_)) => break,
                (_, Some(open)) if byte == open => quote = None,
                (b'"' | b'\'', None) => quote = Some(byte),
                (_, None) if byte == b'\n' || is_blank(byte) => break,
                _ => contents.push(byte),
            }
            self.advance();
        }
        if quote.is_some() { Err("a quote is not closed".into()) } else { Ok(contents) }
    }

    /// Returns the byte denoted by the escape after a backslash, without consuming it.
    fn escaped(&mut self) -> Result<u8, String> {
        if self.rest.starts_with(b"\r\n") {
            self.advance();
        }
        match self.rest.first() {
            None => Err("the file ends with a backslash".into()),
            Some(b'n') => Ok(b'\n'),
            Some(b'r') => Ok(b'\r'),
            Some(b't') => Ok(b'\t'),
            Some(&byte) => Ok(byte),
        }
    }

    /// Adds a request to a new session, to a new burst, or to the current burst.
    fn add(&mut self, call: Call, think_ns: Option<u64>, indented: bool) {
        if std::mem::take(&mut self.fresh) {
            self.sessions.push(Vec::new());
        }
        let Some(session) = self.sessions.last_mut() else { return };
        match session.last_mut().filter(|_| indented) {
            None => session.push(Burst { calls: vec![call], think_ns }),
            Some(burst) => {
                burst.calls.push(call);
                burst.think_ns = think_ns.or(burst.think_ns);
            }
        }
    }

    fn word(&mut self) -> &'a [u8] {
        self.take_while(|byte| byte != b'\n' && !is_blank(byte))
    }

    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&byte| !belongs(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// Skips a byte.
    fn advance(&mut self) {
        if let Some((&byte, rest)) = self.rest.split_first() {
            self.line += usize::from(byte == b'\n');
            self.rest = rest;
        }
    }
}

/// Returns whether a byte is white space within a line, as in C.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::{filled, targets};

    /// The example of httperf(1).
    const EXAMPLE: &[u8] = br#"# Comment
# session 1 definition (this is a comment)
/foo.html think=2.0
     /pict1.gif
     /pict2.gif
/foo2.html method=POST contents='Post data'
     /pict3.gif
     /pict4.gif


# session 2 definition
/foo3.html method=POST contents="Multiline\ndata"
/foo4.html method=HEAD
"#;

    #[test]
    fn the_example_of_the_manual_is_two_sessions() {
        let log = SessionLog::parse("example", EXAMPLE).unwrap();
        let BuiltWorkload { workload, requests } =
            log.build(&RequestTemplate::default(), 3, 5_000_000_000, true);
        let sessions = filled(&*workload, 0..9);
        assert_eq!(sessions.len(), 3);
        assert_eq!(sessions[0], sessions[2]);
        let first =
            ["/foo.html", "/pict1.gif", "+/pict2.gif", "/foo2.html", "/pict3.gif", "+/pict4.gif"];
        assert_eq!(targets(&requests, &sessions[0]), first);
        assert_eq!(targets(&requests, &sessions[1]), ["/foo3.html", "/foo4.html"]);
        let thinks = |session: usize| -> Vec<u64> {
            sessions[session].steps.iter().map(|step| step.think_ns / 1_000_000_000).collect()
        };
        assert_eq!(thinks(0), [0, 0, 0, 2, 0, 0]);
        assert_eq!(thinks(1), [0, 5]);
        let request = |session: usize, step: usize| {
            requests.get(sessions[session].steps[step].request).unwrap()
        };
        assert!(request(0, 3).keep.ends_with(b"Content-Length: 9\r\n\r\nPost data"));
        assert!(request(1, 0).keep.ends_with(b"\r\n\r\nMultiline\ndata"));
        assert!(request(1, 1).head_only);
    }

    #[test]
    fn contents_may_be_quoted_escaped_and_continued() {
        for (written, expected) in [
            (&b"plain think=1"[..], &b"plain"[..]),
            (b"a'b c'\"d e\"f", b"ab cd ef"),
            (b"'a\"b' ", b"a\"b"),
            (b"\"a\\\"b\\\\\"", b"a\"b\\"),
            (b"a\\ b\\tc\\rd", b"a b\tc\rd"),
            (b"'a\\\nb'", b"a\nb"),
            (b"'a\\\r\nb'", b"a\nb"),
            (b"", b""),
        ] {
            let text = [b"/x contents=", written, b"\n/y"].concat();
            let log = SessionLog::parse("log", &text).unwrap();
            assert_eq!(log.0[0][0].calls[0].contents, expected);
            assert_eq!(log.0[0].len(), 2);
        }
    }

    #[test]
    fn an_indented_line_begins_a_burst_where_there_is_none() {
        let log = SessionLog::parse("log", b" /a\r\n\t/b\r\n \r\n/c").unwrap();
        let calls: Vec<Vec<usize>> = log
            .0
            .iter()
            .map(|session| session.iter().map(|burst| burst.calls.len()).collect())
            .collect();
        assert_eq!(calls, [[2], [1]]);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for (text, expected) in [
            (&b"/a\n/b speed=1"[..], "log:2: \"speed=1\" is not method="),
            (b"\n\n/b method=GETS", "log:3: \"GETS\" is no method"),
            (b"/b think=-1", "log:1: \"-1\" is no think time"),
            (b"/b contents='a\\\nb", "log:2: a quote is not closed"),
            (b"/b contents='a\n'", "log:1: a quote is not closed"),
            (b"/b contents=\\", "log:1: the file ends"),
            (b"hello", "log:1: hello is no request target"),
            (b"/a \xff=1", "log:1: an argument is not text"),
            (b"# nothing\n\n", "log: there is no request"),
        ] {
            let error = SessionLog::parse("log", text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_option_is_three_values_and_the_file_may_have_commas() {
        let expected = Wsesslog { sessions: 9, think_ns: 500_000_000, file: "a,b".into() };
        assert_eq!("9,0.5,a,b".parse(), Ok(expected));
        for text in ["", "9,0.5", "9,0.5,", "9,x,f", "-1,0,f"] {
            assert!(text.parse::<Wsesslog>().is_err(), "{text}");
        }
    }
}
