//! Event mechanisms, timers and slots: the building blocks of an architecture.
//!
//! A mechanism keeps an interest set and reports which of its members are ready. Nothing here knows
//! how a connection uses that, and nothing here speaks HTTP.

pub mod probe;
pub mod readiness;
pub mod scalable_select;
pub mod slots;
pub mod timers;
