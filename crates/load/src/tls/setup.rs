//! The client's side of TLS from what an operator asks for. What cannot work is refused here, in
//! one sentence.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, version};

use super::verification::{Any, Given};
use super::{TlsSettings, suites};

/// The protocol that is spoken (RFC 7301 section 6).
const ALPN: &[u8] = b"http/1.1";

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2 (RFC 5246).
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// The servers that are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those that this system's authorities have certified.
    System,
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
pub struct Identity {
    /// Name of the file with the certificate.
    pub cert_file: String,
    /// Its content, PEM: the certificate, and those that lead to an authority.
    pub cert_pem: Vec<u8>,
    /// Name of the file with the key.
    pub key_file: String,
    /// Its content, PEM.
    pub key_pem: Vec<u8>,
}

/// The TLS that is asked for.
#[derive(Clone, Debug)]
pub struct TlsRequest {
    /// Name or address that the server's certificate is for. A name is sent to the server (SNI,
    /// RFC 6066 section 3).
    pub server_name: String,
    /// The only version to offer; `None`: both.
    pub version: Option<Version>,
    /// Names of the cipher suites to offer, in their order; empty: all.
    pub ciphers: Vec<String>,
    /// The servers that are trusted.
    pub trust: Trust,
    /// The client's certificate, for servers that ask for one.
    pub identity: Option<Identity>,
    /// True if sessions are resumed where the server allows it; otherwise each handshake is full.
    pub resumes: bool,
}

/// Prepares the client's side of TLS.
///
/// # Errors
/// A sentence: a name, a cipher suite, a certificate or a key that cannot be used.
pub fn prepare(request: &TlsRequest) -> Result<TlsSettings, String> {
    let name = &request.server_name;
    let server_name = ServerName::try_from(name.clone())
        .map_err(|_| format!("{name}: that is not a name a certificate can have (see --sni)"))?;
    let mut provider = provider();
    if !request.ciphers.is_empty() {
        provider.cipher_suites = suites::named(&provider, &request.ciphers)?;
    }
    let provider = Arc::new(provider);
    let versions: &[_] = match request.version {
        None => &[&version::TLS13, &version::TLS12],
        Some(Version::Tls12) => &[&version::TLS12],
        Some(Version::Tls13) => &[&version::TLS13],
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|_| "--tls-ciphers has none for the version of --tls-version".to_owned())?
        // It is one that verifies, unless the operator says otherwise.
        .dangerous()
        .with_custom_certificate_verifier(verifier(&request.trust, provider)?);
    let mut config = match &request.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.parsed()?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                let Identity { cert_file, key_file, .. } = identity;
                format!(
                    "the key of {key_file} does not fit the certificate of {cert_file}: {error}"
                )
            })?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(TlsSettings { config, server_name, resumes: request.resumes })
}

/// Returns the cryptography.
pub(super) fn provider() -> CryptoProvider {
    aws_lc_rs::default_provider()
}

fn verifier(
    trust: &Trust,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    match trust {
        Trust::Any => Ok(Arc::new(Any(provider.signature_verification_algorithms))),
        Trust::System => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            let without = "this system has no certificates of authorities (Debian's package is \
                           ca-certificates): give --cacert FILE or --insecure";
            anchored(roots, provider).map(|it| it as _).map_err(|_| without.into())
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
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
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

impl Identity {
    fn parsed(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
        let chain = certificates(&self.cert_file, &self.cert_pem)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key_pem).map_err(|error| {
            format!("{}: there is no private key in it (PEM): {error}", self.key_file)
        })?;
        Ok((chain, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> TlsRequest {
        TlsRequest {
            server_name: "localhost".into(),
            version: None,
            ciphers: Vec::new(),
            trust: Trust::Any,
            identity: None,
            resumes: false,
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_in_a_sentence() {
        let given = |pem: &[u8]| Trust::Given { file: "ca.pem".into(), pem: pem.into() };
        let certificate = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let table = [
            (TlsRequest { server_name: "a b".into(), ..request() }, "--sni"),
            (TlsRequest { ciphers: vec!["X".into()], ..request() }, "there is no X"),
            (
                TlsRequest {
                    ciphers: vec!["TLS_AES_128_GCM_SHA256".into()],
                    version: Some(Version::Tls12),
                    ..request()
                },
                "--tls-version",
            ),
            (TlsRequest { trust: given(b""), ..request() }, "ca.pem: there is no certificate"),
            (TlsRequest { trust: given(certificate), ..request() }, "ca.pem: a certificate"),
        ];
        for (request, sentence) in table {
            let refused = prepare(&request).map(|_| ()).unwrap_err();
            assert!(refused.contains(sentence) && !refused.contains('\n'), "{refused}");
        }
    }

    #[test]
    fn a_name_is_sent_and_an_address_is_not() {
        for (name, is_name) in [("localhost", true), ("127.0.0.1", false), ("::1", false)] {
            let settings = prepare(&TlsRequest { server_name: name.into(), ..request() }).unwrap();
            let is_sent = matches!(settings.server_name, ServerName::DnsName(_));
            assert_eq!(is_sent, is_name, "{name}");
        }
    }
}
