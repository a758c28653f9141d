//! What the process and its threads are allowed: descriptors, processors, inherited sockets.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::process::{Resource, Rlimit};
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

/// The first descriptor a service manager passes: sd_listen_fds(3).
pub const LISTEN_FDS_START: RawFd = 3;

/// Raises the soft limit of open descriptors to the hard one and returns it.
pub fn raise_open_files() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.unwrap_or(u64::MAX)
}

/// The processors this thread may run on, lowest first.
///
/// # Errors
/// EPERM, ESRCH: sched_getaffinity(2).
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Lets the calling thread run on one processor only.
///
/// # Errors
/// EINVAL when the machine has no such processor or this process may not use it.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Lets the calling thread's timed waits end as soon as they can: the kernel otherwise adds up to
/// 50 us, to serve several at once (PR_SET_TIMERSLACK, prctl(2)).
///
/// # Errors
/// EINVAL where the kernel has no such thing.
pub fn wake_precisely() -> io::Result<()> {
    // One nanosecond: zero would mean the default.
    // SAFETY: the call takes a number and touches no memory of ours.
    let answer = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes over the `count` sockets a service manager passed. Call it once, before anything is
/// opened.
///
/// # Errors
/// EBADF when the manager's count is not true.
pub fn inherited_sockets(count: usize) -> io::Result<Vec<OwnedFd>> {
    let last = i32::try_from(count).ok().and_then(|count| LISTEN_FDS_START.checked_add(count));
    let last = last.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
    (LISTEN_FDS_START..last)
        .map(|fd| {
            // SAFETY: F_SETFD takes any number; one that is not open answers EBADF.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: it is open, as just seen, and by the protocol of sd_listen_fds(3) it is ours
            // alone: nothing in this process has opened it or will close it.
            Ok(unsafe { OwnedFd::from_raw_fd(fd) })
        })
        .collect()
}

/// The user and system time of the calling thread so far, nanoseconds: getrusage(2) RUSAGE_THREAD.
pub fn thread_cpu_ns() -> (u64, u64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills in the structure; all zeroes is a valid value of it should it not.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// The processor time of the calling thread so far, user and system together, nanoseconds, exact to
/// the moment: CLOCK_THREAD_CPUTIME_ID, clock_gettime(2). A system call, unlike the wall clock.
pub fn thread_cpu_clock_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
