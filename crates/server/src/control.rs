//! What the main thread and a loop say to each other: stop, and tell me your counters.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
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

/// One loop's letter box. The loop watches the bell like any other descriptor.
#[derive(Debug)]
pub(crate) struct Control {
    pub bell: Bell,
    phase: AtomicU8,
    report_wanted: AtomicBool,
    reports: Sender<(usize, LoopReport)>,
    index: usize,
}

impl Control {
    pub(crate) fn new(index: usize, reports: Sender<(usize, LoopReport)>) -> std::io::Result<Self> {
        Ok(Self {
            bell: Bell::new()?,
            phase: AtomicU8::new(Phase::Run as u8),
            report_wanted: AtomicBool::new(false),
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
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Run,
            1 => Phase::Drain,
            _ => Phase::Stop,
        }
    }

    /// Asks for the loop's counters.
    pub(crate) fn ask_report(&self) {
        self.report_wanted.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    /// Whether counters have been asked for since the last time.
    pub(crate) fn take_report_wanted(&self) -> bool {
        self.report_wanted.swap(false, Ordering::Relaxed)
    }

    /// Answers [`Control::ask_report`].
    pub(crate) fn send_report(&self, report: LoopReport) {
        let _ = self.reports.send((self.index, report));
    }
}
