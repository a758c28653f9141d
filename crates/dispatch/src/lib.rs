//! Event mechanisms, timers and slots: what an architecture is built from.
//!
//! A mechanism keeps an interest set and says which of its members are ready. Nothing here knows
//! what a connection does with that, and nothing here speaks HTTP.

pub mod probe;
pub mod readiness;
pub mod scalable_select;
pub mod slots;
pub mod timers;
