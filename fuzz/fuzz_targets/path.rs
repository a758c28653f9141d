//! Paths of request targets, and redirects to them. See `weir_tests::checks::path`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::path(data));
