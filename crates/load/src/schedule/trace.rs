//! Text format of a trace of arrivals: one planned start per line, in seconds from the beginning,
//! with blank lines and `#` comments in between. The caller reads the file.

use std::sync::Arc;

use super::units::ns;

/// The latest start in a trace, seconds; 31 years.
const START_S_MAX: f64 = 1e9;

/// Parses the starts in `text`, nanoseconds. `file` names it in errors about a line that is not a
/// start, or out of order.
pub(super) fn read(file: &str, text: &str) -> Result<Arc<[u64]>, String> {
    let mut starts_ns = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let entry = line.split_once('#').map_or(line, |(entry, _)| entry).trim();
        if entry.is_empty() {
            continue;
        }
        let wrong = |why| format!("{file}, line {number}: {entry:?} {why}");
        let start_ns = start_ns(entry).ok_or_else(|| wrong(NO_START))?;
        if starts_ns.last().is_some_and(|last_ns| start_ns < *last_ns) {
            return Err(wrong(NOT_ASCENDING));
        }
        starts_ns.push(start_ns);
    }
    if starts_ns.is_empty() {
        return Err(format!("{file} has no start: a trace has one a line, in seconds"));
    }
    Ok(starts_ns.into())
}

const NO_START: &str = "is not a start, in seconds from the beginning";
const NOT_ASCENDING: &str = "is earlier than the start before it: sort the file (sort -g)";

fn start_ns(entry: &str) -> Option<u64> {
    let start_s = entry.parse::<f64>().ok()?;
    (0.0..=START_S_MAX).contains(&start_s).then(|| ns(start_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_seconds_one_a_line() {
        let text = "# planned starts\n0\n\n0.000000001 # soon\r\n 1.5 \n1.5\n123456.789012345";
        let starts_ns = [0, 1, 1_500_000_000, 1_500_000_000, 123_456_789_012_345];
        assert_eq!(read("t", text), Ok(starts_ns.into()));
    }

    #[test]
    fn a_wrong_line_is_named_with_its_file() {
        let table = [
            ("0\nsoon\n", "t.txt, line 2: \"soon\" is not a start"),
            ("-1", "t.txt, line 1: \"-1\" is not a start"),
            ("0\nNaN", "t.txt, line 2: \"NaN\" is not a start"),
            ("inf", "t.txt, line 1: \"inf\" is not a start"),
            ("1 2", "t.txt, line 1: \"1 2\" is not a start"),
            ("# a\n1\n\n0.5\n", "t.txt, line 4: \"0.5\" is earlier than the start before it: sort"),
            ("# nothing\n\n", "t.txt has no start"),
        ];
        for (text, sentence) in table {
            let refused = read("t.txt", text).unwrap_err();
            assert!(refused.starts_with(sentence), "{refused}");
        }
    }
}
