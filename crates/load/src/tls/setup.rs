//! The client's side of TLS from what an operator asks for. What cannot work is refused here, in
//! one sentence.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, version};
use weir_tls::client::{ClientIdentity, Trust, verifier};

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
    pub identity: Option<ClientIdentity>,
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
    let verifier = verifier(&request.trust, &provider, "--cacert FILE or --insecure")?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|_| "--tls-ciphers has none for the version of --tls-version".to_owned())?
        // It is one that verifies, unless the operator says otherwise.
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &request.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.parsed()?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| identity.does_not_fit(&error))?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(TlsSettings { config, server_name, resumes: request.resumes })
}

/// Returns the cryptography, without the hybrid with ML-KEM that rustls offers too: no key of it is
/// sent at once, so that a server which prefers it asks for another hello.
pub(super) fn provider() -> CryptoProvider {
    let kx_groups = vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
    CryptoProvider { kx_groups, ..default_provider() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

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

    /// Returns the groups for keys that a ClientHello offers (RFC 8446 sections 4.1.2 and 4.2.7).
    fn groups_in(hello: &[u8]) -> Vec<u16> {
        let number = |at: usize| u16::from_be_bytes([hello[at], hello[at + 1]]);
        // Behind the heads of the record and the message, the version, and a random number.
        let mut at = 5 + 4 + 2 + 32;
        at += 1 + usize::from(hello[at]);
        at += 2 + usize::from(number(at));
        at += 1 + usize::from(hello[at]);
        at += 2;
        while number(at) != 10 {
            at += 4 + usize::from(number(at + 2));
        }
        let groups = usize::from(number(at + 4)) / 2;
        (0..groups).map(|index| number(at + 6 + 2 * index)).collect()
    }

    #[test]
    fn no_hybrid_with_ml_kem_is_offered() {
        let settings = prepare(&request()).unwrap();
        let mut connection = settings.connector().connect().unwrap();
        let (mut hello, mut nothing) = (vec![0; 16 << 10], []);
        let UnbufferedStatus { state, .. } = connection.process_tls_records(&mut nothing);
        let ConnectionState::EncodeTlsData(mut message) = state.unwrap() else {
            panic!("it has nothing to say")
        };
        let length = message.encode(&mut hello).unwrap();
        // X25519, P-256 and P-384.
        assert_eq!(groups_in(&hello[..length]), [0x001d, 0x0017, 0x0018]);
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
