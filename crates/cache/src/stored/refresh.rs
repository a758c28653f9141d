//! From a stored reply and the 304 to its validation to what is sent and stored then (RFC 9111
//! section 4.3.4).

use std::sync::Arc;

use weir_content::Content;

use super::{Freshness, Reply, StaleUntil, Stored};
use crate::fields::{is_one_of, split};
use crate::{Fields, ReplyControl, Selector};

/// Fields of a 304 that do not replace those of the stored reply (RFC 9111 section 3.2): they are
/// about content that the 304 does not have, or about its way here.
const KEPT: [&[u8]; 8] = [
    b"content-digest",
    b"content-encoding",
    b"content-length",
    b"content-md5",
    b"content-range",
    b"content-type",
    b"transfer-encoding",
    b"via",
];

/// Outcome of a 304 for the stored reply that it validates.
#[derive(Debug)]
pub enum Refreshed {
    /// It is fresh, and stored for all.
    Stored(Stored),
    /// It is sent to this client alone, whose credentials the 304 answers (section 3.5): for the
    /// others nothing has changed. `None`: the 304 is about another reply.
    ForClient(Option<Stored>),
    /// It is sent, and stored no longer, since the 304 forbids that, or is selected by other
    /// fields. `None`: the 304 is about another reply.
    Unstored(Option<Stored>),
}

impl Stored {
    /// Returns what the 304 to its validation makes of it.
    #[must_use]
    pub fn refreshed<R: Fields + ?Sized>(&self, reply: &Reply<'_, R>) -> Refreshed {
        let Content::Memory(body) = self.entry.content() else { return Refreshed::Unstored(None) };
        let fields = self.refreshed_fields(reply.fields);
        let whole = Reply {
            status: self.status,
            status_line: &self.status_line,
            fields: &fields,
            // It has been through here before.
            added: b"",
            was_date_weak: self.entry.validators().is_date_weak,
            ..*reply
        };
        let control = ReplyControl::of(&fields[..]);
        let freshness = whole.freshness();
        let is_for_client =
            freshness.is_none() && (whole.is_authorized() || whole.answers_cookies(&control));
        let is_it = self.is_meant_by(reply.fields);
        let is_selected_alike =
            whole.selectors().is_some_and(|new| select_alike(&new, &self.selectors));
        let build = |freshness| whole.stored(freshness, self.selectors.clone(), Arc::clone(body));
        match freshness {
            Some(freshness) if is_it && is_selected_alike => Refreshed::Stored(build(freshness)),
            _ => {
                let sent = is_it.then(|| build(Freshness::none(&whole)));
                if is_for_client { Refreshed::ForClient(sent) } else { Refreshed::Unstored(sent) }
            }
        }
    }

    /// Returns whether a 304 with these fields is about it: by its tag, or else its date.
    fn is_meant_by(&self, fields: &[(&[u8], &[u8])]) -> bool {
        let modified =
            |fields: &[(&[u8], &[u8])]| fields.value(b"last-modified").map(<[u8]>::to_vec);
        match fields.value(b"etag") {
            Some(etag) => opaque(etag) == opaque(self.entry.validators().etag),
            None => {
                let ours: Vec<_> = split(self.entry.fields_206()).collect();
                let (theirs, ours) = (modified(fields), modified(&ours));
                theirs.is_none() || ours.is_none() || theirs == ours
            }
        }
    }

    /// Returns its fields with those of a 304 in place of them.
    fn refreshed_fields<'a>(&'a self, new: &[(&'a [u8], &'a [u8])]) -> Vec<(&'a [u8], &'a [u8])> {
        let new = || new.iter().copied().filter(|(name, _)| !is_one_of(name, &KEPT));
        let is_replaced = |name: &[u8]| {
            // Its Date is that of the 304, whether that says so or not; its length is not told.
            is_one_of(name, &[b"date", b"content-length"])
                || new().any(|(other, _)| name.eq_ignore_ascii_case(other))
        };
        let kept = split(self.entry.fields_200()).filter(|(name, _)| !is_replaced(name));
        kept.chain(new()).collect()
    }
}

impl Freshness {
    /// Returns that of a reply that is sent once.
    fn none<R: Fields + ?Sized>(reply: &Reply<'_, R>) -> Self {
        let now_ns = reply.received_ns;
        Self {
            initial_age_s: reply.initial_age_s(),
            fresh_until_ns: now_ns,
            stale_until_ns: StaleUntil { validated_ns: now_ns, error_ns: now_ns, away_ns: now_ns },
        }
    }
}

/// Returns whether two replies are selected by the same fields and values, in any order.
fn select_alike(one: &[Selector], other: &[Selector]) -> bool {
    one.len() == other.len() && one.iter().all(|selector| other.contains(selector))
}

/// Returns a tag without the mark of a weak one.
pub(super) fn opaque(etag: &[u8]) -> &[u8] {
    etag.strip_prefix(b"W/").unwrap_or(etag)
}
