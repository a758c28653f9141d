//! Progress of a run: the view or the lines on standard error, a JSON line per second, the
//! HdrHistogram log, a JSON line per request. It does not affect the run, except that it stops it
//! when the operator asks.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::SystemTime;

use weir_load::audit::Verdict;
use weir_load::config::{RequestSample, RunObserver};
use weir_load::measure::Interval;
use weir_load::report::hdr::HistogramLog;
use weir_load::report::live::{self, LiveView};
use weir_load::report::ndjson;
use weir_load::session::{RequestTable, SerializedRequest};

use super::output::Output;
use super::plan::RunPlan;
use crate::screen::Screen;
use crate::signals::Stop;

/// Reports the progress of a run.
pub(crate) struct Progress {
    live: LiveView,
    screen: Option<Screen>,
    ndjson: Option<Output>,
    hdr: Option<HistogramLog<Output>>,
    each: Option<Output>,
    requests: Arc<RequestTable>,
    stop: Stop,
}

impl Progress {
    /// Creates a reporter that writes to `lines`: those per second, the histograms and those per
    /// request.
    pub(crate) fn open(
        lines: [Option<Output>; 3],
        quiet: bool,
        plan: &RunPlan,
        stop: Stop,
    ) -> Self {
        let to_stdout = lines.iter().flatten().any(Output::is_stdout);
        let [ndjson, hdr, each] = lines;
        let hdr = hdr.map(|out| HistogramLog::new(out, &plan.description));
        // On one terminal, lines and a view would be drawn over each other.
        let shares_terminal = to_stdout && io::stdout().is_terminal();
        let screen = (!quiet && !shares_terminal).then(Screen::new);
        Self { hdr, ndjson, each, ..Self::new(plan, screen, stop) }
    }

    /// Creates a reporter without output files, on a screen or silent.
    pub(crate) fn new(plan: &RunPlan, screen: Option<Screen>, stop: Stop) -> Self {
        let live = LiveView::new(&plan.description, &plan.audit);
        let requests = Arc::clone(&plan.config.requests);
        Self { live, screen, ndjson: None, hdr: None, each: None, requests, stop }
    }

    /// Shows that the run has started.
    pub(crate) fn begin(&mut self) {
        self.draw();
    }

    /// Returns the screen.
    pub(crate) fn into_screen(self) -> Option<Screen> {
        self.screen
    }

    /// Writes remaining output; returns a sentence for each output that failed.
    pub(crate) fn finish(self, verdict: &Verdict) -> Vec<String> {
        let ended = self.hdr.map(|log| {
            let ended = log.finish(verdict).map_err(|error| error.to_string());
            ended.and_then(Output::finish)
        });
        let others = [self.ndjson, self.each].into_iter().flatten().map(Output::finish);
        ended.into_iter().chain(others).filter_map(Result::err).collect()
    }

    fn draw(&mut self) {
        if let Some(screen) = self.screen.as_mut().filter(|screen| screen.is_live()) {
            let lines = live::view(&self.live, screen.width());
            screen.draw(&lines);
        }
    }
}

impl RunObserver for Progress {
    fn second(&mut self, interval: &Interval) {
        self.live.add(interval);
        if let Some(out) = &mut self.ndjson {
            let written = ndjson::second(out, interval, &self.live.running_audit);
            let flushed = written.and_then(|()| out.flush());
            out.note(flushed);
        }
        if let Some(log) = &mut self.hdr {
            // The output remembers what it could not write; a histogram of ours is always sound.
            let _ = log.second(interval, SystemTime::now());
        }
        match &mut self.screen {
            Some(screen) if !screen.is_live() => {
                screen.say(&live::line(interval, &self.live.running_audit));
            }
            _ => self.draw(),
        }
    }

    fn requests(&mut self, samples: &[RequestSample]) {
        let Some(out) = &mut self.each else { return };
        for sample in samples {
            let request = self.requests.get(sample.request);
            let target = request.map_or("", SerializedRequest::target);
            let written = ndjson::request(out, sample, target);
            out.note(written);
        }
    }

    fn stop(&mut self) -> bool {
        self.stop.is_wanted()
    }
}

#[cfg(test)]
mod tests {
    use weir_load::measure::Timestamps;
    use weir_load::session::RequestId;

    use super::*;
    use crate::load::options::RunOptions;
    use crate::load::tests::run_options;
    use crate::load::{output, plan};

    fn progress(options: &RunOptions, plan: &RunPlan) -> Progress {
        let output = &options.output;
        let lines = [&output.common.ndjson, &output.hdr_log, &output.each].map(Option::as_deref);
        let (_, lines) = output::open(None, lines).unwrap();
        Progress::open(lines, true, plan, Stop::default())
    }

    #[test]
    fn each_second_and_each_request_is_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (lines, each, log) = (path("lines"), path("each"), path("log"));
        let options =
            run_options(&format!("--quiet --ndjson {lines} --each {each} --hdr-log {log}"));
        let plan = plan::run(&options).unwrap();
        assert!(plan.config.each);
        let mut progress = progress(&options, &plan);
        let count = |path: &str| std::fs::read_to_string(path).unwrap().lines().count();
        for second in 0..3 {
            let interval = Interval { second, length_ns: 1_000_000_000, ..Interval::default() };
            progress.second(&interval);
            assert_eq!(count(&lines) as u64, second + 1);
        }
        let sample = RequestSample {
            timestamps: Timestamps::default(),
            request: RequestId(0),
            end: Ok(200),
        };
        progress.requests(&[sample; 5]);
        let invalid = Verdict { reasons: vec!["why".into()], ..Verdict::default() };
        assert!(progress.finish(&invalid).is_empty());
        assert_eq!((count(&lines), count(&each)), (3, 5));
        assert!(std::fs::read_to_string(each).unwrap().contains("\"target\":\"/\""));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.ends_with("#INVALID: why\n"), "{log}");
    }

    #[test]
    fn an_output_that_fails_does_not_keep_the_others_from_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let each = dir.path().join("each");
        let each_name = each.display();
        let options = run_options(&format!("--quiet --ndjson /dev/full --each {each_name}"));
        let plan = plan::run(&options).unwrap();
        let mut progress = progress(&options, &plan);
        progress.second(&Interval::default());
        let end = Err(weir_load::measure::ErrorKind::Reset);
        progress.requests(&[RequestSample {
            timestamps: Timestamps::default(),
            request: RequestId(0),
            end,
        }]);
        let failures = progress.finish(&Verdict::default());
        assert_eq!(failures.len(), 1);
        assert!(failures[0].starts_with("cannot write /dev/full"), "{failures:?}");
        assert!(std::fs::read_to_string(each).unwrap().contains("\"reset\""));
    }
}
