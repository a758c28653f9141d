//! The cache as all loops share it: variants, flights, room, and what is removed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a broken expectation is a failed test")]

mod fixtures;

use std::sync::Arc;

use fixtures::{Lines, NOW_NS, SECOND_NS, lines, store, with_reply};
use weir_cache::{Cache, CacheConfig, Flight, Found, Joined, Recurrence, Stored};

const FRESH: &str = "Cache-Control: max-age=60";

fn cache(bytes_max: u64) -> Cache<u32> {
    Cache::new(CacheConfig { bytes_max, object_bytes_max: 100_000, heuristic: 0.1 })
}

fn reply(request: &str, fields: &str) -> Arc<Stored> {
    Arc::new(store(request, 200, fields).unwrap())
}

fn put(cache: &Cache<u32>, key: &[u8], stored: &Arc<Stored>) {
    assert!(cache.land(&cache.lead_alone(key), Some(Arc::clone(stored))).is_empty());
}

fn find(cache: &Cache<u32>, request: &Lines) -> Found {
    cache.find(b"k", request, NOW_NS)
}

fn lead(joined: Joined) -> Flight {
    if let Joined::Leads(flight) = joined { flight } else { panic!("it follows") }
}

#[test]
fn a_reply_is_found_by_what_selects_it() {
    let cache = cache(1 << 20);
    let (none, one, other) = (lines(""), lines("A: 1"), lines("A: 2"));
    assert!(matches!(find(&cache, &none), Found::Nothing));
    put(&cache, b"k", &reply("A: 1", "Cache-Control: max-age=60\nVary: A"));
    assert!(matches!(find(&cache, &one), Found::Stored(_)));
    assert!(matches!(find(&cache, &other), Found::OtherVariants));
    // The latest of those selected alike counts.
    put(&cache, b"k", &reply("A: 1", "Cache-Control: max-age=60\nVary: A\nETag: \"2\""));
    let Found::Stored(found) = find(&cache, &one) else { panic!() };
    assert_eq!(found.entry.validators().etag, b"\"2\"");
    // The oldest of too many goes.
    for nth in 2..=17 {
        let asking = format!("A: {nth}");
        put(&cache, b"k", &reply(&asking, "Cache-Control: max-age=60\nVary: A"));
    }
    assert!(matches!(find(&cache, &one), Found::OtherVariants));
    assert!(matches!(find(&cache, &other), Found::Stored(_)));
    assert!(cache.remove(b"k") && !cache.remove(b"k"));
    assert!(matches!(find(&cache, &other), Found::Nothing));
}

#[test]
fn of_large_replies_to_a_key_the_latest_are_kept() {
    let cache = cache(1 << 20);
    let large = |nth: usize| {
        let fields = "Cache-Control: max-age=60\nVary: A";
        let asking = format!("A: {nth}");
        let stored = with_reply(&asking, 200, fields, |reply| reply.store(vec![0; 100_000].into()));
        Arc::new(stored.unwrap())
    };
    for nth in 0..16 {
        put(&cache, b"k", &large(nth));
    }
    let is_there =
        |nth: usize| matches!(find(&cache, &lines(&format!("A: {nth}"))), Found::Stored(_));
    // Half of the only shard.
    let there: Vec<usize> = (0..16).filter(|nth| is_there(*nth)).collect();
    assert_eq!(there, [11, 12, 13, 14, 15]);
    assert_eq!(cache.totals().evicted, 0);
}

#[test]
fn a_reply_that_another_shows_to_be_gone_is_withdrawn() {
    let cache = cache(1 << 20);
    let (first, second) = (
        reply("A: 1", "Cache-Control: max-age=60\nVary: A"),
        reply("A: 2", "Cache-Control: max-age=60\nVary: A"),
    );
    put(&cache, b"k", &first);
    put(&cache, b"k", &second);
    cache.withdraw(b"k", &first);
    cache.withdraw(b"other", &first);
    assert!(matches!(find(&cache, &lines("A: 1")), Found::OtherVariants));
    assert!(matches!(find(&cache, &lines("A: 2")), Found::Stored(_)));
    for (status, request, fields, withdraws) in [
        (404, "Cookie: a=b", "", true),
        (200, "", "Cache-Control: no-store", true),
        (302, "", "Location: /login", true),
        (200, "Cookie: a=b", "Cache-Control: private", false),
        (200, "", "Set-Cookie: a=b", false),
        (403, "", "", false),
    ] {
        let is_so =
            with_reply(request, status, fields, |reply| reply.withdraws_stored() == withdraws);
        assert!(is_so, "{status} {request} {fields}");
    }
}

#[test]
fn what_could_not_be_stored_leaves_the_stale_one_to_stand_in() {
    let cache = cache(1 << 20);
    let stale = reply("", FRESH);
    put(&cache, b"k", &stale);
    let flight = lead(cache.join(b"k", &lines(""), 1));
    let now_ns = NOW_NS + 61 * SECOND_NS;
    assert!(cache.pass(&flight, Recurrence::Always, [].into(), now_ns).is_empty());
    let Found::Pass(Some(found)) = cache.find(b"k", &lines(""), now_ns) else { panic!() };
    assert!(Arc::ptr_eq(&found, &stale));
}

#[test]
fn requests_that_are_selected_otherwise_do_not_follow() {
    let cache = cache(1 << 20);
    put(&cache, b"k", &reply("A: 1", "Cache-Control: max-age=60\nVary: A"));
    let flight = lead(cache.join(b"k", &lines("A: 2"), 1));
    assert_eq!(cache.join(b"k", &lines("A: 2"), 2), Joined::Follows);
    lead(cache.join(b"k", &lines("A: 3"), 3));
    assert!(cache.is_followed(&flight));
    assert_eq!(cache.land(&flight, None), [2]);
}

#[test]
fn a_reply_from_before_a_change_is_not_stored() {
    let cache = cache(1 << 20);
    let flight = lead(cache.join(b"k", &lines(""), 1));
    let alone = cache.lead_alone(b"k");
    cache.remove(b"k");
    for flight in [flight, alone] {
        assert!(cache.land(&flight, Some(reply("", FRESH))).is_empty());
        assert!(matches!(find(&cache, &lines("")), Found::Nothing));
    }
}

#[test]
fn what_could_not_be_stored_is_remembered_for_a_while() {
    let cache = cache(1 << 20);
    let flight = lead(cache.join(b"k", &lines(""), 1));
    assert_eq!(cache.join(b"k", &lines(""), 2), Joined::Follows);
    assert_eq!(cache.pass(&flight, Recurrence::Always, [].into(), NOW_NS), [2]);
    assert!(matches!(find(&cache, &lines("")), Found::Pass(_)));
    let later = cache.find(b"k", &lines(""), NOW_NS + 120 * SECOND_NS);
    assert!(matches!(later, Found::Nothing));
    // A failure says nothing about the next reply.
    put(&cache, b"k", &reply("", FRESH));
    let flight = lead(cache.join(b"k", &lines(""), 1));
    assert!(cache.pass(&flight, Recurrence::Never, [].into(), NOW_NS + 61 * SECOND_NS).is_empty());
    assert!(matches!(find(&cache, &lines("")), Found::Stored(_)));
}

#[test]
fn what_could_not_be_stored_stands_for_requests_that_are_selected_alike() {
    let cache = cache(1 << 20);
    let (one, other, third) = (lines("A: 1"), lines("A: 2"), lines("A: 3"));
    put(&cache, b"k", &reply("A: 1", "Cache-Control: max-age=60\nVary: A"));
    let flight = lead(cache.join(b"k", &other, 1));
    assert!(cache.pass(&flight, Recurrence::Always, [].into(), NOW_NS).is_empty());
    assert!(matches!(find(&cache, &one), Found::Stored(_)));
    assert!(matches!(find(&cache, &other), Found::Pass(_)));
    assert!(matches!(find(&cache, &third), Found::OtherVariants));
    // The stale one is found too, until it cannot be brought up to date; a fresh one always is.
    let at = |s: u64| cache.find(b"k", &one, NOW_NS + s * SECOND_NS);
    assert!(matches!(at(60), Found::Stored(_)));
    let flight = lead(cache.join(b"k", &one, 1));
    assert!(cache.pass(&flight, Recurrence::Always, [].into(), NOW_NS + 60 * SECOND_NS).is_empty());
    assert!(matches!(at(59), Found::Stored(_)));
    assert!(matches!(at(60), Found::Pass(_)));
    assert!(matches!(at(180), Found::Stored(_)));
    assert!(matches!(find(&cache, &other), Found::Pass(_)));
}

#[test]
fn what_could_not_be_stored_stands_for_those_that_its_own_vary_selects() {
    let cache = cache(1 << 20);
    // Nothing is stored yet that would tell what selects.
    let flight = lead(cache.join(b"k", &lines("Accept: x/y"), 1));
    let selectors =
        with_reply("Accept: x/y", 406, "Vary: Accept", |reply| reply.selectors().unwrap());
    let followers = cache.pass(&flight, Recurrence::Always, selectors, NOW_NS);
    assert!(followers.is_empty());
    assert!(matches!(find(&cache, &lines("Accept: x/y")), Found::Pass(_)));
    assert!(matches!(find(&cache, &lines("Accept: text/html")), Found::Nothing));
}

#[test]
fn what_could_not_be_stored_for_its_cookies_stands_for_requests_with_cookies() {
    let cache = cache(1 << 20);
    let flight = lead(cache.join(b"k", &lines("Cookie: a=b"), 1));
    assert!(cache.pass(&flight, Recurrence::WithCookies, [].into(), NOW_NS).is_empty());
    assert!(matches!(find(&cache, &lines("Cookie: c=d")), Found::Pass(_)));
    assert!(matches!(find(&cache, &lines("")), Found::Nothing));
    put(&cache, b"k", &reply("", FRESH));
    assert!(matches!(find(&cache, &lines("Cookie: c=d")), Found::Stored(_)));
}

#[test]
fn what_is_stored_and_what_is_on_its_way_is_bounded() {
    let cache = cache(1 << 20);
    let body: Arc<[u8]> = vec![0; 50_000].into();
    for nth in 0..100_u32 {
        let large = with_reply("", 200, FRESH, |reply| reply.store(Arc::clone(&body)).unwrap());
        put(&cache, &nth.to_le_bytes(), &Arc::new(large));
    }
    let totals = cache.totals();
    assert!(totals.stored_bytes <= 1 << 20 && totals.stored_bytes > 1 << 19, "{totals:?}");
    assert!(totals.evicted >= 79, "{totals:?}");
    let copies: Vec<_> = (0..4).map(|_| cache.reserve(60_000)).collect();
    assert!(copies.iter().all(Option::is_some));
    assert!(cache.reserve(60_000).is_none());
    drop(copies);
    assert!(cache.reserve(60_000).is_some());
}

#[test]
fn a_reply_that_takes_the_place_of_another_evicts_nothing() {
    let cache = cache(1 << 20);
    for _ in 0..3 {
        put(&cache, b"k", &reply("", FRESH));
    }
    assert_eq!(cache.totals().evicted, 0);
}

#[test]
fn a_cache_gives_back_as_much_as_is_asked_and_then_has_room_again() {
    let cache = cache(1 << 20);
    let fill = || {
        for nth in 0..100_u32 {
            put(&cache, &nth.to_be_bytes(), &reply("", FRESH));
        }
        cache.totals().stored_bytes
    };
    let full = fill();
    cache.give_back(full / 4);
    let left = cache.totals().stored_bytes;
    assert!(left <= full - full / 4 && left >= full / 2, "{left} of {full}");
    cache.give_back(u64::MAX);
    assert_eq!((cache.totals().stored_bytes, cache.totals().evicted), (0, 100));
    assert_eq!(fill(), full);
}
