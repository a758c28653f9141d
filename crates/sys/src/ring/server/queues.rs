//! Submission and completion queues of a server's ring, and the call that processes them.
//!
//! A single operation goes to the kernel's queue at once; the operations of a chain go there
//! together, with the last one. The kernel ends a chain at the end of a submission, and its polling
//! thread wherever it happens to look. Operations that find no space wait here, in order.

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{CompletionQueue, EnterFlags, IoUring, opcode, squeue};

use super::chain::Then;
use super::config::{Counts, RingConfig, SqPoll};
use crate::profile::{Call, timed};
use crate::ring::{Counted, Entered, restrict};

/// The queues. Not `Send`: see [`Ring`](crate::ring::Ring).
pub(super) struct Queues {
    pub(super) io: IoUring,
    pub(super) counts: Counts,
    /// Index by which the kernel knows the ring in this thread; saves a descriptor lookup.
    registered: Option<u32>,
    is_polled: bool,
    /// Flags passed to every call.
    flags: EnterFlags,
    waiting: Vec<Waiting>,
    /// Number of operations at the end of `waiting` that belong to an incomplete chain.
    open: usize,
    thread: PhantomData<*const ()>,
    /// Dropped after the ring.
    _counted: Counted,
}

struct Waiting {
    entry: squeue::Entry,
    then: Then,
}

impl Queues {
    pub(super) fn open(config: &RingConfig) -> io::Result<Self> {
        let counted = Counted::new();
        let io = build(config)?;
        if config.files > 0 {
            io.submitter().register_files_sparse(config.files)?;
        }
        let no_iowait = io.params().is_feature_no_iowait();
        Ok(Self {
            counts: Counts::default(),
            registered: register(&io),
            is_polled: config.sqpoll.is_some(),
            flags: if no_iowait { EnterFlags::NO_IOWAIT } else { EnterFlags::empty() },
            waiting: Vec::new(),
            open: 0,
            thread: PhantomData,
            _counted: counted,
            io,
        })
    }

    /// Starts the ring, once everything is registered that it needs.
    pub(super) fn enable(&self) -> io::Result<()> {
        restrict::enable(&self.io, &OPERATIONS, &LAST_REGISTRATIONS)
    }

    /// Returns whether the kernel supports waiting for several completions for a while, then for
    /// one.
    pub(super) fn can_wait_batch(&self) -> bool {
        self.io.params().is_feature_min_timeout()
    }

    /// Returns whether a kernel thread takes queued entries by itself.
    pub(super) fn is_polled(&self) -> bool {
        self.is_polled
    }

    /// Queues an operation. Returns true if it is in the kernel's queue, or waits for the rest of
    /// its chain.
    ///
    /// # Safety
    /// What the entry points to must stay until its last completion.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry, then: Then) -> bool {
        if then == Then::Nothing && self.waiting.is_empty() {
            // SAFETY: for the caller to see to.
            let pushed = unsafe { self.io.submission().push(&entry) };
            if pushed.is_ok() {
                self.counts.submitted += 1;
                return true;
            }
        }
        self.waiting.push(Waiting { entry, then });
        self.open = if then == Then::Nothing { 0 } else { self.open + 1 };
        then != Then::Nothing
    }

    /// Ends an incomplete chain at its last operation so far.
    #[inline]
    pub(super) fn end_chain(&mut self) {
        if self.open > 0
            && let Some(last) = self.waiting.last_mut()
        {
            last.then = Then::Nothing;
            self.open = 0;
        }
    }

    /// Moves whole chains to the kernel's queue while there is space. The operations of a chain
    /// longer than the queue are appended to `refused` instead.
    pub(super) fn fill(&mut self, refused: &mut Vec<u64>) {
        let whole = self.waiting.len() - self.open;
        let mut moved = 0;
        let mut queue = self.io.submission();
        while let Some(rest) = self.waiting.get(moved..whole).filter(|rest| !rest.is_empty()) {
            let chain = first_chain(rest);
            moved += chain.len();
            if chain.len() > queue.capacity() {
                refused.extend(chain.iter().map(|waiting| waiting.entry.get_user_data()));
            } else if chain.len() > queue.capacity() - queue.len() {
                moved -= chain.len();
                break;
            } else {
                for Waiting { entry, then } in chain {
                    // SAFETY: `push` was promised that what it points to stays. There is room.
                    let _ = unsafe { queue.push(&entry.clone().flags(then.flags())) };
                }
                self.counts.submitted += chain.len() as u64;
            }
        }
        drop(queue);
        self.waiting.drain(..moved);
    }

    /// Returns whether all whole chains are in the kernel's queue.
    #[inline]
    pub(super) fn is_filled(&self) -> bool {
        self.waiting.len() == self.open
    }

    /// Returns whether this thread has nothing left to submit.
    pub(super) fn is_handed_over(&mut self) -> bool {
        self.is_filled() && (self.is_polled || self.io.submission().is_empty())
    }

    /// Returns whether the kernel's thread sleeps, so that a call must wake it.
    #[inline]
    pub(super) fn needs_wakeup(&mut self) -> bool {
        self.is_polled && self.io.submission().need_wakeup()
    }

    /// Returns whether completions have overflowed the queue; only a call delivers them.
    #[inline]
    pub(super) fn is_overflown(&mut self) -> bool {
        self.io.submission().cq_overflow()
    }

    /// Available completions.
    #[inline]
    pub(super) fn completions(&mut self) -> CompletionQueue<'_> {
        self.io.completion()
    }

    /// Calls io_uring_enter(2): submits the queue and waits up to `timeout` for `want` completions.
    /// If `within_us` is not 0, one is enough after that many microseconds. Even with `want` 0,
    /// pending events are turned into completions.
    pub(super) fn enter(
        &mut self,
        want: u32,
        within_us: u32,
        timeout: Option<Duration>,
    ) -> io::Result<Entered> {
        let mut flags = self.flags | EnterFlags::GETEVENTS;
        if self.needs_wakeup() {
            flags |= EnterFlags::SQ_WAKEUP;
            self.counts.wakeups += 1;
        }
        if self.is_polled && !self.is_filled() {
            flags |= EnterFlags::SQ_WAIT;
        }
        self.counts.enters += 1;
        let to_submit = self.io.submission().len() as u32;
        let timeout = timeout.filter(|_| want > 0).map(Timespec::from);
        if timeout.is_none() && within_us == 0 {
            return self.call(to_submit, want, flags, None);
        }
        let args = SubmitArgs::new().min_wait_usec(within_us);
        let flags = flags | EnterFlags::EXT_ARG;
        match &timeout {
            Some(timeout) => self.call(to_submit, want, flags, Some(&args.timespec(timeout))),
            None => self.call(to_submit, want, flags, Some(&args)),
        }
    }

    fn call(
        &self,
        to_submit: u32,
        want: u32,
        mut flags: EnterFlags,
        args: Option<&SubmitArgs<'_, '_>>,
    ) -> io::Result<Entered> {
        let fd = match self.registered {
            Some(index) => {
                flags |= EnterFlags::REGISTERED_RING;
                index as i32
            }
            None => self.io.as_raw_fd(),
        };
        let (at, bytes) = args.map_or((std::ptr::null(), 0), |args| {
            (std::ptr::from_ref(args).cast::<libc::c_void>(), size_of_val(args))
        });
        // SAFETY: the argument is what the flags say, and lives until the call returns.
        let answer = timed(Call::IoUringEnter, || unsafe {
            let enter = libc::SYS_io_uring_enter;
            libc::syscall(enter, fd, to_submit, want, flags.bits(), at, bytes)
        });
        Entered::of(if answer >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) })
    }
}

impl Drop for Queues {
    /// Releases the sockets in slots at once, and the ring's index in this thread, which would keep
    /// the ring open.
    fn drop(&mut self) {
        let _ = self.io.submitter().unregister_files();
        if let Some(index) = self.registered.take() {
            unregister(&self.io, index);
        }
    }
}

/// Returns the first of several consecutive chains.
fn first_chain(waiting: &[Waiting]) -> &[Waiting] {
    waiting.split_inclusive(|last| last.then == Then::Nothing).next().unwrap_or(waiting)
}

fn build(config: &RingConfig) -> io::Result<IoUring> {
    let io = build_with(config, config.sqpoll).map_err(|error| unsupported(error, config))?;
    let params = io.params();
    // Of Linux 6.10, like the accept flag for not waiting, which no feature bit announces.
    if params.is_feature_recvsend_bundle() && params.is_feature_ext_arg() {
        Ok(io)
    } else {
        Err(io::Error::new(io::ErrorKind::Unsupported, TOO_OLD))
    }
}

fn build_with(config: &RingConfig, sqpoll: Option<SqPoll>) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(config.completions).setup_clamp().dontfork();
    builder.setup_single_issuer().setup_submit_all().setup_no_sqarray().setup_r_disabled();
    match sqpoll {
        None => _ = builder.setup_defer_taskrun(),
        Some(SqPoll { idle_ms, cpu }) => {
            builder.setup_sqpoll(idle_ms);
            cpu.map(|cpu| builder.setup_sqpoll_cpu(cpu));
        }
    }
    builder.build(config.entries)
}

const TOO_OLD: &str = "the ring needs Linux 6.10 or newer";

/// Explains in a sentence why there is no ring, if the kernel has none, or the requested processor
/// is not usable.
fn unsupported(error: io::Error, config: &RingConfig) -> io::Error {
    let why = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring",
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here, by kernel.io_uring_disabled or a filter of system calls"
        }
        Some(libc::EINVAL) if is_for_want_of_processor(config) => {
            let why = "the processor for the ring's thread is none that this process may use";
            return io::Error::new(io::ErrorKind::InvalidInput, why);
        }
        Some(libc::EINVAL) => TOO_OLD,
        _ => return error,
    };
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Returns whether the ring would open without the requested processor.
fn is_for_want_of_processor(config: &RingConfig) -> bool {
    let anywhere = config.sqpoll.filter(|sqpoll| sqpoll.cpu.is_some());
    let anywhere = anywhere.map(|sqpoll| SqPoll { cpu: None, ..sqpoll });
    anywhere.is_some() && build_with(config, anywhere).is_ok()
}

/// Registers the ring's descriptor to save its lookup, and returns the index; `None` when the
/// thread has used up its 16 indices.
fn register(io: &IoUring) -> Option<u32> {
    let fd = io.as_raw_fd();
    let mut number = Number { number: u32::MAX, reserved: 0, fd: fd as u64 };
    let how = IORING_REGISTER_RING_FDS;
    // SAFETY: the one argument is what the call takes, and lives until it returns.
    let done = unsafe {
        libc::syscall(libc::SYS_io_uring_register, fd, how, &raw mut number, 1 as libc::c_uint)
    };
    (done == 1).then_some(number.number)
}

fn unregister(io: &IoUring, number: u32) {
    let number = Number { number, reserved: 0, fd: 0 };
    let how = IORING_UNREGISTER_RING_FDS;
    // SAFETY: as above.
    unsafe {
        let register = libc::SYS_io_uring_register;
        libc::syscall(register, io.as_raw_fd(), how, &raw const number, 1 as libc::c_uint);
    }
}

/// struct io_uring_rsrc_update
#[repr(C)]
struct Number {
    number: u32,
    reserved: u32,
    fd: u64,
}

/// What a ring registers and unregisters once it is enabled.
const IORING_UNREGISTER_FILES: u8 = 3;
const IORING_UNREGISTER_PBUF_RING: u8 = 23;

const IORING_REGISTER_RING_FDS: libc::c_uint = 20;
const IORING_UNREGISTER_RING_FDS: libc::c_uint = 21;

const LAST_REGISTRATIONS: [u8; 3] =
    [IORING_UNREGISTER_FILES, IORING_UNREGISTER_RING_FDS as u8, IORING_UNREGISTER_PBUF_RING];

/// Operations of a server: none that opens a connection, or a file by its path alone.
const OPERATIONS: [u8; 16] = [
    opcode::Nop::CODE,
    opcode::Accept::CODE,
    opcode::Recv::CODE,
    opcode::Send::CODE,
    opcode::SendZc::CODE,
    opcode::SendMsg::CODE,
    opcode::SendMsgZc::CODE,
    opcode::Read::CODE,
    opcode::OpenAt2::CODE,
    opcode::PollAdd::CODE,
    opcode::Shutdown::CODE,
    opcode::Close::CODE,
    // Options of sockets, and what is unsent.
    opcode::SetSockOpt::CODE,
    opcode::FixedFdInstall::CODE,
    opcode::FilesUpdate::CODE,
    opcode::AsyncCancel::CODE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_gives_back_its_number() {
        let config = RingConfig { entries: 1, completions: 1, ..RingConfig::default() };
        for _ in 0..40 {
            let Ok(queues) = Queues::open(&config) else {
                eprintln!("SKIPPED: no ring here");
                return;
            };
            assert!(queues.registered.is_some());
        }
    }
}
