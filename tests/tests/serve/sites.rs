//! Sites and routes of the configuration file, as a client sees them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use weir_tests::server::run;
use weir_tests::tls::{Authority, NAMES};
use weir_tests::{Client, Origin, Reply, Root, Server, Setup, request, suite};

use crate::WEIR;

suite! {
    every_architecture:
    the_host_chooses_the_site,
    a_route_answers_with_a_redirect_or_a_status,
    replies_have_the_fields_of_their_route,
    a_denied_client_is_refused_however_it_writes_the_path,
    an_application_of_one_page_is_served_for_every_path,
    a_route_has_a_root_of_its_own,
    pages_of_other_origins_are_told_what_they_may_do,
    bodies_and_heads_have_the_limits_of_their_route,
}

suite! {
    every_architecture_at_once:
    a_password_is_asked_for_and_found_right_once,
}

suite! {
    every_forwarding_architecture:
    forwarded_requests_pass_the_same_gate,
    replies_of_an_upstream_have_the_fields_of_their_route,
}

/// Hash of `open sesame`, as `htpasswd -nbBC 4` makes it.
pub(crate) const BCRYPT: &str = "$2y$04$vKRXkql.bdkV4Qq.4L6Adu2xBNxLNyVOVnVoU/S/VqNBLPSFCZuca";

/// Hash of `pass:word`, as `openssl passwd -5` makes it.
const SHA_CRYPT: &str = "$5$saltfive$pNvdRB17wsMiPvkrsJDs07F2tiiNDcUVIIuT1Gu0FS3";

/// `Aladdin:open sesame`, encoded (RFC 7617 section 2).
pub(crate) const ALADDIN: &str = "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";

/// `five:pass:word`, encoded.
pub(crate) const FIVE: &str = "Authorization: Basic Zml2ZTpwYXNzOndvcmQ=";

/// `Aladdin:wrong`, encoded.
pub(crate) const WRONG: &str = "Authorization: Basic QWxhZGRpbjp3cm9uZw==";

pub(crate) fn write_config(root: &Root, text: &str) -> PathBuf {
    let config = root.outside().join("weir.toml");
    fs::write(&config, text).unwrap();
    config
}

/// Starts a server with this configuration, in which `OUTSIDE` is the directory around the root.
pub(crate) fn serve(setup: &Setup, root: &Root, text: &str) -> Server {
    let text = text.replace("OUTSIDE", root.outside().to_str().unwrap());
    let config = write_config(root, &text);
    setup.serve(root, &["--config", config.to_str().unwrap(), "--workers", "1"])
}

pub(crate) fn write_outside(root: &Root, name: &str, text: &str) {
    let path = root.outside().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Sends a request, and returns the reply.
fn ask(client: &mut Client, method: &str, host: &str, target: &str, fields: &[&str]) -> Reply {
    let lines: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n"));
    client.reply()
}

pub(crate) fn get(server: &Server, host: &str, target: &str) -> Reply {
    ask(&mut server.connect(), "GET", host, target, &[])
}

fn the_host_chooses_the_site(setup: &Setup) {
    let root = Root::with_hello();
    write_outside(&root, "a/index.html", "a");
    write_outside(&root, "b/start.html", "b");
    let server = serve(
        setup,
        &root,
        "[[site]]\nhosts = ['a.example', 'www.a.example']\nroot = 'OUTSIDE/a'\n\
         [[site]]\nhosts = ['*.a.example', '192.0.2.1', '2001:db8::1']\nroot = 'OUTSIDE/b'\n\
         index = ['start.html']\n\
         [[site.route]]\npath = '/gone'\nstatus = 410\n",
    );
    for (host, text) in [
        ("a.example", "a"),
        ("WWW.A.example:8080", "a"),
        ("b.a.example", "b"),
        ("c.b.a.example", "b"),
        ("192.0.2.1:80", "b"),
        ("[2001:DB8::0:1]", "b"),
    ] {
        assert_eq!(get(&server, host, "/").text(), text, "{host}");
    }
    assert_eq!(get(&server, "b.a.example", "/gone/x").status, 410);
    assert_eq!(get(&server, "a.example", "/gone/x").status, 404);
    for host in ["other.example", "example", "192.0.2.10"] {
        assert_eq!(get(&server, host, "/hello.txt").text(), "hello", "{host}");
    }
    let mut old = server.connect();
    old.send("GET /hello.txt HTTP/1.0\r\n\r\n");
    assert_eq!(old.reply().text(), "hello");
    server.stop_cleanly();
}

fn a_route_answers_with_a_redirect_or_a_status(setup: &Setup) {
    let root = Root::with_hello();
    let server = serve(
        setup,
        &root,
        "[[route]]\npath = '/old'\nredirect = '/new{tail}{query}'\nstatus = 308\n\
         [[route]]\nexact = '/old'\nredirect = 'https://a.example{path}'\n\
         [[route]]\npath = '/any'\nredirect = '/{tail}'\nstatus = 302\n\
         [[route]]\npath = '/gone'\nstatus = 410\n\
         [[route]]\npath = '/alive'\nstatus = 204\n\
         [[site]]\nhosts = ['up.example']\nstatus = 200\n",
    );
    let mut client = server.connect();
    for (target, status, location) in [
        ("/old", 301, "https://a.example/old"),
        ("/old/a%20b?c=d", 308, "/new/a%20b?c=d"),
        ("/old/x", 308, "/new/x"),
        ("/any//evil.example", 302, "/evil.example"),
        ("/any/%2Fevil.example", 302, "/evil.example"),
    ] {
        let reply = client.get(target);
        assert_eq!((reply.status, reply.expect_field("Location")), (status, location), "{target}");
    }
    assert_eq!(client.get("/gone").status, 410);
    let alive = client.get("/alive");
    assert_eq!((alive.status, alive.field("Content-Length")), (204, None));
    for method in ["POST", "DELETE", "HEAD"] {
        client.send(format!("{method} /old HTTP/1.1\r\nHost: a\r\n\r\n"));
        let reply = if method == "HEAD" { client.head().unwrap() } else { client.reply() };
        assert_eq!(reply.status, 301, "{method}");
    }
    assert_eq!(client.get("/hello.txt").text(), "hello");
    assert_eq!(get(&server, "up.example", "/any").status, 200);
    let mut tunnel = server.connect();
    tunnel.send("CONNECT up.example:443 HTTP/1.1\r\nHost: up.example:443\r\n\r\n");
    assert_eq!(tunnel.reply().status, 405, "no tunnel begins");
    server.stop_cleanly();
}

fn replies_have_the_fields_of_their_route(setup: &Setup) {
    let root = Root::with_hello();
    root.write("assets/a.js", "a");
    write_outside(&root, "lost.html", "lost");
    let server = serve(
        setup,
        &root,
        "header = ['X-Server: all', 'X-Other: all', 'Cache-Control: no-store']\n\
         [[route]]\npath = '/assets'\ncache-control = 'max-age=60'\n\
         set-header = ['X-Server: assets']\nadd-header = ['X-More: 1']\n\
         remove-header = ['Server']\nerror-page = ['404=OUTSIDE/lost.html']\n",
    );
    let mut client = server.connect();
    let asset = client.get("/assets/a.js");
    assert_eq!(asset.field("Cache-Control"), Some("max-age=60"));
    assert_eq!((asset.field("X-Server"), asset.field("X-Other")), (Some("assets"), Some("all")));
    assert_eq!((asset.field("X-More"), asset.field("Server")), (Some("1"), None));
    let same = client.get_with("/assets/a.js", &["If-None-Match: *"]);
    assert_eq!((same.status, same.field("Cache-Control")), (304, Some("max-age=60")));
    let lost = client.get("/assets/none");
    assert_eq!((lost.status, lost.text().as_str()), (404, "lost"));
    assert_eq!(lost.field("X-Server"), Some("assets"));
    assert_eq!(lost.field("Cache-Control"), Some("no-store"), "it is an error");
    let hello = client.get("/hello.txt");
    assert_eq!((hello.field("X-Server"), hello.field("Server")), (Some("all"), Some("weir")));
    assert_eq!(hello.field("Cache-Control"), Some("no-store"));
    let own = client.get("/none");
    assert_eq!(own.field("X-Content-Type-Options"), Some("nosniff"));
    assert!(own.expect_field("Content-Security-Policy").contains("default-src 'none'"));
    server.stop_cleanly();
}

fn a_denied_client_is_refused_however_it_writes_the_path(setup: &Setup) {
    let root = Root::with_hello();
    root.write("admin/secret.txt", "secret");
    let server = serve(
        setup,
        &root,
        "[[route]]\npath = '/admin'\ndeny = ['127.0.0.0/8']\n\
         [[route]]\npath = '/admin/open'\nallow = ['127.0.0.1']\nstatus = 200\n\
         [[route]]\npath = '/mapped'\ndeny = ['::ffff:127.0.0.1']\nstatus = 200\n",
    );
    for target in [
        "/admin/secret.txt",
        "/admin",
        "/admin/",
        "//admin/secret.txt",
        "/admin//secret.txt",
        "/%61dmin/secret.txt",
        "/%61%64%6d%69%6e/secret.txt",
        "/admin%2fsecret.txt",
        "http://other.example/admin/secret.txt",
        "/mapped",
    ] {
        let reply = get(&server, "a", target);
        assert_eq!(reply.status, 403, "{target}");
    }
    for target in ["/x/../admin/secret.txt", "/./admin/secret.txt", "/x/%2e%2e/admin/secret.txt"] {
        assert_eq!(get(&server, "a", target).status, 400, "{target}");
    }
    assert_eq!(get(&server, "a", "/admin/open").status, 200);
    assert_eq!(get(&server, "a", "/hello.txt").text(), "hello");
    server.stop_cleanly();
}

fn an_application_of_one_page_is_served_for_every_path(setup: &Setup) {
    let root = Root::with_hello();
    root.write("index.html", "app");
    root.write("about.html", "about");
    let server = serve(
        setup,
        &root,
        "[[route]]\npath = '/'\ntry-files = ['{path}.html', '/index.html']\n\
         [[route]]\npath = '/api'\n\
         [[site]]\nhosts = ['app.example']\ntry-files = ['/index.html']\n\
         [[site.route]]\npath = '/assets'\ncache-control = 'immutable'\n\
         [[site.route]]\npath = '/manual'\ntry-files = ['/about.html']\n",
    );
    let mut client = server.connect();
    for (target, status, text) in [
        ("/", 200, "app"),
        ("/hello.txt", 200, "hello"),
        ("/about", 200, "about"),
        ("/users/7?tab=1", 200, "app"),
        ("/a%20b", 200, "app"),
    ] {
        let reply = client.get(target);
        assert_eq!((reply.status, reply.text().as_str()), (status, text), "{target}");
    }
    assert_eq!(client.head_with("/users/7", &[]).status, 200);
    assert_eq!(client.get("/api/none").status, 404);
    let of_site = |target| get(&server, "app.example", target);
    assert_eq!(of_site("/users/7").text(), "app");
    let none = of_site("/assets/none.js");
    assert_eq!((none.status, none.field("Cache-Control")), (404, None));
    assert_eq!(of_site("/manual/none").text(), "about");
    server.stop_cleanly();
}

fn a_route_has_a_root_of_its_own(setup: &Setup) {
    let root = Root::with_hello();
    root.write("docs/other.txt", "of the server");
    write_outside(&root, "manual/dir/page.txt", "page");
    write_outside(&root, "manual/a b.txt", "spaced");
    write_outside(&root, "whole/whole/file.txt", "whole");
    let server = serve(
        setup,
        &root,
        "[[route]]\npath = '/docs'\nroot = 'OUTSIDE/manual'\nstrip = true\nlisting = true\n\
         [[route]]\npath = '/whole'\nroot = 'OUTSIDE/whole'\n",
    );
    let mut client = server.connect();
    for (target, text) in [
        ("/docs/dir/page.txt", "page"),
        ("/docs/a%20b.txt", "spaced"),
        ("//docs//dir/page.txt", "page"),
        ("/whole/file.txt", "whole"),
    ] {
        assert_eq!(client.get(target).text(), text, "{target}");
    }
    for (target, location) in
        [("/docs", "/docs/"), ("/docs/dir", "/docs/dir/"), ("/docs?a", "/docs/?a")]
    {
        let reply = client.get(target);
        assert_eq!((reply.status, reply.expect_field("Location")), (301, location), "{target}");
    }
    let listing = client.get("/docs/");
    assert!(listing.text().contains("dir/"), "{}", listing.text());
    assert_eq!(listing.field("X-Content-Type-Options"), Some("nosniff"));
    for target in ["/docs/other.txt", "/docs/hello.txt", "/docs/%2e%2e/secret.txt", "/dir/page.txt"]
    {
        assert!(matches!(client.get(target).status, 400 | 404), "{target}");
    }
    assert_eq!(client.get("/hello.txt").text(), "hello");
    server.stop_cleanly();
}

fn pages_of_other_origins_are_told_what_they_may_do(setup: &Setup) {
    let root = Root::with_hello();
    root.write("api/a.json", "{}");
    let server = serve(
        setup,
        &root,
        "[[route]]\npath = '/api'\ncors-origins = ['https://app.example']\n\
         cors-methods = ['PUT']\ncors-headers = ['X-Token']\ncors-credentials = true\n\
         cors-max-age = '1m'\n\
         [[route]]\npath = '/denied'\ncors-origins = ['https://app.example']\n\
         deny = ['127.0.0.1']\n\
         [[route]]\npath = '/open'\ncors-origins = ['*']\nstatus = 200\n",
    );
    let mut client = server.connect();
    let app = "Origin: https://app.example";
    let reply = client.get_with("/api/a.json", &[app]);
    assert_eq!(reply.field("Access-Control-Allow-Origin"), Some("https://app.example"));
    assert_eq!(reply.field("Access-Control-Allow-Credentials"), Some("true"));
    assert_eq!((reply.field("Vary"), reply.text().as_str()), (Some("Origin"), "{}"));
    let other = client.get_with("/api/a.json", &["Origin: https://evil.example"]);
    assert_eq!(other.field("Access-Control-Allow-Origin"), None);
    assert_eq!(other.field("Vary"), Some("Origin"));
    let asks = "Access-Control-Request-Method: PUT";
    let preflight = ask(&mut client, "OPTIONS", "a", "/api/a.json", &[app, asks]);
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.field("Access-Control-Allow-Methods"), Some("GET, HEAD, POST, PUT"));
    assert_eq!(preflight.field("Access-Control-Allow-Headers"), Some("X-Token"));
    assert_eq!(preflight.field("Access-Control-Max-Age"), Some("60"));
    let refused =
        ask(&mut client, "OPTIONS", "a", "/api/a.json", &["Origin: https://evil.example", asks]);
    assert_eq!((refused.status, refused.field("Access-Control-Allow-Methods")), (204, None));
    let elsewhere = client.get_with("/hello.txt", &[app]);
    assert_eq!(
        (elsewhere.field("Access-Control-Allow-Origin"), elsewhere.field("Vary")),
        (None, None)
    );
    let denied = client.get_with("/denied", &[app]);
    assert_eq!(denied.status, 403);
    assert_eq!(denied.field("Access-Control-Allow-Origin"), Some("https://app.example"));
    // A cache may send to a page what it has from a request without an origin.
    let origins: [&[&str]; 3] = [&[], &[app], &["Origin: https://other.example"]];
    for origin in origins {
        let open = client.get_with("/open", origin);
        assert_eq!(open.field("Access-Control-Allow-Origin"), Some("*"), "{origin:?}");
        assert_eq!(open.field("Vary"), None, "{origin:?}");
    }
    let asked = ask(&mut client, "OPTIONS", "a", "/open", &[asks]);
    assert_eq!((asked.status, asked.field("Access-Control-Allow-Methods")), (200, None));
    server.stop_cleanly();
}

fn bodies_and_heads_have_the_limits_of_their_route(setup: &Setup) {
    let root = Root::with_hello();
    let server = serve(
        setup,
        &root,
        "[[route]]\npath = '/small'\nmax-body = 10\nmax-head = 200\nstatus = 200\n\
         [[route]]\npath = '/large'\nmax-body = '4M'\nstatus = 200\n",
    );
    let long = format!("X: {}", "x".repeat(200));
    let post = |target: &str, length: u64| {
        let mut client = server.connect();
        let length = format!("Content-Length: {length}");
        ask(&mut client, "POST", "a", target, &[&length]).status
    };
    assert_eq!((post("/small", 10), post("/small", 11)), (200, 413));
    assert_eq!((post("/large", 3 << 20), post("/large", 5 << 20)), (200, 413));
    assert_eq!(ask(&mut server.connect(), "GET", "a", "/small", &[&long]).status, 431);
    assert_eq!(ask(&mut server.connect(), "GET", "a", "/large", &[&long]).status, 200);
    server.stop_cleanly();
}

/// Writes a file of users outside of the root.
pub(crate) fn write_users(root: &Root) {
    write_outside(root, "users", &format!("Aladdin:{BCRYPT}\nfive:{SHA_CRYPT}\n"));
}

fn a_password_is_asked_for_and_found_right_once(setup: &Setup) {
    let root = Root::with_hello();
    root.write("private/a.txt", "private");
    write_users(&root);
    let server = serve(
        setup,
        &root,
        "[[route]]\npath = '/private'\nauth-file = 'OUTSIDE/users'\nauth-realm = 'the cave'\n",
    );
    let mut client = server.connect();
    let reply = client.get("/private/a.txt");
    assert_eq!(reply.status, 401);
    let challenge = reply.expect_field("WWW-Authenticate");
    assert_eq!(challenge, "Basic realm=\"the cave\", charset=\"UTF-8\"");
    for wrong in
        [WRONG, "Authorization: Basic !", "Authorization: Bearer x", "Authorization: Basic"]
    {
        assert_eq!(client.get_with("/private/a.txt", &[wrong]).status, 401, "{wrong}");
    }
    assert_eq!(client.get_with("/private/a.txt", &[ALADDIN, ALADDIN]).status, 401);
    for right in [ALADDIN, FIVE, ALADDIN, FIVE] {
        assert_eq!(client.get_with("/private/a.txt", &[right]).text(), "private", "{right}");
    }
    // In the order in which they came, whether a password is known or has to be verified.
    let fields = |authorization: &str| format!("Host: a\r\n{authorization}\r\n\r\n");
    let mut second = server.connect();
    second.send(
        ["/hello.txt", "/private/a.txt", "/hello.txt"]
            .map(|target| format!("GET {target} HTTP/1.1\r\n{}", fields(ALADDIN)))
            .concat(),
    );
    assert_eq!([0; 3].map(|_| second.reply().text()), ["hello", "private", "hello"]);
    let mut gone = server.connect();
    gone.send(format!("GET /private/a.txt HTTP/1.1\r\n{}", fields(WRONG)));
    drop(gone);
    assert_eq!(client.get_with("/private/a.txt", &[ALADDIN]).text(), "private");
    server.stop_cleanly();
}

fn forwarded_requests_pass_the_same_gate(setup: &Setup) {
    let origin = Origin::echo();
    let root = Root::with_hello();
    write_users(&root);
    let text = format!(
        "[[upstream]]\nname = 'app'\nservers = '{}'\n\
         [[site]]\nhosts = ['app.example']\nupstream = 'app'\nmax-body = 10\n\
         [[site.route]]\npath = '/denied'\ndeny = ['127.0.0.1']\n\
         [[site.route]]\npath = '/private'\nauth-file = 'OUTSIDE/users'\nmax-body = '1M'\n\
         [[site.route]]\npath = '/files'\nupstream = 'files'\n",
        origin.url()
    );
    let server = serve(setup, &root, &text);
    let ask_app = |method: &str, target: &str, fields: &[&str]| {
        ask(&mut server.connect(), method, "app.example", target, fields)
    };
    assert_eq!(ask_app("GET", "/a/../b", &[]).status, 400);
    assert_eq!(ask_app("GET", "/a?b", &[]).text(), "GET /a?b HTTP/1.1\n");
    assert_eq!(ask_app("GET", "/denied/a", &[]).status, 403);
    assert_eq!(ask_app("GET", "/%64enied/a", &[]).status, 403);
    let moved = |to| ask_app("MOVE", "/a", &[to]);
    assert_eq!(moved("Destination: /denied/a").status, 403);
    assert_eq!(moved("Destination: http://app.example/private/a").status, 403);
    assert_eq!(moved("Destination: /a/../b").status, 400);
    assert_eq!(moved("Destination: /a\\..\\denied").status, 400);
    for target in ["/denied\\a", "/denied%5Ca", "/a/..\\denied/a", "/a\\..\\denied"] {
        assert_eq!(ask_app("GET", target, &[]).status, 400, "{target}");
    }
    assert_eq!(moved("Destination: /b").text(), "MOVE /a HTTP/1.1\n");
    assert_eq!(ask_app("GET", "/private/a", &[]).status, 401);
    assert_eq!(ask_app("GET", "/private/a", &[WRONG]).status, 401);
    assert_eq!(ask_app("GET", "/private/a", &[ALADDIN]).text(), "GET /private/a HTTP/1.1\n");
    assert_eq!(ask_app("POST", "/a", &["Content-Length: 11"]).status, 413);
    assert_eq!(ask_app("GET", "/files", &[]).status, 404);
    let mut client = server.connect();
    let chunks = "10\r\n0123456789abcdef\r\n0\r\n\r\n";
    client.send(format!(
        "POST /a HTTP/1.1\r\nHost: app.example\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
    ));
    assert_eq!(client.reply().status, 413);
    // A large body is no reason to answer otherwise than by the rule.
    assert_eq!(ask_app("POST", "/private/a", &["Content-Length: 5000000"]).status, 401);
    let asked: Vec<_> = origin.received().iter().map(|each| each.line().to_owned()).collect();
    assert!(!asked.iter().any(|line| line.contains("denied")), "{asked:?}");
    server.stop_cleanly();
}

fn replies_of_an_upstream_have_the_fields_of_their_route(setup: &Setup) {
    let origin = Origin::start(|received| {
        let head = "HTTP/1.1 200 OK\r\nX-Powered-By: it\r\nCache-Control: max-age=60\r\n\
                    Access-Control-Allow-Origin: *\r\nServer: origin\r\n";
        let body = received.line();
        format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let root = Root::with_hello();
    let text = format!(
        "cache = '1M'\n[[upstream]]\nname = 'app'\nservers = '{}'\n\
         [[route]]\npath = '/'\nupstream = 'app'\nremove-header = ['X-Powered-By']\n\
         set-header = ['Server: mine', 'Cache-Control: private']\ncache-control = 'no-store'\n\
         cors-origins = ['https://app.example']\n\
         [[route]]\npath = '/plain'\nupstream = 'app'\n",
        origin.url()
    );
    let server = serve(setup, &root, &text);
    let mut client = server.connect();
    // The second is a stored reply.
    for nth in 0..2 {
        let reply = client.get_with("/a", &["Origin: https://app.example"]);
        assert_eq!(reply.text(), "GET /a HTTP/1.1", "{nth}");
        assert_eq!((reply.field("X-Powered-By"), reply.field("Server")), (None, Some("mine")));
        assert_eq!(reply.field("Cache-Control"), Some("no-store"), "{nth}");
        assert_eq!(reply.field("Access-Control-Allow-Origin"), Some("https://app.example"));
        let plain = client.get_with("/plain", &["Origin: https://app.example"]);
        assert_eq!(
            (plain.field("X-Powered-By"), plain.field("Server")),
            (Some("it"), Some("origin"))
        );
        assert_eq!(plain.field("Access-Control-Allow-Origin"), Some("*"));
        assert_eq!(plain.field("Cache-Control"), Some("max-age=60"));
    }
    assert_eq!(origin.received().len(), 2);
    server.stop_cleanly();
}

#[test]
fn a_field_that_no_reply_has_is_in_none_whoever_makes_it() {
    let origin = Origin::start(|_| {
        let link = "Link: </a.css>; rel=preload\r\n";
        let hints = format!("HTTP/1.1 103 Early Hints\r\n{link}X-Kept: 1\r\n\r\n");
        let last = format!("HTTP/1.1 200 OK\r\n{link}Content-Length: 0\r\n\r\n");
        (hints + &last).into_bytes()
    });
    let root = Root::with_hello();
    let config = write_config(
        &root,
        &format!(
            "upstream = ['app={}', 'gone=http://127.0.0.1:1']\n[[site]]\nhosts = ['test.example']\n\
             remove-header = ['Link', 'Content-Security-Policy', 'Proxy-Status', 'Accept-Ranges']\n\
             set-header = ['X-Set: 1']\nadd-header = ['X-Added: 1']\ncache-control = 'no-cache'\n\
             [[site.route]]\npath = '/app'\nupstream = 'app'\n\
             [[site.route]]\npath = '/bare'\nstatus = 200\n\
             remove-header = ['x-set', 'X-Added', 'Cache-Control']\n\
             [[site.route]]\npath = '/own'\nstatus = 200\n\
             set-header = [\"Content-Security-Policy: default-src 'self'\"]\n\
             [[site.route]]\npath = '/gone'\nupstream = 'gone'\n\
             [[site.route]]\npath = '/moved'\nredirect = '/'\n",
            origin.url()
        ),
    );
    let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], &root);
    let mut client = server.connect();
    client.send(request("GET", "/app", &[]));
    let hints = client.head().unwrap();
    assert_eq!((hints.status, hints.field("X-Kept"), hints.field("Link")), (103, Some("1"), None));
    assert_eq!((client.reply().field("Link"), origin.received().len()), (None, 1));
    for (target, status) in [("/none", 404), ("/moved", 301), ("/gone", 502), ("/hello.txt", 200)] {
        let reply = client.get(target);
        assert_eq!(reply.status, status, "{target}");
        for name in ["Content-Security-Policy", "Proxy-Status", "Accept-Ranges"] {
            assert_eq!(reply.field(name), None, "{target}");
        }
        assert_eq!(reply.field("X-Content-Type-Options").is_some(), status != 200, "{target}");
    }
    // A route removes what its site sets.
    let (bare, hello) = (client.get("/bare"), client.get("/hello.txt"));
    for name in ["X-Set", "X-Added", "Cache-Control"] {
        assert_eq!((bare.field(name), hello.field(name).is_some()), (None, true), "{name}");
    }
    // What it sets itself, its site does not remove.
    let own = client.get("/own");
    assert_eq!(own.field("Content-Security-Policy"), Some("default-src 'self'"));
    assert_eq!(own.field("Accept-Ranges"), None);
    server.stop_cleanly();
}

#[test]
fn a_field_that_no_reply_has_is_no_trailer_whether_it_is_stored_or_not() {
    let origin = Origin::start(|_| {
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n\
          2\r\nhi\r\n0\r\nX-Secret: 1\r\nKept: 2\r\n\r\n"
            .to_vec()
    });
    let root = Root::with_hello();
    for cache in ["", "cache = '1M'\n"] {
        let text = format!(
            "{cache}[[upstream]]\nname = 'app'\nservers = '{}'\n\
             [[route]]\npath = '/'\nupstream = 'app'\nremove-header = ['X-Secret']\n",
            origin.url()
        );
        let config = write_config(&root, &text);
        let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], &root);
        let mut client = server.connect();
        client.send(request("GET", "/", &["Connection: close"]));
        let reply = String::from_utf8(client.rest().unwrap()).unwrap();
        assert!(reply.ends_with("2\r\nhi\r\n0\r\nKept: 2\r\n\r\n"), "{cache}{reply}");
        server.stop_cleanly();
    }
}

#[test]
fn a_trusted_proxy_says_who_is_denied() {
    let root = Root::with_hello();
    let config = write_config(
        &root,
        "trusted-proxy = ['127.0.0.1']\n[[route]]\npath = '/'\ndeny = ['192.0.2.0/24']\n",
    );
    let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], &root);
    let status = |said: &str| server.get_with("/hello.txt", &[said]).status;
    assert_eq!(status("X-Forwarded-For: 192.0.2.7"), 403);
    assert_eq!(status("X-Forwarded-For: 192.0.2.7, 198.51.100.1"), 200);
    assert_eq!(status("X-Forwarded-For: 198.51.100.1, 192.0.2.7, 127.0.0.1"), 403);
    assert_eq!(status("X-Other: 192.0.2.7"), 200);
    for denied in [
        "X-Forwarded-For: 192.0.2.7:4711",
        "X-Forwarded-For: [::ffff:192.0.2.7]:4711",
        "X-Forwarded-For: 198.51.100.1, \"192.0.2.7\", 127.0.0.1:80",
        "Forwarded: for=198.51.100.1, for=\"192.0.2.7:4711\";proto=https",
    ] {
        assert_eq!(status(denied), 403, "{denied}");
    }
    assert_eq!(status("X-Forwarded-For: unknown"), 200);
    // Each request on a connection is one client's own.
    let mut proxy = server.connect();
    for (said, status) in [("198.51.100.1", 200), ("192.0.2.7", 403), ("198.51.100.1", 200)] {
        let field = format!("X-Forwarded-For: {said}");
        assert_eq!(proxy.get_with("/hello.txt", &[&field]).status, status, "{said}");
    }
    server.stop_cleanly();
    let config = write_config(
        &root,
        "trusted-proxy = ['127.0.0.1']\n[[route]]\npath = '/'\nallow = ['127.0.0.1']\n",
    );
    let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], &root);
    let status = |said: &str| server.get_with("/hello.txt", &[said]).status;
    assert_eq!(status("X-Forwarded-For: 127.0.0.1"), 200);
    assert_eq!(status("X-Forwarded-For: _hidden"), 403);
    server.stop_cleanly();
}

#[test]
fn an_unknown_host_is_answered_as_the_file_says() {
    let root = Root::with_hello();
    for answer in [421, 404] {
        let text = format!("unknown-host = {answer}\n[[site]]\nhosts = ['a.example']\n");
        let config = write_config(&root, &text);
        let server = Server::start(WEIR, &["--config", config.to_str().unwrap()], &root);
        assert_eq!(get(&server, "b.example", "/hello.txt").status, answer);
        assert_eq!(get(&server, "a.example", "/hello.txt").text(), "hello");
        server.stop_cleanly();
    }
}

#[test]
fn a_page_from_elsewhere_does_not_reach_a_loopback_listener() {
    let root = Root::with_hello();
    let server = Server::start(WEIR, &["--allowed-host", "app.test"], &root);
    for host in ["localhost:8080", "127.0.0.1", "[::1]:1", "x.localhost", "app.test"] {
        assert_eq!(get(&server, host, "/hello.txt").text(), "hello", "{host}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", "192.168.0.1"] {
        assert_eq!(get(&server, host, "/hello.txt").status, 421, "{host}");
    }
    server.stop_cleanly();
}

#[test]
fn guesses_do_not_hold_up_others() {
    let root = Root::with_hello();
    write_users(&root);
    let users = root.outside().join("users");
    let text = format!("[[route]]\npath = '/private'\nauth-file = '{}'\n", users.display());
    let config = write_config(&root, &text);
    let server =
        Server::start(WEIR, &["--config", config.to_str().unwrap(), "--workers", "1"], &root);
    let mut guesses: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    for client in &mut guesses {
        client.send(format!("GET /private/a HTTP/1.1\r\nHost: a\r\n{WRONG}\r\n\r\n"));
    }
    assert_eq!(server.get("/hello.txt").text(), "hello");
    for client in &mut guesses {
        assert!(matches!(client.reply().status, 401 | 503));
    }
    server.stop_cleanly();
}

#[test]
fn a_sound_file_is_checked_and_printed_with_its_sites() {
    let root = Root::with_hello();
    write_users(&root);
    let (www, users) = (root.path().display(), root.outside().join("users"));
    let log = root.outside().join("access.log");
    let config = write_config(
        &root,
        &format!(
            "root = '{www}'\n[[site]]\nhosts = ['a.example']\nredirect = 'https://b.example{{path}}'\n\
             [[site]]\nhosts = ['b.example']\n\
             [[site.route]]\npath = '/private'\nauth-file = '{}'\n",
            users.display()
        ),
    );
    let checked = run(Command::new(WEIR).arg("check").arg(&config).env("WEIR_ACCESS_LOG", &log));
    assert_eq!(checked.status.code(), Some(0), "{}", checked.stderr);
    assert!(!log.exists(), "a check makes nothing");
    let print = |config: &PathBuf| {
        let stopped =
            run(Command::new(WEIR).args(["serve", "--print-config", "--config"]).arg(config));
        assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
        stopped.stdout
    };
    let first = print(&config);
    for line in ["hosts = [\"a.example\"]", "[[site.route]]", "path = \"/private\""] {
        assert!(first.lines().any(|each| each == line), "{line}: {first}");
    }
    fs::write(&config, &first).unwrap();
    let tables = |text: &str| text.split_once("[[site]]").unwrap().1.to_owned();
    assert_eq!(tables(&print(&config)), tables(&first));
}

#[test]
fn what_makes_no_sense_is_one_sentence_with_its_place() {
    let root = Root::with_hello();
    for (text, says) in [
        ("[[site]]\nroot = '/'\n", "line 1, column 1: 'hosts' is missing"),
        ("[[site]]\nhosts = ['a:80']\n", "line 2, column 9: 'a:80' is no host"),
        (
            "[[site]]\nhosts = ['a']\n[[site]]\nhosts = ['A']\n",
            "line 4, column 9: the host a is that of another",
        ),
        ("[[site]]\nhosts = ['a', 'A.']\n", "line 2, column 9: the host a is there twice"),
        (
            "[[site]]\nhosts = ['a']\n[[site.route]]\npath = '/x'\n\
             [[site.route]]\npath = '//%78'\ndeny = ['10.0.0.1']\n",
            "line 6, column 8: the route for /x is there twice",
        ),
        (
            "[[route]]\nexact = '/x'\n[[route]]\nexact = '/x'\n",
            "line 4, column 9: the route for exactly /x is there twice",
        ),
        (
            "[[site]]\nhosts = ['a']\n[[site.route]]\nstatus = 200\n\
             [[site.route]]\nstatus = 403\n",
            "line 5, column 1: the route for / is there twice",
        ),
        (
            "[[route]]\nhost = 'a'\nstatus = 200\n[[route]]\nhost = 'A'\npath = '/'\n",
            "line 6, column 8: the route for / is there twice",
        ),
        (
            "upstream = 'a=unix:a'\nroute = ['/x=a', '/x=files']\n",
            "line 2, column 9: --route /x: the route for /x is there twice",
        ),
        ("[[site]]\nhosts = ['a']\n[[route]]\nhost = 'a'\nstatus = 410\n", "line 4, column 8"),
        (
            "[[site]]\nhosts = '*.a.b'\nallow = '::1'\n[[route]]\nhost = 'x.a.b'\nstatus = 204\n",
            "line 5, column 8: the host is one of *.a.b, which have a [[site]]",
        ),
        (
            "[[upstream]]\nname = 'a'\nservers = 'http://127.0.0.1:1'\nupstream-ca = '/no/such'\n\
             [[route]]\nupstream = 'a'\n",
            "line 4, column 15: --upstream-ca is for servers with https://",
        ),
        ("[[route]]\npath = 'a'\n", "line 2, column 8: a path begins with /"),
        ("[[route]]\npath = '/a'\nexact = '/b'\n", "line 3, column 9: a route has"),
        ("[[route]]\nexact = '/a'\nstrip = true\n", "line 3, column 9: there is no path below"),
        ("[[route]]\nupstream = 'x'\n", "line 2, column 12: there is no upstream x"),
        (
            "[[route]]\nredirect = '/a'\nstatus = 404\n",
            "line 3, column 10: 404 is no status of a redirect",
        ),
        ("[[route]]\nredirect = 'a'\n", "line 2, column 12: invalid value 'a'"),
        ("[[route]]\nstatus = 304\n", "says more than that"),
        ("[[route]]\nauth-file = '/no/such'\n", "line 2, column 13: /no/such: "),
        ("[[route]]\nallow = ['10.0.0.0/99']\n", "line 2, column 10: invalid value"),
        ("[[route]]\ncors-origins = ['*']\ncors-credentials = true\n", "any page could read"),
        ("[[route]]\npahts = '/a'\n", "did you mean 'path'?"),
        (
            "unknown-host = 421\n",
            "line 1, column 16: --unknown-host is for hosts without a [[site]]",
        ),
        ("index = 'a/b'\n", "line 1, column 9: invalid value 'a/b' for '--index"),
        ("[[route]]\nindex = ['a', '..']\n", "line 2, column 15: invalid value '..'"),
        ("admin = 'https://127.0.0.1:0'\n", "line 1, column 9: --admin speaks no TLS"),
        ("admin = '127.0.0.1:0'\nstat-page = false\n", "line 1, column 9: --admin shows the page"),
        ("[[site]]\nhosts = ['a']\nroot = '/no/such'\n", "line 3, column 8: /no/such: No such"),
        ("[[route]]\nroot = '/dev/null'\n", "line 2, column 8: /dev/null: this is no directory"),
    ] {
        check_refuses(&root, text, says);
    }
}

#[test]
fn what_an_option_names_is_told_with_the_place_of_the_option() {
    let root = Root::with_hello();
    for (text, says) in [
        ("error-page = '300=/x'\n", "line 1, column 14: --error-page: 300: not an error status"),
        ("error-page = '404=/no/such'\n", "line 1, column 14: --error-page: /no/such: No such"),
        ("upstream = 'a=ftp://x'\n", "line 1, column 12: --upstream: ftp://x is none of"),
        ("upstream = ['a=unix:a', 'a=unix:b']\n", "line 1, column 12: --upstream: the name a is"),
        (
            "upstream = 'a=https://127.0.0.1'\nupstream-ca = '/no/such'\n",
            "line 2, column 15: --upstream-ca: /no/such: No such",
        ),
        (
            "[[upstream]]\nname = 'a'\nservers = 'https://127.0.0.1'\nupstream-ca = '/no/such'\n",
            "line 4, column 15: --upstream-ca: /no/such: No such",
        ),
        (
            "upstream-ca = '/no/such'\n[[upstream]]\nname = 'a'\nservers = 'https://127.0.0.1'\n",
            "line 1, column 15: --upstream-ca: /no/such: No such",
        ),
        (
            "listen = 'https://127.0.0.1:0'\ntls-cert = '/no/such'\ntls-key = '/no/key'\n",
            "line 2, column 12: --tls-cert: /no/such: No such",
        ),
    ] {
        check_refuses(&root, text, says);
    }
    let authority = Authority::new();
    let issued = authority.issue("server", &NAMES);
    let certificate = issued.certificate_file.display();
    let text = format!(
        "listen = 'https://127.0.0.1:0'\ntls-cert = '{certificate}'\ntls-key = '/no/key'\n"
    );
    check_refuses(&root, &text, "line 3, column 11: --tls-key: /no/key: No such");
}

#[test]
fn a_file_of_a_proxy_is_checked_with_servers_that_its_options_are_for() {
    let root = Root::with_hello();
    let check = |text: &str| {
        let config = write_config(&root, text);
        run(Command::new(WEIR).args(["check", "--proxy"]).arg(&config))
    };
    for text in ["", "upstream-insecure = true\n", "proxy-protocol-out = 'v2'\n"] {
        let stopped = check(text);
        assert_eq!(stopped.status.code(), Some(0), "{text:?}: {}", stopped.stderr);
        assert!(stopped.stdout.contains("is sound"), "{text:?}: {}", stopped.stdout);
    }
    let wrong = check("upstream-ca = '/no/such'\n");
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.stderr);
    let says = "line 1, column 15: --upstream-ca: /no/such: No such";
    assert!(wrong.stderr.contains(says), "{}", wrong.stderr);
}

#[test]
fn the_files_of_the_machine_are_served_only_if_somebody_says_so() {
    let root = Root::with_hello();
    let www = root.path().display();
    let in_top = |words: &[&str], text: &str| {
        let config = write_config(&root, text);
        run(Command::new(WEIR).current_dir("/").args(words).arg(&config))
    };
    let site = format!("[[site]]\nhosts = ['a.example']\nroot = '{www}'\n");
    for text in ["listing = true\n", &site] {
        for words in [&["check"][..], &["serve", "--config"]] {
            let stopped = in_top(words, text);
            assert_eq!(stopped.status.code(), Some(2), "{words:?} {text:?}: {}", stopped.stderr);
            assert_eq!(stopped.stderr.trim_end().lines().count(), 1, "{}", stopped.stderr);
            assert!(stopped.stderr.contains("weir.toml: no root is named"), "{}", stopped.stderr);
        }
        let printed = in_top(&["serve", "--print-config", "--config"], text);
        assert_eq!(printed.status.code(), Some(0), "{text:?}: {}", printed.stderr);
    }
    for named in [www.to_string(), "/".to_owned()] {
        let stopped = in_top(&["check"], &format!("root = '{named}'\n{site}"));
        assert_eq!(stopped.status.code(), Some(0), "{named}: {}", stopped.stderr);
        let says = format!("is sound: serves {named} on ");
        assert!(stopped.stdout.contains(&says), "{named}: {}", stopped.stdout);
    }
    // Elsewhere the working directory is served, and the check says which one that is.
    let config = write_config(&root, "listing = true\n");
    let stopped = run(Command::new(WEIR).current_dir(root.path()).arg("check").arg(&config));
    let real = root.path().canonicalize().unwrap();
    let says = format!("is sound: serves {} on ", real.display());
    assert!(stopped.stdout.contains(&says), "{}", stopped.stdout);
}

/// Checks a file in which something is wrong, which is said in a sentence.
pub(crate) fn check_refuses(root: &Root, text: &str, says: &str) {
    let config = write_config(root, text);
    let stopped = run(Command::new(WEIR).arg("check").arg(&config));
    assert_eq!(stopped.status.code(), Some(2), "{text:?}: {}", stopped.stderr);
    assert_eq!(stopped.stderr.trim_end().lines().count(), 1, "{text:?}: {}", stopped.stderr);
    assert!(stopped.stderr.contains(says), "{text:?}: {}", stopped.stderr);
}

#[test]
fn a_check_finds_what_this_machine_does_not_have() {
    let root = Root::with_hello();
    for (text, says) in [
        ("root = '/no/such'\n", "line 1, column 8: /no/such"),
        ("root = '/dev/null'\n", "line 1, column 8: /dev/null: Not a directory"),
        ("user = 'nobody-of-this-name'\n", "line 1, column 8: --user: there is no user nobody-of"),
        ("cpus = '1023'\n", "line 1, column 8: --cpus: processor 1023 is not there"),
        (
            "listing = true\naccess-log = '/no/such/log'\n",
            "line 2, column 14: cannot open the access log: /no/such/log: No such file",
        ),
        ("access-log = '/'\n", "line 1, column 14: cannot open the access log: /: Is a dir"),
        ("access-log = 'syslog:/no/such'\n", "cannot open the access log: /no/such: No such"),
        ("error-log = '/dev/null/log'\n", "line 1, column 13: cannot open the error log: /dev"),
    ] {
        check_refuses(&root, text, says);
    }
}
