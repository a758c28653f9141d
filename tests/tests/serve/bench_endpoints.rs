//! `--bench-endpoints`: requests that burn processor time, alone or before any path. The time burnt
//! is read from the server's own statistics; no test here measures a duration.

use std::fs;
use std::path::Path;

use weir_tests::files::{SECRET, settle, settled_file_set};
use weir_tests::load::load;
use weir_tests::{Reply, Root, Server, assert_same, request};

use crate::WEIR;

/// Returns the parts of a reply that do not depend on when it was made.
fn lasting(reply: &Reply) -> (u16, Vec<(String, String)>, &[u8]) {
    let fields = reply.fields.iter().filter(|(name, _)| name != "Date");
    (reply.status, fields.cloned().collect(), &reply.body)
}

fn serve(root: impl AsRef<Path>, options: &[&str]) -> Server {
    let options = [&["--bench-endpoints", "--workers", "1"], options].concat();
    Server::start(WEIR, &options, root)
}

const BURNS: [&str; 3] = ["/.weir/burn?us=1", "/.weir/burn/1/hello.txt", "/.weir/burn/1/"];

#[test]
fn they_are_not_there_unless_asked_for() {
    let root = Root::with_hello();
    for options in [&[][..], &["--bench-endpoints=off"]] {
        let server = Server::start(WEIR, options, &root);
        for target in BURNS.into_iter().chain(["/.weir/burn?us=x", "/.weir/burn"]) {
            assert_eq!(server.get(target).status, 404, "{target}");
        }
        let stopped = server.stop_cleanly();
        assert!(!stopped.stderr.contains("--bench-endpoints"), "{}", stopped.stderr);
    }
}

#[test]
fn a_server_that_has_them_warns_in_one_line() {
    let root = Root::with_hello();
    let config = root.outside().join("weir.toml");
    fs::write(&config, "bench-endpoints = true\n").unwrap();
    let config = config.display().to_string();
    for options in [&["--bench-endpoints"][..], &["--config", &config]] {
        let server = Server::start(WEIR, options, &root);
        assert_eq!(server.get("/.weir/burn?us=1").status, 200);
        let stderr = server.stop_cleanly().stderr;
        let warnings = stderr.lines().filter(|line| line.contains("--bench-endpoints is on"));
        assert_eq!(warnings.count(), 1, "{stderr}");
    }
}

#[test]
fn a_burn_says_how_much_it_burnt() {
    let root = Root::with_hello();
    let server = serve(&root, &[]);
    let mut client = server.connect();
    for (number, shown) in [("0", "0"), ("7", "7"), ("0012", "12"), ("1000000", "1000000")] {
        let reply = client.get(&format!("/.weir/burn?us={number}"));
        assert_eq!((reply.status, reply.text()), (200, format!("burnt {shown} us\n")));
        assert_eq!(reply.expect_field("Content-Type"), "text/plain");
    }
    let head = client.head_with("/.weir/burn?us=5", &[]);
    assert_eq!((head.status, head.expect_field("Content-Length")), (200, "11"));
    let absolute = client.get("http://test.example/.weir/burn?us=3");
    assert_eq!(absolute.text(), "burnt 3 us\n");
    server.stop_cleanly();
}

#[test]
fn an_invalid_time_is_400_and_the_connection_continues() {
    let root = Root::with_hello();
    let server = serve(&root, &["--dotfiles"]);
    let mut client = server.connect();
    let times = ["", "+1", "-1", "1000001", "18446744073709551617", "a", "1.5", "1us", "%31"];
    let of_both = times.into_iter().flat_map(|time| {
        [format!("/.weir/burn?us={time}"), format!("/.weir/burn/{time}/hello.txt")]
    });
    let others = [
        "/.weir/burn",
        "/.weir/burn?",
        "/.weir/burn?us",
        "/.weir/burn?us=1&us=2",
        "/.weir/burn?us=1&a=b",
        "/.weir/burn?a=b&us=1",
        "/.weir/burn?ms=1",
        "/.weir/burn/",
        "/.weir/burn/1",
        "/.weir/burn/hello.txt",
    ];
    for target in of_both.chain(others.map(str::to_owned)) {
        assert_eq!(client.get(&target).status, 400, "{target}");
    }
    assert_eq!(client.get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

#[test]
fn other_paths_and_other_methods_are_as_ever() {
    let root = Root::with_hello();
    let server = serve(&root, &[]);
    let mut client = server.connect();
    for target in [
        "/.weir",
        "/.weir/",
        "/.weir/burnt?us=1",
        "/.weir/other?us=1",
        "/%2eweir/burn?us=1",
        "/.weir/%62urn/1/hello.txt",
        "/.weir/burn/1/.weir/burn?us=1",
        "/.weir/burn/1/.weir/burn/1/hello.txt",
    ] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    for target in BURNS {
        client.send(request("POST", target, &[]));
        assert_eq!(client.reply().status, 405, "{target}");
        client.send(request("OPTIONS", target, &[]));
        assert_eq!(client.reply().status, 204, "{target}");
    }
    server.stop_cleanly();
}

#[test]
fn behind_the_prefix_every_file_is_served_as_without_it() {
    // Settled, because the tag of a file that has just changed is another at each reply.
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-endpoints");
    let files = settled_file_set(&root);
    let server = serve(&root, &[]);
    let mut client = server.connect();
    for file in &files {
        let (plain, behind) = (&file.target, format!("/.weir/burn/1{}", file.target));
        let reply = client.get(&behind);
        assert_same(&reply.body, &file.body, plain);
        let etag = reply.expect_field("ETag").to_owned();
        assert_eq!(lasting(&reply), lasting(&client.get(plain)), "{plain}");
        let fields = [
            "Range: bytes=0-99".to_owned(),
            "Range: bytes=-1".to_owned(),
            "Range: bytes=9999999-".to_owned(),
            format!("If-None-Match: {etag}"),
            "If-Match: \"other\"".to_owned(),
            "Accept-Encoding: br, gzip".to_owned(),
        ];
        for field in fields {
            let with_prefix = client.get_with(&behind, &[&field]);
            let without = client.get_with(plain, &[&field]);
            assert_eq!(lasting(&with_prefix), lasting(&without), "{field} of {plain}");
            let with_prefix = client.head_with(&behind, &[&field]);
            let without = client.head_with(plain, &[&field]);
            assert_eq!(lasting(&with_prefix), lasting(&without), "HEAD, {field} of {plain}");
        }
    }
    server.stop_cleanly();
}

#[test]
fn ranges_and_conditions_behind_the_prefix_have_their_statuses() {
    let root = Root::with_hello();
    settle(&root.path().join("hello.txt"));
    let server = serve(&root, &[]);
    let mut client = server.connect();
    let target = "/.weir/burn/10/hello.txt";
    let part = client.get_with(target, &["Range: bytes=1-2"]);
    assert_eq!((part.status, part.text()), (206, "el".to_owned()));
    let etag = format!("If-None-Match: {}", part.expect_field("ETag"));
    assert_eq!(client.get_with(target, &[&etag]).status, 304);
    let head = client.head_with(target, &[]);
    assert_eq!((head.status, head.expect_field("Content-Length")), (200, "5"));
    assert_eq!(client.get("/.weir/burn/10/none").status, 404);
    assert_eq!(client.get("/.weir/burn/10/hello.txt?a=b").text(), "hello");
    server.stop_cleanly();
}

#[test]
fn directories_redirect_behind_the_prefix_and_not_out_of_it() {
    let root = Root::new();
    root.write("index.html", "top");
    root.write("a dir/index.html", "index");
    let server = serve(&root, &[]);
    let mut client = server.connect();
    assert_eq!(client.get("/.weir/burn/3/").text(), "top");
    for (target, location) in [
        ("/.weir/burn/3/a%20dir", "/.weir/burn/3/a%20dir/"),
        ("/.weir/burn/003/a%20dir?q=1", "/.weir/burn/003/a%20dir/?q=1"),
        ("/.weir/burn/3//a%20dir", "/.weir/burn/3/a%20dir/"),
    ] {
        let reply = client.get(target);
        assert_eq!((reply.status, reply.field("Location")), (301, Some(location)));
        assert_eq!(client.get(location).text(), "index");
    }
    server.stop_cleanly();
}

#[test]
fn a_listing_behind_the_prefix_links_within_it() {
    let root = Root::new();
    root.write("dir/file.txt", "x");
    let server = serve(&root, &["--listing"]);
    let listing = server.get("/.weir/burn/1/dir/");
    assert_eq!(listing.text(), server.get("/dir/").text());
    assert!(listing.text().contains("href=\"file.txt\""), "{}", listing.text());
    assert_eq!(server.get("/.weir/burn/1/dir/file.txt").text(), "x");
    server.stop_cleanly();
}

#[test]
fn no_path_behind_the_prefix_leads_out_of_the_root() {
    let root = Root::with_hello();
    let server = serve(&root, &[]);
    let mut client = server.connect();
    for path in [
        "/../../etc/passwd",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/../../../../../secret.txt",
        "/dir/../../secret.txt",
        "//../secret.txt",
        "/./hello.txt",
        "/../hello.txt",
        "/%00",
        "/hello.txt%00",
        "/%",
        "/%252e%252e/secret.txt",
        "/.git",
        "/..\\secret.txt",
    ] {
        let reply = client.get(&format!("/.weir/burn/1{path}"));
        assert!([400, 404].contains(&reply.status), "{path}: {reply:?}");
        assert!(!reply.text().contains(SECRET), "{path}");
        assert_eq!(reply.status, client.get(path).status, "{path}");
    }
    server.stop_cleanly();
}

#[test]
fn the_prefix_is_no_way_past_a_route() {
    let root = Root::with_hello();
    root.write("admin/secret.txt", "secret");
    let config = root.outside().join("weir.toml");
    fs::write(&config, "[[route]]\npath = '/admin'\nallow = ['192.0.2.1']\n").unwrap();
    let server = serve(&root, &["--config", config.to_str().unwrap()]);
    let mut client = server.connect();
    assert_eq!(client.get("/admin/secret.txt").status, 403);
    for target in [
        "/.weir/burn/0/admin/secret.txt",
        "/.weir/burn/0//%61dmin/secret.txt",
        "/.weir/work/2/fixed/1/admin/secret.txt",
    ] {
        assert_eq!(client.get(target).status, 400, "{target}");
    }
    assert_eq!(client.get("/.weir/burn/0/hello.txt").text(), "hello");
    assert_eq!(client.get("/.weir/burn?us=0").status, 200);
    server.stop_cleanly();
}

#[test]
fn pipelined_burns_are_answered_in_order() {
    let root = Root::with_hello();
    let server = serve(&root, &[]);
    let mut client = server.connect();
    let requests = (0..20).map(|number| {
        request("GET", &format!("/.weir/burn?us={number}"), &[])
            + &request("HEAD", "/.weir/burn?us=1", &[])
            + &request("GET", &format!("/.weir/burn/{number}/hello.txt"), &[])
    });
    client.send(requests.collect::<String>());
    for number in 0..20 {
        assert_eq!(client.reply().text(), format!("burnt {number} us\n"));
        assert_eq!(client.head().unwrap().expect_field("Content-Length"), "11");
        assert_eq!(client.reply().text(), "hello");
    }
    let stats = server.stop_cleanly().stats();
    assert_eq!(stats["total"]["replies"], 60);
    assert_eq!(stats["total"]["accepted"], 1);
}

#[test]
fn the_processor_time_is_burnt_and_most_of_it_as_user_time() {
    let root = Root::with_hello();
    let server = serve(&root, &[]);
    let mut client = server.connect();
    for _ in 0..5 {
        client.get("/.weir/burn?us=40000");
        client.head_with("/.weir/burn?us=40000", &[]);
        client.get("/.weir/burn/40000/hello.txt");
    }
    let stats = server.stop_cleanly().stats();
    let of = |name: &str| stats["total"][name].as_u64().unwrap();
    // Half of it: work is measured at the start, and a processor may get faster after that.
    let burnt_ns = 15 * 40_000 * 1_000 / 2;
    let (user_ns, system_ns) = (of("cpu_user_ns"), of("cpu_system_ns"));
    // The kernel knows the sum exactly and how it divides from samples.
    assert!(user_ns + system_ns >= burnt_ns, "{user_ns} user, {system_ns} system");
    assert!(user_ns >= burnt_ns / 2, "{user_ns} user, {system_ns} system");
}

#[test]
fn the_access_log_has_the_target_as_asked() {
    let root = Root::with_hello();
    let server = serve(&root, &["--access-log", "-"]);
    let mut client = server.connect();
    let targets = ["/.weir/burn?us=2", "/.weir/burn/2/hello.txt?a=b", "/.weir/burn/x/hello.txt"];
    targets.iter().for_each(|target| drop(client.get(target)));
    let stdout = server.stop_cleanly().stdout;
    let logged = |target: &str| stdout.contains(&format!("\"GET {target} HTTP/1.1\""));
    assert!(targets.iter().all(|target| logged(target)), "{stdout}");
}

#[test]
fn a_load_runs_with_work_added_to_each_request() {
    let root = Root::with_hello();
    let server = serve(&root, &[]);
    let url = format!("http://{}/.weir/burn/500/hello.txt", server.authority());
    let options = "--quiet --timeout 20s --duration 60 --rate 100 --num 40";
    let ran = load(WEIR, options, url);
    assert_eq!((ran.count("replies"), ran.count("errors")), (40, 0));
    assert_eq!(ran.json["counts"]["statuses"]["2xx"], 40);
    let total = server.stop_cleanly().stats()["total"].clone();
    assert_eq!(total["replies"], 40);
    let spent = ["cpu_user_ns", "cpu_system_ns"].map(|name| total[name].as_u64().unwrap());
    assert!(spent.iter().sum::<u64>() >= 40 * 500 * 1_000 / 2, "{spent:?}");
}
