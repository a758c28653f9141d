//! The route of a request, by its host and its path. See `weir_tests::checks::sites`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::sites(data));
