//! What each loop counts, and how it is summed and shown: a text table and JSON. No I/O, no clock.
//!
//! Counters are plain numbers owned by one loop; nothing is shared or atomic. The statistics are
//! those the papers' servers print (pariag-accept ch. 4, brecht-select §5), one table naming each.

mod counters;
mod report;

pub use counters::{Counter, Counters, Row, TABLE};
pub use report::{CallRow, Derived, LoopReport, Report};
