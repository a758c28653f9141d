//! The server when more is asked of it than it can do, or by clients who ask for too much.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a broken expectation is a failed test"
)]

mod at_link;
mod drops;
mod fairness;
mod far;
mod floods;
mod shares;
mod storm;
mod upstream;

/// The program under test.
const WEIR: &str = env!("CARGO_BIN_EXE_weir-under-test");
