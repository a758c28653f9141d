//! Request bodies, however cut. See `weir_tests::checks::body`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::body(data));
