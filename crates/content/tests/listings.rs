//! Directory listings: built in parts, shared by all waiters, cached while they are valid, bounded.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a broken expectation is a failed test")]

mod site;

use std::sync::Arc;

use site::{Site, at, body, find};
use weir_content::{Entry, Found, ListingCounts, Lookup, Now, Options, Store, Waiter};

/// Maximum number of entries examined and rows written in one part.
const PART_ROWS_MAX: u64 = 400;

fn listing() -> Options {
    Options { listing: true, codings: Vec::new(), ..Options::default() }
}

fn site_with(name: &str, files: usize) -> Site {
    let site = Site::new(name);
    fill(&site, "d", files);
    site
}

fn fill(site: &Site, directory: &str, files: usize) {
    std::fs::create_dir_all(site.path(directory)).unwrap();
    for index in 0..files {
        std::fs::write(site.path(&format!("{directory}/{index:05}")), "x").unwrap();
    }
}

/// Requests the listing of a directory until it is finished.
fn list(store: &mut Store, path: &str, now: Now) -> Arc<Entry> {
    let mut waiter = None;
    loop {
        match find(store, path, now) {
            Found::Listing(page) => return page,
            Found::Unfinished(unfinished) => waiter = Some(unfinished),
            other => panic!("{path}: {other:?} after {waiter:?}"),
        }
    }
}

fn unfinished(store: &mut Store, path: &str, now: Now) -> Waiter {
    match find(store, path, now) {
        Found::Unfinished(waiter) => waiter,
        other => panic!("{path}: {other:?}"),
    }
}

fn links(page: &Entry) -> Vec<String> {
    let text = body(page);
    let ends = text.split("href=\"").skip(2).map(|rest| rest.split('"').next().unwrap().to_owned());
    ends.collect()
}

#[test]
fn a_large_directory_is_listed_in_parts_and_whole() {
    let site = site_with("parts", 2000);
    site.write("d/a-directory/x", "");
    let mut store = site.store(listing());
    let page = list(&mut store, "/d/", at(0));
    let expected = (0..2000).map(|index| format!("{index:05}"));
    let expected: Vec<_> = std::iter::once("a-directory/".to_owned()).chain(expected).collect();
    assert_eq!(links(&page), expected);
    let ListingCounts { made, parts, part_rows_max } = store.listing_counts();
    assert_eq!(made, 1);
    assert!(parts >= 2 * 2001 / PART_ROWS_MAX, "{parts}");
    assert!(part_rows_max <= PART_ROWS_MAX, "{part_rows_max}");
}

#[test]
fn a_small_one_is_listed_at_once() {
    let site = site_with("small", 30);
    let mut store = site.store(listing());
    assert!(matches!(find(&mut store, "/d/", at(0)), Found::Listing(_)));
    assert_eq!(store.listing_counts().parts, 1);
}

#[test]
fn all_who_wait_share_one_page_kept_or_not() {
    let site = site_with("shared", 1000);
    for options in [listing(), Options { caching: false, ..listing() }] {
        let mut store = site.store(options);
        let first = unfinished(&mut store, "/d/", at(0));
        let second = unfinished(&mut store, "/d/", at(0));
        let page = list(&mut store, "/d/", at(0));
        drop(first);
        assert!(Arc::ptr_eq(&page, &list(&mut store, "/d/", at(0))));
        assert_eq!(store.listing_counts().made, 1);
        drop(second);
    }
}

#[test]
fn one_that_may_not_go_on_now_does_not() {
    let site = site_with("waiting", 1000);
    let mut store = site.store(listing());
    let pausing = Lookup { advances: false, ..Lookup::of(b"/d/") };
    assert!(matches!(store.find(&pausing, at(0)), Found::Unfinished(_)));
    assert_eq!(store.listing_counts(), ListingCounts::default());
    let _waiter = unfinished(&mut store, "/d/", at(0));
    assert!(matches!(store.find(&pausing, at(0)), Found::Unfinished(_)));
    assert_eq!(store.listing_counts().parts, 1);
}

#[test]
fn it_is_kept_while_the_directory_is_the_same() {
    let site = site_with("kept", 2000);
    let mut store = site.store(listing());
    let page = list(&mut store, "/d/", at(0));
    assert!(Arc::ptr_eq(&page, &list(&mut store, "/d/", at(999))));
    assert!(Arc::ptr_eq(&page, &list(&mut store, "/d/", at(1001))));
    let counts = store.counts();
    assert_eq!((counts.misses, counts.hits, counts.revalidations), (1, 1, 1));
    assert!(store.memory_bytes() >= page.len());
    site.tick();
    site.write("d/new", "");
    assert!(Arc::ptr_eq(&page, &list(&mut store, "/d/", at(2000))), "not looked at");
    assert!(links(&list(&mut store, "/d/", at(2002))).contains(&"new".to_owned()));
    assert_eq!(store.listing_counts().made, 2);
}

/// A file that grows leaves its directory's times unchanged.
#[test]
fn it_is_made_anew_after_a_time_that_grows_with_its_rows() {
    let site = site_with("age", 500);
    let mut store = site.store(listing());
    assert!(body(&list(&mut store, "/d/", at(0))).contains("<td>1 B<td>"));
    (0..500)
        .for_each(|index| std::fs::write(site.path(&format!("d/{index:05}")), "longer").unwrap());
    assert!(!body(&list(&mut store, "/d/", at(1499))).contains("<td>6 B<td>"));
    assert!(body(&list(&mut store, "/d/", at(2500))).contains("<td>6 B<td>"));
}

#[test]
fn one_of_a_directory_changed_a_moment_ago_is_not_kept_for_long() {
    let site = site_with("unsettled", 2);
    let mut store = site.store(listing());
    let early = |ms| Now { unix_ns: at(ms).unix_ns - 10_000_000_000, ..at(ms) };
    let page = list(&mut store, "/d/", early(0));
    assert!(!Arc::ptr_eq(&page, &list(&mut store, "/d/", early(1001))));
}

#[test]
fn an_index_file_that_appears_takes_its_place() {
    let site = site_with("index", 2);
    let mut store = site.store(listing());
    let _ = list(&mut store, "/d/", at(0));
    site.write("d/index.html", "index");
    assert!(
        matches!(find(&mut store, "/d/", at(2000)), Found::Entry(page) if body(&page) == "index")
    );
    std::fs::remove_file(site.path("d/index.html")).unwrap();
    assert_eq!(links(&list(&mut store, "/d/", at(4000))), ["00000", "00001"]);
}

#[test]
fn for_its_fields_alone_it_is_not_made() {
    let site = site_with("head", 1000);
    let mut store = site.store(listing());
    let head = Lookup { head_only: true, ..Lookup::of(b"/d/") };
    assert!(matches!(store.find(&head, at(0)), Found::ListingHead));
    let _waiter = unfinished(&mut store, "/d/", at(0));
    assert!(matches!(store.find(&head, at(0)), Found::ListingHead));
    assert_eq!(store.listing_counts().parts, 1);
    let page = list(&mut store, "/d/", at(0));
    assert!(
        matches!(store.find(&head, at(0)), Found::Listing(found) if Arc::ptr_eq(&found, &page))
    );
    let nothing = Lookup { head_only: true, ..Lookup::of(b"/e/") };
    assert!(matches!(store.find(&nothing, at(0)), Found::NotFound));
}

#[test]
fn few_are_made_at_a_time_and_the_others_after_them() {
    let site = Site::new("many");
    let directories: Vec<_> = (0..7).map(|index| format!("d{index}")).collect();
    for directory in &directories {
        fill(&site, directory, 300);
    }
    let mut store = site.store(Options { caching: false, ..listing() });
    let mut waiters = vec![None; directories.len()];
    let mut made = 0;
    while made < directories.len() {
        for (directory, waiter) in directories.iter().zip(&mut waiters) {
            match find(&mut store, &format!("/{directory}/"), at(0)) {
                Found::Listing(page) => {
                    assert_eq!(links(&page).len(), 300);
                    *waiter = None;
                    made += 1;
                }
                Found::Unfinished(unfinished) => *waiter = Some(unfinished),
                other => panic!("{other:?}"),
            }
        }
        assert!(site.descriptors() <= 4, "{}", site.descriptors());
    }
}

#[test]
fn one_that_nobody_waits_for_is_given_up() {
    let site = site_with("given-up", 1000);
    site.write("e/x", "");
    let mut store = site.store(listing());
    drop(unfinished(&mut store, "/d/", at(0)));
    let _ = list(&mut store, "/e/", at(0));
    assert_eq!(site.descriptors(), 0);
    let _ = list(&mut store, "/d/", at(0));
    assert_eq!(store.listing_counts().made, 2);
}

#[test]
fn rows_are_bounded_and_how_many_are_missing_is_told() {
    let site = site_with("rows", 10_050);
    let mut store = site.store(listing());
    let page = list(&mut store, "/d/", at(0));
    assert_eq!(links(&page).len(), 10_000);
    assert!(body(&page).ends_with("<p>Only 10000 entries are shown; 50 others are not.\n"));
    assert!(store.listing_counts().part_rows_max <= PART_ROWS_MAX);
}

#[test]
fn bytes_are_bounded_too() {
    let site = Site::new("bytes");
    (0..2000).for_each(|index| site.write(&format!("d/{index:05}{}", "'".repeat(250)), ""));
    let mut store = site.store(listing());
    let page = list(&mut store, "/d/", at(0));
    assert!(page.len() < (2 << 20) + 200, "{}", page.len());
    let missing = 2000 - links(&page).len();
    assert!(body(&page).ends_with(&format!("; {missing} others are not.\n")));
}

#[test]
fn a_directory_that_goes_meanwhile_is_not_found_and_entries_that_go_are_left_out() {
    let site = site_with("gone", 2000);
    let mut store = site.store(listing());
    let waiter = unfinished(&mut store, "/d/", at(0));
    (0..2000).step_by(2).for_each(|index| {
        std::fs::remove_file(site.path(&format!("d/{index:05}"))).unwrap();
    });
    assert!(links(&list(&mut store, "/d/", at(0))).len() < 1200);
    drop(waiter);
    let _waiter = unfinished(&mut store, "/d/", at(2000));
    std::fs::remove_dir_all(site.path("d")).unwrap();
    loop {
        match find(&mut store, "/d/", at(2000)) {
            Found::Unfinished(_) => {}
            Found::NotFound => break,
            Found::Listing(page) => {
                assert!(links(&page).len() < 1000);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}
