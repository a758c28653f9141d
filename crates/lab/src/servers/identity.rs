//! The certificate of servers with TLS: one that is signed by itself, for their address. It is made
//! for each start of a server, so that no key is ever kept.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};

use crate::experiment::TlsKey;

/// The files of a certificate, in PEM.
#[derive(Clone, Debug)]
pub(super) struct IdentityFiles {
    /// The certificate.
    pub(super) certificate: PathBuf,
    /// Its key.
    pub(super) key: PathBuf,
    /// Both, one after the other.
    pub(super) both: PathBuf,
}

impl IdentityFiles {
    /// Makes a certificate for an address, and writes it into a directory.
    ///
    /// # Errors
    /// A sentence: there is no randomness, or a file cannot be written.
    pub(super) fn make(kind: TlsKey, address: SocketAddr, dir: &Path) -> Result<Self, String> {
        let names = vec!["localhost".to_owned(), address.ip().to_string()];
        let failed = |error: rcgen::Error| format!("no certificate can be made: {error}");
        // An RSA key has 2048 bits if nothing else is said.
        let key = KeyPair::generate_for(match kind {
            TlsKey::EcdsaP256 => &PKCS_ECDSA_P256_SHA256,
            TlsKey::Rsa2048 => &PKCS_RSA_SHA256,
        });
        let key = key.map_err(failed)?;
        let params = CertificateParams::new(names).map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        let key = key.serialize_pem();
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            Ok::<_, String>(path)
        };
        Ok(Self {
            certificate: write("certificate.pem", &certificate)?,
            key: write("key.pem", &key)?,
            both: write("identity.pem", &format!("{certificate}{key}"))?,
        })
    }
}
