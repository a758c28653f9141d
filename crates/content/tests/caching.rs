//! Caching: what is kept, for how long, and the effect of files that change while cached.

mod site;

use std::fs;
use std::os::fd::AsFd;

use site::{Site, at, body, encoded, entry, find};
use weir_content::{Content, Found, Now, Options};

/// Options under which files larger than 16 bytes are sent from their descriptor.
fn small_memory() -> Options {
    Options { memory_file_bytes_max: 16, ..Options::default() }
}

const LARGE: &str = "more than sixteen bytes";

#[test]
fn a_hit_within_its_time_is_the_same_entry() {
    let site = Site::new("hit");
    site.write("a", "one");
    let mut store = site.store(Options::default());
    let first = entry(&mut store, "/a", at(0));
    fs::remove_file(site.path("a")).unwrap();
    let second = entry(&mut store, "/a", at(999));
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    assert_eq!((store.counts().misses, store.counts().hits), (1, 1));
    assert!(matches!(find(&mut store, "/a", at(1000)), Found::NotFound));
    assert_eq!(store.memory_bytes(), 0);
}

#[test]
fn an_unchanged_file_is_kept_and_its_time_starts_anew() {
    let site = Site::new("revalidate");
    site.write("a", "one");
    let mut store = site.store(Options::default());
    let first = entry(&mut store, "/a", at(0));
    let second = entry(&mut store, "/a", at(1000));
    entry(&mut store, "/a", at(1999));
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    let counts = store.counts();
    assert_eq!((counts.misses, counts.revalidations, counts.hits), (1, 1, 1));
}

#[test]
fn replaced_grown_and_truncated_files_are_loaded_again() {
    for (options, kind) in [(Options::default(), "memory"), (small_memory(), "file")] {
        let site = Site::new(&format!("changed-{kind}"));
        site.write("a", LARGE);
        let mut store = site.store(options);
        let first = entry(&mut store, "/a", at(0));
        let etag = |entry: &weir_content::Entry| entry.validators().etag.to_vec();
        let mut etags = vec![etag(&first)];
        let same_length = LARGE.replace("more", "MORE");
        let changes = [same_length.as_str(), "a longer body than the one before", "shorter", ""];
        for (index, change) in changes.into_iter().enumerate() {
            if index == 0 {
                site.write("new", change);
                fs::rename(site.path("new"), site.path("a")).unwrap();
            } else {
                site.write("a", change);
            }
            let now = at(1000 * (index as u64 + 1));
            let changed = entry(&mut store, "/a", now);
            assert_eq!(body(&changed), change);
            etags.push(etag(&changed));
        }
        assert_eq!(store.counts().reloads, 4);
        etags.sort();
        etags.dedup();
        assert_eq!(etags.len(), 5);
    }
}

#[test]
fn a_forged_modification_time_hides_nothing() {
    let site = Site::new("forged");
    let stamp = |name: &str| {
        let file = fs::File::options().append(true).open(site.path(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    site.write("a", "version 1");
    stamp("a");
    let mut store = site.store(Options::default());
    let first = entry(&mut store, "/a", at(0));
    site.write("a", "version 2");
    stamp("a");
    let second = entry(&mut store, "/a", at(1000));
    assert_eq!(body(&second), "version 2");
    assert_ne!(first.validators().etag, second.validators().etag);
    assert_eq!(first.validators().modified_s, second.validators().modified_s);
}

#[test]
fn a_file_just_written_is_served_but_not_kept() {
    let site = Site::new("racy");
    site.write("a", "one");
    let mut store = site.store(Options::default());
    let settled = at(0);
    let present = Now { unix_ns: settled.unix_ns - 10_000_000_000, ..settled };
    assert_eq!(body(&entry(&mut store, "/a", present)), "one");
    assert_eq!(store.memory_bytes(), 0);
    entry(&mut store, "/a", settled);
    assert!(store.memory_bytes() > 0);
    assert_eq!(store.counts().misses, 2);
}

#[test]
fn without_caching_every_change_shows_and_nothing_stays_open() {
    let site = Site::new("uncached");
    site.write("a", "one");
    let mut store = site.store(Options { caching: false, ..small_memory() });
    assert_eq!(body(&entry(&mut store, "/a", at(0))), "one");
    site.write("a", LARGE);
    let large = entry(&mut store, "/a", at(0));
    assert_eq!(body(&large), LARGE);
    assert_eq!(site.descriptors(), 1);
    drop(large);
    assert_eq!(site.descriptors(), 0);
    assert_eq!((store.counts().hits, store.memory_bytes(), store.open_files()), (0, 0, 0));
}

#[test]
fn an_open_file_knows_when_it_has_changed() {
    let site = Site::new("open");
    site.write("a", LARGE);
    let mut store = site.store(small_memory());
    let kept = entry(&mut store, "/a", at(0));
    let Content::File(file) = kept.content() else { panic!("in memory") };
    assert!(file.is_unchanged().unwrap());
    let later = at(0);
    assert!(file.is_quiet(later));
    assert!(!file.is_quiet(Now { unix_ns: later.unix_ns - 9_000_000_000, ..later }));
    assert_eq!(weir_sys::file::status(file.as_fd()).unwrap().len, LARGE.len() as u64);
    site.write("a", "another");
    assert!(!file.is_unchanged().unwrap());
    store.forget(b"/a");
    assert_eq!(body(&entry(&mut store, "/a", at(1))), "another");
}

#[test]
fn a_forgotten_path_is_looked_up_again() {
    let site = Site::new("forget");
    site.write("a b", "one");
    let mut store = site.store(Options::default());
    entry(&mut store, "/a%20b", at(0));
    site.write("a b", "two");
    assert_eq!(body(&entry(&mut store, "/a%20b", at(1))), "one");
    store.forget(b"/a%20b");
    assert_eq!(body(&entry(&mut store, "/a%20b", at(1))), "two");
}

#[test]
fn a_variant_that_comes_or_goes_is_noticed() {
    let site = Site::new("variant-changes");
    site.write("a", "plain and long");
    let mut store = site.store(Options::default());
    let mut body_at = |ms| body(&encoded(&mut store, "/a", "br", at(ms)));
    assert_eq!(body_at(0), "plain and long");
    site.write("a.br", "br 1");
    assert_eq!(body_at(1000), "br 1");
    site.write("a.br", "br 2");
    assert_eq!(body_at(2000), "br 2");
    fs::remove_file(site.path("a.br")).unwrap();
    assert_eq!(body_at(3000), "plain and long");
}

#[test]
fn an_index_that_comes_first_later_wins() {
    let site = Site::new("index-changes");
    site.write("b.html", "second");
    let index = vec!["a.html".to_owned(), "b.html".to_owned()];
    let mut store = site.store(Options { index, ..Options::default() });
    assert_eq!(body(&entry(&mut store, "/", at(0))), "second");
    site.write("a.html", "first");
    assert_eq!(body(&entry(&mut store, "/", at(999))), "second");
    assert_eq!(body(&entry(&mut store, "/", at(1000))), "first");
}

#[test]
fn memory_stays_within_its_bounds() {
    let site = Site::new("memory");
    let bytes_max = 64 * 1024;
    let text = "x".repeat(2000);
    let mut store = site.store(Options { cache_bytes_max: bytes_max, ..Options::default() });
    for index in 0..100 {
        site.write(&format!("{index}"), &text);
        entry(&mut store, &format!("/{index}"), at(0));
        assert!(store.memory_bytes() <= bytes_max);
    }
    assert!(store.memory_bytes() > bytes_max / 2);
    assert!(store.counts().evictions >= 60);
    assert_eq!(store.counts().misses, 100);
}

#[test]
fn descriptors_stay_within_their_bounds_and_close() {
    let site = Site::new("descriptors");
    let mut store = site.store(Options { open_files_max: 8, ..small_memory() });
    let mut sending = None;
    for index in 0..20 {
        site.write(&format!("{index}"), LARGE);
        let found = entry(&mut store, &format!("/{index}"), at(0));
        sending.get_or_insert(found);
        assert!(store.open_files() <= 8);
    }
    assert!((6..=8).contains(&store.open_files()), "{}", store.open_files());
    let kept = store.open_files() as usize;
    assert!((kept..=kept + 1).contains(&site.descriptors()));
    assert_eq!(store.counts().evictions, 20 - kept as u64);
    store.release_descriptors();
    assert_eq!((store.open_files(), site.descriptors()), (0, 1));
    assert_eq!(body(&sending.unwrap()), LARGE);
    assert_eq!(site.descriptors(), 0);
}

#[test]
fn a_store_gives_back_as_much_as_is_asked_and_keeps_nothing_while_it_may_not() {
    let site = Site::new("give-back");
    let mut store = site.store(Options { cache_bytes_max: 1 << 20, ..Options::default() });
    for name in 0..100 {
        let name = name.to_string();
        site.write(&name, &"x".repeat(4000));
        entry(&mut store, &format!("/{name}"), at(0));
    }
    let full = store.memory_bytes();
    assert!(full > 400_000, "{full}");
    store.give_back(100_000);
    let left = store.memory_bytes();
    assert!((full - 150_000..=full - 100_000).contains(&left), "{left} of {full}");
    assert!(store.counts().evictions >= 20);
    store.give_back(u64::MAX);
    assert_eq!((store.memory_bytes(), store.counts().evictions), (0, 100));
    store.set_keeping(false);
    entry(&mut store, "/1", at(1));
    assert_eq!(store.memory_bytes(), 0);
    store.set_keeping(true);
    for name in 0..100 {
        entry(&mut store, &format!("/{name}"), at(2));
    }
    assert_eq!(store.memory_bytes(), full, "it has the room that it had");
}
