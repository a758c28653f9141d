//! A whole tree, byte for byte, to clients of every manner at once: quick and slow, one request at
//! a time and many, whole files and parts, polite and rude. Each manner is tested separately in
//! `http.rs`, `representations.rs` and `behaviour.rs`; here no client may disturb another.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use weir_tests::files::{LAST_MODIFIED, Served, settled_files};
use weir_tests::multipart::{content_range, parts};
use weir_tests::{Client, Reply, Server, Setup, assert_same, request, suite};

use crate::WEIR;

suite! {
    every_setup:
    a_tree_is_mirrored_by_clients_of_every_manner_at_once,
}

const SIZES: [usize; 9] = [0, 1, 100, 4095, 4096, 4097, 65_535, 65_536, 65_537];

const LARGE: [usize; 6] = [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1 << 20, 5 << 20, 5 << 20];

/// Content codings (RFC 9110) of precompressed files, with their file name extensions.
const VARIANTS: [(&str, &str); 3] = [("br", ".br"), ("gzip", ".gz"), ("zstd", ".zst")];

/// Number of requests that a pipelining client sends at a time.
const PIPELINED: usize = 16;

/// Returns the names and sizes of some 300 files in 20 directories.
fn names_and_sizes() -> impl Iterator<Item = (String, usize)> {
    let dirs = (0..10).flat_map(|dir| {
        let sized = SIZES.iter().map(move |&size| (format!("dir{dir}/{size}.bin"), size));
        let odd = (0..12).map(move |file| (format!("dir{dir}/in/{file}"), 37 * file * file * dir));
        let script = format!("dir{dir}/app.js");
        let variants =
            VARIANTS.map(|(_, end)| format!("{script}{end}")).into_iter().zip(700 + dir..);
        let pages = [format!("dir{dir}/index.html"), format!("dir{dir}/in/index.html")];
        let pages = pages.into_iter().zip(300 + dir..);
        sized.chain(odd).chain(variants).chain(pages).chain([(script, 9000 + dir)])
    });
    let large = LARGE.iter().enumerate().map(|(i, &size)| (format!("large{i}.bin"), size));
    dirs.chain(large).chain([("index.html".to_owned(), 1000)])
}

/// The served tree and its location.
struct Tree {
    root: PathBuf,
    files: Vec<Served>,
}

impl Tree {
    fn get() -> &'static Tree {
        static TREE: OnceLock<Tree> = OnceLock::new();
        TREE.get_or_init(|| {
            let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mirror");
            let files = settled_files(&root, names_and_sizes());
            Tree { root, files }
        })
    }

    fn file(&self, target: &str) -> &Served {
        self.files.iter().find(|file| file.target == target).expect(target)
    }

    fn of_sizes(&self, sizes: impl Fn(usize) -> bool) -> impl Iterator<Item = &Served> {
        self.files.iter().filter(move |file| sizes(file.body.len()))
    }
}

/// Behaviour of a polite client.
type Manner = fn(&Tree, &Server);

const MANNERS: [Manner; 11] = [
    one_at_a_time,
    in_pipelines,
    narrow_and_in_pipelines,
    slowly,
    a_connection_for_each,
    as_http_1_0,
    by_heads_and_conditions,
    in_parts,
    in_codings,
    along_redirects,
    with_bodies_before,
];

fn a_tree_is_mirrored_by_clients_of_every_manner_at_once(setup: &Setup) {
    let tree = Tree::get();
    let server = setup.serve(&tree.root, &[]);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let rude = scope.spawn(|| rudely(tree, &server, &over));
        let server = &server;
        let polite = MANNERS.map(|manner| scope.spawn(move || manner(tree, server)));
        let ended = polite.map(ScopedJoinHandle::join);
        over.store(true, Ordering::Relaxed);
        assert!(rude.join().is_ok() && ended.iter().all(Result::is_ok), "{}", setup.name);
    });
    let total = server.stop_cleanly().stats()["total"].clone();
    let of = |name: &str| total[name].as_u64().unwrap();
    assert!(of("replies") > 6 * tree.files.len() as u64, "{total}");
    // A request whose client has gone has no reply.
    assert!(of("replies") + of("replies_cut") <= of("requests"), "{total}");
}

fn is_whole(reply: &Reply, file: &Served) {
    assert_eq!(reply.status, 200, "{}", file.target);
    assert_same(&reply.body, &file.body, &file.target);
}

fn one_at_a_time(tree: &Tree, server: &Server) {
    let mut client = server.connect();
    for file in &tree.files {
        is_whole(&client.get(&file.target), file);
    }
}

fn in_pipelines(tree: &Tree, server: &Server) {
    pipeline(server.connect(), tree.files.iter().rev());
}

fn narrow_and_in_pipelines(tree: &Tree, server: &Server) {
    let client = Client::connect_narrow(server.address());
    pipeline(client, tree.of_sizes(|size| size < 1 << 20));
}

fn pipeline<'a>(mut client: Client, files: impl Iterator<Item = &'a Served>) {
    let files: Vec<_> = files.collect();
    for files in files.chunks(PIPELINED) {
        client.send(files.iter().map(|file| request("GET", &file.target, &[])).collect::<String>());
        files.iter().for_each(|file| is_whole(&client.reply(), file));
    }
    client.finish_sending();
    assert!(client.is_closed());
}

fn slowly(tree: &Tree, server: &Server) {
    let mut client = Client::connect_narrow(server.address());
    for file in tree.of_sizes(|size| size > 1 << 20) {
        client.send(request("GET", &file.target, &[]));
        assert!(client.read_slowly(200_000, 4096, Duration::from_millis(1)), "{}", file.target);
        is_whole(&client.reply(), file);
    }
}

fn a_connection_for_each(tree: &Tree, server: &Server) {
    for file in tree.files.iter().step_by(2) {
        let mut client = server.connect();
        is_whole(&client.get_with(&file.target, &["Connection: close"]), file);
        assert!(client.is_closed(), "{}", file.target);
    }
}

/// Sends two requests on a connection: it is kept after the first, because that asks for it.
fn as_http_1_0(tree: &Tree, server: &Server) {
    let files: Vec<_> = tree.of_sizes(|size| size < 1 << 20).step_by(3).collect();
    for pair in files.chunks_exact(2) {
        let mut client = server.connect();
        let first = &pair[0].target;
        client.send(format!("GET {first} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        is_whole(&client.reply(), pair[0]);
        client.send(format!("GET {} HTTP/1.0\r\n\r\n", pair[1].target));
        is_whole(&client.reply(), pair[1]);
        assert!(client.is_closed(), "{}", pair[1].target);
    }
}

fn by_heads_and_conditions(tree: &Tree, server: &Server) {
    let mut client = server.connect();
    for file in &tree.files {
        let target = &file.target;
        let head = client.head_with(target, &[]);
        assert_eq!((head.status, head.content_length()), (200, Ok(Some(file.body.len()))));
        let known = format!("If-None-Match: {}", head.expect_field("ETag"));
        let since = format!("If-Modified-Since: {LAST_MODIFIED}");
        assert_eq!(client.get_with(target, &[&known]).status, 304, "{target}");
        assert_eq!(client.get_with(target, &[&since]).status, 304, "{target}");
        assert_eq!(client.get_with(target, &["If-Match: \"other\""]).status, 412, "{target}");
    }
}

fn in_parts(tree: &Tree, server: &Server) {
    let mut client = server.connect();
    for file in tree.of_sizes(|size| size > 1000) {
        let (body, half) = (&file.body, file.body.len() / 2);
        let mut get = |ranges: &str| {
            let reply = client.get_with(&file.target, &[&format!("Range: bytes={ranges}")]);
            assert_eq!(reply.status, 206, "{ranges} of {}", file.target);
            reply
        };
        for text in [format!("{half}-"), format!("1-{half}"), "-700".to_owned()] {
            let reply = get(&text);
            let (range, whole) = content_range(reply.expect_field("Content-Range"));
            assert_eq!(whole, body.len(), "{}", file.target);
            assert_same(&reply.body, &body[range], &file.target);
        }
        let parts = parts(&get(&format!("0-9,{half}-{},-1", half + 99)));
        assert_eq!(parts.len(), 3, "{}", file.target);
        let right = |part: &weir_tests::multipart::Part| part.bytes == body[part.range.clone()];
        assert!(parts.iter().all(right), "{}", file.target);
    }
}

fn in_codings(tree: &Tree, server: &Server) {
    let mut client = server.connect();
    for script in (0..10).map(|dir| format!("/dir{dir}/app.js")) {
        for (coding, end) in VARIANTS {
            let reply = client.get_with(&script, &[&format!("Accept-Encoding: {coding}")]);
            assert_eq!(reply.field("Content-Encoding"), Some(coding));
            is_whole(&reply, tree.file(&format!("{script}{end}")));
        }
        is_whole(&client.get(&script), tree.file(&script));
    }
}

fn along_redirects(tree: &Tree, server: &Server) {
    let mut client = server.connect();
    is_whole(&client.get("/"), tree.file("/index.html"));
    for dir in (0..10).flat_map(|dir| [format!("/dir{dir}"), format!("/dir{dir}/in")]) {
        let reply = client.get(&dir);
        assert_eq!(reply.status, 301, "{dir}");
        let location = reply.expect_field("Location");
        assert_eq!(location, format!("{dir}/"));
        is_whole(&client.get(location), tree.file(&format!("{dir}/index.html")));
        assert_eq!(client.get(&format!("{dir}/none")).status, 404, "{dir}");
    }
}

/// Ways to send a body: the framing, and the bytes.
const BODIES: [(&str, &str); 2] = [
    ("Content-Length: 5", "hello"),
    ("Transfer-Encoding: chunked", "5;a=b\r\nhello\r\n0\r\nTrailer: field\r\n\r\n"),
];

const EXPECT: &str = "Expect: 100-continue";

/// Sends bodies before requests. A body that arrives with its head is skipped. A body still to come
/// is discarded, whether the client waits for `100 Continue` or sends it byte by byte, and ends the
/// connection.
fn with_bodies_before(tree: &Tree, server: &Server) {
    let file = tree.file("/dir1/4097.bin");
    for (framing, body) in BODIES {
        let mut client = server.connect();
        client.send_at_once();
        for (method, status) in [("GET", 200), ("POST", 405)] {
            let whole = request(method, &file.target, &[framing]) + body;
            client.send(&whole);
            assert_eq!(client.reply().status, status, "{whole}");
            let mut slow = server.connect();
            slow.send_at_once();
            whole.bytes().for_each(|byte| slow.send([byte]));
            let reply = slow.reply();
            assert_eq!(reply.status, status, "{whole}");
            // All of it may have come before the server looked.
            if reply.field("Connection") == Some("close") {
                assert!(slow.is_closed(), "{whole}");
            }
        }
        let head = request("GET", &file.target, &[framing, EXPECT]);
        client.send(format!("{head}{body}"));
        is_whole(&client.reply(), file);
        client.send(&head);
        is_whole(&client.reply(), file);
        client.send(body);
        assert!(client.is_closed());
    }
}

/// Disconnects in the middle of a request, or of a reply, over and over.
fn rudely(tree: &Tree, server: &Server, over: &AtomicBool) {
    let large = tree.file("/large5.bin");
    let request = request("GET", &large.target, &[]);
    while !over.load(Ordering::Relaxed) {
        for said in [&request[..], &request[..20], ""] {
            let mut client = Client::connect_narrow(server.address());
            client.send(said);
            if said == request {
                client.head().unwrap();
                client.read_slowly(100_000, 65_536, Duration::ZERO);
            }
            client.reset();
        }
        drop(server.connect());
    }
}
