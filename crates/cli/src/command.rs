//! The command line as a whole: its subcommands, and errors in it.

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use clap_mangen::Man;

use crate::{docs_table, lab, load, options, probe, stat, top, upgrade};

/// An event-driven HTTP/1.1 server that keeps its peak throughput when it is overloaded.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Serve a directory over HTTP/1.1
    Serve(Box<options::ServeOptions>),
    /// Stand in front of other servers, and keep them at their peak
    Proxy(Box<options::ProxyOptions>),
    /// Load a server on a schedule that never waits for it, and measure what comes back
    Load(Box<load::LoadOptions>),
    /// Run experiments: servers and loads side by side, measured, and drawn beside the papers
    Lab(Box<lab::LabOptions>),
    /// Show the statistics of a running server, without asking it
    Stat(stat::StatOptions),
    /// Check a configuration file, and everything it names, without serving
    Check(options::CheckOptions),
    /// Show the state of a running server in the terminal, each second
    Top(top::TopOptions),
    /// Have a running server start the program that is installed now, and leave its place to it
    Upgrade(upgrade::UpgradeOptions),
    /// Measure what each event mechanism costs on this kernel, by itself
    Probe(Box<probe::ProbeOptions>),
    /// Hold a network namespace for a lab
    #[command(hide = true, disable_help_flag = true)]
    LabHolder {
        /// Arguments made by the testbed
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run a program on a side of a lab's testbed
    #[command(hide = true, disable_help_flag = true)]
    LabEnter {
        /// Arguments made by the testbed
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page (troff)
    Man {
        /// The subcommand that it is about, such as `serve` or `load scan`; without one it is about
        /// all of the program
        #[arg(value_name = "SUBCOMMAND")]
        of: Vec<String>,
    },
    /// Print one generated table of the documentation
    #[command(hide = true)]
    DocsTable {
        /// Which table
        #[arg(value_parser = docs_table::NAMES)]
        name: String,
    },
}

/// Formats an error in the arguments as a single line. Help and the version are printed here, and
/// the process exits.
pub(crate) fn one_sentence(error: &clap::Error) -> String {
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

/// Returns the manual page of a subcommand, or of the whole program.
///
/// # Errors
/// A sentence: there is no such subcommand.
pub(crate) fn manual_page(of: &[String]) -> Result<Man, String> {
    // What only helps has no page of its own, and is named on none.
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    let page = of.iter().try_fold(&all, |command, name| command.find_subcommand(name));
    let page = page.filter(|command| !command.is_hide_set());
    let page = page.ok_or_else(|| format!("there is no subcommand '{}'", of.join(" ")))?;
    let source = format!("weir {}", env!("CARGO_PKG_VERSION"));
    Ok(Man::new(page.clone()).source(source))
}
