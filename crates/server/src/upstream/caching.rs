//! The cache of replies, as one loop sees it: who of its requests leads or waits, and who is told
//! when a wait is over.

use std::sync::Arc;

use weir_cache::{Cache, Fields, Flight, Joined, Recurrence, Selector, Stored};
use weir_dispatch::readiness::Token;

use super::Upstreams;
use super::shared::{Brought, Landing, Whose};

impl Upstreams {
    /// Returns the cache, if there is one.
    pub(crate) fn cache(&self) -> Option<&Cache<Whose>> {
        self.shared.cache.as_ref()
    }

    /// Joins those who ask for a key, or leads them; `None` without a cache.
    pub(crate) fn join(
        &mut self,
        key: &[u8],
        request: &impl Fields,
        client: Token,
        serial: u64,
    ) -> Option<Joined> {
        let whose = Whose { loop_index: self.loop_index, token: client, serial };
        Some(self.cache()?.join(key, request, whose))
    }

    /// Records that a request no longer waits for the reply to another.
    pub(crate) fn leave(&self, key: &[u8], client: Token, serial: u64) {
        let whose = Whose { loop_index: self.loop_index, token: client, serial };
        if let Some(cache) = self.cache() {
            cache.leave(key, &whose);
        }
    }

    /// Ends a flight with a stored reply, or without any, and tells all who wait at once.
    pub(crate) fn land(&mut self, flight: &Flight, stored: Option<Arc<Stored>>) {
        let brought = if stored.is_some() { Brought::Stored } else { Brought::Nothing };
        let followers = self.cache().map(|cache| cache.land(flight, stored));
        self.release(&followers.unwrap_or_default(), brought);
    }

    /// Ends a flight whose reply may not be stored, and tells all who wait at once. `recurs`: those
    /// to come that it stands for, of those that these fields select.
    pub(crate) fn pass(
        &mut self,
        flight: &Flight,
        recurs: Recurrence,
        selectors: Box<[Selector]>,
        unix_ns: u64,
    ) {
        let followers = self.cache().map(|cache| cache.pass(flight, recurs, selectors, unix_ns));
        self.release(&followers.unwrap_or_default(), Brought::Unstored);
    }

    /// Removes and returns a request whose wait for the reply to another is over.
    pub(crate) fn next_landing(&mut self) -> Option<Landing> {
        self.landings.pop_front()
    }

    fn release(&mut self, followers: &[Whose], brought: Brought) {
        let landing = |whose: &Whose| Landing { token: whose.token, serial: whose.serial, brought };
        let (here, others): (Vec<_>, Vec<_>) =
            followers.iter().partition(|whose| whose.loop_index == self.loop_index);
        self.landings.extend(here.into_iter().map(landing));
        if !others.is_empty() {
            let others: Vec<_> =
                others.into_iter().map(|whose| (whose.loop_index, landing(whose))).collect();
            self.shared.send_landings(&others);
        }
    }
}
