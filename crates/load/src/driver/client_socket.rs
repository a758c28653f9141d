//! Opening of client sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weir_sys::client;

use crate::config::AddressPair;

/// Opens a socket, has its options set, and begins to connect it.
///
/// # Errors
/// Errors of socket(2), bind(2), connect(2), and of `set_options`.
pub(super) fn connect(
    pair: AddressPair,
    set_options: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let fd = client::stream(&pair.destination)?;
    if let Some(source) = pair.source {
        client::bind_source(fd.as_fd(), source)?;
    }
    set_options(fd.as_fd())?;
    client::connect(fd.as_fd(), &pair.destination)?;
    Ok(fd)
}
