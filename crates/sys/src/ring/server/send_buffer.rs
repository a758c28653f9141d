//! Bytes to send, at a stable address while they are lent to the kernel.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes to send, owned by the ring until the kernel has finished with them.
pub enum SendBuffer {
    /// Owned bytes.
    Bytes(Vec<u8>),
    /// Bytes shared between threads.
    Shared(Arc<[u8]>),
    /// Bytes once owned, of which several operations send: see [`SendBuffer::share`].
    Several(Arc<Vec<u8>>),
    /// Static bytes.
    Static(&'static [u8]),
}

impl SendBuffer {
    /// Returns the buffer twice, without a copy of its bytes: another operation can send of it
    /// before the first has returned it.
    pub fn share(self) -> [Self; 2] {
        match self {
            Self::Bytes(bytes) => Self::Several(Arc::new(bytes)).share(),
            Self::Several(bytes) => [Self::Several(Arc::clone(&bytes)), Self::Several(bytes)],
            Self::Shared(bytes) => [Self::Shared(Arc::clone(&bytes)), Self::Shared(bytes)],
            Self::Static(bytes) => [Self::Static(bytes), Self::Static(bytes)],
        }
    }

    /// Returns the bytes of a range, if the range is valid and the kernel can send it in one call.
    pub(super) fn part(&self, range: &Range<usize>) -> Option<&[u8]> {
        self.get(range.clone()).filter(|part| part.len() <= PART_BYTES_MAX)
    }
}

impl Deref for SendBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Several(bytes) => bytes,
            Self::Static(bytes) => bytes,
        }
    }
}

impl Default for SendBuffer {
    fn default() -> Self {
        Self::Static(&[])
    }
}

impl fmt::Debug for SendBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Bytes(_) => "Bytes",
            Self::Shared(_) => "Shared",
            Self::Several(_) => "Several",
            Self::Static(_) => "Static",
        };
        write!(formatter, "{name}({} bytes)", self.len())
    }
}

/// Maximum number of bytes per call (read(2), MAX_RW_COUNT).
pub(super) const PART_BYTES_MAX: usize = 0x7fff_f000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_past_the_end_is_no_part() {
        let piece = SendBuffer::Bytes(b"abcd".to_vec());
        assert_eq!(piece.part(&(1..3)), Some(&b"bc"[..]));
        assert_eq!(piece.part(&(4..4)), Some(&b""[..]));
        assert_eq!(piece.part(&(3..5)), None);
        let (first, end) = (3, 2);
        assert_eq!(piece.part(&(first..end)), None);
    }

    #[test]
    fn a_shared_piece_is_the_same_bytes_in_the_same_place() {
        let pieces = [
            SendBuffer::Bytes(b"abcd".to_vec()),
            SendBuffer::Shared(Arc::from(*b"abcd")),
            SendBuffer::Static(b"abcd"),
        ];
        for piece in pieces {
            let at = piece.as_ptr();
            let [first, again] = piece.share();
            let [second, third] = again.share();
            for each in [first, second, third] {
                assert_eq!((&*each, each.as_ptr()), (&b"abcd"[..], at));
            }
        }
    }
}
