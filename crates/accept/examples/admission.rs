//! Times the admission of a request to an upstream that all loops share: three locks each, as in
//! the server. The argument is the number of threads.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use weir_accept::upstream::{Admission, Arrived, Asked, Outcome, UpstreamConfig};

/// Requests of each thread.
const REQUESTS: u32 = 2_000_000;

fn forward(admission: &Mutex<Admission<u32>>, now_ns: u64) {
    let lock = || admission.lock().unwrap_or_else(PoisonError::into_inner);
    let arrived = lock().arrive(now_ns, Asked::default(), 0);
    if arrived == Arrived::Granted {
        lock().complete(now_ns + 1000, 1000, Outcome::Answered);
    }
    let next = lock().next(now_ns + 1000);
    assert!(next.is_none());
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads: u32 = std::env::args().nth(1).map_or(Ok(1), |threads| threads.parse())?;
    let admission = Mutex::new(Admission::new(&UpstreamConfig::default()));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for request in 0..REQUESTS {
                    forward(&admission, u64::from(request) * 1000);
                }
            });
        }
    });
    let each_ns = began.elapsed().as_nanos() as f64 / f64::from(REQUESTS);
    println!("{threads} threads: {each_ns:.0} ns for a request of each");
    Ok(())
}
