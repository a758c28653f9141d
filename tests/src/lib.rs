//! What the black-box tests share: a server process, a strict blocking client, files to serve.
//!
//! Nothing here looks inside the server. It knows the command line, the ready line, signals and
//! HTTP. The one exception is [`checks`], which states properties of the pure crates for the
//! fuzz targets and for `tests/fuzz_corpus.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "here a broken expectation is a failed test"
)]

pub mod checks;
pub mod client;
pub mod faulty;
pub mod files;
pub mod load;
pub mod multipart;
pub mod mutate;
pub mod output;
pub mod patience;
pub mod reply;
pub mod server;

use weir_dispatch::readiness::{Row, TABLE};

pub use client::{Client, Failure, request};
pub use files::Root;
pub use reply::Reply;
pub use server::{Address, Server, Stopped};

/// Every value of `--mechanism` that this kernel has, and allows; says which it skips.
pub fn mechanisms() -> Vec<&'static str> {
    let possible = |row: &&Row| {
        let opened = row.name.try_open();
        if let Err(error) = &opened {
            eprintln!("SKIPPED: {} is not possible here: {error}", row.spelling);
        }
        opened.is_ok()
    };
    TABLE.iter().filter(possible).map(|row| row.spelling).collect()
}
