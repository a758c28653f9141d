//! Effects of one client on what others get from the cache: its requests must neither choose their
//! replies, nor keep them from them.

use std::sync::atomic::{AtomicUsize, Ordering};

use weir_tests::origin::Gate;
use weir_tests::wait::until;
use weir_tests::{Client, Origin, Server, request};

use crate::WEIR;
use crate::proxy_cache::{caching, counting, gated, is_hit, reply_with, status};

#[test]
fn a_field_that_connection_names_selects_no_reply_for_others() {
    let origin = counting("Cache-Control: max-age=60\r\nVary: Origin\r\n");
    let server = caching(&origin, &[]);
    let kept = server.get_with("/", &["Origin: a", "Connection: Origin"]);
    assert_eq!((status(&kept), kept.text()), ("weir; fwd=bypass", "reply 0".into()));
    assert!(origin.received()[0].fields("origin").is_empty());
    assert_eq!(server.get_with("/", &["Origin: a"]).text(), "reply 1");
    assert!(is_hit(&server.get_with("/", &["Origin: a"])));
}

#[test]
fn what_cannot_be_stored_takes_nothing_from_others() {
    let origin = Origin::start(|received| {
        if received.fields("accept") == ["text/html"] {
            reply_with("Vary: Accept\r\nCache-Control: max-age=60\r\n", b"page")
        } else {
            b"HTTP/1.1 406 Not Acceptable\r\nVary: Accept\r\nContent-Length: 0\r\n\r\n".to_vec()
        }
    });
    let server = caching(&origin, &[]);
    assert_eq!(server.get_with("/", &["Accept: x/y"]).status, 406);
    assert_eq!(server.get_with("/", &["Accept: text/html"]).text(), "page");
    assert_eq!(server.get_with("/", &["Accept: x/y"]).status, 406);
    assert!(is_hit(&server.get_with("/", &["Accept: text/html"])));
}

#[test]
fn what_a_trusted_proxy_says_selects_and_what_others_say_does_not() {
    let origin = counting("Cache-Control: max-age=60\r\nVary: X-Forwarded-Proto\r\n");
    let secure = ["X-Forwarded-Proto: https"];
    let trusting = caching(&origin, &["--trusted-proxy", "127.0.0.0/8"]);
    assert_eq!(trusting.get_with("/", &secure).text(), "reply 0");
    assert!(is_hit(&trusting.get_with("/", &secure)));
    assert_eq!(trusting.get("/").text(), "reply 1");
    // It is dropped, so that both ask for the same.
    let server = caching(&origin, &[]);
    assert_eq!(server.get_with("/", &secure).text(), "reply 2");
    assert!(is_hit(&server.get("/")) && is_hit(&server.get_with("/", &secure)));
}

#[test]
fn a_client_with_cookies_takes_the_cache_from_none_without() {
    let origin = counting("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
    let server = caching(&origin, &[]);
    assert_eq!(server.get_with("/", &["Cookie: a=b"]).text(), "reply 0");
    assert_eq!(status(&server.get_with("/", &["Cookie: a=b"])), "weir; fwd=bypass");
    assert_eq!(server.get("/").text(), "reply 2");
    assert!(is_hit(&server.get("/")));
}

#[test]
fn a_page_for_one_client_s_cookies_is_for_no_other_though_it_says_that_it_is_never_fresh() {
    for fields in ["Cache-Control: max-age=0\r\nETag: \"v\"\r\n", "Expires: 0\r\nETag: \"v\"\r\n"] {
        let origin = counting(fields);
        let server = caching(&origin, &[]);
        assert_eq!(server.get_with("/", &["Cookie: a=b"]).text(), "reply 0", "{fields}");
        let stale = ["Cache-Control: max-stale"];
        assert_eq!(server.get_with("/", &stale).text(), "reply 1", "{fields}");
        // Without cookies it is anybody's.
        assert_eq!(server.get_with("/", &stale).text(), "reply 1", "{fields}");
    }
}

#[test]
fn who_waited_for_a_reply_that_was_stale_at_once_is_not_sent_it() {
    for (asks, texts) in [
        (["A: a", "A: b"], ["reply 0 ", "reply 1 "]),
        (["Cookie: a", "Cookie: b"], ["reply 0 a", "reply 1 b"]),
    ] {
        let (count, gate) = (AtomicUsize::new(0), Gate::default());
        let at_origin = gate.clone();
        let origin = Origin::start(move |received| {
            at_origin.pass();
            let nth = count.fetch_add(1, Ordering::Relaxed);
            let text = format!("reply {nth} {}", received.fields("Cookie").concat());
            reply_with("Cache-Control: max-age=0\r\nETag: \"v\"\r\n", text.as_bytes())
        });
        let server = caching(&origin, &["--workers", "1", "--max-in-flight", "inf"]);
        let mut leader = server.connect();
        leader.send(request("GET", "/", &asks[..1]));
        until("it is at the origin", || !origin.received().is_empty());
        let mut follower = server.connect();
        follower.send(request("GET", "/", &asks[1..]));
        let collapsed = || server.new_report()["total"]["proxy_cache_collapsed"].clone();
        until("another waits for it", || collapsed() == 1);
        gate.open();
        assert_eq!([leader.reply().text(), follower.reply().text()], texts);
        assert_eq!(origin.received().len(), 2, "{asks:?}");
    }
}

#[test]
fn a_304_to_a_password_takes_the_stored_reply_from_nobody() {
    let origin = Origin::start(|received| {
        if received.fields("if-none-match").is_empty() {
            return reply_with("ETag: \"v\"\r\nCache-Control: max-age=0\r\n", b"same");
        }
        b"HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\nCache-Control: max-age=60\r\n\r\n".to_vec()
    });
    let server = caching(&origin, &[]);
    assert_eq!(server.get("/").text(), "same");
    let authorized = server.get_with("/", &["Authorization: Basic x"]);
    assert_eq!((authorized.status, authorized.text()), (200, "same".into()));
    let validated = server.get("/");
    assert!(status(&validated).starts_with("weir; fwd=stale; fwd-status=304"));
    assert!(is_hit(&server.get("/")));
    assert_eq!(origin.received().len(), 3);
}

#[test]
fn a_304_that_is_selected_by_another_field_makes_nothing_fresh() {
    let origin = Origin::start(|received| {
        if received.fields("if-none-match").is_empty() {
            return reply_with("ETag: \"v\"\r\nCache-Control: max-age=0\r\n", b"same");
        }
        b"HTTP/1.1 304 Not Modified\r\nVary: Accept\r\nCache-Control: max-age=60\r\n\r\n".to_vec()
    });
    let server = caching(&origin, &[]);
    assert_eq!(server.get("/").text(), "same");
    assert_eq!(server.get("/").expect_field("Vary"), "Accept");
    assert_eq!(status(&server.get_with("/", &["Accept: x/y"])), "weir; fwd=uri-miss; stored");
}

/// A client whose reload of `/`, which is stored, has reached the origin and waits at the gate.
fn reload(server: &Server, origin: &Origin, gate: &Gate) -> Client {
    gate.open();
    assert_eq!(server.get("/").text(), "old");
    gate.close();
    let mut client = server.connect();
    client.send(request("GET", "/", &["Cache-Control: no-cache"]));
    until("it is at the origin", || origin.received().len() == 2);
    client
}

#[test]
fn a_reload_from_before_a_purge_is_not_stored() {
    let (origin, gate) = gated("Cache-Control: max-age=60\r\n", b"old");
    let server = caching(&origin, &["--cache-purge", "127.0.0.0/8"]);
    let mut reloading = reload(&server, &origin, &gate);
    let mut client = server.connect();
    client.send(request("PURGE", "/", &[]));
    assert_eq!(client.reply().status, 200);
    gate.open();
    assert_eq!(reloading.reply().text(), "old");
    assert_eq!(status(&server.get("/")), "weir; fwd=uri-miss; stored");
}

#[test]
fn who_waited_for_an_error_is_not_sent_what_is_stale() {
    let (count, gate) = (AtomicUsize::new(0), Gate::default());
    gate.open();
    let at_origin = gate.clone();
    let origin = Origin::start(move |_| {
        at_origin.pass();
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => reply_with("Cache-Control: max-age=0\r\nETag: \"v\"\r\n", b"old"),
            _ => b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 3\r\n\r\nbad".to_vec(),
        }
    });
    let server = caching(&origin, &["--workers", "1", "--max-in-flight", "inf"]);
    assert_eq!(server.get("/").text(), "old");
    gate.close();
    let mut leader = server.connect();
    leader.send(request("GET", "/", &[]));
    until("it is at the origin", || origin.received().len() == 2);
    let mut follower = server.connect();
    follower.send(request("GET", "/", &[]));
    let collapsed = || server.new_report()["total"]["proxy_cache_collapsed"].clone();
    until("another waits for it", || collapsed() == 1);
    gate.open();
    assert_eq!((leader.reply().status, follower.reply().status), (500, 500));
    assert_eq!(origin.received().len(), 3);
}

#[test]
fn options_that_may_go_no_further_are_answered_here() {
    let origin = counting("Allow: GET\r\n");
    let server = Server::proxy(WEIR, &[&origin.url()], &[]);
    let mut client = server.connect();
    for (hops, status) in [("0", 204), ("2", 200)] {
        client.send(request("OPTIONS", "/", &[&format!("Max-Forwards: {hops}")]));
        assert_eq!(client.reply().status, status);
    }
    let received = origin.received();
    assert_eq!((received.len(), received[0].fields("max-forwards")), (1, vec!["1"]));
}
