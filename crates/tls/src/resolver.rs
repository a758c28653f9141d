//! The choice among a server's certificates, by the name that the client asks for (SNI, RFC 6066
//! section 3) and the signatures that it can check.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::identity::Identity;

/// All certificates of a server. A client that asks for no name, or for one that none is valid for,
/// is presented the first: it then says itself that this is not the server it wanted.
#[derive(Debug)]
pub(crate) struct Certificates {
    all: Vec<Arc<CertifiedKey>>,
    /// Certificates by name; the first label of a name may be `*`.
    by_name: HashMap<String, Vec<usize>>,
}

impl Certificates {
    pub(crate) fn new(identities: &[Identity]) -> Self {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, identity) in identities.iter().enumerate() {
            for name in &identity.names {
                by_name.entry(name.clone()).or_default().push(index);
            }
        }
        Self { all: identities.iter().map(|each| Arc::clone(&each.key)).collect(), by_name }
    }

    /// Returns the certificates for a name, those of a wildcard only if none is for itself.
    fn named(&self, name: &str) -> &[usize] {
        let name = name.to_ascii_lowercase();
        let found = self.by_name.get(&name).or_else(|| {
            let (_, parent) = name.split_once('.')?;
            self.by_name.get(&format!("*.{parent}"))
        });
        found.map(Vec::as_slice).unwrap_or_default()
    }

    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let named = name.map(|name| self.named(name)).unwrap_or_default();
        let suits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let of_name = named.iter().filter_map(|&index| self.all.get(index)).find(suits);
        of_name.or_else(|| self.all.iter().find(suits)).or_else(|| self.all.first()).cloned()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name(), hello.signature_schemes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::aws_lc_rs::default_provider;

    #[test]
    fn a_certificate_of_the_name_goes_before_a_wildcard_and_that_before_the_first() {
        let provider = default_provider();
        let make = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            Identity::make(&names, &provider).unwrap()
        };
        let identities =
            [make(&["first.test"]), make(&["*.a.test"]), make(&["b.a.test", "a.test"])];
        let certificates = Certificates::new(&identities);
        let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256];
        for (name, wanted) in [
            (None, 0),
            (Some("first.test"), 0),
            (Some("unknown.test"), 0),
            (Some("x.a.test"), 1),
            (Some("X.A.TEST"), 1),
            (Some("x.y.a.test"), 0),
            (Some("b.a.test"), 2),
            (Some("a.test"), 2),
        ] {
            let chosen = certificates.choose(name, &schemes).unwrap();
            let index = identities.iter().position(|each| Arc::ptr_eq(&each.key, &chosen));
            assert_eq!(index, Some(wanted), "{name:?}");
        }
    }
}
