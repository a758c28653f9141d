//! Real-time signals for descriptors: fcntl(2) F_SETSIG, sigtimedwait(2), signalfd(2). One signal
//! is queued per event; it carries the descriptor's number and the poll(2) bits of the event.
//!
//! No handler ever runs: the signals are blocked, and stay blocked when the queue is dropped, since
//! the default action of an unblocked one is to terminate the process. The caller decides how to
//! recover from lost events.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit};

use crate::check;
use crate::poll::{POLLIN, PollFd, poll, timespec};
use crate::profile::{Call, timed};
use crate::signal::{block, set_of};

/// Maximum number of signals per read. A shorter read has left the queue empty.
pub const READ_MAX: usize = 256;

const INFO_SIZE: usize = size_of::<libc::signalfd_siginfo>();

/// Missing from `libc` for glibc: `asm-generic/fcntl.h`.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;
const F_OWNER_TID: i32 = 0;

/// `struct f_owner_ex` of fcntl(2).
#[repr(C)]
struct Owner {
    kind: i32,
    pid: i32,
}

/// The leading fields of a siginfo of SIGPOLL, as in sigaction(2).
#[repr(C)]
struct PollInfo {
    signal: i32,
    errno: i32,
    code: i32,
    /// Aligned as a long, as in the kernel's.
    band: libc::c_long,
    fd: i32,
}

/// Contents of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An event of a descriptor: POLLIN, POLLOUT, POLLHUP, POLLERR (`si_band`). The descriptor is
    /// given by its number at the time it was armed; -1 if the signal came from another sender.
    Event {
        /// The descriptor's number.
        fd: RawFd,
        /// The event's poll(2) bits.
        band: i16,
    },
    /// The queue overflowed and events were lost (SIGIO).
    Overflow,
}

/// Signals queued for one thread, which is the only one that can take them.
///
/// A thread may have several queues; an overflow is then reported to the first that asks.
#[derive(Debug)]
pub struct SignalQueue {
    signal: i32,
    tid: i32,
    descriptor: OwnedFd,
    infos: Box<[u8]>,
    /// Binds the queue to its thread.
    thread: PhantomData<*const ()>,
}

/// Serializes taking ownership of a file that several threads may arm.
static OWNING: Mutex<()> = Mutex::new(());

impl SignalQueue {
    /// Opens a queue for the calling thread, in which a real-time signal and SIGIO are blocked from
    /// now on. `pending_max` becomes the soft RLIMIT_SIGPENDING: the number of signals that may be
    /// queued for all processes of the user.
    ///
    /// # Errors
    /// EPERM where `pending_max` is above the hard limit and the process may not raise that;
    /// EMFILE, ENFILE, ENOMEM: signalfd(2).
    pub fn open(pending_max: Option<u64>) -> io::Result<Self> {
        if let Some(pending_max) = pending_max {
            limit(pending_max)?;
        }
        let signal = next_signal();
        let set = set_of(&[signal, libc::SIGIO]);
        let descriptor = block(&set, libc::SFD_NONBLOCK)?;
        let mut queue = Self {
            signal,
            tid: rustix::thread::gettid().as_raw_nonzero().get(),
            descriptor,
            infos: vec![0; READ_MAX * INFO_SIZE].into_boxed_slice(),
            thread: PhantomData,
        };
        queue.discard();
        Ok(queue)
    }

    /// Queues future events of `fd`; earlier ones are not reported. Returns false when the
    /// descriptor does not support this: an eventfd, a file on a disk. Takes three calls.
    ///
    /// # Errors
    /// EBADF: fcntl(2).
    pub fn arm(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let owner = Owner { kind: F_OWNER_TID, pid: self.tid };
        // SAFETY: the descriptor is borrowed, and the kernel only reads the owner.
        check(timed(Call::Fcntl, || unsafe {
            libc::fcntl(fd.as_raw_fd(), F_SETOWN_EX, std::ptr::from_ref(&owner))
        }))?;
        // SAFETY: the descriptor is borrowed; no memory is touched.
        check(timed(Call::Fcntl, || unsafe {
            libc::fcntl(fd.as_raw_fd(), F_SETSIG, self.signal)
        }))?;
        set_async(fd, true)
    }

    /// Like [`arm`](Self::arm), for a file to which other descriptors may refer, perhaps in other
    /// threads or processes: signals go to one owner only. Also returns false when that is another
    /// thread.
    ///
    /// # Errors
    /// EBADF: fcntl(2).
    pub fn arm_shared(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let _one_at_a_time = OWNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut owner = Owner { kind: F_OWNER_TID, pid: 0 };
        // SAFETY: the descriptor is borrowed, and the owner is a valid place to write to.
        check(timed(Call::Fcntl, || unsafe {
            libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, std::ptr::from_mut(&mut owner))
        }))?;
        if owner.pid != 0 && owner.pid != self.tid {
            return Ok(false);
        }
        // The kernel remembers the number that the file had when it was armed first.
        self.disarm(fd)?;
        self.arm(fd)
    }

    /// Stops queuing events of `fd`. Closing the file's last descriptor does the same.
    ///
    /// # Errors
    /// EBADF: ioctl(2).
    pub fn disarm(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        set_async(fd, false).map(drop)
    }

    /// Descriptor that poll(2) reports readable, to this thread, while a signal is queued.
    pub fn poll_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Waits for one notice with sigtimedwait(2), for ever when `timeout` is `None`. Returns `None`
    /// if there was none; with a timeout of zero that means that none is queued.
    ///
    /// # Errors
    /// EINVAL: sigtimedwait(2).
    pub fn take_one(&mut self, timeout: Option<Duration>) -> io::Result<Option<Notice>> {
        let set = set_of(&[self.signal, libc::SIGIO]);
        let limit = timeout.map(timespec);
        let limit_ptr = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised, the siginfo is a valid place to write to, and the
        // timespec outlives the call or is null, which waits for ever.
        let taken = timed(Call::Sigtimedwait, || unsafe {
            libc::sigtimedwait(&set, info.as_mut_ptr(), limit_ptr)
        });
        if taken == -1 {
            return nothing_queued(io::Error::last_os_error()).map(|()| None);
        }
        // SAFETY: all of it is initialised, it is aligned for a long and longer than a PollInfo,
        // whose fields are plain numbers.
        let info = unsafe { info.as_ptr().cast::<PollInfo>().read() };
        Ok(Some(notice(info.signal, info.code, info.fd, info.band as i16)))
    }

    /// Waits for notices, for ever when `timeout` is `None`, and appends those taken by one read of
    /// a signalfd: at most [`READ_MAX`]; none only if none are queued.
    ///
    /// # Errors
    /// ENOMEM: poll(2), read(2).
    pub fn take_many(
        &mut self,
        notices: &mut Vec<Notice>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        if self.read(notices)? == 0 && timeout != Some(Duration::ZERO) {
            poll(&mut [PollFd { fd: self.poll_fd(), events: POLLIN, revents: 0 }], timeout)?;
            self.read(notices)?;
        }
        Ok(())
    }

    /// Reads once and returns the number of signals taken.
    fn read(&mut self, notices: &mut Vec<Notice>) -> io::Result<usize> {
        let bytes =
            match timed(Call::Signalfd, || rustix::io::read(&self.descriptor, &mut self.infos[..]))
            {
                Ok(bytes) => bytes,
                Err(errno) => return nothing_queued(errno.into()).map(|()| 0),
            };
        let (infos, _) = self.infos[..bytes].as_chunks::<INFO_SIZE>();
        notices.extend(infos.iter().map(|info| {
            // The fields of signalfd(2): ssi_signo, ssi_code, ssi_fd, ssi_band.
            let [signal, _, code, _, _, fd, _, band] = words(info);
            notice(signal, code, fd, band as i16)
        }));
        Ok(infos.len())
    }

    fn discard(&mut self) {
        let mut notices = Vec::new();
        while self.read(&mut notices).is_ok_and(|taken| taken > 0) {
            notices.clear();
        }
    }
}

impl Drop for SignalQueue {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Sets the soft limit, and raises the hard one where it is lower.
fn limit(pending_max: u64) -> io::Result<()> {
    let now = rustix::process::getrlimit(Resource::Sigpending);
    let maximum = now.maximum.map(|hard| hard.max(pending_max));
    let limit = Rlimit { current: Some(pending_max), maximum };
    Ok(rustix::process::setrlimit(Resource::Sigpending, limit)?)
}

/// Returns a different signal for each queue, so that two queues in one thread do not take each
/// other's signals.
fn next_signal() -> i32 {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    // The first and the last are left to others; there are 32, less those the C library keeps.
    let (first, last) = (libc::SIGRTMIN() + 1, libc::SIGRTMAX() - 1);
    first + NEXT.fetch_add(1, Ordering::Relaxed).rem_euclid(last - first + 1)
}

/// Sets O_ASYNC with FIOASYNC, which, unlike F_SETFL, reports files that do not support it. Returns
/// whether it is supported.
fn set_async(fd: BorrowedFd<'_>, on: bool) -> io::Result<bool> {
    let on = i32::from(on);
    // SAFETY: the descriptor is borrowed, and the kernel only reads the number.
    let result = timed(Call::Ioctl, || unsafe {
        libc::ioctl(fd.as_raw_fd(), libc::FIOASYNC, std::ptr::from_ref(&on))
    });
    match check(result) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTTY) => Ok(false),
        result => result.map(|()| true),
    }
}

fn notice(signal: i32, code: i32, fd: RawFd, band: i16) -> Notice {
    // From POLL_IN to POLL_HUP: sigaction(2).
    let is_event = (1..=6).contains(&code);
    match signal {
        libc::SIGIO => Notice::Overflow,
        _ if is_event => Notice::Event { fd, band },
        // Another sender: an event of no descriptor.
        _ => Notice::Event { fd: -1, band: 0 },
    }
}

/// Accepts the errors by which a call reports an empty queue, and passes on all others.
fn nothing_queued(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// Returns the first eight words of a signalfd_siginfo.
fn words(info: &[u8; INFO_SIZE]) -> [i32; 8] {
    let (words, _) = info.as_chunks::<4>();
    std::array::from_fn(|index| i32::from_ne_bytes(words[index]))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    const NOW: Option<Duration> = Some(Duration::ZERO);
    const LONG: Option<Duration> = Some(Duration::from_secs(20));

    fn armed() -> (SignalQueue, UnixStream, UnixStream) {
        let queue = SignalQueue::open(None).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        assert!(queue.arm(near.as_fd()).unwrap());
        (queue, near, far)
    }

    /// Returns the descriptor of an event that includes `band`.
    fn fd_of(notice: Option<Notice>, band: i16) -> Option<RawFd> {
        match notice? {
            Notice::Event { fd, band: told } if told & band != 0 => Some(fd),
            _ => None,
        }
    }

    fn many(queue: &mut SignalQueue, timeout: Option<Duration>) -> Vec<Notice> {
        let mut notices = Vec::new();
        queue.take_many(&mut notices, timeout).unwrap();
        notices
    }

    #[test]
    fn each_event_queues_a_signal_with_the_descriptors_number() {
        let (mut queue, mut near, mut far) = armed();
        assert_eq!(queue.take_one(NOW).unwrap(), None);
        for _ in 0..3 {
            far.write_all(b"x").unwrap();
        }
        for _ in 0..3 {
            assert_eq!(fd_of(queue.take_one(LONG).unwrap(), POLLIN), Some(near.as_raw_fd()));
        }
        assert_eq!(queue.take_one(NOW).unwrap(), None);
        near.read_exact(&mut [0; 3]).unwrap();
        drop(far);
        let hang_up = queue.take_one(LONG).unwrap();
        assert_eq!(fd_of(hang_up, crate::poll::POLLHUP), Some(near.as_raw_fd()));
    }

    #[test]
    fn room_is_told_only_after_a_write_that_fell_short() {
        let (mut queue, mut near, mut far) = armed();
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        assert_eq!(queue.take_one(NOW).unwrap(), None);
        let mut sent = 0;
        while let Ok(bytes) = near.write(&[0; 65536]) {
            sent += bytes;
        }
        far.read_exact(&mut vec![0; sent]).unwrap();
        let room = queue.take_one(LONG).unwrap();
        assert_eq!(fd_of(room, crate::poll::POLLOUT), Some(near.as_raw_fd()));
    }

    #[test]
    fn one_read_takes_many() {
        let (mut queue, _near, mut far) = armed();
        assert_eq!(many(&mut queue, NOW), []);
        for _ in 0..READ_MAX + 7 {
            far.write_all(b"x").unwrap();
        }
        assert_eq!(many(&mut queue, LONG).len(), READ_MAX);
        assert_eq!(many(&mut queue, LONG).len(), 7);
        assert_eq!(many(&mut queue, NOW), []);
    }

    #[test]
    fn the_descriptor_of_a_queue_is_readable_while_something_is_queued() {
        let (mut queue, _near, mut far) = armed();
        let mut entries = [PollFd { fd: queue.poll_fd(), events: POLLIN, revents: 0 }];
        assert_eq!(poll(&mut entries, NOW).unwrap(), 0);
        far.write_all(b"x").unwrap();
        assert_eq!(poll(&mut entries, LONG).unwrap(), 1);
        assert!(queue.take_one(NOW).unwrap().is_some());
        assert_eq!(poll(&mut entries, NOW).unwrap(), 0);
    }

    #[test]
    fn events_before_arming_or_after_disarming_are_not_signalled() {
        let mut queue = SignalQueue::open(None).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"x").unwrap();
        assert!(queue.arm(near.as_fd()).unwrap());
        assert_eq!(queue.take_one(NOW).unwrap(), None);
        queue.disarm(near.as_fd()).unwrap();
        far.write_all(b"x").unwrap();
        assert_eq!(queue.take_one(NOW).unwrap(), None);
    }

    #[test]
    fn an_eventfd_says_that_it_cannot_signal() {
        let queue = SignalQueue::open(None).unwrap();
        let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        assert!(!queue.arm(eventfd.as_fd()).unwrap());
    }

    #[test]
    fn two_queues_of_a_thread_do_not_take_each_others_signals() {
        let (mut queue, near, mut far) = armed();
        let (mut other_queue, other_near, mut other_far) = armed();
        far.write_all(b"x").unwrap();
        other_far.write_all(b"x").unwrap();
        let told = [queue.take_one(LONG).unwrap(), other_queue.take_one(LONG).unwrap()];
        assert_eq!(
            told.map(|notice| fd_of(notice, POLLIN)),
            [Some(near.as_raw_fd()), Some(other_near.as_raw_fd())]
        );
    }

    #[test]
    fn a_shared_file_signals_its_first_owner_by_the_last_number_it_was_armed_with() {
        let (mut queue, near, mut far) = armed();
        let again = near.try_clone().unwrap();
        let elsewhere = std::thread::scope(|scope| {
            let arm = || SignalQueue::open(None).unwrap().arm_shared(near.as_fd()).unwrap();
            scope.spawn(arm).join().unwrap()
        });
        assert!(!elsewhere, "another thread has its signals");
        assert!(queue.arm_shared(again.as_fd()).unwrap());
        far.write_all(b"x").unwrap();
        assert_eq!(fd_of(queue.take_one(LONG).unwrap(), POLLIN), Some(again.as_raw_fd()));
    }

    #[test]
    fn a_signal_that_somebody_sent_is_an_event_of_nobody() {
        let (mut queue, _near, mut far) = armed();
        // SAFETY: the signal is blocked in the only thread it is sent to, which is this one.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), queue.tid, queue.signal) };
        far.write_all(b"x").unwrap();
        let nobody = Notice::Event { fd: -1, band: 0 };
        assert_eq!(queue.take_one(LONG).unwrap(), Some(nobody));
        assert!(fd_of(queue.take_one(LONG).unwrap(), POLLIN).is_some());
    }
}
