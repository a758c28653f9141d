//! Benchmark of slot allocation: the tree of bitmaps and the search of entries of
//! `weir_dispatch::slots` beside a scan of bits for the lowest free slot and a LIFO list of free
//! slots. Writes a JSON line per measurement to standard output; `cargo xtask slots` makes a table
//! of them.
//!
//! `slots ROUNDS MILLISECONDS`: the number of measurements of each case, and the duration of one.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_dispatch::slots::{SlotScan, SlotTree};
use weir_sys::process::thread_cpu_clock_ns;

const CAPACITIES: [u32; 4] = [64, 1_000, 15_000, 200_000];

/// Shares of the slots that are taken, percent.
const TAKEN: [u32; 3] = [0, 50, 99];

/// Number of take-and-give pairs between two reads of the clock.
const BATCH: u32 = 64;

/// An allocator of slots.
trait Store {
    const NAME: &'static str;
    fn new(capacity: u32) -> Self;
    fn take(&mut self) -> Option<u32>;
    fn give(&mut self, slot: u32);
}

/// No allocator: the cost of the measurement itself.
struct Nothing;

impl Store for Nothing {
    const NAME: &'static str = "nothing";

    fn new(_: u32) -> Self {
        Self
    }

    fn take(&mut self) -> Option<u32> {
        Some(black_box(0))
    }

    fn give(&mut self, slot: u32) {
        black_box(slot);
    }
}

impl Store for SlotTree {
    const NAME: &'static str = "tree";

    fn new(capacity: u32) -> Self {
        Self::new(capacity as usize)
    }

    fn take(&mut self) -> Option<u32> {
        self.allocate()
    }

    fn give(&mut self, slot: u32) {
        self.free(slot);
    }
}

impl Store for SlotScan {
    const NAME: &'static str = "entries";

    fn new(capacity: u32) -> Self {
        Self::new(capacity as usize)
    }

    fn take(&mut self) -> Option<u32> {
        self.allocate()
    }

    fn give(&mut self, slot: u32) {
        self.free(slot);
    }
}

/// A bitmap, scanned from the first word.
struct Scan(Vec<u64>, u32);

impl Store for Scan {
    const NAME: &'static str = "scan";

    fn new(capacity: u32) -> Self {
        Self(vec![0; capacity.div_ceil(u64::BITS) as usize], capacity)
    }

    fn take(&mut self) -> Option<u32> {
        let (index, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
        let bit = word.trailing_ones();
        *word |= 1 << bit;
        Some(index as u32 * u64::BITS + bit).filter(|slot| *slot < self.1)
    }

    fn give(&mut self, slot: u32) {
        if let Some(word) = self.0.get_mut((slot / u64::BITS) as usize) {
            *word &= !(1 << (slot % u64::BITS));
        }
    }
}

/// A stack of free slots: the last one freed is taken first.
struct List(Vec<u32>);

impl Store for List {
    const NAME: &'static str = "list";

    fn new(capacity: u32) -> Self {
        Self((0..capacity).rev().collect())
    }

    fn take(&mut self) -> Option<u32> {
        self.0.pop()
    }

    fn give(&mut self, slot: u32) {
        self.0.push(slot);
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let (Some(Ok(rounds)), Some(Ok(ms))) = (words.next(), words.next()) else {
        eprintln!("slots ROUNDS MILLISECONDS");
        return ExitCode::from(2);
    };
    // The first round warms up and is not reported.
    for round in 0..=rounds {
        for (capacity, taken) in CAPACITIES.iter().flat_map(|&of| TAKEN.map(|taken| (of, taken))) {
            let place = Place { round, capacity, taken, time: Duration::from_millis(ms) };
            place.measure::<Nothing>();
            place.measure::<SlotTree>();
            place.measure::<SlotScan>();
            place.measure::<Scan>();
            place.measure::<List>();
        }
    }
    ExitCode::SUCCESS
}

struct Place {
    round: u64,
    capacity: u32,
    taken: u32,
    time: Duration,
}

impl Place {
    /// Takes all slots, as in a peak, and frees random ones down to the given share. From then on
    /// frees a random slot and takes one, repeatedly.
    fn measure<S: Store>(&self) {
        let mut store = S::new(self.capacity);
        let mut rng = SeededRng(0x9e37_79b9_7f4a_7c15 ^ self.round);
        let mut held: Vec<u32> = (0..self.capacity).filter_map(|_| store.take()).collect();
        let left = u64::from(self.capacity) * u64::from(self.taken) / 100;
        while held.len() as u64 > left {
            store.give(held.swap_remove(rng.below(held.len())));
        }
        let (began, began_ns) = (Instant::now(), thread_cpu_clock_ns());
        let mut times = 0_u64;
        while began.elapsed() < self.time {
            (0..BATCH).for_each(|_| churn(&mut store, &mut held, &mut rng));
            times += u64::from(BATCH);
        }
        let ns = (thread_cpu_clock_ns() - began_ns) as f64 / times as f64;
        let highest = held.iter().max().map_or(0, |slot| slot + 1);
        if self.round > 0 {
            println!(
                "{{\"store\":\"{}\",\"slots\":{},\"taken_percent\":{},\"round\":{},\"ns\":{ns:.3},\
                 \"times\":{times},\"numbers_in_use\":{highest}}}",
                S::NAME,
                self.capacity,
                self.taken,
                self.round
            );
        }
    }
}

fn churn(store: &mut impl Store, held: &mut [u32], rng: &mut SeededRng) {
    if held.is_empty() {
        let slot = store.take().unwrap_or_default();
        store.give(black_box(slot));
        return;
    }
    let at = rng.below(held.len());
    if let Some(slot) = held.get_mut(at) {
        store.give(*slot);
        *slot = store.take().unwrap_or_default();
    }
}

/// Marsaglia's xorshift, 64 bits.
struct SeededRng(u64);

impl SeededRng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * bound as u128) >> 64) as usize
    }
}
