//! Field lines of requests and replies, as the cache reads them.

/// The field lines of a message.
pub trait Fields {
    /// Iterates over the lines, as names and trimmed values.
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// Iterates over the values of the lines with this name.
    fn values<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let is_named = move |(line, _): &(&[u8], &[u8])| line.eq_ignore_ascii_case(name);
        self.lines().filter(is_named).map(|(_, value)| value)
    }

    /// Returns the value of the first line with this name.
    fn value<'a>(&'a self, name: &'a [u8]) -> Option<&'a [u8]> {
        self.values(name).next()
    }
}

impl Fields for [(&[u8], &[u8])] {
    fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().copied()
    }
}

/// Returns whether a name is one of those in `known`, in any case.
pub(crate) fn is_one_of(name: &[u8], known: &[&[u8]]) -> bool {
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Splits lines that were written by [`push`].
pub(crate) fn split(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split(|&byte| byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r")?;
        let (name, value) = line.split_at_checked(memchr::memchr(b':', line)?)?;
        Some((name, value.get(2..)?))
    })
}

/// Appends a field line; returns the range of its value.
pub(crate) fn push(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> (usize, usize) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    let from = out.len();
    out.extend_from_slice(value);
    let to = out.len();
    out.extend_from_slice(b"\r\n");
    (from, to)
}

/// Parses a date in any of the formats of RFC 9110 section 5.6.7; seconds since 1970.
pub(crate) fn date_s(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(date.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_they_were_pushed() {
        let mut lines = Vec::new();
        assert_eq!(push(&mut lines, b"A", b"b: c"), (3, 7));
        push(&mut lines, b"D", b"");
        let all: Vec<_> = split(&lines).collect();
        assert_eq!(all, [(&b"A"[..], &b"b: c"[..]), (b"D", b"")]);
    }

    #[test]
    fn dates_are_read_in_all_formats() {
        let texts = [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ];
        assert!(texts.iter().all(|text| date_s(text.as_bytes()) == Some(784_111_777)));
        assert_eq!((date_s(b"0"), date_s(b"\xff")), (None, None));
    }
}
