//! The `Range` field against any length. See `weir_tests::checks::range`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::range(data));
