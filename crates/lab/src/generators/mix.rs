//! A mix of cheap and expensive requests: the list of paths that `weir load` requests, and the
//! outcome of each class, from the line that it writes per request.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;

use super::request::{LoadRequest, REQUEST_LOG};
use crate::experiment::RequestClass;
use crate::record::{ClassResult, Times};

/// Length of the list before it repeats, in requests: shares are accurate to a hundredth of a
/// percent, and no run is long enough for the repetition to be noticeable.
const LENGTH: usize = 10_000;

/// Returns the name and the text of the list of an order's mix, if it has one.
///
/// # Errors
/// Returns a sentence if the workload is not a single file.
pub(super) fn listed(request: &LoadRequest<'_>) -> Result<Option<(&'static str, String)>, String> {
    if request.load.mix.is_empty() {
        return Ok(None);
    }
    let text = list(&request.load.mix, &request.path("a mix")?, request.seed);
    Ok(Some(("mix.uris", text)))
}

/// Generates the list: paths in random order, one per line, each class in proportion to its share.
fn list(mix: &[RequestClass], file: &str, seed: u64) -> String {
    let mut classes = Vec::with_capacity(LENGTH);
    let mut share = 0.0;
    for (index, class) in mix.iter().enumerate() {
        share += *class.share;
        let upto = if index + 1 == mix.len() { LENGTH } else { (share * LENGTH as f64) as usize };
        classes.resize(upto.min(LENGTH), class);
    }
    classes.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let lines = classes.iter().map(|class| format!("{}{file}\n", prefix(class)));
    lines.collect()
}

fn prefix(class: &RequestClass) -> String {
    format!("/.weir/burn/{}", class.burn_us)
}

/// The interval of planned starts whose requests are evaluated, in seconds since the run began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MeasuredWindow {
    from_s: f64,
    to_s: f64,
}

impl MeasuredWindow {
    /// Creates the interval from the end of the warm-up to one timeout before the end of the load,
    /// so that each client gets its reply or gives up while the load lasts. It covers at least half
    /// of the measured duration.
    pub(super) fn new(warmup_s: f64, duration_s: f64, timeout_s: f64) -> Self {
        let length_s = (duration_s - timeout_s).max(duration_s / 2.0);
        Self { from_s: warmup_s, to_s: warmup_s + length_s }
    }

    fn has(&self, planned_ns: u64) -> bool {
        (self.from_s..self.to_s).contains(&(planned_ns as f64 / 1e9))
    }
}

/// Reads the outcome of each class.
///
/// # Errors
/// Returns a sentence if there are no lines or one cannot be parsed.
pub(super) fn read(
    dir: &Path,
    mix: &[RequestClass],
    measured: MeasuredWindow,
) -> Result<Vec<ClassResult>, String> {
    let path = dir.join(REQUEST_LOG);
    let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    classes(BufReader::new(file), mix, measured)
}

/// The fields of a request's line that are needed.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    target: Cow<'a, str>,
    planned_ns: u64,
    last_byte_ns: Option<u64>,
    status: Option<u16>,
}

fn classes(
    lines: impl BufRead,
    mix: &[RequestClass],
    measured: MeasuredWindow,
) -> Result<Vec<ClassResult>, String> {
    let starts: Vec<String> = mix.iter().map(|class| prefix(class) + "/").collect();
    let mut planned = vec![0_u64; mix.len()];
    let mut times_us: Vec<Vec<f64>> = vec![Vec::new(); mix.len()];
    for line in lines.lines() {
        let text = line.map_err(|error| format!("its line for each request: {error}"))?;
        let line: Line<'_> = serde_json::from_str(&text)
            .map_err(|error| format!("its line for each request: {error}"))?;
        let class = starts.iter().position(|start| line.target.starts_with(start));
        let Some(class) = class.filter(|_| measured.has(line.planned_ns)) else { continue };
        planned[class] += 1;
        // A refusal is a complete reply, but not the requested one.
        let is_good = line.status.is_some_and(|status| matches!(status, 200..400));
        if let Some(last_byte_ns) = line.last_byte_ns.filter(|_| is_good) {
            times_us[class].push(last_byte_ns.saturating_sub(line.planned_ns) as f64 / 1e3);
        }
    }
    let window_s = measured.to_s - measured.from_s;
    let all = mix.iter().zip(planned).zip(times_us).map(|((class, planned), times_us)| {
        let (burn_us, share, replies) = (*class.burn_us, *class.share, times_us.len() as u64);
        ClassResult { burn_us, share, window_s, planned, replies, response: times(&times_us) }
    });
    Ok(all.collect())
}

fn times(times_us: &[f64]) -> Option<Times> {
    let at = |share| weir_stats::quantile(times_us, share);
    at(1.0)?;
    Some(Times {
        count: times_us.len() as u64,
        mean_us: times_us.iter().sum::<f64>() / times_us.len() as f64,
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: at(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix() -> [RequestClass; 2] {
        [RequestClass::of(0.9, 60), RequestClass::of(0.1, 5000)]
    }

    #[test]
    fn the_list_has_each_class_as_often_as_its_share_says_in_an_order_of_the_seed() {
        let text = list(&mix(), "/one-byte.txt", 1);
        let count = |path: &str| text.lines().filter(|line| *line == path).count();
        assert_eq!(count("/.weir/burn/60/one-byte.txt"), 9_000);
        assert_eq!(count("/.weir/burn/5000/one-byte.txt"), 1_000);
        // Both classes are spread over the list: a tenth of it has about a tenth of the expensive
        // ones.
        let first = text.lines().take(1_000).filter(|line| line.contains("/5000/")).count();
        assert!((50..200).contains(&first), "{first}");
        assert_eq!(text, list(&mix(), "/one-byte.txt", 1));
        assert_ne!(text, list(&mix(), "/one-byte.txt", 2));
    }

    #[test]
    fn shares_that_do_not_divide_the_list_fill_it_all_the_same() {
        let third = |burn_us| RequestClass::of(1.0 / 3.0, burn_us);
        let text = list(&[third(1), third(2), third(3)], "/f", 1);
        let count = |path: &str| text.lines().filter(|line| *line == path).count();
        assert_eq!(text.lines().count(), LENGTH);
        let counts = [1, 2, 3].map(|us| count(&format!("/.weir/burn/{us}/f")));
        assert!(counts.iter().all(|count| (3_333..=3_334).contains(count)), "{counts:?}");
    }

    #[test]
    fn requests_are_looked_at_that_end_while_the_load_goes_on() {
        assert_eq!(MeasuredWindow::new(1.5, 2.0, 0.5), MeasuredWindow { from_s: 1.5, to_s: 3.0 });
        assert_eq!(MeasuredWindow::new(1.0, 0.5, 3.0), MeasuredWindow { from_s: 1.0, to_s: 1.25 });
    }

    #[test]
    fn the_results_of_each_class_are_counted() {
        let line = |us: u32, planned_ms: u64, end: &str| {
            let planned_ns = planned_ms * 1_000_000;
            let last_byte_ns = planned_ns + 2_000_000;
            format!(
                "{{\"request\":0,\"target\":\"/.weir/burn/{us}/f\",\"planned_ns\":{planned_ns},\
                 \"sent_ns\":null,\"last_byte_ns\":{last_byte_ns},{end}}}\n"
            )
        };
        let lost = line(60, 1_100, "\"error\":\"reset\"").replace("1102000000", "null");
        let text = [
            line(60, 1_000, "\"status\":200"),
            line(60, 1_200, "\"status\":304"),
            lost,
            line(60, 1_300, "\"status\":503"),
            line(5000, 1_400, "\"status\":200"),
            // Too early, too late, and of no class.
            line(5000, 999, "\"status\":200"),
            line(5000, 2_000, "\"status\":200"),
            line(600, 1_400, "\"status\":200"),
        ];
        let measured = MeasuredWindow { from_s: 1.0, to_s: 2.0 };
        let found = classes(text.concat().as_bytes(), &mix(), measured).unwrap();
        let counts = |class: &ClassResult| (class.burn_us, class.planned, class.replies);
        assert_eq!(found.iter().map(counts).collect::<Vec<_>>(), [(60, 4, 2), (5000, 1, 1)]);
        let response = found[0].response.unwrap();
        assert_eq!((response.count, response.p99_us, found[0].window_s), (2, Some(2000.0), 1.0));
        assert!(classes(&b"{}\n"[..], &mix(), measured).is_err());
        assert!(classes(&b""[..], &mix(), measured).unwrap()[1].response.is_none());
    }
}
