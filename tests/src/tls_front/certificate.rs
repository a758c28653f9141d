//! Certificates of tests, for `localhost` and 127.0.0.1, each with a new key (ECDSA, P-256).

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Names that a certificate is for.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Who signs a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// Its own key.
    Itself,
    /// Its own key, and it may sign others: what `openssl req -x509` makes.
    ItselfAsAuthority,
    /// Its own key, and it is no longer valid.
    ItselfExpired,
    /// An authority of its own.
    Authority,
}

/// A certificate, its key, and who signed it.
pub struct Certificate {
    own: rcgen::Certificate,
    key: KeyPair,
    authority: Option<rcgen::Certificate>,
}

impl Certificate {
    /// Makes a certificate.
    pub fn new(signer: Signer) -> Certificate {
        let names: Vec<String> = NAMES.map(Into::into).into();
        let (mut params, key) =
            (CertificateParams::new(names).unwrap(), KeyPair::generate().unwrap());
        if signer != Signer::Authority {
            if signer == Signer::ItselfExpired {
                params.not_after = rcgen::date_time_ymd(2020, 1, 1);
            }
            if signer == Signer::ItselfAsAuthority {
                params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            }
            return Certificate { own: params.self_signed(&key).unwrap(), key, authority: None };
        }
        let mut of_authority = CertificateParams::new(Vec::new()).unwrap();
        of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority = of_authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(of_authority, authority_key);
        let own = params.signed_by(&key, &issuer).unwrap();
        Certificate { own, key, authority: Some(authority) }
    }

    /// Returns the certificate.
    pub fn der(&self) -> CertificateDer<'static> {
        self.own.der().clone()
    }

    /// Returns what a server presents.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.der()]
    }

    /// Returns the key.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.serialize_der()).unwrap()
    }

    /// Returns the certificate to trust, as PEM: its own, or its authority's.
    pub fn trusted_pem(&self) -> String {
        self.authority.as_ref().unwrap_or(&self.own).pem()
    }

    /// Returns the certificate and its key as PEM.
    pub fn pem_with_key(&self) -> String {
        self.own.pem() + &self.key.serialize_pem()
    }
}
