//! Comparison of bytes: on a mismatch, reports the first difference instead of the whole contents.

use std::fmt::Display;

/// Number of bytes shown on each side, from the first difference on.
const SHOWN: usize = 60;

/// Asserts that `got` equals `wanted`. `about` describes the bytes.
///
/// # Panics
/// When they differ: with their lengths, and the bytes of both at the first difference.
#[track_caller]
pub fn assert_same(got: impl AsRef<[u8]>, wanted: impl AsRef<[u8]>, about: impl Display) {
    if let Some(difference) = difference(got.as_ref(), wanted.as_ref()) {
        panic!("{about}: {difference}");
    }
}

fn difference(got: &[u8], wanted: &[u8]) -> Option<String> {
    if got == wanted {
        return None;
    }
    let at = got.iter().zip(wanted).take_while(|(got, wanted)| got == wanted).count();
    let [there, meant] = [got, wanted].map(|bytes| shown(&bytes[at..]));
    let (len, wanted_len) = (got.len(), wanted.len());
    Some(format!("{len} bytes and not {wanted_len}; from byte {at} on {there} and not {meant}"))
}

fn shown(bytes: &[u8]) -> String {
    match bytes.len() {
        0 => "the end".to_owned(),
        len => {
            let dots = if len > SHOWN { "…" } else { "" };
            format!("\"{}\"{dots}", bytes[..len.min(SHOWN)].escape_ascii())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_have_no_difference() {
        assert_eq!(difference(b"", b""), None);
        assert_eq!(difference(b"same", b"same"), None);
    }

    #[test]
    fn a_difference_is_told_with_its_place_and_not_with_all_bytes() {
        let told = |got: &[u8], wanted: &[u8]| difference(got, wanted).unwrap();
        let text = "3 bytes and not 4; from byte 2 on \"X\" and not \"c\\n\"";
        assert_eq!(told(b"abX", b"abc\n"), text);
        let text = "2 bytes and not 3; from byte 2 on the end and not \"\\xff\"";
        assert_eq!(told(b"ab", b"ab\xff"), text);
        let long = told(&[b'x'; 50_000], &[b'x'; 1]);
        assert!(long.len() < 200 && long.contains('…'), "{long}");
    }

    #[test]
    #[should_panic(expected = "a page: 1 bytes and not 0")]
    fn a_difference_panics() {
        assert_same("x", "", "a page");
    }
}
