//! Removes stored replies that a request has made invalid (RFC 9111 section 4.4).

use weir_http1::forward::lines_passed_on;
use weir_http1::{HeadParser, Limits, Method, Parse, Request, Target};

use crate::context::WorkerContext;
use crate::context::forwarded::CachePart;

/// Removes what a successful request with an unsafe method has made invalid: the target, and what
/// Location and Content-Location name on the same host (RFC 9111 section 4.4).
pub(super) fn invalidate(
    part: &CachePart,
    status: u16,
    head: &[u8],
    is_tls: bool,
    context: &mut WorkerContext,
) {
    let mut parser = HeadParser::default();
    let Parse::Complete(request) = parser.parse(&part.head, &Limits::default()) else { return };
    let is_unsafe = !matches!(request.method, Method::Get | Method::Head | Method::Options);
    let cache = context.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
    let Some(cache) = cache.filter(|_| is_unsafe && (200..400).contains(&status)) else { return };
    cache.remove(&part.key);
    for (name, value) in lines_passed_on(head) {
        let names_another = name.eq_ignore_ascii_case(b"location")
            || name.eq_ignore_ascii_case(b"content-location");
        if let Some(target) = names_another.then(|| path_of(value, &request, is_tls)).flatten() {
            let host_end = part.key.len() - target_len(&request);
            let key = [part.key.get(..host_end).unwrap_or_default(), target].concat();
            cache.remove(&key);
        }
    }
}

/// Returns the path and query of a reference to the host of a request, which came with or without
/// TLS; `None` if it is to another.
fn path_of<'v>(reference: &'v [u8], request: &Request<'_>, is_tls: bool) -> Option<&'v [u8]> {
    let reference = reference.split(|&byte| byte == b'#').next()?;
    if reference.starts_with(b"/") && !reference.starts_with(b"//") {
        return Some(reference);
    }
    let host = request.host?;
    let ours: &[u8] = if is_tls { b"https://" } else { b"http://" };
    let (scheme, rest) = reference.split_at_checked(ours.len())?;
    let (authority, path) = rest.split_at_checked(host.len())?;
    let is_ours = scheme.eq_ignore_ascii_case(ours) && authority.eq_ignore_ascii_case(host);
    (is_ours && path.starts_with(b"/")).then_some(path)
}

fn target_len(request: &Request<'_>) -> usize {
    match request.target {
        Target::Path { path, query } => path.len() + query.map_or(0, |query| query.len() + 1),
        Target::Asterisk => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_the_same_host_are_found() {
        let head = b"POST /a?b HTTP/1.1\r\nHost: h.example:80\r\n\r\n";
        let mut parser = HeadParser::default();
        let Parse::Complete(request) = parser.parse(head, &Limits::default()) else { panic!() };
        assert_eq!(target_len(&request), 4);
        for (reference, path) in [
            ("/x?y#z", Some("/x?y")),
            ("http://H.example:80/x", Some("/x")),
            ("http://h.example:80", None),
            ("http://h.example:8080/x", None),
            ("http://other/x", None),
            ("//h.example:80/x", None),
            ("https://h.example:80/x", None),
            ("x", None),
            ("", None),
        ] {
            let found = path_of(reference.as_bytes(), &request, false);
            assert_eq!(found, path.map(str::as_bytes), "{reference}");
        }
        let found = |reference| path_of(reference, &request, true);
        assert_eq!(found(&b"HTTPS://h.example:80/x"[..]), Some(&b"/x"[..]));
        assert_eq!((found(b"http://h.example:80/x"), found(b"/y")), (None, Some(&b"/y"[..])));
    }
}
