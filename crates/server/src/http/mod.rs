//! HTTP on one connection: the machine that parses and answers requests, the reply to each, and the
//! calls on its socket. Knows neither how a connection was accepted nor how it is waited for.

pub(crate) mod background;
pub(crate) mod bench;
mod cache_invalidation;
mod cache_lookup;
mod cache_store;
pub(crate) mod connection;
pub(crate) mod connection_io;
mod course;
pub(crate) mod forward;
mod forward_content;
mod forward_failure;
pub(crate) mod forward_io;
mod forward_splice;
mod gate;
mod head_fields;
pub(crate) mod response;
pub(crate) mod send;
pub(crate) mod socket;
pub(crate) mod socket_connection;
mod upstream_io;
