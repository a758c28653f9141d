//! eventfd(2): wakes a thread that waits for descriptors from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;

/// A descriptor that becomes readable when any thread wakes it.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Creates a waker that is not readable.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: eventfd(2).
    pub fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the waker readable. Waking twice has the effect of waking once.
    pub fn wake(&self) {
        // The only failure is EAGAIN, at the counter's limit, and then it is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the waker unreadable again.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }

    /// Waits until the waker is readable, and leaves it so. Any number of threads and processes may
    /// wait. The call is not counted by the profile: it serves no connection.
    pub fn wait(&self) {
        loop {
            match rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                Ok(1..) => return,
                Ok(0) | Err(Errno::INTR) => {}
                // Lack of memory, which passes.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_threads_wait_until_the_waker_is_woken_and_none_later() {
        let waker = Waker::new().unwrap();
        std::thread::scope(|scope| {
            let waiting = [(); 3].map(|()| scope.spawn(|| waker.wait()));
            waker.wake();
            waiting.into_iter().for_each(|thread| thread.join().unwrap());
        });
        waker.wait();
    }
}
