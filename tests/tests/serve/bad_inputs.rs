//! Bad inputs and the right answers, over real sockets: 32 kinds, numbered as in the parser's own
//! tests. After each one the server still serves, nothing from outside the root has been sent, and
//! it stops with exit status 0.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use rustix::process::Signal;
use weir_tests::files::SECRET;
use weir_tests::wait::until;
use weir_tests::{Client, Failure, Reply, Root, Server, Setup, Stopped, request, suite};

use crate::WEIR;

suite! {
    every_setup:
    content_length_and_transfer_encoding_together,
    two_different_content_lengths,
    content_length_that_is_not_a_number,
    space_before_the_colon,
    transfer_encoding_with_obs_fold,
    chunked_is_not_the_last_coding,
    unknown_transfer_coding,
    transfer_encoding_on_http_1_0,
    chunk_sizes_that_are_no_numbers,
    chunks_not_ended_by_crlf,
    controls_in_fields,
    host_missing_twice_or_malformed,
    white_space_before_the_first_field,
    nul_in_the_path,
    dots_that_climb,
    a_sibling_whose_name_starts_with_the_roots,
    links_out_of_the_root,
    redirects_stay_on_this_host,
    a_range_beyond_every_length_is_clamped,
    ranges_whose_sums_overflow,
    very_many_ranges,
    heads_that_are_too_large,
    methods_other_than_get_and_head,
    connect_ends_the_connection,
    versions_other_than_1_0_and_1_1,
    targets_that_are_none,
    expectations_that_cannot_be_met,
    conditions_that_are_malformed,
    the_http_2_preface,
    controls_in_the_path_reach_no_log_and_no_field,
}

suite! {
    every_architecture_at_once:
    a_trickled_header_meets_its_deadline,
    a_trickled_second_header_meets_its_deadline,
    a_trickled_body_meets_its_deadline,
    a_body_is_cut_at_the_deadline_of_the_whole_request,
    a_reply_read_below_the_minimum_rate_is_cut,
    a_reply_read_above_the_minimum_rate_is_not_cut,
    pipelined_replies_read_above_the_minimum_rate_are_not_cut,
    a_reply_read_in_bursts_above_the_minimum_rate_is_not_cut,
    bytes_read_quickly_do_not_pay_for_a_trickle,
    a_client_that_stops_reading_is_cut_whatever_it_has_read,
    a_refused_request_is_logged_escaped_and_cut,
    bytes_after_a_request_that_closes,
}

/// A server with `hello.txt` and `dir/index.html`.
struct Scene {
    /// The root directory, removed when dropped.
    _root: Root,
    server: Server,
}

impl Scene {
    fn new(setup: &Setup) -> Scene {
        Scene::with(setup, &[], |_| ())
    }

    fn with(setup: &Setup, options: &[&str], furnish: impl FnOnce(&Root)) -> Scene {
        let root = Root::with_hello();
        root.write("dir/index.html", "index");
        furnish(&root);
        let server = setup.serve(&root, options);
        Scene { _root: root, server }
    }

    /// Sends `bytes` on a new connection; the reply must have one of `statuses`.
    fn answer(&self, bytes: impl AsRef<[u8]>, statuses: &[u16]) -> (Reply, Client) {
        let shown = String::from_utf8_lossy(bytes.as_ref()).into_owned();
        let shown: String = shown.chars().take(300).collect();
        let mut client = self.server.connect();
        // A server may stop reading what it has refused: the reply counts, not the sending.
        let _ = client.try_send(bytes);
        let reply = client.try_reply().unwrap_or_else(|e| panic!("{e:?} for {shown:?}"));
        assert!(statuses.contains(&reply.status), "{} for {shown:?}", reply.status);
        assert!(!reply.text().contains(SECRET), "{shown:?}");
        (reply, client)
    }

    /// Like [`Scene::answer`], and the server ends the connection without another reply.
    fn refuses(&self, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
        let (reply, mut client) = self.answer(&bytes, statuses);
        let shown = String::from_utf8_lossy(bytes.as_ref());
        assert!(reply.lists("Connection", "close"), "{:?} for {shown:?}", reply.fields);
        assert!(client.is_closed(), "{shown:?}");
    }

    /// Like [`Scene::refuses`], for a head of `fields` under `GET /hello.txt`.
    fn refuses_fields(&self, fields: &[&str], statuses: &[u16]) {
        self.refuses(request("GET", "/hello.txt", fields), statuses);
    }

    /// Sends a GET of a target without encoding it; the reply must have one of `statuses`.
    fn target(&self, target: &str, statuses: &[u16]) -> Reply {
        self.answer(request("GET", target, &[]), statuses).0
    }

    fn range(&self, target: &str, range: &str, statuses: &[u16]) -> Reply {
        let field = format!("Range: bytes={range}");
        self.answer(request("GET", target, &[&field]), statuses).0
    }

    /// Asserts that the server still works, and stops it.
    fn end(self) {
        self.end_counted();
    }

    fn end_counted(self) -> Stopped {
        assert_eq!(self.server.get("/hello.txt").text(), "hello");
        self.server.stop_cleanly()
    }
}

fn chunked(body: &str) -> String {
    request("GET", "/hello.txt", &["Transfer-Encoding: chunked"]) + body
}

const LAST_CHUNK: &str = "0\r\n\r\n";

fn content_length_and_transfer_encoding_together(setup: &Setup) {
    let scene = Scene::new(setup);
    let length = "Content-Length: 5";
    let coding = "Transfer-Encoding: chunked";
    for fields in [[length, coding], [coding, length]] {
        scene.refuses(request("GET", "/hello.txt", &fields) + LAST_CHUNK, &[400]);
        scene.refuses(request("POST", "/hello.txt", &fields) + LAST_CHUNK, &[400]);
    }
    scene.end();
}

fn two_different_content_lengths(setup: &Setup) {
    let scene = Scene::new(setup);
    scene.refuses_fields(&["Content-Length: 5", "Content-Length: 6"], &[400]);
    scene.refuses_fields(&["Content-Length: 0", "Content-Length: 5"], &[400]);
    scene.refuses_fields(&["Content-Length: 5, 6"], &[400]);
    scene.end();
}

fn content_length_that_is_not_a_number(setup: &Setup) {
    let scene = Scene::new(setup);
    let values = ["+5", "-5", "5 5", "", "0x5", "5a", "18446744073709551616"];
    for value in values {
        scene.refuses_fields(&[&format!("Content-Length: {value}")], &[400]);
    }
    scene.end();
}

fn space_before_the_colon(setup: &Setup) {
    let scene = Scene::new(setup);
    scene.refuses_fields(&["Transfer-Encoding : chunked"], &[400]);
    scene.refuses_fields(&["Content-Length\t: 0"], &[400]);
    scene.refuses_fields(&["Accept : */*"], &[400]);
    scene.end();
}

fn transfer_encoding_with_obs_fold(setup: &Setup) {
    let scene = Scene::new(setup);
    scene.refuses_fields(&["Transfer-Encoding:", " chunked"], &[400]);
    scene.refuses_fields(&["Transfer-Encoding: chunked", "\tidentity"], &[400]);
    scene.end();
}

fn chunked_is_not_the_last_coding(setup: &Setup) {
    let scene = Scene::new(setup);
    scene.refuses_fields(&["Transfer-Encoding: chunked, identity"], &[400]);
    scene.refuses_fields(&["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], &[400]);
    scene.end();
}

fn unknown_transfer_coding(setup: &Setup) {
    let scene = Scene::new(setup);
    scene.refuses_fields(&["Transfer-Encoding: xchunked"], &[400, 501]);
    scene.end();
}

fn transfer_encoding_on_http_1_0(setup: &Setup) {
    let scene = Scene::new(setup);
    let head = "GET /hello.txt HTTP/1.0\r\nHost: a\r\n";
    let fields = "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n";
    scene.refuses(format!("{head}{fields}{LAST_CHUNK}"), &[400]);
    scene.end();
}

fn chunk_sizes_that_are_no_numbers(setup: &Setup) {
    let scene = Scene::new(setup);
    for size in
        ["FFFFFFFFFFFFFFFFF", "0x5", "0_2e", "+5", "-5", "", "5 5", "g", "5;", "5;a=", "5;=b"]
    {
        scene.refuses(chunked(&format!("{size}\r\nhello\r\n{LAST_CHUNK}")), &[400]);
    }
    scene.end();
}

fn chunks_not_ended_by_crlf(setup: &Setup) {
    let scene = Scene::new(setup);
    scene.refuses(chunked("5;ext\nhello\r\n0\r\n\r\n"), &[400]);
    scene.refuses(chunked("5\nhello\r\n0\r\n\r\n"), &[400]);
    scene.refuses(chunked("5\r\nhelloXX0\r\n\r\n"), &[400]);
    scene.refuses(chunked("5\r\nhello\n0\r\n\r\n"), &[400]);
    scene.end();
}

fn controls_in_fields(setup: &Setup) {
    let scene = Scene::new(setup);
    for control in ["\0", "\r", "\x01", "\x0b", "\x1b", "\x7f"] {
        scene.refuses_fields(&[&format!("Accept: a{control}b")], &[400]);
        scene.refuses_fields(&[&format!("Acc{control}ept: a")], &[400]);
    }
    scene.end();
}

fn host_missing_twice_or_malformed(setup: &Setup) {
    let scene = Scene::new(setup);
    let heads = [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: a@b\r\n",
        "Host: [::1\r\n",
    ];
    for fields in heads {
        scene.answer(format!("GET /hello.txt HTTP/1.1\r\n{fields}\r\n"), &[400]);
    }
    scene.end();
}

fn white_space_before_the_first_field(setup: &Setup) {
    let scene = Scene::new(setup);
    scene.refuses("GET /hello.txt HTTP/1.1\r\n Host: a\r\n\r\n", &[400]);
    scene.refuses("GET /hello.txt HTTP/1.1\r\n\tHost: a\r\n\r\n", &[400]);
    scene.refuses("GET /hello.txt HTTP/1.1\r\n \r\nHost: a\r\n\r\n", &[400]);
    scene.end();
}

fn nul_in_the_path(setup: &Setup) {
    let scene = Scene::new(setup);
    for target in ["/%00", "/hello.txt%00", "/hello.txt%00.html", "/%00/../hello.txt"] {
        scene.target(target, &[400, 404]);
    }
    scene.end();
}

fn dots_that_climb(setup: &Setup) {
    let scene = Scene::new(setup);
    let targets = [
        "/.%2e/%2e%2e/etc/passwd",
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/%2E%2E%2Fsecret.txt",
        "/%%32%65%%32%65/secret.txt",
        "/%252e%252e/secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/..%c0%afsecret.txt",
        "/..\\secret.txt",
        "/..%5csecret.txt",
        "/dir/../../secret.txt",
        "/dir/..%2f..%2fsecret.txt",
        "/..",
        "/../",
        "/./../secret.txt",
        "//../secret.txt",
        "http://test.example/../secret.txt",
        "/..;/secret.txt",
        "../secret.txt",
    ];
    for target in targets {
        scene.target(target, &[400, 404]);
    }
    scene.end();
}

fn a_sibling_whose_name_starts_with_the_roots(setup: &Setup) {
    let scene = Scene::with(setup, &["--symlinks", "inside"], |root| {
        symlink("../www-private/secret.txt", root.path().join("relative")).unwrap();
        symlink(root.outside().join("www-private"), root.path().join("absolute")).unwrap();
    });
    scene.target("/../www-private/secret.txt", &[400, 404]);
    scene.target("/..%2fwww-private/secret.txt", &[400, 404]);
    scene.target("-private/secret.txt", &[400, 404]);
    scene.target("/relative", &[404]);
    scene.target("/absolute/secret.txt", &[404]);
    scene.end();
}

/// Creates links out of the root at each position of a path, and one that stays inside.
fn furnish_with_links(root: &Root) {
    let (outside, inside) = (root.outside(), root.path());
    symlink(outside.join("secret.txt"), inside.join("file")).unwrap();
    symlink("../secret.txt", inside.join("relative")).unwrap();
    symlink(outside.join("www-private"), inside.join("parent")).unwrap();
    fs::create_dir(inside.join("indexed")).unwrap();
    symlink(outside.join("secret.txt"), inside.join("indexed/index.html")).unwrap();
    symlink("hello.txt", inside.join("inside")).unwrap();
}

fn links_out_of_the_root(setup: &Setup) {
    let outward = ["/file", "/relative", "/parent/secret.txt", "/parent/", "/indexed/"];
    let denying = Scene::with(setup, &[], furnish_with_links);
    for target in outward.iter().chain(&["/inside"]) {
        denying.target(target, &[404]);
    }
    denying.end();
    let following = Scene::with(setup, &["--symlinks", "inside"], furnish_with_links);
    for target in outward {
        following.target(target, &[404]);
    }
    assert_eq!(following.target("/inside", &[200]).text(), "hello");
    following.end();
}

fn redirects_stay_on_this_host(setup: &Setup) {
    let scene = Scene::with(setup, &[], |root| {
        root.write("\\\\host/index.html", "index");
        root.write("\\host/index.html", "index");
    });
    let targets = [
        "/dir",
        "//dir",
        "///dir",
        "/%5C%5Chost",
        "/%5C%5Chost/..",
        "/%5Chost",
        "/\\host",
        "//%5Chost",
        "//test.example/dir",
        "/.//dir",
    ];
    for target in targets {
        let reply = scene.target(target, &[301, 308, 400, 404]);
        if let Some(location) = reply.field("Location") {
            let second = location.strip_prefix('/').and_then(|rest| rest.chars().next());
            assert!(matches!(second, Some(c) if c != '/' && c != '\\'), "{location}");
        }
    }
    assert_eq!(scene.target("/dir", &[301, 308]).expect_field("Location"), "/dir/");
    scene.end();
}

fn a_range_beyond_every_length_is_clamped(setup: &Setup) {
    let scene = Scene::new(setup);
    let reply = scene.range("/hello.txt", "0-18446744073709551615", &[206]);
    assert_eq!(reply.expect_field("Content-Range"), "bytes 0-4/5");
    assert_eq!(reply.text(), "hello");
    scene.end();
}

fn ranges_whose_sums_overflow(setup: &Setup) {
    let scene = Scene::new(setup);
    for suffix in ["-9223372036854775808", "-18446744073709551615", "-18446744073709551616"] {
        assert_eq!(scene.range("/hello.txt", suffix, &[200, 206]).text(), "hello");
    }
    let reply = scene.range("/hello.txt", "1-18446744073709551616", &[200, 206]);
    assert_eq!(reply.text(), if reply.status == 206 { "ello" } else { "hello" });
    let beyond = ["18446744073709551615-18446744073709551615", "9223372036854775808-"];
    for range in beyond {
        let reply = scene.range("/hello.txt", range, &[200, 416]);
        assert!(reply.status == 416 || reply.text() == "hello");
    }
    scene.end();
}

fn very_many_ranges(setup: &Setup) {
    let size = 65_536;
    let scene = Scene::with(setup, &[], |root| drop(root.write_noise("noise", size)));
    let apart: Vec<_> = (0..1300).map(|i| format!("{0}-{0}", 2 * i)).collect();
    let reply = scene.range("/noise", &apart.join(","), &[200, 206, 416]);
    assert!(reply.body.len() < 1300 * 300, "{} bytes", reply.body.len());
    for ranges in [vec!["0-"; 1300], vec!["0-"; 30], vec!["100-60000"; 30], vec!["-9"; 1300]] {
        let reply = scene.range("/noise", &ranges.join(","), &[200, 206, 416]);
        assert!(reply.body.len() < 2 * size, "{} bytes", reply.body.len());
    }
    scene.end();
}

fn heads_that_are_too_large(setup: &Setup) {
    let scene = Scene::new(setup);
    let long = "x".repeat(70_000);
    scene.refuses(request("GET", &format!("/{long}"), &[]), &[414]);
    scene.refuses_fields(&[&format!("Long: {long}")], &[431]);
    scene.refuses_fields(&[&format!("{long}: long")], &[431]);
    scene.refuses_fields(&["A: b"; 5000], &[431]);
    scene.end();
}

/// Sends `start`, then repeats `rest`, each byte long before any limit between bytes would expire.
/// The connection must end, with 408 if anything, before all is sent.
fn trickle_is_cut(scene: &Scene, start: &str, rest: &str, statuses: &[u16]) {
    let mut client = scene.server.connect();
    client.send(start);
    let sent_all = client.trickle(rest.as_bytes(), Duration::from_millis(40));
    assert!(!sent_all, "{start:?}");
    match client.try_reply() {
        Ok(reply) => assert!(statuses.contains(&reply.status), "{}", reply.status),
        Err(failure) => assert!(matches!(failure, Failure::Closed(_)), "{failure:?}"),
    }
    assert!(client.ends());
}

fn a_trickled_header_meets_its_deadline(setup: &Setup) {
    let scene = Scene::with(setup, &["--header-timeout", "1s"], |_| ());
    trickle_is_cut(&scene, "", &request("GET", &format!("/{}", "x".repeat(2000)), &[]), &[408]);
    let start = "GET /hello.txt HTTP/1.1\r\nHost: a\r\nLong: ";
    trickle_is_cut(&scene, start, &"x".repeat(2000), &[408]);
    scene.end();
}

fn a_trickled_second_header_meets_its_deadline(setup: &Setup) {
    let scene = Scene::with(setup, &["--header-timeout", "1s", "--idle-timeout", "10m"], |_| ());
    let mut client = scene.server.connect();
    assert_eq!(client.get("/hello.txt").text(), "hello");
    let sent_all =
        client.trickle(format!("GET /{}", "x".repeat(2000)).as_bytes(), Duration::from_millis(40));
    assert!(!sent_all);
    assert!(client.ends());
    scene.end();
}

fn a_trickled_body_meets_its_deadline(setup: &Setup) {
    let scene = Scene::with(setup, &["--body-timeout", "1s", "--linger-timeout", "1s"], |_| ());
    let mut client = scene.server.connect();
    client.send(request("POST", "/hello.txt", &["Content-Length: 2000"]));
    // A reply may come before the body has: it is the connection that must end.
    let pause = Duration::from_millis(40);
    let mut rest = vec![b'x'; 2000];
    while !rest.is_empty() && client.try_send([b'x']).is_ok() {
        rest.pop();
        std::thread::sleep(pause);
    }
    assert!(!rest.is_empty(), "the whole body was waited for");
    assert!(client.ends());
    scene.end();
}

fn a_body_is_cut_at_the_deadline_of_the_whole_request(setup: &Setup) {
    let options = ["--request-timeout", "500ms", "--body-timeout", "10m"];
    let scene = Scene::with(setup, &options, |_| ());
    let mut client = scene.server.connect();
    client.send(request("GET", "/hello.txt", &["Content-Length: 10"]));
    // It is answered at once; what is waited for is the rest of the body, and its end.
    assert_eq!(client.reply().status, 200);
    assert!(client.is_closed());
    until("it was cut", || scene.server.open_connections() == 0);
    scene.end();
}

fn a_reply_read_below_the_minimum_rate_is_cut(setup: &Setup) {
    let options = ["--min-rate", "1M", "--min-rate-grace", "1s", "--request-timeout", "10m"];
    let size = 32 << 20;
    let scene = Scene::with(setup, &options, |root| drop(root.write_noise("large", size)));
    let mut client = Client::connect_narrow(scene.server.address());
    client.send(request("GET", "/large", &[]));
    let head = client.head().unwrap();
    until("the connection was cut", || {
        client.read_slowly(1, 1, Duration::from_millis(200));
        scene.server.signal(Signal::USR1);
        scene.server.stats_so_far().is_some_and(|stats| stats["total"]["timeout_rate"] == 1)
    });
    assert!(matches!(client.body(head), Err(Failure::Short(_))));
    scene.end();
}

fn a_reply_read_above_the_minimum_rate_is_not_cut(setup: &Setup) {
    let options = ["--min-rate", "50k", "--min-rate-grace", "1s"];
    let scene = Scene::with(setup, &options, |root| drop(root.write_noise("large", 3 << 20)));
    let mut client = Client::connect_narrow(scene.server.address());
    client.send(request("GET", "/large", &[]));
    assert!(client.read_slowly(2 << 20, 8192, Duration::from_millis(20)));
    assert_eq!(client.reply().body.len(), 3 << 20);
    scene.end();
}

fn pipelined_replies_read_above_the_minimum_rate_are_not_cut(setup: &Setup) {
    let options = ["--min-rate", "50k", "--min-rate-grace", "1s"];
    let scene = Scene::with(setup, &options, |root| drop(root.write_noise("large", 3 << 20)));
    let mut client = Client::connect_narrow(scene.server.address());
    client.send([request("GET", "/large", &[]), request("GET", "/large", &[])].concat());
    assert!(client.read_slowly(5 << 20, 32768, Duration::from_millis(20)));
    for _ in 0..2 {
        assert_eq!(client.reply().body.len(), 3 << 20);
    }
    scene.end();
}

fn a_reply_read_in_bursts_above_the_minimum_rate_is_not_cut(setup: &Setup) {
    let options = ["--min-rate", "50k", "--min-rate-grace", "1s", "--stall-timeout", "20s"];
    let scene = Scene::with(setup, &options, |root| drop(root.write_noise("large", 16 << 20)));
    let mut client = scene.server.connect();
    client.send(request("GET", "/large", &[]));
    // With a buffer that has grown, the client's kernel is silent for seconds at this speed.
    assert!(client.read_slowly(6 << 20, 1 << 20, Duration::ZERO));
    assert!(client.read_slowly(1 << 20, 4096, Duration::from_millis(40)));
    assert_eq!(client.reply().body.len(), 16 << 20);
    scene.end();
}

/// Reads 6 MiB of a large file quickly, then continues with `read_on`, until `counter` reports that
/// the reply was cut.
fn is_cut_after_reading_quickly(
    setup: &Setup,
    options: &[&str],
    counter: &str,
    mut read_on: impl FnMut(&mut Client),
) {
    let scene = Scene::with(setup, options, |root| drop(root.write_noise("large", 32 << 20)));
    let mut client = Client::connect_narrow(scene.server.address());
    client.send(request("GET", "/large", &[]));
    let head = client.head().unwrap();
    assert!(client.read_slowly(6 << 20, 1 << 20, Duration::ZERO));
    until("the connection was cut", || {
        read_on(&mut client);
        scene.server.signal(Signal::USR1);
        scene.server.stats_so_far().is_some_and(|stats| stats["total"][counter] == 1)
    });
    assert!(matches!(client.body(head), Err(Failure::Short(_))));
    scene.end();
}

/// Without forgetting, the bytes read quickly would buy two minutes.
fn bytes_read_quickly_do_not_pay_for_a_trickle(setup: &Setup) {
    let options = ["--min-rate", "50k", "--min-rate-grace", "1s", "--stall-timeout", "0"];
    is_cut_after_reading_quickly(setup, &options, "timeout_rate", |client| {
        client.read_slowly(1, 1, Duration::from_millis(200));
    });
}

fn a_client_that_stops_reading_is_cut_whatever_it_has_read(setup: &Setup) {
    for min_rate in ["1k", "0"] {
        let options = ["--min-rate", min_rate, "--stall-timeout", "1s"];
        is_cut_after_reading_quickly(setup, &options, "timeout_stall", |_| {
            std::thread::sleep(Duration::from_millis(100));
        });
    }
}

fn methods_other_than_get_and_head(setup: &Setup) {
    let scene = Scene::new(setup);
    let (reply, _) = scene.answer(request("BREW", "/hello.txt", &[]), &[501]);
    assert!(reply.field("Allow").is_none());
    for method in ["POST", "PUT", "DELETE", "TRACE"] {
        let (reply, _) = scene.answer(request(method, "/hello.txt", &[]), &[405]);
        assert!(reply.lists("Allow", "GET") && reply.lists("Allow", "HEAD"), "{method}");
    }
    scene.answer(request("get", "/hello.txt", &[]), &[501]);
    scene.end();
}

fn connect_ends_the_connection(setup: &Setup) {
    let scene = Scene::new(setup);
    let tunnelled = request("GET", "/hello.txt", &[]);
    for target in ["test.example:443", "/hello.txt"] {
        let (reply, mut client) =
            scene.answer(request("CONNECT", target, &[]) + &tunnelled, &[405]);
        assert!(reply.lists("Connection", "close"), "{:?}", reply.fields);
        assert!(client.is_closed(), "{target}");
    }
    scene.refuses(request("CONNECT", "a:1", &["Content-Length: 5"]) + "hello" + &tunnelled, &[405]);
    let stopped = scene.end_counted();
    assert_eq!(stopped.stats()["total"]["requests"], 4, "three, and the one that ends the test");
}

fn versions_other_than_1_0_and_1_1(setup: &Setup) {
    let scene = Scene::new(setup);
    let line = |version: &str| format!("GET /hello.txt {version}\r\nHost: a\r\n\r\n");
    scene.answer(line("HTTP/2.0"), &[505]);
    scene.answer(line("http/1.1"), &[400]);
    scene.answer(line("HTTP/1.1.1"), &[400]);
    scene.answer(line("HTTP/11"), &[400]);
    let (reply, mut client) = scene.answer(line("HTTP/1.2"), &[200]);
    assert_eq!(reply.text(), "hello");
    assert_eq!(client.get("/hello.txt").text(), "hello");
    scene.end();
}

fn targets_that_are_none(setup: &Setup) {
    let scene = Scene::new(setup);
    for target in ["/hello.txt x", " /hello.txt", "/hello.txt#fragment", "*", "hello.txt", ""] {
        scene.target(target, &[400]);
    }
    scene.end();
}

fn expectations_that_cannot_be_met(setup: &Setup) {
    let scene = Scene::new(setup);
    for expectation in ["Expect: 200-ok", "Expect: 100-continue, else", "Expect: x"] {
        scene.answer(request("GET", "/hello.txt", &[expectation]), &[417]);
    }
    scene.end();
}

fn conditions_that_are_malformed(setup: &Setup) {
    let scene = Scene::new(setup);
    let get = |fields: &[&str], status| {
        let (reply, _) = scene.answer(request("GET", "/hello.txt", fields), &[status]);
        reply.text()
    };
    assert_eq!(get(&["If-None-Match: *"], 304), "");
    get(&["If-Match: \"mismatch\""], 412);
    assert_eq!(get(&["Range: bytes=0-1", "If-Range: \"mismatch\""], 200), "hello");
    for garbage in ["garbage", "Sun, 99 Foo 2001 01:46:40 GMT", "1000000000", ""] {
        assert_eq!(get(&[&format!("If-Modified-Since: {garbage}")], 200), "hello");
        assert_eq!(get(&[&format!("If-Unmodified-Since: {garbage}")], 200), "hello");
    }
    scene.end();
}

fn the_http_2_preface(setup: &Setup) {
    let scene = Scene::new(setup);
    scene.refuses("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400, 505]);
    scene.end();
}

fn controls_in_the_path_reach_no_log_and_no_field(setup: &Setup) {
    let log_dir = Root::new();
    let log = log_dir.path().join("access.log");
    let options = ["--access-log", log.to_str().unwrap()];
    let scene = Scene::with(setup, &options, |root| drop(root.write("a\r\nb/index.html", "index")));
    let encoded = ["/%0d%0aSet-Cookie:%20a=b", "/a%0d%0ab", "/a%0Ab/", "/%1b%5B2J", "/%7f"];
    for target in encoded {
        let reply = scene.target(target, &[400, 404]);
        assert!(reply.field("Set-Cookie").is_none());
    }
    for target in ["/a\x01b", "/a\x0bb", "/a\x7fb", "/a\rb"] {
        scene.target(target, &[400, 404]);
    }
    scene.end();
    let log = fs::read(log).unwrap();
    assert!(!log.iter().any(|byte| byte.is_ascii_control() && *byte != b'\n'));
    let lines = log.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    assert!(lines.clone().count() >= encoded.len());
    for line in lines {
        assert!(line.starts_with(b"127.0.0.1 "), "{}", String::from_utf8_lossy(line));
    }
}

/// Returns the lines that a log in this format has about refused bytes, each sent on a new
/// connection.
fn refused_and_logged(setup: &Setup, format: &str) -> Vec<String> {
    let log_dir = Root::new();
    let log = log_dir.path().join("access.log");
    let options =
        ["--access-log", log.to_str().unwrap(), "--log-format", format, "--header-timeout", "1s"];
    let scene = Scene::with(setup, &options, |_| ());
    let chunked = request("POST", "/hello.txt", &["Transfer-Encoding: chunked"]) + "5;\r\nhello";
    let refused: [(&[u8], u16); 7] = [
        (b"GET /a\x01\x7f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"\x16\x03\x01 hello\r\n\r\n", 400),
        ("GET /\u{9b}2J\u{2028} HTTP/1.1\r\n\r\n".as_bytes(), 400),
        (&[b"GET /".to_vec(), vec![b'x'; 70_000]].concat(), 414),
        (b"GET /no-host HTTP/1.1\r\n\r\n", 400),
        (chunked.as_bytes(), 400),
        (b"GET /slow HTT", 408),
    ];
    for (bytes, status) in refused {
        scene.answer(bytes, &[status]);
    }
    scene.end();
    let text = String::from_utf8(fs::read(log).unwrap()).unwrap();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let listed = |line: &String, status: u16| line.contains(&status.to_string());
    assert_eq!(lines.len(), refused.len() + 1, "{text}");
    for (_, status) in refused {
        assert!(lines.iter().any(|line| listed(line, status)), "{status} in {text}");
    }
    let is_obeyed = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    assert!(lines.iter().all(|line| !line.chars().any(is_obeyed) && line.len() < 4096), "{text}");
    lines
}

fn a_refused_request_is_logged_escaped_and_cut(setup: &Setup) {
    let is_logged = |lines: &[String], request: &str| {
        assert!(lines.iter().any(|line| line.contains(request)), "{request} in {lines:?}");
    };
    let combined = refused_and_logged(setup, "combined");
    let cut = "x".repeat(500) + "...\"";
    let shown = [
        "\"GET /a\\x01\\x7f HTTP/1.1\" 400",
        "\"\\x16\\x03\\x01 hello\" 400",
        "\"GET /\\xc2\\x9b2J\\xe2\\x80\\xa8 HTTP/1.1\" 400",
        &cut,
        "\"GET /no-host HTTP/1.1\" 400",
        "\"POST /hello.txt HTTP/1.1\" 400",
        "\"GET /slow HTT\" 408",
    ];
    shown.into_iter().for_each(|request| is_logged(&combined, request));
    let json = refused_and_logged(setup, "json");
    let shown = [
        "\"GET /a\\u0001\\u007f HTTP/1.1\"",
        "\"\\u0016\\u0003\\u0001 hello\"",
        "\"GET /\\u009b2J\\u2028 HTTP/1.1\"",
        &cut,
        "\"GET /no-host HTTP/1.1\"",
        "\"POST /hello.txt HTTP/1.1\"",
        "\"GET /slow HTT\"",
    ];
    shown.into_iter().for_each(|request| is_logged(&json, request));
    let is_object = |line: &String| serde_json::from_str::<serde_json::Value>(line).is_ok();
    assert!(json.iter().all(is_object), "{json:?}");
}

fn bytes_after_a_request_that_closes(setup: &Setup) {
    let scene = Scene::with(setup, &[], |root| drop(root.write_noise("noise", 200_000)));
    let last = request("GET", "/noise", &["Connection: close"]);
    let ignored = request("GET", "/hello.txt", &[]).repeat(1000);
    let mut client = Client::connect_narrow(scene.server.address());
    client.send(last + &ignored);
    assert_eq!(client.reply().body.len(), 200_000);
    assert!(client.is_closed());
    let mut client = scene.server.connect();
    client.send("GET / HTTP/9.9\r\n\r\n".to_owned() + &ignored);
    assert_eq!(client.reply().status, 505);
    assert!(client.is_closed());
    scene.end();
}
