//! Names of cipher suites: those of IANA's registry, and OpenSSL's, under which servers are usually
//! configured.

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedCipherSuite};

/// A cipher suite: its number, its name in IANA's registry, and OpenSSL's, which for those of
/// TLS 1.3 is the same.
const SUITES: [(CipherSuite, &str, &str); 9] = [
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    (
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
];

/// Returns the names of all cipher suites, as IANA has them.
pub fn suite_names() -> impl Iterator<Item = &'static str> {
    SUITES.iter().map(|(_, name, _)| *name)
}

/// Returns the suites of `provider` with these names, in their order.
///
/// # Errors
/// A sentence with the first name that is of no suite, and all that are.
pub(super) fn named(
    provider: &CryptoProvider,
    names: &[String],
) -> Result<Vec<SupportedCipherSuite>, String> {
    let suite = |name: &String| {
        let is_named = |given: &&str| given.eq_ignore_ascii_case(name);
        let row =
            SUITES.iter().find(|(_, iana, openssl)| [iana, openssl].into_iter().any(is_named));
        let of = |number| provider.cipher_suites.iter().find(|suite| suite.suite() == number);
        row.and_then(|(number, ..)| of(*number).copied()).ok_or_else(|| {
            let known: Vec<&str> = suite_names().collect();
            format!("--tls-ciphers: there is no {name}; there are {}", known.join(", "))
        })
    };
    names.iter().map(suite).collect()
}

#[cfg(test)]
mod tests {
    use super::super::setup::provider;
    use super::*;

    #[test]
    fn every_suite_of_the_provider_has_its_names() {
        let provider = provider();
        assert_eq!(provider.cipher_suites.len(), SUITES.len());
        for (number, iana, openssl) in SUITES {
            for name in [iana, openssl] {
                let [suite] = named(&provider, &[name.to_owned()]).unwrap()[..] else { panic!() };
                assert_eq!(suite.suite(), number, "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_suite_is_refused_with_those_there_are() {
        let refused = named(&provider(), &["RC4-MD5".into()]).unwrap_err();
        assert!(refused.contains("no RC4-MD5") && refused.contains("TLS_AES_128_GCM_SHA256"));
    }
}
