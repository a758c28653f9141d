//! `weir load`: turns options into a run, and its measurements into printed output.
//!
//! `plan` builds a configuration from the options (with `target`, `connections`, `tls`,
//! `workload`, `input` and `resources`); `run` runs it and prints the results (with `progress`,
//! `screen` and `output`). Driving a load, measuring it and interpreting the results are all in
//! `weir-load`.

mod connections;
mod day;
mod files;
mod input;
mod link;
mod options;
mod output;
mod plan;
mod progress;
mod resources;
mod run;
mod scan;
mod target;
mod time;
mod tls;
mod trace;
mod workload;

use std::process::ExitCode;

pub(crate) use options::LoadOptions;
use options::LoadTask;

/// Runs the requested `weir load` task.
///
/// # Errors
/// A sentence: the options ask for something that cannot be provided.
pub(crate) fn load(options: LoadOptions) -> Result<ExitCode, String> {
    match options.task {
        None => run::run(&options.run),
        Some(LoadTask::Scan(options)) => scan::scan(&options),
        Some(LoadTask::Files(options)) => files::files(&options),
        Some(LoadTask::Trace(options)) => trace::trace(&options),
        Some(LoadTask::Day(options)) => day::day(&options),
        Some(LoadTask::Link(options)) => link::link(&options),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::options::{RunOptions, ScanOptions};
    use super::*;
    use crate::{Cli, Task};

    fn parsed(line: &str) -> LoadOptions {
        let args = ["weir", "load"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(args).unwrap().task {
            Task::Load(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    /// Parses the options of a run from the arguments `line`, with a URL added.
    pub(super) fn run_options(line: &str) -> RunOptions {
        parsed(&format!("{line} http://127.0.0.1:8080/")).run
    }

    /// Parses the options of a scan.
    pub(super) fn scan_options(line: &str) -> ScanOptions {
        match parsed(&format!("scan {line} http://127.0.0.1:8080/")).task {
            Some(LoadTask::Scan(options)) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        let table = [
            ("", "URL"),
            ("--closed 2 --rate 5 http://h/", "--rate"),
            ("--closed 2 --arrivals poisson http://h/", "--arrivals"),
            ("--closed 2 --conns 5 http://h/", "--conns"),
            ("--closed 2 --replay x http://h/", "--replay"),
            ("--replay x --rate 5 http://h/", "--rate"),
            ("--replay x --arrivals poisson http://h/", "--arrivals"),
            ("--speed 2 http://h/", "--replay"),
            ("--mb 5 http://h/", "--workload"),
            ("--burst-length 5 http://h/", "--wsess"),
            ("--wsess 1,2,3 --wset 5,1 http://h/", "--wset"),
            ("--workload 2k --method POST http://h/", "--method"),
            ("--wset 5,1 --body x http://h/", "--body"),
            ("--workload nothing http://h/", "specweb99"),
            ("--wsess 1,2 http://h/", "N1,N2,X"),
            ("--num 0 http://h/", "--num"),
            ("--duration 0 http://h/", "--duration"),
            ("--duration 5x http://h/", "--duration"),
            ("--requests-per-conn 0 http://h/", "inf"),
            ("--slow-rate 0 http://h/", "--idle"),
            ("--background-rate 0 http://h/", "above 0"),
            ("--http 2 http://h/", "1.1"),
            ("--tls-version 1.1 https://h/", "1.2"),
            ("--insecure --cacert x https://h/", "--cacert"),
            ("--key x https://h/", "--cert"),
            ("--unix-socket x --connect-to h:1 http://h/", "--connect-to"),
            ("--close never http://h/", "reset"),
            ("--header X http://h/", "NAME: VALUE"),
            ("--fail-if p99 http://h/", "operator"),
            ("--fail-if p99>5 http://h/", "unit"),
            ("--seed -1 http://h/", "found. tip: "),
            ("--requests-per-conn 4000000000 http://h/", "1 to 1000000, or inf"),
            ("--closed 1 --pipeline 4000000000 http://h/", "1000000"),
            ("--wsess 0,1,1 http://h/", "1 or more"),
            ("--wsesslog 0,1,x http://h/", "1 or more"),
            ("--wsesslog 1,1, http://h/", "a file"),
            ("--workload specweb99 --mb 0 http://h/", "--mb"),
            ("scan", "URL"),
            ("scan --arrivals ramp:1-2 http://h/", "poisson"),
            ("scan --rate 5 http://h/", "--rate"),
            ("scan --closed 5 http://h/", "--closed"),
            ("--rate 5 scan http://h/", "cannot be used with"),
            ("files", "DIR"),
            ("files x", "--workload"),
            ("files x --workload 2k --log y", "--log"),
            ("day", "FILE"),
            ("day x --objects 0", "--objects"),
            ("trace x --workload 2k", "specweb99"),
            ("link --path lan --clients a", "--servers"),
            ("link --path fast --clients a --servers b", "satellite"),
            ("trace x --workload specweb99 --sessions 999", "1000"),
        ];
        for (line, sentence) in table {
            let args = ["weir", "load"].into_iter().chain(line.split_whitespace());
            let refused = crate::command::one_sentence(&Cli::try_parse_from(args).unwrap_err());
            assert!(refused.contains(sentence), "{line}: {refused}");
            assert!(!refused.contains('\n'), "{line}: {refused}");
        }
    }

    #[test]
    fn httperf_s_name_for_an_option_is_known() {
        let options = run_options("--num-calls 7");
        assert_eq!(options.conns.requests_per_conn, Some(options::PerConn::Requests(7)));
    }
}
