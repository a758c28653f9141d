//! The store: a request's path in, something to send out.
//!
//! The order of things is here: decode, look among what is kept, ask the tree, load, keep. Nothing
//! here parses, opens or reads: the parts do, and none of them knows the others' rules.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::Now;
use crate::cache::{Cache, CacheCounts, Cached};
use crate::entry::{Entry, OpenFile};
use crate::fetch::{ColdCounts, Fetch};
use crate::listing::{Listing, ListingCounts, Listings, Progress, Waiter};
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
    /// tmpfs is in memory, and always waited for; so is each part of a listing.
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
    /// The listing of a directory: 200, without validators or ranges.
    Listing(Arc<Entry>),
    /// The listing of a directory, which was not made, because its bytes are not wanted: 200,
    /// without the fields that only making it would tell (RFC 9110 section 9.3.2).
    ListingHead,
    /// The listing of a directory, of which a part was made, or none: it is to be asked for again,
    /// now or after something else, and is given up when nobody keeps a waiter for it.
    Unfinished(Waiter),
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

/// A request as far as the store must know it.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// The path of the request target, as received; it starts with `/`.
    pub path: &'a [u8],
    /// Query of the request target, which a redirect carries over.
    pub query: Option<&'a [u8]>,
    /// The values of Accept-Encoding, one for each field line.
    pub accept_encoding: &'a [&'a [u8]],
    /// Only the fields are wanted, and no content.
    pub head_only: bool,
    /// The store may wait for a disk, whatever [`Options::waits`] says.
    pub is_patient: bool,
    /// The next part of a listing in the making may be made now, which takes a fraction of a
    /// millisecond.
    pub advances: bool,
}

impl<'a> Lookup<'a> {
    /// Asks for the content of `path` in its plain form.
    pub fn of(path: &'a [u8]) -> Lookup<'a> {
        Lookup {
            path,
            query: None,
            accept_encoding: &[],
            head_only: false,
            is_patient: false,
            advances: true,
        }
    }
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
            listings: Listings::default(),
            options,
        };
        Ok(Store { resolver, scratch: Vec::new() })
    }

    /// Finds what to send for a request.
    ///
    /// What was checked within the last [`Options::valid_ns`] is found without a system call, and
    /// without an allocation if the path needs no decoding.
    ///
    /// A store that does not wait says [`Found::Cold`] when it would have to: for a name or the
    /// lack of one that the kernel does not remember, for the contents of a small file. One
    /// [`Fetch::run`] mostly settles both. But what was fetched may be evicted before it is asked
    /// for, and some file systems (NFS; others for names that do not exist) remember nothing: so
    /// ask two or three times for one request, and then patiently.
    ///
    /// A large directory's listing is made in parts, of which one call makes one: see
    /// [`Found::Unfinished`].
    pub fn find(&mut self, lookup: &Lookup<'_>, now: Now) -> Found {
        let dotfiles = self.resolver.options.dotfiles;
        match path::decode(lookup.path, dotfiles, &mut self.scratch) {
            Ok(path) => self.resolver.find(path, lookup, now),
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

    /// Counts of listings so far.
    pub fn listing_counts(&self) -> ListingCounts {
        self.resolver.listings.counts
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
    listings: Listings,
    cold: ColdCounts,
    options: Options,
    waits: bool,
}

impl Resolver {
    fn find(&mut self, path: Decoded<'_>, lookup: &Lookup<'_>, now: Now) -> Found {
        let valid_ns = self.options.valid_ns;
        let stale = match self.cache.get(path.key()) {
            Some(Cached::Resource(resource)) if resource.is_fresh(now, valid_ns) => {
                let entry = resource.choose(lookup.accept_encoding);
                self.cache.counts.hits += 1;
                return Found::Entry(entry);
            }
            Some(Cached::Listing(listing)) if listing.is_fresh(now, valid_ns) => {
                let entry = listing.entry();
                self.cache.counts.hits += 1;
                return Found::Listing(entry);
            }
            stale => stale.cloned(),
        };
        match self.go_on_listing(&path, lookup) {
            Some(found) => found,
            None => self.look(path, stale, lookup, now),
        }
    }

    /// Asks the tree. `stale` was found before, and has to be checked.
    fn look(
        &mut self,
        path: Decoded<'_>,
        stale: Option<Cached>,
        lookup: &Lookup<'_>,
        now: Now,
    ) -> Found {
        let waits = self.waits || lookup.is_patient;
        match self.tree.locate(&path, waits) {
            Ok(Place::File(located)) => {
                let asked = Asked { waits, now };
                match self.resource(path.key(), stale, located, asked) {
                    Ok(resource) => Found::Entry(resource.choose(lookup.accept_encoding)),
                    Err(Stop::Failed(error)) => Found::Trouble(error),
                    Err(Stop::Cold(files)) => self.cold_files(files),
                }
            }
            Ok(Place::NoIndex) if self.options.listing => self.list(&path, stale, lookup, now),
            Ok(place) => {
                self.cache.remove(path.key());
                match place {
                    Place::NeedsSlash => {
                        Found::Redirect(path::redirect_location(path.path(), lookup.query))
                    }
                    _ => Found::NotFound,
                }
            }
            Err(Stop::Cold(names)) => self.cold_path(&path, names),
            Err(Stop::Failed(error)) => best_there_is(stale, lookup, error),
        }
    }

    /// The resource that was located: what was kept, if it is still that, or loaded now.
    fn resource(
        &mut self,
        key: &[u8],
        stale: Option<Cached>,
        located: Located,
        asked: Asked,
    ) -> Result<Arc<Resource>, Unloaded> {
        let was_kept = stale.is_some();
        if let Some(Cached::Resource(resource)) = stale
            && resource.is_same(&located)
        {
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
            self.cache.put(key, Cached::Resource(Arc::clone(&resource)));
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

    /// Finds the listing of a directory without an index file: what was kept, if it still holds, or
    /// made from now on.
    fn list(
        &mut self,
        path: &Decoded<'_>,
        stale: Option<Cached>,
        lookup: &Lookup<'_>,
        now: Now,
    ) -> Found {
        let directory = match self.tree.directory(path.path()) {
            Ok(Some(directory)) => directory,
            Ok(None) => {
                self.cache.remove(path.key());
                return Found::NotFound;
            }
            Err(error) => return best_there_is(stale, lookup, error),
        };
        if let Some(Cached::Listing(listing)) = &stale
            && listing.holds(&directory.status, now, self.options.valid_ns)
        {
            listing.mark_checked(now);
            self.cache.counts.revalidations += 1;
            return Found::Listing(listing.entry());
        }
        self.cache.remove(path.key());
        if lookup.head_only {
            return Found::ListingHead;
        }
        if !lookup.advances {
            return Found::Unfinished(Waiter::default());
        }
        let waiter = self.listings.begin(path.key(), path.path(), directory, now);
        // There may have been no room for another.
        self.go_on_listing(path, lookup).unwrap_or(Found::Unfinished(waiter))
    }

    /// Makes the next part of a listing, if it is in the making.
    fn go_on_listing(&mut self, path: &Decoded<'_>, lookup: &Lookup<'_>) -> Option<Found> {
        let advances = lookup.advances && !lookup.head_only;
        let made_before = self.listings.counts.made;
        let progress = match self.listings.go_on(path.key(), &self.tree, advances) {
            Ok(progress) => progress?,
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(Found::NotFound),
            Err(error) => return Some(Found::Trouble(error)),
        };
        Some(match progress {
            Progress::Made(listing) => {
                if self.listings.counts.made > made_before {
                    self.keep_listing(path.key(), &listing);
                }
                Found::Listing(listing.entry())
            }
            Progress::Unfinished(_) if lookup.head_only => Found::ListingHead,
            Progress::Unfinished(waiter) => Found::Unfinished(waiter),
        })
    }

    fn keep_listing(&mut self, key: &[u8], listing: &Arc<Listing>) {
        self.cache.counts.misses += 1;
        if self.options.caching {
            self.cache.put(key, Cached::Listing(Arc::clone(listing)));
        }
    }
}

/// Answers with a stale value that cannot be checked now: it is the best there is.
fn best_there_is(stale: Option<Cached>, lookup: &Lookup<'_>, error: io::Error) -> Found {
    match stale {
        Some(Cached::Resource(resource)) => Found::Entry(resource.choose(lookup.accept_encoding)),
        Some(Cached::Listing(listing)) => Found::Listing(listing.entry()),
        None => Found::Trouble(error),
    }
}

/// Conditions of a look at the tree.
#[derive(Clone, Copy)]
struct Asked {
    waits: bool,
    now: Now,
}
