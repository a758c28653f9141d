//! Restrictions of a ring (IORING_REGISTER_RESTRICTIONS, io_uring_register(2)): the operations that
//! it takes from its start to its end. Operations pass the filter of a thread's system calls by,
//! so that without them a ring could be told to open or to connect.

use std::io;

use io_uring::IoUring;
use io_uring::register::Restriction;

/// Starts a ring that was created disabled (IORING_SETUP_R_DISABLED), restricted to these
/// operations and, from now on, to these registrations.
///
/// # Errors
/// ENOMEM; EBADFD when the ring is not disabled: io_uring_register(2).
pub(super) fn enable(io: &IoUring, operations: &[u8], registrations: &[u8]) -> io::Result<()> {
    let operations = operations.iter().copied().map(Restriction::sqe_op);
    let registrations = registrations.iter().copied().map(Restriction::register_op);
    // All flags: chains, slots, silence.
    let flags = Restriction::sqe_flags_allowed(u8::MAX);
    let mut all: Vec<_> = operations.chain(registrations).chain([flags]).collect();
    io.submitter().register_restrictions(&mut all)?;
    io.submitter().register_enable_rings()
}
