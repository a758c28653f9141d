//! Endpoints for measurements: requests that cost the loop a chosen amount of processor time, or
//! that take it a chosen time, so that a server with expensive requests can be loaded without an
//! application.
//!
//! The cost is parsed from the bytes of the path, and the time is spent; that is all. Nothing here
//! runs unless `--bench-endpoints` is on.

mod burn;
mod chance;
mod service;

use burn::microseconds;

pub(crate) use burn::{burn, calibrate};
pub(crate) use chance::number_worker;
pub(crate) use service::Service;

const BURN: &[u8] = b"/.weir/burn";

const WORK: &[u8] = b"/.weir/work/";

/// In no release: for tests of the sandbox.
#[cfg(debug_assertions)]
const TRY: &[u8] = b"/.weir/try/";

/// A request to the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchTarget<'b> {
    /// Not an endpoint: the path is for the content.
    Nothing,
    /// `/.weir/burn?us=N`: burn, and report it.
    Burn { burn_us: u32 },
    /// `/.weir/burn/N/PATH`: burn, then serve the path, which begins with its slash.
    Before { burn_us: u32, prefix: &'b [u8], path: &'b [u8] },
    /// `/.weir/work/MEAN_US/LAW/BURN_US/PATH`, with LAW or LAW:SEED: wait and burn, serve the path,
    /// and close.
    Work { service: Service, prefix: &'b [u8], path: &'b [u8] },
    /// `/.weir/try/NAME/PATH`: try what an intruder would, and report how it went.
    #[cfg(debug_assertions)]
    Try { name: &'b [u8], path: &'b [u8] },
    /// The path of an endpoint with an invalid time: 400.
    Malformed,
}

/// Parses the path and the query of a target. Both are raw: the endpoints are recognised by their
/// bytes, and the path after a prefix is decoded once, when it is served.
pub(crate) fn parse_target<'b>(path: &'b [u8], query: Option<&[u8]>) -> BenchTarget<'b> {
    if let Some(rest) = path.strip_prefix(WORK) {
        return work_at(path, rest).unwrap_or(BenchTarget::Malformed);
    }
    #[cfg(debug_assertions)]
    if let Some(rest) = path.strip_prefix(TRY) {
        let name = rest.split(|&byte| byte == b'/').next().unwrap_or_default();
        return BenchTarget::Try { name, path: &rest[name.len()..] };
    }
    let Some(rest) = path.strip_prefix(BURN) else { return BenchTarget::Nothing };
    match rest.split_first() {
        None => query
            .and_then(|query| query.strip_prefix(b"us="))
            .and_then(microseconds)
            .map_or(BenchTarget::Malformed, |burn_us| BenchTarget::Burn { burn_us }),
        Some((b'/', rest)) => before(path, rest).unwrap_or(BenchTarget::Malformed),
        // Only a longer name.
        Some(_) => BenchTarget::Nothing,
    }
}

/// Returns the path that is served once an endpoint has spent its time; `None` if `path` is that of
/// no endpoint, or of one that serves none.
pub(crate) fn path_left(path: &[u8]) -> Option<&[u8]> {
    match parse_target(path, None) {
        BenchTarget::Before { path, .. } | BenchTarget::Work { path, .. } => Some(path),
        _ => None,
    }
}

/// Parses the prefix form: `rest` is what follows `/.weir/burn/` in `path`.
fn before<'b>(path: &'b [u8], rest: &[u8]) -> Option<BenchTarget<'b>> {
    let digits = rest.iter().position(|&byte| byte == b'/')?;
    let burn_us = microseconds(rest.get(..digits)?)?;
    let (prefix, path) = path.split_at_checked(path.len() - rest.len() + digits)?;
    Some(BenchTarget::Before { burn_us, prefix, path })
}

/// Parses a service time: `rest` is what follows `/.weir/work/` in `path`.
fn work_at<'b>(path: &'b [u8], rest: &'b [u8]) -> Option<BenchTarget<'b>> {
    let mut parts = rest.splitn(4, |&byte| byte == b'/');
    let (mean_us, law, burn_us) = (parts.next()?, parts.next()?, parts.next()?);
    let service = Service::parse(mean_us, law, burn_us)?;
    let (prefix, path) = path.split_at_checked(path.len() - parts.next()?.len() - 1)?;
    Some(BenchTarget::Work { service, prefix, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(target: &str) -> BenchTarget<'_> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (target, None),
        };
        parse_target(path.as_bytes(), query)
    }

    #[test]
    fn a_burn_has_a_path_and_a_number_of_microseconds() {
        assert_eq!(split("/.weir/burn?us=0"), BenchTarget::Burn { burn_us: 0 });
        assert_eq!(split("/.weir/burn?us=0070"), BenchTarget::Burn { burn_us: 70 });
        assert_eq!(split("/.weir/burn?us=1000000"), BenchTarget::Burn { burn_us: 1_000_000 });
    }

    #[test]
    fn the_path_after_a_prefix_is_unchanged() {
        for path in ["/", "/a", "//a/", "/../a", "/%2e%2e/a%", "/.weir/burn/1/a"] {
            let target = format!("/.weir/burn/25{path}");
            let expected = BenchTarget::Before {
                burn_us: 25,
                prefix: b"/.weir/burn/25",
                path: path.as_bytes(),
            };
            assert_eq!(parse_target(target.as_bytes(), None), expected);
            assert_eq!(parse_target(target.as_bytes(), Some(b"us=x")), expected);
        }
    }

    #[test]
    fn the_path_after_a_service_time_is_unchanged() {
        for (path, good) in [("/", true), ("/a/b", true), ("//", true), ("", false)] {
            let target = format!("/.weir/work/9/fixed/2{path}");
            let expected = Service::parse(b"9", b"fixed", b"2").filter(|_| good);
            let expected = expected.map_or(BenchTarget::Malformed, |service| BenchTarget::Work {
                service,
                prefix: b"/.weir/work/9/fixed/2",
                path: path.as_bytes(),
            });
            assert_eq!(split(&target), expected);
        }
        assert_eq!(split("/.weir/work/2/fixed/9/a"), BenchTarget::Malformed);
        assert_eq!(split("/.weir/work/9/fixed"), BenchTarget::Malformed);
    }

    #[test]
    fn a_path_is_left_where_one_is_served() {
        for (target, left) in [
            ("/.weir/burn/1/a/b", Some("/a/b")),
            ("/.weir/work/9/fixed/2/a", Some("/a")),
            ("/.weir/burn", None),
            ("/.weir/burn/x/a", None),
            ("/a", None),
        ] {
            assert_eq!(path_left(target.as_bytes()), left.map(str::as_bytes), "{target}");
        }
    }

    #[test]
    fn an_invalid_time_is_malformed() {
        let times = [
            "",
            "+1",
            "-1",
            "1_000",
            "1000001",
            "4294967297",
            "99999999999999999999999",
            "1 ",
            "a",
            "1.5",
            "0x1",
            "%31",
            "1&us=2",
            "1&a=b",
            "1;",
            "1us",
        ];
        for time in times {
            assert_eq!(split(&format!("/.weir/burn?us={time}")), BenchTarget::Malformed, "{time}");
            assert_eq!(split(&format!("/.weir/burn/{time}/a")), BenchTarget::Malformed, "{time}");
        }
        let targets = [
            "/.weir/burn",
            "/.weir/burn?",
            "/.weir/burn?us",
            "/.weir/burn?US=1",
            "/.weir/burn?a=b&us=1",
            "/.weir/burn/",
            "/.weir/burn//",
            "/.weir/burn/1",
            "/.weir/burn/1?us=1",
        ];
        for target in targets {
            assert_eq!(split(target), BenchTarget::Malformed, "{target}");
        }
    }

    #[test]
    fn every_other_path_is_for_the_content() {
        let targets = [
            "/",
            "/.weir",
            "/.weir/",
            "/.weir/burnt",
            "/.weir/burn.html",
            "/.weir/Burn?us=1",
            "/.weir/other?us=1",
            "//.weir/burn?us=1",
            "/a/.weir/burn?us=1",
            "/%2eweir/burn?us=1",
            "/.weir/%62urn/1/a",
        ];
        for target in targets {
            assert_eq!(split(target), BenchTarget::Nothing, "{target}");
        }
    }
}
