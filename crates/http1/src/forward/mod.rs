//! Forwarding: one request of a client, passed on to another server, and the reply, passed back.
//!
//! [`Exchange`] is the machine for both connections. It holds no socket: the caller hands it what
//! it has read from either side, and writes what it has for the other. Requests and replies are
//! parsed and written anew, so that whatever is ambiguous on one side does not reach the other
//! (RFC 9112 section 11.2). The sources are RFC 9110 section 7 (routing, fields of one connection),
//! RFC 9112 sections 6 and 7 (framing), and RFC 7239 (`Forwarded`).

mod exchange;
mod fields;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use exchange::{Exchange, ReplyPart};
pub use fields::{
    depends_on_client, is_forwarded, keeps_fields, lines, lines_passed_on, max_forwards,
    via_of_reply,
};
pub use reply::{ReplyFacts, is_left_out, push_own};
pub use request::RequestFacts;
