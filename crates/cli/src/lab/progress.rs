//! Progress of a run on standard error: a line per point and, on a terminal, a live view below them
//! of the current measurement and the remaining time.

use std::path::{Path, PathBuf};

use weir_lab::plan::{Step, Task};
use weir_lab::record::{Key, Line};
use weir_lab::run::Event;

use crate::screen::Screen;

/// Reports the events of a run.
pub(super) struct Progress {
    screen: Option<Screen>,
    /// Number of the step and total number of steps.
    at: String,
    dir: PathBuf,
}

impl Progress {
    /// Starts reporting on a run whose results go to `dir`.
    pub(super) fn new(quiet: bool, dir: &Path) -> Self {
        Self { screen: (!quiet).then(Screen::new), at: String::new(), dir: dir.to_owned() }
    }

    /// Reports an event.
    pub(super) fn tell(&mut self, event: &Event<'_>) {
        let Some(screen) = &mut self.screen else { return };
        match event {
            Event::Begun { done, total, left_s } => {
                let before =
                    if *done > 0 { format!("{done} done before, ") } else { String::new() };
                screen.say(&format!("Results go to {}", self.dir.display()));
                screen.say(&format!("{total} steps, {before}about {} to go", span(*left_s)));
            }
            Event::Warning(why) => screen.say(&format!("Note: {why}")),
            Event::StepBegun { number, total, step, left_s } => {
                self.at = format!("{number:>4}/{total}");
                let left = span(*left_s);
                if screen.is_live() {
                    screen.draw(&[format!("{} {}  {left} left", self.at, doing(step))]);
                } else {
                    // A log has no live view, so that each of its lines says how long it will be.
                    self.at.push_str(&format!(", {left} left:"));
                }
            }
            Event::StepEnded(line) => screen.say(&format!("{} {}", self.at, done(line))),
        }
    }
}

/// Formats seconds for a reader.
pub(super) fn span(s: f64) -> String {
    let s = s.max(0.0).round() as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

fn doing(step: &Step) -> String {
    let what = match step.task {
        Task::Capacity => "capacity of ",
        Task::Point => "",
        Task::Calls => "system calls of ",
    };
    format!("{what}{}", place(&step.key))
}

fn place(key: &Key) -> String {
    let Key { experiment, sweep, server, x, round } = key;
    format!("{experiment} {sweep}: {server} at {x}, round {}", round + 1)
}

fn done(line: &Line) -> String {
    match line {
        Line::Capacity(capacity) => {
            let key = &capacity.key;
            format!(
                "{} {}: {} can do {:.0}/s",
                key.experiment, key.sweep, key.server, capacity.sessions_per_s
            )
        }
        Line::Point(point) => {
            if let Some(probe) = &point.probe {
                return format!("{}: {:.0} ns a wait", place(&point.key), probe.wait_ns.median);
            }
            let load = &point.load;
            let offered = match point.rate {
                Some(rate) => format!(" {rate:.0}/s offered,"),
                None => String::new(),
            };
            let p99 = load.response.and_then(|times| times.p99_us);
            let p99 = p99.map_or(String::new(), |us| format!(", p99 {:.1} ms", us / 1000.0));
            let invalid = match &load.reasons[..] {
                _ if load.late_only => ", late: its times are left out".to_owned(),
                [first, ..] => format!(", INVALID: {}", first_clause(first)),
                [] => String::new(),
            };
            let place = place(&point.key);
            format!("{place}:{offered} {:.0} replies/s{p99}{invalid}", load.replies_per_s)
        }
        Line::Calls(run) => {
            let calls: u64 = run.calls.iter().map(|call| call.count).sum();
            format!("{}: {calls} system calls for {} replies", place(&run.key), run.replies)
        }
        Line::Failed(failed) => format!("{}: FAILED: {}", place(&failed.key), failed.why),
    }
}

/// Returns the first clause of a reason, without figures and advice; those are in the report.
fn first_clause(reason: &str) -> &str {
    reason.split([':', ',']).next().unwrap_or(reason).trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_do() {
        assert_eq!(
            [0.4, 59.0, 61.0, 3720.0].map(span),
            ["0 s", "59 s", "1 min 01 s", "1 h 02 min"]
        );
    }
}
