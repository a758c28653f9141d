//! The rules of RFC 9111 and RFC 5861, each on a reply whose time is stepped.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a broken expectation is a failed test")]

mod fixtures;

use std::sync::Arc;

use fixtures::{NOW_NS, SECOND_NS, control, store, stored, with_reply};
use weir_cache::{Refreshed, Reuse, Stored, reuse};
use weir_content::{Now, if_range_holds};

fn at(s: u64) -> u64 {
    NOW_NS + s * SECOND_NS
}

fn plain(stored: &Stored, s: u64) -> Reuse {
    reuse(stored, &control(""), at(s))
}

fn asked(stored: &Stored, directives: &str, s: u64) -> Reuse {
    reuse(stored, &control(directives), at(s))
}

#[test]
fn a_reply_is_fresh_for_as_long_as_it_says() {
    for (fields, fresh_s) in [
        ("Cache-Control: max-age=10", 10),
        ("Cache-Control: max-age=10, s-maxage=20", 20),
        ("Cache-Control: max-age=10\nExpires: Sun, 06 Nov 1994 09:49:37 GMT", 10),
        ("Expires: Sun, 06 Nov 1994 08:49:47 GMT\nDate: Sun, 06 Nov 1994 08:49:37 GMT", 10),
        ("Expires: Sunday, 06-Nov-94 08:49:47 GMT", 10),
        ("CACHE-CONTROL: Max-Age=\"10\"", 10),
        ("Cache-Control: max-age=10, proxy-revalidate", 10),
        ("Last-Modified: Sun, 06 Nov 1994 08:47:57 GMT", 10),
        ("Cache-Control: max-age=30\nAge: 20", 10),
        ("Cache-Control: max-age=30\nDate: Sun, 06 Nov 1994 08:49:17 GMT", 10),
        ("Cache-Control: max-age=30\nDate: Sun, 06 Nov 1994 08:49:17 GMT\nAge: 5", 10),
    ] {
        let reply = stored(fields);
        assert_eq!(plain(&reply, fresh_s - 1), Reuse::Send, "{fields}");
        assert_eq!(plain(&reply, fresh_s), Reuse::Validate, "{fields}");
    }
}

#[test]
fn the_age_counts_from_where_the_reply_was_made() {
    let reply = stored("Cache-Control: max-age=100\nAge: 7");
    assert_eq!((reply.age_s(at(0)), reply.age_s(at(5))), (7, 12));
    assert_eq!((reply.ttl_s(at(0)), reply.ttl_s(at(100))), (93, -7));
    // The time that the request took is part of it.
    let slow = with_reply("", 200, "Cache-Control: max-age=100\nAge: 7", |reply| {
        let slow = weir_cache::Reply { sent_ns: NOW_NS - 3 * SECOND_NS, ..copy(reply) };
        slow.store(Arc::from(*b"")).unwrap()
    });
    assert_eq!(slow.age_s(at(0)), 10);
}

fn copy<'a, R>(reply: &weir_cache::Reply<'a, R>) -> weir_cache::Reply<'a, R> {
    weir_cache::Reply { ..*reply }
}

#[test]
fn what_may_not_be_stored_is_not() {
    for (request, status, fields) in [
        ("", 200, "Cache-Control: no-store, max-age=10"),
        ("", 200, "Cache-Control: private, max-age=10"),
        ("", 200, "Cache-Control: private=\"set-cookie\", max-age=10"),
        ("", 200, "Cache-Control: max-age=10\nVary: *"),
        ("", 200, "Cache-Control: max-age=10\nSet-Cookie: a=b"),
        ("", 206, "Cache-Control: max-age=10"),
        ("", 500, "Cache-Control: max-age=10"),
        ("", 302, "Last-Modified: Sun, 06 Nov 1994 08:47:57 GMT"),
        ("", 200, ""),
        ("", 200, "Cache-Control: max-age=0"),
        ("Authorization: x", 200, "Cache-Control: max-age=10"),
        ("Authorization: x", 200, "Cache-Control: max-age=10, proxy-revalidate"),
        ("Cookie: a=b", 200, "Last-Modified: Sun, 06 Nov 1994 08:47:57 GMT"),
        ("Cookie: a=b", 200, "Cache-Control: max-age=0\nETag: \"v\""),
        ("Cookie: a=b", 200, "Cache-Control: max-age=10, no-cache\nETag: \"v\""),
        ("Cookie: a=b", 200, "Expires: 0\nETag: \"v\""),
        ("Cookie: a=b", 200, "Expires: Sun, 06 Nov 1994 08:49:37 GMT\nETag: \"v\""),
        ("", 599, "Cache-Control: must-understand, no-store, max-age=10"),
    ] {
        assert!(store(request, status, fields).is_none(), "{request} {status} {fields}");
    }
}

#[test]
fn a_reply_that_cookies_alone_keep_out_is_known() {
    let dated = "Last-Modified: Sun, 06 Nov 1994 08:47:57 GMT";
    for (request, fields, is_kept_out) in [
        ("Cookie: a=b", dated, true),
        ("", dated, false),
        ("Cookie: a=b", "", false),
        ("Cookie: a=b", "Cache-Control: no-store", false),
        ("Cookie: a=b", "Cache-Control: max-age=10", false),
        ("Cookie: a=b", "Cache-Control: max-age=0\nETag: \"v\"", true),
        ("Cookie: a=b", &format!("{dated}\nSet-Cookie: a=c"), false),
        ("Cookie: a=b", &format!("{dated}\nVary: *"), false),
        ("Cookie: a=b", &format!("{dated}\nCache-Control: public"), false),
    ] {
        with_reply(request, 200, fields, |reply| {
            assert_eq!(reply.is_kept_out_by_cookies(), is_kept_out, "{request} {fields}");
        });
    }
}

#[test]
fn what_is_stale_when_it_arrives_is_fresh_by_no_clock_that_is_behind() {
    for fields in ["Cache-Control: max-age=0\nETag: \"v\"", "Cache-Control: no-cache\nETag: \"v\""]
    {
        let reply = stored(fields);
        assert_eq!(reuse(&reply, &control(""), NOW_NS - 1), Reuse::Validate, "{fields}");
        assert!(!reply.is_fresh(NOW_NS - 1));
    }
    assert!(stored("Cache-Control: max-age=1").is_fresh(NOW_NS - 1));
}

#[test]
fn what_is_stored_is_fresh_no_longer_once_the_clock_was_set_back() {
    for fields in ["Cache-Control: max-age=5", "Cache-Control: max-age=100000"] {
        let reply = stored(fields);
        let hour_before_ns = NOW_NS - 3600 * SECOND_NS;
        assert!(!reply.is_fresh(hour_before_ns), "{fields}");
        for asked in ["", "max-stale"] {
            assert_eq!(reuse(&reply, &control(asked), hour_before_ns), Reuse::Validate, "{fields}");
        }
        // The clocks of two loops differ by little.
        assert_eq!(reuse(&reply, &control(""), NOW_NS - SECOND_NS), Reuse::Send, "{fields}");
    }
}

#[test]
fn what_does_not_say_for_how_long_it_is_fresh_is_for_a_day_at_most() {
    let old = "Last-Modified: Sun, 06 Jan 1980 08:49:37 GMT";
    assert_eq!(stored(old).ttl_s(at(0)), 86_400);
    for (said, ttl_s) in [
        ("Cache-Control: max-age=172800", 172_800),
        ("Expires: Tue, 08 Nov 1994 08:49:37 GMT", 172_800),
    ] {
        assert_eq!(stored(&format!("{old}\n{said}")).ttl_s(at(0)), ttl_s, "{said}");
    }
}

#[test]
fn a_digest_of_the_whole_is_in_no_part_of_it() {
    let reply = stored(
        "Cache-Control: max-age=10\nETag: \"v\"\nContent-Digest: sha-256=:a=:\nContent-MD5: b\n\
         Repr-Digest: sha-256=:c=:",
    );
    let text = |lines: &[u8]| String::from_utf8(lines.to_vec()).unwrap();
    let whole = text(reply.entry.fields_200());
    let parts = text(reply.entry.fields_206()) + &text(reply.entry.fields_304());
    for name in ["Content-Digest: ", "Content-MD5: "] {
        assert!(whole.contains(name) && !parts.contains(name), "{name}: {parts}");
    }
    assert!(parts.contains("Repr-Digest: "), "{parts}");
    // That of a 304 is of its own content.
    let Refreshed::Stored(fresh) = refreshed(&reply, "", "Content-Digest: sha-256=:d=:") else {
        panic!("it is fresh")
    };
    let lines = text(fresh.entry.fields_200());
    assert!(lines.contains("Content-Digest: sha-256=:a=:\r\n"), "{lines}");
    assert_eq!(lines.matches("Content-Length: ").count(), 1, "{lines}");
}

#[test]
fn what_may_be_stored_is() {
    for (request, status, fields) in [
        ("", 404, "Cache-Control: max-age=10"),
        ("", 301, "Cache-Control: max-age=10"),
        ("", 302, "Cache-Control: max-age=10"),
        ("", 200, "Cache-Control: no-cache\nETag: \"v\""),
        ("", 200, "Cache-Control: max-age=10, public\nSet-Cookie: a=b"),
        ("Authorization: x", 200, "Cache-Control: public, max-age=10"),
        ("Authorization: x", 200, "Cache-Control: s-maxage=10"),
        ("Authorization: x", 200, "Cache-Control: must-revalidate, max-age=10"),
        ("Cookie: a=b", 200, "Cache-Control: max-age=10"),
        ("", 200, "Cache-Control: must-understand, no-store, max-age=10"),
    ] {
        assert!(store(request, status, fields).is_some(), "{request} {status} {fields}");
    }
}

#[test]
fn a_request_may_want_it_younger_or_take_it_older() {
    let reply = stored("Cache-Control: max-age=10");
    assert_eq!(asked(&reply, "no-cache", 0), Reuse::Requested);
    assert_eq!(asked(&reply, "max-age=5", 5), Reuse::Send);
    assert_eq!(asked(&reply, "max-age=5", 6), Reuse::Requested);
    assert_eq!(asked(&reply, "min-fresh=5", 5), Reuse::Send);
    assert_eq!(asked(&reply, "min-fresh=5", 6), Reuse::Requested);
    assert_eq!(asked(&reply, "max-stale=5", 14), Reuse::Send);
    assert_eq!(asked(&reply, "max-stale=5", 15), Reuse::Validate);
    assert_eq!(asked(&reply, "max-stale", 5000), Reuse::Send);
    for strict in ["must-revalidate", "proxy-revalidate", "s-maxage=10"] {
        let reply = stored(&format!("Cache-Control: max-age=10, {strict}"));
        assert_eq!(asked(&reply, "max-stale", 11), Reuse::Validate, "{strict}");
    }
}

#[test]
fn a_stale_reply_is_sent_where_it_says_so() {
    let reply = stored("Cache-Control: max-age=10, stale-while-revalidate=20, stale-if-error=30");
    assert_eq!(plain(&reply, 29), Reuse::SendAndValidate);
    assert_eq!(plain(&reply, 30), Reuse::Validate);
    assert!(reply.replaces_error(at(39)) && !reply.replaces_error(at(40)));
    let silent = stored("Cache-Control: max-age=10");
    assert!(!silent.replaces_error(at(11)) && silent.replaces_absence(at(11)));
    assert!(!silent.replaces_absence(at(2 * 24 * 3600)));
    for strict in ["must-revalidate", "proxy-revalidate", "no-cache"] {
        let reply = stored(&format!(
            "Cache-Control: max-age=10, stale-while-revalidate=20, stale-if-error=30, {strict}\n\
             ETag: \"v\""
        ));
        assert_eq!(plain(&reply, 11), Reuse::Validate, "{strict}");
        assert!(!reply.replaces_error(at(11)) && !reply.replaces_absence(at(11)), "{strict}");
    }
    // With s-maxage, only for as long as it says.
    let shared = stored("Cache-Control: s-maxage=10");
    assert!(!shared.replaces_absence(at(11)));
    let shared = stored("Cache-Control: s-maxage=10, stale-while-revalidate=20");
    assert_eq!(plain(&shared, 11), Reuse::SendAndValidate);
}

#[test]
fn a_304_brings_the_fields_up_to_date_but_not_the_content_s() {
    let reply = stored(
        "Cache-Control: max-age=10\nETag: \"v\"\nX-A: 1\nX-B: 1\nContent-Type: text/css\n\
         Date: Sun, 06 Nov 1994 08:49:37 GMT",
    );
    assert_eq!(&*reply.conditions, b"If-None-Match: \"v\"\r\n");
    let fields = "Cache-Control: max-age=50\nETag: \"v\"\nX-B: 2\nContent-Type: text/plain\n\
                  Content-Length: 7\nVia: 1.1 other";
    let Refreshed::Stored(fresh) = refreshed(&reply, "", fields) else { panic!("it is fresh") };
    let lines = String::from_utf8(fresh.entry.fields_200().to_vec()).unwrap();
    for kept in ["X-A: 1\r\n", "X-B: 2\r\n", "Content-Type: text/css\r\n", "Content-Length: 5\r\n"]
    {
        assert!(lines.contains(kept), "{lines}");
    }
    assert_eq!(lines.matches("Via: ").count(), 1, "{lines}");
    assert_eq!(lines.matches("Date: ").count(), 1, "{lines}");
    assert_eq!((fresh.status, plain(&fresh, 49)), (200, Reuse::Send));
    assert!(matches!(refreshed(&reply, "", "ETag: \"w\""), Refreshed::Unstored(None)));
    let forbidden = refreshed(&reply, "", "Cache-Control: no-store");
    assert!(matches!(forbidden, Refreshed::Unstored(Some(_))));
}

fn refreshed(stored: &Stored, request: &str, fields: &str) -> Refreshed {
    with_reply(request, 304, fields, |answer| stored.refreshed(answer))
}

#[test]
fn a_reply_to_head_makes_the_stored_one_fresh_or_stale() {
    let date = "Sun, 06 Nov 1994 08:47:57 GMT";
    let reply = stored(&format!(
        "Cache-Control: max-age=10, stale-if-error=5\nETag: \"v\"\nLast-Modified: {date}"
    ));
    let after = |request: &str, fields: &str, length| {
        let fields = format!("Cache-Control: max-age=50\n{fields}");
        with_reply(request, 200, &fields, |head| reply.after_head(head, length))
    };
    let ttl_s = |after: Option<Stored>| after.map(|stored| stored.ttl_s(at(0)));
    let same = format!("ETag: \"v\"\nLast-Modified: {date}");
    for (fields, length, ttl) in [
        (&*same, Some(5), Some(50)),
        (&*same, None, Some(50)),
        ("ETag: W/\"v\"", None, Some(50)),
        ("ETag: \"w\"", None, Some(0)),
        ("ETag: \"v\"\nLast-Modified: Sun, 06 Nov 1994 08:48:57 GMT", Some(5), Some(0)),
        (&*same, Some(6), Some(0)),
        ("", Some(6), Some(0)),
        // They say nothing of the content.
        ("", Some(5), None),
        ("ETag: \"v\"\nVary: A", None, None),
    ] {
        assert_eq!(ttl_s(after("", fields, length)), ttl, "{fields} {length:?}");
    }
    assert_eq!(ttl_s(after("Authorization: x", "ETag: \"w\"", None)), None);
    let stale = after("", "ETag: \"w\"", None).unwrap();
    assert!(stale.replaces_error(at(4)) && !stale.replaces_error(at(6)));
    assert!(with_reply("", 404, "ETag: \"w\"", |head| reply.after_head(head, None)).is_none());
}

#[test]
fn a_304_to_one_client_s_credentials_changes_nothing_for_others() {
    let reply = stored("Cache-Control: max-age=10\nETag: \"v\"");
    for (request, fields) in [
        ("Authorization: x", ""),
        ("Authorization: x", "Cache-Control: private"),
        ("Cookie: a=b", "Cache-Control: private"),
    ] {
        let Refreshed::ForClient(Some(sent)) = refreshed(&reply, request, fields) else {
            panic!("{request} {fields}")
        };
        assert_eq!((plain(&sent, 0), sent.entry.len()), (Reuse::Validate, 5));
    }
    let other = refreshed(&reply, "Authorization: x", "ETag: \"w\"");
    assert!(matches!(other, Refreshed::ForClient(None)));
    for fields in ["Cache-Control: max-age=10, public", "Cache-Control: s-maxage=10"] {
        let fresh = refreshed(&reply, "Authorization: x", fields);
        assert!(matches!(fresh, Refreshed::Stored(_)), "{fields}");
    }
    assert!(matches!(refreshed(&reply, "Cookie: a=b", ""), Refreshed::Stored(_)));
}

#[test]
fn a_304_that_is_selected_otherwise_makes_no_stored_reply_fresh() {
    let fields = "Cache-Control: max-age=10\nETag: \"v\"\nVary: A, B";
    let reply = store("A: 1", 200, fields).unwrap();
    for (vary, is_alike) in [
        ("", true),
        ("Vary: b, a", true),
        ("Vary: A", false),
        ("Vary: A, B, C", false),
        ("Vary: *", false),
    ] {
        match refreshed(&reply, "A: 1", vary) {
            Refreshed::Stored(fresh) => assert!(is_alike && fresh.selectors == reply.selectors),
            Refreshed::Unstored(Some(_)) => assert!(!is_alike, "{vary}"),
            other => panic!("{vary} {other:?}"),
        }
    }
}

#[test]
fn a_304_without_a_tag_is_about_the_reply_of_its_date() {
    let (then, later) = ("Sun, 06 Nov 1994 08:47:57 GMT", "Sun, 06 Nov 1994 08:48:57 GMT");
    let reply = stored(&format!("Cache-Control: max-age=10\nLast-Modified: {then}"));
    let of = |date| refreshed(&reply, "", &format!("Last-Modified: {date}"));
    assert!(matches!(of(then), Refreshed::Stored(_)));
    assert!(matches!(of(later), Refreshed::Unstored(None)));
}

#[test]
fn a_part_is_sent_by_date_only_where_that_is_a_strong_last_modified() {
    let (then, now) = ("Sun, 06 Nov 1994 08:48:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT");
    let late = Now { monotonic_ns: 0, unix_ns: at(100) };
    let holds = |stored: &Stored, date: &str| {
        if_range_holds(date.as_bytes(), &stored.entry.validators(), late)
    };
    for (fields, date, is_held) in [
        (format!("Last-Modified: {then}\nDate: {now}"), then, true),
        (format!("Last-Modified: {then}\nDate: {now}"), now, false),
        (format!("Last-Modified: {now}\nDate: {now}"), now, false),
        (format!("Last-Modified: {then}"), then, true),
        (format!("Last-Modified: {now}"), now, false),
        (format!("Date: {now}"), now, false),
        (String::new(), now, false),
    ] {
        let reply = stored(&format!("Cache-Control: max-age=10\n{fields}"));
        assert_eq!(holds(&reply, date), is_held, "{fields}");
    }
    // Validated later, it may still be what was there before the change in its second.
    let reply = stored(&format!("Cache-Control: max-age=10\nLast-Modified: {now}\nDate: {now}"));
    let again = refreshed(&reply, "", "Date: Sun, 06 Nov 1994 08:50:37 GMT");
    let Refreshed::Stored(fresh) = again else { panic!("it is fresh") };
    assert!(!holds(&fresh, now));
}

#[test]
fn what_does_not_change_is_neither_for_all_nor_fresh_because_of_that() {
    let dated = "Last-Modified: Sun, 06 Nov 1994 08:47:57 GMT";
    for (request, fields) in [
        ("", "Cache-Control: max-age=10, immutable\nSet-Cookie: a=b"),
        ("", "Cache-Control: immutable\nSet-Cookie: a=b\nETag: \"v\""),
        ("", "Cache-Control: immutable"),
        ("Cookie: a=b", &format!("Cache-Control: immutable\n{dated}")),
        ("Authorization: x", "Cache-Control: max-age=10, max-age=20"),
    ] {
        assert!(store(request, 200, fields).is_none(), "{request} {fields}");
    }
    assert_eq!(plain(&stored("Cache-Control: max-age=10, immutable"), 10), Reuse::Validate);
    assert_eq!(plain(&stored("Cache-Control: max-age=10, max-age=20"), 10), Reuse::Validate);
}

#[test]
fn a_stored_reply_has_a_date_and_no_age() {
    let reply = stored("Cache-Control: max-age=10\nAge: 3\nServer: a\nContent-Encoding: gzip");
    let lines = String::from_utf8(reply.entry.fields_200().to_vec()).unwrap();
    assert!(lines.contains("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "{lines}");
    assert!(!lines.contains("Age: ") && lines.contains("Via: 1.1 weir\r\n"), "{lines}");
    assert!(reply.has_server && reply.is_coded);
    assert_eq!(reply.entry.validators().modified_s, Some(784_111_777));
    assert!(reply.memory_bytes() > lines.len() + 5);
}
