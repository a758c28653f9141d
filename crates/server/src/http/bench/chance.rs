//! Random numbers of service times: new ones each time, or a sequence from a seed, so that servers
//! that are compared have the same requests to answer (common random numbers; Law, Simulation
//! Modeling and Analysis, §11.2).

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Number of equal parts of 0 to 1: of as many numbers of a sequence in a row, one is in each.
const STRATA: u8 = 64;

thread_local! {
    static WORKER: Cell<u64> = Cell::new(FREE.fetch_add(1, Ordering::Relaxed));
    static UNSEEDED: RefCell<Option<Xoshiro256PlusPlus>> = const { RefCell::new(None) };
    static SEEDED: RefCell<Option<Sequence>> = const { RefCell::new(None) };
}

/// Number of the next thread that draws and has none.
static FREE: AtomicU64 = AtomicU64::new(0);

/// Gives the calling thread a number, which decides its sequence beside a seed. Other threads are
/// numbered in the order in which they draw first.
pub(crate) fn number_worker(number: u64) {
    WORKER.set(number);
}

/// Returns the next random number between 0 and 1, both excluded, of the thread's sequence of a
/// seed, or a new one without a seed. Another seed begins its sequence anew.
pub(super) fn uniform(seed: Option<u64>) -> f64 {
    let Some(seed) = seed else {
        return UNSEEDED.with_borrow_mut(|own| fraction(own.get_or_insert_with(rand::make_rng)));
    };
    SEEDED.with_borrow_mut(|kept| match kept {
        Some(sequence) if sequence.seed == seed => sequence.next(),
        _ => kept.insert(Sequence::new(seed, WORKER.get())).next(),
    })
}

/// A sequence of random numbers whose mean over [`STRATA`] in a row hardly varies, so that a short
/// measurement has about as much to do as a long one. Each number alone is as random as any.
struct Sequence {
    seed: u64,
    rng: Xoshiro256PlusPlus,
    /// The parts in the order in which the next numbers lie in them, the last first.
    parts: Vec<u8>,
}

impl Sequence {
    fn new(seed: u64, worker: u64) -> Self {
        let mixed = seed ^ worker.rotate_left(48);
        Self { seed, rng: Xoshiro256PlusPlus::seed_from_u64(mixed), parts: Vec::new() }
    }

    fn next(&mut self) -> f64 {
        if self.parts.is_empty() {
            self.parts.extend(0..STRATA);
            self.parts.shuffle(&mut self.rng);
        }
        let part = self.parts.pop().unwrap_or_default();
        (f64::from(part) + fraction(&mut self.rng)) / f64::from(STRATA)
    }
}

/// Draws a number between 0 and 1. Neither is one, even where it is added to a whole number: it has
/// few enough digits.
fn fraction(rng: &mut impl Rng) -> f64 {
    (f64::from(rng.random::<u32>()) + 0.5) / (1_u64 << 32) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: Option<u64>, count: usize) -> Vec<f64> {
        (0..count).map(|_| uniform(seed)).collect()
    }

    /// Draws as a worker of a number, on a thread of its own.
    fn of_worker(number: u64, seed: Option<u64>) -> Vec<f64> {
        let drawn = std::thread::spawn(move || {
            number_worker(number);
            draws(seed, 200)
        });
        drawn.join().unwrap()
    }

    #[test]
    fn a_worker_has_the_same_numbers_from_the_same_seed() {
        assert_eq!(of_worker(1, Some(7)), of_worker(1, Some(7)));
        assert_ne!(of_worker(1, Some(7)), of_worker(2, Some(7)));
        assert_ne!(of_worker(1, Some(7)), of_worker(1, Some(8)));
        assert_ne!(of_worker(1, None), of_worker(1, None));
    }

    #[test]
    fn of_sixty_four_in_a_row_one_is_in_each_part() {
        for _ in 0..3 {
            let mut parts: Vec<u32> =
                draws(Some(7), 64).iter().map(|u| (u * 64.0) as u32).collect();
            assert!(!parts.is_sorted());
            parts.sort_unstable();
            assert!(parts.into_iter().eq(0..64));
        }
    }

    #[test]
    fn another_seed_begins_its_sequence() {
        let first = draws(Some(1), 10);
        assert_ne!(draws(Some(1), 10), first);
        draws(Some(2), 1);
        assert_eq!(draws(Some(1), 10), first);
    }

    #[test]
    fn every_number_is_between_0_and_1() {
        struct Always(u64);
        impl rand::TryRng for Always {
            type Error = std::convert::Infallible;
            fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
                Ok(self.0 as u32)
            }
            fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
                Ok(self.0)
            }
            fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
                bytes.fill(self.0 as u8);
                Ok(())
            }
        }
        let last = f64::from(STRATA - 1);
        let (least, greatest) = (fraction(&mut Always(0)), fraction(&mut Always(u64::MAX)));
        assert!(least > 0.0 && (last + greatest) / f64::from(STRATA) < 1.0);
    }
}
