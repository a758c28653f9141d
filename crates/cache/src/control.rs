//! Cache-Control (RFC 9111 section 5.2, RFC 5861) of requests and replies, and Pragma (section
//! 5.4).

use crate::Fields;

/// Seconds that stand for more than can be said (RFC 9111 section 1.2.2).
const SECONDS_MAX: u64 = 1 << 31;

/// Directives of a reply that are passed on to `http-cache-semantics`. Those that it acts on are
/// among them, but for immutable, which says that a fresh reply need not be validated (RFC 8246),
/// and neither for whom it is nor for how long it is fresh, which the crate has follow from it; and
/// for proxy-revalidate, which is about stale replies only, and told by `must_revalidate`: the
/// crate has it end freshness, and as must-revalidate it would let replies to requests with
/// Authorization be stored, which it does not (RFC 9111 section 3.5).
const KNOWN: [&str; 10] = [
    "max-age",
    "must-revalidate",
    "must-understand",
    "no-cache",
    "no-store",
    "private",
    "public",
    "s-maxage",
    "stale-if-error",
    "stale-while-revalidate",
];

/// Directives of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestControl {
    /// True if the reply may not be stored.
    pub no_store: bool,
    /// True if a stored reply may not be sent without having been validated.
    pub no_cache: bool,
    /// True if only a stored reply is wanted.
    pub only_if_cached: bool,
    /// Maximum age of the reply, seconds.
    pub max_age_s: Option<u64>,
    /// Time for which the reply must stay fresh, seconds.
    pub min_fresh_s: Option<u64>,
    /// Time for which the reply may have been stale, seconds.
    pub max_stale_s: Option<u64>,
}

impl RequestControl {
    /// Adds the directives of a Cache-Control line.
    pub fn add(&mut self, value: &[u8]) {
        for (name, argument) in directives(value) {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            let seconds = || argument.and_then(seconds);
            match name.len() {
                7 if is(b"max-age") => self.max_age_s = Some(seconds().unwrap_or(0)),
                8 if is(b"no-store") => self.no_store = true,
                8 if is(b"no-cache") => self.no_cache = true,
                9 if is(b"min-fresh") => self.min_fresh_s = seconds(),
                9 if is(b"max-stale") => {
                    self.max_stale_s = argument.map_or(Some(u64::MAX), self::seconds);
                }
                14 if is(b"only-if-cached") => self.only_if_cached = true,
                _ => {}
            }
        }
    }

    /// Adds a Pragma line, which counts if there is no Cache-Control.
    pub fn add_pragma(&mut self, value: &[u8]) {
        self.no_cache |= directives(value).any(|(name, _)| name.eq_ignore_ascii_case(b"no-cache"));
    }
}

/// Directives of a reply, as far as `http-cache-semantics` is not asked about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyControl {
    /// True if the reply may not be sent once it is stale: must-revalidate, proxy-revalidate,
    /// no-cache.
    pub must_revalidate: bool,
    /// True if the same follows from s-maxage, unless the reply says otherwise.
    pub has_s_maxage: bool,
    /// True if the reply is for everybody.
    pub is_public: bool,
    /// True if the reply says for how long it is fresh.
    pub is_explicit: bool,
    /// Time after its expiry for which it may be sent while it is validated, seconds.
    pub while_revalidate_s: u64,
    /// Time after its expiry for which it may be sent in place of an error, seconds.
    pub if_error_s: u64,
    /// The directives in the form that `http-cache-semantics` reads; empty if there is none for it.
    pub(crate) text: String,
}

impl ReplyControl {
    /// Reads the Cache-Control lines of a reply.
    #[must_use]
    pub fn of(fields: &(impl Fields + ?Sized)) -> Self {
        let mut control = Self::default();
        let must_understand = fields.values(b"cache-control").flat_map(directives).any(is_must);
        for (name, argument) in fields.values(b"cache-control").flat_map(directives) {
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            control.add(&name, argument.map(|text| seconds(text).unwrap_or(0)));
            // It is for caches that do not know the directive (RFC 9111 section 5.2.2.3).
            if !(must_understand && name == "no-store") {
                control.push(&name, argument);
            }
        }
        control
    }

    fn add(&mut self, name: &str, seconds: Option<u64>) {
        match name {
            "must-revalidate" | "proxy-revalidate" | "no-cache" => self.must_revalidate = true,
            "s-maxage" => (self.has_s_maxage, self.is_explicit) = (true, true),
            "max-age" => self.is_explicit = true,
            "public" => self.is_public = true,
            "stale-while-revalidate" => self.while_revalidate_s = seconds.unwrap_or(0),
            "stale-if-error" => self.if_error_s = seconds.unwrap_or(0),
            _ => {}
        }
    }

    /// Adds a directive to the text: lower case, no quotes, no lists of fields. Of several of a
    /// name the first counts (RFC 9111 section 4.2.1): the crate takes those that differ for
    /// must-revalidate, by which replies to requests with Authorization may be stored. The text is
    /// bounded, however many directives there are.
    fn push(&mut self, name: &str, argument: Option<&[u8]>) {
        if !KNOWN.contains(&name) || self.has(name) {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str(", ");
        }
        match name {
            "max-age" | "s-maxage" => {
                let seconds = argument.and_then(seconds).unwrap_or(0);
                self.text.push_str(&format!("{name}={seconds}"));
            }
            _ => self.text.push_str(name),
        }
    }

    /// Returns whether the text has a directive.
    fn has(&self, name: &str) -> bool {
        self.text.split(", ").any(|known| known.split('=').next() == Some(name))
    }
}

fn is_must((name, _): (&[u8], Option<&[u8]>)) -> bool {
    name.eq_ignore_ascii_case(b"must-understand")
}

/// Parses delta-seconds (RFC 9111 section 1.2.2), quoted or not.
pub(crate) fn seconds(argument: &[u8]) -> Option<u64> {
    let is_number = !argument.is_empty() && argument.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(argument).ok().filter(|_| is_number)?;
    Some(text.parse().unwrap_or(SECONDS_MAX).min(SECONDS_MAX))
}

/// Iterates over the directives of a line: names, and arguments without their quotes. A comma
/// within quotes separates nothing.
fn directives(value: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    let mut is_quoted = false;
    let parts = value.split(move |&byte| {
        is_quoted ^= byte == b'"';
        byte == b',' && !is_quoted
    });
    parts.map(<[u8]>::trim_ascii).filter(|part| !part.is_empty()).map(|part| {
        let Some((name, rest)) =
            memchr::memchr(b'=', part).and_then(|at| part.split_at_checked(at))
        else {
            return (part, None);
        };
        let argument = rest.get(1..).unwrap_or_default();
        let unquoted = argument.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        (name, Some(unquoted.unwrap_or(argument)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(value: &str) -> RequestControl {
        let mut control = RequestControl::default();
        control.add(value.as_bytes());
        control
    }

    fn reply(value: &str) -> ReplyControl {
        ReplyControl::of(&[(&b"Cache-Control"[..], value.as_bytes())][..])
    }

    #[test]
    fn a_request_s_directives_are_read() {
        let none = RequestControl::default();
        assert_eq!(request(""), none);
        assert_eq!(request("No-Cache"), RequestControl { no_cache: true, ..none });
        assert_eq!(request("x=\"no-store\""), none);
        assert_eq!(request("max-age=5 , max-stale").max_age_s, Some(5));
        assert_eq!(request("max-stale").max_stale_s, Some(u64::MAX));
        assert_eq!(request("max-stale=7").max_stale_s, Some(7));
        assert_eq!(request("max-stale=x").max_stale_s, None);
        assert_eq!(request("min-fresh=99999999999999999999").min_fresh_s, Some(SECONDS_MAX));
        assert_eq!(request("max-age=x").max_age_s, Some(0));
        let mut pragma = none;
        pragma.add_pragma(b"no-cache");
        assert!(pragma.no_cache);
    }

    #[test]
    fn a_reply_s_directives_are_read_and_rewritten() {
        let control =
            reply("Max-Age=\"60\", S-MAXAGE=5,stale-while-revalidate=7, private=\"a, b\"");
        assert_eq!(control.text, "max-age=60, s-maxage=5, stale-while-revalidate, private");
        assert!(control.has_s_maxage && control.is_explicit && !control.must_revalidate);
        assert_eq!((control.while_revalidate_s, control.if_error_s), (7, 0));
        assert_eq!(
            reply("no-store, must-understand, max-age=1").text,
            "must-understand, max-age=1"
        );
        assert_eq!(reply("max-age=-1").text, "max-age=0");
        assert_eq!(reply("max-age=1, proxy-revalidate, public").text, "max-age=1, public");
        assert_eq!(reply("max-age=1, max-age=2, public, public").text, "max-age=1, public");
        assert_eq!(reply("x, no-transform=1, No-Store, x, y").text, "no-store");
        let immutable = reply("immutable, max-age=1");
        assert_eq!((&*immutable.text, immutable.is_public), ("max-age=1", false));
        assert!(!reply("immutable").is_explicit);
        for directive in ["no-cache", "proxy-revalidate", "must-revalidate", "no-cache=\"x\""] {
            assert!(reply(directive).must_revalidate, "{directive}");
        }
    }
}
