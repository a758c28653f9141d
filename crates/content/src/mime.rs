//! The `Content-Type` of a file, by the extension of its name.
//!
//! The operator's overrides come first, then corrections where the `mime_guess` table is older than
//! the registry, then that table; the charset is added last. The content of files is not examined.

use std::collections::HashMap;
use std::io;

/// Content types by extension.
#[derive(Clone, Debug)]
pub struct MimeTypes {
    overrides: HashMap<String, String>,
    charset: String,
}

impl MimeTypes {
    /// Creates a table with the `charset` that is added to text types; an empty one adds none.
    ///
    /// # Errors
    /// `InvalidInput` for a charset that is not valid in a header field.
    pub fn new(charset: &str) -> io::Result<Self> {
        Ok(Self { overrides: HashMap::new(), charset: checked(charset)? })
    }

    /// Returns it with the operator's `overrides` (extension without dot, type).
    ///
    /// # Errors
    /// `InvalidInput` for a type that is not valid in a header field.
    pub fn with(mut self, overrides: &[(String, String)]) -> io::Result<Self> {
        for (extension, content_type) in overrides {
            let extension = extension.trim_start_matches('.').to_ascii_lowercase();
            self.overrides.insert(extension, checked(content_type)?);
        }
        Ok(self)
    }

    /// Returns the value of `Content-Type` for a file of this name or path.
    pub fn content_type(&self, path: &[u8]) -> String {
        let extension = extension(path).unwrap_or_default();
        let content_type = match self.overrides.get(&extension) {
            Some(content_type) => content_type,
            None => known(&extension),
        };
        if self.charset.is_empty() || !wants_charset(content_type) {
            return content_type.to_owned();
        }
        format!("{content_type}; charset={}", self.charset)
    }
}

fn checked(value: &str) -> io::Result<String> {
    if value.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        return Ok(value.to_owned());
    }
    let message = format!("{value:?} cannot stand in a Content-Type");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Returns the extension in lower case: the part after the last dot of the last component, unless
/// that dot is the first byte of the name.
fn extension(path: &[u8]) -> Option<String> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    let dot = memchr::memrchr(b'.', name).filter(|&dot| dot > 0)?;
    Some(std::str::from_utf8(name.get(dot + 1..)?).ok()?.to_ascii_lowercase())
}

/// Returns the type of an extension in lower case. The table of `mime_guess` is corrected first:
/// RFC 9239 for scripts, RFC 7763 for markdown, RFC 9512 for YAML, RFC 8081 for fonts, RFC 8878 for
/// Zstandard, RFC 8216 and ISO 13818 for live streams, the IANA registry for the rest.
fn known(extension: &str) -> &'static str {
    match extension {
        "js" | "mjs" | "cjs" => "text/javascript",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "wasm" => "application/wasm",
        "md" | "markdown" => "text/markdown",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "jxl" => "image/jxl",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "otf" => "font/otf",
        "opus" => "audio/ogg",
        "ts" => "video/mp2t",
        "m3u8" => "application/vnd.apple.mpegurl",
        "zst" => "application/zstd",
        _ => mime_guess::from_ext(extension).first_raw().unwrap_or("application/octet-stream"),
    }
}

/// Returns whether content of a type is likely to become smaller by compression: text, whatever is
/// written in a text format, and binary formats that are not compressed themselves.
pub(crate) fn is_compressible(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || ["+json", "+xml", "+yaml"].iter().any(|suffix| essence.ends_with(suffix))
        || COMPRESSIBLE.contains(&&*essence)
}

/// Types, besides texts and those of a text format, that compression makes smaller.
const COMPRESSIBLE: &[&str] = &[
    "application/javascript",
    "application/json",
    "application/json5",
    "application/x-ndjson",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
    "application/toml",
    "application/wasm",
    "application/rtf",
    "application/sql",
    "application/x-sh",
    "application/x-httpd-php",
    "application/x-tex",
    "application/postscript",
    "application/vnd.apple.mpegurl",
    "application/vnd.ms-fontobject",
    "font/otf",
    "font/ttf",
    "font/collection",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
    "model/obj",
    "model/stl",
];

/// Returns whether a type is text whose charset a reader would otherwise have to guess. JSON is
/// excluded: it is always UTF-8 (RFC 8259 section 8.1).
fn wants_charset(content_type: &str) -> bool {
    let lower = content_type.to_ascii_lowercase();
    let textual = lower.starts_with("text/")
        || lower.ends_with("+xml")
        || matches!(lower.as_str(), "application/javascript" | "application/xml");
    textual && !lower.contains(';')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content_type(path: &str) -> String {
        MimeTypes::new("utf-8").unwrap().content_type(path.as_bytes())
    }

    #[test]
    fn common_files_have_their_registered_types() {
        let cases = [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.CSS", "text/css; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("data.json", "application/json"),
            ("logo.svg", "image/svg+xml; charset=utf-8"),
            ("x.wasm", "application/wasm"),
            ("x.webp", "image/webp"),
            ("x.avif", "image/avif"),
            ("x.woff2", "font/woff2"),
            ("x.png", "image/png"),
            ("a.tar.gz", "application/gzip"),
            ("site.webmanifest", "application/manifest+json"),
            ("LICENSE", "application/octet-stream"),
            (".html", "application/octet-stream"),
            ("dir.d/name", "application/octet-stream"),
            ("x.\u{fffd}", "application/octet-stream"),
        ];
        for (path, expected) in cases {
            assert_eq!(content_type(path), expected, "{path}");
        }
    }

    #[test]
    fn the_operator_has_the_last_word() {
        let overrides = [
            (".FOO".to_owned(), "text/foo".to_owned()),
            ("html".to_owned(), "text/html;charset=latin1".to_owned()),
        ];
        let types = MimeTypes::new("utf-8").unwrap().with(&overrides).unwrap();
        assert_eq!(types.content_type(b"x.foo"), "text/foo; charset=utf-8");
        assert_eq!(types.content_type(b"x.html"), "text/html;charset=latin1");
        let bare = MimeTypes::new("").unwrap().with(&overrides).unwrap();
        assert_eq!(bare.content_type(b"x.foo"), "text/foo");
    }

    #[test]
    fn texts_and_text_formats_are_compressible_and_what_is_compressed_is_not() {
        for path in ["a.html", "a.css", "a.js", "a.json", "a.svg", "a.wasm", "a.txt", "a.md"] {
            assert!(is_compressible(&content_type(path)), "{path}");
        }
        for path in ["a.rss", "a.webmanifest", "a.ttf", "a.bmp", "a.ico", "a.yaml", "a.m3u8"] {
            assert!(is_compressible(&content_type(path)), "{path}");
        }
        for path in ["a.png", "a.jpg", "a.woff2", "a.zip", "a.gz", "a.mp4", "a.pdf", "a"] {
            assert!(!is_compressible(&content_type(path)), "{path}");
        }
        assert!(is_compressible("Application/LD+JSON ; a=b") && !is_compressible(""));
    }

    #[test]
    fn a_type_cannot_smuggle_a_field() {
        let overrides = [("x".to_owned(), "a/b\r\nSet-Cookie: c".to_owned())];
        assert!(MimeTypes::new("utf-8").unwrap().with(&overrides).is_err());
        assert!(MimeTypes::new("utf-8\n").is_err());
    }
}
