//! The client's side of TLS, towards a server that requests are forwarded to: whom it trusts, who
//! it is, and the sessions that it may resume.

mod session;
mod trust;
mod verification;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection};

use crate::acceptor::PROTOCOL;
use crate::identity::{self, Error, OpenFile};
pub use session::{ClientSession, Failure};
pub use trust::{ClientIdentity, Trust, of_system, verifier};

/// Number of sessions with a server that are kept to be resumed.
const SESSIONS_MAX: usize = 256;

/// What a client is given to speak TLS with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// Name or address that the server's certificate is for. A name is sent to the server (SNI,
    /// RFC 6066 section 3).
    pub server_name: String,
    /// Certificates of those who issue certificates to servers, in PEM; `None`: those that the
    /// system trusts.
    pub ca: Option<PathBuf>,
    /// The client's certificate, with those up to a root behind it, and its key, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// True to trust whoever answers.
    pub accepts_any: bool,
}

/// Begins sessions with one server, for all loops.
pub struct Connector {
    settings: ClientSettings,
    /// Digest of what the files held when they were read, and of the system's authorities where
    /// these are trusted.
    files_digest: u64,
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

/// The settings, and a digest of the files: two configurations are compared by this, and files are
/// read again only by the successor that a difference starts.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("settings", &self.settings)
            .field("files_digest", &self.files_digest)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Connector {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings && self.files_digest == other.files_digest
    }
}

impl Eq for Connector {}

impl Connector {
    /// Reads the files, which are opened by `open`.
    ///
    /// # Errors
    /// A sentence for the operator: a file is not there, or is not what it should be; the name is
    /// none; the system trusts nobody.
    pub fn new(settings: ClientSettings, open: OpenFile) -> Result<Self, Error> {
        let name = &settings.server_name;
        let server_name = ServerName::try_from(name.clone())
            .map_err(|_| Error::new(format!("{name} is no name that a certificate can have")))?;
        let provider = Arc::new(default_provider());
        // Its key is fixed: the same files have the same digest each time.
        let mut digest = DefaultHasher::new();
        let mut read = |path: &PathBuf| {
            identity::read(path, open).inspect(|content| content.hash(&mut digest))
        };
        let trust = match &settings.ca {
            _ if settings.accepts_any => Trust::Any,
            None => Trust::System(of_system()),
            Some(path) => Trust::Given { file: path.display().to_string(), pem: read(path)? },
        };
        let without = "--upstream-ca FILE or --upstream-insecure";
        let verifier = verifier(&trust, &provider, without).map_err(Error::new)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| Error::new(error.to_string()))?
            // It is one that verifies, unless the operator says otherwise.
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &settings.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let identity = ClientIdentity {
                    cert_file: certificate.display().to_string(),
                    cert_pem: read(certificate)?,
                    key_file: key.display().to_string(),
                    key_pem: read(key)?,
                };
                let (chain, parsed) = identity.parsed().map_err(Error::new)?;
                builder
                    .with_client_auth_cert(chain, parsed)
                    .map_err(|error| Error::new(identity.does_not_fit(&error)))?
            }
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        if let Trust::System(authorities) = &trust {
            authorities.iter().for_each(|authority| authority.as_ref().hash(&mut digest));
        }
        let files_digest = digest.finish();
        Ok(Self { settings, files_digest, config: Arc::new(config), server_name })
    }

    /// Begins a session on a connection that is being made.
    ///
    /// # Errors
    /// None that the server could cause: there is no randomness.
    pub fn session(&self) -> Result<ClientSession, Error> {
        let conn = ClientConnection::new(Arc::clone(&self.config), self.server_name.clone());
        conn.map(ClientSession::new).map_err(|error| Error::new(error.to_string()))
    }
}
