//! The cache of replies, as clients on one side and the origin on the other see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use weir_tests::faulty::{Behaviour, Faulty};
use weir_tests::load::load;
use weir_tests::origin::{After, Gate, Received};
use weir_tests::tls::{Authority, NAMES, VERSIONS, false_record};
use weir_tests::wait::until;
use weir_tests::{Client, Origin, Reply, Root, Server, Setup, mechanisms, request, suite};

use crate::WEIR;

suite! {
    every_forwarding_architecture:
    many_who_ask_at_once_make_one_request,
    each_of_many_reloads_at_once_is_validated_and_answered_from_the_cache,
    a_client_that_leaves_takes_the_reply_from_nobody,
    a_client_that_ends_its_side_and_waits_for_another_s_reply_gets_it,
    a_stale_reply_is_sent_while_it_is_validated,
    a_validation_without_a_client_goes_to_another_server_when_its_connect_hangs,
}

suite! {
    every_tls_forwarder:
    a_client_that_breaks_the_rules_of_tls_waits_for_nobody_any_more,
}

/// Options of a cache.
const CACHE: [&str; 2] = ["--cache", "16M"];

pub(crate) fn caching(origin: &Origin, options: &[&str]) -> Server {
    Server::proxy(WEIR, &[&origin.url()], &[&CACHE[..], options].concat())
}

/// Returns a 200 with these field lines, each ended by CRLF.
pub(crate) fn reply_with(fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{fields}\r\n");
    [head.as_bytes(), body].concat()
}

/// Starts an origin that answers with these field lines, and with the number of the request.
pub(crate) fn counting(fields: &'static str) -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |_| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        reply_with(fields, format!("reply {nth}").as_bytes())
    })
}

/// Starts an origin that answers with these field lines and this content, once it may pass the
/// gate.
pub(crate) fn gated(fields: &'static str, body: &'static [u8]) -> (Origin, Gate) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |_| {
        at_origin.pass();
        reply_with(fields, body)
    });
    (origin, gate)
}

/// A proxy whose first request is at the origin, which answers once its gate is open.
struct Led {
    origin: Origin,
    gate: Gate,
    server: Server,
    /// The client of that request.
    leader: Client,
}

fn lead(setup: &Setup) -> Led {
    let (origin, gate) = gated("Cache-Control: max-age=60\r\n", b"once");
    let server = setup.proxy(&[&origin.url()], &[&CACHE[..], &["--workers", "1"]].concat());
    let mut leader = server.connect();
    leader.send(request("GET", "/", &[]));
    until("it is at the origin", || !origin.received().is_empty());
    Led { origin, gate, server, leader }
}

fn is_conditional(received: &Received) -> bool {
    !received.fields("if-none-match").is_empty()
}

pub(crate) fn status(reply: &Reply) -> &str {
    reply.expect_field("Cache-Status")
}

pub(crate) fn is_hit(reply: &Reply) -> bool {
    status(reply).starts_with("weir; hit; ttl=")
}

#[test]
fn a_fresh_reply_is_sent_again_under_every_mechanism() {
    for mechanism in mechanisms() {
        let origin = counting("Cache-Control: max-age=60\r\nConnection: X-Mine\r\nX-Mine: 1\r\n");
        let server = caching(&origin, &["--mechanism", mechanism]);
        let first = server.get("/a");
        assert_eq!(status(&first), "weir; fwd=uri-miss; stored");
        let second = server.get("/a");
        assert!(is_hit(&second), "{:?}", second.fields);
        assert_eq!((first.text(), second.text()), ("reply 0".into(), "reply 0".into()));
        assert_eq!(second.field("Age"), Some("0"));
        assert_eq!((second.field("X-Mine"), second.field("Connection")), (None, None));
        assert_eq!(second.field("Via"), Some("1.1 weir"));
        assert_eq!(server.get("/b").text(), "reply 1");
        let stats = server.stop_cleanly().stats()["total"].clone();
        assert_eq!(
            (&stats["proxy_cache_hits"], &stats["proxy_cache_misses"]),
            (&1.into(), &2.into())
        );
        assert_eq!(stats["proxy_cache_stored"], 2);
        assert!(stats["proxy_cache_bytes"].as_u64() > Some(0));
    }
}

#[test]
fn without_the_option_nothing_is_stored() {
    let origin = counting("Cache-Control: max-age=60\r\n");
    let server = Server::proxy(WEIR, &[&origin.url()], &[]);
    assert_eq!(
        (server.get("/").text(), server.get("/").text()),
        ("reply 0".into(), "reply 1".into())
    );
    assert_eq!(server.get("/").field("Cache-Status"), None);
}

fn many_who_ask_at_once_make_one_request(setup: &Setup) {
    let (origin, gate) = gated("Cache-Control: max-age=60\r\n", b"once");
    let server = setup.proxy(&[&origin.url()], &[&CACHE[..], &["--workers", "2"]].concat());
    let mut clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(request("GET", "/", &[])));
    until("it is at the origin", || !origin.received().is_empty());
    thread::sleep(Duration::from_millis(50));
    gate.open();
    let replies: Vec<Reply> = clients.iter_mut().map(Client::reply).collect();
    assert!(replies.iter().all(|reply| reply.text() == "once"));
    assert_eq!(origin.received().len(), 1);
    let stats = server.stop_cleanly().stats()["total"].clone();
    let (hits, collapsed) = (&stats["proxy_cache_hits"], &stats["proxy_cache_collapsed"]);
    assert_eq!(hits.as_u64().unwrap() + collapsed.as_u64().unwrap(), 49, "{stats}");
}

#[test]
fn who_follows_a_reply_that_is_not_stored_goes_on_by_himself() {
    let (origin, gate) = gated("Cache-Control: private\r\n", b"mine");
    let server = caching(&origin, &["--workers", "2", "--max-in-flight", "inf"]);
    let mut clients: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(request("GET", "/", &[])));
    until("it is at the origin", || !origin.received().is_empty());
    gate.open();
    assert!(clients.iter_mut().all(|client| client.reply().text() == "mine"));
    assert_eq!(origin.received().len(), 10);
    // From now on nobody waits.
    assert_eq!(status(&server.get("/")), "weir; fwd=bypass");
}

fn each_of_many_reloads_at_once_is_validated_and_answered_from_the_cache(setup: &Setup) {
    let gate = Gate::default();
    let at_origin = gate.clone();
    let origin = Origin::start(move |received| {
        if !is_conditional(received) {
            return reply_with("ETag: \"v\"\r\nCache-Control: max-age=60\r\n", b"same");
        }
        at_origin.pass();
        b"HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\n\r\n".to_vec()
    });
    let options = [&CACHE[..], &["--workers", "2", "--max-in-flight", "inf"]].concat();
    let server = setup.proxy(&[&origin.url()], &options);
    assert_eq!(server.get("/").text(), "same");
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let reload = request("GET", "/", &["Cache-Control: no-cache"]);
    clients.iter_mut().for_each(|client| client.send(&reload));
    until("all are at the origin together", || origin.received().len() == 21);
    gate.open();
    for reply in clients.iter_mut().map(Client::reply) {
        assert_eq!((reply.status, reply.text()), (200, "same".into()));
        assert!(status(&reply).starts_with("weir; fwd=request; fwd-status=304"));
    }
    assert!(origin.received()[1..].iter().all(is_conditional));
    let stats = server.stop_cleanly().stats()["total"].clone();
    let of = |name: &str| stats[name].as_u64().unwrap();
    assert_eq!((of("proxy_cache_revalidated"), of("proxy_cache_collapsed")), (20, 0));
}

#[test]
fn a_load_of_reloads_has_the_origin_validate_each() {
    let root = Root::with_hello();
    // Neither refuses any.
    let preset = ["--preset", "accept1"];
    let origin = Server::start(WEIR, &preset, &root);
    let upstream = format!("http://{}", origin.authority());
    let options = [&CACHE[..], &preset, &["--keep-idle=0", "--max-in-flight=inf"]].concat();
    let server = Server::proxy(WEIR, &[&upstream], &options);
    let url = format!("http://{}/hello.txt", server.authority());
    assert_eq!(load(WEIR, "--quiet --timeout 20s --num 1", &url).count("replies"), 1);
    until("it is stored", || server.new_report()["total"]["proxy_cache_stored"] == 1);
    let options = "--quiet --timeout 20s --closed 16 --num 400 --header Cache-Control:no-cache";
    let ran = load(WEIR, options, &url);
    assert_eq!((ran.count("replies"), ran.count("errors")), (400, 0));
    assert_eq!(ran.json["counts"]["statuses"]["2xx"], 400);
    let (at_proxy, at_origin) = (server.stop_cleanly().stats(), origin.stop_cleanly().stats());
    let count = |stats: &Value, name: &str| stats["total"][name].as_u64().unwrap();
    for (name, expected) in [
        ("proxy_cache_revalidated", 400),
        ("proxy_cache_collapsed", 0),
        ("proxy_cache_stored", 1),
        ("proxy_cache_hits", 0),
    ] {
        assert_eq!(count(&at_proxy, name), expected, "{name}");
    }
    assert_eq!((count(&at_origin, "status_2xx"), count(&at_origin, "status_3xx")), (1, 400));
}

fn a_client_that_leaves_takes_the_reply_from_nobody(setup: &Setup) {
    let Led { origin, gate, server, leader } = lead(setup);
    let mut follower = server.connect();
    follower.send(request("GET", "/", &[]));
    thread::sleep(Duration::from_millis(150));
    drop(leader);
    thread::sleep(Duration::from_millis(30));
    gate.open();
    assert_eq!(follower.reply().text(), "once");
    // Neither is it lost if nobody waits.
    gate.close();
    let mut alone = server.connect();
    alone.send(request("GET", "/alone", &[]));
    until("it is at the origin", || origin.received().len() == 2);
    thread::sleep(Duration::from_millis(150));
    drop(alone);
    thread::sleep(Duration::from_millis(30));
    gate.open();
    until("it is stored", || is_hit(&server.get("/alone")));
    assert_eq!(origin.received().len(), 2);
}

fn a_client_that_ends_its_side_and_waits_for_another_s_reply_gets_it(setup: &Setup) {
    let Led { origin, gate, server, mut leader } = lead(setup);
    let mut follower = server.connect();
    server.signal(Signal::STOP);
    follower.send(request("GET", "/", &[]));
    follower.finish_sending();
    server.signal(Signal::CONT);
    thread::sleep(Duration::from_millis(50));
    gate.open();
    for client in [&mut leader, &mut follower] {
        assert_eq!(client.reply().text(), "once");
    }
    assert!(follower.ends());
    assert_eq!(origin.received().len(), 1);
}

fn a_client_that_breaks_the_rules_of_tls_waits_for_nobody_any_more(setup: &Setup) {
    let authority = Authority::new();
    let issued = authority.issue("server", &NAMES);
    let clients = Arc::new(authority.clients(&VERSIONS));
    let (origin, gate) = gated("", b"held");
    let options = ["--workers", "1", "--max-in-flight", "1", "--queue-target", "20s"];
    let options = [&issued.options()[..], &CACHE, &options].concat();
    let server = setup.proxy(&[&origin.url()], &options);
    let counted = |name: &str, count: u64| {
        until(name, || server.new_report()["total"][name] == count);
    };
    let connect = || Client::connect_tls(server.address(), &clients, NAMES[0]);
    let [mut first, mut leader, mut follower] = [(); 3].map(|()| connect());
    first.send(request("GET", "/first", &[]));
    until("it is at the origin", || origin.received().len() == 1);
    leader.send(request("GET", "/", &[]));
    counted("upstream_waited", 1);
    follower.send(request("GET", "/", &[]));
    counted("proxy_cache_collapsed", 1);
    follower.send_raw(&false_record()).unwrap();
    assert!(follower.ends());
    drop((leader, follower));
    counted("closed", 2);
    gate.open();
    assert_eq!(first.reply().text(), "held");
    // One that went on for the follower would have had its turn before this.
    assert_eq!(first.get("/last").text(), "held");
    let received = origin.received();
    let lines: Vec<_> = received.iter().map(Received::line).collect();
    assert_eq!(lines, ["GET /first HTTP/1.1", "GET /last HTTP/1.1"]);
    assert_eq!(server.stop_cleanly().stats()["total"]["end_tls"], 1);
}

#[test]
fn a_cut_reply_is_never_stored() {
    let origin = Origin::for_many(|_| {
        (
            b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\ncut"
                .to_vec(),
            After::Close,
        )
    });
    let server = caching(&origin, &[]);
    let mut client = server.connect();
    client.send(request("GET", "/", &[]));
    assert!(client.try_reply().is_err());
    let stats = server.stop_cleanly().stats()["total"].clone();
    assert_eq!(stats["proxy_cache_stored"], 0);
}

#[test]
fn a_stale_reply_is_validated_and_its_fields_are_brought_up_to_date() {
    let origin = Origin::start(|received| {
        if is_conditional(received) {
            return b"HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\nX-Version: 2\r\n\r\n".to_vec();
        }
        reply_with("ETag: \"v\"\r\nCache-Control: max-age=0\r\nX-Version: 1\r\n", b"same")
    });
    let server = caching(&origin, &[]);
    assert_eq!(server.get("/").expect_field("X-Version"), "1");
    let validated = server.get("/");
    assert!(status(&validated).starts_with("weir; fwd=stale; fwd-status=304"));
    assert_eq!((validated.status, validated.text()), (200, "same".into()));
    assert_eq!(validated.expect_field("X-Version"), "2");
    assert_eq!(origin.received()[1].fields("if-none-match"), ["\"v\""]);
    // The client's own condition is evaluated here.
    let unchanged = server.get_with("/", &["If-None-Match: \"v\""]);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
}

#[test]
fn conditions_heads_and_ranges_are_answered_from_the_stored_reply() {
    let fields = "ETag: \"v\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                  Cache-Control: max-age=60\r\nContent-Type: text/css\r\n";
    let body: Vec<u8> = (0..100_000).map(|at| (at / 7) as u8).collect();
    let sent = body.clone();
    let origin = Origin::start(move |_| reply_with(fields, &sent));
    let server = caching(&origin, &[]);
    // A client that has it already: the whole is fetched, and it gets no content.
    let mut client = server.connect();
    let unchanged = client.get_with("/", &["If-None-Match: \"v\""]);
    assert_eq!((unchanged.status, unchanged.expect_field("ETag")), (304, "\"v\""));
    until("it is stored", || is_hit(&server.get("/")));
    assert!(client.get("/").body == body);
    let since = "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT";
    assert_eq!(client.get_with("/", &[since]).status, 304);
    assert!(client.get_with("/", &["If-None-Match: \"w\"", since]).body == body);
    let head = client.head_with("/", &[]);
    assert!(is_hit(&head));
    assert_eq!(head.expect_field("Content-Length"), "100000");
    let part = client.get_with("/", &["Range: bytes=10-19"]);
    assert_eq!((part.status, &part.body[..]), (206, &body[10..20]));
    assert_eq!(part.expect_field("Content-Range"), "bytes 10-19/100000");
    let parts = client.get_with("/", &["Range: bytes=0-9,50000-50009"]);
    assert!(parts.expect_field("Content-Type").starts_with("multipart/byteranges"));
    let beyond = client.get_with("/", &["Range: bytes=100000-"]);
    assert_eq!((beyond.status, beyond.field("Date").is_some()), (416, true));
    assert_eq!(beyond.expect_field("Content-Range"), "bytes */100000");
    let other = client.get_with("/", &["Range: bytes=10-19", "If-Range: \"w\""]);
    assert_eq!((other.status, other.body.len()), (200, body.len()));
    assert_eq!(origin.received().len(), 1);
}

#[test]
fn a_range_of_what_is_not_stored_is_cut_from_the_whole() {
    let origin = Origin::start(|received| {
        assert!(received.fields("range").is_empty());
        reply_with("Cache-Control: max-age=60\r\n", b"0123456789")
    });
    let server = caching(&origin, &[]);
    let part = server.get_with("/", &["Range: bytes=2-4"]);
    assert_eq!((part.status, part.text()), (206, "234".into()));
    assert!(is_hit(&server.get("/")));
}

#[test]
fn what_the_request_says_selects_among_replies() {
    let origin = Origin::start(|received| {
        let language = received.fields("accept-language").join("");
        let fields = "Vary: Accept-Language\r\nCache-Control: max-age=60\r\n";
        reply_with(fields, language.as_bytes())
    });
    let server = caching(&origin, &[]);
    for _ in 0..2 {
        for language in ["de", "en"] {
            let field = format!("Accept-Language: {language}");
            assert_eq!(server.get_with("/", &[&field]).text(), language);
        }
        assert_eq!(server.get("/").text(), "");
    }
    assert_eq!(origin.received().len(), 3);
    assert_eq!(
        status(&server.get_with("/", &["Accept-Language: fr"])),
        "weir; fwd=vary-miss; stored"
    );
}

#[test]
fn a_stale_reply_stands_in_for_errors_of_the_origin() {
    let fails = Arc::new(AtomicUsize::new(0));
    let failing = Arc::clone(&fails);
    let origin = Origin::start(move |_| match failing.load(Ordering::Relaxed) {
        0 => reply_with("Cache-Control: max-age=0, stale-if-error=60\r\nETag: \"v\"\r\n", b"good"),
        1 => b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 3\r\n\r\nbad".to_vec(),
        _ => Vec::new(),
    });
    let server = caching(&origin, &[]);
    assert_eq!(server.get("/").text(), "good");
    for how in 1..=2 {
        fails.store(how, Ordering::Relaxed);
        let stale = server.get("/");
        assert_eq!((stale.status, stale.text()), (200, "good".into()));
        assert!(status(&stale).starts_with("weir; hit; detail=stale-if-error; ttl="));
    }
    // Without a stored reply the error is the answer; and so it is for who wants no stored one.
    fails.store(1, Ordering::Relaxed);
    assert_eq!(server.get("/other").status, 500);
    assert_eq!(server.get_with("/", &["Cache-Control: no-cache"]).status, 500);
}

#[test]
fn a_reply_to_head_makes_the_stored_one_fresh_or_stale() {
    // Sees a stale one of the same tag, and a fresh one of another.
    for (first, of_head, asked) in [
        ("Cache-Control: max-age=0\r\nETag: \"v\"\r\n", "ETag: \"v\"", 2),
        ("Cache-Control: max-age=60\r\nETag: \"v\"\r\n", "ETag: \"w\"", 3),
    ] {
        let origin = Origin::start(move |received| {
            if received.line().starts_with("HEAD ") {
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nCache-Control: max-age=60";
                format!("{head}\r\n{of_head}\r\n\r\n").into_bytes()
            } else {
                reply_with(first, b"good")
            }
        });
        let server = caching(&origin, &[]);
        assert_eq!(server.get("/").text(), "good");
        let mut client = server.connect();
        assert_eq!(client.head_with("/", &["Cache-Control: no-cache"]).status, 200);
        assert_eq!(server.get("/").text(), "good");
        assert_eq!(origin.received().len(), asked, "{of_head}");
        server.stop_cleanly();
    }
}

#[test]
fn a_stale_reply_that_must_be_validated_stands_in_for_nothing() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let origin = Origin::start(move |_| {
        let fields = "Cache-Control: max-age=0, must-revalidate\r\nETag: \"v\"\r\n";
        if failing.load(Ordering::Relaxed) { Vec::new() } else { reply_with(fields, b"good") }
    });
    let server = caching(&origin, &[]);
    assert_eq!(server.get("/").text(), "good");
    fails.store(true, Ordering::Relaxed);
    assert_eq!(server.get("/").status, 502);
}

fn a_stale_reply_is_sent_while_it_is_validated(setup: &Setup) {
    let fields = "Cache-Control: max-age=0, stale-while-revalidate=60\r\nETag: \"v\"\r\n";
    let origin = counting(fields);
    let server = setup.proxy(&[&origin.url()], &[&CACHE[..], &["--workers", "1"]].concat());
    assert_eq!(server.get("/").text(), "reply 0");
    let stale = server.get("/");
    assert_eq!(stale.text(), "reply 0");
    assert!(status(&stale).starts_with("weir; hit; detail=stale-while-revalidate"));
    until("it is brought up to date", || server.get("/").text() != "reply 0");
    assert!(is_conditional(&origin.received()[1]));
}

#[test]
fn a_stale_reply_that_is_asked_for_by_head_is_validated_whole() {
    // Without a validator the origin sends all of it anew.
    let origin = counting("Cache-Control: max-age=0, stale-while-revalidate=60\r\n");
    let server = caching(&origin, &[]);
    assert_eq!(server.get("/").text(), "reply 0");
    assert_eq!(server.connect().head_with("/", &[]).status, 200);
    until("it is asked for again", || origin.received().len() == 2);
    assert!(origin.received()[1].line().starts_with("GET "));
    let sent: Vec<String> = (0..3).map(|_| server.get("/").text()).collect();
    assert!(sent.iter().all(|text| text.starts_with("reply ")), "{sent:?}");
    server.stop_cleanly();
}

#[test]
fn a_stale_reply_is_validated_before_one_who_is_authorized_has_it() {
    let fields = "Cache-Control: public, max-age=0, stale-while-revalidate=60\r\nETag: \"v\"\r\n";
    let origin = counting(fields);
    let server = caching(&origin, &[]);
    let authorized = ["Authorization: Basic YTpi"];
    for nth in 0..3 {
        assert_eq!(server.get_with("/", &authorized).text(), format!("reply {nth}"));
    }
    assert!(is_conditional(&origin.received()[2]));
    server.stop_cleanly();
}

/// Starts an origin whose reply is stale at once, until it replies in another way: with a 404, with
/// a refusal of what the request is like, for one client only, or not at all.
fn failing() -> (Origin, Arc<AtomicUsize>) {
    let way = Arc::new(AtomicUsize::new(0));
    let at_origin = Arc::clone(&way);
    let origin = Origin::start(move |_| match at_origin.load(Ordering::Relaxed) {
        0 => reply_with("Cache-Control: max-age=0\r\nETag: \"v\"\r\n", b"good"),
        1 => b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone".to_vec(),
        2 => b"HTTP/1.1 431 Too Large\r\nContent-Length: 5\r\n\r\nlarge".to_vec(),
        // For one client: requests go past the cache for a while, and what is stored stays.
        3 => reply_with("Set-Cookie: a=b\r\nCache-Control: no-store\r\n", b"own"),
        _ => Vec::new(),
    });
    (origin, way)
}

#[test]
fn a_reply_that_is_gone_at_the_origin_stands_in_for_nothing() {
    let (origin, way) = failing();
    let server = caching(&origin, &[]);
    assert_eq!(server.get("/").text(), "good");
    way.store(1, Ordering::Relaxed);
    assert_eq!(server.get("/").status, 404);
    way.store(4, Ordering::Relaxed);
    assert_eq!(server.get("/").status, 502);
    server.stop_cleanly();
}

#[test]
fn a_stale_reply_past_which_requests_go_is_for_who_accepts_it_and_until_it_is_gone() {
    let (origin, at_origin) = failing();
    let server = caching(&origin, &[]);
    let get = |way: usize, asks: &[&str]| {
        at_origin.store(way, Ordering::Relaxed);
        let reply = server.get_with("/", asks);
        (reply.status, reply.text())
    };
    assert_eq!(get(0, &[]), (200, "good".into()));
    assert_eq!(get(3, &[]), (200, "own".into()));
    assert_eq!(get(4, &[]), (200, "good".into()));
    assert_eq!(get(4, &["Cache-Control: no-cache"]).0, 502);
    assert_eq!(get(1, &[]).0, 404);
    assert_eq!(get(4, &[]).0, 502);
    server.stop_cleanly();
}

#[test]
fn a_refusal_of_one_request_costs_the_others_neither_the_stored_reply_nor_its_use() {
    let (origin, way) = failing();
    let server = caching(&origin, &[]);
    assert_eq!(server.get("/").text(), "good");
    way.store(2, Ordering::Relaxed);
    assert_eq!(server.get_with("/", &["Cache-Control: no-cache"]).status, 431);
    way.store(4, Ordering::Relaxed);
    let stale = server.get("/");
    assert_eq!((stale.status, stale.text()), (200, "good".into()));
    way.store(0, Ordering::Relaxed);
    assert_eq!(server.get("/").text(), "good");
    assert!(is_conditional(origin.received().last().unwrap()));
    server.stop_cleanly();
}

fn a_validation_without_a_client_goes_to_another_server_when_its_connect_hangs(setup: &Setup) {
    let fields = "Cache-Control: max-age=0, stale-while-revalidate=60\r\n";
    let (origin, hangs) = (counting(fields), Faulty::start(Behaviour::NeverAccepts));
    let hangs = format!("http://{}", hangs.address());
    let options = [&CACHE[..], &["--workers", "1", "--connect-timeout", "300ms"]].concat();
    // Two servers that have nothing in flight have their turns.
    let server = setup.proxy(&[&origin.url(), &hangs], &options);
    assert_eq!(server.get("/").text(), "reply 0");
    assert_eq!(server.get("/").text(), "reply 0");
    until("it is validated", || origin.received().len() == 2);
    let stats = server.stop_cleanly().stats()["total"].clone();
    assert_eq!((&stats["upstream_timeouts"], &stats["upstream_repeated"]), (&0.into(), &1.into()));
}

#[test]
fn a_stale_reply_is_sent_when_the_upstream_has_no_place() {
    let (origin, gate) = gated("Cache-Control: max-age=0\r\nETag: \"v\"\r\n", b"good");
    gate.open();
    let options = ["--max-in-flight", "1", "--queue-target", "50ms"];
    let server = caching(&origin, &options);
    assert_eq!(server.get("/").text(), "good");
    gate.close();
    let mut busy = server.connect();
    busy.send(request("GET", "/busy", &[]));
    until("it is in flight", || origin.received().len() == 2);
    let stale = server.get("/");
    assert_eq!((stale.status, stale.text()), (200, "good".into()));
    assert!(status(&stale).starts_with("weir; hit; detail=stale-under-overload"));
    assert_eq!(server.get("/other").status, 503);
    gate.open();
    busy.reply();
    let stats = server.stop_cleanly().stats()["total"].clone();
    let count = |name: &str| stats[name].as_u64().unwrap();
    assert_eq!((count("proxy_cache_stale"), count("status_5xx")), (1, 1));
    assert_eq!(count("upstream_stale") + count("upstream_excess"), 1, "only /other was refused");
}

#[test]
fn unsafe_requests_and_purges_remove_what_is_stored() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |received| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        let fields = if received.line().starts_with("POST") {
            "Location: /other\r\n"
        } else {
            "Cache-Control: max-age=60\r\n"
        };
        reply_with(fields, format!("reply {nth}").as_bytes())
    });
    let server = caching(&origin, &["--cache-purge", "127.0.0.0/8"]);
    assert_eq!(
        (server.get("/a").text(), server.get("/other").text()),
        ("reply 0".into(), "reply 1".into())
    );
    let mut client = server.connect();
    client.send(request("POST", "/a", &["Content-Length: 0"]));
    assert_eq!(status(&client.reply()), "weir; fwd=method");
    assert_eq!(
        (server.get("/a").text(), server.get("/other").text()),
        ("reply 3".into(), "reply 4".into())
    );
    for expected in [200, 404] {
        client.send(request("PURGE", "/a", &[]));
        assert_eq!(client.reply().status, expected);
    }
    assert_eq!(
        (server.get("/a").text(), server.get("/other").text()),
        ("reply 5".into(), "reply 4".into())
    );
    let closed = caching(&origin, &[]);
    client = closed.connect();
    client.send(request("PURGE", "/a", &[]));
    assert_eq!(client.reply().status, 403);
    // Behind a trusted proxy the client counts, and not the proxy.
    let own = ["--cache-purge", "127.0.0.0/8", "--trusted-proxy", "127.0.0.1"];
    let behind = caching(&origin, &own);
    client = behind.connect();
    for (said, expected) in [
        ("X-Forwarded-For: 192.0.2.7", 403),
        ("X-Forwarded-For: unknown", 403),
        ("X-Forwarded-For: 127.0.0.2", 404),
    ] {
        client.send(request("PURGE", "/a", &[said]));
        assert_eq!(client.reply().status, expected, "{said}");
    }
}

#[test]
fn requests_say_what_they_accept() {
    let origin = counting("Cache-Control: max-age=60\r\n");
    let server = caching(&origin, &[]);
    let only = server.get_with("/", &["Cache-Control: only-if-cached"]);
    assert_eq!(only.status, 504);
    assert_eq!(server.get("/").text(), "reply 0");
    assert!(is_hit(&server.get_with("/", &["Cache-Control: only-if-cached"])));
    for control in ["Cache-Control: no-cache", "Pragma: no-cache", "Cache-Control: min-fresh=61"] {
        assert_eq!(
            status(&server.get_with("/", &[control])),
            "weir; fwd=request; stored",
            "{control}"
        );
    }
    assert_eq!(server.get("/").text(), "reply 3");
    assert_eq!(server.get_with("/", &["Cache-Control: no-store"]).text(), "reply 4");
    assert_eq!(server.get("/").text(), "reply 3");
}

#[test]
fn replies_that_are_for_one_client_are_not_stored() {
    for (fields, asking) in [
        ("Cache-Control: private, max-age=60\r\n", ""),
        ("Cache-Control: no-store, max-age=60\r\n", ""),
        ("Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n", ""),
        ("Cache-Control: max-age=60\r\n", "Authorization: Basic x"),
        ("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "Cookie: a=b"),
        ("Cache-Control: max-age=60\r\nVary: *\r\n", ""),
        ("Cache-Control: max-age=60, proxy-revalidate\r\n", "Authorization: Basic x"),
        ("Cache-Control: max-age=60\r\nVary: X-Forwarded-For\r\n", ""),
    ] {
        let origin = counting(fields);
        let server = caching(&origin, &[]);
        let asking: Vec<&str> = [asking].into_iter().filter(|field| !field.is_empty()).collect();
        assert_eq!(server.get_with("/", &asking).text(), "reply 0");
        assert_eq!(server.get_with("/", &asking).text(), "reply 1", "{fields}");
    }
}

#[test]
fn the_cache_keeps_to_its_size() {
    let body = vec![7; 100_000];
    let origin = Origin::start(move |received| {
        let size = if received.line().contains("large") { 5 } else { 1 };
        reply_with("Cache-Control: max-age=60\r\n", &body.repeat(size))
    });
    let options = ["--cache", "1M", "--workers", "1"];
    let server = Server::proxy(WEIR, &[&origin.url()], &options);
    for nth in 0..40 {
        assert_eq!(server.get(&format!("/{nth}")).body.len(), 100_000);
    }
    // Too large for an eighth of the cache.
    for _ in 0..2 {
        assert_eq!(server.get("/large").body.len(), 500_000);
    }
    let stats = server.stop_cleanly().stats()["total"].clone();
    assert!(stats["proxy_cache_bytes"].as_u64().unwrap() <= 1 << 20, "{stats}");
    assert!(stats["proxy_cache_evicted"].as_u64().unwrap() >= 30, "{stats}");
    assert_eq!(origin.received().len(), 42);
}

#[test]
fn pipelined_hits_and_misses_are_answered_in_order() {
    let origin = Origin::start(|received| {
        reply_with("Cache-Control: max-age=60\r\n", received.line().as_bytes())
    });
    let server = caching(&origin, &[]);
    server.get("/1");
    server.get("/3");
    let mut client = server.connect();
    let many: String = (0..6).map(|nth| request("GET", &format!("/{nth}"), &[])).collect();
    client.send(many);
    for nth in 0..6 {
        assert_eq!(client.reply().text(), format!("GET /{nth} HTTP/1.1"));
    }
}

#[test]
fn files_are_not_in_it() {
    let origin = counting("Cache-Control: max-age=60\r\n");
    let root = Root::with_hello();
    let upstream = format!("app={}", origin.url());
    let options = ["--cache", "1M", "--upstream", &upstream, "--route", "/api=app"];
    let server = Server::start(WEIR, &options, &root);
    assert_eq!(server.get("/hello.txt").field("Cache-Status"), None);
    assert_eq!(
        (server.get("/api").text(), server.get("/api").text()),
        ("reply 0".into(), "reply 0".into())
    );
}
