//! The lab: experiments that run servers and loads side by side on one machine, measure them and
//! draw the results beside the papers' numbers.
//!
//! A run follows a plan: it builds a testbed, runs each point and writes it to disk at once, and
//! makes the report from what is on disk. Servers and loads are processes: nothing here links them,
//! serves or sends a byte. Nothing here prints: events are reported to the caller.

pub mod allow_list;
pub mod analysis;
pub mod artifact;
mod atomic_file;
pub mod catalogue;
pub mod cgroup;
pub mod check;
pub mod compare;
pub mod document;
pub mod environment;
pub mod experiment;
pub mod file_set;
pub mod findings;
mod fit;
pub mod generators;
pub mod journal;
#[cfg(test)]
mod loopback;
pub mod machine;
pub mod measure;
pub mod metrics;
pub mod paper;
pub mod plan;
mod process_group;
pub mod programs;
pub mod record;
pub mod report;
pub mod results;
pub mod run;
pub mod servers;
pub mod setup_summary;
pub mod testbed;
pub mod time;
pub mod validation;
pub mod workload;
