//! select(2) with bitmaps of any size: the C library's FD_SETSIZE of 1024 is not the kernel's
//! limit.

use std::io;
use std::time::Duration;

use crate::profile::{Call, timed};

/// Descriptors per word of a bitmap.
pub const WORD_BITS: usize = u64::BITS as usize;

/// Asks which of the first `nfds` descriptors set in `read` and `write` are ready; both are
/// overwritten by the answer. Returns how many bits are set in the two together.
///
/// A signal counts as nothing ready, and leaves both maps empty.
///
/// # Errors
/// EBADF, ENOMEM: select(2); EINVAL when a map is shorter than `nfds`.
pub fn select(
    nfds: usize,
    read: &mut [u64],
    write: &mut [u64],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let words = nfds.div_ceil(WORD_BITS);
    if read.len() < words || write.len() < words {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let limit = timeout.map(crate::epoll::timespec);
    let limit_ptr = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (nothing, no_mask) = (std::ptr::null::<u64>(), std::ptr::null::<u64>());
    // SAFETY: the kernel reads and writes `nfds` bits, rounded up to a word, of each map, and both
    // were just checked to be that long; the timespec outlives the call and pselect6 on x86-64 and
    // aarch64 takes this 64-bit layout; the other pointers may be null.
    let ready = timed(Call::Select, || unsafe {
        libc::syscall(
            libc::SYS_pselect6,
            nfds,
            read.as_mut_ptr(),
            write.as_mut_ptr(),
            nothing,
            limit_ptr,
            no_mask,
        )
    });
    if ready >= 0 {
        return Ok(ready as usize);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        read.fill(0);
        write.fill(0);
        return Ok(0);
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_readable_pipe_is_found_and_a_short_map_refused() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"x").unwrap();
        let fd = reader.as_raw_fd() as usize;
        let mut read = vec![0_u64; fd / WORD_BITS + 1];
        let mut write = read.clone();
        read[fd / WORD_BITS] |= 1 << (fd % WORD_BITS);
        let mut again = read.clone();
        assert_eq!(select(fd + 1, &mut read, &mut write, Some(Duration::ZERO)).unwrap(), 1);
        assert_eq!(read[fd / WORD_BITS], 1 << (fd % WORD_BITS));
        assert!(select(4096, &mut again, &mut write, None).is_err());
    }
}
