//! The options of `weir lab`. Parsing only.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use weir_lab::experiment::{MAX_ROUNDS, PRECISION_ROUNDS_MIN};
use weir_lab::testbed::ADDRESSES_MAX;

use crate::options::{CpuList, cpu_list};

/// Options of `weir lab`.
#[derive(Debug, Args)]
pub(crate) struct LabOptions {
    #[command(subcommand)]
    pub task: LabTask,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabTask {
    /// Name the experiments and the papers
    List,
    /// Say what this machine has for an experiment, and what would be lost
    Check {
        /// An experiment or a file; by default the machine alone is looked at
        name: Option<String>,
    },
    /// Three servers past what they can do, in less than three minutes
    Quick(RunOptions),
    /// Run an experiment
    Run {
        /// Its name, as in the list, or a TOML file
        name: String,
        #[command(flatten)]
        options: RunOptions,
    },
    /// Run every experiment of a paper, or of all papers, and judge the claims
    Reproduce {
        /// The paper's key, as in the list, or all
        paper: String,
        /// A round of short points of one experiment of each paper: the shape of its curves in a
        /// quarter of an hour, and no verdicts
        #[arg(long, conflicts_with_all = ["scale", "precision"])]
        quick: bool,
        #[command(flatten)]
        options: RunOptions,
    },
    /// Draw the report of a run again, from what was measured
    Report {
        /// The run's folder
        dir: PathBuf,
    },
    /// Make one archive of a run of all papers: the program, the experiments, the results
    Artifact {
        /// The folder of a run of all papers
        dir: PathBuf,
        /// The archive to write
        #[arg(long, value_name = "FILE", default_value = "weir-artifact.tar.gz")]
        out: PathBuf,
    },
    /// Set two runs side by side
    Compare {
        /// The folder of a run
        a: PathBuf,
        /// The folder of another
        b: PathBuf,
    },
}

/// Options of a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunOptions {
    /// The folder for the results; by default one below results/, with the date and the name. A run
    /// that was not finished there is resumed
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Multiple of the experiment's repetitions to run; below 1, points are shorter too
    #[arg(long, value_name = "F", default_value_t = 1.0, value_parser = scale)]
    pub scale: f64,
    /// Half the width that the interval of each compared quantity is to have, as a percentage of
    /// its median, such as 2%: rounds go on until it has
    #[arg(long, value_name = "P", value_parser = percent)]
    pub precision: Option<f64>,
    /// Maximum number of rounds, with --precision
    #[arg(long, value_name = "N", requires = "precision", default_value_t = MAX_ROUNDS,
          value_parser = clap::value_parser!(u32).range(i64::from(PRECISION_ROUNDS_MIN)..=1000))]
    pub max_rounds: u32,
    /// Seed of the order of the points and of the loads' random draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Only these servers of the experiment, by their ids
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Another build of weir: each weir of the experiment is measured beside one that runs it
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Common or Combined access log of a day, replayed where the experiment has a made-up one
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Use the loopback of this machine even where namespaces can be made
    #[arg(long)]
    pub loopback: bool,
    /// Processors for the server, such as 0,2-3; by default the first
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub server_cpus: Option<CpuList>,
    /// Processors for the client; by default the second
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub client_cpus: Option<CpuList>,
    /// Source addresses of the client
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(ADDRESSES_MAX)))]
    pub client_addresses: u32,
    /// Pass on every option that the experiment names, also those that run programs and read or
    /// write files: trust the file as you would a program
    #[arg(long)]
    pub allow_any_options: bool,
    /// Show no progress
    #[arg(long)]
    pub quiet: bool,
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale.is_finite() && (0.01..=100.0).contains(&scale) => Ok(scale),
        _ => Err("a scale is a number from 0.01 to 100".to_owned()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim_end().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("a precision is a percentage above 0, at most 100, such as 2%".to_owned()),
    }
}
