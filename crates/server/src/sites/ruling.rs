//! What was decided about a request: its rule, whether it may pass, and the lines that replies to
//! it have.

use weir_http1::Status;

use super::cors::OriginIndex;
use super::{RuleIndex, Sites};

/// The rule for a request, and whether the request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ruling {
    /// The rule; `None` if there is none for the host or the path.
    pub rule: Option<RuleIndex>,
    /// The page that asks, by its origin.
    pub origin: OriginIndex,
    pub verdict: Verdict,
}

/// Whether a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is answered as the rule says.
    Pass,
    /// It asks on behalf of a page what that may do; the rule says so.
    Preflight,
    /// It is refused.
    Refuse(Status),
}

/// The rule for a request, and the lines that it adds to a reply.
#[derive(Clone, Copy, Default)]
pub(crate) struct RuleLines<'a> {
    /// Field lines of every reply.
    pub fields: &'a [u8],
    /// Those for the page that asks.
    pub for_page: &'a [u8],
    /// The Cache-Control line of a reply that is no error.
    pub cache_control: &'a [u8],
    /// Names of fields that are left out: an upstream's, and those of replies made here.
    pub removed: &'a [Box<[u8]>],
}

impl<'a> RuleLines<'a> {
    /// Returns those for a request with this ruling, with or without TLS. `own`: the fields of the
    /// server, which replies have that no rule is for.
    #[inline]
    pub(crate) fn of(
        own: &'a [u8],
        is_tls: bool,
        sites: Option<&'a Sites>,
        ruling: Option<Ruling>,
    ) -> Self {
        match sites.zip(ruling) {
            None => Self { fields: own, ..Self::default() },
            Some((sites, ruling)) => Self::of_ruling(own, is_tls, sites, ruling),
        }
    }

    fn of_ruling(own: &'a [u8], is_tls: bool, sites: &'a Sites, ruling: Ruling) -> Self {
        let Some(rule) = ruling.rule.and_then(|index| sites.rule(index)) else {
            return Self { fields: own, ..Self::default() };
        };
        let cors = rule.cors.as_ref();
        let for_page = match ruling.verdict {
            Verdict::Preflight => cors.map(|cors| cors.preflight_lines(ruling.origin)),
            _ => cors.map(|cors| cors.lines(ruling.origin)),
        };
        let is_preflight = ruling.verdict == Verdict::Preflight;
        Self {
            fields: if is_tls { &rule.tls_fields } else { &rule.fields },
            for_page: for_page.unwrap_or_default(),
            cache_control: if is_preflight { b"" } else { &rule.cache_control },
            removed: &rule.removed,
        }
    }
}
