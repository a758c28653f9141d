//! Signals as a descriptor: signalfd(2), so that no handler ever runs.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub use libc::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1};

/// A set of signals blocked in this thread and in threads it starts later, and read one at a time.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks `signals` and opens a descriptor that delivers them. Call it before starting threads.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: signalfd(2).
    pub fn block(signals: &[i32]) -> io::Result<Self> {
        let mut set = std::mem::MaybeUninit::zeroed();
        // SAFETY: the calls read and change this one set, which is numbers, all of them set; a null
        // old mask is allowed; the descriptor is checked below and owned by nobody else.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            match libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(Self(OwnedFd::from_raw_fd(fd))),
            }
        }
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
