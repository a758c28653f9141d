//! TLS as a client speaks it (RFC 8446, RFC 5246): which versions and ciphers are offered, whom the
//! client trusts, who it is, and whether sessions are resumed. Made once for a run; each thread has
//! its own tickets. No sockets and no clock but that of the certificates' validity.

mod setup;
mod suites;
mod tickets;

use std::sync::Arc;

use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, Error};

pub use self::setup::{TlsRequest, Version, prepare};
pub use self::suites::suite_names;
use self::tickets::Tickets;
use crate::measure::ErrorKind;
pub use weir_tls::client::{ClientIdentity, Trust, of_system};

/// The client's side of TLS for a run.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    config: ClientConfig,
    server_name: ServerName<'static>,
    resumes: bool,
}

impl TlsSettings {
    /// Returns what makes the connections of one thread.
    pub(crate) fn connector(&self) -> Connector {
        let mut config = self.config.clone();
        config.resumption = if self.resumes {
            Resumption::store(Arc::new(Tickets::default()))
        } else {
            Resumption::disabled()
        };
        Connector { config: Arc::new(config), server_name: self.server_name.clone() }
    }
}

/// Makes the TLS connections of a thread, which have their tickets in common.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

impl Connector {
    /// Begins a connection: its first message is to be sent.
    ///
    /// # Errors
    /// No random numbers are to be had.
    pub(crate) fn connect(&self) -> Result<UnbufferedClientConnection, Error> {
        UnbufferedClientConnection::new(Arc::clone(&self.config), self.server_name.clone())
    }
}

/// Maps an error of TLS to its kind. An alert about a certificate is about this client's.
pub(crate) fn error_kind(error: &Error) -> ErrorKind {
    match error {
        Error::InvalidCertificate(_)
        | Error::InvalidCertRevocationList(_)
        | Error::NoCertificatesPresented
        | Error::UnsupportedNameType
        | Error::AlertReceived(
            AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA,
        ) => ErrorKind::TlsCertificate,
        _ => ErrorKind::TlsProtocol,
    }
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

    use super::*;

    #[test]
    fn a_certificate_is_at_fault_whichever_side_says_so() {
        let certificate = [
            Error::InvalidCertificate(CertificateError::Expired),
            Error::AlertReceived(AlertDescription::CertificateRequired),
            Error::AlertReceived(AlertDescription::UnknownCA),
        ];
        assert!(certificate.iter().all(|error| error_kind(error) == ErrorKind::TlsCertificate));
        let protocol =
            [Error::AlertReceived(AlertDescription::HandshakeFailure), Error::DecryptError];
        assert!(protocol.iter().all(|error| error_kind(error) == ErrorKind::TlsProtocol));
    }
}
