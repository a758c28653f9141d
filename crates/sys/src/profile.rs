//! Counts and times every system call the process makes through this crate: the papers' gprof table
//! (gammo-epoll table 1, brecht-select figs 4 to 8). The table is kept per thread, so that a loop
//! writes only its own.
//!
//! While disabled, a call costs one relaxed load. While enabled, it costs two reads of the clock,
//! and so it does while only the time in all calls together is measured.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

macro_rules! calls {
    ($($variant:ident $name:literal),+ $(,)?) => {
        /// A system call made by this crate, as named in the profile.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Call { $($variant),+ }

        /// Names of the calls, in the order of [`Call`].
        pub const NAMES: &[&str] = &[$($name),+];
    };
}

calls! {
    Select "select", Poll "poll", EpollCtl "epoll_ctl", EpollWait "epoll_wait",
    Accept "accept4", Read "recvfrom", Write "sendto", Writev "writev", Sendfile "sendfile",
    Close "close", Shutdown "shutdown", Setsockopt "setsockopt", Getsockopt "getsockopt",
    Ioctl "ioctl", Open "openat2", Fstat "fstat", Pread "pread", Getdents "getdents64",
    Socket "socket", Bind "bind", Connect "connect", IoUringEnter "io_uring_enter",
    Sigtimedwait "rt_sigtimedwait", Signalfd "read", Fcntl "fcntl",
    Preadv2 "preadv2", Cachestat "cachestat", Fadvise "fadvise64",
    Pipe "pipe2", Splice "splice",
}

/// Number of kinds of calls.
pub const CALLS: usize = NAMES.len();

/// A row of the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Number of calls made.
    pub count: u64,
    /// Wall time spent in the calls, nanoseconds.
    pub time_ns: u64,
}

static ENABLED: AtomicBool = AtomicBool::new(false);
/// True if calls are timed, for the profile or for their sum alone.
static TIMED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Time in calls, nanoseconds.
    static CALLS_NS: Cell<u64> = const { Cell::new(0) };
    static TABLE: [Cell<Row>; CALLS] =
        const { [const { Cell::new(Row { count: 0, time_ns: 0 }) }; CALLS] };
}

/// Enables the profile for every thread of the process. It cannot be disabled again.
pub fn enable() {
    ENABLED.store(true, Ordering::Relaxed);
    time_calls();
}

/// Measures the time in all calls together, for every thread of the process. It cannot be stopped
/// again.
pub fn time_calls() {
    TIMED.store(true, Ordering::Relaxed);
}

/// Returns the wall time that the calling thread has spent in calls, nanoseconds, since they are
/// timed.
pub fn calls_ns() -> u64 {
    CALLS_NS.get()
}

/// Returns the calling thread's table so far, in the order of [`NAMES`]; `None` while the profile
/// is disabled.
pub fn table() -> Option<Vec<Row>> {
    ENABLED
        .load(Ordering::Relaxed)
        .then(|| TABLE.with(|table| table.iter().map(Cell::get).collect()))
}

/// Adds the calling thread's table to `sum`, row by row, and resets it: for threads whose calls are
/// reported together. Does nothing while the profile is disabled.
pub fn drain_into(sum: &mut Vec<Row>) {
    if !ENABLED.load(Ordering::Relaxed) {
        return;
    }
    sum.resize(CALLS, Row::default());
    TABLE.with(|table| {
        for (row, cell) in sum.iter_mut().zip(table) {
            let mine = cell.take();
            row.count += mine.count;
            row.time_ns += mine.time_ns;
        }
    });
}

/// Makes a system call, timing it while calls are timed, and counting it while the profile is
/// enabled.
#[inline(always)]
pub fn timed<T>(call: Call, make: impl FnOnce() -> T) -> T {
    if TIMED.load(Ordering::Relaxed) { record(call, make) } else { make() }
}

#[cold]
fn record<T>(call: Call, make: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = make();
    let spent_ns = start.elapsed().as_nanos() as u64;
    CALLS_NS.set(CALLS_NS.get() + spent_ns);
    if ENABLED.load(Ordering::Relaxed) {
        TABLE.with(|table| {
            let cell = &table[call as usize];
            let row = cell.get();
            cell.set(Row { count: row.count + 1, time_ns: row.time_ns + spent_ns });
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_once_the_profile_is_on() {
        assert_eq!(timed(Call::Read, || 7), 7);
        assert_eq!(calls_ns(), 0);
        time_calls();
        timed(Call::Read, std::thread::yield_now);
        assert!(calls_ns() > 0 && table().is_none());
        enable();
        timed(Call::Read, || ());
        let table = table().unwrap();
        assert_eq!(table.len(), NAMES.len());
        assert!(table[Call::Read as usize].count >= 1);
        assert_eq!(table[Call::Getdents as usize], Row::default());
        let mut sum = vec![Row { count: 1, time_ns: 0 }];
        drain_into(&mut sum);
        assert_eq!(sum[0].count, 1);
        assert_eq!(sum[Call::Read as usize].count, table[Call::Read as usize].count);
        assert_eq!(super::table().unwrap()[Call::Read as usize], Row::default());
    }
}
