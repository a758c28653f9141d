//! Replay of access logs: Common and Combined lines, as written by Apache, nginx and `weir serve`.
//!
//! A log has a resolution of one second. The requests of a second are spread evenly over it, in the
//! order of the file: the k-th (0-based) of m starts k/m after the second began. Lines are sorted
//! by their second, since servers log a request when it ends, with the time at which it began. The
//! log is given as bytes; the caller reads the file.

use std::fmt;

use super::at_line;
use super::built::{BuiltWorkload, RequestInterner};
use super::sessions::SessionTable;
use super::target::parse_target;
use crate::schedule::ArrivalLaw;
use crate::session::{RequestId, RequestTable, RequestTemplate, SessionStep};

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// A log, converted to a run.
#[derive(Clone)]
pub struct Replay {
    /// Starts: the first one at 0, all divided by the speed.
    pub arrivals: ArrivalLaw,
    /// Workload with a connection for each request of the log.
    pub built: BuiltWorkload,
    /// Number of lines read, skipped and altered.
    pub counts: LogCounts,
}

impl fmt::Debug for Replay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Replay").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// Line counts of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Log lines in total.
    pub total: u64,
    /// Lines among them that are skipped: the logged request was not HTTP, or was a CONNECT.
    pub skipped: u64,
    /// Lines among them replayed with an empty body, because the log does not contain the original
    /// one.
    pub emptied: u64,
}

/// Parses a log, named `name` in errors, and plans it at `speed` times the original speed. `close`:
/// each request asks the server to close.
///
/// # Errors
/// A line that is not a log line, with its number; a log without a request; a speed that is not a
/// number above 0.
pub fn parse(
    name: &str,
    log: &[u8],
    speed: f64,
    template: &RequestTemplate,
    close: bool,
) -> Result<Replay, String> {
    if !(speed.is_finite() && speed > 0.0) {
        return Err(format!("{speed} is no speed: it is a number above 0"));
    }
    let mut counts = LogCounts::default();
    let mut interner = RequestInterner::new(template);
    let mut starts = Vec::new();
    for (index, line) in log.split(|&byte| byte == b'\n').enumerate() {
        if !line.trim_ascii().is_empty() {
            let entry = log_entry(line).ok_or_else(|| {
                at_line(name, index + 1, "this is no line of a Common or Combined log")
            })?;
            let request = counts.request(&entry.request, &mut interner);
            let unix_s = entry.unix_s;
            starts.extend(request.map(|request| LoggedRequest { unix_s, request }));
        }
    }
    if starts.is_empty() {
        return Err(format!("{name}: there is no request in it that can be replayed"));
    }
    starts.sort_by_key(|start| start.unix_s);
    Ok(plan(&starts, speed, close, counts, interner.requests))
}

impl LogCounts {
    /// LogCounts a log line, and returns its request.
    fn request(&mut self, line: &[u8], interner: &mut RequestInterner<'_>) -> Option<RequestId> {
        self.total += 1;
        let Some((method, target)) = request_line(line) else {
            self.skipped += 1;
            return None;
        };
        self.emptied += u64::from(!matches!(method, "GET" | "HEAD" | "OPTIONS" | "DELETE"));
        Some(interner.id(method, &target, b""))
    }
}

/// A request that was logged in a second.
struct LoggedRequest {
    unix_s: i64,
    request: RequestId,
}

/// Plans the run; `starts` are ascending.
fn plan(
    starts: &[LoggedRequest],
    speed: f64,
    close: bool,
    counts: LogCounts,
    requests: RequestTable,
) -> Replay {
    let first_s = starts.first().map_or(0, |start| start.unix_s);
    let mut arrivals = Vec::with_capacity(starts.len());
    let mut table = SessionTable::default();
    for second in starts.chunk_by(|one, next| one.unix_s == next.unix_s) {
        for (position, start) in second.iter().enumerate() {
            let within_s = position as f64 / second.len() as f64;
            let start_s = (start.unix_s - first_s) as f64 + within_s;
            arrivals.push((start_s * 1e9 / speed) as u64);
            table.push([SessionStep { request: start.request, think_ns: 0, piped: false }]);
        }
    }
    let workload = table.into_workload(arrivals.len() as u64, close);
    let built = BuiltWorkload { workload, requests };
    Replay { arrivals: ArrivalLaw::Trace(arrivals.into()), built, counts }
}

/// The fields of a log line that matter here.
pub(super) struct LogEntry {
    unix_s: i64,
    /// Request line, unescaped.
    pub(super) request: Vec<u8>,
    /// Status of the reply: three digits, whatever they say.
    pub(super) status: u16,
    /// Length of the reply's body, bytes; `None` if the log has none.
    pub(super) bytes: Option<u64>,
}

/// Parses a line: `%h %l %u [%t] "%r" %>s %b`, with or without more after a space.
pub(super) fn log_entry(line: &[u8]) -> Option<LogEntry> {
    let (client, rest) = split_at(line.trim_ascii_end(), b" [")?;
    // A user's name may have spaces in it.
    if client.split(|&byte| byte == b' ').count() < 3 {
        return None;
    }
    let (time, rest) = split_at(rest, b"] \"")?;
    let (request, rest) = unquote(rest)?;
    let mut fields = rest.strip_prefix(b" ")?.split(|&byte| byte == b' ');
    let number = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    let status = fields.next().filter(|field| field.len() == 3 && number(field))?;
    let status = std::str::from_utf8(status).ok()?.parse().ok()?;
    let bytes = fields.next().filter(|field| *field == b"-" || number(field))?;
    let bytes = std::str::from_utf8(bytes).ok().and_then(|field| field.parse().ok());
    Some(LogEntry { unix_s: unix_s(time)?, request, status, bytes })
}

fn split_at<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(separator.len()).position(|window| window == separator)?;
    Some((text.get(..at)?, text.get(at + separator.len()..)?))
}

/// Returns the text before the closing quote, with `\"`, `\\`, `\xNN` and C's letters unescaped,
/// and the text after it.
fn unquote(mut text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut plain = Vec::new();
    loop {
        let (byte, length) = match text {
            [b'"', rest @ ..] => return Some((plain, rest)),
            [b'\\', b'x', high, low, ..] if hex(*high).is_some() && hex(*low).is_some() => {
                (hex(*high)? << 4 | hex(*low)?, 4)
            }
            [b'\\', escaped, ..] => (letter(*escaped), 2),
            [byte, ..] => (*byte, 1),
            [] => return None,
        };
        plain.push(byte);
        text = text.get(length..)?;
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn letter(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'v' => 0x0b,
        other => other,
    }
}

/// Returns method and target of `METHOD target HTTP/x[.y]`. `None` for anything else, to which a
/// server replies with a 400, and for a CONNECT, which does not request a resource.
pub(super) fn request_line(line: &[u8]) -> Option<(&str, String)> {
    let mut parts = line.split(|&byte| byte == b' ');
    let (method, uri, version) = (parts.next()?, parts.next()?, parts.next()?);
    let token = !method.is_empty() && method.iter().all(|&byte| is_token(byte));
    let http =
        matches!(version.strip_prefix(b"HTTP/")?, [b'0'..=b'9'] | [b'0'..=b'9', b'.', b'0'..=b'9']);
    if !token || !http || parts.next().is_some() || method == b"CONNECT" {
        return None;
    }
    Some((str::from_utf8(method).ok()?, parse_target(uri)?))
}

/// Returns whether a byte may occur in a token (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Parses `10/Oct/2000:13:55:36 -0700`; returns seconds since the epoch.
fn unix_s(time: &[u8]) -> Option<i64> {
    let punctuation = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    if time.len() != 26 || punctuation.iter().any(|&(at, byte)| time.get(at) != Some(&byte)) {
        return None;
    }
    let number = |from: usize, to: usize, max: i64| {
        let digits = time.get(from..to)?;
        digits.iter().all(u8::is_ascii_digit).then_some(())?;
        let value = digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        (value <= max).then_some(value)
    };
    let month = MONTHS.iter().position(|name| Some(*name) == time.get(3..6))? as i64 + 1;
    let day = days(number(7, 11, 9999)?, month, number(0, 2, 31)?);
    // A second of 60 is a leap second.
    let clock_s = number(12, 14, 23)? * 3600 + number(15, 17, 59)? * 60 + number(18, 20, 60)?;
    let offset_s = number(22, 24, 23)? * 3600 + number(24, 26, 59)? * 60;
    match time.get(21)? {
        b'+' => Some(day * 86_400 + clock_s - offset_s),
        b'-' => Some(day * 86_400 + clock_s + offset_s),
        _ => None,
    }
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from
/// March, so that the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workload::fixtures::{filled, targets};

    const COMMON: &str = "127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] \
                          \"GET /apache_pb.gif HTTP/1.0\" 200 2326\n";

    fn parsed(log: &str, speed: f64) -> Result<Replay, String> {
        parse("log", log.as_bytes(), speed, &RequestTemplate::default(), true)
    }

    fn replay(log: &str) -> Replay {
        parsed(log, 1.0).unwrap()
    }

    fn starts(replay: &Replay) -> Vec<u64> {
        let ArrivalLaw::Trace(starts) = &replay.arrivals else { panic!("no trace") };
        starts.to_vec()
    }

    fn asked(replay: &Replay) -> Vec<String> {
        let sessions = filled(&*replay.built.workload, 0..1000);
        sessions.iter().flat_map(|session| targets(&replay.built.requests, session)).collect()
    }

    fn line(time: &str, request: &str) -> String {
        format!("::1 - - [06/Nov/1994:{time} +0000] \"{request}\" 200 7 \"-\" \"a\\\"b\\x0a\"\n")
    }

    #[test]
    fn lines_of_all_three_servers_are_understood() {
        let nginx = "10.0.0.1 - - [10/Oct/2000:20:55:37 +0000] \"GET /n?q=\\x22 HTTP/2.0\" 200 0 \
                     \"http://h/\" \"curl/8\" \"-\"\n";
        let spaced = COMMON.replace("frank", "frank n furter").replace("2326", "-");
        let replay = replay(&format!("{COMMON}{spaced}\r\n{nginx}"));
        assert_eq!(asked(&replay), ["/apache_pb.gif", "/apache_pb.gif", "/n?q=\""]);
        assert_eq!(starts(&replay), [0, 500_000_000, 1_000_000_000]);
        assert_eq!(replay.built.requests.len(), 2);
        assert_eq!(replay.counts, LogCounts { total: 3, skipped: 0, emptied: 0 });
        assert!(filled(&*replay.built.workload, 0..1)[0].last_closes);
    }

    #[test]
    fn a_second_s_requests_are_spread_over_it_in_their_order() {
        let log: String = [
            line("08:49:37", "GET /a HTTP/1.1"),
            line("08:49:39", "GET /d HTTP/1.1"),
            line("08:49:37", "GET /b HTTP/1.1"),
            line("08:49:37", "GET /a HTTP/1.1"),
            line("08:49:37", "GET /c HTTP/1.1"),
        ]
        .concat();
        let once = replay(&log);
        assert_eq!(asked(&once), ["/a", "/b", "/a", "/c", "/d"]);
        let ms = |starts: &[u64]| starts.iter().map(|ns| ns / 1_000_000).collect::<Vec<_>>();
        assert_eq!(ms(&starts(&once)), [0, 250, 500, 750, 2000]);
        assert_eq!(ms(&starts(&parsed(&log, 2.0).unwrap())), [0, 125, 250, 375, 1000]);
    }

    #[test]
    fn lines_without_a_request_are_counted_and_skipped() {
        let requests = [
            "-",
            "",
            "\\x16\\x03\\x01",
            "GET /",
            "GET  / HTTP/1.1",
            "GET / HTTP/1.1 ",
            "GET /a b HTTP/1.1",
            "GET x HTTP/1.1",
            "GET /\\x0d\\x0aX:\\x20y HTTP/1.1",
            "OPTIONS / RTSP/1.0",
            "G\\\"T / HTTP/1.1",
            "CONNECT h:443 HTTP/1.1",
            "GET /fine HTTP/1.1",
        ];
        let log: String = requests.iter().map(|request| line("08:49:37", request)).collect();
        let replay = replay(&log);
        assert_eq!(replay.counts, LogCounts { total: 13, skipped: 12, emptied: 0 });
        assert_eq!(asked(&replay), ["/fine"]);
    }

    #[test]
    fn methods_are_replayed_and_bodies_are_not() {
        let methods = ["GET", "HEAD", "OPTIONS", "DELETE", "POST", "PUT"];
        let log: String =
            methods.map(|method| line("08:49:37", &format!("{method} /\\xe9 HTTP/1.1"))).concat();
        let replay = replay(&log);
        assert_eq!(replay.counts, LogCounts { total: 6, skipped: 0, emptied: 2 });
        assert_eq!(asked(&replay), ["/%E9"; 6]);
        let sessions = filled(&*replay.built.workload, 0..6);
        let sent = |index: usize| {
            let request = replay.built.requests.get(sessions[index].steps[0].request).unwrap();
            String::from_utf8(request.keep.to_vec()).unwrap()
        };
        assert!(sent(3).starts_with("DELETE /%E9 ") && !sent(3).contains("Content-Length"));
        assert!(sent(4).starts_with("POST /%E9 ") && sent(4).contains("Content-Length: 0\r\n"));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for wrong in [
            "hello",
            "h - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1",
            "h - - [10/Okt/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1",
            "h - - [10/Oct/2000:24:55:36 -0700] \"GET / HTTP/1.0\" 200 1",
            "h - - [10/Oct/2000:13:55:36 0700] \"GET / HTTP/1.0\" 200 1",
            "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\\\" 200 1",
            "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 20 1",
            "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200",
            "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1x",
        ] {
            let log = format!("{COMMON}\n{wrong}\n");
            let error = parsed(&log, 1.0).unwrap_err();
            assert!(error.starts_with("log:3: this is no line"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_log_without_requests_and_a_speed_of_nothing_are_refused() {
        for log in [String::new(), line("08:49:37", "-")] {
            let error = parsed(&log, 1.0).unwrap_err();
            assert!(error.contains("no request in it"), "{error}");
        }
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(parsed(COMMON, speed).is_err());
        }
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (time, expected) in [
            ("01/Jan/1970:00:00:00 +0000", 0),
            ("06/Nov/1994:08:49:37 +0000", 784_111_777),
            ("06/Nov/1994:09:49:37 +0100", 784_111_777),
            ("29/Feb/2000:00:00:00 +0000", 951_782_400),
            ("10/Oct/2000:13:55:36 -0700", 971_211_336),
            ("31/Dec/9999:23:59:59 +0000", 253_402_300_799),
        ] {
            assert_eq!(unix_s(time.as_bytes()), Some(expected));
        }
    }

    proptest! {
        #[test]
        fn no_log_makes_the_parser_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            request in "[\\PC\\\\\"x0-9a-f ]{0,20}",
            time in "[0-9]{2}/(Jan|Dec)/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}",
            speed in any::<f64>(),
        ) {
            let _ = parse("log", &bytes, speed, &RequestTemplate::default(), true);
            let _ = log_entry(&bytes);
            let log = format!("h - - [{time}] \"{request}\" 200 1\n{COMMON}");
            if let Ok(replay) = parsed(&log, speed) {
                let starts = starts(&replay);
                prop_assert!(starts.is_sorted());
                prop_assert_eq!(starts.len() as u64, replay.counts.total - replay.counts.skipped);
            }
        }
    }
}
