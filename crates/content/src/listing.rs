//! The HTML page of a directory. Pure: rows in, a page out, which needs nothing else to be shown.
//!
//! Names come from whoever may create files, so each is escaped as text and percent-encoded as a
//! link. Nothing here reads a directory.

use std::fmt::Write;

use crate::path::encode;
use crate::validators::format_date;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: Vec<u8>,
    pub(crate) directory: bool,
    /// Bytes.
    pub(crate) len: u64,
    /// Seconds since the epoch.
    pub(crate) modified_s: i64,
}

/// The page of the directory `path` (empty for the root), directories first and then by name.
/// `more` says that the rows are not all.
pub(crate) fn page(path: &[u8], mut rows: Vec<Row>, more: bool) -> Vec<u8> {
    rows.sort_unstable_by(|a, b| (!a.directory, &a.name).cmp(&(!b.directory, &b.name)));
    let mut title = String::from("Index of /");
    if !path.is_empty() {
        append_escaped(&mut title, path);
        title.push('/');
    }
    let mut page = String::with_capacity(HEAD.len() + 2 * title.len() + rows.len() * 160 + 256);
    append(&mut page, &[HEAD, "<title>", &title, "</title>\n<h1>", &title, "</h1>\n", TABLE_HEAD]);
    if !path.is_empty() {
        page.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
    }
    for row in &rows {
        append_row(&mut page, row);
    }
    page.push_str("</table>\n");
    if more {
        let count = rows.len();
        append(&mut page, &["<p>Only ", &count.to_string(), " entries are shown.\n"]);
    }
    page.into_bytes()
}

fn append_row(page: &mut String, row: &Row) {
    let slash = if row.directory { "/" } else { "" };
    let mut link = Vec::with_capacity(row.name.len());
    encode(&row.name, &mut link);
    append(page, &["<tr><td><a href=\"", &String::from_utf8_lossy(&link), slash, "\">"]);
    append_escaped(page, &row.name);
    append(page, &[slash, "</a><td>"]);
    if !row.directory {
        append_size(page, row.len);
    }
    append(page, &["<td>", &date(row.modified_s), "\n"]);
}

fn append(page: &mut String, pieces: &[&str]) {
    pieces.iter().for_each(|piece| page.push_str(piece));
}

fn append_escaped(page: &mut String, text: &[u8]) {
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            _ => page.push(character),
        }
    }
}

/// Writes a size to one decimal of the unit that leaves at least one digit before it.
fn append_size(page: &mut String, bytes: u64) {
    let unit = (1..UNITS.len()).rev().find(|&power| bytes >> (10 * power) > 0);
    // Writing to a string cannot fail.
    let _ = match unit.and_then(|power| Some((power, UNITS.get(power)?))) {
        None => write!(page, "{bytes} B"),
        Some((power, unit)) => {
            let tenths = (u128::from(bytes) * 10) >> (10 * power);
            write!(page, "{}.{} {unit}", tenths / 10, tenths % 10)
        }
    };
}

/// Day and time of day, such as `06 Nov 1994 08:49`, in UTC.
fn date(unix_s: i64) -> String {
    let date = format_date(u64::try_from(unix_s).unwrap_or(0));
    date.get(5..22).unwrap_or_default().to_owned()
}

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.25rem; font-weight: 600; overflow-wrap: anywhere }
table { width: 100%; border-collapse: collapse }
th { text-align: left; font-weight: 600 }
th, td { padding: .25rem .5rem; border-bottom: 1px solid #8884; vertical-align: baseline }
td:first-child { overflow-wrap: anywhere }
tr > :nth-child(n+2) { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
a { text-decoration: none }
a:hover, a:focus { text-decoration: underline }
@media (max-width: 36rem) { tr > :nth-child(3) { display: none } }
</style>
";

const TABLE_HEAD: &str = "<table>\n<tr><th>Name<th>Size<th>Modified (UTC)\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, directory: bool, len: u64) -> Row {
        Row { name: name.as_bytes().to_vec(), directory, len, modified_s: 784_111_777 }
    }

    fn text(path: &str, rows: Vec<Row>, more: bool) -> String {
        String::from_utf8(page(path.as_bytes(), rows, more)).unwrap()
    }

    #[test]
    fn directories_come_first_and_then_names() {
        let page =
            text("a", vec![row("b", false, 1), row("z", true, 0), row("a", false, 1)], false);
        let place = |name: &str| page.find(&format!("href=\"{name}\"")).unwrap();
        assert!(place("../") < place("z/"));
        assert!(place("z/") < place("a"));
        assert!(place("a") < place("b"));
        assert!(page.contains("<h1>Index of /a/</h1>"));
        assert!(page.contains("<td>06 Nov 1994 08:49\n"));
        assert!(!page.contains("entries are shown"));
    }

    #[test]
    fn the_root_has_no_parent_and_a_cut_is_told() {
        let page = text("", vec![row("b", false, 1)], true);
        assert!(!page.contains("../"));
        assert!(page.contains("<title>Index of /</title>"));
        assert!(page.contains("Only 1 entries are shown."));
    }

    #[test]
    fn names_are_escaped_in_text_and_in_links() {
        let page =
            text("<i>", vec![row("\"><script>&'", false, 1), row("java:x y", false, 1)], false);
        assert!(page.contains("Index of /&lt;i&gt;/"));
        assert!(page.contains("href=\"%22%3E%3Cscript%3E%26%27\""));
        assert!(page.contains(">&quot;&gt;&lt;script&gt;&amp;&#39;</a>"));
        assert!(page.contains("href=\"java%3Ax%20y\""));
        assert!(!page.contains("<script"));
    }

    #[test]
    fn sizes_are_short() {
        let size = |bytes| {
            let mut out = String::new();
            append_size(&mut out, bytes);
            out
        };
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1024), "1.0 KiB");
        assert_eq!(size(1_900_000), "1.8 MiB");
        assert_eq!(size(u64::MAX), "15.9 EiB");
        assert_eq!(date(-1), "01 Jan 1970 00:00");
    }
}
