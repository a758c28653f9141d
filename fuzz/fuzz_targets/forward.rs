//! A forwarded request and its reply, in any order. See
//! `weir_tests::checks::forward`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::forward(data));
