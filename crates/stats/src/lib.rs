//! Counters of each loop, their aggregation, and reports as a text table and JSON. No I/O, no
//! clock.
//!
//! Counters are plain numbers owned by one loop; nothing is shared or atomic. A loop publishes a
//! copy of them in a [`page`] that others map, and [`live`] says what they tell of the last
//! minutes. The statistics are those the papers' servers print (pariag-accept ch. 4, brecht-select
//! §5); one table names each. Estimates from repeated measurements, with their intervals, are here
//! too.

mod counters;
mod intervals;
pub mod live;
pub mod page;
mod regression;
mod report;

pub use counters::{Counter, Counters, Merge, Row, TABLE};
pub use intervals::{
    Bootstrap, Interval, coverage_max, mean, median, quantile, quantile_extended, ratios,
};
pub use regression::Line;
pub use report::{CallRow, Derived, LoopReport, Report};
