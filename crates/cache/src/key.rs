//! Keys of stored replies: where a request goes, and what it asks for (RFC 9111 section 2).

use crate::{Told, told};

/// Bytes of a key before its host: the upstream, and the scheme.
const FRONT_BYTES: usize = 5;

/// The resource that a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct Resource<'a> {
    /// Number of the upstream.
    pub upstream: usize,
    /// True if the scheme is https. A server may answer otherwise then, with a redirect for one.
    pub is_tls: bool,
    /// Host that the request names; empty if it names none.
    pub host: &'a [u8],
    /// The address that proxies in front tell.
    pub told: &'a Told,
    /// Path of the target.
    pub path: &'a [u8],
    /// Query of the target.
    pub query: Option<&'a [u8]>,
}

impl Resource<'_> {
    /// Writes its key into `out`, in place of what was there. The host counts without regard to
    /// case, and so does what is told; everything else as it came.
    pub fn write_key(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.upstream_bytes());
        out.push(self.is_tls.into());
        out.extend(self.host.iter().map(u8::to_ascii_lowercase));
        // Neither a host, nor a field, nor a path has one.
        out.push(0);
        out.extend_from_slice(self.told.lines());
        out.push(0);
        self.write_target(out);
    }

    /// Returns a test of keys: those of this resource, whatever its scheme, and what is told of it.
    /// The host may be told: on the way to the upstream it may have got another name. It is made
    /// for many keys, of which few are its own: those it tells by their ends.
    pub fn named_by(&self) -> impl Fn(&[u8]) -> bool {
        let upstream = self.upstream_bytes();
        let mut end = vec![0];
        self.write_target(&mut end);
        move |key| {
            let Some(rest) = key.strip_suffix(&end[..]) else { return false };
            let Some((front, rest)) = rest.split_at_checked(FRONT_BYTES) else { return false };
            let mut parts = rest.split(|&byte| byte == 0);
            let (Some(host), Some(lines), None) = (parts.next(), parts.next(), parts.next()) else {
                return false;
            };
            front.starts_with(&upstream)
                && std::iter::once(host).chain(told::hosts(lines)).any(|host| self.has_host(host))
        }
    }

    /// Returns whether it is at a host: the one that is told, or else the one that is named.
    fn has_host(&self, host: &[u8]) -> bool {
        let mut told = self.told.hosts().peekable();
        match told.peek() {
            Some(_) => told.any(|told| told == host),
            None => self.host.eq_ignore_ascii_case(host),
        }
    }

    fn upstream_bytes(&self) -> [u8; 4] {
        (self.upstream as u32).to_le_bytes()
    }

    fn write_target(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.path);
        if let Some(query) = self.query {
            out.push(b'?');
            out.extend_from_slice(query);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &[u8] = b"/b";

    fn told(fields: &[(&str, &str)]) -> Told {
        let mut told = Told::default();
        fields.iter().for_each(|(name, value)| told.add(name.as_bytes(), value.as_bytes()));
        told
    }

    fn at<'a>(host: &'a str, told: &'a Told) -> Resource<'a> {
        let host = host.as_bytes();
        Resource { upstream: 0, is_tls: false, host, told, path: PATH, query: None }
    }

    fn key(resource: Resource<'_>) -> Vec<u8> {
        let mut out = b"left over".to_vec();
        resource.write_key(&mut out);
        out
    }

    #[test]
    fn keys_differ_where_requests_do() {
        let nothing = Told::default();
        let plain = at("a:80", &nothing);
        let ours = key(plain);
        assert_eq!(ours, key(at("A:80", &nothing)));
        let (secure, elsewhere) =
            (told(&[("X-Forwarded-Proto", "https")]), told(&[("X-Forwarded-Host", "c")]));
        let others = [
            Resource { upstream: 1, ..plain },
            Resource { is_tls: true, ..plain },
            at("a", &nothing),
            Resource { path: b"/B", ..plain },
            Resource { query: Some(b""), ..plain },
            at("a:80", &secure),
            at("a:80", &elsewhere),
        ];
        assert!(others.iter().all(|other| key(*other) != ours));
        assert_ne!(key(others[5]), key(others[6]));
    }

    #[test]
    fn a_resource_is_named_by_keys_of_either_scheme_and_of_every_front() {
        let nothing = Told::default();
        let front = told(&[("X-Forwarded-Proto", "https"), ("X-Forwarded-Host", "a")]);
        let keys = [
            key(at("a", &nothing)),
            key(Resource { is_tls: true, ..at("a", &nothing) }),
            key(at("a", &front)),
            key(at("inner:8000", &front)),
        ];
        for resource in [at("A", &nothing), at("inner:8000", &front), at("other", &front)] {
            assert!(keys.iter().all(|key| resource.named_by()(key)), "{resource:?}");
        }
        for other in [
            at("b", &nothing),
            at("a", &told(&[("X-Forwarded-Host", "b")])),
            Resource { upstream: 1, ..at("a", &nothing) },
            Resource { path: b"/", ..at("a", &nothing) },
            Resource { query: Some(b"c"), ..at("a", &nothing) },
        ] {
            assert!(!keys.iter().any(|key| other.named_by()(key)), "{other:?}");
        }
        for malformed in [&b"\0\0\0"[..], b"", b"\0/b", b"\0\0\0\0\0a\0/b", b"\0\0\0\0\0a\0\0\0/b"]
        {
            assert!(!at("a", &nothing).named_by()(malformed), "{malformed:?}");
        }
    }
}
