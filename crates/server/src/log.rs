//! The access log: lines are made in the loop, and written by a thread of their own, a batch at a
//! time. A loop never waits for the disk: when the writer cannot keep up, lines are dropped and
//! counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_http1::{Request, imf_date};

use crate::config::{Error, LogFormat, LogTarget};

/// A batch goes to the writer when it is this large, or this old.
const BATCH_BYTES: usize = 32 << 10;
const BATCH_AGE_NS: u64 = 1_000_000_000;

/// How long the end waits for the writer.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// The writer says no more than one thing in this time.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Batches waiting for the writer before lines are dropped.
const BATCHES_WAITING: usize = 64;

/// What a line says of one request; the rest is known when its reply has gone out.
#[derive(Debug)]
pub(crate) struct Record {
    status: u16,
    peer: SocketAddr,
    began_ns: u64,
    body_start: u64,
    body_bytes: u64,
    request_line: Vec<u8>,
    referer: Option<Vec<u8>>,
    user_agent: Option<Vec<u8>>,
}

impl Record {
    /// `body_start`: bytes of the connection's output that precede the body; `body_bytes`: its own.
    pub(crate) fn new(
        status: u16,
        peer: SocketAddr,
        began_ns: u64,
        body_start: u64,
        body_bytes: u64,
        request: Option<&Request<'_>>,
    ) -> Self {
        let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        Self {
            status,
            peer,
            began_ns,
            body_start,
            body_bytes,
            request_line: request.map_or_else(Vec::new, |request| request.request_line.to_vec()),
            referer: owned(request.and_then(|request| request.referer)),
            user_agent: owned(request.and_then(|request| request.user_agent)),
        }
    }
}

/// A loop's end of the log.
#[derive(Debug)]
pub(crate) struct LogBuffer {
    format: LogFormat,
    writer: SyncSender<Message>,
    lines: Vec<u8>,
    line_count: u64,
    since_ns: u64,
    handed_over: u64,
    lost: u64,
    lost_in_writer: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    /// Lines, and how many.
    Lines(Vec<u8>, u64),
    Reopen,
}

impl LogBuffer {
    /// Makes the lines of an output of which `sent_bytes` have gone out, and empties `records`.
    pub(crate) fn write(
        &mut self,
        records: &mut Vec<Record>,
        sent_bytes: u64,
        unix_ns: u64,
        now_ns: u64,
    ) {
        if self.lines.is_empty() {
            self.since_ns = now_ns;
        }
        for record in records.drain(..) {
            let body_sent = sent_bytes.saturating_sub(record.body_start).min(record.body_bytes);
            let duration_ns = now_ns.saturating_sub(record.began_ns);
            match self.format {
                LogFormat::Combined => combined(&mut self.lines, &record, body_sent, unix_ns),
                LogFormat::Json => json(&mut self.lines, &record, body_sent, unix_ns, duration_ns),
            }
            self.line_count += 1;
        }
        if self.lines.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Hands over lines that have waited long enough. Call it now and then.
    pub(crate) fn flush_if_old(&mut self, now_ns: u64) {
        if self.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.flush();
        }
    }

    /// When lines that wait now are to be handed over.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        (!self.lines.is_empty()).then_some(self.since_ns + BATCH_AGE_NS)
    }

    /// Hands over what there is.
    pub(crate) fn flush(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let count = std::mem::take(&mut self.line_count);
        match self.writer.try_send(Message::Lines(lines, count)) {
            Ok(()) => self.handed_over += count,
            Err(_) => self.lost += count,
        }
    }

    /// Lines handed over, and lines lost, since the last time. What the writer lost is told to the
    /// first loop that asks.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        let lost = std::mem::take(&mut self.lost) + self.lost_in_writer.swap(0, Ordering::Relaxed);
        (std::mem::take(&mut self.handed_over), lost)
    }
}

/// The writer's thread. It ends once nobody can hand over any more, with everything written.
#[derive(Debug)]
pub(crate) struct LogWriter {
    messages: SyncSender<Message>,
    format: LogFormat,
    lost: Arc<AtomicU64>,
    ended: Receiver<()>,
}

impl LogWriter {
    /// Opens the log, so that a wrong path is known before the first request.
    pub(crate) fn start(
        target: LogTarget,
        format: LogFormat,
        tell: fn(&str),
    ) -> Result<Self, Error> {
        let file = open(&target).map_err(|error| fail(&error))?;
        let (messages, inbox) = sync_channel(BATCHES_WAITING);
        let (end, ended) = sync_channel(0);
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer { target, file, lost: Arc::clone(&lost), told_at: None, tell };
        std::thread::Builder::new()
            .name("weir-log".into())
            .spawn(move || {
                writer.run(&inbox);
                drop(end);
            })
            .map_err(|error| fail(&error))?;
        Ok(Self { messages, format, lost, ended })
    }

    /// A loop's end.
    pub(crate) fn buffer(&self) -> LogBuffer {
        LogBuffer {
            format: self.format,
            writer: self.messages.clone(),
            lines: Vec::new(),
            line_count: 0,
            since_ns: 0,
            handed_over: 0,
            lost: 0,
            lost_in_writer: Arc::clone(&self.lost),
        }
    }

    /// Opens the file again: it was moved away. False when the writer is too busy to be told.
    pub(crate) fn reopen(&self) -> bool {
        self.messages.try_send(Message::Reopen).is_ok()
    }

    /// Waits a while for what is left to be written. A log that nobody reads holds up no stop.
    pub(crate) fn stop(self) {
        drop(self.messages);
        let _ = self.ended.recv_timeout(STOP_WAIT);
    }
}

/// Finds out whether the log can be opened, for those who will write it in other processes.
pub(crate) fn check(target: &LogTarget) -> Result<(), Error> {
    open(target).map(drop).map_err(|error| fail(&error))
}

fn fail(why: &dyn std::fmt::Display) -> Error {
    Error(format!("cannot open the access log: {why}"))
}

fn open(target: &LogTarget) -> io::Result<Box<dyn Write + Send>> {
    let append = |path: &Path| -> io::Result<File> {
        let error = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
        OpenOptions::new().create(true).append(true).open(path).map_err(error)
    };
    Ok(match target {
        LogTarget::Stdout => Box::new(io::stdout()),
        LogTarget::File(path) => Box::new(append(path)?),
    })
}

/// What the writer's thread owns.
struct Writer {
    target: LogTarget,
    file: Box<dyn Write + Send>,
    lost: Arc<AtomicU64>,
    told_at: Option<Instant>,
    tell: fn(&str),
}

impl Writer {
    fn run(mut self, inbox: &Receiver<Message>) {
        while let Ok(message) = inbox.recv() {
            match message {
                Message::Lines(lines, count) => {
                    let written = self.file.write_all(&lines).and_then(|()| self.file.flush());
                    if let Err(error) = written {
                        self.lost.fetch_add(count, Ordering::Relaxed);
                        self.tell(&format!("access-log lines lost: {error}"));
                    }
                }
                Message::Reopen => match open(&self.target) {
                    Ok(again) => self.file = again,
                    Err(error) => self.tell(&format!("cannot reopen the access log: {error}")),
                },
            }
        }
    }

    fn tell(&mut self, what: &str) {
        if self.told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            self.told_at = Some(Instant::now());
            (self.tell)(what);
        }
    }
}

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// `host - - [day/month/year:time +0000] "request" status bytes "referer" "user agent"`.
fn combined(out: &mut Vec<u8>, record: &Record, body_sent: u64, unix_ns: u64) {
    // Sun, 06 Nov 1994 08:49:37 GMT
    let date = imf_date(unix_ns / 1_000_000_000);
    // Writing into a Vec cannot fail.
    let _ = write!(out, "{} - - [", record.peer.ip());
    for (part, after) in [(5..7, b'/'), (8..11, b'/'), (12..16, b':'), (17..25, b' ')] {
        out.extend_from_slice(&date[part]);
        out.push(after);
    }
    out.extend_from_slice(b"+0000] ");
    quoted(out, Some(&record.request_line).filter(|line| !line.is_empty()));
    let _ = write!(out, " {} {body_sent} ", record.status);
    quoted(out, record.referer.as_ref());
    out.push(b' ');
    quoted(out, record.user_agent.as_ref());
    out.push(b'\n');
}

/// Quotes a client's bytes so that no line break, quote or control can leave the field.
fn quoted(out: &mut Vec<u8>, value: Option<&Vec<u8>>) {
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
    out.push(b'"');
}

fn json(out: &mut Vec<u8>, record: &Record, body_sent: u64, unix_ns: u64, duration_ns: u64) {
    let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
    let line = json!({
        "time": rfc3339(unix_ns),
        "remote": record.peer.ip().to_string(),
        "request": text(&record.request_line),
        "status": record.status,
        "bytes": body_sent,
        "duration_us": duration_ns / 1_000,
        "referer": record.referer.as_ref().map(text),
        "user_agent": record.user_agent.as_ref().map(text),
    });
    let _ = writeln!(out, "{line}");
}

/// `1994-11-06T08:49:37.123Z`.
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

    fn record(request_line: &[u8]) -> Record {
        Record {
            status: 200,
            peer: "[::1]:80".parse().unwrap(),
            began_ns: 0,
            body_start: 100,
            body_bytes: 50,
            request_line: request_line.to_vec(),
            referer: None,
            user_agent: Some(b"a\"b\n\xff".to_vec()),
        }
    }

    #[test]
    fn a_combined_line_is_one_line_whatever_the_client_sent() {
        let mut out = Vec::new();
        combined(&mut out, &record(b"GET / HTTP/1.1"), 7, 784_111_777_000_000_000);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "::1 - - [06/Nov/1994:08:49:37 +0000] \"GET / HTTP/1.1\" 200 7 \"-\" \
             \"a\\\"b\\x0a\\xff\"\n"
        );
    }

    #[test]
    fn a_json_line_is_json() {
        let mut out = Vec::new();
        json(&mut out, &record(b"GET / HTTP/1.1"), 7, 784_111_777_123_456_789, 2_500_000);
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["time"], "1994-11-06T08:49:37.123Z");
        assert_eq!(value["duration_us"], 2500);
        assert_eq!(value["referer"], serde_json::Value::Null);
    }
}
