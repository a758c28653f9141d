//! `poll`: an array of descriptors passed on every call, dense and unordered. Its cost grows with
//! the number of members, ready or not.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use weir_sys::poll::{POLLIN, POLLOUT, PollFd};

use super::kernel::{Kernel, Linux};
use super::settings::Settings;
use super::{Interest, Mechanism, PerSlot, Token};

/// The interest set as the array itself, with the parallel array of tokens and each slot's index.
///
/// A member that waits for nothing is removed from the array, because poll always reports hang-ups.
#[derive(Debug)]
pub struct Poll<K: Kernel = Linux> {
    fds: Vec<PollFd>,
    tokens: Vec<Token>,
    places: PerSlot<Option<u32>>,
    kernel: PhantomData<K>,
}

impl<K: Kernel> Poll<K> {
    fn leave(&mut self, slot: u32) {
        let Some(place) = self.places.at(slot).take() else { return };
        self.fds.swap_remove(place as usize);
        self.tokens.swap_remove(place as usize);
        if let Some(moved) = self.tokens.get(place as usize) {
            *self.places.at(moved.slot) = Some(place);
        }
    }
}

impl<K: Kernel> Mechanism for Poll<K> {
    fn open(_: &Settings) -> io::Result<Self> {
        Ok(Self {
            fds: Vec::new(),
            tokens: Vec::new(),
            places: PerSlot::default(),
            kernel: PhantomData,
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        self.change(fd, token, interest)
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: Token, interest: Interest) -> io::Result<()> {
        let events = match interest {
            Interest::Read | Interest::Accept => POLLIN,
            Interest::Write => POLLOUT,
            Interest::Either => POLLIN | POLLOUT,
            Interest::Nothing => {
                self.leave(token.slot);
                return Ok(());
            }
        };
        let entry = PollFd { fd: fd.as_raw_fd(), events, revents: 0 };
        if let Some(place) = *self.places.at(token.slot) {
            self.fds[place as usize] = entry;
            self.tokens[place as usize] = token;
        } else {
            *self.places.at(token.slot) = Some(self.fds.len() as u32);
            self.fds.push(entry);
            self.tokens.push(token);
        }
        Ok(())
    }

    fn remove(&mut self, _: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.leave(token.slot);
        Ok(())
    }

    fn blocked(&mut self, _: Token, _: Interest) {}

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Token>) -> io::Result<usize> {
        let reported = K::poll(&mut self.fds, timeout)?;
        let mut found = reported;
        for (entry, token) in self.fds.iter().zip(&self.tokens) {
            if found == 0 {
                break;
            }
            if entry.revents != 0 {
                ready.push(*token);
                found -= 1;
            }
        }
        Ok(reported)
    }
}
