//! Endpoints for measurements: requests that cost the loop a chosen amount of processor time, so
//! that a server with expensive requests can be loaded without an application.
//!
//! The cost is parsed from the bytes of the path, and the time is burnt; that is all. Nothing here
//! runs unless `--bench-endpoints` is on.

use std::hint::black_box;
use std::sync::OnceLock;

use weir_sys::process::thread_cpu_clock_ns;

/// Maximum time that one request may burn, microseconds.
const BURN_US_MAX: u32 = 1_000_000;

const BURN: &[u8] = b"/.weir/burn";

/// A request to the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchTarget<'b> {
    /// Not an endpoint: the path is for the content.
    Nothing,
    /// `/.weir/burn?us=N`: burn, and report it.
    Burn { burn_us: u32 },
    /// `/.weir/burn/N/PATH`: burn, then serve the path, which begins with its slash.
    Before { burn_us: u32, prefix: &'b [u8], path: &'b [u8] },
    /// The path of an endpoint with an invalid time: 400.
    Malformed,
}

/// Parses the path and the query of a target. Both are raw: the endpoints are recognised by their
/// bytes, and the path after a prefix is decoded once, when it is served.
pub(crate) fn parse_target<'b>(path: &'b [u8], query: Option<&[u8]>) -> BenchTarget<'b> {
    let Some(rest) = path.strip_prefix(BURN) else { return BenchTarget::Nothing };
    match rest.split_first() {
        None => query
            .and_then(|query| query.strip_prefix(b"us="))
            .and_then(microseconds)
            .map_or(BenchTarget::Malformed, |burn_us| BenchTarget::Burn { burn_us }),
        Some((b'/', rest)) => before(path, rest).unwrap_or(BenchTarget::Malformed),
        // Only a longer name.
        Some(_) => BenchTarget::Nothing,
    }
}

/// Parses the prefix form: `rest` is what follows `/.weir/burn/` in `path`.
fn before<'b>(path: &'b [u8], rest: &[u8]) -> Option<BenchTarget<'b>> {
    let digits = rest.iter().position(|&byte| byte == b'/')?;
    let burn_us = microseconds(rest.get(..digits)?)?;
    let (prefix, path) = path.split_at_checked(path.len() - rest.len() + digits)?;
    Some(BenchTarget::Before { burn_us, prefix, path })
}

/// Parses a number of microseconds up to [`BURN_US_MAX`], of digits and nothing else.
fn microseconds(digits: &[u8]) -> Option<u32> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number <= BURN_US_MAX).then_some(number)
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

    fn split(target: &str) -> BenchTarget<'_> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (target, None),
        };
        parse_target(path.as_bytes(), query)
    }

    #[test]
    fn a_burn_has_a_path_and_a_number_of_microseconds() {
        assert_eq!(split("/.weir/burn?us=0"), BenchTarget::Burn { burn_us: 0 });
        assert_eq!(split("/.weir/burn?us=0070"), BenchTarget::Burn { burn_us: 70 });
        assert_eq!(split("/.weir/burn?us=1000000"), BenchTarget::Burn { burn_us: 1_000_000 });
    }

    #[test]
    fn the_path_after_a_prefix_is_unchanged() {
        for path in ["/", "/a", "//a/", "/../a", "/%2e%2e/a%", "/.weir/burn/1/a"] {
            let target = format!("/.weir/burn/25{path}");
            let expected = BenchTarget::Before {
                burn_us: 25,
                prefix: b"/.weir/burn/25",
                path: path.as_bytes(),
            };
            assert_eq!(parse_target(target.as_bytes(), None), expected);
            assert_eq!(parse_target(target.as_bytes(), Some(b"us=x")), expected);
        }
    }

    #[test]
    fn an_invalid_time_is_malformed() {
        let times = [
            "",
            "+1",
            "-1",
            "1_000",
            "1000001",
            "4294967297",
            "99999999999999999999999",
            "1 ",
            "a",
            "1.5",
            "0x1",
            "%31",
            "1&us=2",
            "1&a=b",
            "1;",
            "1us",
        ];
        for time in times {
            assert_eq!(split(&format!("/.weir/burn?us={time}")), BenchTarget::Malformed, "{time}");
            assert_eq!(split(&format!("/.weir/burn/{time}/a")), BenchTarget::Malformed, "{time}");
        }
        let targets = [
            "/.weir/burn",
            "/.weir/burn?",
            "/.weir/burn?us",
            "/.weir/burn?US=1",
            "/.weir/burn?a=b&us=1",
            "/.weir/burn/",
            "/.weir/burn//",
            "/.weir/burn/1",
            "/.weir/burn/1?us=1",
        ];
        for target in targets {
            assert_eq!(split(target), BenchTarget::Malformed, "{target}");
        }
    }

    #[test]
    fn every_other_path_is_for_the_content() {
        let targets = [
            "/",
            "/.weir",
            "/.weir/",
            "/.weir/burnt",
            "/.weir/burn.html",
            "/.weir/Burn?us=1",
            "/.weir/other?us=1",
            "//.weir/burn?us=1",
            "/a/.weir/burn?us=1",
            "/%2eweir/burn?us=1",
            "/.weir/%62urn/1/a",
        ];
        for target in targets {
            assert_eq!(split(target), BenchTarget::Nothing, "{target}");
        }
    }

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
