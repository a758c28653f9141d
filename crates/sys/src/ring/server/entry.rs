//! Submission entry fields for which the io-uring crate has no setter.

use io_uring::opcode::Nop;
use io_uring::squeue::Entry;

/// Sets the operation-specific bits (struct io_uring_sqe, `ioprio`), all zero before.
#[inline]
pub(super) fn with_ioprio(entry: Entry, bits: u16) -> Entry {
    with(entry, |raw| raw.ioprio = bits)
}

/// Builds an operation that does nothing and ends with `-errno`.
pub(super) fn failing(errno: i32) -> Entry {
    with(Nop::new().build(), |raw| {
        raw.len = -errno as u32;
        raw.flags_of_opcode = NOP_INJECT_RESULT;
    })
}

/// Kernel layout of a submission entry (struct io_uring_sqe).
#[repr(C)]
struct Raw {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    flags_of_opcode: u32,
    rest: [u64; 4],
}

const _: () = assert!(size_of::<Raw>() == 64 && size_of::<Entry>() == 64);

#[inline]
fn with(entry: Entry, change: impl FnOnce(&mut Raw)) -> Entry {
    let mut raw = raw(entry);
    change(&mut raw);
    // SAFETY: as below.
    unsafe { std::mem::transmute(raw) }
}

#[inline]
fn raw(entry: Entry) -> Raw {
    // SAFETY: both are the kernel's struct io_uring_sqe: 64 bytes of numbers, without gaps, of
    // which each may have any value.
    unsafe { std::mem::transmute(entry) }
}

/// IORING_NOP_INJECT_RESULT
const NOP_INJECT_RESULT: u32 = 1 << 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_beside_what_the_operation_says() {
        let entry = with_ioprio(Nop::new().build().user_data(7), 0x0102);
        let raw = raw(entry.clone());
        assert_eq!((raw.ioprio, raw.fd), (0x0102, -1));
        assert_eq!(entry.get_user_data(), 7);
    }
}
