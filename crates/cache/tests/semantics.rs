//! The cache's decisions beside those of `http-cache-semantics`, on replies and requests at random.

#![allow(clippy::unwrap_used, reason = "a broken expectation is a failed test")]

mod fixtures;

use std::time::{Duration, UNIX_EPOCH};

use fixtures::{NOW_NS, SECOND_NS, control, store};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use proptest::prelude::*;
use weir_cache::{Reuse, reuse};

fn reply_directive() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0..100_u64).prop_map(|s| format!("max-age={s}")),
        2 => (0..100_u64).prop_map(|s| format!("s-maxage={s}")),
        1 => Just("no-cache".to_owned()),
        1 => Just("no-store".to_owned()),
        1 => Just("private".to_owned()),
        1 => Just("public".to_owned()),
        1 => Just("must-revalidate".to_owned()),
        1 => Just("immutable".to_owned()),
    ]
}

fn request_directive() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("no-cache".to_owned()),
        (0..100_u64).prop_map(|s| format!("max-age={s}")),
        (0..100_u64).prop_map(|s| format!("min-fresh={s}")),
        (0..100_u64).prop_map(|s| format!("max-stale={s}")),
        Just("max-stale".to_owned()),
    ]
}

/// Joins directives of different names.
fn joined(directives: Vec<String>) -> String {
    let name = |directive: &String| directive.split('=').next().unwrap().to_owned();
    let mut seen = Vec::new();
    let first = directives.into_iter().filter(|directive| {
        let is_new = !seen.contains(&name(directive));
        seen.push(name(directive));
        is_new
    });
    first.collect::<Vec<_>>().join(", ")
}

fn date(s: u64) -> String {
    httpdate::fmt_http_date(
        UNIX_EPOCH + Duration::from_secs(NOW_NS / SECOND_NS) - Duration::from_secs(s),
    )
}

fn reply() -> impl Strategy<Value = (u16, String)> {
    let line = |name: &'static str, value: Option<String>| {
        value.map_or(String::new(), |value| format!("{name}: {value}\n"))
    };
    let status = prop_oneof![
        4 => Just(200),
        1 => Just(404),
        1 => Just(302),
        1 => Just(500),
        1 => Just(206),
    ];
    let control = proptest::collection::vec(reply_directive(), 0..4);
    let age = proptest::option::of(0..50_u64);
    let expires = proptest::option::of(0..100_u64);
    let modified = proptest::option::of(0..1000_u64);
    let (etag, cookie) = (any::<bool>(), proptest::bool::weighted(0.1));
    (status, control, age, expires, modified, etag, cookie).prop_map(
        move |(status, control, age, expires, modified, etag, cookie)| {
            let expires_at = UNIX_EPOCH + Duration::from_nanos(NOW_NS);
            let expires =
                expires.map(|s| httpdate::fmt_http_date(expires_at + Duration::from_secs(s)));
            let lines = [
                line("Cache-Control", Some(joined(control)).filter(|text| !text.is_empty())),
                line("Date", Some(date(0))),
                line("Age", age.map(|s| s.to_string())),
                line("Expires", expires),
                line("Last-Modified", modified.map(date)),
                line("ETag", etag.then(|| "\"v\"".to_owned())),
                line("Set-Cookie", cookie.then(|| "a=b".to_owned())),
            ];
            (status, lines.concat())
        },
    )
}

fn message<T>(mut message: http::Request<T>, lines: &str) -> http::Request<T> {
    *message.headers_mut() = headers(lines);
    message
}

fn headers(lines: &str) -> http::HeaderMap {
    let mut headers = http::HeaderMap::new();
    for (name, value) in lines.lines().filter_map(|line| line.split_once(": ")) {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, value.parse().unwrap());
    }
    headers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn nothing_is_stored_or_sent_that_the_rules_forbid(
        (status, fields) in reply(),
        is_authorized in proptest::bool::weighted(0.2),
        directives in proptest::collection::vec(request_directive(), 0..3),
        later_s in 0..300_u64,
    ) {
        let asking = if is_authorized { "Authorization: x\n" } else { "" };
        let first = message(http::Request::new(()), asking);
        let mut answer = http::Response::new(());
        *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
        // Of immutable (RFC 8246) the crate has follow that it is for all, and fresh for a day.
        *answer.headers_mut() = headers(&fields.replace("immutable", "x"));
        let received = UNIX_EPOCH + Duration::from_nanos(NOW_NS);
        let policy = CachePolicy::new_options(&first, &answer, received, CacheOptions::default());
        let Some(stored) = store(asking, status, &fields) else {
            // What is useful and allowed is stored, but for cookies.
            let is_useful = policy.time_to_live(received) > Duration::ZERO;
            prop_assert!(!policy.is_storable() || !is_useful || fields.contains("Set-Cookie"));
            return Ok(());
        };
        prop_assert!(policy.is_storable());
        let text = joined(directives);
        let line = if text.is_empty() { String::new() } else { format!("Cache-Control: {text}\n") };
        let asked = message(http::Request::new(()), &line);
        let later = received + Duration::from_secs(later_s);
        let theirs = matches!(policy.before_request(&asked, later), BeforeRequest::Fresh(_));
        let now_ns = NOW_NS + later_s * SECOND_NS;
        let ours = reuse(&stored, &control(&text), now_ns) == Reuse::Send;
        // Of no-cache and s-maxage the crate does not say that a stale reply may not be sent.
        let is_strict = fields.contains("no-cache") || fields.contains("s-maxage");
        let is_ours_stricter = text.contains("max-stale") && is_strict;
        let is_right = ours == theirs || theirs && is_ours_stricter;
        prop_assert!(is_right, "{fields} {text} {later_s}: {ours}");
        prop_assert_eq!(stored.age_s(now_ns), policy.age(later).as_secs());
    }
}
