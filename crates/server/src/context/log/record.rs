//! A line of the access log: what is recorded when a reply begins, and its formatting when the
//! reply has been sent. Bytes of a client are escaped here, and nowhere else.

use std::io::Write;
use std::net::SocketAddr;

use serde_json::json;
use weir_http1::{Request, imf_date};

use crate::config::LogFormat;

/// Maximum number of bytes logged of input that could not be parsed as a request.
const UNREAD_BYTES_MAX: usize = 512;

/// A request as shown in a log line.
#[derive(Debug, Default)]
pub(crate) struct LoggedRequest {
    line: Vec<u8>,
    /// True if more than `line` was received.
    is_cut: bool,
    referer: Option<Vec<u8>>,
    user_agent: Option<Vec<u8>>,
}

impl LoggedRequest {
    /// Creates the entry of a request that was parsed.
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        Self {
            line: request.request_line.to_vec(),
            is_cut: false,
            referer: owned(request.referer),
            user_agent: owned(request.user_agent),
        }
    }

    /// Creates the entry of bytes that are no request, or an incomplete one: their first line, as
    /// far as it was received.
    pub(crate) fn of_unread(bytes: &[u8]) -> Self {
        let start = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(bytes.len());
        let bytes = bytes.get(start..).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
        let line = bytes.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let shown = line.get(..UNREAD_BYTES_MAX).unwrap_or(line);
        Self { line: shown.to_vec(), is_cut: shown.len() < line.len(), ..Self::default() }
    }
}

/// A reply that has begun, for its log line; the rest is known when it has been sent.
#[derive(Debug)]
pub(crate) struct Record {
    pub status: u16,
    pub peer: SocketAddr,
    /// Start of the request, nanoseconds on the loop's clock.
    pub began_ns: u64,
    /// Bytes of the connection's output that precede the body.
    pub body_start: u64,
    /// Bytes of the body.
    pub body_bytes: u64,
    pub request: LoggedRequest,
}

/// State at the end of the output that contains a record's reply.
pub(super) struct ReplyEnd {
    /// Bytes of the output that were sent.
    pub sent_bytes: u64,
    /// The wall clock, nanoseconds since 1970.
    pub unix_ns: u64,
    /// The loop's clock, nanoseconds.
    pub now_ns: u64,
}

impl Record {
    /// Appends the log line to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>, format: LogFormat, sent: &ReplyEnd) {
        let body_sent = sent.sent_bytes.saturating_sub(self.body_start).min(self.body_bytes);
        match format {
            LogFormat::Combined => self.write_combined(out, body_sent, sent.unix_ns),
            LogFormat::Json => {
                let duration_ns = sent.now_ns.saturating_sub(self.began_ns);
                self.write_json(out, body_sent, sent.unix_ns, duration_ns);
            }
        }
    }

    /// `host - - [day/month/year:time +0000] "request" status bytes "referer" "user agent"`.
    fn write_combined(&self, out: &mut Vec<u8>, body_sent: u64, unix_ns: u64) {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let date = imf_date(unix_ns / 1_000_000_000);
        // Writing into a Vec cannot fail.
        let _ = write!(out, "{} - - [", self.peer.ip());
        for (part, after) in [(5..7, b'/'), (8..11, b'/'), (12..16, b':'), (17..25, b' ')] {
            out.extend_from_slice(&date[part]);
            out.push(after);
        }
        out.extend_from_slice(b"+0000] ");
        let LoggedRequest { line, is_cut, referer, user_agent } = &self.request;
        quote(out, Some(line).filter(|line| !line.is_empty()), *is_cut);
        let _ = write!(out, " {} {body_sent} ", self.status);
        quote(out, referer.as_ref(), false);
        out.push(b' ');
        quote(out, user_agent.as_ref(), false);
        out.push(b'\n');
    }

    fn write_json(&self, out: &mut Vec<u8>, body_sent: u64, unix_ns: u64, duration_ns: u64) {
        let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
        let LoggedRequest { line, is_cut, referer, user_agent } = &self.request;
        let line = json!({
            "time": rfc3339(unix_ns),
            "remote": self.peer.ip().to_string(),
            "request": text(line) + if *is_cut { CUT } else { "" },
            "status": self.status,
            "bytes": body_sent,
            "duration_us": duration_ns / 1_000,
            "referer": referer.as_ref().map(text),
            "user_agent": user_agent.as_ref().map(text),
        });
        escape_json(out, &line.to_string());
        out.push(b'\n');
    }
}

/// Mark in place of the rest of a line that is cut.
const CUT: &str = "...";

/// Appends bytes of a client in quotes, escaped so that no line break, quote or control character
/// can leave the field.
fn quote(out: &mut Vec<u8>, value: Option<&Vec<u8>>, is_cut: bool) {
    out.push(b'"');
    match value {
        None => out.push(b'-'),
        Some(bytes) => {
            for &byte in bytes {
                match byte {
                    b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                    0x20..0x7f => out.push(byte),
                    _ => drop(write!(out, "\\x{byte:02x}")),
                }
            }
        }
    }
    if is_cut {
        out.extend_from_slice(CUT.as_bytes());
    }
    out.push(b'"');
}

/// Appends a JSON text, escaping the characters that JSON allows in a string but that a terminal or
/// a reader of lines may interpret. There are none outside strings.
fn escape_json(out: &mut Vec<u8>, text: &str) {
    for character in text.chars() {
        if is_control_or_direction(character) {
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        } else {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

/// Returns whether a terminal or a reader of lines may interpret a character: DEL, the C1 controls,
/// the line and paragraph separators, and characters that change the direction of the text around
/// them (Unicode Standard Annex 9).
fn is_control_or_direction(character: char) -> bool {
    let separates_or_reverses = matches!(
        character,
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    separates_or_reverses || character.is_control()
}

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Formats a time as `1994-11-06T08:49:37.123Z`.
fn rfc3339(unix_ns: u64) -> String {
    let date = imf_date(unix_ns / 1_000_000_000);
    let part = |range: std::ops::Range<usize>| String::from_utf8_lossy(&date[range]).into_owned();
    let month = 1 + MONTHS.iter().position(|name| *name == &date[8..11]).unwrap_or(0);
    let millis = unix_ns / 1_000_000 % 1_000;
    format!("{}-{month:02}-{}T{}.{millis:03}Z", part(12..16), part(5..7), part(17..25))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(line: &[u8], user_agent: &[u8]) -> Record {
        Record {
            status: 200,
            peer: "[::1]:80".parse().unwrap(),
            began_ns: 1_000,
            body_start: 100,
            body_bytes: 50,
            request: LoggedRequest {
                line: line.to_vec(),
                is_cut: false,
                referer: None,
                user_agent: Some(user_agent.to_vec()),
            },
        }
    }

    fn written(record: &Record, format: LogFormat) -> String {
        let mut out = Vec::new();
        let sent =
            ReplyEnd { sent_bytes: 107, unix_ns: 784_111_777_123_456_789, now_ns: 2_501_000 };
        record.write(&mut out, format, &sent);
        String::from_utf8(out).unwrap()
    }

    /// Characters that no field of a line may hold unescaped.
    const INTERPRETED: &str = "\0\x07\x1b\x7f\u{80}\u{85}\u{9b}\u{9f}\u{200f}\u{2028}\u{2029}\
                          \u{202e}\u{2066}";

    #[test]
    fn a_combined_entry_is_one_line_whatever_the_client_sent() {
        assert_eq!(
            written(&record(b"GET / HTTP/1.1", b"a\"b\n\xff"), LogFormat::Combined),
            "::1 - - [06/Nov/1994:08:49:37 +0000] \"GET / HTTP/1.1\" 200 7 \"-\" \
             \"a\\\"b\\x0a\\xff\"\n"
        );
        let line = written(&record(b"GET /", INTERPRETED.as_bytes()), LogFormat::Combined);
        assert!(line.trim_end().chars().all(|character| (' '..='~').contains(&character)));
    }

    #[test]
    fn a_json_line_is_json() {
        let line = written(&record(b"GET / HTTP/1.1", b"a\"b\n"), LogFormat::Json);
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["time"], "1994-11-06T08:49:37.123Z");
        assert_eq!(value["duration_us"], 2500);
        assert_eq!(value["bytes"], 7);
        assert_eq!(value["referer"], serde_json::Value::Null);
        assert_eq!(value["user_agent"], "a\"b\n");
    }

    #[test]
    fn a_json_line_escapes_what_a_terminal_interprets_and_keeps_its_meaning() {
        let line = written(&record("GET /é".as_bytes(), INTERPRETED.as_bytes()), LogFormat::Json);
        assert!(line.contains("\\u009b") && line.contains("\\u007f") && line.contains("\\u2028"));
        assert!(!line.trim_end().chars().any(is_control_or_direction), "{line:?}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["user_agent"], INTERPRETED);
        assert_eq!(value["request"], "GET /é");
        let line = written(&record(b"GET /\xff\xc2", b"\xed\xa0\x80"), LogFormat::Json);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["request"], "GET /\u{fffd}\u{fffd}", "bytes that are no UTF-8");
    }

    #[test]
    fn an_invalid_request_is_logged_by_its_first_line_as_far_as_received() {
        let shown = |bytes: &[u8]| {
            let request = LoggedRequest::of_unread(bytes);
            (String::from_utf8_lossy(&request.line).into_owned(), request.is_cut)
        };
        assert_eq!(shown(b"GET / HTTP/9.9\r\nHost: a\r\n"), ("GET / HTTP/9.9".into(), false));
        assert_eq!(shown(b"\r\n\nGE"), ("GE".into(), false));
        assert_eq!(shown(b"GET /a\rb HTTP/1.1\n"), ("GET /a\rb HTTP/1.1".into(), false));
        assert_eq!(shown(b"\r\n"), (String::new(), false));
        assert_eq!(shown(&[b'x'; UNREAD_BYTES_MAX]), ("x".repeat(UNREAD_BYTES_MAX), false));
        assert_eq!(shown(&[b'x'; UNREAD_BYTES_MAX + 1]), ("x".repeat(UNREAD_BYTES_MAX), true));
        let request = LoggedRequest::of_unread(&[b'\x16'; UNREAD_BYTES_MAX + 1]);
        let record = Record { request, ..record(b"", b"") };
        assert!(written(&record, LogFormat::Combined).contains("\\x16\\x16...\" 200 7"));
        assert!(written(&record, LogFormat::Json).contains("\\u0016\\u0016...\""));
    }
}
