//! The word of proxies in front on the address that a client sent its request to. The upstream is
//! told it too, and its reply may depend on it: a redirect to https, a link to the host.

use crate::fields::is_one_of;

/// Fields by which it is told, besides Forwarded (RFC 7239).
const NAMES: [&[u8]; 8] = [
    b"x-forwarded-host",
    b"x-forwarded-path",
    b"x-forwarded-port",
    b"x-forwarded-prefix",
    b"x-forwarded-proto",
    b"x-forwarded-protocol",
    b"x-forwarded-scheme",
    b"x-forwarded-ssl",
];

/// Fields among them whose values are parts of paths, which have case.
const PATHS: [&[u8]; 2] = [b"x-forwarded-path", b"x-forwarded-prefix"];

/// Parameters of Forwarded that tell it.
const PARAMETERS: [&[u8]; 2] = [b"host", b"proto"];

/// The word on an address; empty without a proxy in front that is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Lines such as `x-forwarded-proto:https`, each ended by LF, in the order of the request.
    lines: Vec<u8>,
}

impl Told {
    /// Adds a field line of a request, if it is about that.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        if is_one_of(name, &NAMES) {
            self.push(name, value);
        } else if name.eq_ignore_ascii_case(b"forwarded") {
            for (parameter, value) in parameters(value) {
                if is_one_of(parameter, &PARAMETERS) {
                    self.push(parameter, value);
                }
            }
        }
    }

    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.lines.extend(name.iter().map(u8::to_ascii_lowercase));
        self.lines.push(b':');
        let has_case = is_one_of(name, &PATHS);
        let lower = |byte: &u8| if has_case { *byte } else { byte.to_ascii_lowercase() };
        self.lines.extend(value.iter().map(lower));
        self.lines.push(b'\n');
    }

    /// Iterates over the hosts, in lower case.
    pub fn hosts(&self) -> impl Iterator<Item = &[u8]> {
        hosts(&self.lines)
    }

    /// Iterates over the schemes, in lower case.
    pub fn schemes(&self) -> impl Iterator<Item = &[u8]> {
        let endings = [&b"proto"[..], b"protocol", b"scheme"];
        elements(&self.lines, move |name| endings.iter().any(|ending| name.ends_with(ending)))
    }

    pub(crate) fn lines(&self) -> &[u8] {
        &self.lines
    }
}

/// Iterates over the hosts of the lines of a [`Told`].
pub(crate) fn hosts(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    elements(lines, |name| name.ends_with(b"host"))
}

/// Iterates over the elements of the lines whose names are wanted. Each proxy on the way may have
/// added one.
fn elements(lines: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = &[u8]> {
    let values = lines.split(|&byte| byte == b'\n').filter_map(move |line| {
        let (name, value) = line.split_at_checked(memchr::memchr(b':', line)?)?;
        value.get(1..).filter(|_| is_wanted(name))
    });
    values.flat_map(|value| value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii))
}

/// Iterates over the parameters of a Forwarded line, without their quotes. What separates them
/// separates nothing within quotes.
fn parameters(value: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut is_quoted = false;
    let parts = value.split(move |&byte| {
        is_quoted ^= byte == b'"';
        matches!(byte, b',' | b';') && !is_quoted
    });
    parts.filter_map(|part| {
        let (name, value) = part.split_at_checked(memchr::memchr(b'=', part)?)?;
        let value = value.get(1..)?.trim_ascii();
        let unquoted = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        Some((name.trim_ascii(), unquoted.unwrap_or(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fields: &[(&str, &str)]) -> Told {
        let mut told = Told::default();
        fields.iter().for_each(|(name, value)| told.add(name.as_bytes(), value.as_bytes()));
        told
    }

    #[test]
    fn the_address_is_told_by_fields_and_the_client_s_is_no_part_of_it() {
        let plain = told(&[("X-Forwarded-Proto", "HTTPS"), ("X-Forwarded-Host", "a.example, B")]);
        assert!(plain.hosts().eq([&b"a.example"[..], b"b"]));
        assert!(plain.schemes().eq([b"https"]));
        let client = [("X-Forwarded-For", "192.0.2.1"), ("X-Real-IP", "192.0.2.1"), ("Host", "c")];
        assert_eq!(told(&client), Told::default());
        for name in ["X-Forwarded-Port", "X-Forwarded-Path", "X-Forwarded-Protocol"] {
            assert_ne!(told(&[(name, "1")]), told(&[(name, "2")]), "{name}");
        }
        assert_ne!(told(&[("X-Forwarded-Path", "/a")]), told(&[("X-Forwarded-Path", "/A")]));
        assert!(told(&[("X-Forwarded-Protocol", "HTTPS")]).schemes().eq([b"https"]));
    }

    #[test]
    fn forwarded_tells_it_by_two_of_its_parameters() {
        let of = |value| told(&[("Forwarded", value)]);
        let one = of("for=\"[2001:db8::1]:1, x\"; Proto=https;host=\"A:1\"");
        assert!(one.hosts().eq([b"a:1"]) && one.schemes().eq([b"https"]));
        assert_eq!(one, of("for=192.0.2.1;proto=https;host=a:1;by=_x"));
        assert_eq!(of("for=192.0.2.1;=;x,\""), Told::default());
    }
}
