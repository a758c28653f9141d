//! The header of a PROXY protocol connection. See `weir_tests::checks::proxy_protocol`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::proxy_protocol(data));
