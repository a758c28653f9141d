//! The access log: lines are made in the loop, and written by a thread of their own, a batch at a
//! time. A loop never waits for the disk: when the writer cannot keep up, lines are dropped and
//! counted. The format of a line is in [`record`].

pub(crate) mod errors;
mod escape;
mod record;
mod sink;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use weir_sys::process::unix_ns;

use crate::config::{AccessLog, Error, ErrorLog, LogTarget};
use crate::sandbox::{Confinement, Task};

pub(crate) use record::{LoggedRequest, Record};
use record::{ReplyEnd, TimeText, rfc3339};
pub(crate) use sink::Sink;

/// Size, bytes, or age, nanoseconds, at which a batch is handed to the writer.
const BATCH_BYTES: usize = 32 << 10;
const BATCH_AGE_NS: u64 = 1_000_000_000;

/// Maximum wait for the writers to open the logs again.
pub(crate) const REOPEN_WAIT: Duration = Duration::from_secs(2);

/// Minimum time between two messages of the writer to the operator.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of batches that wait for the writer before lines are dropped.
const BATCHES_WAITING: usize = 64;

/// Outcome of opening a log again, which was moved away. An error is why it goes on where it was.
pub(crate) type Reopened = Result<(), String>;

/// A loop's side of the log.
#[derive(Debug)]
pub(crate) struct LogBuffer {
    log: AccessLog,
    writer: SyncSender<Message>,
    lines: Vec<u8>,
    line_count: u64,
    time: TimeText,
    since_ns: u64,
    handed_over: u64,
    lost: u64,
    lost_in_writer: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Message {
    /// Lines, and their number.
    Lines(Vec<u8>, u64),
    /// To open the log again, and to tell this of the outcome, or the operator of a failure.
    Reopen(Option<SyncSender<Reopened>>),
}

impl LogBuffer {
    /// Makes the lines of an output of which `sent_bytes` have been sent, and empties `records`.
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
        self.time.update(unix_ns);
        let is_socket = matches!(self.log.target, LogTarget::Syslog(_) | LogTarget::Journal(_));
        for mut record in records.drain(..) {
            if is_socket {
                record.cut();
            }
            let sent = ReplyEnd { sent_bytes, time: &self.time, unix_ns, now_ns };
            match self.log.target {
                LogTarget::Journal(_) => {
                    record.write_journal(&mut self.lines, &self.log.format, &sent);
                }
                _ => record.write(&mut self.lines, &self.log.format, &sent),
            }
            self.line_count += 1;
        }
        if self.lines.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Returns whether its lines hold the host of a request.
    pub(crate) fn has_host(&self) -> bool {
        self.log.has_host()
    }

    /// Hands over lines that have waited long enough. To be called regularly.
    pub(crate) fn flush_if_old(&mut self, now_ns: u64) {
        if self.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.flush();
        }
    }

    /// Returns when the waiting lines are to be handed over.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        (!self.lines.is_empty()).then_some(self.since_ns + BATCH_AGE_NS)
    }

    /// Hands over the waiting lines.
    pub(crate) fn flush(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let count = std::mem::take(&mut self.line_count);
        match self.writer.try_send(Message::Lines(lines, count)) {
            Ok(()) => self.handed_over += count,
            Err(_) => self.lost += count,
        }
    }

    /// Returns the lines handed over and the lines lost since the last call. Lines lost by the
    /// writer are reported to the first loop that asks.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        let mut lost = std::mem::take(&mut self.lost);
        if self.lost_in_writer.load(Ordering::Relaxed) > 0 {
            lost += self.lost_in_writer.swap(0, Ordering::Relaxed);
        }
        (std::mem::take(&mut self.handed_over), lost)
    }
}

/// The writer's thread. It ends once no sender is left, with everything written.
#[derive(Debug)]
pub(crate) struct LogWriter {
    messages: SyncSender<Message>,
    log: AccessLog,
    lost: Arc<AtomicU64>,
    ended: Receiver<()>,
    stop_wait: Duration,
}

impl LogWriter {
    /// Opens the log and starts its writer, so that a wrong path is known before the first request.
    pub(crate) fn start(
        log: &AccessLog,
        errors: &ErrorLog,
        confinement: &Confinement,
    ) -> Result<Self, Error> {
        let log = log.clone();
        let sink = Sink::open(&log.target).map_err(|error| fail(&error))?;
        let stop_wait = sink.stop_wait();
        let (messages, inbox) = sync_channel(BATCHES_WAITING);
        let (end, ended) = sync_channel(0);
        let lost = Arc::new(AtomicU64::new(0));
        let target = log.target.clone();
        let (lost_in_writer, errors) = (Arc::clone(&lost), errors.clone());
        let writer = Writer { target, sink, lost: lost_in_writer, last_message: None, errors };
        let run = move || {
            writer.run(&inbox);
            drop(end);
        };
        confinement.spawn(Task::Log, "weir-log", run)?.map_err(|error| fail(&error))?;
        Ok(Self { messages, log, lost, ended, stop_wait })
    }

    /// Creates a loop's side of the log.
    pub(crate) fn buffer(&self) -> LogBuffer {
        LogBuffer {
            log: self.log.clone(),
            writer: self.messages.clone(),
            lines: Vec::new(),
            line_count: 0,
            time: TimeText::of(0),
            since_ns: 0,
            handed_over: 0,
            lost: 0,
            lost_in_writer: Arc::clone(&self.lost),
        }
    }

    /// Has the file, which was moved away, opened again. `tell`: what is told of the outcome, if
    /// this is not one of several processes that do the same, see [`untold`]. Returns false if the
    /// writer's queue is full.
    pub(crate) fn reopen(&self, tell: Option<SyncSender<Reopened>>) -> bool {
        self.messages.try_send(Message::Reopen(tell)).is_ok()
    }

    /// Waits for the remaining lines to be written, for a limited time: a log that is not read must
    /// not delay a stop.
    pub(crate) fn stop(self) {
        drop(self.messages);
        let _ = self.ended.recv_timeout(self.stop_wait);
    }
}

/// Opens the log on behalf of the processes that will write it. A pipe is to be held as long as
/// these run: its reader would see its end before the first of them has opened it.
///
/// # Errors
/// A message: it cannot be opened.
pub(crate) fn open_for_others(target: &LogTarget) -> Result<Option<Sink>, Error> {
    let opened = Sink::open(target).map_err(|error| fail(&error))?;
    Ok(Some(opened).filter(|_| sink::is_pipe(target)))
}

/// Checks whether a log can be opened, without creating it. A pipe is not opened, since its reader
/// would see its end.
///
/// # Errors
/// Those of opening it, with its path.
pub(crate) fn check(target: &LogTarget) -> io::Result<()> {
    Sink::check(target)
}

/// Tries whether the log can be opened again by the processes that write it.
pub(crate) fn try_to_reopen(target: &LogTarget) -> Reopened {
    Sink::try_to_reopen(target).map_err(|error| goes_on(ACCESS, &error))
}

/// Has a log opened again; `ask` asks its writer, or returns false if that is stuck. Returns a wait
/// for the outcome until a time.
pub(crate) fn reopening(
    name: &'static str,
    ask: impl FnOnce(SyncSender<Reopened>) -> bool,
) -> impl FnOnce(Instant) -> Reopened {
    let (sender, outcome) = sync_channel(1);
    let is_asked = ask(sender);
    move |until| {
        let wait = until.saturating_duration_since(Instant::now());
        let outcome = outcome.recv_timeout(if is_asked { wait } else { Duration::ZERO });
        outcome.unwrap_or_else(|_| Err(format!("the {name} is stuck and was not reopened")))
    }
}

/// Tells of the outcome of opening a log again. Returns why it goes on where it was if nobody waits
/// to be told any longer. One of several processes has nobody who waits: the main process opens the
/// same file, and says why it cannot, but not what this one has too little of.
fn untold(
    name: &str,
    tell: Option<SyncSender<Reopened>>,
    outcome: io::Result<()>,
) -> Option<String> {
    let why = |error| goes_on(name, &error);
    match tell {
        Some(tell) => tell.send(outcome.map_err(why)).err()?.0.err(),
        None => outcome.err().filter(sink::is_lack).map(why),
    }
}

/// Name of this log in a message.
pub(crate) const ACCESS: &str = "access log";

fn fail(why: &dyn std::fmt::Display) -> Error {
    Error(format!("cannot open the {ACCESS}: {why}"))
}

fn goes_on(name: &str, why: &dyn std::fmt::Display) -> String {
    format!("cannot reopen the {name}: {why}; it goes on where it was")
}

/// State of the writer's thread.
struct Writer {
    target: LogTarget,
    sink: Sink,
    lost: Arc<AtomicU64>,
    last_message: Option<Instant>,
    errors: ErrorLog,
}

impl Writer {
    fn run(mut self, inbox: &Receiver<Message>) {
        while let Ok(message) = inbox.recv() {
            match message {
                Message::Lines(lines, count) => self.write(&lines, count),
                Message::Reopen(tell) => {
                    if let Some(why) = untold(ACCESS, tell, self.reopen()) {
                        self.errors.error(&why);
                    }
                }
            }
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.sink.reopen(&self.target)
    }

    fn write(&mut self, lines: &[u8], count: u64) {
        let time = rfc3339(unix_ns());
        let (lost, outcome) = self.sink.write(lines, count, &time);
        let Err(error) = outcome else { return };
        self.lost.fetch_add(lost, Ordering::Relaxed);
        self.tell(&format!("access-log lines lost: {error}"));
    }

    fn tell(&mut self, message: &str) {
        if self.last_message.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            self.last_message = Some(Instant::now());
            self.errors.warn(message);
        }
    }
}
