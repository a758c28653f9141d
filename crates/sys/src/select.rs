//! select(2) with bitmaps of any size: the C library's FD_SETSIZE of 1024 is not a limit of the
//! kernel.

use std::io;
use std::time::Duration;

use crate::profile::{Call, timed};

/// Descriptors per word of a bitmap.
pub const WORD_BITS: usize = u64::BITS as usize;

/// EINVAL: a map is shorter than the number of descriptors asked about.
pub fn short_map() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

/// EBADF: a descriptor in a map is not open.
pub fn not_open() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// Queries which of the first `nfds` descriptors set in `read` and `write` are ready, and
/// overwrites both maps with the result. Returns the total number of bits set in the two.
///
/// A signal counts as an empty result, and leaves both maps empty.
///
/// # Errors
/// EBADF, ENOMEM: select(2); EINVAL when a map is shorter than `nfds`.
pub fn select(
    nfds: usize,
    read: &mut [u64],
    write: &mut [u64],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    ask(nfds, [Some(read), Some(write), None], timeout)
}

/// [`select`] with the third map, `except`: descriptors with urgent data or another exceptional
/// condition of poll(2)'s POLLPRI.
///
/// # Errors
/// As [`select`].
pub fn select_all(
    nfds: usize,
    read: &mut [u64],
    write: &mut [u64],
    except: &mut [u64],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    ask(nfds, [Some(read), Some(write), Some(except)], timeout)
}

fn ask(
    nfds: usize,
    mut maps: [Option<&mut [u64]>; 3],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let words = nfds.div_ceil(WORD_BITS);
    if maps.iter().flatten().any(|map| map.len() < words) {
        return Err(short_map());
    }
    let [read, write, except] = maps
        .each_mut()
        .map(|map| map.as_mut().map_or(std::ptr::null_mut(), |map| map.as_mut_ptr()));
    // The kernel writes the remaining time to it, which the C library's select(2) hides.
    let mut limit = timeout.map(crate::epoll::timespec);
    let limit_ptr = limit.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let no_mask = std::ptr::null::<u64>();
    // SAFETY: the kernel reads and writes `nfds` bits, rounded up to a word, of each map, and each
    // was just checked to be that long; the timespec is read and written, outlives the call, and
    // pselect6 on x86-64 and aarch64 takes this 64-bit layout; a map and the mask may be null.
    let ready = timed(Call::Select, || unsafe {
        libc::syscall(libc::SYS_pselect6, nfds, read, write, except, limit_ptr, no_mask)
    });
    if ready >= 0 {
        return Ok(ready as usize);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        maps.into_iter().flatten().for_each(|map| map.fill(0));
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
