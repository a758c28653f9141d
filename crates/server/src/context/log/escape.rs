//! Escaping of what a client sent, here and nowhere else: no byte of it ends its field or its line,
//! or is interpreted by a terminal.

use std::io::Write;

/// Number of bytes that are looked at together.
const RUN: usize = 32;

/// Appends bytes of a client to a line of ASCII. Quotes, backslashes, controls and bytes that are
/// no ASCII are escaped; so are spaces and brackets, unless the value stands in quotes: a reader
/// finds the fields before the first quote by them.
pub(super) fn ascii(out: &mut Vec<u8>, bytes: &[u8], is_quoted: bool) {
    for run in bytes.chunks(RUN) {
        if is_quoted && is_plain(run) {
            out.extend_from_slice(run);
        } else {
            run.iter().for_each(|&byte| escape(out, byte, is_quoted));
        }
    }
}

/// Returns whether no byte needs escaping in quotes. It has no branches, so that the compiler looks
/// at many bytes at a time.
fn is_plain(run: &[u8]) -> bool {
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) & (byte != b'"') & (byte != b'\\');
    run.iter().fold(true, |all, &byte| all & plain(byte))
}

fn escape(out: &mut Vec<u8>, byte: u8, is_quoted: bool) {
    match byte {
        b'"' | b'\\' if is_quoted => out.extend_from_slice(&[b'\\', byte]),
        b' ' if is_quoted => out.push(byte),
        b'[' | b']' if !is_quoted => drop(write!(out, "\\x{byte:02x}")),
        b'!' | b'#'..=b'[' | b']'..=b'~' => out.push(byte),
        // Writing into a Vec cannot fail.
        _ => drop(write!(out, "\\x{byte:02x}")),
    }
}

/// Appends a JSON text, escaping the characters that JSON allows in a string but that a terminal or
/// a reader of lines may interpret. There are none outside strings.
pub(super) fn json(out: &mut Vec<u8>, text: &str) {
    for character in text.chars() {
        if is_control_or_direction(character) {
            let _ = write!(out, "\\u{:04x}", u32::from(character));
        } else {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

/// Returns whether a terminal or a reader of lines may interpret a character: DEL, the C1 controls,
/// the line and paragraph separators, and characters that change the direction of the text around
/// them (Unicode Standard Annex 9).
pub(super) fn is_control_or_direction(character: char) -> bool {
    let separates_or_reverses = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    separates_or_reverses || character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_escaped_wherever_in_a_run_it_stands() {
        for (before, after) in [(0, 0), (31, 0), (31, 1), (32, 40), (70, 70)] {
            let (before, after) = ("a ".repeat(before), "b ".repeat(after));
            let mut out = Vec::new();
            ascii(&mut out, format!("{before}\n\"{after}").as_bytes(), true);
            assert_eq!(out, format!("{before}\\x0a\\\"{after}").as_bytes());
        }
    }

    #[test]
    fn no_byte_ends_its_field() {
        let all: Vec<u8> = (0..=255).collect();
        for is_quoted in [false, true] {
            let mut out = Vec::new();
            ascii(&mut out, &all, is_quoted);
            assert!(out.iter().all(|byte| (b' '..=b'~').contains(byte)));
            assert_eq!(out.contains(&b' '), is_quoted);
            assert!(is_quoted || !out.contains(&b'"'));
        }
        let mut out = Vec::new();
        ascii(&mut out, b"a \"\\\n", true);
        assert_eq!(out, br#"a \"\\\x0a"#);
        out.clear();
        ascii(&mut out, b"a \"\\\n", false);
        assert_eq!(out, br"a\x20\x22\x5c\x0a");
    }
}
