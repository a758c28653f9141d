//! The client's side of TLS, towards a server that requests are forwarded to: whom it trusts, who
//! it is, and the sessions that it may resume.

mod session;
mod trust;
mod verification;

use std::fmt;
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
pub use trust::{ClientIdentity, Trust, verifier};

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
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

/// The settings alone: two with the same are of one configuration, whatever they have read.
impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl PartialEq for Connector {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
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
            .map_err(|_| Error(format!("{name} is no name that a certificate can have")))?;
        let provider = Arc::new(default_provider());
        let read = |path: &PathBuf| identity::read(path, open);
        let trust = match &settings.ca {
            _ if settings.accepts_any => Trust::Any,
            None => Trust::System,
            Some(path) => Trust::Given { file: path.display().to_string(), pem: read(path)? },
        };
        let without = "--upstream-ca FILE or --upstream-insecure";
        let verifier = verifier(&trust, &provider, without).map_err(Error)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| Error(error.to_string()))?
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
                let (chain, parsed) = identity.parsed().map_err(Error)?;
                builder
                    .with_client_auth_cert(chain, parsed)
                    .map_err(|error| Error(identity.does_not_fit(&error)))?
            }
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        Ok(Self { settings, config: Arc::new(config), server_name })
    }

    /// Begins a session on a connection that is being made.
    ///
    /// # Errors
    /// None that the server could cause: there is no randomness.
    pub fn session(&self) -> Result<ClientSession, Error> {
        let conn = ClientConnection::new(Arc::clone(&self.config), self.server_name.clone());
        conn.map(ClientSession::new).map_err(|error| Error(error.to_string()))
    }
}
