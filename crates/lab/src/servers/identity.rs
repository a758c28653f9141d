//! The certificate of servers with TLS: one that is signed by itself, for their address, with an
//! ECDSA key on the curve P-256, which is what most sites have. It is made for each start of a
//! server, so that no key is ever kept.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

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
    pub(super) fn make(address: SocketAddr, dir: &Path) -> Result<Self, String> {
        let names = vec!["localhost".to_owned(), address.ip().to_string()];
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| format!("no certificate can be made: {error}"))?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
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
