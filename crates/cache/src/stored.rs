//! A stored reply: ready to be sent, with all that was decided about it when it arrived.

mod head;
mod refresh;

use std::sync::Arc;

use weir_content::{Entry, Received};

use crate::control::seconds;
use crate::fields::{date_s, push};
use crate::policy::{self, Judgement, format_date};
use crate::{Fields, ReplyControl, Selector, selectors};

pub use refresh::Refreshed;

const SECOND_NS: u64 = 1_000_000_000;

/// Time for which a stale reply may be sent while the origin cannot be asked, unless the reply
/// forbids it (RFC 9111 section 4.2.4), nanoseconds after its expiry.
pub(crate) const AWAY_NS: u64 = 24 * 3600 * SECOND_NS;

/// Difference between the clocks of two loops, at most, nanoseconds. A reply that has arrived later
/// by a clock than its time now was stored before that was set back.
const CLOCKS_DIFFER_NS: u64 = 5 * SECOND_NS;

/// Time between the last change of a reply without a Date and its arrival from which it was not
/// made in the second of that change, though the clocks differ, seconds.
const SETTLED_S: u64 = 60;

/// A reply that has arrived whole, and the request that it answers. Fields that are about one
/// connection or the framing have been left out.
#[derive(Debug)]
pub struct Reply<'a, R: ?Sized> {
    /// Fields of the request.
    pub request: &'a R,
    /// Its status.
    pub status: u16,
    /// Its status line, with its CRLF.
    pub status_line: &'a [u8],
    /// Its fields.
    pub fields: &'a [(&'a [u8], &'a [u8])],
    /// Field lines that the cache adds, each ended by CRLF.
    pub added: &'a [u8],
    /// Time at which the request was sent.
    pub sent_ns: u64,
    /// Time at which the head of the reply arrived.
    pub received_ns: u64,
    /// Fraction of the time since its last change for which it is fresh by heuristics.
    pub heuristic: f32,
    /// True if it is a stored one whose date was no strong validator: of a 304 it gets no other.
    pub was_date_weak: bool,
}

/// A stored reply. Times are nanoseconds since 1970.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its fields and its content.
    pub entry: Arc<Entry>,
    /// Its status.
    pub status: u16,
    /// Its status line, with its CRLF.
    pub status_line: Box<[u8]>,
    /// True if it names its server.
    pub has_server: bool,
    /// True if its content is coded.
    pub is_coded: bool,
    /// Fields of requests that it answers.
    pub selectors: Box<[Selector]>,
    /// Field lines that ask whether it is still valid (RFC 9111 section 4.3.1).
    pub conditions: Box<[u8]>,
    /// Time at which it arrived.
    pub received_ns: u64,
    /// Its age then (section 4.2.3), seconds.
    pub initial_age_s: u64,
    /// Time until which it is fresh.
    pub fresh_until_ns: u64,
    /// Times until which it may be sent stale: while it is validated, in place of an error, and
    /// while the origin cannot be asked. None is earlier than `fresh_until_ns`.
    pub stale_until_ns: StaleUntil,
}

/// Ends of the times for which a reply may be sent stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleUntil {
    /// While it is validated (RFC 5861 section 3).
    pub validated_ns: u64,
    /// In place of an error (RFC 5861 section 4).
    pub error_ns: u64,
    /// While the origin cannot be asked, and for a request that accepts it.
    pub away_ns: u64,
}

impl<R: Fields + ?Sized> Reply<'_, R> {
    /// Creates what is stored of it. `None` if it may not be stored, or is not worth it: it is
    /// neither fresh for a while, nor can be validated or sent stale.
    #[must_use]
    pub fn store(&self, body: Arc<[u8]>) -> Option<Stored> {
        let (freshness, selectors) = (self.freshness()?, self.selectors()?);
        Some(self.stored(freshness, selectors, body))
    }

    /// Returns the fields of the request that it was selected by; `None` if it has `Vary: *`.
    #[must_use]
    pub fn selectors(&self) -> Option<Box<[Selector]>> {
        selectors::of(self.request, self.fields)
    }

    /// Returns whether it would be stored if the request had no cookies.
    #[must_use]
    pub fn is_kept_out_by_cookies(&self) -> bool {
        let control = ReplyControl::of(self.fields);
        self.answers_cookies(&control)
            && self.freshness_for_all(&control).is_some()
            && self.selectors().is_some()
    }

    /// Returns whether what is stored for its request is no longer what others are to be sent (RFC
    /// 9111 section 4.3.3), though it is not stored itself: its status is about the resource, and
    /// it is not likely for this client only.
    #[must_use]
    pub fn withdraws_stored(&self) -> bool {
        let is_for_one = || {
            let is_told_apart = self.request.value(b"cookie").is_some() || self.is_authorized();
            is_told_apart || self.fields.value(b"set-cookie").is_some()
        };
        match self.status {
            404 | 410 => true,
            200..400 => !is_for_one(),
            _ => false,
        }
    }

    fn freshness(&self) -> Option<Freshness> {
        let control = ReplyControl::of(self.fields);
        if self.answers_cookies(&control) { None } else { self.freshness_for_all(&control) }
    }

    /// Returns whether it is likely for one client only because that has cookies: the reply neither
    /// says that it is for everybody, nor that it is fresh for a while.
    fn answers_cookies(&self, control: &ReplyControl) -> bool {
        let says_how_long = control.is_explicit || self.fields.value(b"expires").is_some();
        let is_fresh_by_itself = || says_how_long && self.judged(control).lifetime_ns > 0;
        self.request.value(b"cookie").is_some() && !(control.is_public || is_fresh_by_itself())
    }

    fn judged(&self, control: &ReplyControl) -> Judgement {
        let (is_authorized, status) = (self.is_authorized(), self.status);
        let (fields, received_ns) = (self.fields, self.received_ns);
        policy::judge(is_authorized, status, fields, control, received_ns, self.heuristic)
    }

    /// Returns the freshness of a reply that is not for one client because of its cookies.
    fn freshness_for_all(&self, control: &ReplyControl) -> Option<Freshness> {
        // A cookie is for one client, unless the reply says that it is not.
        if self.fields.value(b"set-cookie").is_some() && !control.is_public {
            return None;
        }
        let judged = self.judged(control);
        let freshness = self.freshness_of(control, judged.lifetime_ns);
        // None is earlier than the end of its freshness.
        let StaleUntil { validated_ns, error_ns, .. } = freshness.stale_until_ns;
        let is_worth_it =
            validated_ns.max(error_ns) > self.received_ns || !conditions(self.fields).is_empty();
        (judged.is_storable && is_worth_it).then_some(freshness)
    }

    fn is_authorized(&self) -> bool {
        self.request.value(b"authorization").is_some()
    }

    fn freshness_of(&self, control: &ReplyControl, lifetime_ns: u64) -> Freshness {
        let initial_age_s = self.initial_age_s();
        let made_ns = self.received_ns.saturating_sub(initial_age_s.saturating_mul(SECOND_NS));
        let fresh_until_ns = made_ns.saturating_add(lifetime_ns);
        let after = |is_allowed: bool, ns: u64| {
            if is_allowed { fresh_until_ns.saturating_add(ns) } else { fresh_until_ns }
        };
        let may_be_stale = !control.must_revalidate;
        let validated_ns = control.while_revalidate_s * SECOND_NS;
        let error_ns = control.if_error_s * SECOND_NS;
        let away_ns = if control.has_s_maxage { 0 } else { AWAY_NS };
        Freshness {
            initial_age_s,
            fresh_until_ns,
            stale_until_ns: StaleUntil {
                validated_ns: after(may_be_stale, validated_ns),
                error_ns: after(may_be_stale, error_ns),
                away_ns: after(may_be_stale, away_ns.max(validated_ns).max(error_ns)),
            },
        }
    }

    /// Returns its age at its arrival (RFC 9111 section 4.2.3), seconds.
    fn initial_age_s(&self) -> u64 {
        let received_s = self.received_ns / SECOND_NS;
        let date_s = self.fields.value(b"date").and_then(date_s).unwrap_or(received_s);
        let apparent_s = received_s.saturating_sub(date_s);
        let delay_s = self.received_ns.saturating_sub(self.sent_ns) / SECOND_NS;
        // Of several, the first counts (RFC 9111 section 5.1).
        let age =
            self.fields.value(b"age").and_then(|value| value.split(|&byte| byte == b',').next());
        let age_s = age.and_then(|age| seconds(age.trim_ascii())).unwrap_or(0);
        apparent_s.max(age_s.saturating_add(delay_s))
    }

    /// Returns whether its Last-Modified is a strong validator (RFC 9110 section 8.8.2.2): it was
    /// made in a later second, so that what changed in the same second is no longer on its way.
    fn has_strong_date(&self) -> bool {
        let date = |name| self.fields.value(name).and_then(date_s);
        let Some(modified_s) = date(b"last-modified") else { return false };
        let settled_s = self.received_ns / SECOND_NS;
        date(b"date")
            .map_or(modified_s.saturating_add(SETTLED_S) <= settled_s, |date_s| modified_s < date_s)
    }

    fn stored(&self, freshness: Freshness, selectors: Box<[Selector]>, body: Arc<[u8]>) -> Stored {
        let (mut lines, mut content_lines, mut whole_lines) = (Vec::new(), Vec::new(), Vec::new());
        let (mut etag, mut content_type, mut has_date) = ((0, 0), (0, 0), false);
        let (mut has_server, mut is_coded) = (false, false);
        for &(name, value) in self.fields {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            match name.len() {
                3 if is(b"age") => {}
                4 if is(b"etag") => etag = push(&mut lines, name, value),
                11 if is(b"content-md5") => _ = push(&mut whole_lines, name, value),
                12 if is(b"content-type") => content_type = push(&mut content_lines, name, value),
                // Differs from that of a part (RFC 9530 section 2).
                14 if is(b"content-digest") => _ = push(&mut whole_lines, name, value),
                16 if is(b"content-encoding") => {
                    push(&mut content_lines, name, value);
                    is_coded = true;
                }
                16 if is(b"content-language") => _ = push(&mut content_lines, name, value),
                _ => {
                    has_date |= is(b"date");
                    has_server |= is(b"server");
                    push(&mut lines, name, value);
                }
            }
        }
        if !has_date {
            let date = format_date(self.received_ns / SECOND_NS);
            push(&mut lines, b"Date", date.as_bytes());
        }
        lines.extend_from_slice(self.added);
        // In its place, the Date counts (RFC 9111 section 4.3.2), but not for a part.
        let dated = self.fields.value(b"last-modified").or_else(|| self.fields.value(b"date"));
        let modified_s = dated.map_or(Some(self.received_ns / SECOND_NS), date_s);
        let received = Received {
            lines: &lines,
            content_lines: &content_lines,
            whole_lines: &whole_lines,
            etag,
            content_type,
            modified_s,
            is_date_weak: self.was_date_weak || !self.has_strong_date(),
        };
        Stored {
            entry: Arc::new(Entry::received(&received, body)),
            status: self.status,
            status_line: self.status_line.into(),
            has_server,
            is_coded,
            selectors,
            conditions: conditions(self.fields),
            received_ns: self.received_ns,
            initial_age_s: freshness.initial_age_s,
            fresh_until_ns: freshness.fresh_until_ns,
            stale_until_ns: freshness.stale_until_ns,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Freshness {
    initial_age_s: u64,
    fresh_until_ns: u64,
    stale_until_ns: StaleUntil,
}

/// Returns the field lines by which a reply with these fields can be validated.
fn conditions(fields: &[(&[u8], &[u8])]) -> Box<[u8]> {
    let mut lines = Vec::new();
    if let Some(etag) = fields.value(b"etag") {
        push(&mut lines, b"If-None-Match", etag);
    }
    if let Some(date) = fields.value(b"last-modified") {
        push(&mut lines, b"If-Modified-Since", date);
    }
    lines.into()
}

impl Stored {
    /// Returns its age (RFC 9111 section 4.2.3), seconds.
    #[must_use]
    pub fn age_s(&self, now_ns: u64) -> u64 {
        self.age_ns(now_ns) / SECOND_NS
    }

    pub(crate) fn age_ns(&self, now_ns: u64) -> u64 {
        let resident_ns = now_ns.saturating_sub(self.received_ns);
        self.initial_age_s.saturating_mul(SECOND_NS).saturating_add(resident_ns)
    }

    /// Returns whether it is fresh.
    #[must_use]
    pub fn is_fresh(&self, now_ns: u64) -> bool {
        !self.is_set_back(now_ns) && self.not_before(now_ns) < self.fresh_until_ns
    }

    /// Returns the time, or that of its arrival if that is later. The clocks of two loops differ by
    /// little; a reply that is stale when it arrives is fresh by none.
    pub(crate) fn not_before(&self, now_ns: u64) -> u64 {
        now_ns.max(self.received_ns)
    }

    /// Returns whether the clock was set back since it arrived: its age is not known then.
    pub(crate) fn is_set_back(&self, now_ns: u64) -> bool {
        self.received_ns.saturating_sub(now_ns) > CLOCKS_DIFFER_NS
    }

    /// Returns the time for which it stays fresh, seconds; negative once it is stale.
    #[must_use]
    pub fn ttl_s(&self, now_ns: u64) -> i64 {
        let (until_s, now_s) = (self.fresh_until_ns / SECOND_NS, now_ns / SECOND_NS);
        until_s.min(i64::MAX as u64) as i64 - now_s as i64
    }

    /// Returns whether it may be sent in place of an error that the origin answers with.
    #[must_use]
    pub fn replaces_error(&self, now_ns: u64) -> bool {
        now_ns < self.stale_until_ns.error_ns
    }

    /// Returns whether it may be sent while the origin cannot be asked.
    #[must_use]
    pub fn replaces_absence(&self, now_ns: u64) -> bool {
        now_ns < self.stale_until_ns.away_ns
    }

    /// Memory that it takes, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let selectors = self.selectors.iter().map(|selector| {
            let value = selector.value.as_deref().map_or(0, <[u8]>::len);
            size_of::<Selector>() + selector.name.len() + value
        });
        size_of::<Self>()
            + self.entry.memory_bytes()
            + self.status_line.len()
            + self.conditions.len()
            + selectors.sum::<usize>()
    }
}
