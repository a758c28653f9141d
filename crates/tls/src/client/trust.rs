//! Whom a client trusts, and who it is, from PEM (RFC 7468). What cannot be used is refused in one
//! sentence.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::verification::{Any, Given};

/// The servers that are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Servers that this system's authorities have certified; the authorities' certificates
    /// ([`of_system`]).
    System(Vec<CertificateDer<'static>>),
    /// Those with a certificate of a PEM file, or with one that these have signed.
    Given {
        /// The file's name.
        file: String,
        /// Its content.
        pem: Vec<u8>,
    },
    /// All of them.
    Any,
}

/// A certificate of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Name of the file with the certificate.
    pub cert_file: String,
    /// Its content, PEM: the certificate, and those that lead to an authority.
    pub cert_pem: Vec<u8>,
    /// Name of the file with the key.
    pub key_file: String,
    /// Its content, PEM.
    pub key_pem: Vec<u8>,
}

/// Returns the certificates of the authorities that this system trusts, in the same order each time
/// while they are the same.
pub fn of_system() -> Vec<CertificateDer<'static>> {
    let mut certificates = rustls_native_certs::load_native_certs().certs;
    certificates.sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
    certificates
}

/// Returns what verifies the certificates of servers. `otherwise`: the options by which an operator
/// does without the system's authorities.
///
/// # Errors
/// A sentence: a certificate cannot be used, or the system has none.
pub fn verifier(
    trust: &Trust,
    provider: &Arc<CryptoProvider>,
    otherwise: &str,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    match trust {
        Trust::Any => Ok(Arc::new(Any(provider.signature_verification_algorithms))),
        Trust::System(certificates) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates.iter().cloned());
            anchored(roots, provider).map(|it| it as _).map_err(|_| {
                format!(
                    "this system has no certificates of authorities (Debian's package is \
                     ca-certificates): give {otherwise}"
                )
            })
        }
        Trust::Given { file, pem } => {
            let given = certificates(file, pem)?;
            let mut roots = RootCertStore::empty();
            for certificate in &given {
                roots
                    .add(certificate.clone())
                    .map_err(|error| format!("{file}: a certificate cannot be used: {error}"))?;
            }
            let anchored = anchored(roots, provider)?;
            Ok(Arc::new(Given { anchored, given }))
        }
    }
}

fn anchored(
    roots: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let builder =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    builder.build().map_err(|error| error.to_string())
}

/// Parses the certificates of a PEM file, of which there is at least one.
fn certificates(file: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let parsed = parsed.map_err(|error| format!("{file}: it is not PEM: {error}"))?;
    if parsed.is_empty() {
        return Err(format!("{file}: there is no certificate in it (PEM, BEGIN CERTIFICATE)"));
    }
    Ok(parsed)
}

impl ClientIdentity {
    /// Parses the certificates and the key.
    ///
    /// # Errors
    /// A sentence: one of the files has none.
    pub fn parsed(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let chain = certificates(&self.cert_file, &self.cert_pem)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key_pem).map_err(|error| {
            format!("{}: there is no private key in it (PEM): {error}", self.key_file)
        })?;
        Ok((chain, key))
    }

    /// Returns the sentence that says that the key is another certificate's.
    pub fn does_not_fit(&self, error: &rustls::Error) -> String {
        let Self { cert_file, key_file, .. } = self;
        format!("the key of {key_file} does not fit the certificate of {cert_file}: {error}")
    }
}
