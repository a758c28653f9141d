//! Links between the operations of a chain.

use io_uring::squeue::Flags;

/// Link from an operation to the next one begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// No link.
    #[default]
    Nothing,
    /// The next operation starts if this one succeeds; if this one fails, the rest of the chain
    /// ends with ECANCELED (IOSQE_IO_LINK). A short send counts as failed if it was to be whole.
    OnSuccess,
    /// The next operation starts when this one has ended, whatever its result (IOSQE_IO_HARDLINK).
    Always,
}

impl Then {
    pub(super) fn flags(self) -> Flags {
        match self {
            Self::Nothing => Flags::empty(),
            Self::OnSuccess => Flags::IO_LINK,
            Self::Always => Flags::IO_HARDLINK,
        }
    }
}
