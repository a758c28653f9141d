//! The writer of the error log: a thread, which opens and reopens the destination and gives each
//! message the destination's form.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use super::escape;
use super::record::rfc3339;
use super::sink::Sink;
use super::{TELL_EVERY, untold};
use crate::config::{Error, ErrorLog, LogEntry, LogLevel, ToWriter};
use crate::sandbox::{Confinement, Task};

/// Maximum number of messages that wait for the writer before others are lost.
const MESSAGES_WAITING: usize = 256;

/// Name of this log in a message.
pub(crate) const ERRORS: &str = "error log";

/// Facility `daemon` (RFC 5424 section 6.2.1).
const FACILITY: u8 = 3;

/// The thread that writes an error log.
#[derive(Debug)]
pub(crate) struct ErrorWriter {
    log: ErrorLog,
    ended: Receiver<()>,
    stop_wait: Duration,
}

impl ErrorWriter {
    /// Opens the log and starts its writer, so that a wrong path is known before the first request.
    ///
    /// # Errors
    /// A message: the log cannot be opened, or there is no thread for it, or that thread cannot be
    /// confined.
    pub(crate) fn start(log: &ErrorLog, confinement: &Confinement) -> Result<Self, Error> {
        let sink = open(log)?;
        let stop_wait = sink.stop_wait();
        let (messages, inbox) = sync_channel(MESSAGES_WAITING);
        let (end, ended) = sync_channel(0);
        let mut writer = Writer { log: log.clone(), sink, lost: 0, last_complaint: None };
        let run = move || {
            writer.run(&inbox);
            drop(end);
        };
        confinement.spawn(Task::Log, "weir-errors", run)?.map_err(|error| fail(&error))?;
        log.write_by(messages);
        Ok(Self { log: log.clone(), ended, stop_wait })
    }

    /// Has the messages that remain written, for a limited time. Later ones go to the terminal.
    pub(crate) fn stop(self) {
        self.log.close();
        let _ = self.ended.recv_timeout(self.stop_wait);
    }
}

/// Has each message written at once, on behalf of a process that has no other thread.
///
/// # Errors
/// A message: the log cannot be opened.
pub(crate) fn write_at_once(log: &ErrorLog) -> Result<(), Error> {
    let mut sink = open(log)?;
    log.write_at_once(Box::new(move |entry| {
        // That process has others to look after: it waits for no reader.
        if sink.has_room() {
            drop(write(&mut sink, entry));
        }
    }));
    Ok(())
}

fn open(log: &ErrorLog) -> Result<Sink, Error> {
    Sink::open(&log.options().target).map_err(|error| fail(&error))
}

fn fail(why: &dyn std::fmt::Display) -> Error {
    Error(format!("cannot open the {ERRORS}: {why}"))
}

/// State of the writer's thread.
struct Writer {
    log: ErrorLog,
    sink: Sink,
    /// Messages that could not be written, since the last one that was.
    lost: u64,
    last_complaint: Option<Instant>,
}

impl Writer {
    fn run(&mut self, inbox: &Receiver<ToWriter>) {
        while let Ok(message) = inbox.recv() {
            self.lost += self.log.take_lost();
            match message {
                ToWriter::Entry(entry) => self.write(&entry),
                ToWriter::Reopen(tell) => {
                    if let Some(why) = untold(ERRORS, tell, self.reopen()) {
                        self.write(&LogEntry::now(LogLevel::Error, why));
                    }
                }
            }
        }
    }

    fn write(&mut self, entry: &LogEntry) {
        if self.lost > 0 {
            let text = format!("{} messages of this log were lost", self.lost);
            let about = LogEntry { level: LogLevel::Warn, unix_ns: entry.unix_ns, text };
            if write(&mut self.sink, &about).is_ok() {
                self.lost = 0;
            }
        }
        let Err(error) = write(&mut self.sink, entry) else { return };
        self.lost += 1;
        self.complain(&error);
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.sink.reopen(&self.log.options().target)
    }

    /// Tells the terminal, since the log itself cannot be told, once per second at most.
    fn complain(&mut self, error: &io::Error) {
        if self.last_complaint.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            self.last_complaint = Some(Instant::now());
            (self.log.terminal())(&format!("messages of the error log lost: {error}"));
        }
    }
}

/// Writes a message in the form of its destination.
fn write(sink: &mut Sink, entry: &LogEntry) -> io::Result<()> {
    let mut out = Vec::new();
    match sink {
        Sink::Stream(lines) => {
            write_line(&mut out, entry);
            lines.write(&out).1
        }
        Sink::Syslog { logger, host } => {
            write_syslog(&mut out, entry, host);
            logger.send(&out)
        }
        Sink::Journal(logger) => {
            write_journal(&mut out, entry);
            logger.send(&out)
        }
    }
}

/// `1994-11-06T08:49:37.123Z warn weir[123]: text`.
fn write_line(out: &mut Vec<u8>, entry: &LogEntry) {
    let (time, level) = (rfc3339(entry.unix_ns), entry.level.name());
    // Writing into a Vec cannot fail.
    let _ = write!(out, "{time} {level} weir[{}]: ", std::process::id());
    escape::json(out, &entry.text);
    out.push(b'\n');
}

/// A message of RFC 5424, whose identifier is `error`.
fn write_syslog(out: &mut Vec<u8>, entry: &LogEntry, host: &str) {
    let priority = FACILITY * 8 + entry.level.severity();
    let time = rfc3339(entry.unix_ns);
    let _ = write!(out, "<{priority}>1 {time} {host} weir {} error - ", std::process::id());
    escape::json(out, &entry.text);
}

/// An entry of the journal (systemd.journal-fields(7)).
fn write_journal(out: &mut Vec<u8>, entry: &LogEntry) {
    out.extend_from_slice(b"MESSAGE=");
    escape::json(out, &entry.text);
    let severity = entry.level.severity();
    let _ = write!(out, "\nPRIORITY={severity}\nSYSLOG_IDENTIFIER=weir\nWEIR_LOG=error\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_and_has_its_level_in_every_form() {
        let text = "child\n1\u{1b}[2J has \u{202e}died".into();
        let unix_ns = 784_111_777_123_456_789;
        let entry = LogEntry { level: LogLevel::Warn, unix_ns, text };
        let form = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            write(&mut out);
            String::from_utf8(out).unwrap()
        };
        let pid = std::process::id();
        let said = "child\\u000a1\\u001b[2J has \\u202edied";
        assert_eq!(
            form(&|out| write_line(out, &entry)),
            format!("1994-11-06T08:49:37.123Z warn weir[{pid}]: {said}\n")
        );
        assert_eq!(
            form(&|out| write_syslog(out, &entry, "host")),
            format!("<28>1 1994-11-06T08:49:37.123Z host weir {pid} error - {said}")
        );
        assert_eq!(
            form(&|out| write_journal(out, &entry)),
            format!("MESSAGE={said}\nPRIORITY=4\nSYSLOG_IDENTIFIER=weir\nWEIR_LOG=error\n")
        );
    }
}
