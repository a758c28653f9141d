//! Limits and resources of the process and its threads: descriptors, processors, processor time,
//! inherited sockets.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use rustix::process::{Resource, Rlimit};
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};

use crate::check;
use crate::namespace::run_on;
use crate::proc::{run_delay_ns, status_number};

/// First descriptor passed by a service manager: sd_listen_fds(3).
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

/// Grows the kernel's descriptor table for numbers below `count`, or RLIMIT_NOFILE if that is less.
/// Call it while there is one thread: the kernel doubles the table as it fills, and where threads
/// share it, the open or accept that outgrows it waits until all processors have released the old
/// table, 5 to 15 ms (expand_fdtable, fs/file.c). Costs 8 bytes of kernel memory per descriptor.
///
/// # Errors
/// EMFILE, ENFILE, ENOMEM: eventfd(2), fcntl(2) F_DUPFD_CLOEXEC.
pub fn grow_descriptor_table(count: u64) -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let Some(last) = count.min(limit).checked_sub(1) else { return Ok(()) };
    let some = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
    let last = RawFd::try_from(last).unwrap_or(RawFd::MAX);
    // EMFILE: the last number is past the limit, so there is nothing to grow.
    match rustix::io::fcntl_dupfd_cloexec(&some, last) {
        Ok(_) | Err(rustix::io::Errno::MFILE) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Maximum number of memory mappings of the process (vm.max_map_count, proc_sys_vm(5)); Linux's
/// default where that cannot be read.
pub fn mappings_max() -> usize {
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(65_530)
}

/// Returns the processors that this thread may run on, lowest first.
///
/// # Errors
/// EPERM, ESRCH: sched_getaffinity(2).
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Restricts the calling thread to one processor.
///
/// # Errors
/// EINVAL when the machine has no such processor or this process may not use it.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    run_on(&[cpu])
}

/// Makes the calling thread run only while its processor has nothing else to run (SCHED_IDLE,
/// sched(7)). Every thread that wakes preempts it; beside one that never sleeps it gets 0.3 % of
/// the processor, if both are in the same scheduling group (sched(7), "The autogroup feature").
///
/// # Errors
/// EPERM when the process may not: sched_setscheduler(2).
pub fn run_when_idle() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // The system call itself: in musl the function is a stub that always fails.
    // SAFETY: the kernel reads the structure during the call; 0 is the calling thread.
    let set = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &raw const priority)
    };
    check(set as libc::c_int)
}

/// Minimizes the timer slack of the calling thread, so that timed waits end as soon as possible. By
/// default the kernel adds up to 50 us, to serve several timers at once (PR_SET_TIMERSLACK,
/// prctl(2)).
///
/// # Errors
/// EINVAL where the kernel does not support it.
pub fn set_timer_slack() -> io::Result<()> {
    // One nanosecond: zero would mean the default.
    // SAFETY: the call takes a number and touches no memory of ours.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) })
}

/// Names the calling thread; the first thread's name is the one that ps(1) shows (PR_SET_NAME). A
/// name of more than 15 bytes is cut.
///
/// # Errors
/// EINVAL: there is a NUL in it.
pub fn name_thread(name: &str) -> io::Result<()> {
    let name = std::ffi::CString::new(name)?;
    Ok(rustix::thread::set_name(&name)?)
}

/// Takes ownership of the `count` sockets passed by a service manager. Succeeds once, so that they
/// have one owner.
///
/// # Errors
/// EBADF when the manager passed fewer to this process (LISTEN_PID, LISTEN_FDS), or when one of the
/// numbers is not open or was opened by this process. EALREADY on a second call.
pub fn inherited_sockets(count: usize) -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let bad = || io::Error::from_raw_os_error(libc::EBADF);
    let last = i32::try_from(count).ok().and_then(|count| LISTEN_FDS_START.checked_add(count));
    let last = last.filter(|_| count <= passed()).ok_or_else(bad)?;
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Err(io::Error::from_raw_os_error(libc::EALREADY));
    }
    // SAFETY: by the protocol of sd_listen_fds(3) these are ours alone. The environment, which safe
    // code does not change, says that the protocol was kept with this very process.
    unsafe { adopt(LISTEN_FDS_START..last) }
}

/// Number of sockets that a service manager claims to have passed to this process:
/// sd_listen_fds(3).
fn passed() -> usize {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(pid), Some(count)) if pid == std::process::id() => count as usize,
        _ => 0,
    }
}

/// Takes ownership of descriptors inherited through execve(2) and makes them close-on-exec. Takes
/// all of them, or none.
///
/// # Safety
/// The descriptors have no owner in this process. One that the process opened itself is refused
/// because it is close-on-exec, as is everything that the standard library and this crate open:
/// such a number was not passed.
unsafe fn adopt(numbers: Range<RawFd>) -> io::Result<Vec<OwnedFd>> {
    for number in numbers.clone() {
        // SAFETY: F_GETFD takes any number; one that is not open answers EBADF.
        match unsafe { libc::fcntl(number, libc::F_GETFD) } {
            -1 => return Err(io::Error::last_os_error()),
            flags if flags & libc::FD_CLOEXEC != 0 => {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            _ => {}
        }
    }
    // SAFETY: they are open, as just seen, and for the caller to give away.
    let owned: Vec<_> = numbers.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect();
    for fd in &owned {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(owned)
}

/// Resource usage of a thread or a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User time, nanoseconds, in steps of one microsecond.
    pub user_ns: u64,
    /// System time, nanoseconds, in steps of one microsecond.
    pub system_ns: u64,
    /// Voluntary context switches: it blocked.
    pub switches_voluntary: u64,
    /// Involuntary context switches: it was preempted.
    pub switches_involuntary: u64,
}

/// Returns the usage of the calling thread so far: getrusage(2) RUSAGE_THREAD.
pub fn thread_usage() -> Usage {
    usage(libc::RUSAGE_THREAD)
}

/// Returns the time for which the calling thread was ready to run and waited for a processor so
/// far, nanoseconds; `None` where the kernel does not tell. Opens a file of /proc.
pub fn thread_run_delay_ns() -> Option<u64> {
    run_delay_ns(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Returns the usage of the whole process so far, including ended threads: getrusage(2)
/// RUSAGE_SELF.
pub fn process_usage() -> Usage {
    usage(libc::RUSAGE_SELF)
}

fn usage(whose: libc::c_int) -> Usage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills in the structure; all zeroes is a valid value of it should it not.
    let usage = unsafe {
        libc::getrusage(whose, usage.as_mut_ptr());
        usage.assume_init()
    };
    Usage::of(&usage)
}

impl Usage {
    pub(crate) fn of(usage: &libc::rusage) -> Self {
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
        Self {
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
            switches_voluntary: usage.ru_nvcsw as u64,
            switches_involuntary: usage.ru_nivcsw as u64,
        }
    }
}

/// Returns the calling thread's ID, by which another thread can query it.
pub fn this_thread() -> ThreadId {
    let number = rustix::thread::gettid().as_raw_nonzero().get();
    let link = std::fs::read_link("/proc/thread-self").ok();
    let name = link.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
    ThreadId { number, in_proc: name.and_then(|name| name.parse().ok()).unwrap_or(number) }
}

/// Returns the ids of the calling process and thread in /proc, which may be mounted for another
/// PID namespace (proc(5), /proc/thread-self); those of the kernel's calls where it is not mounted.
pub fn ids_in_proc() -> (u32, u32) {
    let link = std::fs::read_link("/proc/thread-self").ok();
    let ids = link.as_deref().and_then(Path::to_str).and_then(|link| link.split_once("/task/"));
    let ids = ids.and_then(|(pid, tid)| Some((pid.parse().ok()?, tid.parse().ok()?)));
    let thread = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    ids.unwrap_or_else(|| (std::process::id(), thread()))
}

/// Returns the name of this machine, `-` if it has none of printable ASCII: uname(2).
pub fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_str().unwrap_or_default();
    let is_printable = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    if is_printable { name.to_owned() } else { "-".to_owned() }
}

/// Returns the time of CLOCK_MONOTONIC, nanoseconds.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the time of the machine's clock, nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64
}

/// The numbers by which the kernel knows a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId {
    /// Kernel thread ID: gettid(2).
    number: i32,
    /// ID in /proc, which may be mounted for another PID namespace (proc(5), /proc/thread-self).
    in_proc: i32,
}

/// Returns the number of threads of the calling process.
///
/// # Errors
/// Those of opening /proc/self/task (proc(5)).
pub fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Returns the processor time of another thread of this process so far, user and system together,
/// nanoseconds. Precise: it reads the thread's own clock (clock_getcpuclockid(3),
/// pthread_getcpuclockid(3)), by its kernel ID.
///
/// # Errors
/// EINVAL when the thread has ended: clock_gettime(2).
pub fn cpu_clock_of_ns(thread: ThreadId) -> io::Result<u64> {
    // MAKE_THREAD_CPUCLOCK(tid, CPUCLOCK_SCHED), include/linux/posix-timers_types.h.
    let clock = (!thread.number << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which outlives the call; a number that names no
    // thread is refused.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the voluntary and involuntary context switches of another thread of this process, in
/// this order, from /proc/self/task/TID/status (proc_pid_status(5)).
///
/// # Errors
/// ENOENT, ESRCH when the thread has ended.
pub fn context_switches_of(thread: ThreadId) -> io::Result<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", thread.in_proc))?;
    let number = |name: &str| status_number(&status, name).unwrap_or(0);
    Ok((number("voluntary_ctxt_switches:"), number("nonvoluntary_ctxt_switches:")))
}

/// Returns the processor time of the calling thread so far, user and system together, nanoseconds,
/// precise: CLOCK_THREAD_CPUTIME_ID, clock_gettime(2). Takes a system call, unlike the wall clock.
pub fn thread_cpu_clock_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::channel;

    #[test]
    fn room_for_descriptors_takes_none_away() {
        for count in [0, 1, 300] {
            grow_descriptor_table(count).unwrap();
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        assert!(size.trim().parse::<u64>().unwrap() >= 300, "{size}");
    }

    /// Makes a descriptor that stays open on exec, as a passed one does, at a number not used by
    /// any other test.
    fn passed_at_least(number: RawFd) -> RawFd {
        let (socket, _) = crate::fork::channel().unwrap();
        // SAFETY: the descriptor is open; the copy is owned by the code that takes the number.
        unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD, number) }
    }

    #[test]
    fn a_passed_socket_has_one_owner_and_is_closed_on_exec() {
        let number = passed_at_least(700);
        // SAFETY: the number is this test's.
        let owned = unsafe { adopt(number..number + 1) }.unwrap();
        assert_eq!(owned.len(), 1);
        let flags = rustix::io::fcntl_getfd(&owned[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        // SAFETY: it is refused.
        let again = unsafe { adopt(number..number + 1) };
        assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn a_number_that_was_not_passed_is_nobodys_and_neither_are_those_beside_it() {
        let number = passed_at_least(800);
        // SAFETY: the second is not open: none is taken.
        let error = unsafe { adopt(number..number + 2) }.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        // SAFETY: the number is this test's still.
        let owned = unsafe { adopt(number..number + 1) }.unwrap();
        assert!(rustix::io::fcntl_getfd(&owned[0]).is_ok());
        let ours = std::fs::File::open("/dev/null").unwrap();
        let number = ours.as_raw_fd();
        // SAFETY: it is refused.
        assert!(unsafe { adopt(number..number + 1) }.is_err());
    }

    #[test]
    fn nothing_is_inherited_from_who_passed_nothing() {
        let error = inherited_sockets(1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn a_thread_that_sleeps_can_be_asked_what_it_used() {
        let (told, hear) = channel();
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while thread_cpu_clock_ns() < 2_000_000 {}
            told.send((this_thread(), thread_usage())).unwrap();
            let _ = ended.recv();
        });
        let (id, own) = hear.recv().unwrap();
        assert!(cpu_clock_of_ns(id).unwrap() >= 2_000_000);
        assert!(context_switches_of(id).unwrap().0 >= own.switches_voluntary);
        assert!(threads().unwrap() >= 2);
        drop(end);
        thread.join().unwrap();
        assert!(process_usage().user_ns + process_usage().system_ns > 0);
    }

    #[test]
    fn the_time_for_which_a_thread_waited_does_not_fall() {
        let Some(before) = thread_run_delay_ns() else {
            return println!("skipped: this kernel does not tell for how long a thread waits");
        };
        assert!(thread_run_delay_ns() >= Some(before));
    }

    #[test]
    fn a_thread_has_ids_in_proc() {
        let (pid, tid) = std::thread::spawn(ids_in_proc).join().unwrap();
        assert!(std::fs::metadata(format!("/proc/{pid}")).is_ok() && tid != pid);
        assert!(monotonic_ns() > 0);
    }

    #[test]
    fn nobody_is_asked_who_is_not_there() {
        // The first process of all is never a thread of this one.
        let first = ThreadId { number: 1, in_proc: 0 };
        assert!(cpu_clock_of_ns(first).is_err() || this_thread().number == 1);
        assert!(context_switches_of(first).is_err());
    }
}
