//! The server: one connection machine under every architecture, mechanism and policy.
//!
//! [`Config`] describes a server; [`Server::start`] checks it and starts the loops. Nothing here
//! parses options or prints: messages for the operator go through [`Config::tell`].

pub mod arch;
mod bench;
#[doc(hidden)]
pub mod by_hand;
mod clock;
mod close_reason;
mod config;
mod conn;
mod control;
mod helpers;
mod link;
mod listen;
mod log;
mod output;
mod pace;
mod respond;
mod run;
mod service;
mod socket;
mod turn;

pub use config::{
    Address, Config, Error, ErrorPage, LogFormat, LogTarget, PRESETS, Preset, Strategy, Timeouts,
};
pub use run::{Server, Signal};
pub use weir_accept as accept;
pub use weir_content as content;
pub use weir_dispatch::readiness;
pub use weir_stats as stats;
