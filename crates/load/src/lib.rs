//! Open-loop load generator: a schedule that never waits for the server, a driver that keeps it,
//! and measurements that show how well it was kept.
//!
//! Plans ([`schedule`], [`session`], [`workload`]) are pure and seeded. Only the driver and the
//! [`link`] for other programs use sockets and the clock; [`tls`] has whom a client trusts. Results
//! ([`audit`], [`condition`], [`report`], [`scan`]) are computed from [`measure::RunOutcome`]. The
//! crate prints nothing, reads no arguments, and does not know a server's internals.

pub mod audit;
pub mod capacity_check;
pub mod condition;
pub mod config;
mod driver;
pub mod link;
pub mod measure;
pub mod packet_setup;
pub mod report;
pub mod scan;
pub mod schedule;
pub mod session;
pub mod tls;
pub mod workload;

pub use driver::{open_limit, run, stack_limit};
