//! Replies as a client reads them, however cut. See `weir_tests::checks::reply`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_tests::checks::reply(data));
