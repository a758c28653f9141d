//! Which precompressed variant a client gets: `Accept-Encoding` (RFC 9110 section 12.5.3).
//!
//! Pure: field lines and the codings at hand in, one of them or none out.

/// A content coding that a file may be stored in next to its plain self.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Brotli, RFC 7932: `.br`.
    Brotli,
    /// Zstandard, RFC 8878: `.zst`.
    Zstd,
    /// Gzip, RFC 1952: `.gz`.
    Gzip,
}

impl Coding {
    /// Every coding, the one sent first when a client likes them equally.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// What a variant's file name ends in, after the name of the plain file.
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// The coding's name in `Accept-Encoding` and `Content-Encoding`.
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

/// Picks the coding a client likes best among those available, one slice for each field line.
///
/// `None` is the plain file: when there is no field, when it is malformed, when the client likes
/// nothing else better, and when it likes nothing at all, for a server may then disregard the
/// field.
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

/// The weights a client gave, in thousandths; `None` for what it did not name.
#[derive(Default)]
struct Weights {
    codings: [Option<u16>; Coding::ALL.len()],
    identity: Option<u16>,
    others: Option<u16>,
}

impl Weights {
    /// `None` if any line is malformed.
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

/// Whether the bytes are a token (RFC 9110 section 5.6.2).
fn is_token(name: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_tchar)
}

/// Reads `q=0.5` as thousandths (RFC 9110 section 12.4.2): at most three decimals, at most 1.
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
    use proptest::prelude::*;

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
        fn what_is_picked_is_available(lines: Vec<Vec<u8>>, line in "[a-z*;=0-9., ]{0,40}") {
            let mut lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
            lines.push(line.as_bytes());
            let picked = negotiate(&lines, |coding| coding == Coding::Gzip);
            prop_assert!(matches!(picked, None | Some(Coding::Gzip)));
        }
    }
}
