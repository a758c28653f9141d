//! From a stored reply and the reply to a later HEAD request to what is stored then (RFC 9111
//! section 4.3.5).

use super::refresh::opaque;
use super::{Refreshed, Reply, StaleUntil, Stored};
use crate::fields::split;
use crate::{Fields, ReplyControl};

impl Stored {
    /// Returns what the 200 to a HEAD request makes of the reply to a GET that it could have been
    /// answered with: fresh if all its validators, one at least, and its length are the stored
    /// one's; stale if any is another. `None` if the stored one stays as it is, as it does where
    /// the 200 is for one client. `length`: that of the content, by the 200.
    #[must_use]
    pub fn after_head<R: Fields + ?Sized>(
        &self,
        reply: &Reply<'_, R>,
        length: Option<u64>,
    ) -> Option<Stored> {
        let is_for_client =
            reply.is_authorized() || reply.answers_cookies(&ReplyControl::of(reply.fields));
        if self.status != 200 || reply.status != 200 || is_for_client {
            return None;
        }
        let ours: Vec<_> = split(self.entry.fields_206()).collect();
        let is_same = |name: &[u8]| {
            let theirs = reply.fields.value(name)?;
            Some(ours.value(name).is_some_and(|own| opaque(own) == opaque(theirs)))
        };
        let validators = [is_same(b"etag"), is_same(b"last-modified")];
        let has_length = length.is_none_or(|length| length == self.entry.len());
        if !has_length || validators.contains(&Some(false)) {
            return self.outdated(reply.received_ns);
        }
        match self.refreshed(reply) {
            Refreshed::Stored(fresh) if validators.contains(&Some(true)) => Some(fresh),
            _ => None,
        }
    }

    /// Returns it as it would be if it had become stale at a time; `None` if it has before.
    fn outdated(&self, now_ns: u64) -> Option<Stored> {
        let early_ns = self.fresh_until_ns.checked_sub(now_ns).filter(|early_ns| *early_ns > 0)?;
        let StaleUntil { validated_ns, error_ns, away_ns } = self.stale_until_ns;
        let earlier = |ns: u64| ns.saturating_sub(early_ns);
        Some(Stored {
            fresh_until_ns: now_ns,
            stale_until_ns: StaleUntil {
                validated_ns: earlier(validated_ns),
                error_ns: earlier(error_ns),
                away_ns: earlier(away_ns),
            },
            ..self.clone()
        })
    }
}
