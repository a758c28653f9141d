//! Scalable select (banga-scalable §4.1): a drop-in for select(2) whose cost does not grow with the
//! number of idle descriptors. Uses epoll only as the source of hints.
//!
//! The paper's kernel keeps for each thread the sets INTERESTED, READY and HINTS, and a call checks
//! only selected descriptors that are newly interesting, were ready, or had a packet since. Here
//! the sets are kept by the process (`algebra.rs` has them, with their invariant), an event of
//! edge-triggered epoll replaces the packet's hint, and a poll(2) of the few descriptors in
//! question is the check.
//!
//! Unlike the paper's kernel, a library does not see a **close**: see [`ScalableSelect::closed`].

mod algebra;
mod hints;
mod state;
mod sweep;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use weir_sys::select::{WORD_BITS, short_map};

use crate::readiness::kernel::{Kernel, Linux};
pub(crate) use algebra::Sets;
pub(crate) use state::{State, descriptors, place};
pub(crate) use sweep::Sweep;

/// Interval at which all selected descriptors are checked, in case a close was not reported.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Words of a map compared at a time.
const CHUNK: usize = 32;

/// State kept between calls of select, for one thread and its descriptors.
///
/// ```
/// use std::io::Write;
/// use std::os::fd::AsRawFd;
/// use std::time::Duration;
/// use weir_dispatch::scalable_select::ScalableSelect;
///
/// let (reader, mut writer) = std::io::pipe()?;
/// let mut select = ScalableSelect::new()?;
/// let fd = reader.as_raw_fd() as usize;
/// writer.write_all(b"x")?;
///
/// let mut read = vec![0_u64; fd / 64 + 1];
/// let (mut write, mut except) = (read.clone(), read.clone());
/// read[fd / 64] |= 1 << (fd % 64);
/// let timeout = Some(Duration::from_secs(1));
/// assert_eq!(select.select(fd + 1, &mut read, &mut write, &mut except, timeout)?, 1);
/// assert_eq!(read[fd / 64], 1 << (fd % 64));
///
/// select.closed(fd as i32);
/// drop(reader);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ScalableSelect<K: Kernel = Linux> {
    state: State<K>,
    /// Last selected sets: as they were given, for comparison, and transposed to one entry per
    /// word.
    asked: [Vec<u64>; 3],
    selecting: Vec<Sets>,
}

impl ScalableSelect<Linux> {
    /// Creates a state that has seen no descriptor yet.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM: epoll_create1(2).
    pub fn new() -> io::Result<Self> {
        Self::on_kernel()
    }
}

impl<K: Kernel> ScalableSelect<K> {
    /// [`ScalableSelect::new`] on another kernel.
    ///
    /// # Errors
    /// As [`ScalableSelect::new`].
    pub fn on_kernel() -> io::Result<Self> {
        let state = State::open(Sweep::new(Some(SWEEP_EVERY)))?;
        Ok(Self { state, asked: Default::default(), selecting: Vec::new() })
    }

    /// Behaves like select(2), with maps of any size: queries which of the first `nfds` descriptors
    /// set in `read`, `write` and `except` are ready to be read, to be written, or have an
    /// exceptional condition (POLLPRI: urgent data). Waits up to `timeout` (for ever when `None`)
    /// until one is. The maps are overwritten by the result; returns the number of bits set in all
    /// three.
    ///
    /// A signal counts as an empty result, and leaves the maps empty. After an error the maps are
    /// unchanged.
    ///
    /// Readiness that the kernel does not announce is noticed late: an option that makes a socket
    /// ready by itself (SO_OOBINLINE) is seen at the next event of that socket, or by the next
    /// sweep.
    ///
    /// # Errors
    /// * EINVAL when a map is shorter than `nfds`.
    /// * EBADF when a descriptor in a map is not open. Linux ignores descriptors past the end of
    ///   the process's table; here they are errors too. One that was closed without a call of
    ///   [`ScalableSelect::closed`] may be noticed late.
    /// * ENOMEM, ENOSPC (`/proc/sys/fs/epoll/max_user_watches`) when a descriptor seen for the
    ///   first time cannot be registered: epoll_ctl(2). ELOOP, EINVAL for epoll instances that
    ///   hold this one.
    pub fn select(
        &mut self,
        nfds: usize,
        read: &mut [u64],
        write: &mut [u64],
        except: &mut [u64],
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let words = nfds.div_ceil(WORD_BITS);
        let maps = (read.get_mut(..words), write.get_mut(..words), except.get_mut(..words));
        let (Some(read), Some(write), Some(except)) = maps else {
            return Err(short_map());
        };
        self.set_selecting(nfds, [read, write, except]);
        self.state.select(&self.selecting, timeout)?;
        for map in [&mut *read, &mut *write, &mut *except] {
            map.fill(0);
        }
        let mut count = 0;
        for (index, found) in self.state.found(&self.selecting) {
            [read[index], write[index], except[index]] = found;
            count += found.iter().map(|bits| bits.count_ones() as usize).sum::<usize>();
        }
        Ok(count)
    }

    /// Reports the close of a descriptor. Must be called for every descriptor that was selected and
    /// is closed: before the close or after it, but before the number is selected for another file.
    /// Makes no system call.
    ///
    /// The paper's kernel removes a closed descriptor from INTERESTED by itself; a library is told,
    /// or finds out. After an unreported close, a new file under the old number is believed to be
    /// registered for hints, and none come: its readiness is then found by the next sweep, up to
    /// [`SWEEP_EVERY`] late, and from then on it is handled correctly. [`ScalableSelect::missed`]
    /// counts such finds.
    pub fn closed(&mut self, fd: RawFd) {
        if fd >= 0 {
            self.state.forget(fd);
        }
    }

    /// Reports the close, like [`ScalableSelect::closed`], of a descriptor whose file will live on
    /// under another one, here or in another process. Makes a system call, so that the file's
    /// events no longer cost a wake-up each. They are distinguished from those of the number's next
    /// owner in any case.
    ///
    /// # Errors
    /// ENOENT when the descriptor was never selected: epoll_ctl(2).
    pub fn closing(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.state.forget(fd.as_raw_fd());
        self.state.delete(fd)
    }

    /// Sets the interval at which a call checks all selected descriptors, in case a close was not
    /// reported; `None` disables it, for callers that report every close. A call that sleeps longer
    /// wakes up for the check.
    pub fn sweep_every(&mut self, every: Option<Duration>) {
        self.state.set_sweep(every);
    }

    /// Number of descriptors that sweeps found ready, or closed, without a hint. A few may only
    /// have become ready during the sweep; more of them mean that closes are not reported.
    pub fn missed(&self) -> u64 {
        self.state.missed()
    }

    /// Number of descriptors checked individually so far, with poll(2).
    pub fn checked(&self) -> u64 {
        self.state.checked
    }

    /// Copies the selected sets, up to `nfds`. Most of them are the same as at the last call: only
    /// words that differ are visited.
    fn set_selecting(&mut self, nfds: usize, maps: [&[u64]; 3]) {
        let words = nfds.div_ceil(WORD_BITS);
        self.asked.iter_mut().for_each(|map| map.resize(words.max(map.len()), 0));
        self.state.reserve(words);
        let all = self.selecting.len().max(words);
        self.selecting.resize(all, Sets::default());
        for start in (0..all).step_by(CHUNK) {
            let end = (start + CHUNK).min(all);
            let same = |set: usize| maps[set].get(start..end) == self.asked[set].get(start..end);
            let partial = (start..end).contains(&(nfds / WORD_BITS));
            if partial || !(same(0) && same(1) && same(2)) {
                (start..end).for_each(|index| self.set_word(index, nfds, maps));
            }
        }
    }

    fn set_word(&mut self, index: usize, nfds: usize, maps: [&[u64]; 3]) {
        let inside = match nfds.saturating_sub(index * WORD_BITS) {
            bits @ 0..WORD_BITS => (1 << bits) - 1,
            _ => u64::MAX,
        };
        let sets = maps.map(|map| map.get(index).copied().unwrap_or(0) & inside);
        for (asked, bits) in self.asked.iter_mut().zip(sets) {
            asked[index] = bits;
        }
        if self.selecting[index] != sets {
            self.selecting[index] = sets;
            self.state.suspect(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(select: &mut ScalableSelect, nfds: usize, bits: u64) -> Vec<u64> {
        let (mut map, mut none) = (vec![bits; nfds.div_ceil(WORD_BITS)], Vec::new());
        none.resize(map.len(), 0);
        select.set_selecting(nfds, [&map, &none, &none]);
        map.clear();
        map.extend(select.selecting.iter().map(|sets| sets[0]));
        map
    }

    #[test]
    fn the_selected_set_follows_the_maps_at_any_length() {
        let mut select = ScalableSelect::new().unwrap();
        let words = CHUNK * 3 + 1;
        let full = vec![5; words];
        assert_eq!(selected(&mut select, words * WORD_BITS, 5), full);
        assert_eq!(selected(&mut select, words * WORD_BITS, 5), full);
        let mut shorter = vec![0; words];
        shorter[..CHUNK].fill(5);
        assert_eq!(selected(&mut select, CHUNK * WORD_BITS, 5), shorter);
        shorter[CHUNK] = 1;
        assert_eq!(selected(&mut select, CHUNK * WORD_BITS + 1, 5), shorter);
        assert_eq!(selected(&mut select, words * WORD_BITS, 5), full);
        assert_eq!(selected(&mut select, 0, 5), vec![0; words]);
    }
}
