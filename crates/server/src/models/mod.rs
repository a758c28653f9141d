//! The architectures' code: each waits for events, and lets connections proceed, in its own way.
//! What is common to all of them is in [`crate::worker`].

pub(crate) mod event_loop;
pub(crate) mod fiber;
pub(crate) mod prefork;
mod readiness_driver;
pub(crate) mod ring;
pub(crate) mod start;
pub(crate) mod thread_per_connection;
mod upstream_events;
