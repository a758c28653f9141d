//! Decides whether a stored reply answers a request (RFC 9111 section 4).

use crate::{RequestControl, Stored};

const SECOND_NS: u64 = 1_000_000_000;

/// Use of a stored reply whose selectors match a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// It is fresh, or as stale as the client accepts: it is sent.
    Send,
    /// It is stale, and sent while it is validated (RFC 5861 section 3).
    SendAndValidate,
    /// It is stale: it is validated before it is sent.
    Validate,
    /// The client wants it validated, or younger.
    Requested,
}

/// Decides about a stored reply at a time, nanoseconds since 1970.
#[must_use]
pub fn reuse(stored: &Stored, control: &RequestControl, now_ns: u64) -> Reuse {
    if control.no_cache {
        return Reuse::Requested;
    }
    if stored.is_set_back(now_ns) {
        return Reuse::Validate;
    }
    let now_ns = stored.not_before(now_ns);
    let max_age_ns = control.max_age_s.map_or(u64::MAX, |max_s| max_s.saturating_mul(SECOND_NS));
    let is_too_old = stored.age_ns(now_ns) > max_age_ns;
    let left_ns = stored.fresh_until_ns.saturating_sub(now_ns);
    let min_ns = control.min_fresh_s.unwrap_or(0).saturating_mul(SECOND_NS);
    if is_too_old || left_ns < min_ns {
        return Reuse::Requested;
    }
    if stored.is_fresh(now_ns) {
        return Reuse::Send;
    }
    let stale_ns = now_ns - stored.fresh_until_ns;
    let max_stale_ns = control.max_stale_s.map_or(0, |max_s| max_s.saturating_mul(SECOND_NS));
    if stale_ns < max_stale_ns && stored.replaces_absence(now_ns) {
        Reuse::Send
    } else if now_ns < stored.stale_until_ns.validated_ns {
        Reuse::SendAndValidate
    } else {
        Reuse::Validate
    }
}
