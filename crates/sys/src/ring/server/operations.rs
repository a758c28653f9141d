//! Operations in progress: their user data, and the resources they hold.
//!
//! An operation is a slot and a generation, which together are the user data passed to the kernel.
//! After the last completion the slot is reused with another generation, so that late completions
//! of an ended operation match nothing.

use std::mem;

use io_uring::cqueue;

use super::buffers::Buffers;
use super::completion::{Completion, Returned};
use super::resources::{Resources, Spare};
use crate::descriptor::SharedFd;

/// Handle of an operation, for cancelling it. Meaningless once the operation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op(pub(super) u64);

/// All operations in progress.
#[derive(Default)]
pub(super) struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    pub(super) spare: Spare,
}

struct Slot {
    data: u64,
    resources: Resources,
    /// Keeps the operation's descriptor open.
    fd: Option<SharedFd>,
    generation: u32,
}

/// A completion as written by the kernel.
#[derive(Clone, Copy)]
pub(super) struct RawCompletion {
    pub(super) op: u64,
    pub(super) result: i32,
    pub(super) flags: u32,
}

impl From<cqueue::Entry> for RawCompletion {
    #[inline]
    fn from(entry: cqueue::Entry) -> Self {
        Self { op: entry.user_data(), result: entry.result(), flags: entry.flags() }
    }
}

impl RawCompletion {
    /// Completion of an operation that never began.
    pub(super) fn refusal(op: u64, errno: i32) -> Self {
        Self { op, result: -errno, flags: 0 }
    }

    /// Returns whether this is the end of a zero-copy send whose bytes were copied.
    pub(super) fn was_copied(self) -> bool {
        cqueue::notif(self.flags) && self.result as u32 & NOTIF_USAGE_ZC_COPIED != 0
    }
}

impl Operations {
    /// Number of operations in progress.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub(super) fn begin(&mut self, data: u64, resources: Resources, fd: Option<SharedFd>) -> Op {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.data = data;
            slot.resources = resources;
            slot.fd = fd;
            return Op(op(index, slot.generation));
        }
        self.slots.push(Slot { data, resources, fd, generation: 0 });
        Op(op((self.slots.len() - 1) as u32, 0))
    }

    /// Converts a kernel completion; `None` if it matches no operation.
    #[inline]
    pub(super) fn complete(
        &mut self,
        raw: RawCompletion,
        buffers: &mut Buffers,
    ) -> Option<Completion> {
        let index = raw.op as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if op(index, slot.generation) != raw.op {
            return None;
        }
        let more = cqueue::more(raw.flags);
        let notice = cqueue::notif(raw.flags);
        let result = if notice { 0 } else { raw.result };
        let data = slot.data;
        let returned = if more {
            Returned::Nothing
        } else {
            slot.generation = slot.generation.wrapping_add(1);
            slot.fd = None;
            self.free.push(index);
            self.spare.end(mem::take(&mut slot.resources), result)
        };
        Some(Completion {
            data,
            result,
            more,
            nonempty: cqueue::sock_nonempty(raw.flags),
            notice,
            filled: cqueue::buffer_select(raw.flags).map(|id| buffers.taken(id, result)),
            returned,
        })
    }
}

fn op(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

/// IORING_NOTIF_USAGE_ZC_COPIED
const NOTIF_USAGE_ZC_COPIED: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::server::SendBuffer;

    fn ended(op: Op, result: i32) -> RawCompletion {
        RawCompletion { op: op.0, result, flags: 0 }
    }

    #[test]
    fn a_slot_goes_to_another_operation_and_the_first_is_nobody_then() {
        let (mut operations, mut buffers) = (Operations::default(), Buffers::default());
        let first = operations.begin(1, Resources::Buffer(SendBuffer::Static(b"abc")), None);
        let completion = operations.complete(ended(first, 3), &mut buffers).unwrap();
        assert!(matches!(completion.returned, Returned::Buffer(piece) if *piece == *b"abc"));
        let second = operations.begin(2, Resources::Nothing, None);
        assert_ne!(first, second);
        assert!(operations.complete(ended(first, 3), &mut buffers).is_none());
        assert_eq!(operations.len(), 1);
        let completion = operations.complete(ended(second, 0), &mut buffers).unwrap();
        assert_eq!((completion.data, operations.len()), (2, 0));
    }

    #[test]
    fn memory_comes_back_with_the_last_completion_only() {
        const MORE: u32 = 1 << 1;
        const NOTIF: u32 = 1 << 3;
        let (mut operations, mut buffers) = (Operations::default(), Buffers::default());
        let op = operations.begin(1, Resources::Buffer(SendBuffer::Static(b"abc")), None);
        let raw = RawCompletion { flags: MORE, ..ended(op, 3) };
        let completion = operations.complete(raw, &mut buffers).unwrap();
        assert!(completion.more && matches!(completion.returned, Returned::Nothing));
        let raw = RawCompletion { flags: NOTIF, ..ended(op, i32::MIN) };
        assert!(raw.was_copied());
        let completion = operations.complete(raw, &mut buffers).unwrap();
        assert!(completion.notice && completion.result == 0);
        assert!(matches!(completion.returned, Returned::Buffer(_)));
    }
}
