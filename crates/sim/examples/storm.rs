//! Runs storms by seed, and prints each scenario with its outcome.

use weir_sim::{MILLI_NS, run, storm};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for seed in std::env::args().skip(1) {
        let seed = seed.parse()?;
        let scenario = storm::scenario(seed);
        let statistics = run(&scenario, seed);
        println!("{seed}: {scenario:#?}");
        println!("capacity {:.0}/s", scenario.capacity());
        for (number, window) in statistics.windows.iter().enumerate() {
            let ms = number as u64 * scenario.window_ns / MILLI_NS;
            println!("{ms:>6} ms {:?}", window.share);
        }
        println!("{:?}\n{:?}", statistics.loops, statistics.drops);
        println!("{:?}", storm::faults(&scenario, &statistics));
    }
    Ok(())
}
