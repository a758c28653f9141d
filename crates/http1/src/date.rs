//! The Date field, rendered once per second rather than once per reply.
//!
//! The time is an argument; nothing here reads a clock.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;

/// 9999-12-31 23:59:59, the last second that the format can represent.
const UNIX_S_MAX: u64 = 253_402_300_799;

const DATE_LEN: usize = b"Sun, 06 Nov 1994 08:49:37 GMT".len();
const LINE_LEN: usize = b"Date: \r\n".len() + DATE_LEN;

/// The line `Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n` and the second it represents.
#[derive(Clone, Debug)]
pub struct DateField {
    unix_s: u64,
    line: [u8; LINE_LEN],
}

impl Default for DateField {
    fn default() -> Self {
        Self { unix_s: 0, line: render(0) }
    }
}

impl DateField {
    /// Returns the line for this second since the epoch. Renders it only if the second has changed.
    pub fn at(&mut self, unix_s: u64) -> &[u8] {
        if unix_s != self.unix_s {
            *self = Self { unix_s, line: render(unix_s) };
        }
        &self.line
    }
}

/// Formats a second since the epoch as IMF-fixdate, such as `Sun, 06 Nov 1994 08:49:37 GMT` (RFC
/// 9110 section 5.6.7). Seconds beyond the year 9999 are clamped to its last one.
#[must_use]
pub fn imf_date(unix_s: u64) -> [u8; DATE_LEN] {
    let mut date = [b' '; DATE_LEN];
    let written = write!(&mut date[..], "{}", http_date(unix_s));
    debug_assert!(written.is_ok(), "an IMF-fixdate has {DATE_LEN} bytes");
    date
}

fn render(unix_s: u64) -> [u8; LINE_LEN] {
    let mut line = [b' '; LINE_LEN];
    let written = write!(&mut line[..], "Date: {}\r\n", http_date(unix_s));
    debug_assert!(written.is_ok(), "the line has {LINE_LEN} bytes");
    line
}

/// Converts a time, clamped because `httpdate` panics beyond the year 9999.
fn http_date(unix_s: u64) -> HttpDate {
    HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_s.min(UNIX_S_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        assert_eq!(&imf_date(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&imf_date(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&imf_date(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&imf_date(UNIX_S_MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(imf_date(u64::MAX), imf_date(UNIX_S_MAX));
    }

    #[test]
    fn the_line_follows_the_second() {
        let mut date = DateField::default();
        assert_eq!(date.at(0), b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
        assert_eq!(date.at(784_111_777), b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        assert_eq!(date.at(784_111_777), b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        assert_eq!(date.at(784_111_776), b"Date: Sun, 06 Nov 1994 08:49:36 GMT\r\n");
    }
}
