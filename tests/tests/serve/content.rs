//! Files that change while they are served. A complete reply is one version throughout; when that
//! is not possible, the connection ends early. Versions are never mixed.

#![allow(clippy::panic, reason = "a broken expectation is a failed test")]

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use weir_tests::files::{noise, settle, settled_file_set};
use weir_tests::wait::until;
use weir_tests::{Client, Failure, Root, Setup, assert_same, request, suite};

use crate::WEIR;

suite! {
    every_architecture:
    small_files_replaced_all_the_time_are_never_mixed,
    files_of_equal_length_replaced_all_the_time_are_never_mixed,
    large_files_replaced_all_the_time_are_never_mixed,
    a_cache_smaller_than_the_files_serves_them_all,
}

suite! {
    every_architecture_at_once:
    a_cached_file_that_was_replaced_is_seen_and_never_unseen,
    a_cached_file_that_was_removed_is_404,
    a_file_that_appeared_is_served,
}

/// A change of the file at a path, which gets the new bytes.
type Change = fn(&Path, &[u8]);

fn replace(path: &Path, new: &[u8]) {
    let beside = path.with_extension("new");
    fs::write(&beside, new).unwrap();
    fs::rename(beside, path).unwrap();
}

fn truncate(path: &Path, _new: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

fn grow(path: &Path, new: &[u8]) {
    let old = fs::read(path).unwrap();
    fs::write(path, [&old, new].concat()).unwrap();
}

fn append(path: &Path, new: &[u8]) {
    use std::io::Write;
    File::options().append(true).open(path).unwrap().write_all(new).unwrap();
}

fn overwrite(path: &Path, new: &[u8]) {
    use std::os::unix::fs::FileExt;
    File::options().write(true).open(path).unwrap().write_all_at(new, 0).unwrap();
}

fn remove(path: &Path, _new: &[u8]) {
    fs::remove_file(path).unwrap();
}

/// Time since a file was written, as its timestamps tell it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Age {
    /// All timestamps are recent.
    Fresh,
    /// The modification time was set to long ago.
    Backdated,
    /// All timestamps are some seconds past.
    Settled,
}

const CACHING: [&str; 2] = ["--caching=on", "--caching=off"];

/// Asserts that one reply served while the file changed has only the old bytes, and all of them
/// unless the connection ended early. `certain`: it must not have ended early.
fn changed_while_served(setup: &Setup, change: Change, size: usize, certain: bool) {
    let versions = &versions(size);
    for age in [Age::Fresh, Age::Backdated, Age::Settled] {
        let root = Root::new();
        for caching in CACHING {
            if age == Age::Fresh {
                root.write_fresh(caching, &versions[0]);
            } else {
                root.write(caching, &versions[0]);
            }
        }
        if age == Age::Settled {
            CACHING.iter().for_each(|name| settle(&root.path().join(name)));
        }
        for caching in CACHING {
            let changed = Changed { root: &root, change, versions, certain, age };
            changed.serve(setup, caching);
        }
    }
}

/// Returns a file's content before and after its change.
fn versions(size: usize) -> Arc<[Vec<u8>; 2]> {
    static MADE: Mutex<BTreeMap<usize, Arc<[Vec<u8>; 2]>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap();
    Arc::clone(made.entry(size).or_insert_with(|| Arc::new([noise(1, size), noise(2, size)])))
}

/// A file to be changed.
struct Changed<'a> {
    root: &'a Root,
    change: Change,
    versions: &'a [Vec<u8>; 2],
    certain: bool,
    age: Age,
}

impl Changed<'_> {
    /// Changes the file whose name is the option it is served with.
    fn serve(&self, setup: &Setup, caching: &str) {
        let Self { age, certain, .. } = *self;
        let target = format!("/{caching}");
        let server = setup.serve(self.root, &[caching]);
        let before = server.get(&target).body;
        assert!(before == self.versions[0]);
        let mut client = Client::connect_narrow(server.address());
        client.send(request("GET", &target, &[]));
        let head = client.head().unwrap();
        assert_eq!(head.content_length(), Ok(Some(before.len())));
        (self.change)(&self.root.path().join(caching), &self.versions[1]);
        match client.body(head) {
            Ok(reply) => {
                assert_same(
                    &reply.body,
                    &before,
                    format_args!("a mix of two versions, {age:?} {caching}"),
                );
                assert_eq!(client.get("/none").status, 404, "the connection is out of step");
            }
            Err(Failure::Short(reply)) => {
                let (served, size) = (reply.body.len(), before.len());
                assert!(!certain, "ended after {served} bytes of {size}, {age:?} {caching}");
            }
            Err(failure) => panic!("{failure:?}"),
        }
        server.stop_cleanly();
    }
}

macro_rules! changes {
    ($($name:ident: $change:ident, $certain:literal;)+) => {
        mod small {
            use super::*;

            suite! { every_architecture_at_once: $($name,)+ }

            $(fn $name(setup: &Setup) {
                changed_while_served(setup, $change, 20_000, $certain);
            })+
        }
        mod large {
            use super::*;

            suite! { every_architecture_at_once: $($name,)+ }

            $(fn $name(setup: &Setup) {
                changed_while_served(setup, $change, 8 << 20, $certain);
            })+
        }
    };
}

changes! {
    a_file_replaced_by_rename_is_served_as_it_was: replace, true;
    a_file_removed_is_served_as_it_was: remove, true;
    a_file_appended_to_is_served_as_it_was_or_cut: append, false;
    a_file_rewritten_longer_is_served_as_it_was_or_cut: grow, false;
    a_file_truncated_is_served_as_it_was_or_cut: truncate, false;
    a_file_overwritten_in_place_is_served_as_it_was_or_cut: overwrite, false;
}

/// Sends many requests while a thread replaces the file over and over: each reply is one version,
/// and a strong ETag never means two.
fn every_reply_is_one_version(setup: &Setup, options: &[&str], sizes: [usize; 2]) {
    let root = Root::new();
    let versions = [noise(1, sizes[0]), noise(2, sizes[1])];
    let path = root.write("file", &versions[0]);
    let server = setup.serve(&root, options);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0;
            while !over.load(Ordering::Relaxed) {
                i += 1;
                replace(&path, &versions[i % 2]);
            }
        });
        let served = thread::Builder::new()
            .spawn_scoped(scope, || (0..300).map(|_| server.get("/file")).collect::<Vec<_>>())
            .unwrap()
            .join();
        over.store(true, Ordering::Relaxed);
        let mut meaning = HashMap::new();
        for reply in served.unwrap() {
            let version = versions.iter().position(|version| *version == reply.body);
            let version = version.expect("a body that is one of the versions");
            let etag = reply.expect_field("ETag").to_owned();
            let known = *meaning.entry(etag.clone()).or_insert(version);
            assert!(known == version || etag.starts_with("W/"), "one strong ETag, two bodies");
        }
    });
    server.stop_cleanly();
}

fn small_files_replaced_all_the_time_are_never_mixed(setup: &Setup) {
    every_reply_is_one_version(setup, &[], [5000, 5001]);
    every_reply_is_one_version(setup, &["--caching", "--cache-valid", "1ms"], [5000, 5001]);
}

fn files_of_equal_length_replaced_all_the_time_are_never_mixed(setup: &Setup) {
    every_reply_is_one_version(setup, &[], [5000, 5000]);
    every_reply_is_one_version(setup, &["--caching", "--cache-valid", "1ms"], [5000, 5000]);
}

fn large_files_replaced_all_the_time_are_never_mixed(setup: &Setup) {
    every_reply_is_one_version(setup, &[], [700_000, 600_000]);
    every_reply_is_one_version(setup, &["--caching", "--cache-valid", "1ms"], [700_000, 600_000]);
}

fn a_cached_file_that_was_replaced_is_seen_and_never_unseen(setup: &Setup) {
    let root = Root::new();
    let path = root.write("file", "old");
    settle(&path);
    let options = ["--workers", "1", "--caching", "--cache-valid", "200ms"];
    let server = setup.serve(&root, &options);
    assert_eq!(server.get("/file").text(), "old");
    assert_eq!(server.get("/file").text(), "old");
    replace(&path, b"the new one");
    until("the new file was served", || server.get("/file").text() == "the new one");
    for _ in 0..20 {
        assert_eq!(server.get("/file").text(), "the new one");
    }
    let stats = server.stop_cleanly().stats();
    assert!(stats["total"]["cache_hits"].as_u64() >= Some(1), "nothing was cached: {stats}");
}

fn a_cached_file_that_was_removed_is_404(setup: &Setup) {
    let root = Root::new();
    let path = root.write("file", "old");
    settle(&path);
    let server = setup.serve(&root, &["--caching", "--cache-valid", "200ms"]);
    assert_eq!(server.get("/file").text(), "old");
    fs::remove_file(path).unwrap();
    until("the file was gone", || server.get("/file").status == 404);
}

fn a_file_that_appeared_is_served(setup: &Setup) {
    let root = Root::new();
    let server = setup.serve(&root, &["--caching", "--cache-valid", "200ms"]);
    assert_eq!(server.get("/file").status, 404);
    root.write_fresh("file", "here");
    until("the file was there", || server.get("/file").text() == "here");
}

fn a_cache_smaller_than_the_files_serves_them_all(setup: &Setup) {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("content");
    let files = settled_file_set(&root);
    let options = ["--caching", "--cache-size", "64k", "--open-files", "4"];
    let server = setup.serve(&root, &options);
    for file in files.iter().chain(&files) {
        assert_same(&server.get(&file.target).body, &file.body, &file.target);
    }
    server.stop_cleanly();
}
