//! Compression on the fly, as a client sees it: which replies are compressed, from when on, and
//! what remains true of all representations of a file (RFC 9110 sections 8.4, 8.8.3, 12.5.3, 14).

use std::fs;
use std::io::Read;
use std::thread;

use weir_tests::server::UNHURRIED;
use weir_tests::wait::{TIMEOUT, until, until_within};
use weir_tests::{Reply, Root, Server, Setup, suite};

use crate::WEIR;

suite! {
    every_architecture_at_once:
    each_coding_is_made_and_gives_back_the_file,
    a_form_is_the_same_version_as_its_file,
    ranges_are_of_the_file_itself,
    a_changed_file_is_compressed_anew,
    what_should_not_be_compressed_is_not,
    head_names_the_form_that_get_has,
}

/// Lines of text, of about this size together.
fn text(seed: u64, size: usize) -> Vec<u8> {
    let line = |n: u64| format!("<p>{seed} {}</p>\n", n.wrapping_mul(2_654_435_761) % 99_991);
    let mut text: Vec<u8> = (0..size as u64 / 8).flat_map(|n| line(n).into_bytes()).collect();
    text.truncate(size);
    text
}

fn decoded(reply: &Reply) -> Vec<u8> {
    let mut plain = Vec::new();
    match reply.field("Content-Encoding") {
        None => plain.extend_from_slice(&reply.body),
        Some("gzip") => {
            flate2::read::GzDecoder::new(&reply.body[..]).read_to_end(&mut plain).unwrap();
        }
        Some("br") => brotli::BrotliDecompress(&mut &reply.body[..], &mut plain).unwrap(),
        Some("zstd") => plain = zstd::stream::decode_all(&reply.body[..]).unwrap(),
        Some(other) => unreachable!("coding {other}"),
    }
    plain
}

fn accepting(server: &Server, target: &str, encodings: &str) -> Reply {
    server.get_with(target, &[&format!("Accept-Encoding: {encodings}")])
}

/// Asks until the reply is compressed, and returns it. Each reply on the way is the file.
fn compressed(server: &Server, target: &str, encodings: &str, file: &[u8]) -> Reply {
    let mut reply = None;
    // What compresses has the processors when nobody else wants them.
    until_within(4 * TIMEOUT, "the file was sent compressed", || {
        let next = accepting(server, target, encodings);
        assert_eq!(next.status, 200);
        assert_eq!(decoded(&next), file, "{next:?}");
        assert!(next.lists("Vary", "Accept-Encoding"), "{next:?}");
        reply = Some(next);
        reply.as_ref().is_some_and(|reply| reply.field("Content-Encoding").is_some())
    });
    reply.unwrap()
}

fn each_coding_is_made_and_gives_back_the_file(setup: &Setup) {
    let root = Root::new();
    // The second is sent from its descriptor.
    let files = [("a.html", text(1, 20_000)), ("b.js", text(2, 200_000))];
    for (name, bytes) in &files {
        root.write(name, bytes);
    }
    // Divided among 64 processes it still has room for the larger.
    let server = setup.serve(&root, &["--workers", "1", "--compress-cache", "128M"]);
    for (name, bytes) in &files {
        for coding in ["gzip", "zstd", "br"] {
            let target = format!("/{name}");
            let reply = compressed(&server, &target, coding, bytes);
            assert_eq!(reply.field("Content-Encoding"), Some(coding));
            assert!(reply.body.len() < bytes.len() / 2, "{reply:?}");
            let plain = server.get(&target);
            assert_eq!((plain.field("Content-Encoding"), &plain.body), (None, bytes));
            assert_eq!(reply.field("Content-Type"), plain.field("Content-Type"));
            assert_eq!(reply.field("Last-Modified"), plain.field("Last-Modified"));
        }
        let refusing = accepting(&server, &format!("/{name}"), "gzip;q=0, br;q=0, zstd;q=0");
        assert_eq!(refusing.field("Content-Encoding"), None);
    }
    let stats = server.stop_cleanly().stats();
    let total = |name: &str| stats["total"][name].as_u64().unwrap();
    assert!(total("compressed_replies") >= 6 && total("compressions") >= 6, "{stats}");
    assert!(total("compressed_saved_bytes") > 300_000 && total("compression_ns") > 0, "{stats}");
    assert!(total("compressed_missed") > 0 && total("compressions_useless") == 0, "{stats}");
}

fn a_form_is_the_same_version_as_its_file(setup: &Setup) {
    let (root, file) = (Root::new(), text(1, 20_000));
    root.write("a.html", &file);
    let server = setup.serve(&root, &["--workers", "1"]);
    let reply = compressed(&server, "/a.html", "gzip", &file);
    let tag = reply.expect_field("ETag").to_owned();
    let plain_tag = server.get("/a.html").expect_field("ETag").to_owned();
    // Two forms of a version are not the same bytes: a strong tag would say so.
    assert_eq!(tag, format!("W/{plain_tag}"));
    for tag in [&tag, &plain_tag] {
        for fields in [&["Accept-Encoding: gzip"][..], &[]] {
            let condition = format!("If-None-Match: {tag}");
            let reply = server.get_with("/a.html", &[fields, &[&condition[..]]].concat());
            assert_eq!(reply.status, 304, "{tag} {fields:?}");
            assert!(reply.lists("Vary", "Accept-Encoding"));
        }
    }
    // No weak tag matches in it (RFC 9110 section 13.1.1), so it is about the file itself.
    let unchanged = format!("If-Match: {plain_tag}");
    let reply = server.get_with("/a.html", &["Accept-Encoding: gzip", &unchanged]);
    assert_eq!((reply.status, reply.field("Content-Encoding")), (200, None));
    assert_eq!(reply.body, file);
}

fn ranges_are_of_the_file_itself(setup: &Setup) {
    let (root, file) = (Root::new(), text(1, 20_000));
    root.write("a.html", &file);
    let server = setup.serve(&root, &["--workers", "1"]);
    let form = compressed(&server, "/a.html", "gzip", &file);
    let get = |fields: &[&str]| {
        let own = ["Accept-Encoding: gzip", "Range: bytes=5-14"];
        server.get_with("/a.html", &[&own[..], fields].concat())
    };
    let part = get(&[]);
    assert_eq!((part.status, &part.body[..]), (206, &file[5..15]));
    assert_eq!(part.field("Content-Encoding"), None);
    let tag = part.expect_field("ETag").to_owned();
    assert_eq!(get(&[&format!("If-Range: {tag}")]).status, 206);
    // No part of the file is added to what a client has of a form.
    let whole = get(&[&format!("If-Range: {}", form.expect_field("ETag"))]);
    assert_eq!((whole.status, decoded(&whole)), (200, file));
}

fn a_changed_file_is_compressed_anew(setup: &Setup) {
    let (root, old, new) = (Root::new(), text(1, 20_000), text(2, 20_000));
    root.write("a.html", &old);
    let server = setup.serve(&root, &["--workers", "1", "--cache-valid", "10ms"]);
    compressed(&server, "/a.html", "gzip", &old);
    let next = root.write_fresh("next", &new);
    fs::rename(next, root.as_ref().join("a.html")).unwrap();
    until_within(4 * TIMEOUT, "the new version was sent compressed", || {
        let reply = accepting(&server, "/a.html", "gzip");
        let bytes = decoded(&reply);
        assert!(bytes == old || bytes == new);
        bytes == new && reply.field("Content-Encoding").is_some()
    });
}

fn what_should_not_be_compressed_is_not(setup: &Setup) {
    let (root, file) = (Root::new(), text(1, 20_000));
    // Older than what shows that compression has come to files of this age.
    root.write("a.png", &file);
    root.write("small.html", text(1, 1000));
    root.write("large.html", text(1, 70_000));
    root.write("kept/a.html", &file);
    root.write("kept-too/a.html", &file);
    root.write("both.html", &file);
    root.write("both.html.gz", "gzipped");
    root.write("control.html", &file);
    let config = root.outside().join("weir.toml");
    let rules = "[[route]]\npath = '/kept'\ncache-control = 'no-transform, max-age=5'\n\
                 [[route]]\npath = '/kept-too'\ncache-control = 'No-Transform'\n";
    fs::write(&config, rules).unwrap();
    let config = config.to_str().unwrap();
    let options = ["--workers", "1", "--compress-max", "64k", "--config", config];
    let server = setup.serve(&root, &options);
    let plain = ["/a.png", "/small.html", "/large.html", "/kept/a.html", "/kept-too/a.html"];
    let look = || {
        for target in plain {
            let reply = accepting(&server, target, "gzip");
            assert_eq!((reply.status, reply.field("Content-Encoding")), (200, None), "{target}");
        }
        // A file that was compressed before is sent so, and not compressed in another coding.
        assert_eq!(accepting(&server, "/both.html", "br, gzip").body, b"gzipped");
        assert_eq!(accepting(&server, "/both.html", "br").body, file);
    };
    look();
    compressed(&server, "/control.html", "gzip", &file);
    look();
    for target in ["/a.png", "/small.html", "/large.html"] {
        assert_eq!(server.get(target).field("Vary"), None, "{target}");
    }
}

fn head_names_the_form_that_get_has(setup: &Setup) {
    let (root, file) = (Root::new(), text(1, 20_000));
    root.write("a.html", &file);
    let server = setup.serve(&root, &["--workers", "1"]);
    let length = |reply: &Reply| reply.expect_field("Content-Length").to_owned();
    // A better form may take the place of the first between the two.
    until_within(4 * TIMEOUT, "HEAD had the length of GET's form", || {
        let form = compressed(&server, "/a.html", "gzip", &file);
        let head = server.connect().head_with("/a.html", &["Accept-Encoding: gzip"]);
        head.field("Content-Encoding") == Some("gzip") && length(&head) == length(&form)
    });
}

#[test]
fn a_file_is_compressed_once_however_many_ask() {
    let (root, file) = (Root::new(), text(1, 100_000));
    root.write("a.html", &file);
    let server = Server::start(WEIR, &[UNHURRIED, ["--workers", "4"]].concat(), &root);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| compressed(&server, "/a.html", "br", &file));
        }
    });
    let stats = server.stop_cleanly().stats();
    let total = |name: &str| stats["total"][name].as_u64().unwrap();
    // Once at each of three levels.
    assert!((1..=3).contains(&total("compressions")), "{stats}");
    assert!(total("compressed_replies") >= 16, "{stats}");
}

#[test]
fn compression_can_be_turned_off_and_is_off_for_the_papers_servers() {
    let (root, file) = (Root::new(), text(1, 20_000));
    root.write("a.html", &file);
    let off = [&["--compress=off"][..], &["--preset", "accept1"], &["--caching=off"]];
    let control = Server::start(WEIR, &[], &root);
    compressed(&control, "/a.html", "gzip", &file);
    for options in off {
        let server = Server::start(WEIR, options, &root);
        for _ in 0..3 {
            let reply = accepting(&server, "/a.html", "gzip");
            assert_eq!(reply.field("Content-Encoding"), None, "{options:?}");
            assert_eq!((reply.field("Vary"), &reply.body), (None, &file), "{options:?}");
        }
    }
    let preset = ["--preset", "accept1", "--caching=on", "--compress=on"];
    compressed(&Server::start(WEIR, &preset, &root), "/a.html", "gzip", &file);
}

#[test]
fn each_of_many_loops_has_room_for_a_large_file_however_many_roots_there_are() {
    let (root, file) = (Root::new(), text(1, 600 << 10));
    let names = ["one", "two", "three"];
    let route = |name: &str| {
        let of_route = root.path().join(name);
        format!("[[route]]\npath = '/{name}'\nroot = '{}'\n", of_route.display())
    };
    let config = root.outside().join("weir.toml");
    fs::write(&config, names.map(route).concat()).unwrap();
    root.write("a.html", &file);
    for name in names {
        root.write(&format!("{name}/{name}/a.html"), &file);
    }
    let options = ["--workers", "16", "--config", config.to_str().unwrap()];
    let server = Server::start(WEIR, &[&UNHURRIED[..], &options].concat(), &root);
    for target in ["/a.html", "/one/a.html", "/two/a.html", "/three/a.html"] {
        compressed(&server, target, "gzip", &file);
    }
    let said = server.stop_cleanly().stderr;
    assert!(!said.contains("--compress"), "{said}");
}

#[test]
fn what_is_not_compressed_though_it_should_be_is_said_at_the_start() {
    let root = Root::with_hello();
    let of_loop = ["--compress-cache", "800k", "--workers", "1"];
    let of_processes = ["--arch", "processes", "--workers", "2", "--compress-cache", "32M"];
    let of_preset = ["--preset", "accept1", "--compress=on"];
    for (options, says) in [
        (&of_loop[..], "files larger than 102400 bytes are not compressed: --compress-cache"),
        (&of_processes[..], "files larger than 131072 bytes are not compressed: "),
        (&of_preset[..], "--compress=on compresses nothing: without --caching=on "),
    ] {
        let server = Server::start(WEIR, options, &root);
        until("it is said", || server.stderr_so_far().contains(says));
        server.stop_cleanly();
    }
    let with_caching = [&of_preset[..], &["--caching=on", "--workers", "2"]].concat();
    let others =
        [&["--workers", "2"][..], &["--preset", "accept1"], &["--caching=off"], &with_caching[..]];
    for options in others {
        let said = Server::start(WEIR, options, &root).stop_cleanly().stderr;
        assert!(!said.contains("--compress"), "{options:?}: {said}");
    }
}

#[test]
fn memory_for_compressed_files_is_bounded() {
    let root = Root::new();
    let files: Vec<_> = (0..64).map(|n| (format!("{n}.html"), text(n, 40_000))).collect();
    for (name, bytes) in &files {
        root.write(name, bytes);
    }
    let options = ["--workers", "1", "--compress-cache", "330k"];
    let server = Server::start(WEIR, &options, &root);
    // Each form has room, and not all together.
    for (name, bytes) in &files {
        compressed(&server, &format!("/{name}"), "gzip", bytes);
    }
    let stats = server.stop_cleanly().stats();
    let total = |name: &str| stats["total"][name].as_u64().unwrap();
    assert!(total("compressions") >= 64, "{stats}");
    assert!((1..=330 << 10).contains(&total("compressed_bytes")), "{stats}");
}
