//! Shared code of the black-box tests: a server process, a strict blocking client, files to serve.
//!
//! Nothing here looks inside the server. It uses the command line, the ready line, signals and
//! HTTP. The exceptions are [`setups`], which reads the tables that the options are made from, and
//! [`checks`], which states properties of the pure crates for the fuzz targets and for
//! `tests/fuzz_corpus.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "here a broken expectation is a failed test"
)]

pub mod address;
pub mod bytes;
pub mod canonical;
pub mod checks;
pub mod client;
pub mod family;
pub mod faulty;
pub mod files;
pub mod link;
pub mod load;
pub mod multipart;
pub mod mutate;
pub mod origin;
pub mod output;
pub mod own_link;
pub mod remote_link;
pub mod reply;
pub mod server;
pub mod setups;
pub mod tls;
pub mod tls_front;
pub mod wait;

pub use address::Address;
pub use bytes::assert_same;
pub use client::{Client, Failure, request};
pub use files::Root;
pub use origin::Origin;
pub use reply::Reply;
pub use server::{Server, Stopped};
pub use setups::{Setup, mechanisms};
