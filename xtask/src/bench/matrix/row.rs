//! What one run of a load gave: a row of the matrix's table.

/// A run of a tool with a number of connections against one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// The program that made the load.
    pub(super) tool: &'static str,
    pub(super) connections: u32,
    /// Whether each request had a connection of its own.
    pub(super) close: bool,
    /// Replies that were looked at.
    pub(super) checked: u64,
    /// Replies whose body was not the file.
    pub(super) mismatches: u64,
    /// What else the server did wrong, in words.
    pub(super) errors: Vec<String>,
    /// Why the run says nothing about the server; a run that was skipped has no errors.
    pub(super) skipped: Option<String>,
}

impl Row {
    /// Whether the server did something wrong.
    pub(super) fn failed(&self) -> bool {
        self.mismatches > 0 || !self.errors.is_empty()
    }

    /// The load in a few words.
    pub(super) fn load(&self) -> String {
        let close = if self.close { ", close" } else { "" };
        format!("{}{close}", self.connections)
    }
}
