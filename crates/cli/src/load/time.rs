//! Start time, durations and command line, as shown in a report. Pure.

use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Converts a duration to nanoseconds, saturating.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Formats a time to the second, as `2026-01-02T03:04:05Z` (RFC 3339).
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let unix_s = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Converts `days` after 1970-01-01 to year, month and day. Years are taken to start in March, so
/// that a leap day comes last (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let january = u64::from(month >= 10);
    (400 * era + year_of_era + january, month + 3 - 12 * january, day)
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
    fn a_moment_is_shown_to_the_second() {
        let at = |unix_s| rfc3339(UNIX_EPOCH + Duration::from_secs(unix_s));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(784_111_777), "1994-11-06T08:49:37Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn a_command_can_be_given_again() {
        let line = |words: &[&str]| command_line(words.iter().map(OsString::from));
        assert_eq!(line(&["weir", "load", "http://h:1/a"]), "weir load http://h:1/a");
        assert_eq!(line(&["--fail-if", "p99>5ms", ""]), "--fail-if 'p99>5ms' ''");
        assert_eq!(line(&["it's\n"]), "'it'\\''s?'");
    }
}
