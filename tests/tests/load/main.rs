//! The load generator and the probe as their users see them: reports, errors and exit codes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken expectation is a failed test"
)]

mod counts;
mod errors;
mod link;
mod packet;
mod probe;
mod runs;
mod times;
mod tls;

/// The program under test.
const WEIR: &str = env!("CARGO_BIN_EXE_weir-under-test");
