//! Paths: the part of a site that a route is for, and the path by which a request finds it. Pure.
//!
//! Routes decide who may ask for what, so a path that is written otherwise must not get past them.
//! A path is compared in its plain form: percent-encodings decoded, repeated slashes merged. An
//! encoded slash separates too, since some servers take it for one. Servers differ on what `.` and
//! `..` mean; no client sends them, since they are resolved before (RFC 3986 section 5.2.4), and a
//! path that has them is for no route. They differ on parameters (`/a;x`, section 3.3) as well: a
//! path that would take another route without its own is for none either. Nor is one that would
//! take another with slashes for its backslashes, which some servers read as such (URL Living
//! Standard section 4.4, and IIS).

/// The requests that a route is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// This path alone, in its plain form.
    Exact(Box<[u8]>),
    /// This path with all below it, in its plain form: `/a` is for `/a` and `/a/b`, not for `/ab`;
    /// `/a/` is not for `/a`.
    Prefix(Box<[u8]>),
}

impl PathPattern {
    /// Creates the pattern of a path as an operator writes it; `is_exact`: for that path alone.
    ///
    /// # Errors
    /// A sentence: it is no path.
    pub fn parse(text: &str, is_exact: bool) -> Result<Self, String> {
        if !text.starts_with('/') {
            return Err("a path begins with /".into());
        }
        let mut room = Vec::new();
        let plain = plain(text.as_bytes(), &mut room);
        if plain.has_dots {
            return Err("a path has no . or .. between slashes".into());
        }
        let path = plain.path.into();
        Ok(if is_exact { Self::Exact(path) } else { Self::Prefix(path) })
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        let (Self::Exact(path) | Self::Prefix(path)) = self;
        path
    }

    /// Returns whether it is for all of a site.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Prefix(path) if **path == *b"/")
    }

    /// Returns whether a request with this path, in its plain form, takes the route.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        match self {
            Self::Exact(own) => path == &**own,
            Self::Prefix(own) => path.strip_prefix(&**own).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with(b"/") || own.ends_with(b"/")
            }),
        }
    }

    /// Returns whether every request that takes another route would take this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let is_alone = matches!((self, other), (Self::Exact(_), Self::Prefix(_)));
        !is_alone && self.matches(other.path())
    }

    /// Returns the order in which patterns are tried: the exact ones first, then the longest.
    pub(super) fn rank(&self) -> (bool, usize) {
        (matches!(self, Self::Prefix(_)), usize::MAX - self.path().len())
    }
}

/// The plain form of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    /// The path.
    pub path: &'a [u8],
    /// True if a part between slashes is `.` or `..`, parameters aside.
    pub has_dots: bool,
    /// True if a part may have parameters; the path is then built in the room.
    pub has_parameters: bool,
    /// True if it has backslashes; the path is then built in the room.
    pub has_backslashes: bool,
}

/// Returns the plain form of the path of a request target. One that is plain is borrowed as it is;
/// otherwise it is built in `room`.
pub fn plain<'a>(raw: &'a [u8], room: &'a mut Vec<u8>) -> Plain<'a> {
    if !needs_decoding(raw) {
        let path = raw;
        return Plain { path, has_dots: false, has_parameters: false, has_backslashes: false };
    }
    room.clear();
    let mut rest = raw;
    while let Some((byte, after)) = next_byte(rest) {
        rest = after;
        if !(byte == b'/' && room.ends_with(b"/")) {
            room.push(byte);
        }
    }
    let has_dots = room.split(|&byte| byte == b'/').any(is_dots);
    let has_parameters = memchr::memchr(b';', room).is_some();
    let has_backslashes = memchr::memchr(b'\\', room).is_some();
    Plain { path: room, has_dots, has_parameters, has_backslashes }
}

/// Cuts the parameters off the parts of a path in its plain form, which it still has then.
pub(super) fn cut_parameters(path: &mut Vec<u8>) {
    let (mut is_parameter, mut previous) = (false, 0);
    path.retain(|&byte| {
        is_parameter = byte == b';' || is_parameter && byte != b'/';
        let is_kept = !is_parameter && (byte, previous) != (b'/', b'/');
        if is_kept {
            previous = byte;
        }
        is_kept
    });
}

/// Puts slashes in the place of the backslashes of a path in its plain form. Returns whether a part
/// of it is `.` or `..` then.
pub(super) fn separate_at_backslashes(path: &mut Vec<u8>) -> bool {
    let mut previous = 0;
    path.retain_mut(|byte| {
        if *byte == b'\\' {
            *byte = b'/';
        }
        let is_kept = (*byte, previous) != (b'/', b'/');
        previous = *byte;
        is_kept
    });
    path.split(|&byte| byte == b'/').any(is_dots)
}

/// Returns whether a path may differ from its plain form, or have dots, parameters or backslashes.
fn needs_decoding(raw: &[u8]) -> bool {
    let mut previous = 0;
    raw.iter().any(|&byte| {
        let is_special =
            matches!(byte, b'%' | b';' | b'\\') || previous == b'/' && matches!(byte, b'/' | b'.');
        previous = byte;
        is_special
    })
}

/// Takes the first byte, decoded. A `%` without two digits stands for itself.
pub(super) fn next_byte(raw: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if let [b'%', high, low, rest @ ..] = raw
        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
    {
        return Some((high << 4 | low, rest));
    }
    raw.split_first().map(|(byte, rest)| (*byte, rest))
}

/// Returns whether a part of a path is `.` or `..`. Some servers cut off what follows a semicolon.
fn is_dots(part: &[u8]) -> bool {
    let name = part.split(|&byte| byte == b';').next().unwrap_or_default();
    matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text, false).unwrap()
    }

    #[test]
    fn a_prefix_is_a_path_with_all_below_it() {
        for (own, asked, wanted) in [
            ("/", "/", true),
            ("/", "/a", true),
            ("/api", "/api", true),
            ("/api", "/api/", true),
            ("/api", "/api/b", true),
            ("/api", "/apis", false),
            ("/api", "/", false),
            ("/api/", "/api/b", true),
            ("/api/", "/api", false),
            ("/caf%C3%A9", "/café/x", true),
        ] {
            assert_eq!(pattern(own).matches(asked.as_bytes()), wanted, "{own} {asked}");
        }
        let exact = PathPattern::parse("/api", true).unwrap();
        assert_eq!(
            ["/api", "/api/", "/api/b"].map(|path| exact.matches(path.as_bytes())),
            [true, false, false]
        );
        assert!(pattern("/").is_whole() && !exact.is_whole());
        assert!(PathPattern::parse("a", false).is_err());
        assert!(PathPattern::parse("/a/../b", false).is_err());
    }

    #[test]
    fn a_pattern_covers_what_is_for_its_path_or_below() {
        let exact = |text: &str| PathPattern::parse(text, true).unwrap();
        for (one, other, wanted) in [
            (pattern("/"), pattern("/a"), true),
            (pattern("/a"), pattern("/a"), true),
            (pattern("/a"), pattern("/a/b"), true),
            (pattern("/a"), exact("/a"), true),
            (pattern("/a"), pattern("/ab"), false),
            (pattern("/a/b"), pattern("/a"), false),
            (exact("/a"), exact("/a"), true),
            (exact("/a"), pattern("/a"), false),
            (exact("/a"), exact("/a/b"), false),
        ] {
            assert_eq!(one.covers(&other), wanted, "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_path_written_otherwise_is_the_same() {
        for raw in ["/admin/x", "//admin/x", "/%61dmin/x", "/admin%2fx", "/admin//x", "/%2Fadmin/x"]
        {
            let mut room = Vec::new();
            let plain = plain(raw.as_bytes(), &mut room);
            assert_eq!((plain.path, plain.has_dots), (&b"/admin/x"[..], false), "{raw}");
        }
        for raw in ["/.", "/..", "/a/../b", "/a/%2e%2e/b", "/a%2f..%2fb", "/a/.%2E", "/a/..;x/b"] {
            assert!(plain(raw.as_bytes(), &mut Vec::new()).has_dots, "{raw}");
        }
        for (raw, path) in [("/.well-known/a", "/.well-known/a"), ("/a%zz%4", "/a%zz%4")] {
            let mut room = Vec::new();
            let plain = plain(raw.as_bytes(), &mut room);
            assert_eq!((plain.path, plain.has_dots), (path.as_bytes(), false));
        }
    }

    #[test]
    fn parameters_are_cut_off_every_part() {
        for (raw, cut) in [
            ("/a;x", "/a"),
            ("/a;x=1;y/b;z", "/a/b"),
            ("/;x/a", "/a"),
            ("/a/;/b", "/a/b"),
            ("/a%3Bx%2fb", "/a/b"),
            ("/;", "/"),
            ("/a/;x", "/a/"),
        ] {
            let mut room = Vec::new();
            assert!(plain(raw.as_bytes(), &mut room).has_parameters, "{raw}");
            cut_parameters(&mut room);
            assert_eq!(room, cut.as_bytes(), "{raw}");
        }
        assert!(!plain(b"/a%20b", &mut Vec::new()).has_parameters);
    }

    #[test]
    fn backslashes_separate_as_slashes_do() {
        for (raw, path, has_dots) in [
            ("/a\\b", "/a/b", false),
            ("/a%5cb\\", "/a/b/", false),
            ("\\/a/\\/b", "/a/b", false),
            ("/a\\..\\b", "/a/../b", true),
            ("/a/..\\b", "/a/../b", true),
            ("/a\\.;x", "/a/.;x", true),
            ("/a\\.b", "/a/.b", false),
        ] {
            let mut room = Vec::new();
            let plain = plain(raw.as_bytes(), &mut room);
            assert_eq!((plain.has_dots, plain.has_backslashes), (false, true), "{raw}");
            assert_eq!(separate_at_backslashes(&mut room), has_dots, "{raw}");
            assert_eq!(room, path.as_bytes(), "{raw}");
        }
        assert!(!plain(b"/a%20b", &mut Vec::new()).has_backslashes);
    }

    proptest! {
        #[test]
        fn a_plain_path_is_borrowed_and_one_that_is_built_has_no_empty_parts(
            raw in "/[a/.%2fe5]{0,12}",
        ) {
            let mut room = Vec::new();
            let plain = plain(raw.as_bytes(), &mut room);
            prop_assert!(plain.path.starts_with(b"/"));
            prop_assert!(memchr::memmem::find(plain.path, b"//").is_none());
        }

        #[test]
        fn every_byte_may_be_encoded(path in "/[a-z/]{0,8}") {
            let encoded: String = path.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let (mut one, mut other) = (Vec::new(), Vec::new());
            let encoded = format!("/{encoded}");
            prop_assert_eq!(
                plain(path.as_bytes(), &mut one).path,
                plain(encoded.as_bytes(), &mut other).path
            );
        }
    }
}
