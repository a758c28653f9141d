//! Chunk extensions: the bytes between a chunk's size and its CRLF (RFC 9112 section 7.1.1).
//!
//! `chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`. Extensions are
//! checked and skipped; their names and values are not kept. The caller limits their length.

use crate::grammar::{is_tchar, is_value_byte};

/// The part of an extension that the last byte belonged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    /// White space after the size or after a value: only `;` may follow.
    Space,
    /// The `;`, and white space after it.
    Semicolon,
    /// A name.
    Name,
    /// White space after a name.
    AfterName,
    /// The `=`, and white space after it.
    Equals,
    /// A value that is a token.
    Token,
    /// A value that is a quoted string, from its first quote on.
    Quoted,
    /// The backslash of a quoted pair.
    Backslash,
    /// The quote that ends a value.
    EndQuote,
}

impl Extension {
    /// Returns the part that starts with `byte`, the first one after a chunk's size.
    pub(crate) fn begin(byte: u8) -> Option<Self> {
        Self::Space.step(byte)
    }

    /// Returns the part that the next byte belongs to; `None` if the byte is invalid there.
    pub(crate) fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Quoted, b'"') => Self::EndQuote,
            (Self::Quoted, b'\\') => Self::Backslash,
            (Self::Quoted | Self::Backslash, _) if is_value_byte(byte) => Self::Quoted,
            (Self::Semicolon | Self::Name, _) if is_tchar(byte) => Self::Name,
            (Self::Equals | Self::Token, _) if is_tchar(byte) => Self::Token,
            (Self::Equals, b'"') => Self::Quoted,
            (Self::Name | Self::AfterName, b'=') => Self::Equals,
            (Self::Semicolon | Self::Equals, b' ' | b'\t') => self,
            (Self::Name | Self::AfterName, b' ' | b'\t') => Self::AfterName,
            (Self::Space | Self::Token | Self::EndQuote, b' ' | b'\t') => Self::Space,
            (Self::Space | Self::Name | Self::AfterName, b';') => Self::Semicolon,
            (Self::Token | Self::EndQuote, b';') => Self::Semicolon,
            _ => return None,
        })
    }

    /// Returns whether the line may end here.
    pub(crate) fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::EndQuote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_valid(text: &[u8]) -> bool {
        let Some((first, rest)) = text.split_first() else { return false };
        let last = rest
            .iter()
            .try_fold(Extension::begin(*first), |part, &byte| part.map(|part| part.step(byte)));
        last.flatten().is_some_and(Extension::may_end)
    }

    #[test]
    fn names_stand_alone_or_with_a_token_or_a_quoted_string() {
        for good in [
            ";a",
            ";a;b",
            " \t; \ta",
            ";a=b",
            ";a \t=\t b ;c",
            ";a=\"\"",
            ";a=\"b;c=d, \t!\" ;e",
            ";a=\"\\\"\\\\\\\t\"",
            ";a=\"\u{e9}\"",
        ] {
            assert!(is_valid(good.as_bytes()), "{good:?}");
        }
    }

    #[test]
    fn whatever_lacks_a_name_or_a_value_is_out_of_grammar() {
        for bad in [
            ";",
            ";;",
            ";a;",
            ";=b",
            ";a=",
            ";a=;b",
            "; ",
            " ",
            "a",
            "=a",
            ";a b",
            ";a ",
            ";a=b ",
            ";a=b c",
            ";a=\"b",
            ";a=\"b\\\"",
            ";a=\"b\"c",
            ";a\"b\"",
            ";a=b=c",
            ";a,b",
            ";\u{e9}",
            ";a=\u{e9}",
            ";a=\"\n\"",
            ";a=\"\0\"",
            ";a=\"\\\r\"",
            ";a=\"\x7f\"",
        ] {
            assert!(!is_valid(bad.as_bytes()), "{bad:?}");
        }
    }
}
