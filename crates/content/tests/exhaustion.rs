//! Behaviour when the process has no descriptor left. A single test, because the limit applies to
//! the whole process.

#![allow(clippy::unwrap_used)] // lints take a helper of a test for no test

mod site;

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use site::{Site, at, body, entry, find};
use weir_content::{Found, Options};

/// Uses up every descriptor of the process.
fn exhaust() -> Vec<File> {
    let limit = Rlimit { current: Some(100), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn without_descriptors_it_serves_what_it_has_and_owns_up_to_the_rest() {
    let site = Site::new("exhaustion");
    site.write("kept", "kept");
    site.write("large", "larger than the others");
    site.write("other", "other");
    let mut store = site.store(Options { memory_file_bytes_max: 16, ..Options::default() });
    entry(&mut store, "/kept", at(0));
    entry(&mut store, "/large", at(0));
    let hogs = exhaust();
    assert!(matches!(find(&mut store, "/other", at(5000)), Found::Error(_)));
    assert_eq!(body(&entry(&mut store, "/kept", at(5000))), "kept");
    assert_eq!(body(&entry(&mut store, "/large", at(5000))), "larger than the others");
    store.release_descriptors();
    assert_eq!(store.open_files(), 0);
    drop(hogs);
    assert_eq!(body(&entry(&mut store, "/other", at(5000))), "other");
    assert_eq!(body(&entry(&mut store, "/kept", at(6000))), "kept");
}
