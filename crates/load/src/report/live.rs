//! Live view of a run: some lines that are redrawn each second on a terminal, or one plain line per
//! second for a pipe.
//!
//! Takes seconds and returns lines; the caller writes them, and handles the cursor and the width of
//! the terminal.

use std::collections::VecDeque;

use super::{RunDescription, loop_name, ms, per_s, ratio, seconds};
use crate::audit::{AuditInput, RunningAudit};
use crate::measure::{Errors, Interval, SecondSummary};

/// Number of seconds kept for the history.
const HISTORY_MAX: usize = 120;
/// Smallest width at which the history is shown, columns.
const HISTORY_WIDTH_MIN: usize = 60;
/// Width of the label column; continuation lines are indented by it.
const LABEL_WIDTH: usize = 10;
/// Bars of eight heights, each one column wide.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The state of the live view.
#[derive(Clone, Debug)]
pub struct LiveView {
    title: String,
    plan: String,
    /// Duration without the warm-up, which no second is of.
    duration_ns: u64,
    /// The running verdict.
    pub running_audit: RunningAudit,
    last: SecondSummary,
    history: VecDeque<f64>,
}

impl LiveView {
    /// Creates the view of a run that is just starting.
    pub fn new(description: &RunDescription, input: &AuditInput) -> Self {
        Self {
            title: printable(&description.url),
            plan: printable(&format!("{} loop: {}", loop_name(input.closed), description.arrivals)),
            duration_ns: description.duration_ns.saturating_sub(description.warmup_ns),
            running_audit: RunningAudit::new(input),
            last: SecondSummary::default(),
            history: VecDeque::new(),
        }
    }

    /// Adds a second of the run.
    pub fn add(&mut self, interval: &Interval) {
        self.running_audit.add(interval);
        self.last = SecondSummary::from(interval);
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(per_s(interval.counts.replies, interval.length_ns));
    }
}

/// Renders the view as lines of at most `width` columns. The number of lines varies.
pub fn view(live: &LiveView, width: usize) -> Vec<String> {
    let mut lines = vec![truncate(&live.title, width)];
    push_wrapped(&mut lines, "", &split_words(&live.plan), " ", width);
    let all = &live.running_audit.so_far;
    let rows = [
        ("time", time(live)),
        ("starts", starts(live)),
        ("replies", replies(live)),
        ("history", history(live, width)),
        ("1 s", response(&live.last)),
        ("run", quantiles(all.response.known_at(0.5), all.response.known_at(0.99)).into()),
        ("client", client(live)),
        ("errors", errors(&all.counts.errors)),
    ];
    rows.iter().for_each(|(label, items)| push_wrapped(&mut lines, label, items, "  ", width));
    for reason in live.running_audit.reasons() {
        push_wrapped(&mut lines, "INVALID", &split_words(&reason), " ", width);
    }
    lines
}

/// Renders a second as one line, without a newline. `running_audit` includes this second.
pub fn line(interval: &Interval, running_audit: &RunningAudit) -> String {
    let second = SecondSummary::from(interval);
    let counts = &interval.counts;
    let rate = |count| per_s(count, interval.length_ns);
    let input = &running_audit.input;
    let planned = if input.closed {
        "closed loop".into()
    } else {
        format!("planned {:.1}/s", rate(counts.planned))
    };
    let invalid = if running_audit.reasons().is_empty() { "" } else { "  INVALID so far" };
    format!(
        "{:>5} s  {planned}  started {:.1}/s  replies {:.1}/s  errors {}  {}  \
         lag p99 {}  open {}  cpu {:.0} %{invalid}",
        interval.second + 1,
        rate(counts.started),
        rate(counts.replies),
        errors(&counts.errors).join(", "),
        response(&second).join("  "),
        known_ms(second.lag_p99_ns),
        interval.open,
        cpu_percent(interval.cpu_ns, interval.length_ns, input)
    )
}

fn time(live: &LiveView) -> Vec<String> {
    let (elapsed_ns, whole_ns) = (live.running_audit.so_far.length_ns, live.duration_ns);
    let elapsed = format!("{:.0} s of {} s", seconds(elapsed_ns), seconds(whole_ns));
    let left = format!("{:.0} s left", seconds(whole_ns.saturating_sub(elapsed_ns)));
    vec![elapsed, left]
}

fn starts(live: &LiveView) -> Vec<String> {
    let SecondSummary { counts, length_ns, .. } = &live.last;
    let started = format!("{:.1}/s started", per_s(counts.started, *length_ns));
    if live.running_audit.input.closed {
        return vec![started];
    }
    let all = &live.running_audit.so_far.counts;
    let achieved = 100.0 * ratio(all.started as f64, all.planned as f64);
    vec![
        format!("{:.1}/s planned", per_s(counts.planned, *length_ns)),
        started,
        format!("{achieved:.1} % of the plan"),
    ]
}

fn replies(live: &LiveView) -> Vec<String> {
    let all = &live.running_audit.so_far;
    vec![
        format!("{:.1}/s", per_s(live.last.counts.replies, live.last.length_ns)),
        format!("{:.1}/s over the run", per_s(all.counts.replies, all.length_ns)),
    ]
}

/// Renders the replies per second as bars, the latest last, scaled to the highest; empty if the
/// width is too small.
fn history(live: &LiveView, width: usize) -> Vec<String> {
    if width < HISTORY_WIDTH_MIN || live.history.is_empty() {
        return Vec::new();
    }
    let shown = live.history.len().min(width - LABEL_WIDTH);
    let latest = live.history.iter().skip(live.history.len() - shown);
    let highest = latest.clone().copied().fold(0.0, f64::max);
    vec![latest.map(|rate| block(ratio(*rate, highest))).collect()]
}

fn block(share: f64) -> char {
    let top = BLOCKS.len() - 1;
    BLOCKS.get((share * top as f64).round() as usize).copied().unwrap_or(' ')
}

/// Renders the response times of a second: a second without replies has none, and is not one in
/// which the server was quick.
fn response(second: &SecondSummary) -> Vec<String> {
    quantiles(second.response_p50_ns, second.response_p99_ns).into()
}

fn quantiles(p50_ns: Option<u64>, p99_ns: Option<u64>) -> [String; 2] {
    [format!("p50 {}", known_ms(p50_ns)), format!("p99 {}", known_ms(p99_ns))]
}

fn known_ms(time_ns: Option<u64>) -> String {
    time_ns.map_or_else(|| "-".to_owned(), |time_ns| format!("{:.3} ms", ms(time_ns)))
}

fn client(live: &LiveView) -> Vec<String> {
    let SecondSummary { open, cpu_ns, length_ns, .. } = live.last;
    let input = &live.running_audit.input;
    vec![
        format!("{open} open"),
        format!("cpu {:.0} %", cpu_percent(cpu_ns, length_ns, input)),
        format!("lag p99 {}", known_ms(live.last.lag_p99_ns)),
    ]
}

fn errors(errors: &Errors) -> Vec<String> {
    let kinds = errors.rows().filter(|(_, count)| *count > 0);
    let named: Vec<String> = kinds.map(|(name, count)| format!("{count} {name}")).collect();
    if named.is_empty() { vec!["0".into()] } else { named }
}

/// Returns the share of the driving threads' cores in use, in percent.
fn cpu_percent(cpu_ns: u64, length_ns: u64, input: &AuditInput) -> f64 {
    100.0 * ratio(cpu_ns as f64, length_ns as f64 * input.threads.max(1) as f64)
}

/// Appends a row of a label and its items, on as many lines as needed. Without items, there is no
/// row.
fn push_wrapped(
    lines: &mut Vec<String>,
    label: &str,
    items: &[String],
    separator: &str,
    width: usize,
) {
    let Some((first, rest)) = items.split_first() else { return };
    let mut line = format!("{label:<LABEL_WIDTH$}{first}");
    for item in rest {
        if columns(&line) + columns(separator) + columns(item) > width {
            lines.push(truncate(&line, width));
            line = format!("{:LABEL_WIDTH$}{item}", "");
        } else {
            line.push_str(separator);
            line.push_str(item);
        }
    }
    lines.push(truncate(&line, width));
}

fn split_words(text: &str) -> Vec<String> {
    text.split(' ').map(Into::into).collect()
}

/// Truncates a line to `width` columns.
fn truncate(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}

/// Returns the width of a text of one-column characters; [`plain`] ensures this for foreign text.
fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Replaces characters that would move the cursor or whose width is not one column.
fn printable(text: &str) -> String {
    let one = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::measure::ErrorKind;

    fn live(closed: bool, seconds: u64) -> LiveView {
        let mut live = LiveView::new(&fixtures::description(closed), &fixtures::input(closed));
        (0..seconds).for_each(|second| live.add(&fixtures::interval(second)));
        live
    }

    #[test]
    fn the_view_shows_the_run() {
        let expected = "\
http://127.0.0.1:8000/
          open loop: constant, 100/s
time      3 s of 10 s  7 s left
starts    100.0/s planned  100.0/s started  100.0 % of the plan
replies   98.0/s  98.0/s over the run
history   ███
1 s       p50 49.021 ms  p99 98.042 ms
run       p50 49.021 ms  p99 98.042 ms
client    12 open  cpu 25 %  lag p99 0.020 ms
errors    3 reply-timeout";
        assert_eq!(view(&live(false, 3), 80).join("\n"), expected);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_nothing_is_lost_from_40_columns_on() {
        let mut live = live(false, 200);
        let mut interval = fixtures::invalid_interval(200);
        interval.counts.planned = 123_456_789;
        ErrorKind::ALL.iter().for_each(|kind| interval.counts.errors.count(*kind));
        live.add(&interval);
        let split_words = |width| view(&live, width).join(" ").split_whitespace().count();
        for width in 40..=200 {
            for line in view(&live, width) {
                assert!(line.chars().count() <= width, "{width}: {line}");
                assert!(line.chars().all(|c| (' '..='~').contains(&c) || BLOCKS.contains(&c)));
            }
            let history = if width < HISTORY_WIDTH_MIN { 2 } else { 0 };
            assert_eq!(split_words(width) + history, split_words(200), "{width}");
        }
        assert!(view(&live, 3).iter().all(|line| line.chars().count() <= 3));
    }

    #[test]
    fn the_history_is_as_long_as_there_is_room() {
        let live = live(false, 150);
        let blocks =
            |width| view(&live, width).concat().chars().filter(|c| BLOCKS.contains(c)).count();
        assert_eq!([40, 59, 60, 80, 200].map(blocks), [0, 0, 50, 70, HISTORY_MAX]);
        assert_eq!([0.0, 0.5, 1.0].map(block), ['▁', '▅', '█']);
    }

    #[test]
    fn a_run_that_is_invalid_says_so_from_then_on() {
        let mut live = live(true, 1);
        assert!(!view(&live, 80).concat().contains("INVALID"));
        assert!(!line(&fixtures::interval(0), &live.running_audit).contains("INVALID"));
        live.add(&fixtures::invalid_interval(1));
        live.add(&fixtures::interval(2));
        assert!(view(&live, 80).iter().any(|line| line.starts_with("INVALID   No descriptor")));
        assert!(line(&fixtures::interval(2), &live.running_audit).ends_with("  INVALID so far"));
    }

    #[test]
    fn a_closed_loop_is_labelled_and_shows_no_plan() {
        let live = live(true, 1);
        let shown = view(&live, 80).join("\n");
        assert!(shown.contains("closed loop: 16 connections") && !shown.contains("planned"));
        assert!(
            line(&fixtures::interval(0), &live.running_audit).contains("  closed loop  started")
        );
    }

    #[test]
    fn a_second_is_a_plain_line() {
        let mut running_audit = RunningAudit::new(&fixtures::input(false));
        running_audit.add(&fixtures::interval(4));
        let expected = "    5 s  planned 100.0/s  started 100.0/s  replies 98.0/s  errors 1 \
                        reply-timeout  p50 49.021 ms  p99 98.042 ms  lag p99 0.020 ms  open 12  \
                        cpu 25 %";
        assert_eq!(line(&fixtures::interval(4), &running_audit), expected);
    }

    #[test]
    fn a_second_without_replies_has_no_times() {
        let silent = Interval { second: 1, length_ns: 1_000_000_000, ..Interval::default() };
        let mut live = live(false, 1);
        live.add(&silent);
        let lines = view(&live, 80);
        assert!(lines.iter().any(|line| line == "1 s       p50 -  p99 -"), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("run       p50 49.021 ms")), "{lines:?}");
        let shown = line(&silent, &live.running_audit);
        assert!(shown.contains("  p50 -  p99 -  lag p99 -  open"), "{shown}");
    }

    #[test]
    fn text_from_outside_cannot_move_the_cursor() {
        let url = "http://h/\u{1b}[2J\u{7}日本".into();
        let description = RunDescription { url, ..fixtures::description(false) };
        let live = LiveView::new(&description, &fixtures::input(false));
        assert_eq!(view(&live, 80)[0], "http://h/?[2J???");
    }

    #[test]
    fn the_warm_up_is_no_part_of_the_time() {
        let warmup_ns = 4_000_000_000;
        let description = RunDescription { warmup_ns, ..fixtures::description(false) };
        let mut live = LiveView::new(&description, &fixtures::input(false));
        assert_eq!(view(&live, 80)[2], "time      0 s of 6 s  6 s left");
        (0..6).for_each(|second| live.add(&fixtures::interval(second)));
        assert_eq!(view(&live, 80)[2], "time      6 s of 6 s  0 s left");
    }

    #[test]
    fn before_the_first_second_there_is_a_view_too() {
        let shown = view(&live(false, 0), 80).join("\n");
        assert!(shown.contains("0 s of 10 s") && !shown.contains("NaN"), "{shown}");
    }
}
