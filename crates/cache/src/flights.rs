//! Requests to the origin under way, and the requests that wait for their replies.

use std::collections::HashMap;

/// A request to the origin whose reply may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    key: Box<[u8]>,
    /// Values of the fields that select among the replies of the key, as far as they are known.
    selecting: Box<[u8]>,
    number: u64,
    is_alone: bool,
}

/// Result of joining the requests for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// There is none under way: this one goes, and must land.
    Leads(Flight),
    /// It waits for the reply to another.
    Follows,
}

/// The end of a flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landed<W> {
    /// Requests that waited for it.
    pub followers: Vec<W>,
    /// True if its reply may be stored: nothing has changed the resource since it began.
    pub is_current: bool,
}

#[derive(Debug)]
struct Pending<W> {
    selecting: Box<[u8]>,
    number: u64,
    followers: Vec<W>,
    is_current: bool,
    is_alone: bool,
}

/// All flights, by key. `W` identifies who waits.
#[derive(Debug)]
pub(crate) struct Flights<W> {
    pending: HashMap<Box<[u8]>, Vec<Pending<W>>>,
    numbers: u64,
}

impl<W: PartialEq> Flights<W> {
    pub(crate) fn new() -> Self {
        Self { pending: HashMap::new(), numbers: 0 }
    }

    /// Joins the requests for `key` that are selected by `selecting`.
    pub(crate) fn join(&mut self, key: &[u8], selecting: &[u8], who: W) -> Joined {
        let is_it = |each: &&mut Pending<W>| {
            each.is_current && !each.is_alone && *each.selecting == *selecting
        };
        if let Some(pending) = self.pending.get_mut(key).into_iter().flatten().find(is_it) {
            pending.followers.push(who);
            return Joined::Follows;
        }
        Joined::Leads(self.begin(key, selecting, false))
    }

    /// Begins a flight that nobody follows.
    pub(crate) fn begin_alone(&mut self, key: &[u8]) -> Flight {
        self.begin(key, b"", true)
    }

    fn begin(&mut self, key: &[u8], selecting: &[u8], is_alone: bool) -> Flight {
        self.numbers += 1;
        let (number, followers) = (self.numbers, Vec::new());
        let selecting: Box<[u8]> = selecting.into();
        let all = self.pending.entry(key.into()).or_default();
        let pending =
            Pending { selecting: selecting.clone(), number, followers, is_current: true, is_alone };
        all.push(pending);
        Flight { key: key.into(), selecting, number, is_alone }
    }

    /// Removes one who waited, and has gone.
    pub(crate) fn leave(&mut self, key: &[u8], who: &W) {
        for pending in self.pending.get_mut(key).into_iter().flatten() {
            pending.followers.retain(|each| each != who);
        }
    }

    /// Returns whether anybody waits for a flight.
    pub(crate) fn is_followed(&self, flight: &Flight) -> bool {
        let all = self.pending.get(&flight.key).into_iter().flatten();
        all.into_iter().any(|each| each.number == flight.number && !each.followers.is_empty())
    }

    /// Ends a flight.
    pub(crate) fn land(&mut self, flight: &Flight) -> Landed<W> {
        let nobody = Landed { followers: Vec::new(), is_current: false };
        let Some(all) = self.pending.get_mut(&flight.key) else { return nobody };
        let at = all.iter().position(|each| each.number == flight.number);
        let landed = at.map(|at| all.swap_remove(at));
        if all.is_empty() {
            self.pending.remove(&flight.key);
        }
        landed.map_or(nobody, |pending| Landed {
            followers: pending.followers,
            is_current: pending.is_current,
        })
    }

    /// Records that the resource of a key has changed: replies on their way may be of before.
    pub(crate) fn outdate(&mut self, key: &[u8]) {
        for pending in self.pending.get_mut(key).into_iter().flatten() {
            pending.is_current = false;
        }
    }

    /// Records the same of all keys that are chosen.
    pub(crate) fn outdate_all(&mut self, is_chosen: impl Fn(&[u8]) -> bool) {
        let chosen = self.pending.iter_mut().filter(|(key, _)| is_chosen(key));
        chosen.flat_map(|(_, all)| all).for_each(|pending| pending.is_current = false);
    }
}

impl Flight {
    /// Returns the key of what is asked for.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the values of the fields that select among the replies of the key, as far as they
    /// are known.
    pub(crate) fn selecting(&self) -> &[u8] {
        &self.selecting
    }

    /// Returns whether nobody can follow it.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead(joined: Joined) -> Flight {
        if let Joined::Leads(flight) = joined { flight } else { panic!("it follows") }
    }

    #[test]
    fn all_but_the_first_follow_and_are_released_together() {
        let mut flights = Flights::new();
        let flight = lead(flights.join(b"k", b"", 0));
        assert!(!flights.is_followed(&flight));
        for who in 1..50 {
            assert_eq!(flights.join(b"k", b"", who), Joined::Follows);
        }
        flights.leave(b"k", &7);
        assert!(flights.is_followed(&flight));
        let landed = flights.land(&flight);
        assert_eq!((landed.followers.len(), landed.is_current), (48, true));
        assert!(flights.pending.is_empty());
        lead(flights.join(b"k", b"", 0));
    }

    #[test]
    fn what_selects_keeps_flights_apart() {
        let mut flights = Flights::new();
        let one = lead(flights.join(b"k", b"gzip", 0));
        let other = lead(flights.join(b"k", b"br", 1));
        assert_eq!(flights.join(b"k", b"br", 2), Joined::Follows);
        assert!(flights.land(&one).followers.is_empty());
        assert_eq!(flights.land(&other).followers, [2]);
    }

    #[test]
    fn nobody_follows_one_that_is_alone() {
        let mut flights = Flights::new();
        let alone = flights.begin_alone(b"k");
        let other = lead(flights.join(b"k", b"", 1));
        assert_eq!(flights.join(b"k", b"", 2), Joined::Follows);
        assert!(alone.is_alone() && !flights.is_followed(&alone) && flights.is_followed(&other));
        flights.outdate(b"k");
        assert_eq!(flights.land(&alone), Landed { followers: vec![], is_current: false });
        assert_eq!(flights.land(&other).followers, [2]);
        assert!(flights.pending.is_empty());
    }

    #[test]
    fn after_a_change_nobody_joins_what_was_under_way() {
        let mut flights = Flights::new();
        let before = lead(flights.join(b"k", b"", 0));
        assert_eq!(flights.join(b"k", b"", 1), Joined::Follows);
        flights.outdate(b"k");
        let after = lead(flights.join(b"k", b"", 2));
        assert_eq!(flights.land(&before), Landed { followers: vec![1], is_current: false });
        assert!(flights.land(&after).is_current);
        assert!(!flights.land(&after).is_current);
    }
}
