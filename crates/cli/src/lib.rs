//! The command line: subcommands, options, the configuration file, and all output to a terminal.
//!
//! Nothing here serves, loads or measures: requests are passed to `weir-server`, `weir-load` or
//! `weir-lab`, and their results are printed.

mod caching;
mod clients;
mod command;
mod compression;
mod config_file;
mod docs_table;
mod error_log;
mod forwarding;
mod lab;
mod load;
mod manager;
mod options;
mod print;
mod probe;
mod running;
mod screen;
mod serve;
mod signals;
mod sites;
mod stat;
mod tls;
mod top;
mod upgrade;
mod values;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use weir_server::{CountingAllocator, Predecessor};

use command::{Cli, Task, manual_page, one_sentence};
use config_file::Merged;
use print::{USAGE, print, say};

/// Counts what is allocated, so that a server knows the memory that it takes (--memory).
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    let (report, result) = match Predecessor::find() {
        Ok(predecessor) => {
            let report = predecessor.as_ref().map(Predecessor::failure_report);
            (report, run(std::env::args_os().collect(), predecessor))
        }
        Err(error) => (None, Err(error.to_string())),
    };
    match result {
        Ok(code) => code,
        Err(sentence) => {
            // A predecessor says why there is no successor.
            if !report.is_some_and(|report| report.send(&sentence)) {
                say(&sentence);
            }
            ExitCode::from(USAGE)
        }
    }
}

fn run(args: Vec<OsString>, predecessor: Option<Predecessor>) -> Result<ExitCode, String> {
    let matches =
        Cli::command().try_get_matches_from(&args).map_err(|error| one_sentence(&error))?;
    let environment: Vec<_> = std::env::vars_os().collect();
    let merged = config_file::merge(args, &matches, &environment)?;
    if let Some(text) = config_file::shown(&merged, &matches) {
        return print::print_text(&text);
    }
    let Merged { args, tables, places, .. } = merged;
    let located = |why| places.locate(why);
    match Cli::parse_from(args).task {
        Task::Serve(options) => serve::serve(*options, &tables, predecessor).map_err(located),
        Task::Proxy(options) => serve::proxy(*options, predecessor).map_err(located),
        Task::Load(options) => load::load(*options),
        Task::Lab(options) => lab::lab(*options),
        Task::Stat(options) => stat::stat(&options),
        Task::Check(options) => serve::check_file(&options, &environment),
        Task::Top(options) => top::top(&options),
        Task::Upgrade(options) => upgrade::upgrade(&options),
        Task::Probe(options) => probe::probe(&options),
        Task::LabHolder { args } => Ok(weir_lab::testbed::holder_main(args)),
        Task::LabEnter { args } => Ok(weir_lab::testbed::enter_main(args)),
        Task::Completions { shell } => print(|out| {
            clap_complete::generate(shell, &mut Cli::command(), "weir", out);
            Ok(())
        }),
        Task::Man { of } => {
            let page = manual_page(&of)?;
            print(|out| page.render(out))
        }
        Task::DocsTable { name } => print(|out| {
            let mut command = Cli::command();
            command.build();
            out.write_all(docs_table::render(&name, &command).as_bytes())
        }),
    }
}
