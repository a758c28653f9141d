//! The questions that `http-cache-semantics` answers, once for each reply: may it be stored, and
//! for how long is it fresh?
//!
//! It is given the fields in one form only: dates as IMF-fixdate, directives in lower case and
//! without quotes. It is not told the reply's age, which it would read from the Age field alone;
//! RFC 9111 section 4.2.3 has the Date count as well.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, DATE, EXPIRES, LAST_MODIFIED, PRAGMA, SET_COOKIE, VARY,
};
use http::{HeaderName, HeaderValue};
use http_cache_semantics::{CacheOptions, CachePolicy};

use crate::fields::date_s;
use crate::{Fields, ReplyControl};

/// Fields of a reply that are passed as they are.
const PLAIN: [(HeaderName, &[u8]); 3] =
    [(PRAGMA, b"pragma"), (SET_COOKIE, b"set-cookie"), (VARY, b"vary")];

/// Fields of a reply that are dates.
const DATES: [(HeaderName, &[u8]); 3] =
    [(DATE, b"date"), (EXPIRES, b"expires"), (LAST_MODIFIED, b"last-modified")];

/// Maximum time for which a reply is fresh that does not say how long it is, nanoseconds: what has
/// not changed for decades may change all the same (RFC 9111 section 4.2.2).
const HEURISTIC_MAX_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Answers about a reply to a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// True if a shared cache may store it (RFC 9111 section 3).
    pub is_storable: bool,
    /// Time for which it is fresh after it was made (section 4.2.1), nanoseconds.
    pub lifetime_ns: u64,
}

/// Judges a reply. `is_authorized`: the request has Authorization; `heuristic`: fraction of the
/// time since its last change for which a reply is fresh that does not say how long it is (section
/// 4.2.2).
#[must_use]
pub fn judge(
    is_authorized: bool,
    status: u16,
    reply: &(impl Fields + ?Sized),
    control: &ReplyControl,
    received_ns: u64,
    heuristic: f32,
) -> Judgement {
    let received = UNIX_EPOCH + Duration::from_nanos(received_ns);
    let policy = policy(is_authorized, status, reply, control, received, heuristic);
    let is_explicit = control.is_explicit || reply.value(b"expires").is_some();
    let max_ns = if is_explicit { u64::MAX } else { HEURISTIC_MAX_NS };
    let lifetime_ns = u64::try_from(policy.time_to_live(received).as_nanos()).unwrap_or(u64::MAX);
    Judgement { is_storable: policy.is_storable(), lifetime_ns: lifetime_ns.min(max_ns) }
}

fn policy(
    is_authorized: bool,
    status: u16,
    reply: &(impl Fields + ?Sized),
    control: &ReplyControl,
    received: SystemTime,
    heuristic: f32,
) -> CachePolicy {
    let mut asked = http::Request::new(());
    if is_authorized {
        asked.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("x"));
    }
    let mut answered = http::Response::new(());
    *answered.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    let fields = answered.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&control.text)
        && !control.text.is_empty()
    {
        fields.insert(CACHE_CONTROL, value);
    }
    for (name, known) in PLAIN {
        for value in reply.values(known).filter_map(|value| HeaderValue::from_bytes(value).ok()) {
            fields.append(name.clone(), value);
        }
    }
    for (name, known) in DATES {
        if let Some(value) = reply.value(known) {
            // One that cannot be read stays so.
            let date = date_s(value).map_or("0".into(), format_date);
            fields.extend(HeaderValue::from_str(&date).ok().map(|date| (name, date)));
        }
    }
    let options =
        CacheOptions { shared: true, cache_heuristic: heuristic, ..CacheOptions::default() };
    CachePolicy::new_options(&asked, &answered, received, options)
}

pub(crate) fn format_date(unix_s: u64) -> String {
    // The last second that the format can represent.
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s.min(253_402_300_799)))
}
