//! Selection of a file's representation: conditions, ranges, precompressed variants (RFC 9110
//! sections 12 to 14). All other HTTP semantics are in `http.rs`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use weir_tests::files::{LAST_MODIFIED, noise};
use weir_tests::multipart::{content_range, parts};
use weir_tests::wait::until;
use weir_tests::{Reply, Root, Server, Setup, assert_same, suite};

use crate::WEIR;

/// Returns the entity tag of a file just written, once it is stable: within a clock tick the file
/// could change again and keep its timestamps, so each reply has a tag of its own. A loop that was
/// kept from its processor for a while may still use an earlier time.
fn etag_of(server: &Server, target: &str, fields: &[&str]) -> String {
    let ask = || server.get_with(target, fields).expect_field("ETag").to_owned();
    let (mut etag, mut times_same) = (ask(), 0);
    until("the entity tag stayed the same", || {
        let before = std::mem::replace(&mut etag, ask());
        times_same = if before == etag { times_same + 1 } else { 0 };
        times_same == 10
    });
    etag
}

fn hello(setup: &Setup) -> (Root, Server) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    (root, server)
}

mod conditions {
    use super::*;

    suite! {
        every_architecture:
        validators_are_sent,
        if_none_match_with_the_etag_is_304,
        if_none_match_with_another_etag_is_200_whatever_the_date,
        if_modified_since_compares_dates,
        if_match_and_if_unmodified_since_guard,
        head_has_the_same_conditions,
        a_missing_file_has_no_conditions,
        the_etag_changes_with_the_file,
    }

    fn get(server: &Server, field: &str) -> Reply {
        server.get_with("/hello.txt", &[field])
    }

    fn validators_are_sent(setup: &Setup) {
        let (_root, server) = hello(setup);
        let reply = server.get("/hello.txt");
        assert_eq!(reply.field("Last-Modified"), Some(LAST_MODIFIED));
        let etag = reply.expect_field("ETag").trim_start_matches("W/");
        assert!(etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"'), "{etag}");
        assert_eq!(reply.field("Accept-Ranges"), Some("bytes"));
    }

    fn if_none_match_with_the_etag_is_304(setup: &Setup) {
        let (_root, server) = hello(setup);
        let etag = etag_of(&server, "/hello.txt", &[]);
        let opaque = etag.trim_start_matches("W/").to_owned();
        let lists =
            [opaque.clone(), format!("W/{opaque}"), format!("\"a\", {etag} , \"b\""), "*".into()];
        for list in lists {
            let reply = get(&server, &format!("If-None-Match: {list}"));
            assert_eq!(reply.status, 304, "{list}");
            assert_eq!(reply.field("ETag"), Some(&etag[..]));
            assert!(reply.field("Date").is_some());
            assert!(matches!(reply.field("Content-Length"), None | Some("5")));
        }
    }

    fn if_none_match_with_another_etag_is_200_whatever_the_date(setup: &Setup) {
        let (_root, server) = hello(setup);
        let since = format!("If-Modified-Since: {LAST_MODIFIED}");
        let reply = server.get_with("/hello.txt", &["If-None-Match: \"other\"", &since]);
        assert_eq!(reply.text(), "hello");
    }

    fn if_modified_since_compares_dates(setup: &Setup) {
        let (_root, server) = hello(setup);
        let status = |date: &str| get(&server, &format!("If-Modified-Since: {date}")).status;
        assert_eq!(status(LAST_MODIFIED), 304);
        assert_eq!(status("Mon, 10 Sep 2001 01:46:40 GMT"), 304);
        assert_eq!(status("Sun, 09 Sep 2001 01:46:39 GMT"), 200);
        // The two obsolete forms of the same date (RFC 9110 section 5.6.7).
        assert_eq!(status("Sunday, 09-Sep-01 01:46:40 GMT"), 304);
        assert_eq!(status("Sun Sep  9 01:46:40 2001"), 304);
    }

    fn if_match_and_if_unmodified_since_guard(setup: &Setup) {
        let (_root, server) = hello(setup);
        let etag = etag_of(&server, "/hello.txt", &[]);
        assert!(!etag.starts_with("W/"), "a file that changed long ago has a strong ETag");
        assert_eq!(get(&server, &format!("If-Match: \"a\", {etag}")).status, 200);
        assert_eq!(get(&server, "If-Match: *").status, 200);
        assert_eq!(get(&server, "If-Match: \"a\"").status, 412);
        assert_eq!(get(&server, &format!("If-Match: W/{etag}")).status, 412);
        assert_eq!(get(&server, &format!("If-Unmodified-Since: {LAST_MODIFIED}")).status, 200);
        let earlier = "If-Unmodified-Since: Sun, 09 Sep 2001 01:46:39 GMT";
        assert_eq!(get(&server, earlier).status, 412);
    }

    fn head_has_the_same_conditions(setup: &Setup) {
        let (_root, server) = hello(setup);
        let mut client = server.connect();
        assert_eq!(client.head_with("/hello.txt", &["If-None-Match: *"]).status, 304);
        assert_eq!(client.head_with("/hello.txt", &["If-Match: \"a\""]).status, 412);
        let since = format!("If-Modified-Since: {LAST_MODIFIED}");
        assert_eq!(client.head_with("/hello.txt", &[&since]).status, 304);
    }

    fn a_missing_file_has_no_conditions(setup: &Setup) {
        let (_root, server) = hello(setup);
        for field in ["If-None-Match: *", "If-Match: \"a\"", "Range: bytes=0-1"] {
            assert_eq!(server.get_with("/none", &[field]).status, 404, "{field}");
        }
    }

    fn the_etag_changes_with_the_file(setup: &Setup) {
        let (root, server) = hello(setup);
        let before = server.get("/hello.txt").expect_field("ETag").to_owned();
        root.write("hello2.txt", "hullo");
        fs::rename(root.path().join("hello2.txt"), root.path().join("hello.txt")).unwrap();
        until("the new file was served", || server.get("/hello.txt").text() == "hullo");
        assert_ne!(server.get("/hello.txt").expect_field("ETag"), before);
    }
}

mod ranges {
    use super::*;

    suite! {
        every_architecture:
        a_single_range_is_206_with_its_bytes,
        the_unit_is_case_insensitive,
        ranges_outside_the_file_are_416,
        a_field_that_is_no_range_is_ignored,
        several_ranges_are_parts_in_the_order_asked_for,
        several_ranges_of_which_one_is_outside,
        the_connection_stays_in_step_after_parts,
        if_range_with_the_right_validator_gives_the_range,
        if_range_with_any_other_validator_gives_the_whole,
        conditions_come_before_ranges,
        head_has_no_ranges,
        an_empty_file_has_no_range,
    }

    const SIZE: usize = 300_000;

    /// Serves a file of `SIZE` bytes; returns the server with the file's content.
    fn served(setup: &Setup) -> (Root, Server, Vec<u8>) {
        let root = Root::new();
        let body = noise(3, SIZE);
        root.write("file.txt", &body);
        let server = setup.serve(&root, &[]);
        (root, server, body)
    }

    fn range(server: &Server, ranges: &str) -> Reply {
        server.get_with("/file.txt", &[&format!("Range: bytes={ranges}")])
    }

    fn a_single_range_is_206_with_its_bytes(setup: &Setup) {
        let (_root, server, body) = served(setup);
        let cases = [
            ("0-0", 0..1),
            ("10-19", 10..20),
            ("1000-250000", 1000..250_001),
            ("299999-", SIZE - 1..SIZE),
            ("5-", 5..SIZE),
            ("-7", SIZE - 7..SIZE),
            ("-999999", 0..SIZE),
            ("299990-999999", SIZE - 10..SIZE),
            ("0-299999", 0..SIZE),
            ("10-19, ", 10..20),
        ];
        for (text, expected) in cases {
            let reply = range(&server, text);
            assert_eq!(reply.status, 206, "{text}");
            let (range, whole) = content_range(reply.expect_field("Content-Range"));
            assert_eq!((range, whole), (expected.clone(), SIZE), "{text}");
            assert_same(&reply.body, &body[expected], text);
            let media_type = reply.field("Content-Type");
            assert_eq!(media_type, Some("text/plain; charset=utf-8"), "{text}");
        }
    }

    fn the_unit_is_case_insensitive(setup: &Setup) {
        let (_root, server, body) = served(setup);
        let reply = server.get_with("/file.txt", &["Range: Bytes=0-9"]);
        assert_eq!(reply.status, 206);
        assert_same(&reply.body, &body[..10], "the body");
    }

    fn ranges_outside_the_file_are_416(setup: &Setup) {
        let (_root, server, _) = served(setup);
        for text in ["300000-", "300000-300001", "-0", "400000-,500000-"] {
            let reply = range(&server, text);
            assert_eq!(reply.status, 416, "{text}");
            assert_eq!(reply.field("Content-Range"), Some("bytes */300000"), "{text}");
        }
    }

    fn a_field_that_is_no_range_is_ignored(setup: &Setup) {
        let (_root, server, body) = served(setup);
        let fields =
            ["items=0-9", "bytes=9-0", "bytes=a-b", "bytes=", "bytes", "bytes=1", "bytes=--1"];
        for field in fields {
            let reply = server.get_with("/file.txt", &[&format!("Range: {field}")]);
            assert_eq!(reply.status, 200, "{field}");
            assert_same(&reply.body, &body, field);
        }
    }

    fn several_ranges_are_parts_in_the_order_asked_for(setup: &Setup) {
        let (_root, server, body) = served(setup);
        let reply = range(&server, "100000-299000, 0-9 ,-10");
        assert_eq!(reply.status, 206);
        assert!(reply.field("Content-Range").is_none());
        let expected = [100_000..299_001, 0..10, SIZE - 10..SIZE];
        let parts = parts(&reply);
        assert_eq!(parts.len(), expected.len());
        for (part, expected) in parts.iter().zip(expected) {
            assert_eq!((&part.range, part.whole), (&expected, SIZE));
            assert_same(&part.bytes, &body[expected], "the body");
            assert_eq!(part.content_type.as_deref(), Some("text/plain; charset=utf-8"));
        }
    }

    fn several_ranges_of_which_one_is_outside(setup: &Setup) {
        let (_root, server, body) = served(setup);
        let reply = range(&server, "0-9,400000-");
        assert_eq!(reply.status, 206);
        if reply.field("Content-Range").is_some() {
            assert_same(&reply.body, &body[..10], "the body");
        } else {
            assert_same(&parts(&reply)[0].bytes, &body[..10], "the body");
        }
    }

    fn the_connection_stays_in_step_after_parts(setup: &Setup) {
        let (_root, server, body) = served(setup);
        let mut client = server.connect();
        for _ in 0..3 {
            let reply = client.get_with("/file.txt", &["Range: bytes=5-9,100-199999"]);
            assert_same(&parts(&reply)[1].bytes, &body[100..200_000], "the body");
            assert_same(&client.get("/file.txt").body, &body, "the body");
        }
    }

    fn if_range_with_the_right_validator_gives_the_range(setup: &Setup) {
        let (_root, server, body) = served(setup);
        let etag = etag_of(&server, "/file.txt", &[]);
        for validator in [&etag[..], LAST_MODIFIED] {
            let field = format!("If-Range: {validator}");
            let reply = server.get_with("/file.txt", &["Range: bytes=1-2", &field]);
            assert_eq!(reply.status, 206, "{validator}");
            assert_same(&reply.body, &body[1..3], "the body");
        }
    }

    fn if_range_with_any_other_validator_gives_the_whole(setup: &Setup) {
        let (_root, server, body) = served(setup);
        let etag = etag_of(&server, "/file.txt", &[]);
        let weak = format!("W/{etag}");
        let others = ["\"other\"", &weak, "Mon, 10 Sep 2001 01:46:40 GMT", "garbage"];
        for validator in others {
            let field = format!("If-Range: {validator}");
            let reply = server.get_with("/file.txt", &["Range: bytes=1-2", &field]);
            assert_eq!(reply.status, 200, "{validator}");
            assert_same(&reply.body, &body, "the body");
        }
    }

    fn conditions_come_before_ranges(setup: &Setup) {
        let (_root, server, _) = served(setup);
        let reply = server.get_with("/file.txt", &["Range: bytes=1-2", "If-None-Match: *"]);
        assert_eq!(reply.status, 304);
        let reply = server.get_with("/file.txt", &["Range: bytes=1-2", "If-Match: \"a\""]);
        assert_eq!(reply.status, 412);
    }

    fn head_has_no_ranges(setup: &Setup) {
        let (_root, server, _) = served(setup);
        let head = server.connect().head_with("/file.txt", &["Range: bytes=1-2"]);
        assert_eq!((head.status, head.expect_field("Content-Length")), (200, "300000"));
    }

    fn an_empty_file_has_no_range(setup: &Setup) {
        let root = Root::new();
        root.write("empty", "");
        let server = setup.serve(&root, &[]);
        let reply = server.get_with("/empty", &["Range: bytes=0-0"]);
        assert!(matches!(reply.status, 200 | 416), "{}", reply.status);
        assert_eq!(server.get("/empty").field("Content-Length"), Some("0"));
    }
}

mod variants {
    use super::*;

    suite! {
        every_architecture:
        each_coding_is_served_with_its_own_length_and_etag,
        identity_is_served_when_no_coding_is_acceptable,
        weights_are_honoured,
        a_variant_has_its_own_conditions_and_ranges,
        variants_can_be_turned_off,
        a_coding_without_its_file_is_not_served,
        a_variant_that_others_may_write_is_not_served,
        head_names_the_variant_get_would_serve,
    }

    fn served(setup: &Setup, options: &[&str]) -> (Root, Server) {
        let root = Root::new();
        root.write("app.js", "identity".repeat(9));
        root.write("app.js.br", "brotli");
        root.write("app.js.gz", "gzipped");
        root.write("app.js.zst", "zstandard");
        let server = setup.serve(&root, options);
        (root, server)
    }

    fn accepting(server: &Server, encodings: &str) -> Reply {
        server.get_with("/app.js", &[&format!("Accept-Encoding: {encodings}")])
    }

    fn each_coding_is_served_with_its_own_length_and_etag(setup: &Setup) {
        let (_root, server) = served(setup, &[]);
        let mut etags = vec![server.get("/app.js").expect_field("ETag").to_owned()];
        for (coding, body) in [("br", "brotli"), ("gzip", "gzipped"), ("zstd", "zstandard")] {
            let reply = accepting(&server, coding);
            assert_eq!(reply.status, 200);
            assert_eq!(reply.field("Content-Encoding"), Some(coding));
            assert_eq!(reply.text(), body);
            assert_eq!(reply.field("Content-Type"), Some("text/javascript; charset=utf-8"));
            assert!(reply.lists("Vary", "Accept-Encoding"));
            etags.push(reply.expect_field("ETag").to_owned());
        }
        etags.sort();
        etags.dedup();
        assert_eq!(etags.len(), 4, "{etags:?}");
    }

    fn identity_is_served_when_no_coding_is_acceptable(setup: &Setup) {
        let (_root, server) = served(setup, &[]);
        let whole = "identity".repeat(9);
        let none = ["", "identity", "deflate", "br;q=0, gzip;q=0, zstd;q=0.0", "*;q=0, identity"];
        for encodings in none {
            let reply = accepting(&server, encodings);
            assert_eq!(reply.text(), whole, "{encodings}");
            assert!(reply.field("Content-Encoding").is_none());
            assert!(reply.lists("Vary", "Accept-Encoding"), "{encodings}");
        }
        let reply = server.get("/app.js");
        assert_eq!(reply.text(), whole);
        assert!(reply.lists("Vary", "Accept-Encoding"));
    }

    fn weights_are_honoured(setup: &Setup) {
        let (_root, server) = served(setup, &[]);
        let coding =
            |encodings| accepting(&server, encodings).field("Content-Encoding").map(str::to_owned);
        assert_eq!(coding("br;q=0, gzip").as_deref(), Some("gzip"));
        assert_eq!(coding("br;q=0.1, gzip;q=0.9").as_deref(), Some("gzip"));
        assert_eq!(coding("GZIP").as_deref(), Some("gzip"));
        assert_eq!(coding("*;q=0, zstd").as_deref(), Some("zstd"));
        assert!(coding("gzip, deflate, br, zstd").is_some());
    }

    fn a_variant_has_its_own_conditions_and_ranges(setup: &Setup) {
        let (_root, server) = served(setup, &[]);
        let identity = etag_of(&server, "/app.js", &[]);
        let brotli = etag_of(&server, "/app.js", &["Accept-Encoding: br"]);
        let get = |field: String| server.get_with("/app.js", &["Accept-Encoding: br", &field]);
        let reply = get(format!("If-None-Match: {brotli}"));
        assert_eq!((reply.status, reply.field("ETag")), (304, Some(&brotli[..])));
        assert!(reply.lists("Vary", "Accept-Encoding"));
        assert_eq!(get(format!("If-None-Match: {identity}")).status, 200);
        let reply = get("Range: bytes=1-3".to_owned());
        assert_eq!((reply.status, reply.text()), (206, "rot".to_owned()));
        assert_eq!(reply.field("Content-Encoding"), Some("br"));
    }

    fn variants_can_be_turned_off(setup: &Setup) {
        let (_root, server) = served(setup, &["--precompressed", "none"]);
        let reply = accepting(&server, "br, gzip, zstd");
        assert!(reply.field("Content-Encoding").is_none());
        assert_eq!(reply.body.len(), 72);
    }

    fn a_coding_without_its_file_is_not_served(setup: &Setup) {
        let root = Root::new();
        root.write("a.css", "identity");
        root.write("a.css.gz", "gzipped");
        let server = setup.serve(&root, &[]);
        let reply = server.get_with("/a.css", &["Accept-Encoding: br, gzip"]);
        assert_eq!(reply.field("Content-Encoding"), Some("gzip"));
        let reply = server.get_with("/a.css", &["Accept-Encoding: br"]);
        assert_eq!(reply.text(), "identity");
    }

    fn a_variant_that_others_may_write_is_not_served(setup: &Setup) {
        let root = Root::new();
        root.write("a.css", "identity");
        let path = root.write("a.css.gz", "gzipped");
        fs::set_permissions(path, Permissions::from_mode(0o646)).unwrap();
        let server = setup.serve(&root, &[]);
        let reply = server.get_with("/a.css", &["Accept-Encoding: gzip"]);
        assert_eq!(reply.text(), "identity");
    }

    fn head_names_the_variant_get_would_serve(setup: &Setup) {
        let (_root, server) = served(setup, &[]);
        let head = server.connect().head_with("/app.js", &["Accept-Encoding: gzip"]);
        assert_eq!(head.field("Content-Encoding"), Some("gzip"));
        assert_eq!(head.field("Content-Length"), Some("7"));
    }
}
