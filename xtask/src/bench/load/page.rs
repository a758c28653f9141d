//! What the summaries of the cases share: their frame, and what holds for every run. Pure.

use std::fmt::Write;

use super::Bench;
use super::run::{ERROR_SHARE_MAX, Measured, Run};
use crate::bench::page::{self, median, none};
use crate::bench::window::FOREIGN_SHARE_MAX;

/// A summary.
pub(super) struct Page<'a> {
    pub(super) case: &'a str,
    /// What is measured, in a sentence or two.
    pub(super) about: String,
    /// The results, as Markdown.
    pub(super) body: String,
    /// What is particular to the case's method, as a Markdown list.
    pub(super) method: String,
    /// How often and how long it ran.
    pub(super) plan: String,
}

impl Page<'_> {
    /// The whole page.
    pub(super) fn text(&self, bench: &Bench, runs: &[Run<'_>]) -> String {
        let mut text = format!("# load: {}\n\n{}\n{}", self.case, self.about, self.body);
        let flagged = runs.iter().filter(|run| run.valid().is_none());
        page::flagged(
            &mut text,
            flagged.map(|run| {
                let reasons = run.notes.flags.join("; ");
                format!("round {}, {}: {reasons}", run.round, run.full_name())
            }),
        );
        let _ = write!(text, "\n## How it was measured\n\n{}", self.method);
        common(&mut text, bench.background_share, runs);
        if !bench.tools.skipped.is_empty() {
            let skipped = bench.tools.skipped.join(", ");
            let _ = writeln!(text, "- Not installed, so skipped: {skipped}.");
        }
        page::machine(&mut text, &bench.setup, &self.plan);
        text
    }
}

/// What holds for every case.
fn common(text: &mut String, background_share: f64, runs: &[Run<'_>]) {
    let steal = runs.iter().filter_map(Run::valid).map(|run| run.window.steal_share());
    let _ = write!(
        text,
        "- One client runs at a time, alone on its core; the server, started for the run, has the
  other. A round runs every contestant once, in an order shuffled anew.
- Core time is all the time in which the client's core was not idle (the window without idle and
  iowait of `/proc/stat`), from before the client starts to after it ended, its start and its report
  included. Nothing is subtracted. The core was {background:.1} % busy with no client running; steal
  was at most {steal:.1} % of a run.
- Sampled time is the sum of user, nice, system, irq, softirq and steal over the same time. A kernel
  that accounts by ticks measures idle time, and samples these: they may miss a tenth or more of
  what a core does that often waits, and miss nothing on a core that never does.
- Own time is what the kernel charged to the client's process, user and system. On the loopback
  device the sender's core also runs the receiver's half of the network stack: the client's core
  pays for the server's reception of connections and requests, and not for its own reception of
  replies. It is so for every client.
- A run does not count, and is shown, when it could not be made, when more than {errors:.0} % of its
  requests ended in errors where replies are what it is about, or when other processes had more than
  {foreign:.0} % of the client's core.
",
        background = background_share * 100.0,
        steal = steal.fold(0.0, f64::max) * 100.0,
        errors = ERROR_SHARE_MAX * 100.0,
        foreign = FOREIGN_SHARE_MAX * 100.0,
    );
}

/// The median of a figure over the runs that count, to so many digits.
pub(super) fn typical(
    runs: &[&Run<'_>],
    digits: usize,
    value: impl Fn(&Measured) -> Option<f64>,
) -> String {
    let values = runs.iter().filter_map(|run| value(run.valid()?)).collect();
    median(values).map_or(none(), |value| format!("{value:.digits$}"))
}

/// The runs of one contestant.
pub(super) fn of<'a, 'b>(runs: &'a [Run<'b>], group: &str, name: &str) -> Vec<&'a Run<'b>> {
    runs.iter().filter(|run| run.group == group && run.contestant == name).collect()
}

/// A bar and whether it was reached: nothing is said without a figure.
pub(super) fn judged(bar: &str, reached: Option<bool>) -> String {
    match reached {
        Some(true) => format!("{bar}: reached"),
        Some(false) => format!("{bar}: MISSED"),
        None => format!("{bar}: –"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::tests::{measured, run};
    use super::*;
    use crate::bench::page::tests::setup;

    #[test]
    fn only_runs_that_count_have_figures() {
        let setup = setup();
        let mut runs = vec![
            run(("g", "a"), 1, Some(measured(1000, 0)), &setup),
            run(("g", "a"), 2, Some(measured(3000, 0)), &setup),
            run(("h", "a"), 1, None, &setup),
        ];
        let replies = |own: &[&Run<'_>]| typical(own, 1, |run| Some(run.tally.replies as f64));
        assert_eq!(replies(&of(&runs, "g", "a")), "2000.0");
        runs[1].notes.flags.push("no".to_owned());
        assert_eq!(replies(&of(&runs, "g", "a")), "1000.0");
        assert_eq!(replies(&of(&runs, "h", "a")), "–");
    }

    #[test]
    fn what_holds_for_every_run_is_said() {
        let mut text = String::new();
        common(&mut text, 0.012, &[]);
        assert!(text.contains("1.2 % busy with no client") && text.contains("than 1 % of its"));
    }

    #[test]
    fn a_bar_is_reached_or_missed() {
        assert_eq!(judged("≥ 1", Some(true)), "≥ 1: reached");
        assert_eq!(judged("≥ 1", Some(false)), "≥ 1: MISSED");
        assert_eq!(judged("≥ 1", None), "≥ 1: –");
    }
}
