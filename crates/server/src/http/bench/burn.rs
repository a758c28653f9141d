//! Processor time burnt for a request: a fixed amount of work, measured once.

use std::hint::black_box;
use std::sync::OnceLock;

use weir_sys::process::thread_cpu_clock_ns;

/// Maximum time that one request may burn, microseconds.
const BURN_US_MAX: u32 = 1_000_000;

/// Parses a number of microseconds up to [`BURN_US_MAX`], of digits and nothing else.
pub(super) fn microseconds(digits: &[u8]) -> Option<u32> {
    number(digits).and_then(|number| u32::try_from(number).ok()).filter(|&us| us <= BURN_US_MAX)
}

/// Parses a number of digits and nothing else.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let are_digits = digits.iter().all(u8::is_ascii_digit);
    are_digits.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// Burns the work that an undisturbed processor does in `burn_us` microseconds.
///
/// The work is fixed, as a request's is, and not a time on the thread's clock: most kernels charge
/// interrupts to that clock, so that packets arriving meanwhile would shorten the work, and a flood
/// would seem to cost nothing.
pub(crate) fn burn(burn_us: u32) {
    work((f64::from(burn_us) * *STEPS_PER_US.get_or_init(steps_per_us)) as u64);
}

/// Measures how much work a microsecond is, before the first request needs it.
pub(crate) fn calibrate() {
    STEPS_PER_US.get_or_init(steps_per_us);
}

/// Steps of [`work`] per microsecond.
static STEPS_PER_US: OnceLock<f64> = OnceLock::new();

/// Returns the best of several short runs by the thread's own clock (CLOCK_THREAD_CPUTIME_ID,
/// clock_gettime(2)): the one that was disturbed least.
fn steps_per_us() -> f64 {
    const STEPS: u64 = 200_000;
    const RUNS: usize = 16;
    let run = |_| {
        let began_ns = thread_cpu_clock_ns();
        work(STEPS);
        let took_ns = thread_cpu_clock_ns().saturating_sub(began_ns).max(1);
        STEPS as f64 * 1_000.0 / took_ns as f64
    };
    (0..RUNS).map(run).fold(1.0, f64::max)
}

/// Does `steps` steps, each of which needs the one before it (xorshift64; Marsaglia 2003).
fn work(steps: u64) {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..steps {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burn_is_work_of_its_length() {
        // A processor may become quicker after it was measured, but not twice as quick.
        for burn_us in [0, 1, 10, 3_000] {
            let before_ns = thread_cpu_clock_ns();
            burn(burn_us);
            assert!(thread_cpu_clock_ns() - before_ns >= u64::from(burn_us) * 500);
        }
    }
}
