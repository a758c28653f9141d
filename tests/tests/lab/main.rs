//! The laboratory as its users see it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken expectation is a failed test"
)]

mod experiments;
mod untrusted;

/// The program under test.
const WEIR: &str = env!("CARGO_BIN_EXE_weir-under-test");
