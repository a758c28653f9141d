//! The `Accept-Encoding` field against the variants at hand.
//! See `weir_tests::checks::accept_encoding`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::accept_encoding(data));
