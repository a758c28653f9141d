//! The page about a matrix: a row for every load of every pair. Pure: pairs in, Markdown out.

use std::fmt::Write;

use super::row::{Pair, Row};

/// Formats the page about `pairs`; `skipped` names the tools that are not installed.
pub(super) fn page(pairs: &[Pair], skipped: &[&str]) -> String {
    let failed = pairs.iter().filter(|pair| pair.failed()).count();
    let checked: u64 = pairs.iter().map(Pair::checked).sum();
    let mut page = format!(
        "# serve: matrix

Every mechanism with every preset serves a set of files under wrk and ab, and is then told to stop.

{} pairs, {failed} failed; {checked} replies checked.
",
        pairs.len()
    );
    if !skipped.is_empty() {
        let _ = writeln!(page, "\nNot installed, so skipped: {}.", skipped.join(", "));
    }
    loads(&mut page, pairs);
    stops(&mut page, pairs);
    method(&mut page);
    page
}

fn loads(page: &mut String, pairs: &[Pair]) {
    page.push_str(
        "
## Loads

| mechanism | preset | tool | connections | replies checked | mismatches | errors |
|---|---|---|---|---:|---:|---|
",
    );
    for pair in pairs {
        for row in &pair.rows {
            let Row { tool, checked, mismatches, .. } = row;
            let _ = writeln!(
                page,
                "| {} | {} | {tool} | {} | {checked} | {mismatches} | {} |",
                pair.mechanism,
                pair.preset,
                row.load(),
                remarks(row),
            );
        }
    }
}

fn remarks(row: &Row) -> String {
    let skipped = row.skipped.iter().map(|why| format!("skipped: {why}"));
    let all: Vec<String> = skipped.chain(row.errors.iter().cloned()).collect();
    cell(&all)
}

/// Makes words of a program fit for a cell of a table.
fn cell(words: &[String]) -> String {
    let text = words.join("; ").replace('|', "/").replace(char::is_control, " ");
    if text.is_empty() { "none".to_owned() } else { text }
}

fn stops(page: &mut String, pairs: &[Pair]) {
    page.push_str(
        "
## Stops

| mechanism | preset | accepted | open at once | replies | replies cut | 4xx | 5xx | wrong |
|---|---|---:|---:|---:|---:|---:|---:|---|
",
    );
    for pair in pairs {
        let counted = &pair.counted;
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            pair.mechanism,
            pair.preset,
            counted.accepted,
            counted.open_max,
            counted.replies,
            counted.replies_cut,
            counted.status_4xx,
            counted.status_5xx,
            cell(&pair.wrong),
        );
    }
}

fn method(page: &mut String) {
    page.push_str(
        "
## How it was checked

- The overload control is off, so that nobody is refused.
- wrk asks for the files in turn and compares every body with the file on disk. With one connection
  a reply must be the file asked for last; with more, the file of its length, and no file may come
  more often than it was asked for.
- ab asks for one file at a time, and compares statuses and lengths.
- A refused or reset connection, a time-out, and a reply that is not 200 are errors. A client that
  comes to the end of its own descriptors or ports says nothing about the server: its row is
  skipped, and says so.
- At the end the server gets a SIGTERM. It must end with status 0; all accepted connections must be
  closed; it must have sent no 4xx and no 5xx, and as many replies as its clients saw or more;
  accept_phases · c_avg must be what it accepted. wrk ends by leaving, so replies may be cut.
",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    fn pair(row: Row) -> Pair {
        Pair {
            mechanism: "poll".to_owned(),
            preset: "cm".to_owned(),
            rows: vec![row],
            ..Pair::default()
        }
    }

    #[test]
    fn every_load_has_a_row() {
        let row = Row { tool: "wrk", connections: 64, close: true, checked: 7, ..Row::default() };
        let page = page(&[pair(row)], &["ab"]);
        assert!(page.contains("1 pairs, 0 failed; 7 replies checked.\n"), "{page}");
        assert!(page.contains("| poll | cm | wrk | 64, close | 7 | 0 | none |"), "{page}");
        assert!(page.contains("| poll | cm | 0 | 0 |") && page.contains("skipped: ab."), "{page}");
    }

    #[test]
    fn a_failure_is_reported_in_its_cell() {
        let errors = vec!["a|b\nc".to_owned(), "d".to_owned()];
        let row = Row { tool: "ab", mismatches: 2, errors, ..Row::default() };
        let page = page(&[pair(row)], &[]);
        assert!(page.contains("1 pairs, 1 failed; 0 replies checked.\n"), "{page}");
        assert!(page.contains("| 0 | 2 | a/b c; d |"), "{page}");
    }
}
