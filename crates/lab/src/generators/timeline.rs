//! Aggregation of requests into time bins: reads the lines of `weir load --each`, returns counts
//! and percentiles per bin.

use std::io::BufRead;

use serde::Deserialize;

use crate::record::Timeline;

const MS_PER_S: f64 = 1e3;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_US: u64 = 1_000;

/// The time bins, and the steps of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Grid {
    /// Length of a bin, in milliseconds.
    pub(super) bin_ms: u32,
    /// Length of the warm-up before the first bin, in seconds.
    pub(super) warmup_s: f64,
    /// Length of the schedule after the warm-up, in seconds.
    pub(super) duration_s: f64,
    /// Times of the steps up and down, in seconds from the first bin.
    pub(super) steps_s: Option<(f64, f64)>,
}

/// The fields of a line that are needed.
#[derive(Deserialize)]
struct Request {
    planned_ns: u64,
    last_byte_ns: Option<u64>,
    /// `None` for an error.
    status: Option<u16>,
}

/// Status codes of replies that fulfil their request (RFC 9110, section 15).
const GOOD: std::ops::Range<u16> = 200..400;

/// A bin while it is being filled.
#[derive(Clone, Default)]
struct Bin {
    planned: u64,
    replies: u64,
    errors: u64,
    /// Response times of the requests planned in it.
    response_us: Vec<f64>,
}

/// Aggregates requests. A reply is counted in the bin of its last byte; the planned request, an
/// error and the response time are counted in the bin of the planned start. A refusal is an error:
/// however fast, it is not the requested reply.
///
/// # Errors
/// Returns a sentence if a line cannot be read.
pub(super) fn fold(lines: impl BufRead, grid: &Grid) -> Result<Timeline, String> {
    let bin_ms = u64::from(grid.bin_ms.max(1));
    let from_ms = (grid.warmup_s * MS_PER_S).round() as u64;
    let bin_of = |at_ns: u64| Some((at_ns / NS_PER_MS).checked_sub(from_ms)? / bin_ms);
    let mut bins =
        vec![Bin::default(); (grid.duration_s * MS_PER_S / bin_ms as f64).ceil() as usize];
    for line in lines.lines() {
        let line = line.map_err(|error| format!("the lines of requests: {error}"))?;
        let request: Request = serde_json::from_str(&line)
            .map_err(|error| format!("the line of a request: {error}"))?;
        let Some(planned) = bin_of(request.planned_ns) else { continue };
        let bin = at(&mut bins, planned);
        bin.planned += 1;
        match (request.status, request.last_byte_ns) {
            (Some(status), Some(last_byte_ns)) if GOOD.contains(&status) => {
                let response_ns = last_byte_ns.saturating_sub(request.planned_ns);
                bin.response_us.push((response_ns / NS_PER_US) as f64);
                if let Some(came) = bin_of(last_byte_ns) {
                    at(&mut bins, came).replies += 1;
                }
            }
            _ => bin.errors += 1,
        }
    }
    Ok(timeline(&bins, grid))
}

/// Returns the bin with this number, appending bins as needed. No request is late enough for its
/// bin to be far beyond the others.
fn at(bins: &mut Vec<Bin>, number: u64) -> &mut Bin {
    let index = number as usize;
    if index >= bins.len() {
        bins.resize(index + 1, Bin::default());
    }
    &mut bins[index]
}

fn timeline(bins: &[Bin], grid: &Grid) -> Timeline {
    let count = |of: fn(&Bin) -> u64| bins.iter().map(of).collect();
    let time = |share| {
        let of =
            |bin: &Bin| weir_stats::quantile(&bin.response_us, share).map(|us| us.round() as u64);
        bins.iter().map(of).collect()
    };
    Timeline {
        bin_ms: grid.bin_ms,
        duration_s: grid.duration_s,
        up_s: grid.steps_s.map(|(up_s, _)| up_s),
        down_s: grid.steps_s.map(|(_, down_s)| down_s),
        planned: count(|bin| bin.planned),
        replies: count(|bin| bin.replies),
        errors: count(|bin| bin.errors),
        p50_us: time(0.5),
        p99_us: time(0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid =
        Grid { bin_ms: 100, warmup_s: 1.0, duration_s: 0.25, steps_s: Some((0.1, 0.2)) };

    /// Formats a request planned and answered at these times, in milliseconds since the load began.
    fn reply(planned_ms: u64, last_ms: u64) -> String {
        let (planned_ns, last_ns) = (planned_ms * NS_PER_MS, last_ms * NS_PER_MS);
        format!(
            "{{\"request\":0,\"planned_ns\":{planned_ns},\"started_ns\":5,\
             \"last_byte_ns\":{last_ns},\"status\":200}}\n"
        )
    }

    /// Formats a request that ended in an error before its last byte.
    fn error(planned_ms: u64) -> String {
        let planned_ns = planned_ms * NS_PER_MS;
        format!("{{\"planned_ns\":{planned_ns},\"last_byte_ns\":null,\"error\":\"reset\"}}\n")
    }

    #[test]
    fn replies_count_where_they_came_and_all_else_where_it_was_planned() {
        let lines = [reply(1000, 1010), reply(1099, 1250), error(1150), reply(1240, 1990)].concat();
        let found = fold(lines.as_bytes(), &GRID).unwrap();
        assert_eq!(found.planned, [2, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(found.replies, [1, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(found.errors[..3], [0, 1, 0]);
        assert_eq!(found.p50_us[..4], [Some(80_500), None, Some(750_000), None]);
        assert_eq!(found.p99_us[0], Some(149_590));
        assert_eq!((found.up_s, found.down_s), (Some(0.1), Some(0.2)));
    }

    #[test]
    fn a_refusal_is_an_error_however_fast() {
        let lines = reply(1000, 1001).replace("200", "503") + &reply(1000, 1002);
        let found = fold(lines.as_bytes(), &GRID).unwrap();
        assert_eq!((found.planned[0], found.replies[0], found.errors[0]), (2, 1, 1));
        assert_eq!(found.p50_us[0], Some(2000));
    }

    #[test]
    fn a_load_nobody_answers_has_its_bins_all_the_same() {
        let found = fold(&b""[..], &Grid { steps_s: None, ..GRID }).unwrap();
        assert_eq!((found.planned, found.p50_us, found.up_s), (vec![0; 3], vec![None; 3], None));
        // Requests planned during the warm-up are in no bin.
        let early = fold(reply(900, 1050).as_bytes(), &GRID).unwrap();
        assert_eq!((early.planned, early.replies), (vec![0; 3], vec![0; 3]));
    }

    #[test]
    fn a_line_that_is_none_is_an_error() {
        assert!(fold(&b"{}\n"[..], &GRID).unwrap_err().contains("planned_ns"));
    }
}
