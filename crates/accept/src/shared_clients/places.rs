//! The open connections of several processes: a row of places for each, with the names of its
//! connections' clients.
//!
//! A client has as many connections as places have its name: there is no count to be wrong. Only a
//! process writes to its row while it lives, and whoever has seen its end clears it. A connection
//! takes its place before the others are counted, so that of two at the same time at least one sees
//! the other: a client never has more than its limit, and where several come at the same time for
//! its last place, all of them may be refused.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::client_limits::Opened;

/// A place that no connection has.
const FREE: u64 = 0;

/// Places of the connections of processes, in numbers that these share.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    numbers: &'a [AtomicU64],
    /// Numbers of a row.
    row: usize,
}

/// Places of a process: the number of those up to the last that is taken, and all.
struct Row<'a> {
    used: &'a AtomicU64,
    places: &'a [AtomicU64],
}

impl<'a> Places<'a> {
    /// Returns how many numbers `processes` have, of up to `open_max` connections each.
    pub fn numbers(processes: usize, open_max: usize) -> usize {
        processes * row(open_max)
    }

    /// Creates a view of numbers that were zero at first, in rows of `open_max` places.
    pub fn new(numbers: &'a [AtomicU64], open_max: usize) -> Self {
        Self { numbers, row: row(open_max) }
    }

    /// Counts a connection of a client, of which it may have `most`. For the process itself.
    pub fn open(&self, process: usize, name: u64, most: u32) -> Opened {
        let Some(row) = self.of(process) else { return Opened::Uncounted };
        let name = in_place(name);
        if row.take(name).is_none() {
            return Opened::Uncounted;
        }
        if self.count(name) > most as usize {
            row.free(name);
            return Opened::Refused;
        }
        Opened::Counted
    }

    /// Counts a connection down that was [`Opened::Counted`]. For the process itself.
    pub fn close(&self, process: usize, name: u64) {
        if let Some(row) = self.of(process) {
            row.free(in_place(name));
        }
    }

    /// Counts down all connections of a process that has ended.
    pub fn leave(&self, process: usize) {
        if let Some(Row { used, places }) = self.of(process) {
            places.iter().for_each(|place| place.store(FREE, SeqCst));
            used.store(0, SeqCst);
        }
    }

    fn of(&self, process: usize) -> Option<Row<'a>> {
        self.numbers.chunks_exact(self.row).nth(process).and_then(Row::of)
    }

    /// Returns the number of places with a name.
    fn count(&self, name: u64) -> usize {
        let rows = self.numbers.chunks_exact(self.row).filter_map(Row::of);
        rows.map(|row| row.used().iter().filter(|place| place.load(SeqCst) == name).count()).sum()
    }
}

impl<'a> Row<'a> {
    fn of(numbers: &'a [AtomicU64]) -> Option<Self> {
        let (used, places) = numbers.split_first()?;
        Some(Self { used, places })
    }

    fn used(&self) -> &'a [AtomicU64] {
        self.places.get(..self.used.load(SeqCst) as usize).unwrap_or(self.places)
    }

    /// Takes a free place; `None` if there is none.
    fn take(&self, name: u64) -> Option<()> {
        let index = self.places.iter().position(|place| place.load(SeqCst) == FREE)?;
        self.places.get(index)?.store(name, SeqCst);
        self.used.fetch_max(index as u64 + 1, SeqCst);
        Some(())
    }

    /// Frees a place with a name.
    fn free(&self, name: u64) {
        let used = self.used();
        if let Some(place) = used.iter().find(|place| place.load(SeqCst) == name) {
            place.store(FREE, SeqCst);
        }
        let last = used.iter().rposition(|place| place.load(SeqCst) != FREE);
        self.used.store(last.map_or(0, |last| last as u64 + 1), SeqCst);
    }
}

/// Returns how many numbers a row has.
fn row(open_max: usize) -> usize {
    1 + open_max
}

/// Returns the number that stands for a name: 1 for 0 too, which are no hosts' (RFC 6890 section
/// 2.2.2), or one for all clients.
fn in_place(name: u64) -> u64 {
    name.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeroes(processes: usize, open_max: usize) -> Vec<AtomicU64> {
        (0..Places::numbers(processes, open_max)).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn connections_of_all_processes_count_until_they_close() {
        let numbers = zeroes(3, 2);
        let places = Places::new(&numbers, 2);
        assert_eq!(places.open(0, 7, 2), Opened::Counted);
        assert_eq!(places.open(1, 7, 2), Opened::Counted);
        assert_eq!(places.open(2, 7, 2), Opened::Refused);
        assert_eq!(places.open(2, 8, 2), Opened::Counted, "another client");
        places.close(0, 7);
        assert_eq!(places.open(2, 7, 2), Opened::Counted);
        assert_eq!(places.open(0, 7, 2), Opened::Refused);
    }

    #[test]
    fn a_process_that_has_ended_leaves_no_connection_and_the_others_theirs() {
        let numbers = zeroes(2, 3);
        let places = Places::new(&numbers, 3);
        for process in [0, 0, 1] {
            assert_eq!(places.open(process, 7, 3), Opened::Counted);
        }
        assert_eq!(places.open(1, 7, 3), Opened::Refused);
        places.leave(0);
        for process in [0, 0] {
            assert_eq!(places.open(process, 7, 3), Opened::Counted);
        }
        assert_eq!(places.open(1, 7, 3), Opened::Refused);
        places.leave(5);
    }

    #[test]
    fn a_place_is_free_again_whichever_connection_closes() {
        let numbers = zeroes(1, 3);
        let places = Places::new(&numbers, 3);
        let opened = |name| places.open(0, name, 1);
        for _ in 0..10 {
            assert_eq!([1, 2, 3].map(opened), [Opened::Counted; 3]);
            assert_eq!(opened(4), Opened::Uncounted, "no place is left");
            places.close(0, 2);
            assert_eq!([opened(1), opened(2)], [Opened::Refused, Opened::Counted]);
            [3, 1, 2].into_iter().for_each(|name| places.close(0, name));
        }
        assert!(numbers.iter().all(|number| number.load(SeqCst) == 0));
    }

    #[test]
    fn all_clients_may_be_one() {
        let numbers = zeroes(1, 2);
        let places = Places::new(&numbers, 2);
        assert_eq!([(); 2].map(|()| places.open(0, 0, 1)), [Opened::Counted, Opened::Refused]);
        places.close(0, 0);
        assert_eq!(places.open(0, 0, 1), Opened::Counted);
    }

    #[test]
    fn processes_that_open_at_the_same_time_never_exceed_the_limit() {
        const MOST: u32 = 3;
        let numbers = zeroes(4, 2);
        let places = Places::new(&numbers, 2);
        let (open, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let come_and_go = |process| {
            for _ in 0..10_000 {
                if places.open(process, 7, MOST) == Opened::Counted {
                    most.fetch_max(open.fetch_add(1, SeqCst) + 1, SeqCst);
                    open.fetch_sub(1, SeqCst);
                    places.close(process, 7);
                }
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|process| drop(scope.spawn(move || come_and_go(process))));
        });
        let most = most.into_inner();
        assert!((1..=MOST.into()).contains(&most), "{most}");
        assert_eq!(places.open(0, 7, 1), Opened::Counted, "none was left behind");
    }
}
