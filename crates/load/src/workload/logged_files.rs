//! The files that an access log asks for, in the lengths that it has of them: a stand-in for the
//! server that wrote the log, so that its day can be replayed elsewhere.

use std::collections::BTreeMap;

use super::at_line;
use super::replay::{log_entry, request_line};

/// Longest file, bytes.
const BYTES_MAX: u64 = 1 << 30;

/// Statuses of replies that show a file to be there: the whole of it, a part, and that it is
/// unmodified.
const THERE: [u16; 3] = [200, 206, 304];

/// Returns the path of each file below the root, without a leading slash, and its length in bytes:
/// the longest that the log, named `name` in errors, has of a GET. Left out is what the log shows
/// no file of, so that the stand-in refuses what its server refused: paths whose replies are all
/// errors or redirects. Left out is also what no file can be: paths that end in a slash or are a
/// directory of another, and those that are encoded or have a query, which a file's name would not
/// be.
///
/// # Errors
/// A line that is not a log line, with its number.
pub fn files(name: &str, log: &[u8]) -> Result<Vec<(String, u64)>, String> {
    let mut files = BTreeMap::new();
    for (index, line) in log.split(|&byte| byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let entry = log_entry(line).ok_or_else(|| {
            at_line(name, index + 1, "this is no line of a Common or Combined log")
        })?;
        if !THERE.contains(&entry.status) {
            continue;
        }
        let path = request_line(&entry.request).filter(|(method, _)| *method == "GET");
        if let Some(path) = path.and_then(|(_, target)| file_path(&target)) {
            let bytes = entry.bytes.unwrap_or(0).min(BYTES_MAX);
            let longest = files.entry(path).or_insert(bytes);
            *longest = bytes.max(*longest);
        }
    }
    let is_directory = |path: &String| {
        let below = format!("{path}/");
        files.range(below.clone()..).next().is_some_and(|(next, _)| next.starts_with(&below))
    };
    let kept = files.iter().filter(|(path, _)| !is_directory(path));
    Ok(kept.map(|(path, bytes)| (path.clone(), *bytes)).collect())
}

/// Returns the path below the root of the file that a target asks for, if there can be one.
fn file_path(target: &str) -> Option<String> {
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?.1,
        None => target.strip_prefix('/')?,
    };
    let is_name = |name: &str| {
        let bytes = name.bytes();
        !name.is_empty() && !name.starts_with('.') && !bytes.into_iter().any(is_special)
    };
    path.split('/').all(is_name).then(|| path.to_owned())
}

/// Returns whether a byte of a path may stand for something else in a request.
fn is_special(byte: u8) -> bool {
    b"%?#\\".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(request: &str, bytes: &str) -> String {
        answered(request, 200, bytes)
    }

    fn answered(request: &str, status: u16, bytes: &str) -> String {
        format!("h - - [06/Nov/1994:08:49:37 +0000] \"{request} HTTP/1.1\" {status} {bytes}\n")
    }

    #[test]
    fn a_file_is_as_long_as_the_longest_reply() {
        let log = [
            line("GET /a/b.html", "700"),
            line("GET /a/b.html", "-"),
            line("GET http://host/a/b.html", "900"),
            line("HEAD /a/c", "5"),
            line("POST /d", "5"),
        ];
        assert_eq!(files("log", log.concat().as_bytes()).unwrap(), [("a/b.html".into(), 900)]);
    }

    #[test]
    fn a_path_that_was_only_refused_or_redirected_has_no_file() {
        let log = [
            answered("GET /gone", 404, "153"),
            answered("GET /moved", 301, "169"),
            answered("GET /secret", 403, "146"),
            answered("GET /broken", 503, "190"),
            // There for a part of the day: as long as its replies, not as the page of an error.
            answered("GET /new", 404, "9000"),
            answered("GET /new", 200, "20"),
            answered("GET /part", 206, "5"),
            answered("GET /kept", 304, "-"),
        ];
        let expected = [("kept", 0), ("new", 20), ("part", 5)];
        let expected = expected.map(|(path, bytes)| (path.to_owned(), bytes));
        assert_eq!(files("log", log.concat().as_bytes()).unwrap(), expected);
    }

    #[test]
    fn what_no_file_can_be_is_left_out() {
        let targets = [
            "/",
            "/dir/",
            "/q?x",
            "/%41",
            "/../etc/passwd",
            "/a/../b",
            "/.x",
            "//b",
            "/a",
            "/a/b",
            "http://h",
            "*",
            "/c\\\\d",
        ];
        let log: String =
            targets.iter().map(|target| line(&format!("GET {target}"), "1")).collect();
        assert_eq!(files("log", log.as_bytes()).unwrap(), [("a/b".into(), 1)]);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let log = format!("{}hello\n", line("GET /a", "1"));
        assert!(files("log", log.as_bytes()).unwrap_err().starts_with("log:2: this is no line"));
    }
}
