//! Cross-origin resource sharing (Fetch Living Standard section 3.3): which origins' pages may read
//! replies, and the lines that tell their browsers. All lines are written at the start.

use std::fmt::Write;

/// What pages of other origins may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorsOptions {
    /// Origins, such as `https://app.example`; or `*` for any.
    pub origins: Vec<String>,
    /// Methods besides GET, HEAD and POST.
    pub methods: Vec<String>,
    /// Fields that requests may have besides the simple ones.
    pub headers: Vec<String>,
    /// Fields of replies that pages may read besides the simple ones.
    pub exposed: Vec<String>,
    /// True if requests may carry cookies and passwords.
    pub credentials: bool,
    /// Time for which a browser may keep the answer to a preflight, seconds.
    pub max_age_s: u64,
}

/// The lines for each origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    origins: Vec<Origin>,
    /// True if the reply depends on the origin, which caches must know.
    varies: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    /// `None` for any.
    name: Option<Box<[u8]>>,
    /// Lines of a reply.
    lines: Vec<u8>,
    /// Lines of the reply to a preflight.
    preflight: Vec<u8>,
}

/// Line of a reply to an origin that is not on the list, where others are.
const VARY: &[u8] = b"Vary: Origin\r\n";

/// Names of fields that are about this: an upstream's are not passed on.
pub const NAMES: [&str; 6] = [
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-allow-methods",
    "access-control-allow-headers",
    "access-control-expose-headers",
    "access-control-max-age",
];

/// A page's origin among those of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginIndex {
    /// The one with this index.
    Allowed(u16),
    /// None that is on the list, or none at all where that is of names.
    Other,
}

impl Cors {
    /// Writes the lines.
    ///
    /// # Errors
    /// A sentence: an origin is none, or there are too many, or any origin would get what is meant
    /// for one user.
    pub fn new(options: &CorsOptions) -> Result<Option<Self>, String> {
        if options.origins.is_empty() {
            return Ok(None);
        }
        let has_any = options.origins.iter().any(|origin| origin == "*");
        if has_any && options.credentials {
            return Err("cors-credentials is for origins that are named, and not for *: any page \
                        could read what is meant for its visitor"
                .into());
        }
        if has_any && options.origins.len() > 1 {
            return Err("cors-origins: * is for every origin, and stands alone".into());
        }
        if options.origins.len() > usize::from(u16::MAX) {
            return Err("cors-origins: there are too many".into());
        }
        if let Some(wrong) = options.origins.iter().find(|origin| !is_origin(origin)) {
            return Err(format!(
                "cors-origins: '{wrong}' is no origin: it is written https://HOST or \
                 https://HOST:PORT, or * for any"
            ));
        }
        let origins = options.origins.iter().map(|origin| Origin::new(origin, options)).collect();
        Ok(Some(Self { origins, varies: !has_any }))
    }

    /// Finds the origin that a request names. Where any may read, a reply says so to a request that
    /// names none as well: a cache may send it to a page later (Fetch Living Standard, "CORS
    /// protocol and HTTP caches").
    #[must_use]
    pub fn find(&self, origin: Option<&[u8]>) -> OriginIndex {
        let is_it = |each: &Origin| each.name.as_deref().is_none_or(|name| Some(name) == origin);
        let found = self.origins.iter().position(is_it).and_then(|index| index.try_into().ok());
        found.map_or(OriginIndex::Other, OriginIndex::Allowed)
    }

    /// Returns the lines of a reply.
    #[must_use]
    pub fn lines(&self, origin: OriginIndex) -> &[u8] {
        let otherwise = if self.varies { VARY } else { b"" };
        self.origin(origin).map_or(otherwise, |origin| &origin.lines)
    }

    /// Returns the lines of the reply to a preflight.
    #[must_use]
    pub fn preflight_lines(&self, origin: OriginIndex) -> &[u8] {
        let otherwise = if self.varies { VARY } else { b"" };
        self.origin(origin).map_or(otherwise, |origin| &origin.preflight)
    }

    fn origin(&self, origin: OriginIndex) -> Option<&Origin> {
        match origin {
            OriginIndex::Allowed(index) => self.origins.get(usize::from(index)),
            OriginIndex::Other => None,
        }
    }
}

impl Origin {
    fn new(origin: &str, options: &CorsOptions) -> Self {
        let mut lines = String::new();
        // Writing to a string cannot fail.
        let _ = write!(lines, "Access-Control-Allow-Origin: {origin}\r\n");
        if options.credentials {
            lines.push_str("Access-Control-Allow-Credentials: true\r\n");
        }
        if origin != "*" {
            lines.push_str("Vary: Origin\r\n");
        }
        let mut preflight = lines.clone();
        let methods = ["GET", "HEAD", "POST"].into_iter();
        let methods: Vec<_> = methods.chain(options.methods.iter().map(String::as_str)).collect();
        let _ = write!(preflight, "Access-Control-Allow-Methods: {}\r\n", methods.join(", "));
        if !options.headers.is_empty() {
            let headers = options.headers.join(", ");
            let _ = write!(preflight, "Access-Control-Allow-Headers: {headers}\r\n");
        }
        let _ = write!(preflight, "Access-Control-Max-Age: {}\r\n", options.max_age_s);
        if !options.exposed.is_empty() {
            let exposed = options.exposed.join(", ");
            let _ = write!(lines, "Access-Control-Expose-Headers: {exposed}\r\n");
        }
        let name = (origin != "*").then(|| origin.as_bytes().into());
        Self { name, lines: lines.into_bytes(), preflight: preflight.into_bytes() }
    }
}

/// Returns whether a text is an origin as browsers write it (RFC 6454 section 6.2), `null`, or `*`.
fn is_origin(text: &str) -> bool {
    if matches!(text, "*" | "null") {
        return true;
    }
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let may = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    let is_lower = |text: &str| !text.bytes().any(|byte| byte.is_ascii_uppercase());
    !scheme.is_empty()
        && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || b"+-.".contains(&byte))
        && !host.is_empty()
        && host.bytes().all(may)
        && is_lower(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(origins: &[&str]) -> CorsOptions {
        let origins = origins.iter().map(|&origin| origin.to_owned()).collect();
        CorsOptions { origins, ..CorsOptions::default() }
    }

    fn text(lines: &[u8]) -> &str {
        std::str::from_utf8(lines).unwrap()
    }

    #[test]
    fn a_listed_origin_is_told_so_and_others_nothing() {
        let cors = Cors::new(&options(&["https://a.example", "http://b.example:81"])).unwrap();
        let cors = cors.unwrap();
        let known = cors.find(Some(b"http://b.example:81"));
        assert_eq!(known, OriginIndex::Allowed(1));
        assert_eq!(
            text(cors.lines(known)),
            "Access-Control-Allow-Origin: http://b.example:81\r\nVary: Origin\r\n"
        );
        for other in [None, Some(&b"https://a.example.evil"[..]), Some(b"https://A.example")] {
            assert_eq!(cors.find(other), OriginIndex::Other);
        }
        assert_eq!(text(cors.lines(OriginIndex::Other)), "Vary: Origin\r\n");
    }

    #[test]
    fn a_preflight_is_told_what_is_allowed() {
        let cors = Cors::new(&CorsOptions {
            methods: vec!["PUT".into()],
            headers: vec!["X-A".into(), "X-B".into()],
            exposed: vec!["X-C".into()],
            credentials: true,
            max_age_s: 60,
            ..options(&["https://a.example"])
        });
        let cors = cors.unwrap().unwrap();
        let origin = cors.find(Some(b"https://a.example"));
        assert_eq!(
            text(cors.preflight_lines(origin)),
            "Access-Control-Allow-Origin: https://a.example\r\n\
             Access-Control-Allow-Credentials: true\r\nVary: Origin\r\n\
             Access-Control-Allow-Methods: GET, HEAD, POST, PUT\r\n\
             Access-Control-Allow-Headers: X-A, X-B\r\nAccess-Control-Max-Age: 60\r\n"
        );
        assert!(text(cors.lines(origin)).contains("Expose-Headers: X-C\r\n"));
    }

    #[test]
    fn any_origin_is_one_answer_for_all_and_carries_no_password() {
        let cors = Cors::new(&options(&["*"])).unwrap().unwrap();
        let origin = cors.find(Some(b"https://any.example"));
        assert_eq!(text(cors.lines(origin)), "Access-Control-Allow-Origin: *\r\n");
        assert_eq!(cors.find(None), origin);
        let with_password = CorsOptions { credentials: true, ..options(&["*"]) };
        assert!(Cors::new(&with_password).is_err());
        for wrong in ["a.example", "https://a.example/", "https://", "https://A.example", ""] {
            assert!(Cors::new(&options(&[wrong])).is_err(), "{wrong}");
        }
        assert_eq!(Cors::new(&options(&[])), Ok(None));
    }
}
