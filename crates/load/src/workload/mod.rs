//! Workloads: sources of sessions, the requests they name, and the files they ask for.
//!
//! Each request is prepared once. A session is a function of the arrival's number and the seed, so
//! that it does not matter which thread asks for it, or when. Only [`files`] touches the disk:
//! parsers take text.

use std::fmt;

mod built;
pub mod day;
mod draw;
pub mod files;
#[cfg(test)]
mod fixtures;
pub mod logged_files;
mod named;
pub mod replay;
pub mod sessions;
pub mod simple;
pub mod small;
pub mod specweb99;
mod target;

pub use built::BuiltWorkload;
pub use named::NamedWorkload;

/// Returns the error for a line of the file `name`.
fn at_line(name: &str, line: usize, what: impl fmt::Display) -> String {
    format!("{name}:{line}: {what}")
}
