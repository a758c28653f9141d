//! Request targets.

/// Returns the target of a file below the path `base`.
pub(super) fn below(base: &str, file: &str) -> String {
    format!("{}/{file}", base.trim_end_matches('/'))
}

/// Parses a request target (RFC 9112 section 3.2) in a file: a path, an absolute URI, or `*`. Bytes
/// above ASCII are percent-encoded. `None` if it cannot be sent.
pub(super) fn parse_target(bytes: &[u8]) -> Option<String> {
    let visible = bytes.iter().all(|byte| byte.is_ascii_graphic() || !byte.is_ascii());
    let absolute =
        ["http://", "https://"].iter().any(|scheme| bytes.starts_with(scheme.as_bytes()));
    if !visible || !(bytes.starts_with(b"/") || absolute || bytes == b"*") {
        return None;
    }
    let mut target = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            0x80.. => target.push_str(&format!("%{byte:02X}")),
            _ => target.push(char::from(byte)),
        }
    }
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_what_can_stand_in_a_request_line() {
        for (bytes, expected) in [
            (&b"/a?b=c#d"[..], Some("/a?b=c#d")),
            (b"/\xc3\xa9", Some("/%C3%A9")),
            (b"http://h/x", Some("http://h/x")),
            (b"*", Some("*")),
            (b"", None),
            (b"a", None),
            (b"**", None),
            (b"/a b", None),
            (b"/a\r\nX: y", None),
            (b"/\x7f", None),
        ] {
            assert_eq!(parse_target(bytes).as_deref(), expected);
        }
    }
}
