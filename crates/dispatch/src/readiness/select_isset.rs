//! `select-isset`: `select`, whose result is searched descriptor by descriptor with FD_ISSET, and
//! not word by word. The system call is the same; what differs is the user-mode loop after it,
//! which banga-scalable fig. 1 shows beside the call, and which its §6.6 replaces in Squid.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::kernel::{Kernel, Linux};
use super::select::Select;
use super::settings::Settings;
use super::{Interest, Mechanism, Token};

/// The interest set of `select`.
#[derive(Debug)]
pub struct SelectIsset<K: Kernel = Linux>(Select<K>);

impl<K: Kernel> SelectIsset<K> {
    /// Appends the members that the last call reported: tests one descriptor after the other, until
    /// all are found.
    fn search(&self, ready: &mut Vec<Token>) {
        let mut left = self.0.reported();
        for fd in 0..self.0.nfds() {
            if left == 0 {
                break;
            }
            if let Some((token, results)) = self.0.ready_member(fd) {
                ready.push(token);
                left -= results;
            }
        }
    }
}

impl<K: Kernel> Mechanism for SelectIsset<K> {
    fn open(settings: &Settings) -> io::Result<Self> {
        Select::open(settings).map(Self)
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.0.add(fd, token, interest)
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.0.change(fd, token, interest)
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.0.remove(fd, token)
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        self.0.blocked(token, direction);
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let reported = self.0.call(timeout)?;
        self.search(ready);
        Ok(reported)
    }

    fn search_again(&self, ready: &mut Vec<Token>) -> bool {
        self.search(ready);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::super::tests::{LONG, NOW};
    use super::*;

    /// Returns what a wait reports, after checking that a search of its result finds it again.
    fn searched<M: Mechanism>(
        ends: &[(UnixStream, UnixStream)],
        timeout: Option<Duration>,
    ) -> Vec<Token> {
        let mut mechanism = M::open(&Settings::default()).unwrap();
        for (slot, (near, _)) in (0..).zip(ends) {
            let token = Token { slot, generation: 1 };
            mechanism.add(near.as_fd(), token, Interest::Read).unwrap();
        }
        let (mut ready, mut again) = (Vec::new(), Vec::new());
        mechanism.wait(timeout, &mut ready).unwrap();
        assert!(mechanism.search_again(&mut again));
        assert_eq!(again, ready);
        ready
    }

    #[test]
    fn both_searches_find_the_same_members_in_the_same_order() {
        let mut ends: Vec<_> = (0..200).map(|_| UnixStream::pair().unwrap()).collect();
        assert_eq!(searched::<SelectIsset>(&ends, NOW), []);
        assert_eq!(searched::<Select>(&ends, NOW), []);
        for (_, far) in ends.iter_mut().skip(3).step_by(31) {
            far.write_all(b"x").unwrap();
        }
        let found = searched::<SelectIsset>(&ends, LONG);
        assert_eq!(found.len(), 7);
        assert_eq!(found, searched::<Select>(&ends, LONG));
    }
}
