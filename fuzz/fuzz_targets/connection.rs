//! The connection machine under any bytes, readiness and clock. See
//! `weir_tests::checks::connection`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::connection(data));
