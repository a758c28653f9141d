//! Huge pages for tables that are read at random: fewer misses of the translation cache, and fewer
//! page faults while they fill up.

/// Size of a table from which huge pages are worth what they add to its memory, bytes.
const TABLE_MIN: usize = 16 << 20;

/// Asks for huge pages for the room of a vector (madvise(2), MADV_HUGEPAGE), if that is large.
/// Where the kernel has none, nothing changes.
pub fn ask_for<T>(table: &Vec<T>) {
    let page_bytes = rustix::param::page_size();
    let start = table.as_ptr() as usize;
    let end = start + table.capacity() * size_of::<T>();
    let (from, to) = (start.next_multiple_of(page_bytes), end / page_bytes * page_bytes);
    if to.saturating_sub(from) < TABLE_MIN {
        return;
    }
    // SAFETY: the whole pages from `from` to `to` are within the vector's allocation, and the
    // advice changes neither what is in them nor whether it may be accessed.
    unsafe {
        libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_table_stays() {
        for room in [0, 1, 1 << 22] {
            let mut table = Vec::with_capacity(room);
            table.extend(0..room as u64);
            ask_for(&table);
            assert!(table.into_iter().eq(0..room as u64));
        }
    }
}
