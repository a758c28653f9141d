//! Completions of a server's ring: the result of an operation, and the resources it returns.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use super::buffers::ReceivedBuffer;
use super::send_buffer::SendBuffer;

/// Result of an operation, or one of several.
#[derive(Debug)]
pub struct Completion {
    /// User data that the operation was begun with.
    pub data: u64,
    /// Return value of the call of the same name, or a negative errno.
    pub result: i32,
    /// True if more completions of the operation follow (IORING_CQE_F_MORE).
    pub more: bool,
    /// True if the socket has more bytes, or the listener more connections
    /// (IORING_CQE_F_SOCK_NONEMPTY).
    pub nonempty: bool,
    /// True if this only returns the memory of a zero-copy send, whose result was reported before
    /// (IORING_CQE_F_NOTIF). `result` is 0.
    pub notice: bool,
    /// Received bytes. Must be given back, whatever the result:
    /// [`give_back`](super::ServerRing::give_back).
    pub filled: Option<ReceivedBuffer>,
    /// Lent or newly created resources; only with the last completion.
    pub returned: Returned,
}

impl Completion {
    /// Converts the result to an `io::Result`, as system calls return it.
    ///
    /// # Errors
    /// The operation's own; ECANCELED when it was cancelled or followed a failed one in its chain.
    pub fn outcome(&self) -> io::Result<u32> {
        u32::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }

    /// Returns whether the operation ended with this errno.
    pub fn failed_with(&self, errno: i32) -> bool {
        self.result == -errno
    }
}

/// Resources returned by an operation.
#[derive(Debug, Default)]
pub enum Returned {
    /// Nothing.
    #[default]
    Nothing,
    /// Address of the peer of a connection accepted into a slot.
    Peer(SocketAddr),
    /// An accepted connection, non-blocking and close-on-exec, and its peer's address.
    Connection(OwnedFd, SocketAddr),
    /// The opened file, or the installed descriptor.
    Fd(OwnedFd),
    /// The piece that was sent.
    Buffer(SendBuffer),
    /// The two pieces that were sent as one, in order.
    Pair(SendBuffer, SendBuffer),
    /// The read buffer, with the bytes read appended.
    Read(Vec<u8>),
}
