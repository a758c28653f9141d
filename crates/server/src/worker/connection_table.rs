//! The connections of one loop by slot; a generation tells successive uses of a slot apart.

use weir_dispatch::readiness::Token;
use weir_dispatch::slots::{SlotSearch, Slots};
use weir_sys::heap::{Charge, Part};

/// Table of connections. Reserved slots come first: the waker, then the listeners.
pub(crate) struct ConnectionTable<C> {
    slots: Slots,
    entries: Vec<Entry<C>>,
    charge: Charge,
    reserved: u32,
    /// Slots taken for connections that have not come yet.
    promised: usize,
    open_max: usize,
}

/// A slot and its connection.
struct Entry<C> {
    generation: u32,
    conn: Option<C>,
}

impl<C> Entry<C> {
    fn empty() -> Self {
        Self { generation: 0, conn: None }
    }
}

impl<C> ConnectionTable<C> {
    /// Creates a table for `open_max` connections behind `reserved` slots.
    pub(crate) fn new(search: SlotSearch, reserved: u32, open_max: usize) -> Self {
        let mut slots = Slots::new(search, reserved as usize + open_max);
        for _ in 0..reserved {
            slots.allocate();
        }
        let entries = (0..reserved).map(|_| Entry::empty()).collect();
        let charge = Charge::of(Part::Connections, 0);
        Self { slots, entries, charge, reserved, promised: 0, open_max }
    }

    /// Number of open connections.
    pub(crate) fn open_count(&self) -> usize {
        self.slots.taken() - self.reserved as usize - self.promised
    }

    /// Maximum number of open connections.
    pub(crate) fn open_max(&self) -> usize {
        self.open_max
    }

    /// Returns whether a token names a reserved slot.
    pub(crate) fn is_reserved(&self, token: Token) -> bool {
        token.slot < self.reserved
    }

    /// Number of slots: those reserved, and those for connections.
    pub(crate) fn slots(&self) -> u32 {
        self.reserved.saturating_add(u32::try_from(self.open_max).unwrap_or(u32::MAX))
    }

    /// Returns the connection that a token names, if it still has its slot.
    pub(crate) fn conn_of(&mut self, token: Token) -> Option<&mut C> {
        if self.is_current(token) { self.conn(token.slot) } else { None }
    }

    /// Number of reserved slots, which precede those of connections.
    pub(crate) fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Number of slots taken by connections, those promised included.
    pub(crate) fn taken(&self) -> usize {
        self.slots.taken() - self.reserved as usize
    }

    /// Number of free slots.
    pub(crate) fn free(&self) -> usize {
        (self.reserved as usize + self.open_max).saturating_sub(self.slots.taken())
    }

    /// Takes the lowest free slot for a connection that may come, and returns the token that the
    /// connection will have. [`ConnectionTable::fulfil`] or [`ConnectionTable::release`] must
    /// follow.
    pub(crate) fn promise(&mut self) -> Option<Token> {
        let slot = self.slots.allocate()?;
        self.promised += 1;
        Some(Token { slot, generation: self.token(slot).generation.wrapping_add(1) })
    }

    /// Frees a promised slot whose connection has not come. The token that it would have had names
    /// no other: operations that were begun for it may not have ended.
    pub(crate) fn release(&mut self, slot: u32) {
        self.promised = self.promised.saturating_sub(1);
        self.advance(slot);
        self.slots.free(slot);
    }

    /// Puts a connection into the slot promised for it.
    pub(crate) fn fulfil(&mut self, slot: u32, conn: C) {
        self.promised = self.promised.saturating_sub(1);
        self.fill(slot, conn);
    }

    /// Puts a connection into a slot chosen by the caller; gives it back if the slot is taken.
    pub(crate) fn claim(&mut self, slot: u32, conn: C) -> Result<u32, C> {
        if !self.slots.claim(slot) {
            return Err(conn);
        }
        self.fill(slot, conn);
        Ok(slot)
    }

    /// Puts a connection into the lowest free slot; gives it back if there is none.
    pub(crate) fn insert(&mut self, conn: C) -> Result<u32, C> {
        let Some(slot) = self.slots.allocate() else { return Err(conn) };
        self.fill(slot, conn);
        Ok(slot)
    }

    fn fill(&mut self, slot: u32, conn: C) {
        self.advance(slot).conn = Some(conn);
    }

    /// Begins the next generation of a slot, and returns its entry.
    fn advance(&mut self, slot: u32) -> &mut Entry<C> {
        if slot as usize >= self.entries.len() {
            self.entries.resize_with(slot as usize + 1, Entry::empty);
            self.charge.set(self.entries.capacity() * size_of::<Entry<C>>());
        }
        let entry = &mut self.entries[slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry
    }

    /// Returns the connection in a slot, of whatever generation.
    pub(crate) fn conn(&mut self, slot: u32) -> Option<&mut C> {
        self.entries.get_mut(slot as usize)?.conn.as_mut()
    }

    /// Returns whether the connection that a token names still has its slot.
    pub(crate) fn is_current(&self, token: Token) -> bool {
        self.entries
            .get(token.slot as usize)
            .is_some_and(|entry| entry.generation == token.generation && entry.conn.is_some())
    }

    /// Removes a connection, and returns it with its token.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<(C, Token)> {
        let entry = self.entries.get_mut(slot as usize)?;
        let conn = entry.conn.take()?;
        self.slots.free(slot);
        Some((conn, Token { slot, generation: entry.generation }))
    }

    /// Returns up to `count` slots whose connection satisfies `wanted`, from `start` on and
    /// wrapping around.
    pub(crate) fn find(&self, start: u32, count: usize, wanted: impl Fn(&C) -> bool) -> Vec<u32> {
        let all = self.entries.len() as u32;
        (0..all)
            .map(|step| (start + step) % all.max(1))
            .filter(|&slot| self.entries[slot as usize].conn.as_ref().is_some_and(&wanted))
            .take(count)
            .collect()
    }

    /// Iterates over the connections in `steps` slots, from `start` on and wrapping around.
    pub(crate) fn walk(&self, start: u32, steps: usize) -> impl Iterator<Item = (u32, &C)> {
        let all = self.entries.len();
        (0..steps.min(all)).filter_map(move |step| {
            let slot = (start as usize + step) % all;
            self.entries[slot].conn.as_ref().map(|conn| (slot as u32, conn))
        })
    }

    /// Returns the token of the present connection.
    pub(crate) fn token(&self, slot: u32) -> Token {
        let generation = self.entries.get(slot as usize).map_or(0, |entry| entry.generation);
        Token { slot, generation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_promise_that_was_released_names_no_later_connection() {
        let mut table = ConnectionTable::new(SlotSearch::default(), 2, 4);
        let mut last = table.promise().unwrap();
        for nth in 0..3 {
            table.release(last.slot);
            assert_eq!((table.taken(), table.is_current(last)), (0, false));
            let next = table.promise().unwrap();
            assert_eq!(next.slot, last.slot);
            assert_ne!(next, last);
            table.fulfil(next.slot, nth);
            assert!(table.is_current(next) && !table.is_current(last));
            assert_eq!(table.remove(next.slot), Some((nth, next)));
            last = table.promise().unwrap();
            assert_ne!(last, next);
        }
    }
}
