//! Keys of stored replies: where a request goes, and what it asks for (RFC 9111 section 2).

/// Writes the key of a request into `out`, in place of what was there. The host counts without
/// regard to case; everything else as it came. `is_tls`: the scheme is https. A server may answer
/// otherwise then, with a redirect for one.
pub fn write_key(
    out: &mut Vec<u8>,
    upstream: usize,
    is_tls: bool,
    host: &[u8],
    path: &[u8],
    query: Option<&[u8]>,
) {
    out.clear();
    out.extend_from_slice(&(upstream as u32).to_le_bytes());
    out.push(is_tls.into());
    out.extend(host.iter().map(u8::to_ascii_lowercase));
    // Neither a host nor a path has one.
    out.push(0);
    out.extend_from_slice(path);
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_where_requests_do() {
        let key = |upstream, is_tls, host: &str, path: &str, query: Option<&str>| {
            let mut out = b"left over".to_vec();
            let query = query.map(str::as_bytes);
            write_key(&mut out, upstream, is_tls, host.as_bytes(), path.as_bytes(), query);
            out
        };
        let ours = key(0, false, "a:80", "/b", None);
        assert_eq!(ours, key(0, false, "A:80", "/b", None));
        let others = [
            key(1, false, "a:80", "/b", None),
            key(0, true, "a:80", "/b", None),
            key(0, false, "a", "/b", None),
            key(0, false, "a:80", "/B", None),
            key(0, false, "a:80", "/b", Some("")),
        ];
        assert!(others.iter().all(|other| *other != ours));
    }
}
