//! Certificates with their keys: read from PEM files (RFC 7468), or made for a first try.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use webpki::EndEntityCert;

/// An operator's error: a message that says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    why: String,
    /// True if a file could not be read, whatever it has: it may be readable later, unchanged.
    pub(crate) is_of_reading: bool,
    errno: Option<i32>,
}

impl Error {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_of_reading: false, errno: None }
    }

    /// Returns the kernel's reason (errno(3)), if a file could not be read.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Error {}

/// Returns the error of a file.
pub(crate) fn wrong(path: &Path, why: impl fmt::Display) -> Error {
    Error::new(format!("{}: {why}", path.display()))
}

/// Opens a file for reading: open(2), or a way around it for a process that may not open it itself.
pub type OpenFile = fn(&Path) -> io::Result<File>;

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and after it those up to a root, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM and not encrypted.
    pub key: PathBuf,
    /// A response of its issuer's OCSP responder, in DER (RFC 6960), to be stapled.
    pub ocsp: Option<PathBuf>,
}

/// A certificate that the server can present.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub key: Arc<CertifiedKey>,
    /// Names that it is valid for, in lower case; the first label may be `*`.
    pub names: Vec<String>,
}

impl Identity {
    /// Reads a certificate.
    ///
    /// # Errors
    /// A file cannot be read, is not what it should be, or the key is another certificate's.
    pub(crate) fn read(
        files: &CertificateFiles,
        open: OpenFile,
        provider: &CryptoProvider,
    ) -> Result<Self, Error> {
        let chain = certificates(&files.certificate, open)?;
        let key = private_key(&files.key, open)?;
        let mut certified = match CertifiedKey::from_der(chain, key, provider) {
            Ok(certified) => certified,
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                let certificate = files.certificate.display();
                return Err(wrong(&files.key, format_args!("is not the key of {certificate}")));
            }
            Err(error) => return Err(wrong(&files.key, format_args!("is of no use: {error}"))),
        };
        certified.ocsp = files.ocsp.as_deref().map(|path| ocsp_response(path, open)).transpose()?;
        Self::of(certified).map_err(|error| wrong(&files.certificate, error))
    }

    /// Makes a certificate for `names`, signed by itself.
    ///
    /// # Errors
    /// A name is not one, or there is no randomness.
    pub(crate) fn make(names: &[String], provider: &CryptoProvider) -> Result<Self, Error> {
        let failed = |error: &dyn fmt::Display| Error::new(format!("--tls-self-signed: {error}"));
        let made = rcgen::generate_simple_self_signed(names).map_err(|error| failed(&error))?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let chain = vec![made.cert.der().clone()];
        let certified = CertifiedKey::from_der(chain, PrivateKeyDer::Pkcs8(key), provider);
        let certified = certified.map_err(|error| failed(&error))?;
        Self::of(certified).map_err(|error| failed(&error))
    }

    fn of(key: CertifiedKey) -> Result<Self, rustls::Error> {
        let certificate = key.end_entity_cert()?;
        let parsed = EndEntityCert::try_from(certificate)
            .map_err(|_| rustls::Error::General("the certificate is malformed".into()))?;
        let names = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
        Ok(Self { key: Arc::new(key), names })
    }
}

/// Reads the certificates of a file.
pub(crate) fn certificates(
    path: &Path,
    open: OpenFile,
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(path, open)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(wrong(path, "has no certificate in PEM")),
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(path, format_args!("is no certificate in PEM: {error}"))),
    }
}

/// Returns issuers' certificates, which were read from a file, as those that are trusted.
pub(crate) fn roots(path: &Path, issuers: &[CertificateDer<'_>]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for issuer in issuers {
        roots
            .add(issuer.clone())
            .map_err(|error| wrong(path, format_args!("has no issuer's certificate: {error}")))?;
    }
    Ok(roots)
}

/// Returns a digest of certificates.
pub(crate) fn fingerprint(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut digest = digest::Context::new(&digest::SHA256);
    for certificate in certificates {
        // Each begins with its own length: DER.
        digest.update(certificate);
    }
    digest.finish().as_ref().to_vec()
}

fn private_key(path: &Path, open: OpenFile) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(&read(path, open)?)
        .map_err(|_| wrong(path, "has no private key in PEM that is not encrypted"))
}

/// Reads an OCSP response: DER, whose first byte is that of a sequence.
fn ocsp_response(path: &Path, open: OpenFile) -> Result<Vec<u8>, Error> {
    let response = read(path, open)?;
    if response.first() == Some(&0x30) {
        return Ok(response);
    }
    Err(wrong(path, "is no OCSP response in DER"))
}

/// Reads a file.
pub(crate) fn read(path: &Path, open: OpenFile) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let read = open(path).and_then(|mut file| file.read_to_end(&mut content));
    let failed = |error: io::Error| {
        let errno = error.raw_os_error();
        Error { is_of_reading: true, errno, ..wrong(path, error) }
    };
    read.map(|_| content).map_err(failed)
}
