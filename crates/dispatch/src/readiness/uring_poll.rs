//! `uring-poll`: a multishot io_uring poll armed once per member, for everything. It reports only
//! changes, so the state of each socket is kept here ([`super::edges`] has the invariant); a change
//! of interest costs no call. The kernel may end a multishot poll, as when the completion queue is
//! full: it is armed again in the same call as the next wait, and starts with existing readiness,
//! so that nothing is lost.
//!
//! A listening socket is the exception, as in [`super::epoll_et`]: an edge would have to be
//! exhausted by a failing accept. Its poll is one-shot and armed again with the next wait, which
//! costs no call either.
//!
//! An armed poll holds its file open ([`super::armed`]), and here one is armed for every member all
//! the time: the peer sees a close only at the next wait. A listening socket's poll is ended at
//! once, with a call, or it would continue to take connections.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use weir_sys::epoll::EventFlags;

use super::armed::{ArmedPolls, PollRequest};
use super::edges::{Edges, Seen};
use super::epoll_et::seen;
use super::epoll_lt::flags;
use super::kernel::{Kernel, Linux};
use super::settings::Settings;
use super::{Counts, Interest, Mechanism, Token};

/// The polls, kept by the kernel, and the readiness of each member, kept here.
pub struct UringPoll<K: Kernel = Linux> {
    armed: ArmedPolls<K::Ring>,
    edges: Edges,
}

/// Poll for all events; the bits of poll(2) are those of epoll(7).
const EVERYTHING: PollRequest = PollRequest {
    poll: EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).bits(),
    many: true,
};

/// Converts a result. A failed poll gives no information: the caller tries, and says what blocked.
fn read(result: i32) -> Seen {
    let flags = u32::try_from(result).map(EventFlags::from_bits_retain);
    flags.map_or(Seen { read: true, write: true, ..Seen::default() }, seen)
}

impl<K: Kernel> UringPoll<K> {
    fn watch_level(
        &mut self,
        fd: BorrowedFd<'_>,
        token: Token,
        wanted: Interest,
    ) -> io::Result<()> {
        self.armed.watch(fd, token, PollRequest { poll: flags(wanted).bits(), many: false })
    }
}

impl<K: Kernel> Mechanism for UringPoll<K> {
    fn open(_: &Settings) -> io::Result<Self> {
        Ok(Self { armed: ArmedPolls::open()?, edges: Edges::default() })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let level = interest == Interest::Accept;
        self.edges.add(token, interest, level);
        if level {
            return self.watch_level(fd, token, interest);
        }
        self.armed.watch(fd, token, EVERYTHING)
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        if self.edges.is_level(token.slot) {
            return self.watch_level(fd, token, interest);
        }
        self.edges.change(token, interest);
        Ok(())
    }

    fn remove(&mut self, _: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let level = self.edges.is_level(token.slot);
        self.edges.remove(token);
        self.armed.remove(token, level)
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.edges.blocked(token, direction);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let known = self.edges.report_known(ready);
        let timeout = if known { Some(Duration::ZERO) } else { timeout };
        self.armed.wait(timeout, |token, result, request| {
            (self.edges.learn(token, read(result), ready), request)
        })
    }

    fn counts(&self) -> Counts {
        self.armed.counts
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::super::tests::{LONG, NOW, open, ready};
    use super::*;

    fn token(slot: u32) -> Token {
        Token { slot, generation: slot + 1 }
    }

    #[test]
    fn one_poll_serves_a_connection_for_life() {
        let Some(mut m) = open::<UringPoll>() else { return };
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        m.add(near.as_fd(), token(1), Interest::Read).unwrap();
        ready(&mut m, NOW);
        for _ in 0..20 {
            far.write_all(b"x").unwrap();
            assert_eq!(ready(&mut m, LONG), [token(1)]);
            assert_eq!(near.read(&mut [0; 2]).unwrap(), 1);
            m.blocked(token(1), Interest::Read);
            assert_eq!(ready(&mut m, NOW), []);
        }
        assert_eq!(m.counts().rearmed, 0);
        assert_eq!(m.counts().stale, 0);
    }

    #[test]
    fn a_removed_member_lets_its_peer_go_at_the_next_wait_though_it_had_news() {
        let Some(mut m) = open::<UringPoll>() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        m.add(near.as_fd(), token(1), Interest::Read).unwrap();
        ready(&mut m, NOW);
        far.write_all(b"x").unwrap();
        m.remove(near.as_fd(), token(1)).unwrap();
        drop(near);
        far.set_nonblocking(true).unwrap();
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(ready(&mut m, NOW), []);
        let end = far.read(&mut [0]).map_err(|error| error.kind());
        assert_ne!(end, Err(io::ErrorKind::WouldBlock));
    }

    #[test]
    fn nothing_is_lost_when_there_is_no_room_for_all_that_happened() {
        let Some(mut m) = open::<UringPoll>() else { return };
        let pairs: Vec<_> = (0..400).map(|_| UnixStream::pair().unwrap()).collect();
        for (slot, (near, _)) in (0..).zip(&pairs) {
            near.set_nonblocking(true).unwrap();
            m.add(near.as_fd(), token(slot), Interest::Read).unwrap();
        }
        ready(&mut m, NOW);
        // Many edges per member: together more than the ring has space for.
        for _ in 0..40 {
            pairs.iter().for_each(|(_, far)| (&mut &*far).write_all(b"x").unwrap());
            m.armed.ring.submit().unwrap();
        }
        let everybody: Vec<_> = (0..400).map(token).collect();
        assert_eq!(ready(&mut m, LONG), everybody);
        for (slot, (near, far)) in (0..).zip(&pairs) {
            while (&mut &*near).read(&mut [0; 64]).is_ok() {}
            m.blocked(token(slot), Interest::Read);
            (&mut &*far).write_all(b"y").unwrap();
        }
        assert_eq!(ready(&mut m, LONG), everybody);
        assert!(m.counts().rearmed > 0, "some polls had been ended");
    }
}
