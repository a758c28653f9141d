//! The server's side of TLS as configured: which certificates it has, and whom it lets in. Its
//! files are read again while it is in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fmt, fs};

use parking_lot::{Mutex, RwLock};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection};

use crate::identity::{CertificateFiles, Error, Identity, OpenFile, fingerprint, roots};
use crate::resolver::Certificates;
use crate::session::Session;
use crate::tickets::{TicketKeys, Ticketer};

/// The one protocol spoken inside (ALPN, RFC 7301).
pub(crate) const PROTOCOL: &[u8] = b"http/1.1";

/// What a server is given to speak TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its certificates; the first is for clients that ask for no name.
    pub certificates: Vec<CertificateFiles>,
    /// Names and addresses for which it makes a certificate of its own; empty for none.
    pub self_signed: Vec<String>,
    /// Certificates of those who issue certificates to clients. Clients without one are refused.
    pub client_ca: Option<PathBuf>,
}

impl Settings {
    /// Returns all files.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let files = self.certificates.iter().flat_map(|each| {
            [Some(&each.certificate), Some(&each.key), each.ocsp.as_ref()].into_iter().flatten()
        });
        files.chain(&self.client_ca).map(PathBuf::as_path)
    }
}

/// What tells that a file has changed: its time of modification and its length, if it is there.
type Stamp = Option<(SystemTime, u64)>;

/// The configuration that handshakes begin with, which may be replaced at any time. Sessions go on
/// with the one they began with.
pub struct Acceptor {
    settings: Settings,
    open: OpenFile,
    provider: Arc<CryptoProvider>,
    own: Option<Identity>,
    tickets: Arc<TicketKeys>,
    current: RwLock<Arc<ServerConfig>>,
    stamps: Mutex<Vec<Stamp>>,
}

/// The settings alone: two with the same are of one configuration, whatever they have read.
impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Acceptor {
    /// Reads the files, which are opened by `open`, now and later.
    ///
    /// # Errors
    /// A sentence for the operator: a file is not there, or is not what it should be.
    pub fn new(settings: Settings, open: OpenFile) -> Result<Self, Error> {
        let provider = Arc::new(default_provider());
        let own = match &settings.self_signed[..] {
            [] => None,
            names => Some(Identity::make(names, &provider)?),
        };
        let tickets = TicketKeys::new().map_err(|_| Error("there is no randomness".into()))?;
        let tickets = Arc::new(tickets);
        let stamps = Mutex::new(stamps(&settings, open));
        let config = configure(&settings, open, own.as_ref(), &provider, &tickets)?;
        let current = RwLock::new(Arc::new(config));
        Ok(Self { settings, open, provider, own, tickets, current, stamps })
    }

    /// Returns the files that it reads.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.settings.paths()
    }

    /// Begins a session with a client that has just connected.
    ///
    /// # Errors
    /// None that the client could cause: there is no memory.
    pub fn session(&self) -> Result<Session, Error> {
        let config = Arc::clone(&self.current.read());
        ServerConnection::new(config).map(Session::new).map_err(|error| Error(error.to_string()))
    }

    /// Reads the files again. After an error everything is as it was before.
    ///
    /// # Errors
    /// As of [`Acceptor::new`].
    pub fn reload(&self) -> Result<(), Error> {
        *self.stamps.lock() = stamps(&self.settings, self.open);
        let Self { settings, open, own, provider, tickets, .. } = self;
        let config = configure(settings, *open, own.as_ref(), provider, tickets)?;
        *self.current.write() = Arc::new(config);
        Ok(())
    }

    /// Returns the keys of session tickets, for a successor alone: who has them can read what the
    /// tickets of a session hold.
    pub fn ticket_keys(&self) -> Option<String> {
        self.tickets.to_text().ok()
    }

    /// Goes on with the keys of session tickets that a predecessor has passed, so that its clients
    /// resume their sessions. Returns false if they are not understood: then its tickets are not.
    pub fn take_ticket_keys(&self, keys: &str) -> bool {
        self.tickets.take_over(keys).is_ok()
    }

    /// Reads the files again if one has changed since they were last read; `None` if none has.
    pub fn reload_if_changed(&self) -> Option<Result<(), Error>> {
        let has_changed = *self.stamps.lock() != stamps(&self.settings, self.open);
        has_changed.then(|| self.reload())
    }
}

fn stamps(settings: &Settings, open: OpenFile) -> Vec<Stamp> {
    let stamp = |path| {
        // One in a directory that this process may not search can still be opened, perhaps.
        let metadata = fs::metadata(path).or_else(|_| open(path)?.metadata()).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    settings.paths().map(stamp).collect()
}

fn configure(
    settings: &Settings,
    open: OpenFile,
    own: Option<&Identity>,
    provider: &Arc<CryptoProvider>,
    tickets: &Arc<TicketKeys>,
) -> Result<ServerConfig, Error> {
    let read = settings.certificates.iter().map(|files| Identity::read(files, open, provider));
    let mut identities = read.collect::<Result<Vec<_>, _>>()?;
    identities.extend(own.cloned());
    let failed = |error: rustls::Error| Error(error.to_string());
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(failed)?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots(path, open)?);
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
            let verifier =
                verifier.map_err(|error| Error(format!("{}: {error}", path.display())))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(Certificates::new(&identities)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A ticket holds a session's state, so that no memory is shared by the loops, or grows.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // A session that is resumed shows no certificate of its client again: a ticket that was given
    // under other issuers' certificates must not count.
    let context = settings.client_ca.as_deref().map(|path| fingerprint(path, open));
    let context = context.transpose()?.unwrap_or_default();
    config.ticketer = Arc::new(Ticketer::new(tickets, context));
    Ok(config)
}
