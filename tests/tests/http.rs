//! What HTTP says a file server does: methods, fields, types, redirects, listings, request bodies
//! (RFC 9110, RFC 9112). Which version, part or coding of a file is sent: `representations.rs`.
//! Nothing here is about the mechanism (`behaviour.rs`) or hostile input (`bad_inputs.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken expectation is a failed test"
)]

use weir_tests::files::target_of;
use weir_tests::{Root, Server, request};

const WEIR: &str = env!("CARGO_BIN_EXE_weir-under-test");

fn serve(root: &Root, options: &[&str]) -> Server {
    Server::start(WEIR, options, root)
}

fn hello() -> (Root, Server) {
    let root = Root::with_hello();
    let server = serve(&root, &[]);
    (root, server)
}

mod general {
    use super::*;

    #[test]
    fn date_is_an_imf_fixdate() {
        let (_root, server) = hello();
        for target in ["/hello.txt", "/none"] {
            let reply = server.get(target);
            let date = reply.expect_field("Date");
            let time = httpdate::parse_http_date(date).unwrap();
            assert_eq!(httpdate::fmt_http_date(time), date);
        }
    }

    #[test]
    fn absolute_form_targets_are_served() {
        let (_root, server) = hello();
        assert_eq!(server.get("http://test.example/hello.txt").text(), "hello");
    }

    #[test]
    fn a_query_does_not_change_the_file() {
        let (_root, server) = hello();
        assert_eq!(server.get("/hello.txt?a=/../b&c=%00").text(), "hello");
    }

    #[test]
    fn what_is_not_there_is_404_with_a_body_and_the_connection_stays() {
        let (_root, server) = hello();
        let mut client = server.connect();
        let reply = client.get("/none");
        assert_eq!(reply.status, 404);
        assert!(!reply.body.is_empty());
        assert_eq!(client.head_with("/none", &[]).status, 404);
        assert_eq!(client.get("/hello.txt/none").status, 404);
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }

    #[test]
    fn empty_lines_before_a_request_are_ignored() {
        let (_root, server) = hello();
        let mut client = server.connect();
        client.send(format!("\r\n{}", request("GET", "/hello.txt", &[])));
        assert_eq!(client.reply().text(), "hello");
    }

    #[test]
    fn options_says_what_is_allowed() {
        let (_root, server) = hello();
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

    #[test]
    fn other_methods_are_405_with_allow() {
        let (_root, server) = hello();
        let mut client = server.connect();
        client.send(request("DELETE", "/hello.txt", &[]));
        let reply = client.reply();
        assert_eq!(reply.status, 405);
        assert!(reply.lists("Allow", "GET") && reply.lists("Allow", "HEAD"));
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }

    #[test]
    fn custom_fields_are_added() {
        let root = Root::with_hello();
        let fields = ["--header", "X-Frame-Options: DENY", "--header", "X-Two: a, b"];
        let reply = serve(&root, &fields).get("/hello.txt");
        assert_eq!(reply.field("X-Frame-Options"), Some("DENY"));
        assert_eq!(reply.field("X-Two"), Some("a, b"));
    }

    #[test]
    fn custom_error_pages_keep_the_status() {
        let root = Root::with_hello();
        let page = root.outside().join("lost.html");
        std::fs::write(&page, "<p>lost").unwrap();
        let option = format!("404={}", page.display());
        let server = serve(&root, &["--error-page", &option]);
        let reply = server.get("/none");
        assert_eq!((reply.status, reply.text()), (404, "<p>lost".to_owned()));
        assert_eq!(reply.field("Content-Type"), Some("text/html; charset=utf-8"));
        let head = server.connect().head_with("/none", &[]);
        assert_eq!((head.status, head.field("Content-Length")), (404, Some("7")));
    }

    #[test]
    fn dotfiles_are_hidden_unless_asked_for() {
        let root = Root::new();
        root.write(".env", "dot");
        root.write(".git/config", "dot");
        root.write("dir/.hidden", "dot");
        let targets = ["/.env", "/.git/config", "/dir/.hidden", "/%2eenv"];
        let hiding = serve(&root, &[]);
        let showing = serve(&root, &["--dotfiles"]);
        for target in targets {
            assert_eq!(hiding.get(target).status, 404, "{target}");
            assert_eq!(showing.get(target).text(), "dot", "{target}");
        }
    }
}

mod types {
    use super::*;

    #[test]
    fn extensions_decide_and_text_has_a_charset() {
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
        let server = serve(&root, &[]);
        for (name, media_type) in cases {
            let reply = server.get(&format!("/{name}"));
            assert_eq!(reply.field("Content-Type"), Some(media_type), "{name}");
        }
    }

    #[test]
    fn types_and_charset_are_options() {
        let root = Root::new();
        root.write("a.weird", "x");
        root.write("a.html", "x");
        let options = ["--mime", "weird=application/x-weird", "--charset", "iso-8859-1"];
        let server = serve(&root, &options);
        let media_type = |target| server.get(target).expect_field("Content-Type").to_owned();
        assert_eq!(media_type("/a.weird"), "application/x-weird");
        assert_eq!(media_type("/a.html"), "text/html; charset=iso-8859-1");
    }
}

mod directories {
    use super::*;

    #[test]
    fn a_directory_without_its_slash_redirects() {
        let root = Root::new();
        root.write("dir/index.html", "index");
        root.write("a dir/ü/index.html", "index");
        let server = serve(&root, &[]);
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

    #[test]
    fn the_index_is_an_option_and_the_first_that_exists_wins() {
        let root = Root::new();
        root.write("index.html", "html");
        root.write("second.txt", "second");
        assert_eq!(serve(&root, &[]).get("/").text(), "html");
        let server = serve(&root, &["--index", "first.txt,second.txt,index.html"]);
        let reply = server.get("/");
        assert_eq!(reply.text(), "second");
        assert_eq!(reply.field("Content-Type"), Some("text/plain; charset=utf-8"));
    }

    #[test]
    fn no_index_and_no_listing_is_an_error() {
        let root = Root::new();
        root.write("dir/file.txt", "x");
        let reply = serve(&root, &[]).get("/dir/");
        assert!(matches!(reply.status, 403 | 404), "{}", reply.status);
        assert!(!reply.text().contains("file.txt"));
    }

    /// The targets of the links in a listing.
    fn links(listing: &str) -> Vec<&str> {
        let starts = listing.split("href=\"").skip(1);
        starts.map(|rest| rest.split_once('"').unwrap().0).collect()
    }

    fn unescaped(href: &str) -> String {
        href.replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'").replace("&amp;", "&")
    }

    #[test]
    fn a_listing_links_to_every_file_and_escapes_names() {
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
        let server = serve(&root, &["--listing"]);
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

    /// What a link in the listing of `/dir/` leads to.
    fn follow(server: &Server, href: &str) -> String {
        let href = unescaped(href);
        let relative = href.strip_prefix("./").unwrap_or(&href);
        match relative {
            up if up.starts_with("..") => String::new(),
            absolute if absolute.starts_with('/') => server.get(absolute).text(),
            relative => server.get(&format!("/dir/{relative}")).text(),
        }
    }

    #[test]
    fn an_index_comes_before_a_listing() {
        let root = Root::new();
        root.write("index.html", "index");
        assert_eq!(serve(&root, &["--listing"]).get("/").text(), "index");
    }

    #[test]
    fn names_that_need_encoding_are_served() {
        let root = Root::new();
        let names = ["a b", "ü", "100%", "a+b", "q?", "h#", "%2e", "a;b", "~"];
        for name in names {
            root.write(name, name);
        }
        let server = serve(&root, &[]);
        for name in names {
            assert_eq!(server.get(&target_of(name)).text(), name);
        }
        assert_eq!(server.get("/a+b").text(), "a+b", "a plus sign is no space");
    }
}

mod request_bodies {
    use super::*;

    const METHODS: [(&str, u16); 2] = [("GET", 200), ("POST", 405)];

    #[test]
    fn a_body_within_the_limit_keeps_the_connection() {
        let root = Root::with_hello();
        let server = serve(&root, &["--max-body", "1000"]);
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

    #[test]
    fn a_body_over_the_limit_closes_the_connection() {
        let root = Root::with_hello();
        let server = serve(&root, &["--max-body", "1000"]);
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

    #[test]
    fn a_chunked_body_is_drained() {
        let (_root, server) = hello();
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

    #[test]
    fn a_chunked_body_may_be_split_at_any_byte() {
        let (_root, server) = hello();
        let body = "5;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: field\r\n\r\n";
        let request = request("POST", "/hello.txt", &["Transfer-Encoding: chunked"]) + body;
        let mut client = server.connect();
        client.send_at_once();
        for at in 1..request.len() {
            let (first, second) = request.split_at(at);
            client.send(first);
            client.send(second);
            assert_eq!(client.reply().status, 405, "split at {at}");
        }
        assert_eq!(client.get("/hello.txt").text(), "hello");
    }

    #[test]
    fn expect_100_continue_is_answered() {
        let (_root, server) = hello();
        let mut client = server.connect();
        let fields = ["Content-Length: 5", "Expect: 100-continue"];
        client.send(request("GET", "/hello.txt", &fields));
        let mut reply = client.reply();
        if reply.status == 100 {
            client.send("12345");
            reply = client.reply();
            assert_eq!(client.get("/hello.txt").text(), "hello");
        }
        assert_eq!(reply.text(), "hello");
    }

    #[test]
    fn expect_100_continue_on_http_1_0_is_ignored() {
        let (_root, server) = hello();
        let mut client = server.connect();
        client.send(
            "GET /hello.txt HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n12345",
        );
        assert_eq!(client.reply().text(), "hello");
        assert!(client.is_closed());
    }
}
