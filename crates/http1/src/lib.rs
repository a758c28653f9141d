//! HTTP/1.x: bytes in, events out; replies appended to a caller's buffer.
//!
//! The caller owns every buffer. [`HeadParser`] parses the bytes at the front of one into a
//! [`Request`], [`Body`] finds the end of the request's content, and [`reply`] writes heads. On the
//! client's side, [`reply_parser`] parses replies and counts their bodies. The sources are RFC 9110
//! (semantics) and RFC 9112 (message format).
//!
//! Two rules apply throughout:
//! - **Results do not depend on how the input is split.** A parser fed byte by byte ends in the
//!   same state as one fed all at once.
//! - **A [`RequestError`] is final.** Once the framing is in doubt, so is the start of the next
//!   request:
//!   send the status, then close.
//!
//! Nothing here knows of sockets, files or clocks; time is an argument of [`DateField::at`].

mod authority;
mod body;
mod date;
mod extension;
mod fields;
pub mod forward;
mod grammar;
mod head;
mod method;
pub mod proxy_protocol;
pub mod reply;
pub mod reply_parser;
mod request;
mod request_line;
mod status;
pub mod text;

pub use body::{Advance, Body, OVERHEAD_BYTES_MAX, Piece};
pub use date::{DateField, imf_date};
pub use head::HeadParser;
pub use method::{Method, Registered};
pub use request::{Framing, Limits, Lines, Parse, Request, RequestError, Target, Version};
pub use request_line::parse_destination;
pub use status::Status;
