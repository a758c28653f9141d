//! `weir load scan`: runs the points of a scan, one after the other, and prints a summary. The
//! choice of points is left to `weir-load`.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_load::audit::audit;
use weir_load::scan::{MeasuredPoint, Point, PointResult, Scan, ScanPlan, SearchResult};

use super::options::{ScanOptions, SearchOptions};
use super::output::{self, Output};
use super::plan::{self, ScanRuns};
use super::progress::Progress;
use super::run::{FAILED, INVALID};
use super::time;
use crate::print::{USAGE, say};
use crate::screen::Screen;
use crate::signals::Stop;

/// Interval at which a pause checks for a signal.
const STOP_POLL: Duration = Duration::from_millis(50);

/// Columns of the summary, about as wide as its table.
const WIDTH: usize = 100;

/// Scans a server.
///
/// # Errors
/// A sentence: the options ask for something that cannot be provided.
pub(crate) fn scan(options: &ScanOptions) -> Result<ExitCode, String> {
    let common = &options.output;
    let points = plan::scan(options)?;
    let scan = Scan::new(plan(&options.search))?;
    let (report, [ndjson]) = output::open(common.json.as_deref(), [common.ndjson.as_deref()])?;
    let mut scanner = Scanner {
        scan,
        points,
        pause: options.search.pause,
        // After the outputs: opening a FIFO without a reader blocks, and a signal ends that.
        stop: Stop::listen()?,
        screen: (!common.quiet).then(Screen::new),
        ndjson,
    };
    scanner.run()?;
    let Scanner { scan, ndjson, .. } = scanner;
    let summary = scan.summary();
    let mut failures: Vec<String> =
        ndjson.into_iter().filter_map(|out| out.finish().err()).collect();
    let text = summary.to_text(WIDTH);
    failures.extend(report.show(&text, |out| writeln!(out, "{:#}", summary.to_json())));
    failures.iter().for_each(|sentence| say(sentence));
    Ok(exit_code(&failures, &summary.search_result))
}

fn plan(options: &SearchOptions) -> ScanPlan {
    ScanPlan {
        from: options.from,
        rate_max: options.rate_max,
        to: options.to,
        multiples: options.multiples.clone().unwrap_or_else(|| default_multiples(options.to)),
        repetitions: options.repetitions,
        duration_ns: time::ns(options.duration),
        goodput_min: options.goodput_min,
        errors_max: options.errors_max,
        p99_ns_max: options.p99_max.map_or(0, time::ns),
        seed: options.seed,
    }
}

/// Returns the default multiples of the knee to be repeated, up to `to`.
fn default_multiples(to: f64) -> Vec<f64> {
    ScanPlan::default().multiples.into_iter().filter(|multiple| *multiple <= to).collect()
}

/// A scan in progress, and its outputs.
struct Scanner {
    scan: Scan,
    points: ScanRuns,
    pause: Duration,
    stop: Stop,
    screen: Option<Screen>,
    ndjson: Option<Output>,
}

impl Scanner {
    /// Runs points until the scan is finished or the operator stops it.
    fn run(&mut self) -> Result<(), String> {
        while let Some(point) = self.scan.next() {
            if !self.scan.measured().is_empty() {
                self.pause();
            }
            let Some(result) = self.measure(point)? else { break };
            let measured = self.scan.report(point, result);
            self.report_point(&measured);
        }
        Ok(())
    }

    /// Measures a point; returns `None` if it was cut short, because its figures would be
    /// meaningless.
    fn measure(&mut self, point: Point) -> Result<Option<PointResult>, String> {
        let number = self.scan.measured().len() as u64;
        let plan = match self.points.at(point.rate, point.duration_ns, number) {
            Ok(plan) => plan,
            // The first is refused before there is a scan.
            Err(why) => {
                let invalid = Some(without_advice(&why));
                return Ok(Some(PointResult { invalid, ..PointResult::default() }));
            }
        };
        if self.stop.is_wanted() {
            return Ok(None);
        }
        let live = self.screen.take_if(|screen| screen.is_live());
        let mut progress = Progress::new(&plan, live, self.stop.clone());
        progress.begin();
        let run = weir_load::run(&plan.config, &mut progress);
        self.screen = progress.into_screen().or(self.screen.take());
        let outcome = run?;
        let verdict = audit(&plan.audit, &outcome);
        let invalid = verdict.reasons.first().map(|reason| without_advice(reason));
        Ok((!outcome.interrupted).then(|| PointResult::of(&outcome, invalid)))
    }

    fn report_point(&mut self, measured: &MeasuredPoint) {
        if let Some(screen) = &mut self.screen {
            screen.say(&measured.to_text());
        }
        if let Some(out) = &mut self.ndjson {
            let written = out.write_all(measured.to_line().as_bytes());
            let flushed = written.and_then(|()| out.flush());
            out.note(flushed);
        }
    }

    /// Pauses, so that the effects of the last point on the server can subside.
    fn pause(&self) {
        let began = Instant::now();
        while began.elapsed() < self.pause && !self.stop.is_wanted() {
            std::thread::sleep(STOP_POLL.min(self.pause));
        }
    }
}

/// Strips the advice from a reason, which has to fit in a row of a table.
fn without_advice(reason: &str) -> String {
    reason.split(": ").next().unwrap_or_default().into()
}

/// Selects the exit code. A scan that was stopped behind the knee has found what it was for.
fn exit_code(failures: &[String], search_result: &SearchResult) -> ExitCode {
    match search_result {
        _ if !failures.is_empty() => USAGE.into(),
        SearchResult::ClientLimit { .. } | SearchResult::Unfinished => INVALID.into(),
        SearchResult::NothingHeld { .. } => FAILED.into(),
        SearchResult::Knee { .. } | SearchResult::RateMax { .. } => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tests::scan_options;

    #[test]
    fn only_a_scan_that_found_a_rate_of_the_server_succeeds() {
        let limit = SearchResult::ClientLimit {
            held: None,
            invalid: 5.0,
            reason: "the client was late".into(),
        };
        let knee = SearchResult::Knee { held: 1.0, failed: 2.0 };
        let lost = ["cannot write x".into()];
        let code = |failures: &[String], search_result: &SearchResult| {
            format!("{:?}", exit_code(failures, search_result))
        };
        let is = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(&[], &knee), is(0));
        assert_eq!(code(&[], &SearchResult::RateMax { held: 1.0 }), is(0));
        assert_eq!(code(&[], &SearchResult::NothingHeld { lowest: 1.0 }), is(1));
        assert_eq!(code(&[], &limit), is(3));
        assert_eq!(code(&[], &SearchResult::Unfinished), is(3));
        assert_eq!(code(&lost, &limit), is(2));
    }

    #[test]
    fn multiples_are_no_farther_than_the_scan_goes() {
        let checked = |line: &str| plan(&scan_options(line).search).check();
        assert_eq!(checked(""), Ok(()));
        assert_eq!(checked("--to 2"), Ok(()));
        assert_eq!(checked("--to 2 --multiples 1,2"), Ok(()));
        assert!(checked("--to 2 --multiples 100").unwrap_err().contains("--to"));
    }

    #[test]
    fn a_table_has_reasons_without_advice() {
        assert_eq!(without_advice("No port (port-unavail): give more."), "No port (port-unavail)");
        assert_eq!(without_advice("Nothing"), "Nothing");
    }
}
