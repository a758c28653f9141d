//! One request and its reply: read, checked and written whole. Every connection carries one.

use std::io::Read;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weir_http1::{HeadParser, Limits, Method, Parse, Request};

use super::{Reply, Resources};

/// Longest head of a request, bytes.
const HEAD_MAX: usize = 8 << 10;

/// Time within which a request must be there: no single byte extends it.
const HEAD_TIME: Duration = Duration::from_secs(1);

/// Reads a request and returns the reply to it; `None` if there is none to be read. With
/// `checks_host` a request for a name that is not this machine's is refused: a page of another site
/// may have made it, with a name that leads here (DNS rebinding).
pub(super) fn answer(
    stream: &mut impl Read,
    resources: &mut Resources,
    checks_host: bool,
) -> Option<Vec<u8>> {
    let mut input = Vec::new();
    let mut parser = HeadParser::default();
    let began = Instant::now();
    loop {
        match parser.parse(&input, &Limits::default()) {
            Parse::Complete(request) => {
                let reply = reply_to(&request, resources, checks_host);
                return Some(bytes(&reply, request.method == Method::Head));
            }
            Parse::Refused(_) => {
                return Some(bytes(&Reply::line(400, "Bad Request", "malformed request"), false));
            }
            Parse::Partial if input.len() >= HEAD_MAX => {
                let reply = Reply::line(431, "Request Header Fields Too Large", "head too large");
                return Some(bytes(&reply, false));
            }
            Parse::Partial if began.elapsed() > HEAD_TIME => return None,
            Parse::Partial => {}
        }
        let mut more = [0; 2048];
        let read = stream.read(&mut more).ok().filter(|read| *read > 0)?;
        input.extend_from_slice(more.get(..read)?);
    }
}

fn reply_to(request: &Request<'_>, resources: &mut Resources, checks_host: bool) -> Reply {
    if checks_host && !request.host.is_none_or(is_of_this_machine) {
        return Reply::line(421, "Misdirected Request", "this is not the host that was asked for");
    }
    match request.method {
        Method::Get | Method::Head => {
            let path = request.target.path();
            resources.get(std::str::from_utf8(path).unwrap_or_default())
        }
        _ => Reply::line(405, "Method Not Allowed", "GET and HEAD only"),
    }
}

/// Returns whether a host is an address, or this machine's name for itself.
fn is_of_this_machine(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn bytes(reply: &Reply, head_only: bool) -> Vec<u8> {
    let Reply { status, reason, media_type, body } = reply;
    let allow = if *status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let mut text = format!(
        "HTTP/1.1 {status} {reason}\r\n\
         Content-Type: {media_type}\r\n\
         Content-Length: {}\r\n\
         Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'\r\n\
         {allow}Connection: close\r\n\r\n",
        body.len()
    );
    if !head_only {
        text.push_str(body);
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lifecycle;

    fn status_of(request: &str, checks_host: bool) -> String {
        let mut resources = Resources::new(Lifecycle::default());
        let reply = answer(&mut request.as_bytes(), &mut resources, checks_host).unwrap();
        String::from_utf8(reply).unwrap()[9..12].to_owned()
    }

    #[test]
    fn requests_are_answered_whole_or_refused() {
        for (request, status) in [
            ("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:9101\r\n\r\n", "200"),
            ("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "200"),
            ("GET /healthz HTTP/1.0\r\n\r\n", "200"),
            ("GET /healthz HTTP/1.1\r\nHost: [::1]:9101\r\n\r\n", "200"),
            ("POST /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
            ("GET /healthz HTTP/1.1\r\nHost: rebound.example\r\n\r\n", "421"),
            ("GET /\u{0} HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
            ("GET /etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        ] {
            assert_eq!(status_of(request, true), status, "{request:?}");
        }
        let elsewhere = "GET /healthz HTTP/1.1\r\nHost: weir.example\r\n\r\n";
        assert_eq!(status_of(elsewhere, false), "200", "an address that was opened to others");
    }

    #[test]
    fn a_head_without_end_is_refused_and_half_a_one_is_nothing() {
        let mut resources = Resources::new(Lifecycle::default());
        let long = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(2 * HEAD_MAX));
        let reply = answer(&mut long.as_bytes(), &mut resources, true).unwrap();
        assert!(reply.starts_with(b"HTTP/1.1 4"));
        assert!(answer(&mut &b"GET / HT"[..], &mut resources, true).is_none());
    }

    #[test]
    fn the_reply_to_a_head_has_the_length_and_no_content() {
        let mut resources = Resources::new(Lifecycle::default());
        let request = b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let reply = answer(&mut &request[..], &mut resources, true).unwrap();
        let text = String::from_utf8(reply).unwrap();
        assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    }
}
