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

    /// Returns the certificates for a name itself, and those of its wildcard.
    fn named(&self, name: &str) -> [&[usize]; 2] {
        let name = name.to_ascii_lowercase();
        let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        [Some(name), wildcard].map(|name| {
            let found = name.and_then(|name| self.by_name.get(&name));
            found.map(Vec::as_slice).unwrap_or_default()
        })
    }

    /// Returns the certificate to present: of those that are valid for the name, the first whose
    /// signatures the client can check, one for the name itself before one of its wildcard.
    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let named = name.map(|name| self.named(name)).unwrap_or_default();
        let suits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let mut of_name = named.into_iter().flatten().filter_map(|&index| self.all.get(index));
        let suiting = of_name.find(suits).or_else(|| self.all.iter().find(suits));
        suiting.or_else(|| self.all.first()).cloned()
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
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

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

    #[test]
    fn a_client_that_cannot_check_those_of_the_name_gets_the_wildcard_s() {
        let provider = default_provider();
        let make = |name: &str, algorithm| {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            let chain = vec![params.self_signed(&key).unwrap().der().clone()];
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
            let key = Arc::new(CertifiedKey::from_der(chain, key, &provider).unwrap());
            Identity { key, names: vec![name.to_owned()] }
        };
        let identities = [
            make("first.test", &PKCS_ECDSA_P256_SHA256),
            make("*.a.test", &PKCS_ECDSA_P256_SHA256),
            make("b.a.test", &PKCS_ECDSA_P384_SHA384),
        ];
        let certificates = Certificates::new(&identities);
        let (p256, p384) =
            (SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ECDSA_NISTP384_SHA384);
        for (name, schemes, wanted) in [
            ("b.a.test", vec![p256], 1),
            ("b.a.test", vec![p384], 2),
            ("b.a.test", vec![p256, p384], 2),
            ("x.a.test", vec![p256], 1),
            // Any that it can check is of more use than one that it cannot.
            ("x.a.test", vec![p384], 2),
            ("x.a.test", vec![SignatureScheme::ED25519], 0),
        ] {
            let chosen = certificates.choose(Some(name), &schemes).unwrap();
            let index = identities.iter().position(|each| Arc::ptr_eq(&each.key, &chosen));
            assert_eq!(index, Some(wanted), "{name} {schemes:?}");
        }
    }
}
