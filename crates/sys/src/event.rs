//! eventfd(2): wakes a thread that waits for descriptors from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;

/// A descriptor that becomes readable when any thread rings it.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// Creates a silent bell.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: eventfd(2).
    pub fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the bell readable. Ringing it twice has the effect of ringing it once.
    pub fn ring(&self) {
        // The only failure is EAGAIN, at the counter's limit, and then it is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the bell silent again.
    pub fn hush(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
