//! A line of the access log: what is recorded when a reply begins, and its formatting when the
//! reply has been sent. What a client sent goes through [`escape`].

use std::net::{IpAddr, SocketAddr};

use serde_json::json;
use weir_http1::text::{push_address, push_u64};
use weir_http1::{Request, imf_date};

use super::escape;
use crate::config::{LOG_FIELDS, LogField, LogFormat, PatternPart};
use crate::sites::users;

/// Maximum number of bytes logged of input that could not be parsed as a request.
const UNREAD_BYTES_MAX: usize = 512;

/// Maximum length of a field of a line that is sent as a datagram, bytes. An entry of the journal
/// has each of five such fields twice; a datagram of a Unix socket has somewhat less than 208 KiB
/// (net.core.wmem_default, socket(7)).
const FIELD_BYTES_MAX: usize = 8 << 10;

/// A request as shown in a log line.
#[derive(Debug, Default)]
pub(crate) struct LoggedRequest {
    line: Vec<u8>,
    /// True if more than `line` was received.
    is_cut: bool,
    referer: Option<Vec<u8>>,
    user_agent: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
    /// Address of the client, by what trusted proxies say; `None` for the connection's.
    client: Option<IpAddr>,
    /// True if the client is not known: a trusted proxy has sent this, and says who the client is
    /// in a head that was not read to its end.
    hides_client: bool,
    id: Option<Box<[u8]>>,
}

impl LoggedRequest {
    /// Creates the entry of a request that was parsed.
    pub(crate) fn of(
        request: &Request<'_>,
        client: Option<IpAddr>,
        id: Option<Box<[u8]>>,
        has_host: bool,
    ) -> Self {
        let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        Self {
            line: request.request_line.to_vec(),
            is_cut: false,
            referer: owned(request.referer),
            user_agent: owned(request.user_agent),
            user: request.authorization.and_then(users::name_in),
            host: owned(request.host.filter(|_| has_host)),
            client,
            hides_client: false,
            id,
        }
    }

    /// Creates the entry of bytes that are no request, or an incomplete one: their first line, as
    /// far as it was received. `is_of_proxy`: whether a trusted proxy has sent them.
    pub(crate) fn of_unread(bytes: &[u8], is_of_proxy: bool) -> Self {
        let start = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or(bytes.len());
        let bytes = bytes.get(start..).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
        let line = bytes.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let shown = line.get(..UNREAD_BYTES_MAX).unwrap_or(line);
        Self {
            line: shown.to_vec(),
            is_cut: shown.len() < line.len(),
            hides_client: is_of_proxy,
            ..Self::default()
        }
    }

    /// Cuts what a client sent, so that all of it fits into a datagram however it is escaped.
    fn cut(&mut self) {
        let Self { line, referer, user_agent, user, host, .. } = self;
        cut(line);
        [referer, user_agent, user, host].into_iter().flatten().for_each(cut);
    }

    /// Returns a word of the request line.
    fn word(&self, index: usize) -> Option<&[u8]> {
        self.line.split(|&byte| byte == b' ').nth(index).filter(|word| !word.is_empty())
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
pub(super) struct ReplyEnd<'t> {
    /// Bytes of the output that were sent.
    pub sent_bytes: u64,
    /// The wall clock, as in a combined line.
    pub time: &'t TimeText,
    /// The wall clock, nanoseconds since 1970.
    pub unix_ns: u64,
    /// The loop's clock, nanoseconds.
    pub now_ns: u64,
}

impl Record {
    /// Cuts what a client sent, for a log that takes a datagram for each line.
    pub(super) fn cut(&mut self) {
        self.request.cut();
    }

    /// Appends the log line to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>, format: &LogFormat, sent: &ReplyEnd<'_>) {
        match format {
            LogFormat::Combined => self.write_combined(out, sent),
            LogFormat::Json => self.write_json(out, sent),
            LogFormat::Pattern(pattern) => {
                for part in pattern.parts() {
                    match part {
                        PatternPart::Text(text) => out.extend_from_slice(text.as_bytes()),
                        PatternPart::Field { field, is_quoted } => {
                            self.write_field(out, *field, *is_quoted, sent);
                        }
                    }
                }
            }
        }
        out.push(b'\n');
    }

    /// Appends an entry of the journal, which an empty line ends, with the log line as its message
    /// (systemd.journal-fields(7)).
    pub(super) fn write_journal(&self, out: &mut Vec<u8>, format: &LogFormat, sent: &ReplyEnd<'_>) {
        out.extend_from_slice(b"MESSAGE=");
        self.write(out, format, sent);
        // Informational: RFC 5424 section 6.2.1.
        out.extend_from_slice(b"PRIORITY=6\nSYSLOG_IDENTIFIER=weir\n");
        for row in LOG_FIELDS.iter().filter(|row| !row.journal.is_empty()) {
            let start = out.len();
            out.extend_from_slice(row.journal.as_bytes());
            out.push(b'=');
            let value_start = out.len();
            self.write_field(out, row.field, true, sent);
            match out.get(value_start..) {
                Some(b"-") => out.truncate(start),
                _ => out.push(b'\n'),
            }
        }
        out.push(b'\n');
    }

    /// `host - user [day/month/year:time +0000] "request" status bytes "referer" "user agent"`.
    fn write_combined(&self, out: &mut Vec<u8>, sent: &ReplyEnd<'_>) {
        let mut field = |before: &[u8], field, is_quoted| {
            out.extend_from_slice(before);
            self.write_field(out, field, is_quoted, sent);
        };
        field(b"", LogField::Remote, false);
        field(b" - ", LogField::User, false);
        field(b" [", LogField::Time, false);
        field(b"] \"", LogField::Request, true);
        field(b"\" ", LogField::Status, false);
        field(b" ", LogField::Bytes, false);
        field(b" \"", LogField::Referer, true);
        field(b"\" \"", LogField::UserAgent, true);
        out.push(b'"');
    }

    /// Appends a field, `-` for one that is not there.
    fn write_field(
        &self,
        out: &mut Vec<u8>,
        field: LogField,
        is_quoted: bool,
        sent: &ReplyEnd<'_>,
    ) {
        let request = &self.request;
        let value = match field {
            LogField::Remote => match self.remote() {
                Some(address) => return push_address(out, address),
                None => None,
            },
            LogField::Peer => return push_address(out, self.peer.ip().to_canonical()),
            LogField::Time => return out.extend_from_slice(&sent.time.text),
            LogField::Rfc3339 => return out.extend_from_slice(rfc3339(sent.unix_ns).as_bytes()),
            LogField::Status => return push_u64(out, u64::from(self.status)),
            LogField::Bytes => return push_u64(out, self.body_sent(sent)),
            LogField::DurationUs => return push_u64(out, self.duration_us(sent)),
            LogField::Request => Some(&request.line[..]).filter(|line| !line.is_empty()),
            LogField::Method => request.word(0),
            LogField::Target => request.word(1),
            LogField::User => request.user.as_deref().filter(|user| !user.is_empty()),
            LogField::Id => request.id.as_deref(),
            LogField::Host => request.host.as_deref(),
            LogField::Referer => request.referer.as_deref(),
            LogField::UserAgent => request.user_agent.as_deref(),
        };
        match value {
            Some(value) => escape::ascii(out, value, is_quoted),
            None => out.push(b'-'),
        }
        if request.is_cut && matches!(field, LogField::Request | LogField::Target) {
            out.extend_from_slice(CUT.as_bytes());
        }
    }

    fn write_json(&self, out: &mut Vec<u8>, sent: &ReplyEnd<'_>) {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let LoggedRequest { line, is_cut, referer, user_agent, user, host, id, .. } = &self.request;
        let line = json!({
            "time": rfc3339(sent.unix_ns),
            "remote": self.remote().map(|address| address.to_string()),
            "user": user.as_deref().map(text),
            "id": id.as_deref().map(text),
            "host": host.as_deref().map(text),
            "request": text(line) + if *is_cut { CUT } else { "" },
            "status": self.status,
            "bytes": self.body_sent(sent),
            "duration_us": self.duration_us(sent),
            "referer": referer.as_deref().map(text),
            "user_agent": user_agent.as_deref().map(text),
        });
        escape::json(out, &line.to_string());
    }

    /// Returns the address of the client; `None` if it is not known.
    fn remote(&self) -> Option<IpAddr> {
        let address = self.request.client.unwrap_or_else(|| self.peer.ip());
        // A socket for both versions of IP has IPv4 clients as ::ffff:192.0.2.1.
        (!self.request.hides_client).then(|| address.to_canonical())
    }

    fn body_sent(&self, sent: &ReplyEnd<'_>) -> u64 {
        sent.sent_bytes.saturating_sub(self.body_start).min(self.body_bytes)
    }

    fn duration_us(&self, sent: &ReplyEnd<'_>) -> u64 {
        sent.now_ns.saturating_sub(self.began_ns) / 1_000
    }
}

/// Mark in place of the rest of a line that is cut.
const CUT: &str = "...";

/// Most bytes that are made of a byte by escaping: `\u0001` in JSON.
const ESCAPED_BYTES_MAX: usize = 6;

/// Cuts a value that may have more than [`FIELD_BYTES_MAX`] once it is escaped.
fn cut(value: &mut Vec<u8>) {
    if value.len() <= FIELD_BYTES_MAX / ESCAPED_BYTES_MAX {
        return;
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.,:;?&=%+-_~()".contains(&byte);
    let lengths = value.iter().map(|&byte| if is_plain(byte) { 1 } else { ESCAPED_BYTES_MAX });
    let ends = lengths.scan(0, |sum, length| {
        *sum += length;
        Some(*sum)
    });
    let fitting = ends.take_while(|&end| end <= FIELD_BYTES_MAX).count();
    if fitting < value.len() {
        value.truncate(fitting);
        value.extend_from_slice(CUT.as_bytes());
    }
}

/// A second as `06/Nov/1994:08:49:37 +0000`, made once for all lines of it.
#[derive(Debug)]
pub(super) struct TimeText {
    unix_s: u64,
    text: [u8; 26],
}

impl TimeText {
    /// Creates the text of a time in nanoseconds since 1970.
    pub(super) fn of(unix_ns: u64) -> Self {
        let unix_s = unix_ns / 1_000_000_000;
        // Sun, 06 Nov 1994 08:49:37 GMT
        let date = imf_date(unix_s);
        let mut text = *b"../.../....:........ +0000";
        for (from, to) in [(5..7, 0..2), (8..11, 3..6), (12..16, 7..11), (17..25, 12..20)] {
            text[to].copy_from_slice(&date[from]);
        }
        Self { unix_s, text }
    }

    /// Changes it to another time.
    pub(super) fn update(&mut self, unix_ns: u64) {
        if unix_ns / 1_000_000_000 != self.unix_s {
            *self = Self::of(unix_ns);
        }
    }
}

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Formats a time as `1994-11-06T08:49:37.123Z`.
pub(super) fn rfc3339(unix_ns: u64) -> String {
    let date = imf_date(unix_ns / 1_000_000_000);
    let part = |range: std::ops::Range<usize>| String::from_utf8_lossy(&date[range]).into_owned();
    let month = 1 + MONTHS.iter().position(|name| *name == &date[8..11]).unwrap_or(0);
    let millis = unix_ns / 1_000_000 % 1_000;
    format!("{}-{month:02}-{}T{}.{millis:03}Z", part(12..16), part(5..7), part(17..25))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogPattern;
    use std::sync::Arc;

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
                ..LoggedRequest::default()
            },
        }
    }

    fn written(record: &Record, format: &LogFormat) -> String {
        let mut out = Vec::new();
        let unix_ns = 784_111_777_123_456_789;
        let time = TimeText::of(unix_ns);
        let sent = ReplyEnd { sent_bytes: 107, time: &time, unix_ns, now_ns: 2_501_000 };
        record.write(&mut out, format, &sent);
        String::from_utf8(out).unwrap()
    }

    /// Characters that no field of a line may hold unescaped.
    const INTERPRETED: &str = "\0\x07\x1b\x7f\u{80}\u{85}\u{9b}\u{9f}\u{200f}\u{2028}\u{2029}\
                          \u{202e}\u{2066}";

    #[test]
    fn the_text_of_a_time_is_that_of_its_second() {
        let mut time = TimeText::of(784_111_777_999_999_999);
        for (unix_ns, expected) in [
            (784_111_777_000_000_000, "06/Nov/1994:08:49:37 +0000"),
            (784_111_778_000_000_000, "06/Nov/1994:08:49:38 +0000"),
            (0, "01/Jan/1970:00:00:00 +0000"),
        ] {
            time.update(unix_ns);
            assert_eq!(time.text, *expected.as_bytes());
        }
    }

    #[test]
    fn a_combined_entry_is_one_line_whatever_the_client_sent() {
        assert_eq!(
            written(&record(b"GET / HTTP/1.1", b"a\"b\n\xff"), &LogFormat::Combined),
            "::1 - - [06/Nov/1994:08:49:37 +0000] \"GET / HTTP/1.1\" 200 7 \"-\" \
             \"a\\\"b\\x0a\\xff\"\n"
        );
        let line = written(&record(b"GET /", INTERPRETED.as_bytes()), &LogFormat::Combined);
        assert!(line.trim_end().chars().all(|character| (' '..='~').contains(&character)));
    }

    #[test]
    fn a_line_has_the_fields_of_its_pattern_and_no_value_ends_its_own() {
        let mut record = record(b"GET /a?b HTTP/1.1", b"");
        record.request.user = Some(b"a b\" 200".to_vec());
        record.request.client = Some("192.0.2.1".parse().unwrap());
        record.request.id = Some(Box::from(*b"id"));
        let line = |pattern: &str| {
            let pattern = LogPattern::parse(pattern).unwrap();
            written(&record, &LogFormat::Pattern(Arc::new(pattern)))
        };
        assert_eq!(line("{remote} {peer} {user}|"), "192.0.2.1 ::1 a\\x20b\\x22\\x20200|\n");
        assert_eq!(line("\"{user}\" {id} {host}"), "\"a b\\\" 200\" id -\n");
        assert_eq!(line("{method} {target} {status} {bytes}"), "GET /a?b 200 7\n");
        assert_eq!(line("{rfc3339} {duration_us}"), "1994-11-06T08:49:37.123Z 2500\n");
        let combined = written(&record, &LogFormat::Combined);
        assert!(combined.starts_with("192.0.2.1 - a\\x20b\\x22\\x20200 [06/"), "{combined}");
    }

    #[test]
    fn a_client_has_one_address_whatever_the_socket() {
        let mut record = record(b"GET / HTTP/1.1", b"");
        record.peer = "[::ffff:192.0.2.1]:80".parse().unwrap();
        let pattern = LogFormat::Pattern(Arc::new(LogPattern::parse("{remote} {peer}").unwrap()));
        assert_eq!(written(&record, &pattern), "192.0.2.1 192.0.2.1\n");
    }

    #[test]
    fn an_entry_of_the_journal_has_a_line_for_each_field_that_is_there() {
        let mut record = record(b"GET / HTTP/1.1", b"x\nPRIORITY=0\n\n");
        record.request.user = Some(b"a\nWEIR_STATUS=500".to_vec());
        let mut out = Vec::new();
        let time = TimeText::of(0);
        let sent = ReplyEnd { sent_bytes: 107, time: &time, unix_ns: 0, now_ns: 2_501_000 };
        record.write_journal(&mut out, &LogFormat::Combined, &sent);
        let text = String::from_utf8(out).unwrap();
        let names: Vec<_> = text.lines().map(|line| line.split('=').next().unwrap()).collect();
        let expected = [
            "MESSAGE",
            "PRIORITY",
            "SYSLOG_IDENTIFIER",
            "WEIR_REMOTE",
            "WEIR_PEER",
            "WEIR_USER",
            "WEIR_REQUEST",
            "WEIR_STATUS",
            "WEIR_BYTES",
            "WEIR_DURATION_US",
            "WEIR_USER_AGENT",
            "",
        ];
        assert_eq!(names, expected);
        assert!(text.contains("\nWEIR_REQUEST=GET / HTTP/1.1\nWEIR_STATUS=200\n"));
        assert!(text.ends_with("\n\n") && text.contains("WEIR_USER=a\\x0aWEIR_STATUS=500\n"));
    }

    #[test]
    fn a_field_of_a_datagram_is_cut_by_what_is_made_of_it() {
        let cut_to = |byte: u8, length: usize| {
            let mut record = record(b"", &vec![byte; length]);
            record.cut();
            let cut = record.request.user_agent.unwrap();
            assert_eq!(cut.ends_with(CUT.as_bytes()), cut.len() != length);
            cut.len()
        };
        let (max, cut) = (FIELD_BYTES_MAX, CUT.len());
        assert_eq!(cut_to(b'a', max), max);
        assert_eq!(cut_to(b'a', max + 1), max + cut);
        assert_eq!(cut_to(b'\xff', max), max / ESCAPED_BYTES_MAX + cut);
        assert_eq!(cut_to(b'\xff', max / ESCAPED_BYTES_MAX), max / ESCAPED_BYTES_MAX);
        for byte in 0..=255 {
            let mut record = record(&vec![byte; max], &vec![byte; max]);
            record.cut();
            let longest = 2 * (max + cut) + 1_000;
            for format in [LogFormat::Combined, LogFormat::Json] {
                assert!(written(&record, &format).len() <= longest, "{byte}");
            }
        }
    }

    #[test]
    fn a_client_that_a_proxy_does_not_tell_of_has_no_address() {
        let request = LoggedRequest::of_unread(b"GET", true);
        let record = Record { request, ..record(b"", b"") };
        assert!(written(&record, &LogFormat::Combined).starts_with("- - - ["));
        let json = written(&record, &LogFormat::Json);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["remote"], serde_json::Value::Null);
        let mut out = Vec::new();
        let time = TimeText::of(0);
        let sent = ReplyEnd { sent_bytes: 107, time: &time, unix_ns: 0, now_ns: 2_501_000 };
        record.write_journal(&mut out, &LogFormat::Combined, &sent);
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("WEIR_REMOTE") && text.contains("\nWEIR_PEER=::1\n"), "{text}");
    }

    #[test]
    fn a_json_line_is_json() {
        let line = written(&record(b"GET / HTTP/1.1", b"a\"b\n"), &LogFormat::Json);
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
        let line = written(&record("GET /é".as_bytes(), INTERPRETED.as_bytes()), &LogFormat::Json);
        assert!(line.contains("\\u009b") && line.contains("\\u007f") && line.contains("\\u2028"));
        assert!(!line.trim_end().chars().any(escape::is_control_or_direction), "{line:?}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["user_agent"], INTERPRETED);
        assert_eq!(value["request"], "GET /é");
        let line = written(&record(b"GET /\xff\xc2", b"\xed\xa0\x80"), &LogFormat::Json);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["request"], "GET /\u{fffd}\u{fffd}", "bytes that are no UTF-8");
    }

    #[test]
    fn an_invalid_request_is_logged_by_its_first_line_as_far_as_received() {
        let shown = |bytes: &[u8]| {
            let request = LoggedRequest::of_unread(bytes, false);
            (String::from_utf8_lossy(&request.line).into_owned(), request.is_cut)
        };
        assert_eq!(shown(b"GET / HTTP/9.9\r\nHost: a\r\n"), ("GET / HTTP/9.9".into(), false));
        assert_eq!(shown(b"\r\n\nGE"), ("GE".into(), false));
        assert_eq!(shown(b"GET /a\rb HTTP/1.1\n"), ("GET /a\rb HTTP/1.1".into(), false));
        assert_eq!(shown(b"\r\n"), (String::new(), false));
        assert_eq!(shown(&[b'x'; UNREAD_BYTES_MAX]), ("x".repeat(UNREAD_BYTES_MAX), false));
        assert_eq!(shown(&[b'x'; UNREAD_BYTES_MAX + 1]), ("x".repeat(UNREAD_BYTES_MAX), true));
        let request = LoggedRequest::of_unread(&[b'\x16'; UNREAD_BYTES_MAX + 1], false);
        let record = Record { request, ..record(b"", b"") };
        assert!(written(&record, &LogFormat::Combined).contains("\\x16\\x16...\" 200 7"));
        assert!(written(&record, &LogFormat::Json).contains("\\u0016\\u0016...\""));
    }
}
