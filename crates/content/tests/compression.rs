//! Compression on the fly: which requests count as missed, and forms that several roots share.

// Lints take a helper of a test for no test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod site;

use std::fs;
use std::sync::Arc;

use site::{Site, at, has_line};
use weir_content::{
    Compress, CompressionOptions, Compressor, Entry, Form, Forms, Found, Level, Lookup, Options,
    Store,
};

const BYTES_MAX: u64 = 1 << 20;

/// Opens a store that compresses once it is given forms.
fn store(site: &Site) -> Store {
    let compression = CompressionOptions {
        cache_bytes_max: BYTES_MAX,
        unclaimed_bytes_max: BYTES_MAX,
        file_bytes_max: BYTES_MAX,
    };
    site.store(Options { compression: Some(compression), ..Options::default() })
}

fn compressor() -> Arc<Compressor> {
    Arc::new(Compressor::new(BYTES_MAX, Box::new(|| true)))
}

fn forms(compressor: &Arc<Compressor>) -> Box<Forms> {
    Box::new(Forms::new(Arc::clone(compressor), BYTES_MAX))
}

/// Returns the entry at a path for a client with this `Accept-Encoding`, whose form is made later
/// if there is none.
fn get(store: &mut Store, path: &str, accepted: &str) -> Arc<Entry> {
    let accept_encoding = &[accepted.as_bytes()];
    let plain = Lookup::of(path.as_bytes());
    match store.find(&Lookup { accept_encoding, compress: Compress::Make, ..plain }, at(0)) {
        Found::Entry(entry) => entry,
        other => panic!("{path}: {other:?}"),
    }
}

fn is_gzip(entry: &Entry) -> bool {
    has_line(entry.fields_200(), "Content-Encoding: gzip")
}

/// Makes what waits to be made.
fn work(compressor: &Compressor) {
    while let Some(task) = compressor.next_task() {
        compressor.publish(&task, Form::new(task.compress(Level::Fast), Level::Fast, 1));
        compressor.finish(&task);
    }
}

#[test]
fn who_gets_a_form_or_a_file_that_has_none_has_missed_nothing() {
    let site = Site::new("missed");
    site.write("a.txt", &"a".repeat(5000));
    // What looks like chance does not become smaller.
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(5000)
    .collect();
    fs::write(site.path("noise.txt"), noise).unwrap();
    let (mut store, compressor) = (store(&site), compressor());
    store.give_forms(forms(&compressor), 0);
    assert!(!is_gzip(&get(&mut store, "/a.txt", "gzip")));
    assert_eq!(store.form_counts().missed, 1);
    work(&compressor);
    assert!(is_gzip(&get(&mut store, "/a.txt", "gzip")));
    // Brotli is preferred, and is not made yet.
    assert!(is_gzip(&get(&mut store, "/a.txt", "br, gzip")));
    assert_eq!(store.form_counts().missed, 1);
    get(&mut store, "/a.txt", "br");
    get(&mut store, "/noise.txt", "gzip");
    assert_eq!(store.form_counts().missed, 3);
    work(&compressor);
    assert!(!is_gzip(&get(&mut store, "/noise.txt", "gzip")));
    let counts = store.form_counts();
    assert_eq!((counts.missed, counts.useless), (3, 1));
}

/// Has the forms go from one of two stores to the other.
fn pass_on(stores: &mut [Store; 2], from: usize) {
    let forms = stores[from].take_forms().unwrap();
    stores[1 - from].give_forms(forms, 1 - from);
}

#[test]
fn stores_that_take_turns_keep_their_forms_in_one_place() {
    let sites = [Site::new("turns-one"), Site::new("turns-other")];
    let mut stores = [0_usize, 1].map(|root| {
        sites[root].write("a.txt", &"a".repeat(5000 + root));
        store(&sites[root])
    });
    let compressor = compressor();
    stores[0].give_forms(forms(&compressor), 0);
    let mut kept = Vec::new();
    for root in [0_usize, 1] {
        assert!(!is_gzip(&get(&mut stores[root], "/a.txt", "gzip")));
        work(&compressor);
        kept.push(get(&mut stores[root], "/a.txt", "gzip"));
        assert!(is_gzip(&kept[root]));
        pass_on(&mut stores, root);
    }
    // Both files have the same path.
    for root in [0_usize, 1] {
        assert!(Arc::ptr_eq(&kept[root], &get(&mut stores[root], "/a.txt", "gzip")));
        pass_on(&mut stores, root);
    }
    let counts = stores[0].form_counts();
    assert_eq!((counts.made, counts.missed), (2, 2));
    assert_eq!(stores[1].form_counts().made, 0);
}
