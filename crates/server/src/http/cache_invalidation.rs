//! Removes stored replies that a request has made invalid (RFC 9111 section 4.4).

use weir_cache::Told;
use weir_http1::forward::{lines, lines_passed_on};
use weir_http1::{HeadParser, Limits, Parse, Request, Target};

use super::course::told;
use super::head_fields::Head;
use crate::context::WorkerContext;
use crate::context::forwarded::CachePart;

/// Removes what a successful request with an unsafe method has made invalid: the target, what its
/// Destination names (RFC 4918 section 10.3), and what Location and Content-Location name on the
/// same host (RFC 9111 section 4.4).
pub(super) fn invalidate(
    part: &CachePart,
    status: u16,
    head: &[u8],
    is_tls: bool,
    context: &mut WorkerContext,
) {
    let mut parser = HeadParser::default();
    let Parse::Complete(request) = parser.parse(&part.head, &Limits::default()) else { return };
    let is_unsafe = !request.method.is_safe();
    let cache = context.upstreams.as_ref().and_then(|upstreams| upstreams.cache());
    let Some(cache) = cache.filter(|_| is_unsafe && (200..400).contains(&status)) else { return };
    cache.remove(&part.key);
    let told = told(&Head { head: &part.head, is_trusted: part.is_trusted });
    let is_tls = is_tls || request.is_https;
    let origin = Origin { host: request.host, is_tls, told: &told };
    for target in named_besides(&part.head, head).filter_map(|value| origin.path_of(value)) {
        let host_end = part.key.len() - target_len(&request);
        let key = [part.key.get(..host_end).unwrap_or_default(), target].concat();
        cache.remove(&key);
    }
}

/// Iterates over the references by which a request, and the reply to it, name other resources that
/// it has changed.
fn named_besides<'h>(request: &'h [u8], reply: &'h [u8]) -> impl Iterator<Item = &'h [u8]> {
    let to = lines(request).filter(|(name, _)| name.eq_ignore_ascii_case(b"destination"));
    let of_reply = lines_passed_on(reply).filter(|(name, _)| {
        name.eq_ignore_ascii_case(b"location") || name.eq_ignore_ascii_case(b"content-location")
    });
    to.chain(of_reply).map(|(_, value)| value)
}

/// Scheme and host of a request's target: as they came here, and as proxies in front tell them. The
/// upstream may know it by either.
struct Origin<'a> {
    host: Option<&'a [u8]>,
    is_tls: bool,
    told: &'a Told,
}

impl Origin<'_> {
    /// Returns the path and query of a reference to it; `None` if it is to another.
    fn path_of<'v>(&self, reference: &'v [u8]) -> Option<&'v [u8]> {
        let reference = reference.split(|&byte| byte == b'#').next()?;
        if reference.starts_with(b"/") && !reference.starts_with(b"//") {
            return Some(reference);
        }
        let (scheme, rest) = reference.split_at_checked(memchr::memchr(b':', reference)?)?;
        let rest = rest.strip_prefix(b"://")?;
        let (authority, path) = rest.split_at_checked(memchr::memchr(b'/', rest)?)?;
        (self.has_scheme(scheme) && self.has_host(scheme, authority)).then_some(path)
    }

    fn has_scheme(&self, scheme: &[u8]) -> bool {
        let ours: &[u8] = if self.is_tls { b"https" } else { b"http" };
        std::iter::once(ours).chain(self.told.schemes()).any(|it| it.eq_ignore_ascii_case(scheme))
    }

    fn has_host(&self, scheme: &[u8], authority: &[u8]) -> bool {
        // Clients that keep a user's name in their URIs write it here too.
        let host = authority.rsplit(|&byte| byte == b'@').next().unwrap_or_default();
        let is_https = scheme.eq_ignore_ascii_case(b"https");
        let port: &[u8] = if is_https { b":443" } else { b":80" };
        let is_same = |it: &[u8]| {
            let [it, host] = [it, host].map(|host| host.strip_suffix(port).unwrap_or(host));
            it.eq_ignore_ascii_case(host)
        };
        self.host.into_iter().chain(self.told.hosts()).any(is_same)
    }
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
        let nothing = Told::default();
        let plain = Origin { host: request.host, is_tls: false, told: &nothing };
        for (reference, path) in [
            ("/x?y#z", Some("/x?y")),
            ("http://H.example:80/x", Some("/x")),
            ("http://h.example/x", Some("/x")),
            ("http://user@h.example:80/x", Some("/x")),
            ("http://h.example@other/x", None),
            ("http://h.example:443/x", None),
            ("http://h.example:80", None),
            ("http://h.example:8080/x", None),
            ("http://other/x", None),
            ("//h.example:80/x", None),
            ("https://h.example:80/x", None),
            ("x", None),
            ("", None),
        ] {
            let found = plain.path_of(reference.as_bytes());
            assert_eq!(found, path.map(str::as_bytes), "{reference}");
        }
        let secure = Origin { is_tls: true, ..plain };
        let found = |reference| secure.path_of(reference);
        assert_eq!(found(&b"HTTPS://h.example:80/x"[..]), Some(&b"/x"[..]));
        assert_eq!((found(b"http://h.example:80/x"), found(b"/y")), (None, Some(&b"/y"[..])));
    }

    #[test]
    fn what_is_changed_besides_the_target_is_named_by_either_head() {
        let request = b"MOVE /a HTTP/1.1\r\nLocation: /no\r\nDESTINATION: /b\r\n\r\n";
        let reply = b"HTTP/1.1 201 Created\r\nContent-Location: /c\r\nDestination: /no\r\n\
                      Location: /d\r\n\r\n";
        assert!(named_besides(request, reply).eq([&b"/b"[..], b"/c", b"/d"]));
    }

    #[test]
    fn a_reference_to_the_host_that_a_proxy_in_front_tells_is_found() {
        let mut told = Told::default();
        told.add(b"X-Forwarded-Proto", b"https");
        told.add(b"X-Forwarded-Host", b"shop.example");
        let origin = Origin { host: Some(b"inner:8000"), is_tls: false, told: &told };
        for reference in ["https://shop.example/x", "http://inner:8000/x", "/x"] {
            assert_eq!(origin.path_of(reference.as_bytes()), Some(&b"/x"[..]), "{reference}");
        }
        assert_eq!(origin.path_of(b"https://other.example/x"), None);
    }
}
