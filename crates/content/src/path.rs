//! Decoding of a request's path to a path below the root, and percent-encoding back.
//!
//! Paths are decoded once (RFC 3986 section 2.4), and input that no honest client sends is refused:
//! nothing that could climb, hide a separator or smuggle a control byte gets through. The kernel
//! checks again when it resolves the result. Nothing here accesses the file system.

/// Reason why a path is not looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// No path at all, or an ambiguous one: 400.
    Malformed,
    /// A dot-file, which is treated as absent: 404.
    NotFound,
}

/// A decoded path below the root: components joined by `/`, none of which is empty, `.` or `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    key: &'a [u8],
}

impl<'a> Decoded<'a> {
    /// Restores a path from its [`Decoded::key`].
    pub(crate) fn from_key(key: &'a [u8]) -> Decoded<'a> {
        Decoded { key }
    }

    /// Returns the path with its trailing slash, if any. Different resources have different keys.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Returns the path without a trailing slash; empty for the root.
    pub fn path(&self) -> &'a [u8] {
        self.key.strip_suffix(b"/").unwrap_or(self.key)
    }

    /// Returns whether the path denotes a directory: the root, or anything with a trailing slash.
    pub fn is_directory(&self) -> bool {
        self.key.is_empty() || self.key.ends_with(b"/")
    }
}

/// Decodes `raw`, the path of a request target (it starts with `/` and has no query).
///
/// A path that needs no decoding is borrowed as it is; otherwise the result is built in `out`.
pub fn decode<'a>(
    raw: &'a [u8],
    dotfiles: bool,
    out: &'a mut Vec<u8>,
) -> Result<Decoded<'a>, PathError> {
    let relative = raw.strip_prefix(b"/").ok_or(PathError::Malformed)?;
    if is_canonical(raw) {
        return Ok(Decoded { key: relative });
    }
    out.clear();
    for component in relative.split(|&byte| byte == b'/').filter(|c| !c.is_empty()) {
        append_component(component, dotfiles, out)?;
    }
    if raw.ends_with(b"/") && !out.is_empty() {
        out.push(b'/');
    }
    std::str::from_utf8(out).map_err(|_| PathError::Malformed)?;
    Ok(Decoded { key: out })
}

/// Returns whether [`decode`] can yield a path with this component, dot-files aside. A listing
/// omits names that could not be requested.
pub fn is_reachable(name: &[u8]) -> bool {
    is_well_formed(name) && std::str::from_utf8(name).is_ok()
}

/// Appends `path` to `out` for use in a URI: all but unreserved characters (RFC 3986 section 2.3)
/// and `/` are percent-encoded, so the result is safe in a header field and in HTML.
pub fn encode(path: &[u8], out: &mut Vec<u8>) {
    for &byte in path {
        let plain = byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        append_encoded(byte, plain, out);
    }
}

/// Returns the `Location` that adds the missing slash to the decoded `path` of a directory.
///
/// It starts with exactly one `/` and never with `//` or `/\`, which a browser takes for another
/// host. It contains no control byte, whatever `path` and `query` contain.
pub fn redirect_location(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    let mut location = vec![b'/'];
    encode(path.get(start..).unwrap_or_default(), &mut location);
    if !location.ends_with(b"/") {
        location.push(b'/');
    }
    if let Some(query) = query {
        location.push(b'?');
        for &byte in query {
            append_encoded(byte, byte.is_ascii_graphic(), &mut location);
        }
    }
    location
}

/// Returns whether `raw` decodes to itself and has no dot-files.
fn is_canonical(raw: &[u8]) -> bool {
    let mut previous = 0;
    raw.iter().all(|&byte| {
        let special = previous == b'/' && (byte == b'/' || byte == b'.');
        previous = byte;
        PLAIN[usize::from(byte)] && !special
    })
}

fn append_component(raw: &[u8], dotfiles: bool, out: &mut Vec<u8>) -> Result<(), PathError> {
    let first = out.is_empty();
    if !first {
        out.push(b'/');
    }
    let start = out.len();
    percent_decode(raw, out)?;
    let component = out.get(start..).unwrap_or_default();
    if !is_well_formed(component) {
        return Err(PathError::Malformed);
    }
    // RFC 8615: well-known locations are at the root only.
    let well_known = first && component == b".well-known";
    if component.starts_with(b".") && !dotfiles && !well_known {
        return Err(PathError::NotFound);
    }
    Ok(())
}

fn percent_decode(raw: &[u8], out: &mut Vec<u8>) -> Result<(), PathError> {
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        if byte == b'%' {
            let high = bytes.next().and_then(hex_digit).ok_or(PathError::Malformed)?;
            let low = bytes.next().and_then(hex_digit).ok_or(PathError::Malformed)?;
            out.push(high << 4 | low);
        } else {
            out.push(byte);
        }
    }
    Ok(())
}

fn hex_digit(byte: &u8) -> Option<u8> {
    char::from(*byte).to_digit(16).map(|digit| digit as u8)
}

/// Returns whether a decoded component is a valid name: not empty, `.` or `..`, without control
/// bytes and without a separator hidden by encoding.
fn is_well_formed(component: &[u8]) -> bool {
    let forbidden = |&byte: &u8| byte == b'/' || byte == b'\\' || byte.is_ascii_control();
    !matches!(component, b"" | b"." | b"..") && !component.iter().any(forbidden)
}

fn append_encoded(byte: u8, plain: bool, out: &mut Vec<u8>) {
    if plain {
        out.push(byte);
    } else {
        let digit = |nibble: u8| HEX[usize::from(nibble & 15)];
        out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Bytes that need no decoding and are always allowed, by value.
const PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        table[byte] = byte != b'%' as usize && byte != b'\\' as usize;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(raw: &[u8]) -> Result<Vec<u8>, PathError> {
        decode(raw, false, &mut Vec::new()).map(|decoded| decoded.key().to_vec())
    }

    #[test]
    fn paths_decode_once_and_slashes_collapse() {
        let cases: [(&[u8], &[u8]); 11] = [
            (b"/", b""),
            (b"//", b""),
            (b"/a/b.html", b"a/b.html"),
            (b"/a//b///", b"a/b/"),
            (b"/a/", b"a/"),
            (b"/%61%2Eb", b"a.b"),
            (b"/%252e%252e/x", b"%2e%2e/x"),
            (b"/caf%C3%A9", "café".as_bytes()),
            ("/café".as_bytes(), "café".as_bytes()),
            (b"/.well-known/x", b".well-known/x"),
            (b"/a%20b%3Fc", b"a b?c"),
        ];
        for (raw, key) in cases {
            assert_eq!(decoded(raw).as_deref(), Ok(key), "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn paths_that_climb_hide_or_smuggle_are_malformed() {
        let cases: [&[u8]; 25] = [
            b"",
            b"*",
            b"a/b",
            b"/..",
            b"/../etc/passwd",
            b"/a/../../etc/passwd",
            b"/.%2e/%2e%2e/etc/passwd",
            b"/%2E%2E/x",
            b"/..%2fx",
            b"/a%2fb",
            b"/a%5Cb",
            b"/%5C%5Chost/..",
            b"/a\\b",
            b"/.",
            b"/./a",
            b"/%%32%65",
            b"/%c0%ae%c0%ae/x",
            b"/\xff",
            b"/%00",
            b"/a%0d%0aX:y",
            b"/a\nb",
            b"/a%7f",
            b"/%",
            b"/%4",
            b"/%zz",
        ];
        for raw in cases {
            assert_eq!(decoded(raw), Err(PathError::Malformed), "{}", raw.escape_ascii());
        }
    }

    #[test]
    fn dot_files_are_absent_unless_wanted() {
        let hidden: [&[u8]; 5] =
            [b"/.git/config", b"/a/.htaccess", b"/%2egit", b"/...", b"/a/.well-known/x"];
        for raw in hidden {
            assert_eq!(decoded(raw), Err(PathError::NotFound), "{}", raw.escape_ascii());
            assert!(decode(raw, true, &mut Vec::new()).is_ok());
        }
    }

    #[test]
    fn only_the_root_and_a_trailing_slash_ask_for_a_directory() {
        let mut out = Vec::new();
        let root = decode(b"/", false, &mut out).unwrap();
        assert!(root.is_directory() && root.path().is_empty());
        let directory = decode(b"/a/b/", false, &mut out).unwrap();
        assert!(directory.is_directory());
        assert_eq!(directory.path(), b"a/b");
        assert!(!decode(b"/a/b", false, &mut out).unwrap().is_directory());
    }

    #[test]
    fn a_redirect_stays_on_this_host() {
        assert_eq!(redirect_location(b"dir", None), b"/dir/");
        assert_eq!(redirect_location(b"//dir", None), b"/dir/");
        assert_eq!(redirect_location(b"\\\\host", None), b"/%5C%5Chost/");
        assert_eq!(redirect_location(b"a b", Some(b"x=1&y=%20\r\n")), b"/a%20b/?x=1&y=%20%0D%0A");
    }

    /// Generates paths in which bytes that break path handling are over-represented.
    fn raw_path() -> impl Strategy<Value = Vec<u8>> {
        let pieces = prop_oneof![
            4 => any::<u8>().prop_map(|byte| vec![byte]),
            3 => "%[0-9a-fA-F]{2}".prop_map(String::into_bytes),
            3 => "[a-z]{1,3}".prop_map(String::into_bytes),
            4 => prop_oneof!["/", "\\.", "%2e", "%2f", "\\.\\.", "%", "%00", "%5c"]
                .prop_map(String::into_bytes),
        ];
        proptest::collection::vec(pieces, 0..12)
            .prop_map(|pieces| [b"/".as_slice(), &pieces.concat()].concat())
    }

    proptest! {
        #[test]
        fn a_decoded_path_has_only_proper_components(raw in raw_path(), dotfiles: bool) {
            let mut out = Vec::new();
            if let Ok(decoded) = decode(&raw, dotfiles, &mut out) {
                let path = decoded.path();
                prop_assert!(!path.contains(&0));
                prop_assert!(std::str::from_utf8(path).is_ok());
                if !path.is_empty() {
                    for component in path.split(|&byte| byte == b'/') {
                        prop_assert!(!matches!(component, b"" | b"." | b".."));
                        prop_assert!(is_reachable(component));
                    }
                }
            }
        }

        #[test]
        fn the_fast_path_and_the_slow_one_agree(raw in raw_path()) {
            let mut fast = Vec::new();
            let mut slow = Vec::new();
            // A leading empty component sends the path the slow way and means nothing.
            let doubled = [b"/", raw.as_slice()].concat();
            prop_assert_eq!(decode(&raw, false, &mut fast), decode(&doubled, false, &mut slow));
        }

        #[test]
        fn an_encoded_path_decodes_to_itself(
            components in proptest::collection::vec("[^/\\\\.\\p{C}]{1,9}", 1..4),
        ) {
            let path = components.join("/");
            let mut raw = vec![b'/'];
            encode(path.as_bytes(), &mut raw);
            prop_assert_eq!(decoded(&raw), Ok(path.into_bytes()));
        }

        #[test]
        fn a_location_is_always_local(path: Vec<u8>, query: Option<Vec<u8>>) {
            let location = redirect_location(&path, query.as_deref());
            prop_assert_eq!(location.first(), Some(&b'/'));
            prop_assert!(!matches!(location.get(1), Some(b'/' | b'\\')));
            prop_assert!(location.iter().all(u8::is_ascii_graphic));
        }
    }
}
