//! Certificates for a server under test, by an issuer of the test's own, and the client's side of
//! TLS with them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::client::ClientConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;

/// Versions of TLS that a server speaks.
pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// Names in a certificate of [`Authority::issue`] unless others are given; the first is also the
/// name that clients ask for.
pub const NAMES: [&str; 4] = ["localhost", "127.0.0.1", "::1", "test.example"];

/// An issuer of certificates, and a directory for them.
pub struct Authority {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A certificate with its key.
pub struct Issued {
    /// File with the certificate in PEM.
    pub certificate_file: PathBuf,
    /// File with the key in PEM.
    pub key_file: PathBuf,
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

impl Authority {
    /// Creates an issuer.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Other than that of what it issues, or that would seem to be issued by itself.
        params.distinguished_name.push(DnType::CommonName, "an authority of a test");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("ca.pem"), certificate.pem()).unwrap();
        let der = certificate.der().clone();
        Authority { dir, issuer: Issuer::new(params, key), certificate: der }
    }

    /// Returns the file with the issuer's own certificate.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Issues a certificate for `names`, in files named for `file`; those that are there are
    /// replaced by renaming.
    pub fn issue(&self, file: &str, names: &[&str]) -> Issued {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        let write = |kind: &str, text: &str| {
            let path = self.dir.path().join(format!("{file}.{kind}"));
            let fresh = path.with_extension("fresh");
            fs::write(&fresh, text).unwrap();
            fs::rename(&fresh, &path).unwrap();
            path
        };
        Issued {
            key_file: write("key", &key.serialize_pem()),
            certificate_file: write("pem", &certificate.pem()),
            certificate: certificate.der().clone(),
            key: key.serialize_der().into(),
        }
    }

    /// Returns the configuration of clients that trust the issuer and speak these versions.
    pub fn clients(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        self.clients_with(versions, None)
    }

    /// Like [`Authority::clients`], with a certificate of their own.
    pub fn clients_with(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        own: Option<&Issued>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::Pkcs8(own.key.clone_key());
                builder.with_client_auth_cert(vec![own.certificate.clone()], key).unwrap()
            }
        }
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Issued {
    /// Returns the options of a server that listens with this certificate on a free port of
    /// 127.0.0.1.
    pub fn options(&self) -> [&str; 6] {
        let [certificate, key] =
            [&self.certificate_file, &self.key_file].map(|path| path.to_str().unwrap());
        ["--listen", "https://127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key]
    }
}

/// Returns a client's side of a connection that has not begun.
pub fn client(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    ClientConnection::new(Arc::clone(config), name).unwrap()
}

/// Returns a record that is none by the keys of any connection: it breaks the rules.
pub fn false_record() -> Vec<u8> {
    let mut record = vec![23, 3, 3, 0, 32];
    record.resize(5 + 32, 0);
    record
}

/// Returns the first bytes of a client: its ClientHello.
pub fn client_hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut hello = Vec::new();
    let mut client = client(config, NAMES[0]);
    while client.wants_write() {
        client.write_tls(&mut hello).unwrap();
    }
    hello
}
