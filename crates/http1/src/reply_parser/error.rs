//! Errors of parsing a reply: a violation of the protocol, and a premature end.

use std::fmt::{self, Display, Formatter};

/// A protocol violation by the server. Nothing after it on the connection can be trusted: close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyError {
    /// The rule that was broken, in a few words.
    pub why: &'static str,
}

/// Premature end of the connection, by the part of the reply that was incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrematureEnd {
    /// Before the first byte: a server may close a connection between two replies.
    Unstarted,
    /// Inside the head, or after an interim reply.
    InHead,
    /// Inside the body.
    InBody,
}

impl Display for ReplyError {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(self.why)
    }
}

impl std::error::Error for ReplyError {}

impl Display for PrematureEnd {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unstarted => "closed before the reply",
            Self::InHead => "closed inside the head",
            Self::InBody => "closed inside the body",
        })
    }
}

impl std::error::Error for PrematureEnd {}
