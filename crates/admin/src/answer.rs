//! The answer to a request whose head is valid: for which hosts and with which methods there is
//! one.

use std::net::IpAddr;

use weir_http1::{Method, Request, Status, Target};

use crate::Resources;
use crate::reply::Reply;

/// Answers a request at `now_ns`. With `checks_host` one for a name that is not this machine's is
/// refused: a page of another site may have made it, with a name that leads here (DNS rebinding).
pub(crate) fn answer(
    request: &Request<'_>,
    resources: &mut Resources,
    checks_host: bool,
    now_ns: u64,
) -> Reply {
    if checks_host && !request.host.is_none_or(is_of_this_machine) {
        return Reply::misdirected();
    }
    match request.method {
        // It speaks no TLS (RFC 9110 section 7.4).
        _ if request.is_https => Reply::line(Status::BAD_REQUEST, "not an https resource"),
        Method::Get | Method::Head => {
            let path = std::str::from_utf8(request.target.path()).unwrap_or_default();
            let query = match request.target {
                Target::Path { query, .. } => query,
                Target::Asterisk => None,
            };
            resources.get(path, query, now_ns)
        }
        _ => Reply::line(Status::METHOD_NOT_ALLOWED, "GET and HEAD only"),
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

#[cfg(test)]
mod tests {
    use weir_http1::{HeadParser, Limits, Parse};

    use super::*;
    use crate::fixtures;

    fn status_of(method: &str, path: &str, host: &str, checks_host: bool) -> u16 {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let parse = HeadParser::default().parse(head.as_bytes(), &Limits::default());
        let Parse::Complete(request) = parse else { panic!("{head:?}") };
        answer(&request, &mut fixtures::resources(), checks_host, 0).code()
    }

    #[test]
    fn hosts_that_are_addresses_or_localhost_are_this_machine() {
        for (host, status) in [
            ("127.0.0.1:9101", 200),
            ("[::1]:9101", 200),
            ("[::1]", 200),
            ("LocalHost:9101", 200),
            ("192.0.2.7", 200),
            ("rebound.example", 421),
            ("localhost.rebound.example:9101", 421),
            ("127.0.0.1.rebound.example", 421),
        ] {
            assert_eq!(status_of("GET", "/healthz", host, true), status, "{host:?}");
            assert_eq!(status_of("GET", "/healthz", host, false), 200, "{host:?}, to others");
        }
    }

    #[test]
    fn only_what_is_there_is_got_and_nothing_is_changed() {
        for (method, path, status) in [
            ("GET", "/healthz", 200),
            ("HEAD", "/healthz", 200),
            ("GET", "/healthz?x=y", 200),
            ("GET", "http://localhost/healthz", 200),
            ("GET", "/etc/passwd", 404),
            ("GET", "/%2e%2e/healthz", 404),
            ("GET", "https://localhost/healthz", 400),
            ("POST", "/healthz", 405),
            ("PUT", "/none", 405),
            ("TRACE", "/healthz", 405),
            ("OPTIONS", "*", 405),
            ("PURGE", "/healthz", 405),
            ("CONNECT", "localhost:80", 405),
        ] {
            assert_eq!(status_of(method, path, "localhost", true), status, "{method} {path}");
        }
    }
}
