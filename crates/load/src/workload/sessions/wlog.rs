//! `--wlog B,F`: a list of URIs, requested in order.
//!
//! httperf separates URIs by NUL bytes. Line ends are accepted as well, so that a list can be
//! written with an editor. Empty URIs are skipped.

use std::path::PathBuf;
use std::str::FromStr;

use super::usage;
use crate::session::RequestTemplate;
use crate::workload::at_line;
use crate::workload::built::BuiltWorkload;
use crate::workload::simple::{SessionShape, TargetOrder, Targets};
use crate::workload::target::parse_target;

/// The list of URIs in the file F, played once or repeatedly (httperf(1)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wlog {
    /// True to repeat the list; otherwise the run ends with it.
    pub repeat: bool,
    /// Path of the file.
    pub file: PathBuf,
}

impl Wlog {
    /// Builds the workload of a list, named `name` in errors.
    ///
    /// # Errors
    /// A URI that cannot be a request target, with its line (in a list with NULs, its position); a
    /// list without URIs.
    pub fn build(
        &self,
        name: &str,
        text: &[u8],
        template: &RequestTemplate,
        shape: SessionShape,
    ) -> Result<BuiltWorkload, String> {
        let order = if self.repeat { TargetOrder::RoundRobin } else { TargetOrder::Once };
        let targets = Targets { order, ..Targets::get(list(name, text)?) };
        Ok(targets.build(template, shape))
    }
}

fn list(name: &str, text: &[u8]) -> Result<Vec<String>, String> {
    let mut list = Vec::new();
    for (index, uri) in text.split(|&byte| byte == b'\0' || byte == b'\n').enumerate() {
        let uri = uri.trim_ascii();
        if !uri.is_empty() {
            let wrong = || format!("{} is no request target", uri.escape_ascii());
            list.push(parse_target(uri).ok_or_else(|| at_line(name, index + 1, wrong()))?);
        }
    }
    if list.is_empty() {
        return Err(format!("{name}: there is no URI in it"));
    }
    Ok(list)
}

impl FromStr for Wlog {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (repeat, file) = text.split_once(',')?;
            let repeat = match repeat {
                "y" | "Y" => true,
                "n" | "N" => false,
                _ => return None,
            };
            (!file.is_empty()).then(|| Self { repeat, file: file.into() })
        };
        parse().ok_or_else(|| usage(text, "y,FILE or n,FILE: whether to begin again, a file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fixtures::{filled, targets};

    fn play(text: &[u8], repeat: bool) -> Result<Vec<String>, String> {
        let wlog = Wlog { repeat, file: PathBuf::new() };
        let BuiltWorkload { workload, requests } =
            wlog.build("list", text, &RequestTemplate::default(), SessionShape::default())?;
        let sessions = filled(&*workload, 0..5);
        Ok(sessions.iter().flat_map(|session| targets(&requests, session)).collect())
    }

    #[test]
    fn uris_are_separated_by_nuls_or_line_ends() {
        for text in [&b"/a\0/b\0/a\0"[..], b"/a\n/b\n/a", b"\r\n/a\r\n\r\n/b\r\n/a\n\0"] {
            assert_eq!(play(text, false).unwrap(), ["/a", "/b", "/a"]);
            assert_eq!(play(text, true).unwrap(), ["/a", "/b", "/a", "/a", "/b"]);
        }
    }

    #[test]
    fn an_invalid_uri_is_named() {
        for (text, expected) in [
            (&b"/a\n/b c"[..], "list:2: /b c is no"),
            (b"/a\0\0b\0", "list:3: b is no"),
            (b"\n", "list: there is no URI in it"),
        ] {
            let error = play(text, true).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn the_option_says_whether_to_begin_again() {
        assert_eq!("y,f".parse(), Ok(Wlog { repeat: true, file: "f".into() }));
        assert_eq!("n,a,b".parse(), Ok(Wlog { repeat: false, file: "a,b".into() }));
        for text in ["", "y", "y,", "x,f", ",f"] {
            assert!(text.parse::<Wlog>().is_err(), "{text}");
        }
    }
}
