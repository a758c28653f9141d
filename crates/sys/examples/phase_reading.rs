//! Cost of the readings that `weir serve --phase-times` makes: at each edge of a phase, and at each
//! system call. `cargo run --release -p weir-sys --example phase_reading`.

use std::hint::black_box;
use std::time::Instant;

use weir_sys::process::thread_cpu_clock_ns;
use weir_sys::profile::{self, Call, timed};

const ROUNDS: u32 = 1_000_000;

fn main() {
    for _ in 0..5 {
        let edge_ns = mean_ns(|| {
            black_box((Instant::now(), thread_cpu_clock_ns(), profile::calls_ns()));
            black_box(Instant::now());
        });
        println!("{edge_ns:.0} ns an edge");
    }
    for is_on in [false, true] {
        if is_on {
            profile::time_calls();
        }
        for _ in 0..5 {
            let call_ns = mean_ns(|| timed(Call::Read, || black_box(())));
            println!("{call_ns:.1} ns a call, {}", if is_on { "timed" } else { "not timed" });
        }
    }
}

/// Returns the mean time of a call of `act`, nanoseconds.
fn mean_ns(mut act: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..ROUNDS).for_each(|_| act());
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}
