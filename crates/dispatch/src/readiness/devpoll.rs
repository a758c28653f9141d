//! `devpoll`: an interest set kept by the kernel, with results in memory shared with it. Linux has
//! no /dev/poll; in its place is an io_uring poll armed for each member that waits for something.
//! It completes once, immediately if the member is already ready. A reported member is armed again
//! in the same call as the next wait, which makes the mechanism level-triggered. A change of
//! interest costs no call of its own.
//!
//! io_uring completes a poll at the end of the peer's bytes even if that was not requested
//! (POLLRDHUP): a blocked writer would be woken by that for ever. So after an event that the member
//! does not wait for, its poll is multishot, which reports only changes, until one of them is what
//! it waits for.
//!
//! An armed poll holds its file open ([`super::armed`]). A connection is mostly closed after it was
//! reported, when nothing is armed; otherwise, as at a timeout, the peer sees the close at the next
//! wait. A listening socket's poll is ended at once, with a call, or it would continue to take
//! connections.
//!
//! The device goes through its whole set at each call (chandra-dispatch §3.2), which armed polls
//! never do. By option [`Poll`] takes their place: an array that outlives the wait, of which only
//! what changes is written, and through which the kernel goes at each wait. It is copied to the
//! kernel each time, as the device's was not.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use weir_sys::epoll::EventFlags;

use super::armed::{ArmedPolls, PollRequest};
use super::epoll_lt::flags;
use super::kernel::{Kernel, Linux};
use super::poll::Poll;
use super::settings::{Settings, Tunable};
use super::{Counts, Interest, Mechanism, PerSlot, Token};

const SCAN: Tunable = Tunable {
    name: "scan",
    help: "1: a wait goes through all members, as the device did: poll(2) of an array that is \
           kept; 0: it goes through none: a poll of io_uring is armed for each",
    default: 0,
    min: 0,
    max: 1,
};

/// The interest set.
pub struct DevPoll<K: Kernel = Linux>(Set<K>);

enum Set<K: Kernel> {
    /// Polls kept by the kernel, and which of the members listen.
    Armed { polls: ArmedPolls<K::Ring>, listens: PerSlot<bool> },
    /// An array that the kernel goes through.
    Scanned(Poll<K>),
}

/// Converts an interest to a poll; the bits of poll(2) are those of epoll(7).
fn request(interest: Interest) -> PollRequest {
    PollRequest { poll: flags(interest).bits(), many: false }
}

/// Returns whether a member waits for this result. A failed poll counts too: the caller's next call
/// reports the error.
fn concerns(result: i32, request: PollRequest) -> bool {
    let trouble = (EventFlags::ERR | EventFlags::HUP).bits();
    u32::try_from(result).map_or(true, |seen| seen & (request.poll | trouble) != 0)
}

impl<K: Kernel> Mechanism for DevPoll<K> {
    const TUNABLES: &'static [Tunable] = &[SCAN];

    fn open(settings: &Settings) -> io::Result<Self> {
        if settings.get(&SCAN) == 1 {
            return Poll::open(settings).map(|array| Self(Set::Scanned(array)));
        }
        Ok(Self(Set::Armed { polls: ArmedPolls::open()?, listens: PerSlot::default() }))
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        match &mut self.0 {
            Set::Armed { polls, listens } => {
                *listens.at(token.slot) = interest == Interest::Accept;
                polls.watch(fd, token, request(interest))
            }
            Set::Scanned(array) => array.add(fd, token, interest),
        }
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        match &mut self.0 {
            Set::Armed { polls, .. } => polls.watch(fd, token, request(interest)),
            Set::Scanned(array) => array.change(fd, token, interest),
        }
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        match &mut self.0 {
            Set::Armed { polls, listens } => {
                let listens = std::mem::take(listens.at(token.slot));
                polls.remove(token, listens)
            }
            Set::Scanned(array) => array.remove(fd, token),
        }
    }

    fn blocked(&mut self, _: Token, _: Interest) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        match &mut self.0 {
            Set::Armed { polls, .. } => polls.wait(timeout, |token, result, request| {
                let is_ready = concerns(result, request);
                if is_ready {
                    ready.push(token);
                }
                (is_ready, PollRequest { many: !is_ready, ..request })
            }),
            Set::Scanned(array) => array.wait(timeout, ready),
        }
    }

    fn counts(&self) -> Counts {
        match &self.0 {
            Set::Armed { polls, .. } => polls.counts,
            Set::Scanned(array) => array.counts(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::super::tests::{LONG, NOW, open, ready};
    use super::*;

    const OLD: Token = Token { slot: 3, generation: 1 };
    const NEW: Token = Token { slot: 3, generation: 2 };

    #[test]
    fn a_poll_is_armed_again_only_when_it_has_told_something() {
        let Some(mut m) = open::<DevPoll>() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        m.add(near.as_fd(), OLD, Interest::Read).unwrap();
        ready(&mut m, NOW);
        assert_eq!(ready(&mut m, NOW), []);
        assert_eq!(m.counts(), Counts::default());
        far.write_all(b"x").unwrap();
        for rearmed in 0..3 {
            assert_eq!(ready(&mut m, LONG), [OLD]);
            let expected = Counts { notices: rearmed + 1, rearmed, ..Counts::default() };
            assert_eq!(m.counts(), expected);
        }
    }

    #[test]
    fn a_writer_without_room_hears_once_that_its_peer_has_ended_its_bytes() {
        let Some(mut m) = open::<DevPoll>() else { return };
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.shutdown(std::net::Shutdown::Write).unwrap();
        m.add(near.as_fd(), OLD, Interest::Write).unwrap();
        for _ in 0..3 {
            let mut sent = 0;
            while let Ok(bytes) = near.write(&[0; 65536]) {
                sent += bytes;
            }
            for _ in 0..3 {
                ready(&mut m, NOW);
            }
            let notices = m.counts().notices;
            assert_eq!(ready(&mut m, NOW), []);
            assert_eq!(m.counts().notices, notices, "or a wait would never sleep");
            far.read_exact(&mut vec![0; sent]).unwrap();
            assert_eq!(ready(&mut m, LONG), [OLD]);
            assert_eq!(ready(&mut m, LONG), [OLD], "while there is room");
        }
    }

    #[test]
    fn events_before_a_change_are_not_reported_after_it() {
        let Some(mut m) = open::<DevPoll>() else { return };
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 65536]).is_ok() {}
        m.add(near.as_fd(), OLD, Interest::Read).unwrap();
        ready(&mut m, NOW);
        far.write_all(b"x").unwrap();
        m.change(near.as_fd(), OLD, Interest::Write).unwrap();
        assert_eq!(ready(&mut m, NOW), [], "there is something to read, but no room");
        assert_eq!(m.counts().stale, 1);
        m.change(near.as_fd(), OLD, Interest::Read).unwrap();
        assert_eq!(ready(&mut m, LONG), [OLD]);
    }

    #[test]
    fn events_before_a_removal_are_not_reported_for_the_next_member() {
        let Some(mut m) = open::<DevPoll>() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        m.add(near.as_fd(), OLD, Interest::Read).unwrap();
        ready(&mut m, NOW);
        far.write_all(b"x").unwrap();
        m.remove(near.as_fd(), OLD).unwrap();
        drop(near);
        let (other, mut other_far) = UnixStream::pair().unwrap();
        m.add(other.as_fd(), NEW, Interest::Read).unwrap();
        assert_eq!(ready(&mut m, NOW), []);
        assert_eq!(m.counts().stale, 1);
        far.set_nonblocking(true).unwrap();
        let end = far.read(&mut [0]).map_err(|error| error.kind());
        assert_ne!(end, Err(io::ErrorKind::WouldBlock), "the wait let the old one go");
        other_far.write_all(b"x").unwrap();
        assert_eq!(ready(&mut m, LONG), [NEW]);
    }

    #[test]
    fn a_descriptor_closed_before_arming_is_never_looked_up() {
        let Some(mut m) = open::<DevPoll>() else { return };
        let (near, _far) = UnixStream::pair().unwrap();
        m.add(near.as_fd(), OLD, Interest::Write).unwrap();
        m.remove(near.as_fd(), OLD).unwrap();
        drop(near);
        let (_same_number, _) = UnixStream::pair().unwrap();
        assert_eq!(ready(&mut m, NOW), []);
        assert_eq!(m.counts(), Counts::default());
    }

    #[test]
    fn the_end_of_a_disarmed_poll_does_not_end_a_wait() {
        let Some(mut m) = open::<DevPoll>() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        let (other, _other_far) = UnixStream::pair().unwrap();
        m.add(near.as_fd(), OLD, Interest::Read).unwrap();
        m.add(other.as_fd(), Token { slot: 4, generation: 1 }, Interest::Read).unwrap();
        ready(&mut m, NOW);
        m.change(other.as_fd(), Token { slot: 4, generation: 1 }, Interest::Nothing).unwrap();
        let writer = std::thread::spawn(move || far.write_all(b"x").map(|()| far));
        assert_eq!(ready(&mut m, LONG), [OLD]);
        writer.join().unwrap().unwrap();
        assert_eq!(m.counts().stale, 1);
    }
}
