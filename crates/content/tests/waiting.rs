//! A store that must not block on a disk. If the temporary directory is in memory, nothing in it
//! can be cold, and the tests report that they are skipped.
//!
//! The kernel may drop fetched data, and it may load data that is only looked at: a fast disk does
//! so during the look. Each test therefore makes several attempts, each from the start
//! ([`attempt`]).

// Lints take a helper of a test for no test.
#![allow(clippy::unwrap_used, clippy::panic)]

mod site;

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use site::{Site, assert_body, at, body, entry, find};
use weir_content::{
    CacheCounts, ColdCounts, Content, Entry, Fetch, FetchOp, Found, Lookup, Options, Store,
};
use weir_sys::file::ResidencyCheck;
use weir_sys::profile;

/// Creates a site whose files the kernel evicts on request; returns `None` where it does not.
fn site_on_disk(name: &str) -> Option<Site> {
    let site = Site::new(name);
    site.write("../probe", "x");
    if !is_evicted(&site, "../probe") {
        eprintln!("SKIPPED: the temporary directory is in memory");
        return None;
    }
    Some(site)
}

fn not_waiting() -> Options {
    Options { waits: false, ..Options::default() }
}

/// Options without variants, so that only the file itself can be cold.
fn plain() -> Options {
    Options { codings: Vec::new(), ..not_waiting() }
}

/// Evicts a file's contents from the page cache; its name stays cached.
fn forget(site: &Site, name: &str) {
    assert!(is_evicted(site, name), "{name} stays in the page cache");
}

fn is_evicted(site: &Site, name: &str) -> bool {
    let file = File::open(site.path(name)).unwrap();
    weir_sys::file::evict(file.as_fd(), 0, 0).unwrap()
}

/// Returns the result of the first attempt in which the kernel behaves as it usually does. In the
/// others, something was cached before it was fetched, or no longer cached afterwards.
fn attempt<T>(mut once: impl FnMut() -> Option<T>) -> T {
    (0..100).find_map(|_| once()).unwrap_or_else(|| panic!("a hundred attempts were in vain"))
}

/// Forgets the path, then runs fetches until it is no longer cold. Returns the result and the
/// number of fetches. The kernel may drop fetched data at any moment, but not for ever.
fn after_fetches(store: &mut Store, path: &str) -> (Found, usize) {
    store.forget(path.as_bytes());
    for fetches in 0..100 {
        match find(store, path, at(0)) {
            Found::Cold(fetch) => fetch.run(),
            found => return (found, fetches),
        }
    }
    panic!("{path} is cold for ever");
}

/// Makes the calls that the fetch names and no others, as a ring would.
fn run_kinds(fetch: &Fetch) {
    for kind in fetch.ops() {
        match kind {
            FetchOp::Open { root, path, symlinks } => {
                let _ = weir_sys::file::open_beneath(root.as_fd(), path, symlinks);
            }
            FetchOp::Read { file, offset, len } => {
                let mut bytes = vec![0; len as usize];
                weir_sys::file::pread_full(file.as_fd(), &mut bytes, offset).unwrap();
            }
        }
    }
}

/// Number of system calls this thread has made.
fn calls_made() -> u64 {
    profile::table().unwrap().iter().map(|row| row.count).sum()
}

/// Returns the fetch; `None` if the entry was there already.
fn cold(found: Found) -> Option<Fetch> {
    match found {
        Found::Cold(fetch) => Some(fetch),
        Found::Entry(_) => None,
        other => panic!("{other:?}"),
    }
}

/// Returns the entry; `None` if it is cold.
fn there(found: Found) -> Option<Arc<Entry>> {
    match found {
        Found::Entry(entry) => Some(entry),
        Found::Cold(_) => None,
        other => panic!("{other:?}"),
    }
}

const fn is_send<T: Send + 'static>() {}
const fn is_shared<T: Send + Sync + 'static>() {}
const _: () = is_send::<Store>();
const _: () = is_shared::<Fetch>();
const _: () = is_shared::<Entry>();

#[test]
fn a_file_in_memory_is_found_at_once() {
    let Some(site) = site_on_disk("warm") else { return };
    site.write("a", "one");
    attempt(|| {
        let mut store = site.store(plain());
        let (found, _) = after_fetches(&mut store, "/a");
        assert!(matches!(found, Found::Entry(_)));
        let counts = store.cold_counts();
        assert_body(&entry(&mut store, "/a", at(1)), "one");
        let checked = there(find(&mut store, "/a", at(1001)))?;
        assert_body(&checked, "one");
        assert_eq!(store.cold_counts(), counts);
        let CacheCounts { misses, hits, revalidations, .. } = store.counts();
        assert_eq!((misses, hits, revalidations), (1, 1, 1));
        Some(())
    });
}

#[test]
fn a_file_that_was_forgotten_is_cold_until_it_was_fetched() {
    let Some(site) = site_on_disk("forgotten") else { return };
    let text = "x".repeat(50_000);
    site.write("a", &text);
    attempt(|| {
        let mut store = site.store(plain());
        forget(&site, "a");
        let fetch = cold(find(&mut store, "/a", at(0)))?;
        let ColdCounts { lookups, reads } = store.cold_counts();
        assert_eq!((lookups + reads, store.counts().misses), (1, 0));
        if let Some(FetchOp::Read { offset, len, .. }) = fetch.ops().next() {
            assert_eq!((offset, len, reads), (0, 50_000, 1));
        }
        std::thread::spawn(move || fetch.run()).join().unwrap();
        let fetched = there(find(&mut store, "/a", at(0)))?;
        assert_body(&fetched, &text);
        assert_eq!(store.counts().misses, 1);
        Some(())
    });
}

fn patiently(path: &[u8]) -> Lookup<'_> {
    Lookup { is_patient: true, ..Lookup::of(path) }
}

#[test]
fn the_patient_wait_and_are_never_told_that_it_is_cold() {
    let Some(site) = site_on_disk("patient") else { return };
    site.write("a", "one");
    let mut store = site.store(not_waiting());
    forget(&site, "a");
    let found = store.find(&patiently(b"/a"), at(0));
    assert!(matches!(found, Found::Entry(entry) if body(&entry) == "one"));
    assert!(matches!(store.find(&patiently(b"/b"), at(0)), Found::NotFound));
    assert_eq!(store.cold_counts(), ColdCounts::default());
}

#[test]
fn one_that_waits_is_never_told_either() {
    let Some(site) = site_on_disk("waits") else { return };
    site.write("a", "one");
    let mut store = site.store(Options::default());
    forget(&site, "a");
    assert_body(&entry(&mut store, "/a", at(0)), "one");
    assert!(matches!(find(&mut store, "/b", at(0)), Found::NotFound));
    assert_eq!(store.cold_counts(), ColdCounts::default());
}

#[test]
fn a_file_in_memory_takes_no_more_calls_than_a_blocking_store() {
    let Some(site) = site_on_disk("calls") else { return };
    site.write("a", "one");
    profile::enable();
    let [waiting, not_waiting] = [true, false].map(|waits| {
        attempt(|| {
            let mut store = site.store(Options { waits, ..Options::default() });
            let (found, _) = after_fetches(&mut store, "/a");
            assert!(matches!(found, Found::Entry(_)));
            let calls = |store: &mut Store, ms| {
                let before = calls_made();
                there(find(store, "/a", at(ms)))?;
                Some(calls_made() - before)
            };
            let hit = calls(&mut store, 1)?;
            let checked = calls(&mut store, 1001)?;
            store.forget(b"/a");
            Some((hit, checked, calls(&mut store, 1001)?))
        })
    });
    assert_eq!(waiting, not_waiting);
    assert_eq!(waiting.0, 0);
}

#[test]
fn that_there_is_nothing_is_cold_too_the_first_time() {
    let Some(site) = site_on_disk("absent") else { return };
    site.write("a", "one");
    let mut store = site.store(not_waiting());
    for path in ["/nothing", "/other/in/there", "/directory/"] {
        let (found, fetches) = after_fetches(&mut store, path);
        assert!(matches!(found, Found::NotFound), "{path}");
        assert!(fetches > 0, "{path}");
    }
    assert!(store.cold_counts().lookups >= 3);
    assert_eq!(store.cold_counts().reads, 0);
}

#[test]
fn one_fetch_brings_a_file_and_all_that_is_beside_it() {
    let Some(site) = site_on_disk("variants") else { return };
    site.write("docs/index.html", "plain and long");
    site.write("docs/index.html.br", "br");
    site.write("docs/index.html.gz", "gzip");
    attempt(|| {
        for name in ["docs/index.html", "docs/index.html.br", "docs/index.html.gz"] {
            forget(&site, name);
        }
        // The names that do not exist, and so the first fetch, are cold the first time only.
        let mut store = site.store(not_waiting());
        let (found, fetches) = after_fetches(&mut store, "/docs/");
        let Found::Entry(entry) = found else { panic!("{found:?}") };
        assert_body(&entry, "plain and long");
        (fetches == 1).then_some(())
    });
}

#[test]
fn the_calls_of_a_fetch_do_what_it_does() {
    let Some(site) = site_on_disk("kinds") else { return };
    let mut names = (0..).map(|number| format!("file-{number}"));
    // A name is asked for the first time once.
    attempt(|| fetch_by_calls(&site, &names.next()?));
}

fn fetch_by_calls(site: &Site, name: &str) -> Option<()> {
    site.write(name, "plain and long");
    site.write(&format!("{name}.br"), "br");
    let mut store = site.store(not_waiting());
    forget(site, name);
    forget(site, &format!("{name}.br"));
    let mut opened = Vec::new();
    for _ in 0..100 {
        match find(&mut store, &format!("/{name}"), at(0)) {
            Found::Cold(fetch) => {
                opened.extend(fetch.ops().filter_map(|kind| match kind {
                    FetchOp::Open { path, .. } => Some(path.to_vec()),
                    FetchOp::Read { .. } => None,
                }));
                run_kinds(&fetch);
            }
            Found::Entry(entry) => {
                assert_body(&entry, "plain and long");
                let is_opened = |suffix| opened.contains(&format!("{name}{suffix}").into_bytes());
                assert!(is_opened(".gz") && is_opened(".zst"));
                return (store.cold_counts().reads >= 1).then_some(());
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("cold for ever");
}

#[test]
fn a_kept_file_that_changed_is_cold_until_it_was_fetched() {
    let Some(site) = site_on_disk("changed") else { return };
    attempt(|| {
        site.write("a", "one");
        let mut store = site.store(plain());
        let (found, _) = after_fetches(&mut store, "/a");
        assert!(matches!(found, Found::Entry(_)));
        let before = store.counts();
        site.write("a", "two");
        forget(&site, "a");
        cold(find(&mut store, "/a", at(1000)))?.run();
        let fetched = there(find(&mut store, "/a", at(1000)))?;
        assert_body(&fetched, "two");
        let after = store.counts();
        assert_eq!((after.misses, after.reloads), (before.misses, before.reloads + 1));
        Some(())
    });
}

#[test]
fn of_a_large_file_the_range_that_is_sent_is_fetched() {
    let Some(site) = site_on_disk("large") else { return };
    let len = 1 << 20;
    site.write("a", &"y".repeat(len as usize));
    let mut store = site.store(plain());
    forget(&site, "a");
    let (found, _) = after_fetches(&mut store, "/a");
    let Found::Entry(entry) = found else { panic!("{found:?}") };
    let Content::File(file) = entry.content() else { panic!("in memory") };
    assert_eq!(store.cold_counts().reads, 0);
    attempt(|| {
        forget(&site, "a");
        (file.resident(0..len, ResidencyCheck::Thorough) == 0).then_some(())
    });
    attempt(|| {
        Fetch::of_range(file, 0..len).run();
        let ranges = [0..len, 777..70_777];
        let is_there = |range: Range<u64>| {
            file.resident(range.clone(), ResidencyCheck::Thorough) == range.end - range.start
        };
        ranges.into_iter().all(is_there).then_some(())
    });
    assert_eq!(file.resident(5..5, ResidencyCheck::Thorough), 0);
    let shortened = File::options().write(true).open(site.path("a")).unwrap();
    shortened.set_len(10).unwrap();
    assert_eq!(file.resident(1000..2000, ResidencyCheck::Thorough), 1000);
}

#[test]
fn fetches_of_the_same_are_equal() {
    let Some(site) = site_on_disk("equal") else { return };
    site.write("a", &"y".repeat(100_000));
    let mut store = site.store(plain());
    let path = |store: &mut Store, name| cold(find(store, name, at(0))).unwrap();
    let missing = path(&mut store, "/missing-1");
    assert_eq!(missing, missing.clone());
    assert_eq!(missing, path(&mut store, "//missing-1"));
    assert_ne!(missing, path(&mut store, "/missing-1/"));
    assert_ne!(missing, path(&mut store, "/missing-2"));
    let large = |store: &mut Store| match after_fetches(store, "/a") {
        (Found::Entry(entry), _) => entry,
        (other, _) => panic!("{other:?}"),
    };
    let (one, two) = (large(&mut store), large(&mut store));
    assert!(!Arc::ptr_eq(&one, &two));
    let (Content::File(one), Content::File(two)) = (one.content(), two.content()) else {
        panic!("in memory");
    };
    assert_eq!(Fetch::of_range(one, 0..10), Fetch::of_range(two, 0..10));
    assert_ne!(Fetch::of_range(one, 0..10), Fetch::of_range(two, 0..11));
    assert_ne!(Fetch::of_range(one, 0..10), missing);
}

#[test]
fn a_root_in_memory_is_waited_for() {
    let name = format!("weir-content-waiting-{}", std::process::id());
    let root = std::path::Path::new("/dev/shm").join(name);
    if std::fs::create_dir(&root).is_err() {
        return eprintln!("SKIPPED: there is no /dev/shm to write to");
    }
    std::fs::write(root.join("a"), "one").unwrap();
    let mut store = Store::open(&root, not_waiting()).unwrap();
    let (there, missing) = (find(&mut store, "/a", at(0)), find(&mut store, "/b", at(0)));
    std::fs::remove_dir_all(&root).unwrap();
    assert!(matches!(there, Found::Entry(entry) if body(&entry) == "one"));
    assert!(matches!(missing, Found::NotFound));
}
