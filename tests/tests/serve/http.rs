//! HTTP semantics of a file server: methods, fields, types, redirects, listings, request bodies
//! (RFC 9110, RFC 9112). Versions, parts and codings of a file are in `representations.rs`,
//! mechanisms in `behaviour.rs`, hostile input in `bad_inputs.rs`.

use weir_tests::files::target_of;
use weir_tests::{Root, Server, Setup, request, suite};

use crate::WEIR;

fn hello(setup: &Setup) -> (Root, Server) {
    let root = Root::with_hello();
    let server = setup.serve(&root, &[]);
    (root, server)
}

mod general {
    use super::*;

    suite! {
        every_architecture:
        date_is_an_imf_fixdate,
        absolute_form_targets_are_served,
        a_query_does_not_change_the_file,
        a_missing_file_is_404_with_a_body_and_the_connection_stays,
        empty_lines_before_a_request_are_ignored,
        options_says_what_is_allowed,
        other_methods_are_405_with_allow,
        custom_fields_are_added,
        custom_error_pages_keep_the_status,
        dotfiles_are_hidden_unless_asked_for,
        a_connection_ends_with_its_last_request,
    }

    fn a_connection_ends_with_its_last_request(setup: &Setup) {
        let root = Root::with_hello();
        let server = setup.serve(&root, &["--keepalive-requests", "3"]);
        let mut client = server.connect();
        let closes = (0..3).map(|_| client.get("/hello.txt").field("Connection") == Some("close"));
        assert_eq!(closes.collect::<Vec<_>>(), [false, false, true], "{}", setup.name);
        assert!(client.ends(), "{}", setup.name);
        // Together on a connection, with more than it may have.
        let mut client = server.connect();
        client.send(request("GET", "/hello.txt", &[]).repeat(5));
        let texts: Vec<_> = (0..3).map(|_| client.reply().text()).collect();
        assert_eq!(texts, ["hello"; 3], "{}", setup.name);
        assert!(client.ends(), "{}", setup.name);
        assert_eq!(server.stop_cleanly().stats()["total"]["replies"], 6);
    }

    fn date_is_an_imf_fixdate(setup: &Setup) {
        let (_root, server) = hello(setup);
        for target in ["/hello.txt", "/none"] {
            let reply = server.get(target);
            let date = reply.expect_field("Date");
            let time = httpdate::parse_http_date(date).unwrap();
            assert_eq!(httpdate::fmt_http_date(time), date);
        }
    }

    fn absolute_form_targets_are_served(setup: &Setup) {
        let (_root, server) = hello(setup);
        assert_eq!(server.get("http://test.example/hello.txt").text(), "hello");
    }

    fn a_query_does_not_change_the_file(setup: &Setup) {
        let (_root, server) = hello(setup);
        assert_eq!(server.get("/hello.txt?a=/../b&c=%00").text(), "hello");
    }

    fn a_missing_file_is_404_with_a_body_and_the_connection_stays(setup: &Setup) {
        let (_root, server) = hello(setup);
        let mut client = server.connect();
        let reply = client.get("/none");
        assert_eq!(reply.status, 404);
        assert!(!reply.body.is_empty());
        assert_eq!(client.head_with("/none", &[]).status, 404);
        assert_eq!(client.get("/hello.txt/none").status, 404);
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }

    fn empty_lines_before_a_request_are_ignored(setup: &Setup) {
        let (_root, server) = hello(setup);
        let mut client = server.connect();
        client.send(format!("\r\n{}", request("GET", "/hello.txt", &[])));
        assert_eq!(client.reply().text(), "hello");
    }

    fn options_says_what_is_allowed(setup: &Setup) {
        let (_root, server) = hello(setup);
        let mut client = server.connect();
        for target in ["*", "/hello.txt"] {
            client.send(request("OPTIONS", target, &[]));
            let reply = client.reply();
            assert!(matches!(reply.status, 200 | 204), "{}", reply.status);
            for method in ["GET", "HEAD", "OPTIONS"] {
                assert!(reply.lists("Allow", method), "{:?}", reply.fields);
            }
        }
    }

    fn other_methods_are_405_with_allow(setup: &Setup) {
        let (_root, server) = hello(setup);
        let mut client = server.connect();
        client.send(request("DELETE", "/hello.txt", &[]));
        let reply = client.reply();
        assert_eq!(reply.status, 405);
        assert!(reply.lists("Allow", "GET") && reply.lists("Allow", "HEAD"));
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }

    fn custom_fields_are_added(setup: &Setup) {
        let root = Root::with_hello();
        let fields = ["--header", "X-Frame-Options: DENY", "--header", "X-Two: a, b"];
        let reply = setup.serve(&root, &fields).get("/hello.txt");
        assert_eq!(reply.field("X-Frame-Options"), Some("DENY"));
        assert_eq!(reply.field("X-Two"), Some("a, b"));
    }

    fn custom_error_pages_keep_the_status(setup: &Setup) {
        let root = Root::with_hello();
        let page = root.outside().join("lost.html");
        std::fs::write(&page, "<p>lost").unwrap();
        let option = format!("404={}", page.display());
        let server = setup.serve(&root, &["--error-page", &option]);
        let reply = server.get("/none");
        assert_eq!((reply.status, reply.text()), (404, "<p>lost".to_owned()));
        assert_eq!(reply.field("Content-Type"), Some("text/html; charset=utf-8"));
        let head = server.connect().head_with("/none", &[]);
        assert_eq!((head.status, head.field("Content-Length")), (404, Some("7")));
    }

    fn dotfiles_are_hidden_unless_asked_for(setup: &Setup) {
        let root = Root::new();
        root.write(".env", "dot");
        root.write(".git/config", "dot");
        root.write("dir/.hidden", "dot");
        let targets = ["/.env", "/.git/config", "/dir/.hidden", "/%2eenv"];
        let hiding = setup.serve(&root, &[]);
        let showing = setup.serve(&root, &["--dotfiles"]);
        for target in targets {
            assert_eq!(hiding.get(target).status, 404, "{target}");
            assert_eq!(showing.get(target).text(), "dot", "{target}");
        }
    }
}

mod types {
    use super::*;

    suite! {
        every_architecture:
        extensions_decide_and_text_has_a_charset,
        types_and_charset_are_options,
    }

    fn extensions_decide_and_text_has_a_charset(setup: &Setup) {
        let root = Root::new();
        let cases = [
            ("a.html", "text/html; charset=utf-8"),
            ("A.HTML", "text/html; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.png", "image/png"),
            ("a.jpg", "image/jpeg"),
            ("a.wasm", "application/wasm"),
            ("a.pdf", "application/pdf"),
            ("a.unheard-of", "application/octet-stream"),
            ("none", "application/octet-stream"),
        ];
        for (name, _) in cases {
            root.write(name, "x");
        }
        let server = setup.serve(&root, &[]);
        for (name, media_type) in cases {
            let reply = server.get(&format!("/{name}"));
            assert_eq!(reply.field("Content-Type"), Some(media_type), "{name}");
        }
    }

    fn types_and_charset_are_options(setup: &Setup) {
        let root = Root::new();
        root.write("a.weird", "x");
        root.write("a.html", "x");
        let options = ["--mime", "weird=application/x-weird", "--charset", "iso-8859-1"];
        let server = setup.serve(&root, &options);
        let media_type = |target| server.get(target).expect_field("Content-Type").to_owned();
        assert_eq!(media_type("/a.weird"), "application/x-weird");
        assert_eq!(media_type("/a.html"), "text/html; charset=iso-8859-1");
    }
}

mod directories {
    use super::*;

    suite! {
        every_architecture:
        a_directory_without_its_slash_redirects,
        the_index_is_an_option_and_the_first_that_exists_wins,
        no_index_and_no_listing_is_an_error,
        a_listing_links_to_every_file_and_escapes_names,
        an_index_comes_before_a_listing,
        names_that_need_encoding_are_served,
    }

    fn a_directory_without_its_slash_redirects(setup: &Setup) {
        let root = Root::new();
        root.write("dir/index.html", "index");
        root.write("a dir/ü/index.html", "index");
        let server = setup.serve(&root, &[]);
        let cases = [("/dir", "/dir/"), ("/a%20dir/%C3%BC", "/a%20dir/%C3%BC/")];
        for (target, location) in cases {
            let mut client = server.connect();
            let reply = client.get(target);
            assert!(matches!(reply.status, 301 | 308), "{}", reply.status);
            assert_eq!(reply.field("Location"), Some(location));
            assert_eq!(client.get(location).text(), "index");
        }
        let reply = server.get("/dir?a=b");
        assert!(reply.expect_field("Location").starts_with("/dir/"));
    }

    fn the_index_is_an_option_and_the_first_that_exists_wins(setup: &Setup) {
        let root = Root::new();
        root.write("index.html", "html");
        root.write("second.txt", "second");
        assert_eq!(setup.serve(&root, &[]).get("/").text(), "html");
        let server = setup.serve(&root, &["--index", "first.txt,second.txt,index.html"]);
        let reply = server.get("/");
        assert_eq!(reply.text(), "second");
        assert_eq!(reply.field("Content-Type"), Some("text/plain; charset=utf-8"));
    }

    fn no_index_and_no_listing_is_an_error(setup: &Setup) {
        let root = Root::new();
        root.write("dir/file.txt", "x");
        let reply = setup.serve(&root, &[]).get("/dir/");
        assert!(matches!(reply.status, 403 | 404), "{}", reply.status);
        assert!(!reply.text().contains("file.txt"));
    }

    /// Returns the targets of the links in a listing.
    fn links(listing: &str) -> Vec<&str> {
        let starts = listing.split("href=\"").skip(1);
        starts.map(|rest| rest.split_once('"').unwrap().0).collect()
    }

    fn unescaped(href: &str) -> String {
        href.replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'").replace("&amp;", "&")
    }

    fn a_listing_links_to_every_file_and_escapes_names(setup: &Setup) {
        let root = Root::new();
        let names = [
            "plain.txt",
            "<img src=x onerror=1>.txt",
            "a b&c.txt",
            "100%.txt",
            "question?.txt",
            "hash#.txt",
            "quote\"'.txt",
            "colon:x.txt",
            "naïve.txt",
        ];
        for name in names {
            root.write(&format!("dir/{name}"), name);
        }
        root.write("dir/.hidden", "hidden");
        let server = setup.serve(&root, &["--listing"]);
        let reply = server.get("/dir/");
        assert_eq!(reply.field("Content-Type"), Some("text/html; charset=utf-8"));
        let listing = reply.text();
        assert!(!listing.contains("<img"), "{listing}");
        assert!(!listing.contains(".hidden"), "{listing}");
        let served: Vec<_> =
            links(&listing).into_iter().map(|link| follow(&server, link)).collect();
        for name in names {
            assert!(served.iter().any(|body| body == name), "{name} in {listing}");
        }
    }

    /// Returns the content behind a link in the listing of `/dir/`.
    fn follow(server: &Server, href: &str) -> String {
        let href = unescaped(href);
        let relative = href.strip_prefix("./").unwrap_or(&href);
        match relative {
            up if up.starts_with("..") => String::new(),
            absolute if absolute.starts_with('/') => server.get(absolute).text(),
            relative => server.get(&format!("/dir/{relative}")).text(),
        }
    }

    fn an_index_comes_before_a_listing(setup: &Setup) {
        let root = Root::new();
        root.write("index.html", "index");
        assert_eq!(setup.serve(&root, &["--listing"]).get("/").text(), "index");
    }

    fn names_that_need_encoding_are_served(setup: &Setup) {
        let root = Root::new();
        let names = ["a b", "ü", "100%", "a+b", "q?", "h#", "%2e", "a;b", "~"];
        for name in names {
            root.write(name, name);
        }
        let server = setup.serve(&root, &[]);
        for name in names {
            assert_eq!(server.get(&target_of(name)).text(), name);
        }
        assert_eq!(server.get("/a+b").text(), "a+b", "a plus sign is no space");
    }
}

mod request_bodies {
    use super::*;

    suite! {
        every_architecture:
        a_body_within_the_limit_keeps_the_connection,
        a_body_over_the_limit_closes_the_connection,
        a_chunked_body_is_skipped,
        a_chunked_body_may_be_split_at_any_byte,
        expect_100_continue_is_answered_with_the_reply,
        a_body_that_comes_after_its_reply_is_thrown_away,
        a_body_out_of_grammar_is_refused,
        a_reply_to_head_has_no_body_whatever_is_wrong_with_the_requests,
        expect_100_continue_on_http_1_0_is_ignored,
    }

    const METHODS: [(&str, u16); 2] = [("GET", 200), ("POST", 405)];

    fn a_body_within_the_limit_keeps_the_connection(setup: &Setup) {
        let root = Root::with_hello();
        let server = setup.serve(&root, &["--max-body", "1000"]);
        let body = "GET /".repeat(200);
        for (method, status) in METHODS {
            let mut client = server.connect();
            for _ in 0..3 {
                let head = request(method, "/hello.txt", &["Content-Length: 1000"]);
                client.send(head + &body);
                assert_eq!(client.reply().status, status);
            }
            assert_eq!(client.get("/hello.txt").text(), "hello");
        }
    }

    fn a_body_over_the_limit_closes_the_connection(setup: &Setup) {
        let root = Root::with_hello();
        let server = setup.serve(&root, &["--max-body", "1000"]);
        for (method, status) in METHODS {
            let mut client = server.connect();
            let head = request(method, "/hello.txt", &["Content-Length: 1001"]);
            client.send(head + &"x".repeat(1001));
            let reply = client.reply();
            assert!([status, 413].contains(&reply.status), "{}", reply.status);
            assert!(client.is_closed());
        }
        assert_eq!(server.get("/hello.txt").text(), "hello");
    }

    fn a_chunked_body_is_skipped(setup: &Setup) {
        let (_root, server) = hello(setup);
        let bodies = [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "5;name=value\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "5;name=\"quoted;\"\r\nhello\r\n000\r\nTrailer: field\r\n\r\n",
        ];
        for (method, status) in METHODS {
            let mut client = server.connect();
            for body in bodies {
                client.send(request(method, "/hello.txt", &["Transfer-Encoding: chunked"]) + body);
                assert_eq!(client.reply().status, status, "{body:?}");
            }
            assert_eq!(client.get("/hello.txt").text(), "hello");
        }
    }

    fn a_reply_to_head_has_no_body_whatever_is_wrong_with_the_requests(setup: &Setup) {
        let root = Root::with_hello();
        let server = setup.serve(&root, &["--max-body", "4", "--body-timeout", "100ms"]);
        for (body, status) in [("x", 400), ("5\r\nhello\r\n", 413), ("4\r\nhell", 200)] {
            let mut client = server.connect();
            client.send(request("HEAD", "/hello.txt", &["Transfer-Encoding: chunked"]) + body);
            let head = client.head().unwrap();
            assert_eq!(head.status, status);
            assert!(client.rest().unwrap().is_empty(), "{status} with a body");
        }
    }

    fn a_chunked_body_may_be_split_at_any_byte(setup: &Setup) {
        let (_root, server) = hello(setup);
        let body = "5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: field\r\n\r\n";
        let request = request("POST", "/hello.txt", &["Transfer-Encoding: chunked"]) + body;
        for at in 1..request.len() {
            let mut client = server.connect();
            client.send_at_once();
            let (first, second) = request.split_at(at);
            client.send(first);
            client.send(second);
            let reply = client.reply();
            assert_eq!(reply.status, 405, "split at {at}");
            // What was not there with its head is not waited for.
            if reply.field("Connection") == Some("close") {
                assert!(client.is_closed(), "split at {at}");
            } else {
                assert_eq!(client.get("/hello.txt").text(), "hello", "split at {at}");
            }
        }
    }

    /// The body is not needed: RFC 9110 section 10.1.1 allows the final reply at once.
    fn expect_100_continue_is_answered_with_the_reply(setup: &Setup) {
        let (_root, server) = hello(setup);
        for (method, status) in METHODS {
            let mut client = server.connect();
            let fields = ["Content-Length: 5", "Expect: 100-continue"];
            client.send(request(method, "/hello.txt", &fields));
            assert_eq!(client.reply().status, status);
            assert!(client.is_closed());
        }
    }

    /// The client may still be writing: a reset would cost it the reply.
    fn a_body_that_comes_after_its_reply_is_thrown_away(setup: &Setup) {
        let (_root, server) = hello(setup);
        for (method, status) in METHODS {
            let mut client = server.connect();
            client.send(request(method, "/hello.txt", &["Content-Length: 1000000"]));
            (0..100).for_each(|_| client.send([b'x'; 10_000]));
            let reply = client.reply();
            assert_eq!(reply.status, status);
            assert_eq!(reply.field("Connection"), Some("close"));
            assert!(client.is_closed());
        }
    }

    fn a_body_out_of_grammar_is_refused(setup: &Setup) {
        let (_root, server) = hello(setup);
        for (method, _) in METHODS {
            let mut client = server.connect();
            let head = request(method, "/hello.txt", &["Transfer-Encoding: chunked"]);
            client.send(request("GET", "/hello.txt", &[]) + &head + "5;\r\nhello\r\n0\r\n\r\n");
            assert_eq!(client.reply().text(), "hello");
            assert_eq!(client.reply().status, 400);
            assert!(client.is_closed());
        }
    }

    fn expect_100_continue_on_http_1_0_is_ignored(setup: &Setup) {
        let (_root, server) = hello(setup);
        let mut client = server.connect();
        client.send(
            "GET /hello.txt HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n12345",
        );
        assert_eq!(client.reply().text(), "hello");
        assert!(client.is_closed());
    }
}
