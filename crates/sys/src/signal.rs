//! Signals as a descriptor: signalfd(2), so that no handler ever runs.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::check;

pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/// A set of signals blocked in this thread and in threads it starts later, and read one at a time.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks `signals` and opens a descriptor that delivers them. Call it before starting threads.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: signalfd(2).
    pub fn block(signals: &[i32]) -> io::Result<Self> {
        block(&set_of(signals), 0).map(Self)
    }

    /// Waits for the next signal and returns its number.
    ///
    /// # Errors
    /// Those of read(2) on a signalfd.
    pub fn next(&self) -> io::Result<i32> {
        let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.0, &mut info) {
                // ssi_signo is the first field, an unsigned 32-bit number: signalfd(2).
                Ok(_) => return Ok(i32::from_ne_bytes([info[0], info[1], info[2], info[3]])),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The descriptor's number, for poll(2).
    pub fn raw(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

pub(crate) fn set_of(signals: &[i32]) -> libc::sigset_t {
    // As large as the C library's, of which sigemptyset writes no more than the kernel's part.
    let mut set = MaybeUninit::zeroed();
    // SAFETY: sigemptyset and sigaddset write to the set they are given and to nothing else. It is
    // numbers, all of which are set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for &signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks signals in the calling thread, and opens a descriptor that delivers them.
pub(crate) fn block(set: &libc::sigset_t, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised and only read; a null old mask is allowed.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, std::ptr::null_mut()) };
    // SAFETY: the set is initialised and only read.
    let fd = unsafe { libc::signalfd(-1, set, libc::SFD_CLOEXEC | flags) };
    check(fd)?;
    // SAFETY: the descriptor was just made, and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
