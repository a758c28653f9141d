//! io_uring(7): polls and batches of epoll_ctl for readiness mechanisms, and all socket and file
//! operations of a completion-based server.
//!
//! A ring belongs to the thread that created it, and to no copy of its process: its queues are
//! shared with the kernel, and a forked child could write to them concurrently with the parent. So
//! its memory is not copied by fork(2) (MADV_DONTFORK, madvise(2)), and [`fork`](crate::fork::fork)
//! refuses while a ring exists.
//!
//! Queued entries are submitted by the next call that enters the kernel; a full queue is submitted
//! at once. The kernel keeps completions that do not fit into the completion queue until there is
//! space.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, opcode};

use crate::profile::{Call, timed};

mod ctl;
mod poll;
mod restrict;
pub mod server;

pub use ctl::{Change, Ctl, CtlRing};
pub use poll::{Completion, PollRing};

/// Size of the completion queue, as a multiple of the submission queue's: polls complete at any
/// time, and those of one submission may all complete at once.
const COMPLETIONS_PER_ENTRY: u32 = 8;

/// Maximum number of wake-ups that the kernel turns into completions in one call, unless more are
/// requested (Linux 6.18, IO_LOCAL_TW_DEFAULT_MAX): a call that wants one completion returns with
/// this many even if there are more.
const WAKE_UPS_MAX: usize = 20;

/// User data of a cancel request, whose own completion is ignored.
const NO_OPERATION: u64 = u64::MAX;

const NO_TIME: Option<Duration> = Some(Duration::ZERO);

/// Operations of a ring for readiness.
const OPERATIONS: [u8; 3] =
    [opcode::PollAdd::CODE, opcode::AsyncCancel::CODE, opcode::EpollCtl::CODE];

/// Number of rings in the process.
static RINGS: AtomicUsize = AtomicUsize::new(0);

/// Returns whether the process has a ring.
pub(crate) fn exists() -> bool {
    RINGS.load(Ordering::SeqCst) > 0
}

/// Counts a ring for its lifetime. A leaked ring is counted for ever.
struct Counted(());

impl Counted {
    fn new() -> Self {
        RINGS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        RINGS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The two queues shared with the kernel. Not `Send`: the kernel accepts entries only from the
/// thread that created the ring. The count is dropped last.
struct Ring(IoUring, Counted, PhantomData<*const ()>);

/// Outcome of a successful call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entered {
    Done,
    /// Completions must be taken before more entries are accepted.
    WantsRoom,
}

impl Entered {
    /// Converts the result of a call; a signal, or a wait that ended without a completion, is not
    /// an error.
    fn of(answer: io::Result<()>) -> io::Result<Self> {
        let Err(error) = answer else { return Ok(Self::Done) };
        match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR) => Ok(Self::Done),
            Some(libc::EBUSY) => Ok(Self::WantsRoom),
            _ => Err(error),
        }
    }
}

impl Ring {
    /// Opens a ring in the best mode that the kernel supports: completions produced on request, or
    /// at least without an interrupt.
    fn open(entries: u32) -> io::Result<Self> {
        let counted = Counted::new();
        let mut newest = IoUring::builder();
        newest.setup_single_issuer().setup_defer_taskrun().setup_submit_all();
        let mut newer = IoUring::builder();
        newer.setup_coop_taskrun().setup_submit_all();
        let ring = build(&mut newest, entries)
            .or_else(|error| build_after(&error, &mut newer, entries))
            .or_else(|error| build_after(&error, &mut IoUring::builder(), entries))?;
        if ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop() {
            restrict::enable(&ring, &OPERATIONS, &[])?;
            Ok(Self(ring, counted, PhantomData))
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Calls io_uring_enter(2): submits queued entries and waits for `want` completions. Even with
    /// `want` 0, pending events are turned into completions.
    fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<Entered> {
        let to_submit = self.0.submission().len() as u32;
        let timeout = timeout.map(Timespec::from);
        let args =
            timeout.as_ref().map_or(SubmitArgs::new(), |time| SubmitArgs::new().timespec(time));
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: the argument is what the flags say, and lives until the call returns.
        let call =
            || unsafe { self.0.submitter().enter(to_submit, want, flags.bits(), Some(&args)) };
        Entered::of(timed(Call::IoUringEnter, call).map(drop))
    }

    /// Submits all queued entries and waits until they are done; stores each result in its place.
    /// epoll_ctl is executed by the call itself, or by a worker where it would block.
    fn finish(&mut self, results: &mut [i32]) -> io::Result<()> {
        let mut left = results.len();
        while left > 0 {
            self.enter(left as u32, None)?;
            for entry in self.0.completion() {
                if let Some(result) = results.get_mut(entry.user_data() as usize) {
                    *result = entry.result();
                    left -= 1;
                }
            }
        }
        Ok(())
    }
}

fn build(builder: &mut Builder, entries: u32) -> io::Result<IoUring> {
    builder.setup_cqsize(entries.saturating_mul(COMPLETIONS_PER_ENTRY)).setup_clamp();
    builder.setup_r_disabled().dontfork().build(entries)
}

/// Retries with fewer flags when the kernel did not know one of them.
fn build_after(error: &io::Error, builder: &mut Builder, entries: u32) -> io::Result<IoUring> {
    match error.raw_os_error() {
        Some(libc::EINVAL) => build(builder, entries),
        errno => Err(errno.map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error)),
    }
}
