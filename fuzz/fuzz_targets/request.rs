//! Request heads, however cut. See `weir_tests::checks::request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::request(data));
