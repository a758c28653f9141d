//! The error log: what a running server tells its operator, each message with a level. This is the
//! handle that every thread has. Until a writer is there, messages go to the operator's terminal;
//! then they are handed to it, and no loop ever waits for the log.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_sys::process::unix_ns;

use super::LogTarget;

/// Time within which so many refusals are written.
const SAMPLE_TIME: Duration = Duration::from_secs(1);

/// Level of a message, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something has failed, and stays so until somebody acts.
    Error,
    /// Something is not as it should be, and the server goes on.
    Warn,
    /// Something of note has happened: a reload, an overload, a refusal.
    Notice,
    /// An event that happens anyway: a start, a stop.
    Info,
}

impl LogLevel {
    /// All of them, the gravest first.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Notice, Self::Info];

    /// Returns its name, as in a line and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Notice => "notice",
            Self::Info => "info",
        }
    }

    /// Returns its severity (RFC 5424 section 6.2.1), which is journald's priority too.
    pub(crate) fn severity(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warn => 4,
            Self::Notice => 5,
            Self::Info => 6,
        }
    }
}

/// Where the error log goes, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorLogOptions {
    /// Its destination.
    pub target: LogTarget,
    /// The least grave level that is written.
    pub level: LogLevel,
    /// Refusals that are written in a second at most; 0: none is.
    pub refusals: u32,
}

/// A message.
#[derive(Debug)]
pub(crate) struct LogEntry {
    pub level: LogLevel,
    /// Time of the event, nanoseconds since 1970.
    pub unix_ns: u64,
    pub text: String,
}

impl LogEntry {
    /// Creates the message of an event of this moment.
    pub(crate) fn now(level: LogLevel, text: String) -> Self {
        Self { level, unix_ns: unix_ns(), text }
    }
}

/// Message to the thread that writes the log.
#[derive(Debug)]
pub(crate) enum ToWriter {
    Entry(LogEntry),
    /// To open the log again, and to tell this of the outcome: an error is why it goes on where it
    /// was, and stands in the log itself if nobody is told.
    Reopen(Option<SyncSender<Result<(), String>>>),
}

/// Way of a message.
enum Output {
    /// To the operator's terminal, before there is a log and after its end.
    Terminal,
    /// To a thread.
    Writer(SyncSender<ToWriter>),
    /// Written at once, by a process that has one thread and may fork.
    Direct(Box<dyn FnMut(&LogEntry) + Send>),
}

/// The error log of a server: a handle.
#[derive(Clone)]
pub struct ErrorLog(Arc<Inner>);

struct Inner {
    options: ErrorLogOptions,
    terminal: fn(&str),
    output: Mutex<Output>,
    /// Messages that found the writer's queue full.
    lost: AtomicU64,
    refusals: Mutex<Window>,
}

/// Refusals in the present second.
#[derive(Debug)]
struct Window {
    began: Option<Instant>,
    written: u32,
    /// Refusals that were not written since the last one that was.
    unwritten: u64,
}

impl fmt::Debug for ErrorLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its state is left out: two configurations are compared by this.
        self.0.options.fmt(f)
    }
}

impl ErrorLog {
    /// Creates a log that is not open yet. `terminal`: shows a sentence to the operator.
    #[must_use]
    pub fn new(options: ErrorLogOptions, terminal: fn(&str)) -> Self {
        Self(Arc::new(Inner {
            options,
            terminal,
            output: Mutex::new(Output::Terminal),
            lost: AtomicU64::new(0),
            refusals: Mutex::new(Window { began: None, written: 0, unwritten: 0 }),
        }))
    }

    /// Tells the operator of a failure that stays until somebody acts.
    pub fn error(&self, text: &str) {
        self.tell(LogLevel::Error, text);
    }

    /// Tells the operator of something that is not as it should be.
    pub fn warn(&self, text: &str) {
        self.tell(LogLevel::Warn, text);
    }

    /// Tells the operator of something of note.
    pub fn notice(&self, text: &str) {
        self.tell(LogLevel::Notice, text);
    }

    /// Tells the operator of something that happens anyway.
    pub fn info(&self, text: &str) {
        self.tell(LogLevel::Info, text);
    }

    /// Tells the operator something. Never waits for the log, once it is open.
    pub fn tell(&self, level: LogLevel, text: &str) {
        if !self.has(level) {
            return;
        }
        let entry = || LogEntry::now(level, text.to_owned());
        match &mut *self.output() {
            Output::Terminal => (self.0.terminal)(text),
            Output::Writer(writer) => {
                if writer.try_send(ToWriter::Entry(entry())).is_err() {
                    self.0.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            Output::Direct(write) => write(&entry()),
        }
    }

    /// Has the log, which was moved away, opened again. `tell`: what is told of the outcome.
    /// Returns false if its writer is stuck, or there is none.
    pub(crate) fn reopen(&self, tell: Option<SyncSender<Result<(), String>>>) -> bool {
        match &*self.output() {
            Output::Writer(writer) => writer.try_send(ToWriter::Reopen(tell)).is_ok(),
            Output::Terminal | Output::Direct(_) => false,
        }
    }

    /// Hands all messages over to a writer's thread from now on.
    pub(crate) fn write_by(&self, writer: SyncSender<ToWriter>) {
        *self.output() = Output::Writer(writer);
    }

    /// Has all messages written at once from now on: in a process without another thread.
    pub(crate) fn write_at_once(&self, write: Box<dyn FnMut(&LogEntry) + Send>) {
        *self.output() = Output::Direct(write);
    }

    /// Shows all messages on the terminal again. The writer ends when it has written the others.
    pub(crate) fn close(&self) {
        *self.output() = Output::Terminal;
    }

    /// Returns its options.
    pub(crate) fn options(&self) -> &ErrorLogOptions {
        &self.0.options
    }

    /// Returns what shows a sentence on the terminal.
    pub(crate) fn terminal(&self) -> fn(&str) {
        self.0.terminal
    }

    /// Returns the messages lost since the last call.
    pub(crate) fn take_lost(&self) -> u64 {
        match self.0.lost.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.0.lost.swap(0, Ordering::Relaxed),
        }
    }

    /// Returns whether refusals are written at all.
    pub(crate) fn has_refusals(&self) -> bool {
        self.0.options.refusals > 0 && self.has(LogLevel::Notice)
    }

    /// Asks whether another refusal may be written. `unwritten`: refusals that the caller has not
    /// written, besides this one; the log takes them over.
    ///
    /// # Errors
    /// It may not, for this time.
    pub(crate) fn sample_refusal(&self, now: Instant, unwritten: u64) -> Result<u64, Duration> {
        let mut window = self.0.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = window.began.map(|began| now.saturating_duration_since(began));
        let left = elapsed.and_then(|elapsed| SAMPLE_TIME.checked_sub(elapsed));
        if left.is_none_or(|left| left.is_zero()) {
            (window.began, window.written) = (Some(now), 0);
        }
        window.unwritten += unwritten;
        if window.written < self.0.options.refusals {
            window.written += 1;
            return Ok(std::mem::take(&mut window.unwritten));
        }
        window.unwritten += 1;
        Err(left.unwrap_or(SAMPLE_TIME))
    }

    fn has(&self, level: LogLevel) -> bool {
        level <= self.0.options.level
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        // No code that holds the lock can leave the output half changed.
        self.0.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn log(level: LogLevel, refusals: u32) -> ErrorLog {
        let options = ErrorLogOptions { target: LogTarget::Stderr, level, refusals };
        ErrorLog::new(options, |_| {})
    }

    #[test]
    fn levels_below_the_one_asked_for_are_left_out_and_a_full_queue_loses_what_it_counts() {
        let log = log(LogLevel::Warn, 0);
        let (writer, inbox) = sync_channel(1);
        log.write_by(writer);
        log.notice("a");
        log.warn("b");
        log.error("c");
        log.error("d");
        assert_eq!((log.take_lost(), log.take_lost()), (2, 0));
        let Ok(ToWriter::Entry(entry)) = inbox.try_recv() else { unreachable!("nothing came") };
        assert_eq!((entry.level, &entry.text[..]), (LogLevel::Warn, "b"));
        log.close();
        assert!(inbox.recv().is_err(), "the writer has nothing more to wait for");
    }

    #[test]
    fn so_many_refusals_are_written_in_a_second_and_the_others_are_counted() {
        let log = log(LogLevel::Notice, 2);
        let begin = Instant::now();
        let at =
            |ms: u64, unwritten| log.sample_refusal(begin + Duration::from_millis(ms), unwritten);
        assert_eq!(at(0, 0), Ok(0));
        assert_eq!(at(1, 0), Ok(0));
        assert_eq!(at(400, 0), Err(Duration::from_millis(600)));
        assert_eq!(at(900, 10), Err(Duration::from_millis(100)));
        assert_eq!(at(1000, 5), Ok(17));
        assert_eq!(at(1001, 0), Ok(0));
    }

    #[test]
    fn refusals_are_notices() {
        assert!(log(LogLevel::Notice, 1).has_refusals() && log(LogLevel::Info, 1).has_refusals());
        assert!(!log(LogLevel::Warn, 1).has_refusals() && !log(LogLevel::Notice, 0).has_refusals());
    }
}
