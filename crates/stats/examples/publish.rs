//! Time of one publication of a loop's counters, without a reader and with some that never rest:
//! `cargo run --release -p weir-stats --example publish [READERS]`.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use weir_stats::page::{Description, Layout, Owner, State};
use weir_stats::{Counters, TABLE};

const ROUNDS: u64 = 2_000_000;

fn main() {
    let readers = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let layout = Layout::new(Description { slots: 1, ..Description::of_this_build() });
    let words: Vec<AtomicU64> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    let Some(slot) = layout.slot(&words, 0) else { return };
    slot.set_owner(&Owner { state: State::Live, ..Owner::default() });
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = black_box(layout.snapshot(&words[..], 0, 0));
                }
            });
        }
        for _ in 0..5 {
            let mut counters = Counters::default();
            let start = Instant::now();
            for round in 0..ROUNDS {
                counters.requests.one();
                slot.publish(round, &black_box(&counters).values(), &[]);
            }
            let ns = start.elapsed().as_nanos() as f64 / ROUNDS as f64;
            println!("{ns:.1} ns for {} counters, {readers} readers", TABLE.len());
        }
        over.store(true, Ordering::Relaxed);
    });
}
