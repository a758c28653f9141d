//! The load of wrk: every file in turn, every body compared with the file on disk (`check.lua`).

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::files::Asked;
use super::row::Row;
use crate::trial::wrk::{self, Load};

const CHECK: &str = include_str!("check.lua");

/// The slowest mechanisms take seconds for a round of 5,000 connections.
const TIMEOUT_S: u32 = 60;

#[derive(Debug, Deserialize)]
struct Checked {
    checked: u64,
    mismatches: u64,
    bad_status: u64,
    first_wrong: String,
}

/// Asks `server` for the files of `set` for `seconds`, over `connections`, by the command `wrk`.
pub(super) fn run(
    wrk: Command,
    server: SocketAddr,
    set: &[Asked],
    (connections, close): (u32, bool),
    seconds: u32,
    folder: &Path,
) -> Row {
    let row = Row { tool: "wrk", connections, close, ..Row::default() };
    let path = "/".to_owned();
    let load = Load { path, connections, close, seconds, timeout_s: TIMEOUT_S };
    let script = script(set, connections);
    let output = wrk::output(wrk, &load, server, &script, folder);
    match output.and_then(|output| read(&output, row.clone())) {
        Ok(row) => row,
        Err(error) => Row { errors: vec![format!("{error:#}")], ..row },
    }
}

fn script(set: &[Asked], connections: u32) -> String {
    let mut script = format!("{}\nlocal CONNECTIONS = {connections}\n", wrk::COUNTS);
    script.push_str("local FILES = {\n");
    for Asked { target, path, .. } in set {
        // A quoted string of Rust is one of Lua, as long as it holds no controls.
        let _ = writeln!(script, "  {{ target = {target:?}, path = {path:?} }},");
    }
    script + "}\n" + CHECK
}

fn read(output: &str, mut row: Row) -> Result<Row> {
    row.errors = wrk::parse(output)?.complaints();
    let mut lines = output.lines().filter_map(|line| line.strip_prefix("checked "));
    let line = lines.next().context("wrk did not say what it checked")?;
    let counts: Checked = serde_json::from_str(line).context("what wrk checked")?;
    (row.checked, row.mismatches) = (counts.checked, counts.mismatches);
    if counts.bad_status > 0 {
        row.errors.push(format!("{} replies that are not 200", counts.bad_status));
    }
    if counts.mismatches > 0 {
        row.errors.push(counts.first_wrong);
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::super::liar::{self, Lie};
    use super::*;

    const COUNTS: &str = r#"json {"requests":9,"connect_errors":0,"read_errors":1,"write_errors":0,
"timeouts":0,"bad_status":0}"#;

    #[test]
    fn both_counts_are_read() {
        let checked = r#"checked {"checked":9,"mismatches":2,"bad_status":1,"first_wrong":"/x"}"#;
        let output = format!("Running\n{}\n{checked}\n", COUNTS.replace('\n', ""));
        let row = read(&output, Row::default()).unwrap();
        assert_eq!((row.checked, row.mismatches), (9, 2));
        assert_eq!(row.errors, ["1 read errors", "1 replies that are not 200", "/x"]);
        assert!(read("Running\n", Row::default()).is_err());
    }

    fn row(lie: Lie, connections: u32) -> Option<Row> {
        let site = liar::serve(lie, "wrk")?;
        let wrk = Command::new("wrk");
        let row = run(wrk, site.address, &site.set, (connections, false), 1, site.folder.path());
        assert!(row.checked > 100, "{row:?}");
        Some(row)
    }

    #[test]
    fn true_replies_pass() {
        for connections in [1, 8] {
            let Some(row) = row(Lie::None, connections) else { return };
            assert!(!row.failed(), "{row:?}");
        }
    }

    #[test]
    fn a_wrong_byte_is_found() {
        for connections in [1, 8] {
            let Some(row) = row(Lie::LastByte, connections) else { return };
            assert!(row.mismatches > 0, "{row:?}");
            assert!(row.errors.iter().any(|error| error.contains("/4097.bin")), "{row:?}");
        }
    }

    #[test]
    fn a_file_that_was_not_asked_for_is_found() {
        for connections in [1, 8] {
            let Some(row) = row(Lie::OtherFile, connections) else { return };
            assert!(row.mismatches > 0, "{row:?}");
        }
    }
}
