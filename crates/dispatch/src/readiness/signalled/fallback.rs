//! The way of chandra-dispatch §3.3 and §4.2 out of an overflow: what is queued is discarded, and a
//! select over all members takes the place of signals for as long as it finds something ready. The
//! loop accepts every waiting connection meanwhile (multi-accept), because the event that told of
//! one may be lost.
//!
//! Signals are queued all the while, and not taken. When a select finds nothing, every member is
//! unsure, so that the next wait polls it, and signals are taken again: those queued meanwhile tell
//! of what is known, unless their queue has overflowed too. Then a SIGIO is the first to be taken,
//! and select goes on. The paper does not say what its server flushes, nor when it returns: both
//! are choices made here.

use std::io;

use super::{NOW, Signalled};
use crate::readiness::kernel::Kernel;
use crate::readiness::select::Select;
use crate::readiness::{Interest, Mechanism, Token};

impl<K: Kernel> Signalled<K> {
    /// Returns whether select stands in for signals.
    pub(in crate::readiness) fn is_falling_back(&self) -> bool {
        self.fallback.is_some()
    }

    /// Begins to ask select about all members.
    pub(super) fn begin_fallback(&mut self) {
        let mut select = Select::new();
        for number in 0..self.numbers_end {
            let Some(slot) = self.numbers.at(number).slot else { continue };
            if let Some(member) = self.members.at(slot) {
                select.put(number as usize, member.token, member.interest);
            }
        }
        self.fallback = Some(select);
    }

    /// Calls select once, without waiting, while it stands in. Returns the number of descriptors
    /// ready; `None` when signals are to be taken.
    pub(super) fn ask_fallback(&mut self, ready: &mut Vec<Token>) -> io::Result<Option<usize>> {
        let Some(select) = &mut self.fallback else { return Ok(None) };
        let found = select.wait(NOW, ready)?;
        self.counts.fallbacks += 1;
        if found > 0 {
            return Ok(Some(found));
        }
        self.fallback = None;
        self.doubt_all();
        self.presume_room_for_all();
        Ok(None)
    }

    /// Presumes all members writable: what a select has told of them is not kept, and a socket that
    /// a write has filled to the brim signals no room.
    fn presume_room_for_all(&mut self) {
        for number in 0..self.numbers_end {
            let Some(slot) = self.numbers.at(number).slot else { continue };
            if let Some(member) = self.members.at(slot).as_ref().filter(|member| !member.level) {
                self.edges.presume_room(member.token);
            }
        }
    }

    /// Has every member polled before the next sleep.
    pub(super) fn doubt_all(&mut self) {
        for number in 0..self.numbers_end {
            let Some(slot) = self.numbers.at(number).slot else { continue };
            let Some(member) = self.members.at(slot) else { continue };
            member.unsure |= !member.mute;
            let token = member.token;
            self.list(token);
        }
    }

    /// Keeps the set of select as the members are.
    pub(super) fn put_in_fallback(&mut self, number: u32, token: Token, interest: Interest) {
        if let Some(select) = &mut self.fallback {
            select.put(number as usize, token, interest);
        }
    }

    /// Takes a member out of the set of select.
    pub(super) fn take_out_of_fallback(&mut self, number: u32) {
        if let Some(select) = &mut self.fallback {
            select.take_out(number as usize);
        }
    }
}
