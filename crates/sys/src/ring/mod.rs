//! io_uring(7): polls and batches of epoll_ctl for readiness mechanisms, and all that a server does
//! with sockets and files for one that waits for completions.
//!
//! A ring belongs to the thread that made it, and to no copy of its process: its queues are shared
//! with the kernel, and would be with a child too, which could write to them while this process
//! does. So its memory is not copied by fork(2) (MADV_DONTFORK, madvise(2)), and
//! [`fork`](crate::fork::fork) refuses while there is a ring.
//!
//!  What is queued goes to the kernel with the next call
//! that enters it; a queue that is full is handed over at once, and a completion for which there is
//! no room is kept by the kernel until there is. Nothing here knows what is waited for, or why.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring};

use crate::profile::{Call, timed};

mod ctl;
mod poll;
pub mod server;

pub use ctl::{Change, Ctl, CtlRing};
pub use poll::{Completion, PollRing};

/// Room for completions, as a multiple of that for submissions: polls complete at any time, those
/// of one submission all at once.
const COMPLETIONS_PER_ENTRY: u32 = 8;

/// How many wake-ups the kernel turns into completions in one call, unless more are wanted (Linux
/// 6.18, IO_LOCAL_TW_DEFAULT_MAX): a call that wants one ends with this many, though there be more.
const WAKE_UPS_MAX: usize = 20;

/// Marks what an order to end an operation says of itself.
const NOBODY: u64 = u64::MAX;

const NO_TIME: Option<Duration> = Some(Duration::ZERO);

/// How many rings the process has.
static RINGS: AtomicUsize = AtomicUsize::new(0);

/// Whether the process has a ring.
pub(crate) fn exists() -> bool {
    RINGS.load(Ordering::SeqCst) > 0
}

/// Counts a ring as long as it is there. One that is leaked is there for ever.
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

/// The two queues shared with the kernel. Not `Send`: the kernel takes entries from the thread that
/// made them only. The count goes last.
struct Ring(IoUring, Counted, PhantomData<*const ()>);

/// How a call ended that did not fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entered {
    Done,
    /// Completions are to be taken before entries are.
    WantsRoom,
}

impl Entered {
    /// A signal and a wait that ended without a completion are no errors.
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
    /// As the kernel can: completions made when asked for, or at least without an interrupt.
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
            Ok(Self(ring, counted, PhantomData))
        } else {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// One io_uring_enter(2): hands over what is queued, and waits for `want` completions to be
    /// there. Also with none wanted, what happened is turned into completions.
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

    /// Hands over all that is queued, and waits until it is done: a result for each, in its place.
    /// epoll_ctl is done by the call itself, or by a worker where it would have to wait.
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
    builder.dontfork().build(entries)
}

/// Tries with less when it was a flag that the kernel did not know.
fn build_after(error: &io::Error, builder: &mut Builder, entries: u32) -> io::Result<IoUring> {
    match error.raw_os_error() {
        Some(libc::EINVAL) => build(builder, entries),
        errno => Err(errno.map_or(io::ErrorKind::Other.into(), io::Error::from_raw_os_error)),
    }
}
