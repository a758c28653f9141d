//! The server's side of TLS as configured: which certificates it has, and whom it lets in. Its
//! files are read again while it is in use.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use parking_lot::{Mutex, RwLock};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection};

use crate::identity::{
    CertificateFiles, Error, Identity, OpenFile, certificates, fingerprint, roots,
};
use crate::resolver::Certificates;
use crate::session::{ClientCheck, Session};
use crate::tickets::{TicketKeys, Ticketer};

/// The one protocol spoken inside (ALPN, RFC 7301).
pub(crate) const PROTOCOL: &[u8] = b"http/1.1";

/// Pause before a file that could not be read is tried again, as a multiple of the time that the
/// failure took. An open that hangs, of a disk or of the process that keeps the privileges, must
/// not take all of the caller's time.
const RETRY_PAUSE: u32 = 10;

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

/// Signs that a file has changed, if it is there: the times of its modification and of its change
/// (st_mtim, st_ctim: inode(7)), and its length. Who may read it changes only the second.
type Stamp = Option<([i64; 2], [i64; 2], u64)>;

/// State of the files when they were last read.
struct Seen {
    stamps: Vec<Stamp>,
    failure: Option<Failure>,
}

/// A file that could not be read, for a reason that may pass without a change of any: too many open
/// files, an answer that did not come in time.
struct Failure {
    error: Error,
    /// Time from which on it is tried again.
    again_at: Instant,
}

/// A configuration, and what a session takes from it that rustls does not hand out.
#[derive(Clone)]
struct Current {
    config: Arc<ServerConfig>,
    /// Verifier of clients' certificates; `None` if they need none.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// The configuration that handshakes begin with, which may be replaced at any time. Sessions go on
/// with the one they began with.
pub struct Acceptor {
    settings: Settings,
    open: OpenFile,
    provider: Arc<CryptoProvider>,
    own: Option<Identity>,
    tickets: Arc<TicketKeys>,
    current: RwLock<Current>,
    seen: Mutex<Seen>,
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
        let tickets = TicketKeys::new().map_err(|_| Error::new("there is no randomness"))?;
        let tickets = Arc::new(tickets);
        let seen = Mutex::new(Seen { stamps: stamps(&settings, open), failure: None });
        let current = configure(&settings, open, own.as_ref(), &provider, &tickets)?;
        let current = RwLock::new(current);
        Ok(Self { settings, open, provider, own, tickets, current, seen })
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
        let Current { config, verifier } = self.current.read().clone();
        let time = Arc::clone(&config.time_provider);
        let check = verifier.map(|verifier| ClientCheck { verifier, time });
        let conn = ServerConnection::new(config);
        let session = conn.map(|conn| Session::new(conn, check));
        session.map_err(|error| Error::new(error.to_string()))
    }

    /// Reads the files again. After an error everything is as it was before.
    ///
    /// # Errors
    /// As of [`Acceptor::new`].
    pub fn reload(&self) -> Result<(), Error> {
        // Looked at before, so that what changes meanwhile is noticed later.
        self.read(stamps(&self.settings, self.open))
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

    /// Begins another sequence of keys of session tickets, so that a process that was forked
    /// before, and takes no part in serving, has none of them.
    ///
    /// # Errors
    /// There is no randomness; the keys are as they were.
    pub fn renew_ticket_keys(&self) -> Result<(), Error> {
        self.tickets.begin_anew().map_err(|_| Error::new("there is no randomness"))
    }

    /// Forgets the keys of session tickets that have passed, as else is done when a session asks
    /// for one, which may not be for hours. Returns the time until the next one has passed.
    pub fn forget_passed_keys(&self) -> Duration {
        self.tickets.forget_passed()
    }

    /// Reads the files again if one has changed since they were last read, or could not be read
    /// then; `None` if there is nothing new: none has, or the failure is the one of the last time.
    pub fn reload_if_changed(&self) -> Option<Result<(), Error>> {
        let stamps = stamps(&self.settings, self.open);
        let last = {
            let seen = self.seen.lock();
            let is_due = seen.failure.as_ref().is_some_and(|it| it.again_at <= Instant::now());
            if seen.stamps == stamps && !is_due {
                return None;
            }
            seen.failure.as_ref().map(|failure| failure.error.clone())
        };
        let outcome = self.read(stamps);
        let is_told = last.is_some() && outcome.as_ref().err() == last.as_ref();
        (!is_told).then_some(outcome)
    }

    /// Returns whether a file could not be read the last time, so that
    /// [`Self::reload_if_changed`] will try it again though it has not changed.
    pub fn is_behind(&self) -> bool {
        self.seen.lock().failure.is_some()
    }

    fn read(&self, stamps: Vec<Stamp>) -> Result<(), Error> {
        let begun = Instant::now();
        let Self { settings, open, own, provider, tickets, .. } = self;
        let outcome = match configure(settings, *open, own.as_ref(), provider, tickets) {
            Ok(current) => {
                *self.current.write() = current;
                Ok(())
            }
            Err(error) => Err(error),
        };
        // What a file has stays wrong until the file changes.
        let unread = outcome.as_ref().err().filter(|error| error.is_of_reading);
        let again_at = Instant::now() + begun.elapsed().saturating_mul(RETRY_PAUSE);
        let failure = unread.map(|error| Failure { error: error.clone(), again_at });
        *self.seen.lock() = Seen { stamps, failure };
        outcome
    }
}

fn stamps(settings: &Settings, open: OpenFile) -> Vec<Stamp> {
    let stamp = |path| {
        // One in a directory that this process may not search can still be opened, perhaps.
        let metadata = fs::metadata(path).or_else(|_| open(path)?.metadata()).ok()?;
        let modified = [metadata.mtime(), metadata.mtime_nsec()];
        Some((modified, [metadata.ctime(), metadata.ctime_nsec()], metadata.len()))
    };
    settings.paths().map(stamp).collect()
}

fn configure(
    settings: &Settings,
    open: OpenFile,
    own: Option<&Identity>,
    provider: &Arc<CryptoProvider>,
    tickets: &Arc<TicketKeys>,
) -> Result<Current, Error> {
    let read = settings.certificates.iter().map(|files| Identity::read(files, open, provider));
    let mut identities = read.collect::<Result<Vec<_>, _>>()?;
    identities.extend(own.cloned());
    let failed = |error: rustls::Error| Error::new(error.to_string());
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(failed)?;
    let trust = settings.client_ca.as_deref().map(|path| client_trust(path, open, provider));
    let trust = trust.transpose()?;
    let builder = match &trust {
        None => builder.with_no_client_auth(),
        Some((verifier, _)) => builder.with_client_cert_verifier(Arc::clone(verifier)),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Certificates::new(&identities)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A ticket holds a session's state, so that no memory is shared by the loops, or grows.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // A session that is resumed shows no certificate of its client again: a ticket that was given
    // under other issuers' certificates must not count.
    let (verifier, context) = trust.unzip();
    config.ticketer = Arc::new(Ticketer::new(tickets, context.unwrap_or_default()));
    Ok(Current { config: Arc::new(config), verifier })
}

/// Returns a verifier of clients' certificates, and the digest of the issuers' that it trusts. Both
/// are of one reading: the file may be replaced at any time.
fn client_trust(
    path: &Path,
    open: OpenFile,
    provider: &Arc<CryptoProvider>,
) -> Result<(Arc<dyn ClientCertVerifier>, Vec<u8>), Error> {
    let issuers = certificates(path, open)?;
    let roots = Arc::new(roots(path, &issuers)?);
    let built = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
    let verifier = built.map_err(|error| Error::new(format!("{}: {error}", path.display())))?;
    Ok((verifier, fingerprint(&issuers)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{self, Write};
    use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName, UnixTime};
    use rustls::time_provider::TimeProvider;
    use rustls::{ClientConfig, ClientConnection, SupportedProtocolVersion};

    use crate::client::{Trust, verifier};
    use crate::session::Handshake;
    use crate::session::tests::talk;

    /// Errors of a process, and of all, that have too many open files (errno(3)).
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;

    /// Writes a certificate and its key in a directory of a test's own, which is returned with
    /// settings that name them.
    fn written(name: &str) -> (PathBuf, Settings) {
        let dir = std::env::temp_dir().join(format!("weir-acceptor-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let made = rcgen::generate_simple_self_signed(["test".to_owned()]).unwrap();
        let (certificate, key) = (dir.join("certificate"), dir.join("key"));
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let files = CertificateFiles { certificate, key, ocsp: None };
        (dir, Settings { certificates: vec![files], ..Settings::default() })
    }

    /// A clock that a test sets, seconds since 1970.
    #[derive(Debug)]
    struct Clock(AtomicU64);

    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            let now_s = self.0.load(Ordering::Relaxed);
            Some(UnixTime::since_unix_epoch(Duration::from_secs(now_s)))
        }
    }

    /// An issuer of clients' certificates, in PEM, and clients of one version each with one by it
    /// that is valid until 2030.
    fn issued() -> (String, [Arc<ClientConfig>; 2]) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an issuer");
        let (issuer_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let issuers = params.self_signed(&issuer_key).unwrap().pem();
        let mut own = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        own.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = own.signed_by(&key, &Issuer::new(params, issuer_key)).unwrap();
        let client = |version: &'static SupportedProtocolVersion| {
            let provider = Arc::new(default_provider());
            let trusting = verifier(&Trust::Any, &provider, "").unwrap();
            let own_key = PrivatePkcs8KeyDer::from(key.serialize_der());
            let config = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(trusting)
                .with_client_auth_cert(vec![certificate.der().clone()], own_key.into());
            Arc::new(config.unwrap())
        };
        (issuers, [client(&TLS13), client(&TLS12)])
    }

    fn until(mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(30));
        }
    }

    #[test]
    fn a_file_that_could_not_be_read_is_tried_until_it_can_and_told_of_once() {
        static ERRNO: AtomicI32 = AtomicI32::new(0);
        static REFUSED: AtomicU32 = AtomicU32::new(0);
        fn open(path: &Path) -> io::Result<File> {
            match ERRNO.load(Ordering::Relaxed) {
                0 => File::open(path),
                errno => {
                    REFUSED.fetch_add(1, Ordering::Relaxed);
                    Err(io::Error::from_raw_os_error(errno))
                }
            }
        }
        let (dir, settings) = written("unread");
        let acceptor = Acceptor::new(settings, open).unwrap();
        assert_eq!(acceptor.reload_if_changed(), None);
        ERRNO.store(EMFILE, Ordering::Relaxed);
        let error = acceptor.reload().unwrap_err();
        assert!(acceptor.is_behind());
        until(|| {
            assert_eq!(acceptor.reload_if_changed(), None);
            REFUSED.load(Ordering::Relaxed) > 2
        });
        ERRNO.store(ENFILE, Ordering::Relaxed);
        let mut other = None;
        until(|| {
            other = acceptor.reload_if_changed();
            other.is_some()
        });
        assert_ne!(other.unwrap().unwrap_err(), error);
        ERRNO.store(0, Ordering::Relaxed);
        until(|| acceptor.reload_if_changed() == Some(Ok(())));
        assert!(!acceptor.is_behind());
        assert_eq!(acceptor.reload_if_changed(), None);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_client_whose_certificate_has_expired_resumes_no_session() {
        let [in_2029, in_2031] = [1_861_920_000, 1_924_992_000];
        let (dir, mut settings) = written("expired");
        let (issuers, clients) = issued();
        let path = dir.join("issuers");
        fs::write(&path, issuers).unwrap();
        settings.client_ca = Some(path);
        let acceptor = Acceptor::new(settings, |path| File::open(path)).unwrap();
        let clock = Arc::new(Clock(AtomicU64::new(in_2029)));
        let mut config = ServerConfig::clone(&acceptor.current.read().config);
        config.time_provider = clock.clone();
        acceptor.current.write().config = Arc::new(config);
        for config in clients {
            let come = |now_s| {
                clock.0.store(now_s, Ordering::Relaxed);
                let name = ServerName::try_from("test").unwrap();
                let mut client = ClientConnection::new(Arc::clone(&config), name).unwrap();
                client.writer().write_all(b"request").unwrap();
                let mut session = acceptor.session().unwrap();
                let received = talk(&mut client, &mut session);
                (session.handshake(), received)
            };
            assert_eq!(come(in_2029), (Handshake::Full, b"request".to_vec()));
            assert_eq!(come(in_2029), (Handshake::Resumed, b"request".to_vec()));
            assert_eq!(come(in_2031), (Handshake::Failed, Vec::new()));
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_issuers_that_are_trusted_are_those_that_tickets_are_bound_to() {
        static READ: AtomicU32 = AtomicU32::new(0);
        fn open(path: &Path) -> io::Result<File> {
            READ.fetch_add(path.ends_with("issuers").into(), Ordering::Relaxed);
            File::open(path)
        }
        let (dir, mut settings) = written("issuers");
        let path = dir.join("issuers");
        fs::write(&path, issued().0).unwrap();
        settings.client_ca = Some(path);
        let acceptor = Acceptor::new(settings, open).unwrap();
        assert_eq!(READ.load(Ordering::Relaxed), 1);
        acceptor.reload().unwrap();
        assert_eq!(READ.load(Ordering::Relaxed), 2);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_change_of_who_may_read_a_file_is_noticed_and_one_of_no_use_is_read_once() {
        fn open(path: &Path) -> io::Result<File> {
            File::open(path)
        }
        let (dir, settings) = written("changed");
        let key = settings.certificates[0].key.clone();
        let acceptor = Acceptor::new(settings, open).unwrap();
        let before = fs::metadata(&key).unwrap();
        let changed = |about: &fs::Metadata| (about.ctime(), about.ctime_nsec());
        // A file system's clock may go by ticks.
        until(|| {
            fs::set_permissions(&key, before.permissions()).unwrap();
            changed(&fs::metadata(&key).unwrap()) != changed(&before)
        });
        let after = fs::metadata(&key).unwrap();
        assert_eq!(after.modified().unwrap(), before.modified().unwrap());
        assert_eq!(acceptor.reload_if_changed(), Some(Ok(())));
        assert_eq!(acceptor.reload_if_changed(), None);
        fs::write(&key, "no key").unwrap();
        assert!(acceptor.reload_if_changed().unwrap().is_err());
        assert!(!acceptor.is_behind());
        assert_eq!(acceptor.reload_if_changed(), None);
        fs::remove_dir_all(dir).unwrap();
    }
}
