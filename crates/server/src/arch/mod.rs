//! Architectures: who waits for events, accepts and calls the connection machine.

mod accepting;
pub(crate) mod event_loop;
pub(crate) mod listener;
mod table;
