//! `select`: bitmaps copied in and out on every call. Its cost grows with the highest descriptor,
//! ready or not: the loss with idle connections that banga-scalable fig. 1 shows. The result is
//! searched word by word.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use weir_sys::select::WORD_BITS;

use super::kernel::{Kernel, Linux};
use super::settings::Settings;
use super::{Interest, Mechanism, Token};

/// The interest set as two bitmaps over descriptor numbers.
#[derive(Debug)]
pub struct Select<K: Kernel = Linux> {
    read: Vec<u64>,
    write: Vec<u64>,
    ready_read: Vec<u64>,
    ready_write: Vec<u64>,
    /// Number of bits set in the two results.
    reported: usize,
    tokens: Vec<Token>,
    kernel: PhantomData<K>,
}

impl<K: Kernel> Select<K> {
    /// Returns an empty set.
    pub(super) fn new() -> Self {
        Self {
            read: Vec::new(),
            write: Vec::new(),
            ready_read: Vec::new(),
            ready_write: Vec::new(),
            reported: 0,
            tokens: Vec::new(),
            kernel: PhantomData,
        }
    }

    /// Adds a member, or replaces it, by its descriptor number.
    pub(super) fn put(&mut self, number: usize, token: Token, interest: Interest) {
        if number >= self.tokens.len() {
            self.tokens.resize(number + 1, Token::default());
        }
        self.tokens[number] = token;
        let words = number / WORD_BITS + 1;
        if words > self.read.len() {
            self.read.resize(words, 0);
            self.write.resize(words, 0);
        }
        self.set(number, interest);
    }

    /// Removes a member by its descriptor number.
    pub(super) fn take_out(&mut self, number: usize) {
        if number / WORD_BITS < self.read.len() {
            self.set(number, Interest::Nothing);
            self.shrink();
        }
    }

    fn set(&mut self, fd: usize, interest: Interest) {
        let (word, bit) = (fd / WORD_BITS, 1_u64 << (fd % WORD_BITS));
        self.read[word] &= !bit;
        self.write[word] &= !bit;
        match interest {
            Interest::Read | Interest::Accept => self.read[word] |= bit,
            Interest::Write => self.write[word] |= bit,
            Interest::Either => {
                self.read[word] |= bit;
                self.write[word] |= bit;
            }
            Interest::Nothing => {}
        }
    }

    /// Makes the system call; returns the number of bits set in its results.
    pub(super) fn call(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.ready_read.clone_from(&self.read);
        self.ready_write.clone_from(&self.write);
        let nfds = self.read.len() * WORD_BITS;
        self.reported = 0;
        self.reported = K::select(nfds, &mut self.ready_read, &mut self.ready_write, timeout)?;
        Ok(self.reported)
    }

    /// Number of bits set in the results of the last call.
    pub(super) fn reported(&self) -> usize {
        self.reported
    }

    /// Number of descriptors in the results of the last call.
    pub(super) fn nfds(&self) -> usize {
        self.ready_read.len() * WORD_BITS
    }

    /// Returns the member of a descriptor below [`Select::nfds`] if the last call reported it, and
    /// in how many of its two results: FD_ISSET of select(2), for both.
    pub(super) fn ready_member(&self, fd: usize) -> Option<(Token, usize)> {
        let is_set = |map: &[u64]| map[fd / WORD_BITS] & 1 << (fd % WORD_BITS) != 0;
        let results =
            usize::from(is_set(&self.ready_read)) + usize::from(is_set(&self.ready_write));
        (results > 0).then(|| (self.tokens[fd], results))
    }

    /// Appends the members that the last call reported: goes through the results word by word, and
    /// past empty words, until all are found.
    fn search(&self, ready: &mut Vec<Token>) {
        let mut left = self.reported;
        for (word, (read, write)) in self.ready_read.iter().zip(&self.ready_write).enumerate() {
            let mut bits = read | write;
            left -= (read.count_ones() + write.count_ones()) as usize;
            while bits != 0 {
                ready.push(self.tokens[word * WORD_BITS + bits.trailing_zeros() as usize]);
                bits &= bits - 1;
            }
            if left == 0 {
                break;
            }
        }
    }

    /// Drops empty words at the end, so that the highest descriptor in use bounds the call.
    fn shrink(&mut self) {
        while self.read.last() == Some(&0) && self.write.last() == Some(&0) {
            self.read.pop();
            self.write.pop();
        }
    }
}

impl<K: Kernel> Mechanism for Select<K> {
    fn open(_: &Settings) -> io::Result<Self> {
        Ok(Self::new())
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.put(fd.as_raw_fd() as usize, token, interest);
        Ok(())
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.put(fd.as_raw_fd() as usize, token, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>, _: Token) -> io::Result<()> {
        self.take_out(fd.as_raw_fd() as usize);
        Ok(())
    }

    fn blocked(&mut self, _: Token, _: Interest) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let reported = self.call(timeout)?;
        self.search(ready);
        Ok(reported)
    }

    fn search_again(&self, ready: &mut Vec<Token>) -> bool {
        self.search(ready);
        true
    }
}
