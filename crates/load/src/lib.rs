//! The open-loop load generator: a schedule that never waits for the server, a driver that keeps
//! it, and measures that say how well.
//!
//! What is planned ([`schedule`], [`session`], [`workload`]) is pure and seeded. What happens is in
//! the driver alone, which is the only part that knows sockets and the clock. What is made of it
//! ([`audit`], [`condition`], [`report`], [`scan`]) is computed from [`measure::Outcome`].
//! Nothing here prints, reads arguments, or knows a server from the inside.

pub mod audit;
pub mod condition;
pub mod config;
mod driver;
pub mod measure;
pub mod report;
pub mod scan;
pub mod schedule;
pub mod session;
pub mod supply;
pub mod workload;

pub use driver::{Error, open_limit, run};
