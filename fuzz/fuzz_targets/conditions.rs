//! Conditional fields against a file's validators. See `weir_tests::checks::conditions`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::conditions(data));
