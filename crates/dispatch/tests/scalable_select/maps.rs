//! The three maps of select(2), and both implementations to query them with.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use weir_dispatch::scalable_select::ScalableSelect;
use weir_sys::select::{WORD_BITS, select_all};

pub(crate) const NOW: Option<Duration> = Some(Duration::ZERO);

/// Selected sets, or the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Maps {
    pub sets: [Vec<u64>; 3],
    pub nfds: usize,
}

/// A map of select(2).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Set {
    Read,
    Write,
    Except,
}

impl Maps {
    pub(crate) fn one(set: Set, fd: &impl AsRawFd) -> Self {
        let mut maps = Self::default();
        maps.add(set, fd.as_raw_fd());
        maps
    }

    pub(crate) fn and(mut self, set: Set, fd: &impl AsRawFd) -> Self {
        self.add(set, fd.as_raw_fd());
        self
    }

    pub(crate) fn add(&mut self, set: Set, fd: RawFd) {
        let fd = fd as usize;
        self.nfds = self.nfds.max(fd + 1);
        for set in &mut self.sets {
            set.resize(self.nfds.div_ceil(WORD_BITS), 0);
        }
        self.sets[set as usize][fd / WORD_BITS] |= 1 << (fd % WORD_BITS);
    }

    pub(crate) fn has(&self, set: Set, fd: &impl AsRawFd) -> bool {
        let fd = fd.as_raw_fd() as usize;
        let word = self.sets[set as usize].get(fd / WORD_BITS).copied().unwrap_or(0);
        word & 1 << (fd % WORD_BITS) != 0
    }

    /// Queries select(2), without waiting.
    pub(crate) fn by_kernel(&self) -> io::Result<(usize, Self)> {
        let mut maps = self.clone();
        let [read, write, except] = &mut maps.sets;
        let count = select_all(self.nfds, read, write, except, NOW)?;
        Ok((count, maps))
    }

    pub(crate) fn by(
        &self,
        select: &mut ScalableSelect,
        timeout: Option<Duration>,
    ) -> io::Result<(usize, Self)> {
        let mut maps = self.clone();
        let [read, write, except] = &mut maps.sets;
        let count = select.select(self.nfds, read, write, except, timeout)?;
        Ok((count, maps))
    }
}
