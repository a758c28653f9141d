//! The beginning of a TLS connection. See `weir_tests::checks::tls`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::tls(data));
