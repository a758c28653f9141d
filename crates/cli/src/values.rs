//! Parsers for values on the command line: sizes, durations, lists; and errors in what a value
//! names. Pure.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use weir_server::{
    Address, LogFormat, LogPattern, MEMORY_BYTES_MIN, MemoryLimit, UserName, content,
};

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    #[value(alias = "true", alias = "yes", alias = "1")]
    On,
    #[value(alias = "false", alias = "no", alias = "0")]
    Off,
}

/// Divides `HOST/PATH` or `/PATH` into the host, if there is one, and the path from its slash on;
/// `None` without a path.
pub(crate) fn host_and_path(text: &str) -> Option<(Option<&str>, &str)> {
    let (host, path) = text.split_at(text.find('/')?);
    Some((Some(host).filter(|host| !host.is_empty()), path))
}

/// Parses a size in bytes, with powers of 1024: `65536`, `64k`, `1.5M`, `2G`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let units = [("", 1.0), ("k", 1024.0), ("m", 1_048_576.0), ("g", 1_073_741_824.0)];
    scaled(text, &units)
        .filter(|bytes| *bytes < 9.0e15)
        .map(|bytes| bytes as u64)
        .ok_or_else(|| "a size is a number of bytes, or one with k, M or G".into())
}

/// Converts a number of bytes or of connections; the largest there is, if it is larger.
pub(crate) fn saturated(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Parses a memory budget: a size, `auto` or `none`.
pub(crate) fn memory_limit(text: &str) -> Result<MemoryLimit, String> {
    match text {
        "auto" => Ok(MemoryLimit::Auto),
        "none" => Ok(MemoryLimit::None),
        text => match size(text).map_err(|why| format!("{why}; or auto, or none"))? {
            bytes if bytes < MEMORY_BYTES_MIN => {
                let least = MEMORY_BYTES_MIN >> 20;
                Err(format!("a server needs {least}M for itself; `none` is no budget"))
            }
            bytes => Ok(MemoryLimit::Bytes(bytes)),
        },
    }
}

/// Parses a duration: `50us`, `500ms`, `10s`, `1.5m`, `1h`; a plain number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let units =
        [("ms", 0.001), ("us", 0.000_001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
    scaled(text, &units)
        .filter(|seconds| *seconds < 4.0e8)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a duration is a number of seconds, or one with us, ms, s, m or h".into())
}

/// Parses a duration that is a limit, which must not be zero.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("no client can meet a limit of zero".into()),
        limit => Ok(limit),
    }
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

/// Parses the format of an access log.
pub(crate) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "combined" => Ok(LogFormat::Combined),
        "json" => Ok(LogFormat::Json),
        pattern => LogPattern::parse(pattern).map(|pattern| LogFormat::Pattern(Arc::new(pattern))),
    }
}

/// Parses an address: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `:8080`,
/// `unix:/run/weir.sock`; `https://127.0.0.1:8443` with TLS.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return if path.is_empty() {
            Err("unix: needs a path".into())
        } else {
            Ok(Address::Unix(path.into()))
        };
    }
    let address = match text.strip_prefix("https://") {
        Some(rest) => socket_address(rest.strip_suffix('/').unwrap_or(rest)).map(Address::Tls),
        None => socket_address(text.strip_prefix("http://").unwrap_or(text)).map(Address::Tcp),
    };
    address.ok_or_else(|| "an address is [https://]HOST:PORT, [IPv6]:PORT or unix:PATH".into())
}

fn socket_address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let full = if text.starts_with(':') { format!("0.0.0.0{text}") } else { text.into() };
    full.to_socket_addrs().ok()?.next()
}

/// Parses a list of processors, such as `0,2-3`.
pub(crate) fn cpus(text: &str) -> Result<Vec<usize>, String> {
    let error = || "a list of processors looks like 0,2-3".to_string();
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| error())?;
        let last: usize = last.trim().parse().map_err(|_| error())?;
        if last < first || last > 4095 {
            return Err(error());
        }
        list.extend(first..=last);
    }
    Ok(list)
}

/// Parses a field `Name: value` of a reply.
pub(crate) fn field(text: &str) -> Result<(String, String), String> {
    let ours = [
        "connection",
        "content-length",
        "content-range",
        "content-type",
        "date",
        "etag",
        "last-modified",
        "transfer-encoding",
    ];
    field_but(text, &ours, "weir sets it itself")
}

/// Parses the name of a field that is left out of replies.
pub(crate) fn removed_field(text: &str) -> Result<String, String> {
    field(&format!("{text}: ")).map(|(name, _)| name)
}

/// Parses the name of an index file.
pub(crate) fn index_name(text: &str) -> Result<String, String> {
    let is_name = content::path::is_reachable(text.as_bytes());
    is_name.then(|| text.to_owned()).ok_or_else(|| "it is not the name of a file".into())
}

/// Parses the value of a field.
pub(crate) fn field_value(text: &str) -> Result<String, String> {
    request_field(&format!("X: {text}")).map(|(_, value)| value)
}

/// Parses a word such as the name of a field or a method (RFC 9110 section 5.6.2).
pub(crate) fn token(text: &str) -> Result<String, String> {
    is_token(text).then(|| text.to_owned()).ok_or_else(|| "it is not a single word".into())
}

/// Parses a field `Name: value` of a request.
pub(crate) fn request_field(text: &str) -> Result<(String, String), String> {
    field_but(text, &["content-length", "transfer-encoding"], "--body says how long a request is")
}

/// Parses the method of a request (RFC 9110 section 9.1), except CONNECT, whose reply has no end.
pub(crate) fn method(text: &str) -> Result<String, String> {
    match text {
        "CONNECT" => Err("a tunnel is no request that could be measured".into()),
        _ if is_token(text) => Ok(text.into()),
        _ => Err("a method is a word such as GET or POST".into()),
    }
}

/// Parses a field line whose name is none of `not`; `why` is the reason given for refusing those.
fn field_but(text: &str, not: &[&str], why: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is NAME: VALUE")?;
    let value = value.trim();
    if !is_token(name) {
        return Err(format!("'{name}' cannot be the name of a header"));
    }
    if !value.bytes().all(|byte| byte == b'\t' || (b' '..0x7f).contains(&byte) || byte > 0x7f) {
        return Err(format!("the value of {name} holds a control character"));
    }
    if not.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(format!("{name} cannot be set: {why}"));
    }
    Ok((name.into(), value.into()))
}

/// Returns whether the text is a token (RFC 9110 section 5.6.2).
fn is_token(text: &str) -> bool {
    let may = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(may)
}

/// Parses `LEFT=RIGHT`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() => {
            Ok((left.into(), right.into()))
        }
        _ => Err("it is written LEFT=RIGHT".into()),
    }
}

/// Converts a time to nanoseconds.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Parses a user, with a group or without.
pub(crate) fn user(text: &str) -> Result<UserName, String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    if user.is_empty() || group.is_some_and(str::is_empty) {
        return Err("a user is NAME or NAME:GROUP".into());
    }
    Ok(UserName { user: user.into(), group: group.map(Into::into) })
}

/// Puts the option before an error that begins with the path of one of its files, so that the
/// option's place is found; none where several options name the file.
pub(crate) fn with_option(error: String, options: &[(&str, &[PathBuf])]) -> String {
    let is_of = |path: &PathBuf| error.starts_with(&format!("{}: ", path.display()));
    let mut named = options.iter().filter(|(_, files)| files.iter().any(is_of));
    match (named.next(), named.next()) {
        (Some((option, _)), None) => format!("{option}: {error}"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_in_a_file_of_one_option_names_that() {
        let [one, other] = [[PathBuf::from("/one")], [PathBuf::from("/other")]];
        let told = |options: &[(&str, &[PathBuf])]| with_option("/one: why".into(), options);
        assert_eq!(told(&[("--other", &other), ("--one", &one)]), "--one: /one: why");
        assert_eq!(told(&[("--other", &one), ("--one", &one)]), "/one: why");
        assert_eq!(told(&[("--other", &other)]), "/one: why");
    }

    #[test]
    fn a_user_has_a_group_or_none() {
        let named = |user: &str, group: Option<&str>| {
            Ok(UserName { user: user.into(), group: group.map(Into::into) })
        };
        assert_eq!(user("www-data"), named("www-data", None));
        assert_eq!(user("weir:adm"), named("weir", Some("adm")));
        assert!([":", "weir:", ":adm", ""].iter().all(|text| user(text).is_err()));
    }

    #[test]
    fn sizes_and_durations_are_read_as_people_write_them() {
        assert_eq!(size("64k"), Ok(65536));
        assert_eq!(size("1.5M"), Ok(1_572_864));
        assert_eq!(size("0"), Ok(0));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert!(limit("0").is_err());
        assert!(limit("1ms").is_ok());
        for bad in ["", "-1", "1x", "k", "1e400", "NaN", "inf"] {
            assert!(size(bad).is_err(), "{bad}");
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_memory_budget_is_a_size_that_a_server_can_live_with() {
        assert_eq!(memory_limit("1.5G"), Ok(MemoryLimit::Bytes(3 << 29)));
        assert_eq!(memory_limit("auto"), Ok(MemoryLimit::Auto));
        assert_eq!(memory_limit("none"), Ok(MemoryLimit::None));
        assert!(memory_limit("0").is_err() && memory_limit("15M").is_err());
        assert!(memory_limit("much").is_err());
    }

    #[test]
    fn lists_of_processors_are_bounded() {
        assert_eq!(cpus("0,2-3"), Ok(vec![0, 2, 3]));
        for bad in ["", "a", "3-2", "0-99999999", "1,,2"] {
            assert!(cpus(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_header_cannot_break_the_framing() {
        assert_eq!(field("X-A: b c"), Ok(("X-A".into(), "b c".into())));
        for bad in ["X", "X Y: z", ": z", "X: a\r\nB: c", "Content-Length: 3", "DATE: x"] {
            assert!(field(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_request_cannot_break_its_framing_either() {
        assert_eq!(request_field("Date: x"), Ok(("Date".into(), "x".into())));
        for bad in ["X", "X Y: z", "Content-Length: 3", "transfer-encoding: chunked"] {
            assert!(request_field(bad).is_err(), "{bad}");
        }
        assert_eq!(method("PROPFIND"), Ok("PROPFIND".into()));
        for bad in ["", "GET /", "G\r\n", "CONNECT"] {
            assert!(method(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_of_every_kind() {
        assert_eq!(address("unix:/a/b"), Ok(Address::Unix("/a/b".into())));
        assert!(matches!(address("[::1]:80"), Ok(Address::Tcp(at)) if at.is_ipv6()));
        assert!(matches!(address(":80"), Ok(Address::Tcp(at)) if at.ip().is_unspecified()));
        assert!(
            matches!(address("https://[::1]:8443/"), Ok(Address::Tls(at)) if at.port() == 8443)
        );
        assert!(matches!(address("http://127.0.0.1:80"), Ok(Address::Tcp(_))));
        assert!(address("https://unix:/a").is_err());
        assert!(address("nowhere").is_err());
        assert!(address("unix:").is_err());
    }
}
