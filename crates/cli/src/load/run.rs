//! A run from its first packet to its exit code: the output at the end, and the status reported to
//! the caller.

use std::process::ExitCode;

use weir_load::audit::{Verdict, audit};
use weir_load::condition::ConditionResult;
use weir_load::report::{self, RunReport};

use super::options::RunOptions;
use super::output;
use super::plan;
use super::progress::Progress;
use crate::print::{USAGE, say};
use crate::signals::Stop;

/// Exit code if a `--fail-if` condition holds, or the server held no rate of a scan.
pub(crate) const FAILED: u8 = 1;

/// Exit code if the client was the limit, or a scan was stopped before it knew anything.
pub(crate) const INVALID: u8 = 3;

/// Runs a load and prints the results.
///
/// # Errors
/// A sentence: the options ask for something that cannot be provided.
pub(crate) fn run(options: &RunOptions) -> Result<ExitCode, String> {
    let output = &options.output;
    let common = &output.common;
    let mut plan = plan::run(options)?;
    let lines = [&common.ndjson, &output.hdr_log, &output.each].map(Option::as_deref);
    let (shown, lines) = output::open(common.json.as_deref(), lines)?;
    // Only now: opening a FIFO without a reader blocks, and a signal ends that.
    let stop = Stop::listen()?;
    let mut progress = Progress::open(lines, common.quiet, &plan, stop);
    if let Some(warning) = plan.warning.as_deref().filter(|_| !common.quiet) {
        say(warning);
    }
    progress.begin();
    let outcome = weir_load::run(&plan.config, &mut progress)?;
    if plan.description.duration_ns == 0 {
        // It lasted as long as its sessions, which could not be known before.
        plan.description.duration_ns = outcome.elapsed_ns;
    }
    let verdict = audit(&plan.audit, &outcome);
    let conditions: Vec<ConditionResult> =
        output.fail_if.iter().map(|each| each.result(&outcome)).collect();
    let run = RunReport {
        description: &plan.description,
        outcome: &outcome,
        verdict: &verdict,
        conditions: &conditions,
    };
    let mut failures = progress.finish(&verdict);
    let text = report::text::report(&run);
    failures.extend(shown.show(&text, |out| report::json::write(out, &run)));
    failures.iter().for_each(|sentence| say(sentence));
    Ok(exit_code(&failures, &verdict, &conditions))
}

/// Selects the exit code. Lost output takes precedence, because the results are then unknown; then
/// invalid figures. A condition that cannot be evaluated counts as failed.
fn exit_code(failures: &[String], verdict: &Verdict, conditions: &[ConditionResult]) -> ExitCode {
    let failed =
        |result: &ConditionResult| result.evaluation.is_none_or(|evaluation| evaluation.holds);
    match () {
        () if !failures.is_empty() => USAGE.into(),
        () if !verdict.valid => INVALID.into(),
        () if conditions.iter().any(failed) => FAILED.into(),
        () => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use weir_load::condition::Condition;
    use weir_load::measure::RunOutcome;

    use super::*;

    #[test]
    fn the_exit_code_says_the_worst() {
        let result = |text| Condition::parse(text).unwrap().result(&RunOutcome::default());
        let (valid, invalid) = (Verdict { valid: true, ..Verdict::default() }, Verdict::default());
        let (fails, holds_not, untold) =
            (result("errors<1"), result("errors>0"), result("p99>1ms"));
        let lost = ["cannot write x".into()];
        let code = |failures: &[String], verdict, conditions: &[ConditionResult]| {
            format!("{:?}", exit_code(failures, verdict, conditions))
        };
        let is = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(&[], &valid, &[]), is(0));
        assert_eq!(code(&[], &valid, std::slice::from_ref(&holds_not)), is(0));
        assert_eq!(code(&[], &valid, &[holds_not, fails.clone()]), is(1));
        assert_eq!(code(&[], &valid, &[untold]), is(1));
        assert_eq!(code(&[], &invalid, std::slice::from_ref(&fails)), is(3));
        assert_eq!(code(&lost, &invalid, &[fails]), is(2));
    }
}
