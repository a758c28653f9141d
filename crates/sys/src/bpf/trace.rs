//! A program at a tracepoint that counts in a page of numbers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use super::btf::Btf;
use super::{Instruction, SharedPage, attach_tracepoint, load_tracepoint};

/// A program that counts, until it is dropped.
#[derive(Debug)]
pub(crate) struct Trace {
    page: SharedPage,
    /// Attachment of the program, which keeps the program and its map.
    _attached: OwnedFd,
}

impl Trace {
    /// Begins to count `len` numbers. `write` looks up in the kernel's types what the program must
    /// know, and returns the number of its tracepoint's type and the program, which is given the
    /// page.
    ///
    /// # Errors
    /// A sentence that says why this is not possible.
    pub(crate) fn begin(
        len: usize,
        write: impl FnOnce(&Btf, BorrowedFd<'_>) -> io::Result<(u32, Vec<Instruction>)>,
    ) -> io::Result<Self> {
        let types = Btf::of_this_kernel()
            .map_err(|error| because(&error, "the kernel's types cannot be read"))?;
        let page =
            SharedPage::new(len).map_err(|error| because(&error, "no eBPF map can be had"))?;
        let (tracepoint, program) = write(&types, page.map())?;
        let program = load_tracepoint(&program, tracepoint)
            .map_err(|error| because(&error, "the kernel does not load the program"))?;
        let attached = attach_tracepoint(program.as_fd())
            .map_err(|error| because(&error, "the tracepoint cannot be had"))?;
        Ok(Self { page, _attached: attached })
    }

    /// Returns a number as it is now: a memory read, no call.
    pub(crate) fn number(&self, index: usize) -> u64 {
        self.page.numbers()[index].load(Relaxed)
    }
}

fn because(error: &io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Begins a trace in the network of this thread and one in another; or says that a test skips.
#[cfg(test)]
pub(crate) fn in_two_networks<T>(begin: impl Fn(u32) -> io::Result<T>) -> Option<[T; 2]> {
    use std::os::unix::fs::MetadataExt;
    let here = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino() as u32;
    match [here, here - 1].map(begin) {
        [Ok(here), Ok(elsewhere)] => Some([here, elsewhere]),
        [Err(error), _] | [_, Err(error)] => {
            println!("skipped: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_cannot_be_had_and_keeps_its_kind() {
        let error = because(&io::ErrorKind::PermissionDenied.into(), "no eBPF map can be had");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(error.to_string(), "no eBPF map can be had: permission denied");
    }
}
