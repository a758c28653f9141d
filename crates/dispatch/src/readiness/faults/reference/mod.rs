//! The simplest correct mechanism of each family, with optional built-in faults: they exercise the
//! fake kernel and the model, and show that the model finds errors.
//!
//! Not fast, and not for use: they visit every member at every wait.

pub(super) mod batch;
pub(super) mod edges;
pub(super) mod ring;
pub(super) mod signals;

use super::super::fake::{ERR, HUP, IN, OUT, RDHUP};
use super::super::{Interest, Token};

/// Returns the poll bit that an interest waits for.
fn bit(interest: Interest) -> u32 {
    match interest {
        Interest::Nothing => 0,
        Interest::Read | Interest::Accept => IN,
        Interest::Write => OUT,
        Interest::Either => IN | OUT,
    }
}

/// A member, and its known state.
#[derive(Clone, Copy)]
struct Member {
    token: Token,
    interest: Interest,
    /// IN and OUT bits known to be set.
    known: u32,
    /// Bits that are never cleared.
    stuck: u32,
}

impl Member {
    fn is_ready(&self) -> bool {
        bit(self.interest) & self.known != 0
    }

    fn learn(&mut self, seen: u32) {
        if seen & RDHUP != 0 {
            self.stuck |= IN;
        }
        if seen & (ERR | HUP) != 0 {
            self.stuck |= IN | OUT;
        }
        self.known |= seen & (IN | OUT) | self.stuck;
    }
}

/// The members by slot.
#[derive(Default)]
struct Book(Vec<Option<Member>>);

impl Book {
    fn add(&mut self, token: Token, interest: Interest) {
        let slot = token.slot as usize;
        if self.0.len() <= slot {
            self.0.resize(slot + 1, None);
        }
        self.0[slot] = Some(Member { token, interest, known: 0, stuck: 0 });
    }

    fn at(&mut self, token: Token) -> Option<&mut Member> {
        let member = self.0.get_mut(token.slot as usize)?.as_mut();
        member.filter(|member| member.token == token)
    }

    fn change(&mut self, token: Token, interest: Interest) {
        if let Some(member) = self.at(token) {
            member.interest = interest;
        }
    }

    fn remove(&mut self, token: Token) {
        self.0[token.slot as usize] = None;
    }

    fn blocked(&mut self, token: Token, direction: Interest) {
        if let Some(member) = self.at(token) {
            member.known &= !bit(direction) | member.stuck;
        }
    }

    fn learn(&mut self, token: Token, seen: u32) {
        if let Some(member) = self.at(token) {
            member.learn(seen);
        }
    }

    fn any_ready(&self) -> bool {
        self.0.iter().flatten().any(Member::is_ready)
    }

    fn report(&self, ready: &mut Vec<Token>) {
        let members = self.0.iter().flatten().filter(|member| member.is_ready());
        ready.extend(members.map(|member| member.token));
    }
}
