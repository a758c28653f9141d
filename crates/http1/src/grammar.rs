//! Rules of RFC 9110 section 5 that heads, fields and trailers share.

/// Bytes allowed in a token (RFC 9110 section 5.6.2).
const TCHAR: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(
            byte as u8,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9'
            | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+'
            | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        );
        byte += 1;
    }
    table
};

/// Returns whether `byte` is allowed in a token.
pub(crate) fn is_tchar(byte: u8) -> bool {
    TCHAR[usize::from(byte)]
}

/// Returns whether `bytes` is a token: at least one `tchar` and nothing else.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().copied().all(is_tchar)
}

/// Returns whether `byte` is allowed in a field value (RFC 9110 section 5.5).
///
/// HTAB is the only control. `obs-text` (0x80 and above) is allowed and opaque.
pub(crate) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Strips the optional white space (SP, HTAB) around `bytes`.
pub(crate) fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns the elements of a comma-separated list, trimmed. Empty ones are kept, because callers
/// treat them differently.
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim_ows)
}

/// Parses `1*DIGIT` below 2^64.
pub(crate) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0_u64, |sum, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Splits a field line (without its CRLF) into name and trimmed value (RFC 9112 section 5).
///
/// Returns `None` for a line that starts with white space (`obs-fold`), has white space before the
/// colon, has no colon, or contains a control.
pub(crate) fn field_line(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    let (name, rest) = line.split_at_checked(colon)?;
    let value = rest.get(1..)?;
    let valid = is_token(name) && value.iter().copied().all(is_value_byte);
    valid.then(|| (name, trim_ows(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_takes_digits_only() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"00042"), Some(42));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in ["", "18446744073709551616", "+5", "-5", "5 5", "0x5", "5_0", " 5"] {
            assert_eq!(decimal(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn field_lines_are_split_and_trimmed() {
        assert_eq!(field_line(b"A:b"), Some((&b"A"[..], &b"b"[..])));
        assert_eq!(field_line(b"A: \t b c\t "), Some((&b"A"[..], &b"b c"[..])));
        assert_eq!(field_line(b"A:"), Some((&b"A"[..], &b""[..])));
        assert_eq!(field_line(b"A: \xe9:"), Some((&b"A"[..], &b"\xe9:"[..])));
    }

    #[test]
    fn field_lines_out_of_grammar_are_refused() {
        for bad in
            ["", "A", ":b", " A: b", "\tA: b", "A : b", "A\0: b", "A: \0", "A: b\rc", "A: \x7f"]
        {
            assert_eq!(field_line(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn elements_keeps_empty_ones() {
        let found: Vec<&[u8]> = elements(b"a ,\tb,, ").collect();
        assert_eq!(found, [&b"a"[..], b"b", b"", b""]);
    }
}
