//! Errors in a workload's options and files.

use std::fmt;

/// An error in a workload's options or file, as a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub(super) String);

impl Error {
    /// Creates the error for a line of the file `name`.
    pub(super) fn at_line(name: &str, line: usize, what: impl fmt::Display) -> Self {
        Self(format!("{name}:{line}: {what}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
