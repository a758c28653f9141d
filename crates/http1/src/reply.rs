//! Writes the head of a reply: status line, fields, end.
//!
//! Bytes are appended to a buffer that the caller owns and reuses. The choice of fields is up to
//! the caller. Nothing is formatted by `core::fmt`, because this code runs on every request.

use crate::status::Status;

/// Appends the status line.
pub fn status(out: &mut Vec<u8>, status: Status) {
    out.extend_from_slice(status.line());
}

/// Appends a field line. Neither name nor value may contain CR or LF.
pub fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    debug_assert!(memchr::memchr2(b'\r', b'\n', name.as_bytes()).is_none(), "split: {name:?}");
    debug_assert!(memchr::memchr2(b'\r', b'\n', value).is_none(), "split: {value:?}");
    out.reserve(name.len() + value.len() + b": \r\n".len());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a field line whose value is a number.
pub fn field_u64(out: &mut Vec<u8>, name: &str, value: u64) {
    field(out, name, itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the empty line that ends the head.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_what_was_appended() {
        let mut out = b"before ".to_vec();
        status(&mut out, Status::OK);
        field(&mut out, "Content-Type", b"text/plain");
        field_u64(&mut out, "Content-Length", 42);
        end(&mut out);
        let expected = "before HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\
                        Content-Length: 42\r\n\r\n";
        assert_eq!(str::from_utf8(&out).unwrap(), expected);
    }

    #[test]
    #[should_panic(expected = "split")]
    #[cfg(debug_assertions)]
    fn a_value_cannot_split_the_head() {
        field(&mut Vec::new(), "Location", b"/\r\nSet-Cookie: a");
    }
}
