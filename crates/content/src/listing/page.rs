//! The HTML page of a directory listing. Pure: takes rows one at a time and produces a
//! self-contained page.
//!
//! Names are untrusted, so each is escaped as text and percent-encoded as a link.

use std::fmt::Write;

use crate::path::encode;
use crate::validators::format_date;

/// An entry of a directory. Rows order as on the page: directories first, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) is_file: bool,
    pub(crate) name: Vec<u8>,
    /// Size, bytes.
    pub(crate) len: u64,
    /// Modification time, seconds since the epoch.
    pub(crate) modified_s: i64,
}

/// Entries of a directory that its page does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Omitted {
    pub(crate) count: usize,
    /// True if there are more, uncounted entries.
    pub(crate) more: bool,
}

/// A page being written, row by row.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    rows: usize,
}

impl Page {
    /// Starts the page of the directory `path` (empty for the root). `rows` is the expected number
    /// of rows.
    pub(crate) fn begin(path: &[u8], rows: usize) -> Page {
        let mut title = String::from("Index of /");
        if !path.is_empty() {
            append_escaped(&mut title, path);
            title.push('/');
        }
        let likely_bytes = HEAD.len() + 2 * title.len() + rows * 112 + 256;
        let mut text = String::with_capacity(likely_bytes.min(PAGE_BYTES_MAX));
        let pieces = [HEAD, "<title>", &title, "</title>\n<h1>", &title, "</h1>\n", TABLE_HEAD];
        append(&mut text, &pieces);
        if !path.is_empty() {
            text.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
        }
        Page { text, rows: 0 }
    }

    /// Appends a row; returns false if it does not fit.
    pub(crate) fn push(&mut self, row: &Row) -> bool {
        let before = self.text.len();
        append_row(&mut self.text, row);
        let fits = self.text.len() <= PAGE_BYTES_MAX;
        if fits {
            self.rows += 1;
        } else {
            self.text.truncate(before);
        }
        fits
    }

    /// Returns the size so far, bytes.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns the number of rows so far.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Finishes the page, with a note on entries that were left out.
    pub(crate) fn end(mut self, omitted: Omitted) -> String {
        self.text.push_str("</table>\n");
        if omitted != Omitted::default() {
            let (rows, count) = (self.rows, omitted.count);
            let more = if omitted.more { "more than " } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                self.text,
                "<p>Only {rows} entries are shown; {more}{count} others are not."
            );
        }
        self.text
    }
}

fn append_row(page: &mut String, row: &Row) {
    let slash = if row.is_file { "" } else { "/" };
    let mut link = Vec::with_capacity(row.name.len());
    encode(&row.name, &mut link);
    append(page, &["<tr><td><a href=\"", &String::from_utf8_lossy(&link), slash, "\">"]);
    append_escaped(page, &row.name);
    append(page, &[slash, "</a><td>"]);
    if row.is_file {
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

/// Writes a size with one decimal, in the largest unit of which it is at least one.
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

/// Formats a date and time of day in UTC, such as `06 Nov 1994 08:49`.
fn date(unix_s: i64) -> String {
    let date = format_date(u64::try_from(unix_s).unwrap_or(0));
    date.get(5..22).unwrap_or_default().to_owned()
}

/// Maximum size of a page without its last line, bytes.
const PAGE_BYTES_MAX: usize = 2 << 20;

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
        Row { is_file: !directory, name: name.as_bytes().to_vec(), len, modified_s: 784_111_777 }
    }

    fn text(path: &str, rows: &[Row], omitted: Omitted) -> String {
        let mut page = Page::begin(path.as_bytes(), rows.len());
        assert!(rows.iter().all(|row| page.push(row)));
        page.end(omitted)
    }

    fn whole(path: &str, rows: &[Row]) -> String {
        text(path, rows, Omitted::default())
    }

    #[test]
    fn rows_stand_in_the_order_in_which_they_came() {
        let page = whole("a", &[row("z", true, 0), row("a", false, 1)]);
        let place = |name: &str| page.find(&format!("href=\"{name}\"")).unwrap();
        assert!(place("../") < place("z/"));
        assert!(place("z/") < place("a"));
        assert!(page.contains("<h1>Index of /a/</h1>"));
        assert!(page.contains("<td>06 Nov 1994 08:49\n"));
        assert!(!page.contains("entries are shown"));
    }

    #[test]
    fn directories_come_before_files() {
        let mut rows = [row("b", false, 1), row("z", true, 0), row("a", false, 1)];
        rows.sort_unstable();
        assert_eq!(rows.map(|row| row.name), [b"z", b"a", b"b"].map(|name| name.to_vec()));
    }

    #[test]
    fn the_root_has_no_parent_and_what_is_left_out_is_told() {
        let rows = [row("b", false, 1)];
        let page = text("", &rows, Omitted { count: 7, more: false });
        assert!(!page.contains("../"));
        assert!(page.contains("<title>Index of /</title>"));
        assert!(page.contains("<p>Only 1 entries are shown; 7 others are not."));
        let page = text("", &rows, Omitted { count: 7, more: true });
        assert!(page.contains("more than 7 others are not."));
    }

    #[test]
    fn a_page_has_room_for_so_much_and_no_more() {
        let long = row(&"'".repeat(255), false, 1);
        let mut page = Page::begin(b"", 10_000);
        let mut rows = 0;
        while page.push(&long) {
            rows += 1;
        }
        assert!(!page.push(&long));
        assert!((900..1200).contains(&rows), "{rows}");
        assert_eq!(page.rows(), rows);
        let text = page.end(Omitted { count: 1, more: false });
        assert!(text.len() < PAGE_BYTES_MAX + 200);
        assert!(text.contains("<td>06 Nov 1994 08:49\n</table>\n<p>"), "no row is cut");
    }

    #[test]
    fn names_are_escaped_in_text_and_in_links() {
        let page = whole("<i>", &[row("\"><script>&'", false, 1), row("java:x y", false, 1)]);
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
