//! The command line: subcommands, options, the configuration file, and all output to a terminal.
//!
//! Nothing here serves, loads or measures: requests are passed to `weir-server`, `weir-load` or
//! `weir-lab`, and their results are printed.

mod config_file;
mod docs_table;
mod lab;
mod load;
mod options;
mod probe;
mod screen;
mod serve;
mod signals;
mod values;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Exit code for errors of the operator.
const USAGE: u8 = 2;

/// An event-driven HTTP/1.1 server that keeps its peak throughput when it is overloaded.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Serve a directory over HTTP/1.1
    Serve(Box<options::ServeOptions>),
    /// Load a server on a schedule that never waits for it, and measure what comes back
    Load(Box<load::LoadOptions>),
    /// Run experiments: servers and loads side by side, measured, and drawn beside the papers
    Lab(Box<lab::LabOptions>),
    /// Measure what each event mechanism costs on this kernel, by itself
    Probe(Box<probe::ProbeOptions>),
    /// Hold a network namespace for a lab
    #[command(hide = true, disable_help_flag = true)]
    LabHolder {
        /// Of the testbed's making
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run a program on a side of a lab's testbed
    #[command(hide = true, disable_help_flag = true)]
    LabEnter {
        /// Of the testbed's making
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (troff)
    Man,
    /// Print one generated table of the documentation
    #[command(hide = true)]
    DocsTable {
        /// Which table
        #[arg(value_parser = docs_table::NAMES)]
        name: String,
    },
}

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    match run(std::env::args_os().collect()) {
        Ok(code) => code,
        Err(sentence) => {
            say(&sentence);
            ExitCode::from(USAGE)
        }
    }
}

fn run(args: Vec<OsString>) -> Result<ExitCode, String> {
    let matches =
        Cli::command().try_get_matches_from(&args).map_err(|error| one_sentence(&error))?;
    let args = config_file::with_config_file(args, &matches)?;
    match Cli::parse_from(args).task {
        Task::Serve(options) => serve::serve(*options),
        Task::Load(options) => load::load(*options),
        Task::Lab(options) => lab::lab(*options),
        Task::Probe(options) => probe::probe(&options),
        Task::LabHolder { args } => Ok(weir_lab::testbed::holder_main(args)),
        Task::LabEnter { args } => Ok(weir_lab::testbed::enter_main(args)),
        Task::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "weir", &mut io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Task::Man => print(|out| clap_mangen::Man::new(Cli::command()).render(out)),
        Task::DocsTable { name } => print(|out| {
            let mut command = Cli::command();
            command.build();
            out.write_all(docs_table::render(&name, &command).as_bytes())
        }),
    }
}

/// Formats an error in the arguments as a single line. Help and the version are printed here, and
/// the process exits.
fn one_sentence(error: &clap::Error) -> String {
    if !error.use_stderr() {
        error.exit();
    }
    let text = error.to_string();
    let said = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said: Vec<_> =
        said.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    // A hint is a sentence of its own.
    let said = said.join(" ").replace(" tip: ", ". tip: ");
    format!("{} (see --help)", said.trim_start_matches("error: "))
}

fn print(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<ExitCode, String> {
    let mut out = Vec::new();
    write(&mut out)
        .and_then(|()| io::stdout().write_all(&out))
        .map_err(|error| format!("cannot print: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a text to standard output.
fn print_text(text: &str) -> Result<ExitCode, String> {
    print(|out| out.write_all(text.as_bytes()))
}

/// Prints a sentence for the operator to standard error.
fn say(sentence: &str) {
    // Nobody is left to hear that standard error is gone.
    let _ = writeln!(io::stderr(), "weir: {sentence}");
}
