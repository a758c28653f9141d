//! The driver: threads that keep a schedule over sockets, and the sum of their measurements. The
//! only part of the crate that uses sockets and the clock; it judges nothing.

mod action;
mod arrival_plan;
mod background;
mod clock;
mod collector;
mod exchange;
#[cfg(test)]
mod fixtures;
mod message;
mod pacer;
mod recorder;
mod room;
mod run;
mod run_state;
mod second_meter;
mod send_pacer;
mod spare_intervals;
mod stack;
mod stream;
mod worker;

pub use run::{open_limit, run, stack_limit};
