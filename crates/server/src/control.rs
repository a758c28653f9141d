//! Messages between the main thread and a loop: the start, orders to stop, requests for counters,
//! and reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use parking_lot::RwLock;
use weir_stats::LoopReport;
use weir_sys::waker::Waker;

/// Phase of a loop's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Serve.
    Run = 0,
    /// Accept no more, because a successor does; end each connection with its next reply.
    HandOver = 1,
    /// Accept no more; finish open connections.
    Drain = 2,
    /// Release everything.
    Stop = 3,
}

impl Phase {
    /// Returns the phase of this number; an unknown number is the last phase.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            0 => Self::Run,
            1 => Self::HandOver,
            2 => Self::Drain,
            _ => Self::Stop,
        }
    }
}

/// Latch for which all threads and processes that serve wait once each has what it needs. It is
/// opened when nothing that may fail is left to do and every socket listens, and stays open.
#[derive(Debug)]
pub(crate) struct StartLatch {
    /// `None` in a process that was forked and has passed it.
    waker: RwLock<Option<Waker>>,
}

impl StartLatch {
    pub(crate) fn new() -> std::io::Result<Self> {
        Waker::new().map(|waker| Self { waker: RwLock::new(Some(waker)) })
    }

    pub(crate) fn open(&self) {
        if let Some(waker) = &*self.waker.read() {
            waker.wake();
        }
    }

    /// Waits until the latch is open.
    pub(crate) fn wait(&self) {
        if let Some(waker) = &*self.waker.read() {
            waker.wait();
        }
    }

    /// Waits until the latch is open, and closes its descriptor in this process: in one that was
    /// forked and starts nothing after that. Allowed where no other thread waits.
    pub(crate) fn wait_as_last(&self) {
        self.wait();
        *self.waker.write() = None;
    }
}

/// The main thread's channel to a loop. The loop watches the waker like any other descriptor.
#[derive(Debug)]
pub(crate) struct Control {
    pub waker: Arc<Waker>,
    /// `None` in a child process, which has waited by itself.
    latch: Option<Arc<StartLatch>>,
    phase: AtomicU8,
    /// Number of the last report request. A loop that has answered it has nothing to do.
    report_request: AtomicU64,
    /// Number of requests to reopen the access log, where the main process does not write it.
    reopens: AtomicU64,
    /// True once a predecessor has closed its listening sockets, until the loop has noticed.
    is_relieved: AtomicBool,
    /// True once a successor was told that the listening sockets are its own.
    has_left_listeners: AtomicBool,
    reports: Sender<WorkerReport>,
    index: usize,
}

/// A loop's counters.
#[derive(Debug)]
pub(crate) struct WorkerReport {
    /// Index of the loop.
    pub index: usize,
    /// Number of the request they answer; the largest number once the loop has ended.
    pub report_request: u64,
    /// The loop's counters.
    pub report: LoopReport,
}

/// Number with which a loop that ends answers all requests to come.
pub(crate) const FINAL_REPORT: u64 = u64::MAX;

impl Control {
    pub(crate) fn new(index: usize, reports: Sender<WorkerReport>) -> std::io::Result<Self> {
        Ok(Self {
            waker: Arc::new(Waker::new()?),
            latch: None,
            phase: AtomicU8::new(Phase::Run as u8),
            report_request: AtomicU64::new(0),
            reopens: AtomicU64::new(0),
            is_relieved: AtomicBool::new(false),
            has_left_listeners: AtomicBool::new(false),
            reports,
            index,
        })
    }

    /// Has the loop wait for a latch.
    pub(crate) fn behind(self, latch: &Arc<StartLatch>) -> Self {
        Self { latch: Some(Arc::clone(latch)), ..self }
    }

    /// Waits until the loop, or one of its threads, may accept connections.
    pub(crate) fn await_start(&self) {
        if let Some(latch) = &self.latch {
            latch.wait();
        }
    }

    /// Tells the loop to enter a phase; it never returns to an earlier one.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Returns the index of the loop.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Ordering::Relaxed))
    }

    /// Requests the loop's counters, under a number larger than any before.
    pub(crate) fn request_report(&self, report_request: u64) {
        self.report_request.store(report_request, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Returns the number of the last report request; zero before the first.
    pub(crate) fn report_request(&self) -> u64 {
        self.report_request.load(Ordering::Relaxed)
    }

    /// Requests that the access log be reopened.
    pub(crate) fn request_reopen(&self) {
        self.reopens.fetch_add(1, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Returns the number of requests to reopen the access log.
    pub(crate) fn reopens(&self) -> u64 {
        self.reopens.load(Ordering::Relaxed)
    }

    /// Tells the loop that its listening sockets are its own from now on: a predecessor has closed
    /// them.
    pub(crate) fn relieve_predecessor(&self) {
        self.is_relieved.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Returns whether that was told since the last call.
    pub(crate) fn take_relief(&self) -> bool {
        self.is_relieved.swap(false, Ordering::Relaxed)
    }

    /// Has the loop leave the listening sockets as they are from now on, however late it notices
    /// that it hands them over: a successor bounds their queues and filters what comes to them.
    pub(crate) fn leave_listeners(&self) {
        self.has_left_listeners.store(true, Ordering::Relaxed);
    }

    /// Returns whether that was said.
    pub(crate) fn has_left_listeners(&self) -> bool {
        self.has_left_listeners.load(Ordering::Relaxed)
    }

    /// Answers a report request.
    pub(crate) fn send_report(&self, report_request: u64, report: LoopReport) {
        let _ = self.reports.send(WorkerReport { index: self.index, report_request, report });
    }
}
