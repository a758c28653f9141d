//! Scalable select beside select(2): the same sets, the same counts, the same errors, after any
//! history. Uses the public interface only.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a broken expectation is a failed test")]

mod histories;
mod maps;
mod waits;
mod world;
