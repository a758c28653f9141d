//! The options of TLS.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args};
use weir_server::architecture::ArchitectureName;
use weir_server::tls::{Acceptor, CertificateFiles, Settings};
use weir_server::{Address, files};

use crate::values::{self, OnOff, with_option};

/// TLS on the addresses that begin with https://.
#[derive(Debug, Args)]
pub(crate) struct TlsOptions {
    /// A certificate for the addresses with https://, in PEM, with those up to a root behind it;
    /// may be repeated, and is then chosen by the name that the client asks for
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_cert: Vec<PathBuf>,

    /// The private key of the certificate, in PEM; as many and in the same order
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_key: Vec<PathBuf>,

    /// The OCSP response for the certificate, in DER, which is sent along; as many and in the same
    /// order, or none
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_ocsp: Vec<PathBuf>,

    /// Make a certificate for localhost and the addresses listened on, signed by itself: for a
    /// first try
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true, help_heading = "TLS")]
    pub tls_self_signed: OnOff,

    /// Refuse clients without a certificate issued by one of these, in PEM
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_client_ca: Option<PathBuf>,

    /// Redirect requests that come without TLS to https:// at the host that they name, with the
    /// port of the first address with https://
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", action = ArgAction::Set, default_value = "off",
          hide_default_value = true, hide_possible_values = true, help_heading = "TLS")]
    pub redirect_https: OnOff,

    /// Tell browsers for how long they are to come by TLS only (Strict-Transport-Security),
    /// seconds; 0: say nothing
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = values::duration,
          help_heading = "TLS")]
    pub hsts: Duration,
}

impl TlsOptions {
    /// Reads the certificates; `None` if no address is with TLS.
    ///
    /// # Errors
    /// A sentence: a file is not what it should be, or options do not fit together.
    pub(crate) fn acceptor(
        &self,
        listen: &[Address],
        arch: ArchitectureName,
    ) -> Result<Option<Arc<Acceptor>>, String> {
        if !listen.iter().any(|address| matches!(address, Address::Tls(_))) {
            return self.unused().map_or(Ok(None), |option| {
                Err(format!("{option} is for an address with TLS: --listen https://HOST:PORT"))
            });
        }
        if let Some(why) = arch.row().tls_not {
            return Err(format!("--arch {} speaks no TLS: {why}", arch.row().spelling));
        }
        let makes = self.tls_self_signed == OnOff::On;
        if self.tls_cert.is_empty() && !makes {
            return Err("an address with https:// needs --tls-cert and --tls-key, or \
                        --tls-self-signed"
                .into());
        }
        let settings = Settings {
            certificates: self.certificates()?,
            self_signed: if makes { names(listen) } else { Vec::new() },
            client_ca: self.tls_client_ca.clone(),
        };
        let acceptor = Acceptor::new(settings, files::open);
        let acceptor = acceptor.map_err(|error| self.blame(error.to_string()))?;
        Ok(Some(Arc::new(acceptor)))
    }

    /// Puts the option before an error in one of its files.
    fn blame(&self, error: String) -> String {
        let options = [
            ("--tls-cert", &self.tls_cert[..]),
            ("--tls-key", &self.tls_key[..]),
            ("--tls-ocsp", &self.tls_ocsp[..]),
            ("--tls-client-ca", self.tls_client_ca.as_slice()),
        ];
        with_option(error, &options)
    }

    /// Returns the field lines that replies over TLS have besides the others.
    pub(crate) fn fields(&self) -> String {
        match self.hsts.as_secs() {
            0 => String::new(),
            age_s => format!("Strict-Transport-Security: max-age={age_s}\r\n"),
        }
    }

    /// Returns an option that is given and means nothing without TLS.
    fn unused(&self) -> Option<&'static str> {
        let given = [
            ("--tls-cert", !self.tls_cert.is_empty()),
            ("--tls-key", !self.tls_key.is_empty()),
            ("--tls-ocsp", !self.tls_ocsp.is_empty()),
            ("--tls-self-signed", self.tls_self_signed == OnOff::On),
            ("--tls-client-ca", self.tls_client_ca.is_some()),
            ("--redirect-https", self.redirect_https == OnOff::On),
            ("--hsts", self.hsts > Duration::ZERO),
        ];
        given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }

    fn certificates(&self) -> Result<Vec<CertificateFiles>, String> {
        let (certs, keys, ocsp) = (&self.tls_cert, &self.tls_key, &self.tls_ocsp);
        if certs.len() != keys.len() {
            return Err(format!(
                "each --tls-cert has its --tls-key, and there are {} and {}",
                certs.len(),
                keys.len()
            ));
        }
        if !ocsp.is_empty() && ocsp.len() != certs.len() {
            return Err(format!(
                "each --tls-cert has its --tls-ocsp if one has, and there are {} and {}",
                certs.len(),
                ocsp.len()
            ));
        }
        let pairs = certs.iter().zip(keys).enumerate();
        Ok(pairs
            .map(|(index, (certificate, key))| CertificateFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                ocsp: ocsp.get(index).cloned(),
            })
            .collect())
    }
}

/// Returns the names and addresses by which a server that listens on these is known.
fn names(listen: &[Address]) -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    for address in listen {
        if let Address::Tls(address) = address {
            names.extend(reachable(*address).map(|ip| ip.to_string()));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the addresses by which clients on this machine reach a listener.
fn reachable(address: SocketAddr) -> impl Iterator<Item = IpAddr> {
    let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    let is_any = address.ip().is_unspecified();
    let own = (!is_any).then_some(address.ip());
    own.into_iter().chain(loopback.into_iter().filter(move |_| is_any))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_its_own_is_for_every_address_and_for_localhost() {
        let listen = |address: &str| Address::Tls(address.parse().unwrap());
        let plain = Address::Tcp("192.0.2.1:80".parse().unwrap());
        assert_eq!(names(&[listen("192.0.2.7:443"), plain]), ["192.0.2.7", "localhost"]);
        assert_eq!(names(&[listen("0.0.0.0:443")]), ["127.0.0.1", "::1", "localhost"]);
    }
}
