//! Path resolution in a real tree, above all that nothing outside the root is found.

mod site;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use site::{Site, at, body, encoded, entry, find, has_line};
use weir_content::{Content, Found, Lookup, Options};

fn uncached() -> Options {
    Options { caching: false, ..Options::default() }
}

fn following() -> Options {
    Options { follow_symlinks: true, listing: true, ..uncached() }
}

fn is_not_found(found: &Found) -> bool {
    matches!(found, Found::NotFound)
}

#[test]
fn files_and_directories() {
    let site = Site::new("plain");
    site.write("a b.txt", "spaced");
    site.write("docs/index.html", "docs");
    site.write("empty/x.txt", "");
    let mut store = site.store(Options::default());
    assert_eq!(body(&entry(&mut store, "/a%20b.txt", at(0))), "spaced");
    assert_eq!(body(&entry(&mut store, "/docs/", at(0))), "docs");
    assert_eq!(body(&entry(&mut store, "//docs//", at(0))), "docs");
    assert_eq!(body(&entry(&mut store, "/empty/x.txt", at(0))), "");
    let index = entry(&mut store, "/docs/index.html", at(0));
    assert!(has_line(index.fields_200(), "Content-Type: text/html; charset=utf-8"));
    for absent in ["/", "/empty/", "/nothing", "/nothing/", "/docs/index.html/", "/a%20b.txt/x"] {
        assert!(is_not_found(&find(&mut store, absent, at(0))), "{absent}");
    }
    let long = format!("/{}", "x".repeat(5000));
    assert!(is_not_found(&find(&mut store, &long, at(0))));
    assert!(matches!(find(&mut store, "/%00", at(0)), Found::Malformed));
}

#[test]
fn a_directory_without_its_slash_redirects_and_keeps_the_query() {
    let site = Site::new("redirect");
    site.write("a dir/x", "");
    let mut store = site.store(Options::default());
    let Found::Redirect(location) =
        store.find(&Lookup { query: Some(b"q=1"), ..Lookup::of(b"//a%20dir") }, at(0))
    else {
        panic!("no redirect");
    };
    assert_eq!(location, b"/a%20dir/?q=1");
}

#[test]
fn the_first_index_that_exists_wins() {
    let site = Site::new("index");
    site.write("a/index.txt", "text");
    site.write("b/index.txt", "text");
    site.write("b/index.html", "html");
    fs::create_dir_all(site.path("c/index.html")).unwrap();
    site.write("c/index.txt", "text");
    let index = vec!["index.html".to_owned(), "index.txt".to_owned()];
    let mut store = site.store(Options { index, listing: true, ..uncached() });
    assert_eq!(body(&entry(&mut store, "/a/", at(0))), "text");
    assert_eq!(body(&entry(&mut store, "/b/", at(0))), "html");
    assert!(is_not_found(&find(&mut store, "/c/", at(0))));
}

#[test]
fn no_link_leads_out_of_the_root() {
    let site = Site::new("links");
    site.write("sub/in.txt", "inside");
    site.link("file.txt", "../secret.txt");
    site.link("absolute.txt", site.path("../secret.txt"));
    site.link("directory", "../outside");
    site.link("parent", "..");
    site.link("index/index.html", "../../secret.txt");
    site.link("sibling", "../root-sibling");
    site.link("proc", "/proc/self/root");
    site.link("chain", "file.txt");
    site.link("loop", "loop");
    let out = [
        "/file.txt",
        "/absolute.txt",
        "/directory",
        "/directory/",
        "/directory/index.html",
        "/parent/",
        "/parent/secret.txt",
        "/parent/root/sub/in.txt",
        "/index/",
        "/index/index.html",
        "/sibling/file.txt",
        "/proc/etc/passwd",
        "/chain",
        "/loop",
    ];
    for options in [uncached(), following()] {
        let mut store = site.store(options);
        for path in out {
            assert!(is_not_found(&find(&mut store, path, at(0))), "{path}");
        }
        let climb = "/../root-sibling/file.txt";
        assert!(matches!(find(&mut store, climb, at(0)), Found::Malformed));
    }
}

#[test]
fn links_inside_the_root_are_followed_only_when_allowed() {
    let site = Site::new("inside");
    site.write("sub/in.txt", "inside");
    site.link("file.txt", "sub/in.txt");
    site.link("alias", "sub");
    site.link("sub/up", "../sub");
    for path in ["/file.txt", "/alias/in.txt", "/sub/up/in.txt"] {
        assert!(is_not_found(&find(&mut site.store(uncached()), path, at(0))), "{path}");
        assert_eq!(body(&entry(&mut site.store(following()), path, at(0))), "inside");
    }
    // These lead inside by a way that is not.
    site.link("absolute", site.path("sub/in.txt"));
    site.link("detour", "../root/sub/in.txt");
    for path in ["/absolute", "/detour"] {
        assert!(is_not_found(&find(&mut site.store(following()), path, at(0))), "{path}");
    }
}

#[test]
fn only_regular_files_are_served_and_others_do_not_block() {
    let site = Site::new("special");
    site.write("x", "");
    fs::create_dir(site.path("d")).unwrap();
    for fifo in ["fifo", "d/index.html", "x.br"] {
        assert!(Command::new("mkfifo").arg(site.path(fifo)).status().unwrap().success());
    }
    let _listener = UnixListener::bind(site.path("socket")).unwrap();
    let mut store = site.store(uncached());
    for path in ["/fifo", "/socket", "/d/"] {
        assert!(is_not_found(&find(&mut store, path, at(0))), "{path}");
    }
    assert_eq!(body(&encoded(&mut store, "/x", "br", at(0))), "");
}

#[test]
fn dot_files_are_served_only_when_wanted() {
    let site = Site::new("dot");
    site.write(".git/config", "secret");
    site.write(".well-known/security.txt", "contact");
    let mut store = site.store(uncached());
    assert!(is_not_found(&find(&mut store, "/.git/config", at(0))));
    assert_eq!(body(&entry(&mut store, "/.well-known/security.txt", at(0))), "contact");
    let mut store = site.store(Options { dotfiles: true, ..uncached() });
    assert_eq!(body(&entry(&mut store, "/.git/config", at(0))), "secret");
}

#[test]
fn a_listing_shows_what_can_be_fetched() {
    let site = Site::new("listing");
    site.write("d/a.txt", "12345");
    site.write("d/sub/x", "");
    site.write("d/.hidden", "");
    site.write("d/back\\slash", "");
    site.link("d/in", "a.txt");
    site.link("d/out", "../../secret.txt");
    let names = |options| match find(&mut site.store(options), "/d/", at(0)) {
        Found::Listing(page) => {
            let page = body(&page);
            page.split("href=\"")
                .skip(1)
                .map(|rest| rest.split('"').next().unwrap().to_owned())
                .collect()
        }
        other => vec![format!("{other:?}")],
    };
    assert_eq!(names(Options { listing: true, ..uncached() }), ["../", "sub/", "a.txt"]);
    assert_eq!(names(following()), ["../", "sub/", "a.txt", "in"]);
    let hidden = names(Options { listing: true, dotfiles: true, ..uncached() });
    assert_eq!(hidden, ["../", "sub/", ".hidden", "a.txt"]);
    assert_eq!(names(uncached()), ["NotFound"]);
    let mut store = site.store(following());
    assert!(matches!(find(&mut store, "/", at(0)), Found::Listing(_)));
    assert!(is_not_found(&find(&mut store, "/nothing/", at(0))));
    assert!(is_not_found(&find(&mut store, "/d/a.txt/", at(0))));
}

#[test]
fn variants_go_to_those_who_accept_them() {
    let site = Site::new("variants");
    site.write("app.js", "plain text, the longest");
    site.write("app.js.br", "brotli");
    site.write("app.js.gz", "gzipped");
    let mut store = site.store(Options::default());
    let plain = entry(&mut store, "/app.js", at(0));
    let brotli = encoded(&mut store, "/app.js", "gzip, br, zstd", at(0));
    let gzip = encoded(&mut store, "/app.js", "gzip, br;q=0.1, zstd", at(0));
    assert_eq!(body(&plain), "plain text, the longest");
    assert_eq!(body(&brotli), "brotli");
    assert_eq!(body(&gzip), "gzipped");
    assert!(has_line(brotli.fields_200(), "Content-Encoding: br"));
    assert!(has_line(brotli.fields_200(), "Content-Length: 6"));
    assert!(!plain.fields_200().windows(16).any(|window| window == b"Content-Encoding"));
    for entry in [&plain, &brotli, &gzip] {
        assert!(has_line(entry.fields_304(), "Vary: Accept-Encoding"));
        assert!(has_line(entry.fields_206(), "Content-Type: text/javascript; charset=utf-8"));
    }
    assert_ne!(plain.validators().etag, brotli.validators().etag);
    assert_ne!(gzip.validators().etag, brotli.validators().etag);
}

#[test]
fn variants_that_are_older_or_no_gain_are_left_alone() {
    let site = Site::new("stale-variants");
    for name in ["old.txt", "big.txt", "empty.txt", "link.txt", "wanted.txt"] {
        site.write(name, "plain");
    }
    site.write("old.txt.br", "old");
    let old = fs::File::options().append(true).open(site.path("old.txt.br")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH).unwrap();
    site.write("big.txt.br", "as big");
    site.write("empty.txt.br", "");
    site.link("link.txt.br", "../secret.txt");
    site.write("wanted.txt.gz", "gz");
    let codings = vec![weir_content::Coding::Brotli];
    let mut store = site.store(Options { codings, ..uncached() });
    for path in ["/old.txt", "/big.txt", "/empty.txt", "/link.txt", "/wanted.txt"] {
        let found = encoded(&mut store, path, "br, gzip", at(0));
        assert_eq!(body(&found), "plain", "{path}");
        assert!(!has_line(found.fields_304(), "Vary: Accept-Encoding"), "{path}");
    }
}

#[test]
fn a_variant_older_by_less_than_a_second_is_left_alone() {
    let site = Site::new("stale-by-nanoseconds");
    site.write("a.txt", "the plain text");
    site.write("a.txt.gz", "gz");
    for options in [uncached(), Options::default()] {
        let mut store = site.store(options);
        for (offset_ns, expected) in [(-1, "the plain text"), (0, "gz"), (1, "gz")] {
            site.set_modified("a.txt.gz", "a.txt", offset_ns);
            store.forget(b"/a.txt");
            let found = encoded(&mut store, "/a.txt", "gzip", at(0));
            assert_eq!(body(&found), expected, "{offset_ns}");
        }
    }
}

#[test]
fn a_variant_that_others_may_write_is_left_alone() {
    let site = Site::new("writable-variants");
    site.write("a.txt", "the plain text");
    site.write("a.txt.gz", "gz");
    let mode = |name: &str, mode| {
        fs::set_permissions(site.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("a.txt", 0o644);
    let mut store = site.store(Options::default());
    let mut ms = 0;
    let mut found = || {
        ms += 1000;
        body(&encoded(&mut store, "/a.txt", "gzip", at(ms)))
    };
    for (variant, expected) in
        [(0o644, "gz"), (0o664, "the plain text"), (0o600, "gz"), (0o646, "the plain text")]
    {
        mode("a.txt.gz", variant);
        assert_eq!(found(), expected, "{variant:o}");
    }
    mode("a.txt", 0o666);
    assert_eq!(found(), "gz");
}

#[test]
fn a_variant_of_another_owner_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("files are given to others by root alone: skipped");
        return;
    }
    let site = Site::new("owned-variants");
    site.write("a.txt", "the plain text");
    site.write("a.txt.gz", "gz");
    site.write("linked.txt", "the plain text");
    site.write("v/a.gz", "gz");
    site.link("linked.txt.gz", "v/a.gz");
    let mut store = site.store(following());
    let mut found = |path: &str| body(&encoded(&mut store, path, "gzip", at(0)));
    assert_eq!((found("/a.txt"), found("/linked.txt")), ("gz".to_owned(), "gz".to_owned()));
    chown(site.path("a.txt.gz"), Some(1000), None).unwrap();
    assert_eq!(found("/a.txt"), "the plain text");
    chown(site.path("a.txt"), Some(1000), None).unwrap();
    assert_eq!(found("/a.txt"), "gz");
    chown(site.path("a.txt.gz"), Some(0), None).unwrap();
    assert_eq!(found("/a.txt"), "gz", "root may replace any file");
    lchown(site.path("linked.txt.gz"), Some(1000), None).unwrap();
    assert_eq!(found("/linked.txt"), "the plain text", "a link has an owner too");
}

#[test]
fn small_files_are_read_and_large_ones_handed_out() {
    let site = Site::new("sizes");
    site.write("small", "1234");
    site.write("large", "12345");
    site.write("large.gz", "gz");
    let mut store = site.store(Options { memory_file_bytes_max: 4, ..uncached() });
    assert!(matches!(entry(&mut store, "/small", at(0)).content(), Content::Memory(_)));
    let large = entry(&mut store, "/large", at(0));
    assert!(matches!(large.content(), Content::File(_)));
    let variant = encoded(&mut store, "/large", "gzip", at(0));
    assert!(matches!(variant.content(), Content::File(_)));
    assert_eq!((body(&large), body(&variant)), ("12345".to_owned(), "gz".to_owned()));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let site = Site::new("options");
    let refused = |options| weir_content::Store::open(&site.path(""), options).is_err();
    assert!(refused(Options { index: vec!["../secret.txt".to_owned()], ..Options::default() }));
    assert!(refused(Options { charset: "a\r\nb".to_owned(), ..Options::default() }));
    assert!(weir_content::Store::open(&site.path("nowhere"), Options::default()).is_err());
    assert!(weir_content::Store::open(&site.path("../secret.txt"), Options::default()).is_err());
}

/// A name that alternates between a regular file and a link out of the root while it is requested.
#[test]
fn a_race_of_renames_never_yields_a_file_outside() {
    let site = Site::new("race");
    site.write("d/file.txt", "inside");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (link, spare, name) = (site.path("link"), site.path("spare"), site.path("name"));
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) || count < 10 {
                symlink("../outside", &link).unwrap();
                fs::rename(&link, &name).unwrap();
                fs::remove_file(&name).unwrap();
                fs::create_dir(&spare).unwrap();
                fs::write(spare.join("index.html"), "inside").unwrap();
                fs::rename(&spare, &name).unwrap();
                fs::remove_dir_all(&name).unwrap();
                count += 1;
            }
        });
        for options in [uncached(), following()] {
            let mut store = site.store(options);
            for _ in 0..2000 {
                if let Found::Entry(entry) = find(&mut store, "/name/index.html", at(0)) {
                    assert_ne!(body(&entry), "secret");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
