//! The present state of a server, from two or more readings of its statistics: rates, the last
//! minutes, and a sentence that says why the server refuses when it does. The live page and `weir
//! top` show the same, and what they show is derived here.
//!
//! Nothing here reads a page or a clock, or knows where its results are shown.

mod announcer;
mod history;
mod json;
mod reading;
mod refusals;
mod sample;
mod sentence;
#[cfg(test)]
mod tests;

pub use announcer::Announcer;
pub use history::{History, SAMPLES_MAX};
pub use reading::{Reading, open_connections};
pub use refusals::{REFUSALS, Refusal, Refused};
pub use sample::Sample;
pub use sentence::{Condition, Sentence, count, rate};
