//! What a server's ring tells of an operation. Knows nothing of why it was asked for.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use super::buffers::Filled;
use super::piece::Piece;

/// What became of an operation, or one of many things that come of it.
#[derive(Debug)]
pub struct Completion {
    /// What the operation was begun with.
    pub data: u64,
    /// What the call of the same name would have returned, or a negative errno.
    pub result: i32,
    /// More completions of the operation follow (IORING_CQE_F_MORE).
    pub more: bool,
    /// The socket has more bytes, or the listener more connections (IORING_CQE_F_SOCK_NONEMPTY).
    pub nonempty: bool,
    /// Nothing but the memory of a zero-copy send, whose result was told before
    /// (IORING_CQE_F_NOTIF). `result` is 0.
    pub notice: bool,
    /// The bytes received. To be given back, whatever the result:
    /// [`give_back`](super::ServerRing::give_back).
    pub filled: Option<Filled>,
    /// What was lent, or what there is now; with the last completion only.
    pub returned: Returned,
}

impl Completion {
    /// The result as system calls give it.
    ///
    /// # Errors
    /// The operation's own; ECANCELED when it was cancelled, or stood in a chain behind one that
    /// failed.
    pub fn outcome(&self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }

    /// Whether the operation ended with this errno.
    pub fn failed_with(&self, errno: i32) -> bool {
        self.result == -errno
    }
}

/// What an operation leaves.
#[derive(Debug, Default)]
pub enum Returned {
    /// Nothing.
    #[default]
    Nothing,
    /// A connection accepted into a slot: who called.
    Peer(SocketAddr),
    /// A connection accepted, non-blocking and closed on exec, and who called.
    Connection(OwnedFd, SocketAddr),
    /// The file opened, or the descriptor installed.
    Fd(OwnedFd),
    /// What was to be sent.
    Piece(Piece),
    /// What was to be sent as one, in its order.
    Two(Piece, Piece),
    /// What was read into, as long as it was and what was read now.
    Read(Vec<u8>),
}
