//! What the main thread and a loop say to each other: stop, and tell me your counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use weir_stats::LoopReport;
use weir_sys::event::Bell;

/// How far a loop has been told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Serve.
    Run = 0,
    /// Accept no more; finish what is open.
    Drain = 1,
    /// Let go of everything.
    Stop = 2,
}

impl Phase {
    /// The phase of this number; a number that is none is the last.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            0 => Self::Run,
            1 => Self::Drain,
            _ => Self::Stop,
        }
    }
}

/// One loop's letter box. The loop watches the bell like any other descriptor.
#[derive(Debug)]
pub(crate) struct Control {
    pub bell: Arc<Bell>,
    phase: AtomicU8,
    /// The number of the last question; a loop that has answered it has nothing to tell.
    question: AtomicU64,
    /// How often the access log was to be opened again, where the main process does not write it.
    reopens: AtomicU64,
    reports: Sender<Answer>,
    index: usize,
}

/// A loop's counters.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Which loop's.
    pub index: usize,
    /// Which question they answer; the largest number there is once the loop has ended.
    pub question: u64,
    /// What it counted.
    pub report: LoopReport,
}

/// The number with which a loop that ends answers all questions to come.
pub(crate) const LAST_WORD: u64 = u64::MAX;

impl Control {
    pub(crate) fn new(index: usize, reports: Sender<Answer>) -> std::io::Result<Self> {
        Ok(Self {
            bell: Arc::new(Bell::new()?),
            phase: AtomicU8::new(Phase::Run as u8),
            question: AtomicU64::new(0),
            reopens: AtomicU64::new(0),
            reports,
            index,
        })
    }

    /// Tells the loop to stop so far; a phase is never taken back.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
        self.bell.ring();
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Ordering::Relaxed))
    }

    /// Asks for the loop's counters, under a number larger than any before.
    pub(crate) fn ask_report(&self, question: u64) {
        self.question.store(question, Ordering::Relaxed);
        self.bell.ring();
    }

    /// The number of the last question; zero before the first.
    pub(crate) fn question(&self) -> u64 {
        self.question.load(Ordering::Relaxed)
    }

    /// Asks for the access log to be opened again.
    pub(crate) fn ask_reopen(&self) {
        self.reopens.fetch_add(1, Ordering::Relaxed);
        self.bell.ring();
    }

    /// How often that was asked for.
    pub(crate) fn reopens(&self) -> u64 {
        self.reopens.load(Ordering::Relaxed)
    }

    /// Answers a question.
    pub(crate) fn answer(&self, question: u64, report: LoopReport) {
        let _ = self.reports.send(Answer { index: self.index, question, report });
    }
}
