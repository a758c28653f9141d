//! The caller's side of the model: how it uses a member, and when it calls `blocked`. It is a
//! miniature server: it reads, writes and accepts, wholly or in part, and leaves after an end.

use super::super::super::fake::{CallFailure, Kind, world};
use super::super::super::{Interest, Mechanism};
use super::{ALL, Member, Model};

impl<M: Mechanism> Model<M> {
    /// Takes the caller's turn with a member, as when it was reported.
    pub(super) fn use_it(&mut self, slot: usize) {
        let Some(member) = self.members[slot].clone() else { return };
        for _ in 0..1 + self.rng.below(4) {
            let count = self.rng.pick(&[1, 2, 3, ALL]);
            let goes_on = match member.interest {
                Interest::Read => self.read(slot, &member, count),
                Interest::Write => self.write(slot, &member, count),
                Interest::Either if self.rng.one_in(2) => self.read(slot, &member, count),
                Interest::Either => self.write(slot, &member, count),
                Interest::Accept => self.accept(&member),
                Interest::Nothing => false,
            };
            if !goes_on {
                return;
            }
        }
    }

    fn read(&mut self, slot: usize, member: &Member, count: usize) -> bool {
        let taken = world(|w| w.take(member.number(), count));
        self.tell(|| format!("read {count} of {}: {taken:?}", member.number()));
        match taken {
            Ok(0) | Err(CallFailure::Broken) => self.leave(slot),
            Ok(taken) if taken == count => return true,
            Ok(_) | Err(CallFailure::Blocked) => self.blocked(slot, Interest::Read),
        }
        false
    }

    /// Reacts to the end of the bytes, or to an error.
    fn leave(&mut self, slot: usize) {
        if let Some(member) = &mut self.members[slot] {
            member.no_read = true;
        }
        match self.rng.below(4) {
            0 => self.change(slot),
            1 => self.change_to(slot, Interest::Nothing),
            _ => self.remove(slot),
        }
    }

    fn write(&mut self, slot: usize, member: &Member, count: usize) -> bool {
        let put = world(|w| w.put(member.number(), count));
        self.tell(|| format!("write {count} to {}: {put:?}", member.number()));
        match put {
            Err(CallFailure::Broken) => self.remove(slot),
            Ok(put) if put == count && self.rng.one_in(8) => self.shut(slot),
            Ok(put) if put == count => return true,
            Ok(_) | Err(CallFailure::Blocked) => self.blocked(slot, Interest::Write),
        }
        false
    }

    /// Ends our side, and lingers until the peer has ended its own.
    fn shut(&mut self, slot: usize) {
        let next = match &mut self.members[slot] {
            Some(member) => {
                member.no_write = true;
                if member.no_read { Interest::Nothing } else { Interest::Read }
            }
            None => return,
        };
        self.change_to(slot, next);
        if let Some(member) = &self.members[slot] {
            self.tell(|| format!("shut {}", member.number()));
            world(|w| w.shut(member.number()));
        }
    }

    fn accept(&mut self, member: &Member) -> bool {
        let count = if member.kind == Kind::Waker { ALL } else { 1 };
        let taken = world(|w| w.take(member.number(), count));
        self.tell(|| format!("accept on {}: {taken:?}", member.number()));
        if taken.is_ok() && member.kind == Kind::Listener {
            return true;
        }
        self.blocked(member.token.slot as usize, Interest::Accept);
        false
    }

    /// Calls `blocked`; more may happen between the short call and this one.
    fn blocked(&mut self, slot: usize, direction: Interest) {
        if self.rng.one_in(4) {
            self.happen(slot);
        }
        if let Some(member) = &self.members[slot] {
            self.tell(|| format!("blocked {:?} {direction:?}", member.token));
            self.mechanism.blocked(member.token, direction);
        }
    }

    /// Uses a member until it blocks, and calls `blocked`; one at its end leaves.
    pub(super) fn exhaust(&mut self, slot: usize) {
        match self.members[slot].as_ref().map_or(Interest::Nothing, |member| member.interest) {
            Interest::Nothing => {}
            Interest::Either => {
                self.exhaust_direction(slot, Interest::Read);
                self.exhaust_direction(slot, Interest::Write);
            }
            direction => self.exhaust_direction(slot, direction),
        }
    }

    fn exhaust_direction(&mut self, slot: usize, direction: Interest) {
        while let Some(member) = self.members[slot].clone() {
            let number = member.number();
            let moved = match direction {
                Interest::Write => world(|w| w.put(number, ALL)),
                _ => world(|w| w.take(number, ALL)),
            };
            self.tell(|| format!("exhaust {number}: {moved:?}"));
            match moved {
                Ok(1..) => {}
                Err(CallFailure::Blocked) => {
                    return self.mechanism.blocked(member.token, direction);
                }
                _ => self.remove(slot),
            }
        }
    }
}
