//! A mechanism with a preset, and what came of it: a row for each load.

use crate::trial::stop::Counted;

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
    /// Returns whether the server did something wrong.
    pub(super) fn failed(&self) -> bool {
        self.mismatches > 0 || !self.errors.is_empty()
    }

    /// The load in a few words.
    pub(super) fn load(&self) -> String {
        let close = if self.close { ", close" } else { "" };
        format!("{}{close}", self.connections)
    }
}

/// A mechanism with a preset, and what came of it.
#[derive(Default)]
pub(super) struct Pair {
    pub(super) mechanism: String,
    pub(super) preset: String,
    pub(super) rows: Vec<Row>,
    pub(super) counted: Counted,
    /// What was wrong with the start, the stop or the counts, in words.
    pub(super) wrong: Vec<String>,
}

impl Pair {
    /// Returns whether anything was wrong.
    pub(super) fn failed(&self) -> bool {
        !self.wrong.is_empty() || self.rows.iter().any(Row::failed)
    }

    /// Returns the number of replies looked at.
    pub(super) fn checked(&self) -> u64 {
        self.rows.iter().map(|row| row.checked).sum()
    }

    /// Returns the pair in a line.
    pub(super) fn line(&self) -> String {
        let mut remarks = self.wrong.clone();
        for row in &self.rows {
            let skipped = row.skipped.iter().map(|why| format!("skipped, {why}"));
            let all = skipped.chain(row.errors.iter().cloned());
            remarks.extend(all.map(|what| format!("{} {}: {what}", row.tool, row.load())));
        }
        let verdict = if self.failed() { "FAILED" } else { "passed" };
        let (checked, open) = (self.checked(), self.counted.open_max);
        let head = format!("{} {}: {verdict}", self.mechanism, self.preset);
        let tail = if remarks.is_empty() { String::new() } else { ": ".to_owned() };
        format!("{head}, {checked} replies, {open} open at once{tail}{}", remarks.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_reply_fails_a_pair() {
        let row = Row { tool: "wrk", connections: 64, checked: 9, ..Row::default() };
        let mut pair = Pair { rows: vec![row], ..Pair::default() };
        assert!(!pair.failed() && pair.line().ends_with("passed, 9 replies, 0 open at once"));
        pair.rows[0].mismatches = 1;
        pair.rows[0].errors.push("/x is not the file".to_owned());
        assert!(pair.failed());
        assert!(pair.line().ends_with(": wrk 64: /x is not the file"), "{}", pair.line());
    }

    #[test]
    fn a_stop_that_goes_wrong_fails_a_pair() {
        let pair = Pair { wrong: vec!["exit status: 1".to_owned()], ..Pair::default() };
        assert!(pair.failed() && pair.line().contains("FAILED"));
    }
}
