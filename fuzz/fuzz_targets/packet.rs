//! weir's own TCP under any frame and segment. See `weir_tests::checks::packet`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::packet(data));
