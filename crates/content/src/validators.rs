//! Validators of a representation, and the evaluation of conditional requests (RFC 9110 sections
//! 8.8 and 13).
//!
//! Pure: the input is a file status and the text of header fields.

use std::time::{Duration, UNIX_EPOCH};

use weir_sys::file::Status;

use crate::time::Now;

/// Identification of one version of a representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The entity tag, including its quotes, and `W/` if it is weak; empty if there is none.
    pub etag: &'a [u8],
    /// `Last-Modified`, seconds since the epoch; `None` if HTTP cannot represent it.
    pub modified_s: Option<u64>,
    /// True if that is no strong validator (section 8.8.2.2), however long ago it is: it stands in
    /// for `Last-Modified`, or the representation was made in the second that it names.
    pub is_date_weak: bool,
}

/// The conditional fields of a request: one slice per field line, as received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions<'a> {
    /// All lines of `If-Match`.
    pub if_match: &'a [&'a [u8]],
    /// All lines of `If-None-Match`.
    pub if_none_match: &'a [&'a [u8]],
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'a [u8]>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<&'a [u8]>,
}

/// Result of the preconditions of a conditional GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionResult {
    /// Answer as if there were no condition; evaluate `Range` next.
    Proceed,
    /// 304 Not Modified.
    NotModified,
    /// 412 Precondition Failed.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD in the order of RFC 9110 section 13.2.2. An invalid
/// date is ignored; an invalid tag matches nothing.
pub fn evaluate(conditions: &Conditions<'_>, validators: &Validators<'_>) -> PreconditionResult {
    if !conditions.if_match.is_empty() {
        if !matches_any(conditions.if_match, validators.etag, Comparison::Strong) {
            return PreconditionResult::Failed;
        }
    } else if modified_after(validators, conditions.if_unmodified_since) == Some(true) {
        return PreconditionResult::Failed;
    }
    if !conditions.if_none_match.is_empty() {
        if matches_any(conditions.if_none_match, validators.etag, Comparison::Weak) {
            return PreconditionResult::NotModified;
        }
    } else if modified_after(validators, conditions.if_modified_since) == Some(false) {
        return PreconditionResult::NotModified;
    }
    PreconditionResult::Proceed
}

/// Returns whether an `If-Range` of this value lets the `Range` stand (RFC 9110 section 13.1.5).
///
/// A tag must match strongly. A date must equal `Last-Modified` exactly, and that date must be a
/// strong validator, which it is not until the second it names has passed (section 8.8.2.2).
pub fn if_range_holds(if_range: &[u8], validators: &Validators<'_>, now: Now) -> bool {
    let value = if_range.trim_ascii();
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return value == validators.etag && !value.starts_with(b"W/");
    }
    let Some(modified_s) = validators.modified_s.filter(|_| !validators.is_date_weak) else {
        return false;
    };
    parse_date_s(value) == Some(modified_s) && now.unix_ns / NS_PER_S > modified_s
}

/// Appends the strong entity tag of the version of a file with this status, in the coding whose
/// suffix is `suffix` (empty for none).
///
/// The tag includes the change time and the inode because the modification time alone is often
/// forged: by `cp -p`, by archives, by builds that set every date to 1970. A tag therefore remains
/// valid only while the file stays untouched on this machine. All but the length is hashed, so that
/// inode numbers are not disclosed (CVE-2003-1418).
///
/// A file changed within the last tick of the kernel's clock may change again and keep its times;
/// until the tick is over, each reply gets a unique tag, which will match nothing later.
pub(crate) fn append_etag(status: &Status, suffix: &str, now: Now, out: &mut Vec<u8>) {
    let now_ns = i128::from(now.unix_ns);
    let unsettled_ns = if status.ctime_ns + TICK_NS_MAX >= now_ns { now_ns } else { 0 };
    let (dev, ino) = (i128::from(status.dev), i128::from(status.ino));
    let version = [dev, ino, status.mtime_ns, status.ctime_ns, unsettled_ns]
        .iter()
        .flat_map(|part| part.to_le_bytes())
        .fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
    out.extend_from_slice(format!("\"{:x}-{version:016x}{suffix}\"", status.len).as_bytes());
}

/// Returns `Last-Modified` of a file, seconds since the epoch. A time in the future is replaced by
/// the present (RFC 9110 section 8.8.2.1); one before 1970 or after 9999 is omitted.
pub(crate) fn modified_s(status: &Status, now: Now) -> Option<u64> {
    let modified_ns = status.mtime_ns.min(i128::from(now.unix_ns));
    let modified_s = u64::try_from(modified_ns.div_euclid(i128::from(NS_PER_S))).ok()?;
    (modified_s < YEAR_10000_S).then_some(modified_s)
}

/// Formats a date for HTTP, such as `Sun, 06 Nov 1994 08:49:37 GMT`. Dates after the year 9999 are
/// clamped to its end.
pub(crate) fn format_date(unix_s: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s.min(YEAR_10000_S - 1)))
}

/// Returns whether the representation changed after `date`; `None` if either side has no date.
fn modified_after(validators: &Validators<'_>, date: Option<&[u8]>) -> Option<bool> {
    Some(validators.modified_s? > parse_date_s(date?)?)
}

fn parse_date_s(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Comparison of entity tags (RFC 9110 section 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

fn matches_any(lines: &[&[u8]], etag: &[u8], comparison: Comparison) -> bool {
    lines.iter().any(|line| line.trim_ascii() == b"*" || list_contains(line, etag, comparison))
}

/// Searches for `etag` in a list of entity tags, which may themselves contain commas. Ignores
/// everything after a syntax error.
fn list_contains(mut list: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    let (is_weak, opaque) = split_weak(etag);
    while let Some((weak, tag, rest)) = next_tag(list) {
        if tag == opaque && !((weak || is_weak) && comparison == Comparison::Strong) {
            return true;
        }
        list = rest;
    }
    false
}

/// Takes the next tag off a list: whether it is weak, the tag with its quotes, and the rest.
fn next_tag(list: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let start = list.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
    let element = list.get(start..)?;
    let (weak, quoted) = split_weak(element);
    let end = memchr::memchr(b'"', quoted.strip_prefix(b"\"")?)? + 2;
    Some((weak, quoted.get(..end)?, quoted.get(end..)?))
}

/// Splits off the mark of a weak tag: whether it was there, and the rest.
fn split_weak(tag: &[u8]) -> (bool, &[u8]) {
    tag.strip_prefix(b"W/").map_or((false, tag), |rest| (true, rest))
}

/// Upper bound on the kernel's tick, by which files are stamped: twice the 10 ms of the slowest
/// setting in use.
const TICK_NS_MAX: i128 = 20_000_000;

const NS_PER_S: u64 = 1_000_000_000;

/// The first second beyond the range of an HTTP date.
const YEAR_10000_S: u64 = 253_402_300_800;

// FNV-1a: <http://www.isthe.com/chongo/tech/comp/fnv/>.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::FILE;
    use proptest::prelude::*;

    const MODIFIED: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &[u8] = b"Sun, 06 Nov 1994 08:49:38 GMT";
    const OURS: Validators<'_> =
        Validators { etag: b"\"a,b\"", modified_s: Some(784_111_777), is_date_weak: false };

    fn matching(if_match: &[&[u8]], if_none_match: &[&[u8]]) -> PreconditionResult {
        evaluate(&Conditions { if_match, if_none_match, ..Conditions::default() }, &OURS)
    }

    fn dated(unmodified: Option<&[u8]>, modified: Option<&[u8]>) -> PreconditionResult {
        let conditions = Conditions {
            if_unmodified_since: unmodified,
            if_modified_since: modified,
            ..Conditions::default()
        };
        evaluate(&conditions, &OURS)
    }

    #[test]
    fn no_condition_proceeds() {
        assert_eq!(evaluate(&Conditions::default(), &OURS), PreconditionResult::Proceed);
    }

    #[test]
    fn if_match_compares_strongly() {
        assert_eq!(matching(&[b"*"], &[]), PreconditionResult::Proceed);
        assert_eq!(matching(&[b"\"x\" , \"a,b\""], &[]), PreconditionResult::Proceed);
        assert_eq!(matching(&[b"\"x\"", b"\"a,b\""], &[]), PreconditionResult::Proceed);
        assert_eq!(matching(&[b"W/\"a,b\""], &[]), PreconditionResult::Failed);
        assert_eq!(matching(&[b"\"a\", \"b\""], &[]), PreconditionResult::Failed);
        assert_eq!(matching(&[b"garbage"], &[]), PreconditionResult::Failed);
        assert_eq!(matching(&[b""], &[]), PreconditionResult::Failed);
    }

    #[test]
    fn if_none_match_compares_weakly() {
        assert_eq!(matching(&[], &[b" * "]), PreconditionResult::NotModified);
        assert_eq!(matching(&[], &[b"\"a,b\""]), PreconditionResult::NotModified);
        assert_eq!(matching(&[], &[b",, W/\"a,b\""]), PreconditionResult::NotModified);
        assert_eq!(matching(&[], &[b"\"x\"", b"\"y\",\"a,b\""]), PreconditionResult::NotModified);
        assert_eq!(matching(&[], &[b"\"A,B\", \"a,b"]), PreconditionResult::Proceed);
        assert_eq!(matching(&[], &[b"a,b"]), PreconditionResult::Proceed);
        assert_eq!(matching(&[b"\"x\""], &[b"*"]), PreconditionResult::Failed);
    }

    #[test]
    fn a_weak_tag_of_ours_matches_weakly_only() {
        let weak = Validators { etag: b"W/\"a\"", modified_s: None, ..OURS };
        let with = |conditions: Conditions<'_>| evaluate(&conditions, &weak);
        for tag in [&b"\"a\""[..], b"W/\"a\""] {
            let none_match = Conditions { if_none_match: &[tag], ..Conditions::default() };
            assert_eq!(with(none_match), PreconditionResult::NotModified);
            let matches = Conditions { if_match: &[tag], ..Conditions::default() };
            assert_eq!(with(matches), PreconditionResult::Failed);
        }
        let now = Now { monotonic_ns: 0, unix_ns: 1 };
        assert!(!if_range_holds(b"W/\"a\"", &weak, now));
        assert!(!if_range_holds(b"\"a\"", &weak, now));
    }

    #[test]
    fn dates_count_in_whole_seconds_and_garbage_not_at_all() {
        assert_eq!(dated(None, Some(MODIFIED)), PreconditionResult::NotModified);
        assert_eq!(dated(None, Some(LATER)), PreconditionResult::NotModified);
        assert_eq!(dated(None, Some(EARLIER)), PreconditionResult::Proceed);
        assert_eq!(dated(Some(MODIFIED), None), PreconditionResult::Proceed);
        assert_eq!(dated(Some(LATER), None), PreconditionResult::Proceed);
        assert_eq!(dated(Some(EARLIER), None), PreconditionResult::Failed);
        assert_eq!(
            dated(None, Some(b"Sunday, 06-Nov-94 08:49:37 GMT")),
            PreconditionResult::NotModified
        );
        assert_eq!(dated(None, Some(b"Sun Nov  6 08:49:37 1994")), PreconditionResult::NotModified);
        let garbage: [&[u8]; 5] =
            [b"", b"yesterday", b"\xff", b"Mon, 06 Nov 1994 08:49:37 GMT", b"784111777"];
        for date in garbage {
            assert_eq!(dated(Some(date), Some(date)), PreconditionResult::Proceed);
        }
    }

    #[test]
    fn tags_take_precedence_over_dates() {
        let conditions = Conditions {
            if_match: &[b"\"a,b\""],
            if_unmodified_since: Some(EARLIER),
            if_none_match: &[b"\"other\""],
            if_modified_since: Some(LATER),
        };
        assert_eq!(evaluate(&conditions, &OURS), PreconditionResult::Proceed);
    }

    #[test]
    fn if_range_wants_a_strong_validator() {
        let at = |unix_s: u64| Now { monotonic_ns: 0, unix_ns: unix_s * NS_PER_S };
        let later = at(784_111_778);
        assert!(if_range_holds(b" \"a,b\"", &OURS, later));
        assert!(!if_range_holds(b"W/\"a,b\"", &OURS, later));
        assert!(!if_range_holds(b"\"x\"", &OURS, later));
        assert!(!if_range_holds(b"\"x\", \"a,b\"", &OURS, later));
        assert!(if_range_holds(MODIFIED, &OURS, later));
        assert!(!if_range_holds(MODIFIED, &OURS, at(784_111_777)));
        assert!(!if_range_holds(EARLIER, &OURS, later));
        assert!(!if_range_holds(LATER, &OURS, later));
        assert!(!if_range_holds(b"garbage", &OURS, later));
    }

    fn status() -> Status {
        Status { len: 255, mtime_ns: 4, ctime_ns: 5, ..FILE }
    }

    fn etag(status: &Status, suffix: &str) -> String {
        let mut out = Vec::new();
        let now = Now { monotonic_ns: 0, unix_ns: 784_111_777_000_000_000 };
        append_etag(status, suffix, now, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn any_change_changes_the_tag() {
        let ours = etag(&status(), "");
        assert!(ours.starts_with("\"ff-") && ours.ends_with('"'));
        assert_eq!(ours, etag(&status(), ""));
        let others = [
            etag(&Status { len: 254, ..status() }, ""),
            etag(&Status { ino: 3, ..status() }, ""),
            etag(&Status { mtime_ns: 5, ..status() }, ""),
            etag(&Status { ctime_ns: 6, ..status() }, ""),
            etag(&status(), "-br"),
        ];
        assert!(others.iter().all(|other| *other != ours));
    }

    #[test]
    fn a_file_that_may_keep_its_times_and_change_has_a_new_tag_each_time() {
        let tag = |status: &Status, unix_ns| {
            let mut out = Vec::new();
            append_etag(status, "", Now { monotonic_ns: 0, unix_ns }, &mut out);
            out
        };
        let settled = TICK_NS_MAX as u64 + 6;
        assert_ne!(tag(&status(), 6), tag(&status(), 7));
        assert_ne!(tag(&status(), 7), tag(&status(), settled));
        assert_eq!(tag(&status(), settled), tag(&status(), settled + 1));
    }

    #[test]
    fn odd_modification_times_are_clamped_or_left_out() {
        let now = Now { monotonic_ns: 0, unix_ns: 100 * NS_PER_S };
        let modified = |mtime_ns| modified_s(&Status { mtime_ns, ..status() }, now);
        assert_eq!(modified(99_999_999_999), Some(99));
        assert_eq!(modified(i128::from(u64::MAX) * 1_000_000_000), Some(100));
        assert_eq!(modified(-1), None);
        assert_eq!(format_date(784_111_777).as_bytes(), MODIFIED);
        assert_eq!(format_date(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn no_field_value_upsets_the_parsers(
            value: Vec<u8>,
            date in "[A-Z][a-z]{2,8}[, ]{1,2}[0-9 :A-Za-z-]{0,24}( GMT)?",
        ) {
            let now = Now { monotonic_ns: 0, unix_ns: 1 };
            matching(&[&value], &[&value]);
            dated(Some(&value), Some(date.as_bytes()));
            prop_assert!(!if_range_holds(&value, &OURS, now) || value.trim_ascii() == OURS.etag);
        }
    }
}
