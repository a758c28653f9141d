//! TLS in front of a plain server, for the tests of a client: a relay that ends TLS with rustls and
//! passes on the content, so that any server of these tests can be met over TLS. What it does wrong
//! on purpose is its [`Fault`].
//!
//! It listens on a free port of 127.0.0.1, two threads relay each connection, and it counts
//! handshakes.

mod certificate;
mod fault;
mod relay;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use tempfile::TempDir;

pub use self::certificate::{Certificate, Signer};
use self::fault::Counts;
pub use self::fault::Fault;
use self::relay::Relay;

/// Both versions of TLS, the newer first.
pub const VERSIONS: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

/// Settings of a front.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// Versions that it speaks.
    pub versions: &'static [&'static SupportedProtocolVersion],
    /// What it does wrong.
    pub fault: Fault,
    /// Who signs its certificate.
    pub signer: Signer,
    /// True if it asks clients for the certificate of [`TlsFront::client_file`].
    pub asks_for_certificate: bool,
}

impl Default for FrontSettings {
    fn default() -> Self {
        Self {
            versions: VERSIONS,
            fault: Fault::None,
            signer: Signer::Itself,
            asks_for_certificate: false,
        }
    }
}

/// TLS in front of a server; stopped when dropped.
pub struct TlsFront {
    address: SocketAddr,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    dir: TempDir,
}

impl TlsFront {
    /// Starts a front of `server`.
    pub fn start(server: SocketAddr, settings: &FrontSettings) -> TlsFront {
        let dir = TempDir::new().unwrap();
        let (certificate, client) =
            (Certificate::new(settings.signer), Certificate::new(Signer::Itself));
        std::fs::write(dir.path().join("ca.pem"), certificate.trusted_pem()).unwrap();
        std::fs::write(dir.path().join("client.pem"), client.pem_with_key()).unwrap();
        let config = Arc::new(config(settings, &certificate, &client));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (counts, stop) = (Arc::<Counts>::default(), Arc::<AtomicBool>::default());
        let front = TlsFront { address, counts: Arc::clone(&counts), stop: Arc::clone(&stop), dir };
        let fault = settings.fault;
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                counts.accepted.fetch_add(1, Ordering::Relaxed);
                let (config, counts) = (Arc::clone(&config), Arc::clone(&counts));
                thread::spawn(move || Relay::run(client, server, config, fault, &counts));
            }
        });
        front
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a URL of the server, over TLS.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Returns the file with the certificate to trust.
    pub fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Returns the file with a client's certificate and its key.
    pub fn client_file(&self) -> PathBuf {
        self.dir.path().join("client.pem")
    }

    /// Returns the number of connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// Returns the numbers of handshakes done so far: full ones, and resumed ones.
    pub fn handshakes(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.counts.full), of(&self.counts.resumed))
    }

    /// Returns the number of times that new keys were asked for.
    pub fn key_updates(&self) -> u64 {
        self.counts.key_updates.load(Ordering::Relaxed)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Only to wake the thread that accepts.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn config(settings: &FrontSettings, own: &Certificate, client: &Certificate) -> ServerConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(settings.versions)
        .unwrap();
    let builder = if settings.asks_for_certificate {
        let mut roots = RootCertStore::empty();
        roots.add(client.der()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    builder.with_single_cert(own.chain(), own.key()).unwrap()
}
