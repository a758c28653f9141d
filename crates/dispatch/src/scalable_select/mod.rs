//! Scalable select (banga-scalable §4.1): a drop-in for select(2) whose cost does not grow with the
//! descriptors that are idle. Knows nothing of servers, and of epoll only where hints come from.
//!
//! The paper's kernel keeps for each thread the sets INTERESTED, READY and HINTS, and a call checks
//! only those selected who are newly interesting, were ready, or had a packet since. Here the sets
//! are kept by the process (`algebra.rs` has them, with their invariant), the packet's hint is an
//! event of edge-triggered epoll, and the check is poll(2) of the few to be checked.
//!
//! What the paper's kernel sees and a library cannot is a **close**: see
//! [`ScalableSelect::closed`].

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

/// How often everybody selected is asked, in case a close was not told of.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Words of a map compared at a time.
const CHUNK: usize = 32;

/// What is kept from one select to the next, for one thread and its descriptors.
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
    /// What was selected last: as it was given, to be compared, and word by word beside each other.
    asked: [Vec<u64>; 3],
    selecting: Vec<Sets>,
}

impl ScalableSelect<Linux> {
    /// Makes one that has seen no descriptor yet.
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

    /// select(2), with maps of any size: asks which of the first `nfds` descriptors set in `read`,
    /// `write` and `except` are ready to be read, to be written, or have an exceptional condition
    /// (POLLPRI: urgent data). Waits up to `timeout` (for ever when `None`) until one is. The maps
    /// are overwritten by the answer, and the bits set in all three are counted.
    ///
    /// A signal counts as nothing ready, and leaves the maps empty. After an error the maps are as
    /// they were.
    ///
    /// What the kernel announces to nobody is noticed late: an option that makes a socket ready by
    /// itself (SO_OOBINLINE) is seen at the next event of that socket, or by the next sweep.
    ///
    /// # Errors
    /// * EINVAL when a map is shorter than `nfds`.
    /// * EBADF when a descriptor in a map is not open. Linux lets those pass which are past the
    ///   end of the process's table; here they are errors too. One that was closed without a word
    ///   to [`ScalableSelect::closed`] may be noticed late.
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

    /// Must be told of every descriptor that was selected and is closed: before the close or after
    /// it, but before the number is selected for another file. No system call is made.
    ///
    /// The paper's kernel takes a closed descriptor out of INTERESTED by itself; a library is told,
    /// or finds out. Where it was not told, a new file under the old number is thought to be
    /// registered for hints, and none comes: its readiness is then found by the next sweep, up to
    /// [`SWEEP_EVERY`] late, and from then on it is known for what it is.
    /// [`ScalableSelect::missed`] counts such finds.
    pub fn closed(&mut self, fd: RawFd) {
        if fd >= 0 {
            self.state.forget(fd);
        }
    }

    /// [`ScalableSelect::closed`] for a descriptor whose file will live on under another one, here
    /// or in another process: with a system call, so that the file's doings no longer cost a
    /// wake-up each. They would be told from those of the number's next owner in any case.
    ///
    /// # Errors
    /// ENOENT when it was never selected: epoll_ctl(2).
    pub fn closing(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.state.forget(fd.as_raw_fd());
        self.state.delete(fd)
    }

    /// How often a call asks everybody selected, in case a close was not told of: each `every`, or
    /// never, for one who tells of every close. A call that sleeps longer wakes up for it.
    pub fn sweep_every(&mut self, every: Option<Duration>) {
        self.state.set_sweep(every);
    }

    /// How many the sweeps found ready, or closed, that no hint had come for. A few may only have
    /// become ready during the sweep; more of them mean that closes are not told of.
    pub fn missed(&self) -> u64 {
        self.state.missed()
    }

    /// How many descriptors were asked one by one so far, with poll(2).
    pub fn checked(&self) -> u64 {
        self.state.checked
    }

    /// Takes over what is selected, less what is past `nfds`. Most of it is as it was at the last
    /// call: only words that differ are looked at.
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
    fn what_is_selected_follows_the_maps_whatever_their_length() {
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
