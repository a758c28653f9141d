//! The open-loop load generator: a schedule that never waits for the server, a driver that keeps
//! it, and measures that say how well.
//!
//! What is planned ([`schedule`], [`session`], [`workload`]) is pure and seeded. What happens is in
//! the driver alone, which is the only part that knows sockets and the clock.
//! Nothing here prints, reads arguments, or knows a server from the inside.

pub mod config;
mod driver;
pub mod measure;
pub mod schedule;
pub mod session;
pub mod supply;
pub mod workload;

pub use driver::{Error, open_limit, run};
