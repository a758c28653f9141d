//! Durations and command line, as shown in a report. Pure.

use std::ffi::OsString;
use std::time::Duration;

/// Converts a duration to nanoseconds, saturating.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Quotes a command for a shell.
pub(crate) fn command_line(args: impl Iterator<Item = OsString>) -> String {
    let words = args.map(|arg| quoted(&arg.to_string_lossy()));
    words.collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=+,.:/@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.into();
    }
    // It stands in a line of a report.
    let line: String = word.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("'{}'", line.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_given_again() {
        let line = |words: &[&str]| command_line(words.iter().map(OsString::from));
        assert_eq!(line(&["weir", "load", "http://h:1/a"]), "weir load http://h:1/a");
        assert_eq!(line(&["--fail-if", "p99>5ms", ""]), "--fail-if 'p99>5ms' ''");
        assert_eq!(line(&["it's\n"]), "'it'\\''s?'");
    }
}
