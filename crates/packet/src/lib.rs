//! The client side of TCP in user space, made for load: packets in, packets out, without a socket,
//! a clock or a system call. Segments ([`segment`]), their packets ([`wire`]), connections sized
//! for millions ([`tcp`]), and paths with delay, loss and bandwidth ([`path`]).
//!
//! It speaks TCP as Linux does (RFC 9293 and the RFCs named where they apply), so that a server
//! cannot tell its clients from others. It leaves out what a client of requests has no use for:
//! listening, urgent data, simultaneous opens, and congestion control beyond NewReno for uploads.

pub mod path;
pub mod segment;
pub mod seq;
pub mod tcp;
pub mod wire;
