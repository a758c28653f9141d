//! Architectures: who waits for events, accepts and calls the connection machine.

pub(crate) mod event_loop;
mod table;
