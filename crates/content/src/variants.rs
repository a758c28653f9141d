//! Precompressed variants: the rules for which files may replace another, and their selection by
//! `Accept-Encoding` (RFC 9110 section 12.5.3).
//!
//! Pure: decides from file statuses, field lines and the available codings.

use weir_sys::file::{Kind, Status};

/// A content coding in which a file may be stored beside the plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Brotli, RFC 7932: `.br`.
    Brotli,
    /// Zstandard, RFC 8878: `.zst`.
    Zstd,
    /// Gzip, RFC 1952: `.gz`.
    Gzip,
}

impl Coding {
    /// Every coding, in order of the server's preference, which applies where a client's weights
    /// are equal.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// Returns the suffix that a variant's file name adds to that of the plain file.
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// Returns the coding's name in `Accept-Encoding` and `Content-Encoding`.
    pub fn token(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    fn is_named(self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.token().as_bytes())
            || (self == Coding::Gzip && name.eq_ignore_ascii_case(b"x-gzip"))
    }
}

/// Returns whether a variant may be sent in place of the plain file: everyone who can write it can
/// write the plain file too, it is not older, and it is smaller.
///
/// Both are named in one directory, so a file that appears beside another must not replace it by
/// its name alone. Times are compared in nanoseconds: within the same second the plain file may
/// have changed after the variant was created.
pub(crate) fn stands_for(variant: &Status, plain: &Status) -> bool {
    variant.kind == Kind::File
        && (1..plain.len).contains(&variant.len)
        && variant.mtime_ns >= plain.mtime_ns
        && is_owned_by_same(variant, plain)
        && is_written_by_same(variant, plain)
}

/// Returns whether a file or link beside a plain file belongs to the plain file's owner or to root.
pub(crate) fn is_owned_by_same(beside: &Status, plain: &Status) -> bool {
    beside.uid == plain.uid || beside.uid == ROOT
}

/// Returns whether the variant is writable only by its owner and by users who may also write the
/// plain file.
fn is_written_by_same(variant: &Status, plain: &Status) -> bool {
    let opened = variant.mode & !plain.mode;
    let other_group = variant.mode & GROUP_WRITES != 0 && variant.gid != plain.gid;
    opened & (GROUP_WRITES | OTHERS_WRITE) == 0 && !other_group
}

const ROOT: u32 = 0;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// Selects the coding that a client prefers among those available. `lines` has one slice per field
/// line.
///
/// Returns `None` for the plain file: if there is no field, if it is malformed, if the client
/// prefers no coding to the plain file, and if the client accepts nothing at all, in which case a
/// server may disregard the field.
pub fn negotiate(lines: &[&[u8]], available: impl Fn(Coding) -> bool) -> Option<Coding> {
    let weights = Weights::parse(lines)?;
    let plain = weights.identity.or(weights.others).unwrap_or(0);
    let mut best = None;
    let mut best_weight = 0;
    for (coding, named) in Coding::ALL.into_iter().zip(weights.codings) {
        let weight = named.or(weights.others).unwrap_or(0);
        if weight > best_weight && weight >= plain && available(coding) {
            best = Some(coding);
            best_weight = weight;
        }
    }
    best
}

/// The weights a client gave, in thousandths; `None` for a coding that it did not name.
#[derive(Default)]
struct Weights {
    codings: [Option<u16>; Coding::ALL.len()],
    identity: Option<u16>,
    others: Option<u16>,
}

impl Weights {
    /// Parses all lines; returns `None` if any is malformed.
    fn parse(lines: &[&[u8]]) -> Option<Weights> {
        let mut weights = Weights::default();
        for line in lines {
            for element in line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                if !element.is_empty() {
                    weights.add(element)?;
                }
            }
        }
        Some(weights)
    }

    fn add(&mut self, element: &[u8]) -> Option<()> {
        let mut parts = element.splitn(2, |&byte| byte == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().filter(|name| is_token(name))?;
        let weight = match parts.next() {
            Some(parameter) => parse_weight(parameter)?,
            None => WEIGHT_MAX,
        };
        if name == b"*" {
            self.others = Some(weight);
        } else if name.eq_ignore_ascii_case(b"identity") {
            self.identity = Some(weight);
        }
        for (coding, slot) in Coding::ALL.into_iter().zip(&mut self.codings) {
            if coding.is_named(name) {
                *slot = Some(weight);
            }
        }
        Some(())
    }
}

/// Returns whether the bytes are a token (RFC 9110 section 5.6.2).
fn is_token(name: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_tchar)
}

/// Parses `q=0.5` as thousandths (RFC 9110 section 12.4.2): at most three decimals, at most 1.
fn parse_weight(parameter: &[u8]) -> Option<u16> {
    let value = match parameter {
        [b'q' | b'Q', b'=', value @ ..] => value,
        _ => return None,
    };
    let (whole, decimals) = match value {
        [whole] => (whole, [].as_slice()),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = digit(whole)?;
    for index in 0..3 {
        weight = weight * 10 + decimals.get(index).map_or(Some(0), digit)?;
    }
    (weight <= WEIGHT_MAX).then_some(weight)
}

fn digit(byte: &u8) -> Option<u16> {
    byte.is_ascii_digit().then(|| u16::from(byte - b'0'))
}

const WEIGHT_MAX: u16 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::FILE;
    use proptest::prelude::*;

    const PLAIN: Status = Status { len: 100, uid: 1000, gid: 100, mtime_ns: 5_000_000_007, ..FILE };
    const VARIANT: Status = Status { ino: 3, len: 50, ..PLAIN };

    #[test]
    fn a_variant_is_a_smaller_file_that_is_not_older_by_a_nanosecond() {
        assert!(stands_for(&VARIANT, &PLAIN));
        assert!(stands_for(&Status { mtime_ns: 5_000_000_008, ..VARIANT }, &PLAIN));
        for other in [
            Status { mtime_ns: 5_000_000_006, ..VARIANT },
            Status { len: 100, ..VARIANT },
            Status { len: 0, ..VARIANT },
            Status { kind: Kind::Directory, ..VARIANT },
        ] {
            assert!(!stands_for(&other, &PLAIN), "{other:?}");
        }
    }

    #[test]
    fn a_variant_is_its_files_owners_or_roots() {
        assert!(stands_for(&Status { uid: 0, ..VARIANT }, &PLAIN));
        assert!(!stands_for(&Status { uid: 1001, ..VARIANT }, &PLAIN));
        assert!(!stands_for(&VARIANT, &Status { uid: 0, ..PLAIN }));
    }

    #[test]
    fn who_may_write_a_variant_may_write_its_file() {
        let modes = |variant, plain| {
            let variant = Status { mode: variant, ..VARIANT };
            stands_for(&variant, &Status { mode: plain, ..PLAIN })
        };
        assert!(modes(0o600, 0o644) && modes(0o664, 0o664) && modes(0o666, 0o666));
        assert!(modes(0o644, 0o666) && modes(0o755, 0o444));
        assert!(!modes(0o664, 0o644) && !modes(0o646, 0o644) && !modes(0o666, 0o664));
        assert!(!modes(0o664, 0o646));
        // A group's right to write is worth what the group is.
        let shared = Status { mode: 0o664, ..VARIANT };
        let plain = Status { mode: 0o664, ..PLAIN };
        assert!(!stands_for(&Status { gid: 101, ..shared }, &plain));
        assert!(stands_for(&Status { gid: 101, ..VARIANT }, &plain));
    }

    fn from_all(line: &str) -> Option<Coding> {
        negotiate(&[line.as_bytes()], |_| true)
    }

    #[test]
    fn the_greatest_weight_wins_and_ties_go_in_our_order() {
        assert_eq!(from_all("gzip, deflate, br, zstd"), Some(Coding::Brotli));
        assert_eq!(from_all("gzip, zstd"), Some(Coding::Zstd));
        assert_eq!(from_all("br;q=0.5, gzip;q=0.501"), Some(Coding::Gzip));
        assert_eq!(from_all("GZIP ; Q=1.000"), Some(Coding::Gzip));
        assert_eq!(from_all("x-gzip"), Some(Coding::Gzip));
        assert_eq!(from_all("*"), Some(Coding::Brotli));
        assert_eq!(from_all("br;q=0, *;q=0.1"), Some(Coding::Zstd));
        assert_eq!(from_all("gzip;q=0.001"), Some(Coding::Gzip));
        assert_eq!(from_all("br;q=0.2, identity;q=0.1"), Some(Coding::Brotli));
        assert_eq!(from_all("identity;q=0, gzip"), Some(Coding::Gzip));
    }

    #[test]
    fn the_plain_file_is_sent_when_nothing_else_is_liked_better() {
        let lines =
            ["", "identity", "deflate", "gzip;q=0", "*;q=0", "identity;q=0, *;q=0", "br;q=0.5, *"];
        for line in lines {
            assert_eq!(negotiate(&[line.as_bytes()], |c| c == Coding::Brotli), None, "{line}");
        }
        assert_eq!(from_all("gzip;q=0.5, identity;q=0.6"), None);
        assert_eq!(negotiate(&[], |_| true), None);
        assert_eq!(negotiate(&[b"br"], |_| false), None);
    }

    #[test]
    fn several_lines_are_one_list() {
        assert_eq!(negotiate(&[b"gzip", b"br;q=0.9"], |_| true), Some(Coding::Gzip));
        assert_eq!(negotiate(&[b"br;q=0", b"*"], |c| c == Coding::Brotli), None);
    }

    #[test]
    fn a_malformed_field_means_the_plain_file() {
        let lines = [
            "br;q=1.001",
            "br;q=2",
            "br;q=0.1234",
            "br;q=",
            "br;q=-1",
            "br;q=.5",
            "br;q=0,5;q=1",
            "br;level=5",
            "br;",
            "b r",
            "br, \u{e9}",
            "br, gzip;q=x",
        ];
        for line in lines {
            assert_eq!(from_all(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn a_selected_variant_is_available(lines: Vec<Vec<u8>>, line in "[a-z*;=0-9., ]{0,40}") {
            let mut lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
            lines.push(line.as_bytes());
            let picked = negotiate(&lines, |coding| coding == Coding::Gzip);
            prop_assert!(matches!(picked, None | Some(Coding::Gzip)));
        }
    }
}
