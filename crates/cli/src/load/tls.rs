//! The TLS of a run: its options, and what is made of them and the files that they name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use weir_load::tls::{self, ClientIdentity, TlsRequest, TlsSettings, Trust, Version, of_system};

use super::input;
use super::target::Target;

/// TLS, of https:// URLs.
#[derive(Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsOptions {
    /// Resume sessions: only a connection that finds no ticket makes a full handshake
    #[arg(long)]
    pub tls_resume: bool,

    /// The only version of TLS to offer; by default both
    #[arg(long, value_name = "VERSION")]
    pub tls_version: Option<TlsVersion>,

    /// Cipher suites to offer, by IANA's names or OpenSSL's, the preferred first; by default all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tls_ciphers: Vec<String>,

    /// Accept any certificate
    #[arg(long, conflicts_with = "cacert")]
    pub insecure: bool,

    /// Certificates (PEM) to trust, and those that they have signed, in place of the system's
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// The client's own certificate (PEM), for servers that ask for one
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// Its key (PEM); by default in the same file
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// Name that the server is asked for, and its certificate checked against; by default the URL's
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsVersion {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

impl TlsOptions {
    /// Returns the TLS towards `target`; `None` for plain HTTP.
    ///
    /// # Errors
    /// A sentence: a file cannot be used, or an option is for https:// URLs.
    pub(crate) fn settings(&self, target: &Target) -> Result<Option<Arc<TlsSettings>>, String> {
        if !target.is_secure {
            return self.first_given().map_or(Ok(None), |option| {
                Err(format!("{option} is for https:// URLs, and {} is not one", target.url))
            });
        }
        let request = TlsRequest {
            server_name: self.sni.clone().unwrap_or_else(|| target.host_name()),
            version: self.tls_version.map(|version| match version {
                TlsVersion::Tls12 => Version::Tls12,
                TlsVersion::Tls13 => Version::Tls13,
            }),
            ciphers: self.tls_ciphers.clone(),
            trust: match &self.cacert {
                _ if self.insecure => Trust::Any,
                None => Trust::System(of_system()),
                Some(file) => Trust::Given { file: shown(file), pem: read("--cacert", file)? },
            },
            identity: self.cert.as_ref().map(|cert| self.identity(cert)).transpose()?,
            resumes: self.tls_resume,
        };
        tls::prepare(&request).map(|settings| Some(Arc::new(settings)))
    }

    fn identity(&self, cert: &Path) -> Result<ClientIdentity, String> {
        let key = self.key.as_deref().unwrap_or(cert);
        Ok(ClientIdentity {
            cert_file: shown(cert),
            cert_pem: read("--cert", cert)?,
            key_file: shown(key),
            key_pem: read("--key", key)?,
        })
    }

    /// Returns the first of these options that was given.
    fn first_given(&self) -> Option<&'static str> {
        let all = [
            (self.tls_resume, "--tls-resume"),
            (self.tls_version.is_some(), "--tls-version"),
            (!self.tls_ciphers.is_empty(), "--tls-ciphers"),
            (self.insecure, "--insecure"),
            (self.cacert.is_some(), "--cacert"),
            (self.cert.is_some(), "--cert"),
            (self.sni.is_some(), "--sni"),
        ];
        all.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }

    /// Describes in words what is offered.
    pub(crate) fn description(&self) -> String {
        let version = match self.tls_version {
            None => "TLS 1.3 or 1.2",
            Some(TlsVersion::Tls12) => "TLS 1.2",
            Some(TlsVersion::Tls13) => "TLS 1.3",
        };
        let handshakes = if self.tls_resume { "sessions resumed" } else { "full handshakes" };
        let mut words = vec![version.to_owned(), handshakes.into()];
        if !self.tls_ciphers.is_empty() {
            words.push(self.tls_ciphers.join(" "));
        }
        words.extend(self.insecure.then(|| "certificates not checked".into()));
        words.extend(self.cert.is_some().then(|| "with a client's certificate".into()));
        words.extend(self.sni.as_ref().map(|name| format!("for {name}")));
        words.join(", ")
    }
}

fn read(option: &str, file: &Path) -> Result<Vec<u8>, String> {
    input::file(file).map_err(|error| format!("{option} {}: {error}", file.display()))
}

fn shown(file: &Path) -> String {
    file.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_options;
    use super::*;

    fn settings(line: &str, url: &str) -> Result<bool, String> {
        let options = run_options(line).conns.tls;
        options.settings(&Target::parse(url)?).map(|settings| settings.is_some())
    }

    #[test]
    fn only_an_https_url_has_tls() {
        assert_eq!(settings("", "http://h/"), Ok(false));
        assert_eq!(settings("--insecure", "https://h/"), Ok(true));
        for option in ["--tls-resume", "--tls-version 1.2", "--insecure", "--cert x", "--sni h"] {
            let refused = settings(option, "http://h/").unwrap_err();
            let name = option.split(' ').next().unwrap();
            assert!(refused.starts_with(name) && refused.contains("https://"), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_of_no_use_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        std::fs::write(&file, "nothing\n").unwrap();
        let file = file.display();
        for (line, part) in [
            ("--cacert /nowhere/x".to_owned(), "--cacert /nowhere/x: "),
            (format!("--cacert {file}"), "no certificate"),
            (format!("--insecure --cert {file}"), "no certificate"),
            (format!("--insecure --cert {file} --key /nowhere/x"), "--key /nowhere/x: "),
            ("--insecure --tls-ciphers NULL-MD5".into(), "no NULL-MD5"),
        ] {
            let refused = settings(&line, "https://h/").unwrap_err();
            assert!(refused.contains(part) && !refused.contains('\n'), "{line}: {refused}");
        }
    }

    #[test]
    fn what_is_offered_is_described() {
        let described = |line| run_options(line).conns.tls.description();
        assert_eq!(described(""), "TLS 1.3 or 1.2, full handshakes");
        let line = "--tls-version 1.3 --tls-resume --insecure --sni h";
        let words = "TLS 1.3, sessions resumed, certificates not checked, for h";
        assert_eq!(described(line), words);
    }
}
