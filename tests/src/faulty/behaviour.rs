//! Behaviours of misbehaving servers.

/// Behaviour of a server. Unless stated otherwise, it serves HTTP/1.1 with a body of
/// [`Behaviour::BODY_BYTES`] of known length, keeps the connection open for as long as the client
/// asks, and answers HEAD and pipelined requests as it should.
///
/// A close is a FIN: the server then reads on until the client closes too, so that no close ever
/// becomes a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Refuses connections: its port has no listener. Cannot be mixed.
    Refuse,
    /// Has a full accept queue, so that a connect hangs. Cannot be mixed.
    NeverAccepts,
    /// Accepts, then resets.
    ResetOnAccept,
    /// Reads a request, then resets.
    ResetAfterRequest,
    /// Sends the head and half of the body, then resets.
    ResetMidReply,
    /// Accepts, then closes.
    CloseOnAccept,
    /// Reads a request, then closes.
    CloseAfterRequest,
    /// Sends half of the head, then closes.
    CloseMidHead,
    /// Sends the head and half of the body, then closes.
    CloseMidBody,
    /// Answers with bytes that are not HTTP.
    Garbage,
    /// Answers with two different lengths.
    WrongLength,
    /// Reads requests and never answers.
    Silent,
    /// Neither reads nor answers; its receive buffer is as small as the kernel allows.
    NeverReads,
    /// Sends replies at this pace, in pieces of a millisecond's worth or of one byte.
    Trickle {
        /// Bytes per second; head and body alike.
        bytes_per_s: u64,
    },
    /// Answers each request this long after its last byte, however many wait.
    Sleep {
        /// Milliseconds.
        ms: u64,
    },
    /// Answers at once, except at the end of each period: requests that arrive then wait for the
    /// end of the period. The first period begins with the server.
    Stall {
        /// The period, milliseconds.
        every_ms: u64,
        /// Duration of the stall at the end of the period, milliseconds.
        length_ms: u64,
    },
    /// Behaves correctly.
    Good {
        /// Bytes of the body.
        body_bytes: usize,
    },
    /// Closes after each reply, and announces it.
    GoodOneRequest,
    /// Answers with HTTP/1.0, and closes.
    Http10,
    /// Sends the body in chunks.
    Chunked,
    /// Sends a body without a length and closes.
    CloseFramed,
    /// Sends `100 Continue` before each reply.
    Interim100,
    /// Gives each connection in turn the next of these behaviours, in a cycle.
    Mixed(Vec<Behaviour>),
}

impl Behaviour {
    /// Default length of the body.
    pub const BODY_BYTES: usize = 1000;

    /// Stops replying during the last second of every ten.
    pub const STALL_ONE_SECOND_IN_TEN: Behaviour =
        Behaviour::Stall { every_ms: 10_000, length_ms: 1000 };
}
