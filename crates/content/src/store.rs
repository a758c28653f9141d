//! The store: a request's path in, something to send out.
//!
//! The order of things is here: decode, look among what is kept, ask the tree, load, keep. Nothing
//! here parses, opens or reads: the parts do, and none of them knows the others' rules.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::Now;
use crate::cache::{Cache, CacheCounts};
use crate::entry::{Entry, OpenFile};
use crate::fetch::{ColdCounts, Fetch};
use crate::listing;
use crate::mime::MimeTypes;
use crate::path::{self, Decoded, PathError};
use crate::resource::{Resource, Unloaded};
use crate::stop::Stop;
use crate::tree::{Located, Place, Tree};
use crate::variants::Coding;

/// What a store serves, and how much it may keep.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of index files, the first that exists wins.
    pub index: Vec<String>,
    /// Whether a directory without an index file is listed.
    pub listing: bool,
    /// Whether symbolic links are followed, and then only inside the root.
    pub follow_symlinks: bool,
    /// Whether names that begin with a dot are served.
    pub dotfiles: bool,
    /// Which precompressed variants are looked for, next to the plain file. Each costs an
    /// `openat2(2)` whenever a file is looked up, so without caching for every request.
    pub codings: Vec<Coding>,
    /// Content types by extension, before all others.
    pub mime: Vec<(String, String)>,
    /// The charset added to the content types of texts; empty for none.
    pub charset: String,
    /// Whether anything is kept between requests.
    pub caching: bool,
    /// Most bytes kept in memory.
    pub cache_bytes_max: u64,
    /// Most files kept open. More may be open while replies that send them last.
    pub open_files_max: u64,
    /// Files up to this size are read and sent from memory, larger ones from the descriptor, bytes.
    pub memory_file_bytes_max: u64,
    /// For how long a kept file is served without a look at the tree, nanoseconds.
    pub valid_ns: u64,
    /// Whether [`Store::find`] waits for a disk when it must, rather than say what for. A root on
    /// tmpfs is in memory, and always waited for; so are listings.
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

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// A representation to send: 200, or what conditions and ranges make of it.
    Entry(Arc<Entry>),
    /// A directory without its slash: 301 to this `Location`.
    Redirect(Vec<u8>),
    /// The listing of a directory: 200, `text/html; charset=utf-8`.
    Listing(Vec<u8>),
    /// Nothing, or nothing that is the client's to see: 404.
    NotFound,
    /// A path best not guessed at: 400.
    Malformed,
    /// We cannot tell, for want of descriptors or memory or by a fault of the disk: 503.
    /// `ResourceBusy` is a file that changed whenever it was read.
    Trouble(io::Error),
    /// The answer is on a disk, and the store was told not to wait ([`Options::waits`]): it is to
    /// be asked again when this was fetched.
    Cold(Fetch),
}

/// The files below one root, for one event loop.
#[derive(Debug)]
pub struct Store {
    resolver: Resolver,
    /// Where paths are decoded that cannot be used as they came.
    scratch: Vec<u8>,
}

impl Store {
    /// Opens the directory to serve.
    ///
    /// # Errors
    /// Those of opening it, and `InvalidInput` for options that make no sense: a path for the name
    /// of an index file, a content type that could not stand in a header field.
    pub fn open(root: &Path, options: Options) -> io::Result<Store> {
        let tree = Arc::new(Tree::open(root, &options)?);
        let resolver = Resolver {
            waits: options.waits || tree.is_in_memory(),
            tree,
            cold: ColdCounts::default(),
            types: MimeTypes::new(&options.mime, &options.charset)?,
            cache: Cache::new(options.cache_bytes_max, options.open_files_max),
            options,
        };
        Ok(Store { resolver, scratch: Vec::new() })
    }

    /// Finds what to send for the path of a request target, as received; it starts with `/`.
    ///
    /// `query` is what a redirect carries over, `accept_encoding` one slice for each field line.
    /// What was checked within the last [`Options::valid_ns`] is found without a system call, and
    /// without an allocation if the path needs no decoding.
    ///
    /// A store that does not wait says [`Found::Cold`] when it would have to: for a name or the
    /// lack of one that the kernel does not remember, for the contents of a small file. One
    /// [`Fetch::run`] mostly settles both. But what was fetched may be evicted before it is asked
    /// for, and some file systems (NFS; others for names that do not exist) remember nothing: so
    /// ask two or three times for one request, and then with [`Store::find_patiently`].
    pub fn find(
        &mut self,
        raw_path: &[u8],
        query: Option<&[u8]>,
        accept_encoding: &[&[u8]],
        now: Now,
    ) -> Found {
        let waits = self.resolver.waits;
        self.find_for(raw_path, Asked { query, accept_encoding, waits, now })
    }

    /// As [`Store::find`], but waits for whatever it must, and is never [`Found::Cold`].
    pub fn find_patiently(
        &mut self,
        raw_path: &[u8],
        query: Option<&[u8]>,
        accept_encoding: &[&[u8]],
        now: Now,
    ) -> Found {
        self.find_for(raw_path, Asked { query, accept_encoding, waits: true, now })
    }

    fn find_for(&mut self, raw_path: &[u8], asked: Asked<'_>) -> Found {
        let dotfiles = self.resolver.options.dotfiles;
        match path::decode(raw_path, dotfiles, &mut self.scratch) {
            Ok(path) => self.resolver.find(path, asked),
            Err(PathError::NotFound) => Found::NotFound,
            Err(PathError::Malformed) => Found::Malformed,
        }
    }

    /// Forgets what is kept for a path. For a sender who sees that the file of an entry has
    /// changed: it then finds the path again, and gets the new version.
    pub fn forget(&mut self, raw_path: &[u8]) {
        let dotfiles = self.resolver.options.dotfiles;
        if let Ok(path) = path::decode(raw_path, dotfiles, &mut self.scratch) {
            self.resolver.cache.remove(path.key());
        }
    }

    /// Closes the files kept open, but for those still being sent: when descriptors run out, a
    /// connection needs one more.
    pub fn release_descriptors(&mut self) {
        self.resolver.cache.clear_open();
    }

    /// What the cache has done so far.
    pub fn counts(&self) -> CacheCounts {
        self.resolver.cache.counts
    }

    /// How often it would have had to wait, so far.
    pub fn cold_counts(&self) -> ColdCounts {
        self.resolver.cold
    }

    /// How much is kept in memory now, bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.resolver.cache.memory_bytes()
    }

    /// How many files are kept open now.
    pub fn open_files(&self) -> u64 {
        self.resolver.cache.open_files()
    }
}

/// The store without its scratch, so that a path may be borrowed from there.
#[derive(Debug)]
struct Resolver {
    /// Shared with fetches, which look for the same in the same way.
    tree: Arc<Tree>,
    types: MimeTypes,
    cache: Cache,
    cold: ColdCounts,
    options: Options,
    waits: bool,
}

/// What is asked about a path.
#[derive(Clone, Copy)]
struct Asked<'a> {
    query: Option<&'a [u8]>,
    accept_encoding: &'a [&'a [u8]],
    waits: bool,
    now: Now,
}

impl Resolver {
    fn find(&mut self, path: Decoded<'_>, asked: Asked<'_>) -> Found {
        let stale = match self.cache.get(path.key()) {
            Some(resource) if resource.is_fresh(asked.now, self.options.valid_ns) => {
                let entry = resource.choose(asked.accept_encoding);
                self.cache.counts.hits += 1;
                return Found::Entry(entry);
            }
            stale => stale.map(Arc::clone),
        };
        match self.tree.locate(&path, asked.waits) {
            Ok(Place::File(located)) => match self.resource(path.key(), stale, located, asked) {
                Ok(resource) => Found::Entry(resource.choose(asked.accept_encoding)),
                Err(Stop::Failed(error)) => Found::Trouble(error),
                Err(Stop::Cold(files)) => self.cold_files(files),
            },
            Ok(place) => {
                self.cache.remove(path.key());
                self.without_file(&place, &path, asked.query)
            }
            Err(Stop::Cold(names)) => self.cold_path(&path, names),
            // It cannot be checked now, but it is the best answer there is.
            Err(Stop::Failed(error)) => stale.map_or(Found::Trouble(error), |resource| {
                Found::Entry(resource.choose(asked.accept_encoding))
            }),
        }
    }

    /// The resource that was located: what was kept, if it is still that, or loaded now.
    fn resource(
        &mut self,
        key: &[u8],
        stale: Option<Arc<Resource>>,
        located: Located,
        asked: Asked<'_>,
    ) -> Result<Arc<Resource>, Unloaded> {
        let was_kept = stale.is_some();
        if let Some(resource) = stale.filter(|resource| resource.is_same(&located)) {
            resource.mark_checked(asked.now);
            self.cache.counts.revalidations += 1;
            return Ok(resource);
        }
        let bytes_max = self.options.memory_file_bytes_max;
        let loaded = Resource::load(located, &self.types, bytes_max, asked.waits, asked.now);
        if matches!(loaded, Err(Stop::Cold(_))) {
            return loaded.map(Arc::new);
        }
        if was_kept {
            self.cache.remove(key);
            self.cache.counts.reloads += 1;
        } else {
            self.cache.counts.misses += 1;
        }
        let resource = Arc::new(loaded?);
        if self.options.caching && resource.is_settled(asked.now) {
            self.cache.put(key, Arc::clone(&resource));
        }
        Ok(resource)
    }

    fn cold_path(&mut self, path: &Decoded<'_>, names: Vec<Vec<u8>>) -> Found {
        self.cold.lookups += 1;
        let read_max = self.options.memory_file_bytes_max;
        Found::Cold(Fetch::of_path(&self.tree, path, names, read_max))
    }

    fn cold_files(&mut self, files: Vec<Arc<OpenFile>>) -> Found {
        self.cold.reads += 1;
        Found::Cold(Fetch::of_files(files))
    }

    fn without_file(&self, place: &Place, path: &Decoded<'_>, query: Option<&[u8]>) -> Found {
        match place {
            Place::NeedsSlash => Found::Redirect(path::redirect_location(path.path(), query)),
            Place::NoIndex if self.options.listing => self.listing(path.path()),
            _ => Found::NotFound,
        }
    }

    fn listing(&self, path: &[u8]) -> Found {
        match self.tree.list(path) {
            Ok(Some((rows, more))) => Found::Listing(listing::page(path, rows, more)),
            Ok(None) => Found::NotFound,
            Err(error) => Found::Trouble(error),
        }
    }
}
