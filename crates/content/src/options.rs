//! Options of a store.

use crate::compression::CompressionOptions;
use crate::variants::Coding;

/// Configuration of a store: content to serve and cache limits.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of index files; the first that exists wins.
    pub index: Vec<String>,
    /// List directories without an index file.
    pub listing: bool,
    /// Follow symbolic links that are relative, and do not leave the root on their way.
    pub follow_symlinks: bool,
    /// Serve names that begin with a dot.
    pub dotfiles: bool,
    /// Precompressed variants to look for next to the plain file. Each costs an `openat2(2)`
    /// whenever a file is looked up; without caching, that is on every request.
    pub codings: Vec<Coding>,
    /// Compression on the fly of files without a precompressed variant; `None` for none. It takes
    /// a cache, and [`Forms`](crate::Forms).
    pub compression: Option<CompressionOptions>,
    /// Content types by extension, which take precedence over all others.
    pub mime: Vec<(String, String)>,
    /// Charset added to the content types of texts; empty for none.
    pub charset: String,
    /// Cache resources between requests.
    pub caching: bool,
    /// Maximum number of bytes kept in memory.
    pub cache_bytes_max: u64,
    /// Maximum number of files kept open by the cache. Replies in progress may hold more open.
    pub open_files_max: u64,
    /// Size up to which files are read and sent from memory, bytes. Larger ones are sent from the
    /// descriptor.
    pub memory_file_bytes_max: u64,
    /// Time for which a cached file is served without checking the tree, nanoseconds.
    pub valid_ns: u64,
    /// Let a lookup block on a disk when it must, rather than return
    /// [`Found::Cold`](crate::Found::Cold). A root on tmpfs is in memory, where blocking is always
    /// allowed; so it is for each part of a listing.
    pub waits: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            index: vec!["index.html".to_owned()],
            listing: false,
            follow_symlinks: false,
            dotfiles: false,
            codings: Coding::ALL.to_vec(),
            compression: None,
            mime: Vec::new(),
            charset: "utf-8".to_owned(),
            caching: true,
            cache_bytes_max: 64 << 20,
            open_files_max: 1024,
            memory_file_bytes_max: 64 << 10,
            valid_ns: 1_000_000_000,
            waits: true,
        }
    }
}
