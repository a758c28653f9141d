//! `epoll-exclusive`: `epoll-et` for loops that share a listening socket. The socket is registered
//! with EPOLLEXCLUSIVE (Linux 4.5), so that a connection wakes one sleeping loop and not all of
//! them; see epoll_ctl(2).
//!
//! The kernel wakes the first sleeping loop in the socket's wait queue, which is mostly the same
//! one. As in nginx (`ngx_reorder_accept_events`), a loop moves to the end of the queue after
//! [`REORDER_EVERY`] wake-ups: it removes the socket and adds it again. The flag is valid only for
//! ADD, so a change of interest is a DEL or an ADD too.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::epoll::EventFlags;

use super::epoll_et::EpollEt;
use super::kernel::{EpollSet, Kernel, Linux};
use super::settings::Settings;
use super::{Interest, Mechanism, Token};

/// Number of reports of a socket after which its loop moves to the end of the queue, as in nginx.
const REORDER_EVERY: u32 = 16;

/// Maximum sleep of a wait while a socket is missing from the set.
const RETRY: Duration = Duration::from_millis(10);

const SHARED: EventFlags = EventFlags::IN.union(EventFlags::EXCLUSIVE);

/// The interest set of `epoll-et`, and its accepting members.
pub struct EpollExclusive<K: Kernel = Linux> {
    inner: EpollEt<K>,
    /// The listening sockets and the loop's bell; few.
    shared: Vec<Shared>,
}

/// An accepting member. Its descriptor number is valid until it is removed, which precedes its
/// close.
#[derive(Clone, Copy, Debug)]
struct Shared {
    token: Token,
    fd: RawFd,
    wanted: bool,
    inside: bool,
    reports: u32,
}

impl Shared {
    fn is_left_out(&self) -> bool {
        self.wanted && !self.inside
    }
}

impl<K: Kernel> EpollExclusive<K> {
    fn find(&mut self, token: Token) -> Option<&mut Shared> {
        self.shared.iter_mut().find(|shared| shared.token == token)
    }

    /// Starts or stops waiting for a shared member.
    fn set(&mut self, fd: BorrowedFd<'_>, token: Token, wanted: bool) -> io::Result<()> {
        let Some(inside) = self.find(token).map(|shared| shared.inside) else { return Ok(()) };
        match (inside, wanted) {
            (false, true) => self.inner.epoll.add(fd, token.pack(), SHARED)?,
            (true, false) => self.inner.epoll.delete(fd)?,
            _ => {}
        }
        if let Some(shared) = self.find(token) {
            (shared.wanted, shared.inside) = (wanted, wanted);
        }
        Ok(())
    }

    /// Moves the loop to the end of the wait queue of each socket that has woken it often enough.
    /// Where the removal fails the loop keeps its place, which is harmless.
    fn reorder(&mut self, ready: &[Token]) {
        for shared in self.shared.iter_mut().filter(|shared| ready.contains(&shared.token)) {
            shared.reports += 1;
            if shared.reports.is_multiple_of(REORDER_EVERY) && shared.inside {
                shared.inside = self.inner.epoll.delete_raw(shared.fd).is_err();
            }
        }
        self.readmit();
    }

    /// Adds members missing from the set: just removed, or left out before for lack of memory.
    /// Returns whether all are back.
    fn readmit(&mut self) -> bool {
        let epoll = &self.inner.epoll;
        for shared in self.shared.iter_mut().filter(|shared| shared.is_left_out()) {
            shared.inside = epoll.add_raw(shared.fd, shared.token.pack(), SHARED).is_ok();
        }
        !self.shared.iter().any(Shared::is_left_out)
    }
}

impl<K: Kernel> Mechanism for EpollExclusive<K> {
    fn open(settings: &Settings) -> io::Result<Self> {
        Ok(Self { inner: EpollEt::open(settings)?, shared: Vec::new() })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        if interest != Interest::Accept {
            return self.inner.add(fd, token, interest);
        }
        self.inner.epoll.add(fd, token.pack(), SHARED)?;
        self.inner.edges.add(token, interest, true);
        let fd = fd.as_raw_fd();
        self.shared.push(Shared { token, fd, wanted: true, inside: true, reports: 0 });
        Ok(())
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        if self.inner.edges.is_level(token.slot) {
            return self.set(fd, token, interest == Interest::Accept);
        }
        self.inner.change(fd, token, interest)
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        if !self.inner.edges.is_level(token.slot) {
            return self.inner.remove(fd, token);
        }
        let silenced = self.set(fd, token, false);
        self.inner.edges.remove(token);
        self.shared.retain(|shared| shared.token != token);
        silenced
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.inner.blocked(token, direction);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let soon = timeout.map_or(RETRY, |timeout| timeout.min(RETRY));
        let timeout = if self.readmit() { timeout } else { Some(soon) };
        // Nothing wakes the loop for a member that is left out: its accept is tried.
        ready.extend(self.shared.iter().filter(|shared| shared.is_left_out()).map(|s| s.token));
        let tried = ready.len();
        let reported = self.inner.wait(timeout, ready)?;
        self.reorder(&ready[tried..]);
        Ok(reported)
    }

    fn has_reported_all(&self) -> bool {
        self.inner.has_reported_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    const TOKEN: Token = Token { slot: 1, generation: 0 };

    #[test]
    fn a_loop_that_was_woken_often_enough_gives_another_its_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut loops = [(); 2].map(|()| {
            let mut one = EpollExclusive::<Linux>::open(&Settings::default()).unwrap();
            one.add(listener.as_fd(), TOKEN, Interest::Accept).unwrap();
            one
        });
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for report in 1..=2 * REORDER_EVERY {
            let mut ready = Vec::new();
            loops[0].wait(None, &mut ready).unwrap();
            assert_eq!(ready, [TOKEN], "level-triggered, whatever its place: report {report}");
        }
        assert_eq!(loops[0].shared[0].reports, 2 * REORDER_EVERY);
        assert!(loops[0].shared[0].inside);
    }

    #[test]
    fn a_socket_left_out_of_the_queue_is_added_at_the_next_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = EpollExclusive::<Linux>::open(&Settings::default()).unwrap();
        one.add(listener.as_fd(), TOKEN, Interest::Accept).unwrap();
        one.inner.epoll.delete(listener.as_fd()).unwrap();
        one.shared[0].inside = false;
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut ready = Vec::new();
        one.wait(None, &mut ready).unwrap();
        assert_eq!(ready, [TOKEN]);
    }
}
