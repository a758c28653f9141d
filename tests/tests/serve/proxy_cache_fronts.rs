//! The cache behind a proxy in front that is trusted: what that tells of its client's request
//! counts for each reply, whoever the reply is fetched for.

use std::sync::atomic::{AtomicUsize, Ordering};

use weir_tests::origin::Received;
use weir_tests::wait::until;
use weir_tests::{Origin, Server, request};

use crate::proxy_cache::{caching, counting, is_hit, reply_with, status};

const TRUSTS: [&str; 2] = ["--trusted-proxy", "127.0.0.0/8"];

/// Fields by which a proxy in front tells of a request that it got over TLS.
const SECURE: [&str; 3] =
    ["X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: shop.example", "X-Forwarded-Proto: https"];

/// Starts an origin that redirects all requests to https but those that came by it, and numbers its
/// pages.
fn redirecting(fields: &'static str) -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |received| {
        if received.fields("x-forwarded-proto") == ["https"] {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            return reply_with(fields, format!("page {nth}").as_bytes());
        }
        b"HTTP/1.1 301 Moved Permanently\r\nCache-Control: max-age=60\r\n\
          Location: https://shop.example/\r\nContent-Length: 0\r\n\r\n"
            .to_vec()
    })
}

/// Returns what the origin was told of where a request came from.
fn told(received: &Received) -> [Vec<&str>; 4] {
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]
        .map(|name| received.fields(name))
}

fn purge(server: &Server, fields: &[&str]) -> u16 {
    let mut client = server.connect();
    client.send(request("PURGE", "/", fields));
    client.reply().status
}

#[test]
fn a_stale_reply_is_brought_up_to_date_as_for_its_client() {
    let origin = redirecting("Cache-Control: max-age=0, stale-while-revalidate=60\r\n");
    let server = caching(&origin, &TRUSTS);
    assert_eq!(server.get_with("/", &SECURE).text(), "page 0");
    until("it is brought up to date", || {
        let reply = server.get_with("/", &SECURE);
        assert_eq!(reply.status, 200);
        reply.text() != "page 0"
    });
    let received = origin.received();
    assert!(received.len() > 1 && received.iter().all(|each| told(each) == told(&received[0])));
    assert_eq!(told(&received[0])[1], ["192.0.2.1, 127.0.0.1"]);
}

#[test]
fn the_whole_is_fetched_for_a_part_as_for_its_client() {
    let origin = redirecting("Cache-Control: max-age=60\r\n");
    let server = caching(&origin, &TRUSTS);
    let part = server.get_with("/", &[&SECURE[..], &["Range: bytes=0-3"]].concat());
    assert_eq!((part.status, part.text()), (206, "page".into()));
    assert!(is_hit(&server.get_with("/", &SECURE)));
    let received = origin.received();
    assert_eq!((received.len(), told(&received[0])[3].clone()), (1, vec!["https"]));
    assert_eq!(told(&received[0])[1], ["192.0.2.1, 127.0.0.1"]);
}

#[test]
fn replies_to_what_is_told_to_have_come_otherwise_are_kept_apart() {
    let origin = redirecting("Cache-Control: max-age=60\r\n");
    let server = caching(&origin, &TRUSTS);
    for _ in 0..2 {
        assert_eq!(server.get("/").status, 301);
        assert_eq!(server.get_with("/", &["X-Forwarded-Proto: http"]).status, 301);
        assert_eq!(server.get_with("/", &SECURE).text(), "page 0");
        let other = ["X-Forwarded-Host: other.example", "X-Forwarded-Proto: https"];
        assert_eq!(server.get_with("/", &other).text(), "page 1");
    }
    assert_eq!(origin.received().len(), 4);
}

#[test]
fn a_target_that_is_https_is_told_as_such_and_kept_apart() {
    let origin = redirecting("Cache-Control: max-age=60\r\n");
    let server = caching(&origin, &TRUSTS);
    let get = |target| {
        let mut client = server.connect();
        client.send(request("GET", target, &[]));
        client.reply()
    };
    for target in ["http://test.example/", "/"] {
        assert_eq!(get("https://test.example/").text(), "page 0", "{target}");
        assert_eq!(get(target).status, 301, "{target}");
    }
    assert_eq!(origin.received().len(), 2);
}

#[test]
fn a_purge_is_for_those_who_may_behind_the_proxy_and_for_every_scheme() {
    let origin = counting("Cache-Control: max-age=60\r\n");
    let server = caching(&origin, &[&TRUSTS[..], &["--cache-purge", "192.0.2.0/24"]].concat());
    let plain = ["X-Forwarded-Host: shop.example"];
    let fill = || (server.get_with("/", &SECURE).text(), server.get_with("/", &plain).text());
    assert_eq!(fill(), ("reply 0".into(), "reply 1".into()));
    assert_eq!(purge(&server, &["X-Forwarded-For: 192.0.2.1, 198.51.100.1"]), 403);
    assert_eq!(fill(), ("reply 0".into(), "reply 1".into()));
    assert_eq!(purge(&server, &SECURE), 200);
    assert_eq!(fill(), ("reply 2".into(), "reply 3".into()));
    assert_eq!(purge(&server, &["X-Forwarded-For: 192.0.2.1"]), 200);
    assert_eq!(purge(&server, &SECURE), 404);
    assert_eq!(fill(), ("reply 4".into(), "reply 5".into()));
}

#[test]
fn a_proxy_that_does_not_say_who_asks_may_not_purge() {
    let origin = counting("Cache-Control: max-age=60\r\n");
    let server = caching(&origin, &[&TRUSTS[..], &["--cache-purge", "127.0.0.0/8"]].concat());
    assert_eq!(server.get("/").text(), "reply 0");
    for fields in [&[][..], &["X-Forwarded-For: unknown"], &["X-Forwarded-For:"]] {
        assert_eq!(purge(&server, fields), 403, "{fields:?}");
    }
    assert!(is_hit(&server.get("/")));
    assert_eq!(purge(&server, &["X-Forwarded-For: 127.0.0.1"]), 200);
    assert_eq!(status(&server.get("/")), "weir; fwd=uri-miss; stored");
}
