//! Compression on the fly: compressed forms of files that have no precompressed variant.
//!
//! A store sends a form that it has, asks for one that it has not, and sends the file as it is
//! until the form is there: no request waits for a compression. [`Compressor`] is what the stores
//! of a process share, so that a version of a file is compressed once however many ask;
//! [`forms`] is what those of a loop keep of it, in bounded memory. Nothing here starts threads or
//! reads clocks: a thread of the caller takes the tasks, carries them out and hands in the forms.

mod coder;
mod compressor;
mod form;
pub(crate) mod forms;
mod level;

pub use compressor::{CompressionTask, Compressor, StartWorker};
pub use form::Form;
pub use forms::{FormCounts, Forms};
pub use level::{Level, SpareTime};

/// What is compressed on the fly, and how much of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionOptions {
    /// Maximum size of the forms that a loop keeps, bytes.
    pub cache_bytes_max: u64,
    /// Maximum size of the forms that loops have not come for yet, bytes, all loops together.
    pub unclaimed_bytes_max: u64,
    /// Maximum size of a file that is compressed, bytes.
    pub file_bytes_max: u64,
}

/// Minimum size of a file that is compressed, bytes: a smaller one, with its head, takes a packet
/// or two either way.
pub(crate) const FILE_BYTES_MIN: u64 = 1024;
