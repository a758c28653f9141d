//! The allocator of the C library: the size of what it hands out, and what it does with what is
//! freed.

/// Size from which on blocks are mapped by themselves, bytes: the C library's own, at first.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 128 << 10;

/// Free memory at the end of a heap beyond which it goes back to the kernel, bytes.
#[cfg(target_env = "gnu")]
const FREE_TOP_BYTES_MAX: i32 = 1 << 20;

/// Smallest piece that the C library hands out, its own word included, bytes.
const PIECE_BYTES_MIN: usize = 32;

/// Alignment of pieces, bytes.
const PIECE_ALIGN: usize = 16;

/// The C library's own word in each piece, bytes.
const HEAD_BYTES: usize = 8;

/// Returns the memory that an allocation of `size` bytes takes, bytes.
#[inline(always)]
pub(super) fn piece_bytes(size: usize) -> i64 {
    let whole = size.saturating_add(HEAD_BYTES + PIECE_ALIGN - 1) & !(PIECE_ALIGN - 1);
    whole.max(PIECE_BYTES_MIN) as i64
}

/// Returns the memory that a buffer takes, bytes: none before anything was written to it.
pub(super) fn buffer_bytes(buffer: &Vec<u8>) -> i64 {
    if buffer.capacity() == 0 { 0 } else { piece_bytes(buffer.capacity()) }
}

/// Has the C library map each large block by itself, so that it goes back to the kernel as soon as
/// it is freed (mallopt(3)). By itself it stops doing so for blocks as large as one that was freed
/// before, and memory that was once used by large bodies stays in pieces.
pub fn map_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: these only set numbers; no other thread may be setting them, which none here does.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, FREE_TOP_BYTES_MAX);
    }
}

/// Gives memory that was freed back to the kernel (malloc_trim(3)), where the C library keeps it
/// for later.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no preconditions, and may be called by any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_as_large_as_the_c_library_makes_it() {
        let sizes = [0, 1, 24, 25, 40, 41, 16384];
        assert_eq!(sizes.map(piece_bytes), [32, 32, 32, 48, 48, 64, 16400]);
    }
}
