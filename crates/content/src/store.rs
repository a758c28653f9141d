//! The store: maps a request's path to a representation to send.
//!
//! This module fixes the order of the steps: decode, look in the cache, look in the tree, load,
//! cache. Parsing, opening and reading are left to the other modules, each of which is independent
//! of the others' rules.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::cache::{Cache, CacheCounts, Cached};
use crate::cold_error::ColdError;
use crate::compression::forms::{Missing, Wanted};
use crate::compression::{FormCounts, Forms};
use crate::entry::{Entry, OpenFile};
use crate::fetch::{ColdCounts, Fetch};
use crate::listing::{Listing, ListingCounts, Listings, Progress, Waiter};
use crate::mime::MimeTypes;
use crate::options::Options;
use crate::path::{self, Decoded, PathError};
use crate::resource::{LoadError, LoadRules, Resource};
use crate::time::Now;
use crate::tree::{ResolvedFiles, ResolvedPath, Tree};
use crate::variants::negotiate;

/// Result of looking up a path.
#[derive(Debug)]
pub enum Found {
    /// A representation to send: 200, or as conditions and ranges require.
    Entry(Arc<Entry>),
    /// A directory without its slash: 301 to this `Location`.
    Redirect(Vec<u8>),
    /// The listing of a directory: 200, without validators or ranges.
    Listing(Arc<Entry>),
    /// The listing of a directory, for a request that does not want the body. It was not built:
    /// 200, without the fields that are known only once it is (RFC 9110 section 9.3.2).
    ListingHead,
    /// The listing of a directory, still under construction. Ask again, now or later; the listing
    /// is abandoned once all its waiters are dropped.
    Unfinished(Waiter),
    /// No such file, or one the client may not see: 404.
    NotFound,
    /// An ambiguous path: 400.
    Malformed,
    /// A server-side failure: no descriptors, no memory, or a disk fault: 503. `ResourceBusy` is a
    /// file that changed each time it was read.
    Error(io::Error),
    /// The answer is on a disk, and the store was told not to block ([`Options::waits`]). Run the
    /// fetch, then ask again.
    Cold(Fetch),
}

/// The parts of a request that the store needs.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// The path of the request target, as received; it starts with `/`.
    pub path: &'a [u8],
    /// Query of the request target, which a redirect preserves.
    pub query: Option<&'a [u8]>,
    /// The values of Accept-Encoding, one per field line.
    pub accept_encoding: &'a [&'a [u8]],
    /// Use of forms that are compressed on the fly.
    pub compress: Compress,
    /// True if only the fields are wanted, without content.
    pub head_only: bool,
    /// Allows the store to block on a disk, whatever [`Options::waits`] says.
    pub is_patient: bool,
    /// Allows the next part of a listing under construction to be built, which takes a fraction of
    /// a millisecond.
    pub advances: bool,
}

/// Use of forms that are compressed on the fly, for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    /// None: for a request that must have the file as it is.
    Never,
    /// Those that are there: for one that comes while there is no time to make others.
    Known,
    /// Those that are there; others are made for later requests.
    Make,
}

impl<'a> Lookup<'a> {
    /// Creates a lookup of the content of `path` in its plain form.
    pub fn of(path: &'a [u8]) -> Lookup<'a> {
        Lookup {
            path,
            query: None,
            accept_encoding: &[],
            compress: Compress::Never,
            head_only: false,
            is_patient: false,
            advances: true,
        }
    }
}

/// The files below one root, for use by one event loop.
#[derive(Debug)]
pub struct Store {
    resolver: Resolver,
    /// Buffer for paths that need decoding.
    scratch: Vec<u8>,
}

impl Store {
    /// Opens the directory to serve.
    ///
    /// # Errors
    /// Errors of opening it, and `InvalidInput` for invalid options: a path as the name of an index
    /// file, a content type that is not valid in a header field.
    pub fn open(root: &Path, options: Options) -> io::Result<Store> {
        let tree = Arc::new(Tree::open(root, &options)?);
        let resolver = Resolver {
            waits: options.waits || tree.is_in_memory(),
            tree,
            cold: ColdCounts::default(),
            types: MimeTypes::new(&options.charset)?.with(&options.mime)?,
            cache: Cache::new(options.cache_bytes_max, options.open_files_max),
            listings: Listings::default(),
            forms: None,
            keeps: true,
            options,
        };
        Ok(Store { resolver, scratch: Vec::new() })
    }

    /// Lets files be compressed on the fly, as [`Options::compression`] says. `root`: a number that
    /// no other store has which these forms are given to.
    pub fn give_forms(&mut self, mut forms: Box<Forms>, root: usize) {
        forms.set_root(root);
        self.resolver.forms = Some(forms);
    }

    /// Takes the compressed forms out, for another store. Until they are given back, this one must
    /// not be asked for a file.
    pub fn take_forms(&mut self) -> Option<Box<Forms>> {
        self.resolver.forms.take()
    }

    /// Finds the reply for a request.
    ///
    /// A resource checked within the last [`Options::valid_ns`] is found without a system call, and
    /// without an allocation if the path needs no decoding.
    ///
    /// A store that must not block returns [`Found::Cold`] when it would have to: for a name
    /// (existing or not) that the kernel does not have cached, or for the contents of a small file.
    /// Usually one [`Fetch::run`] settles both. But the fetched data may be evicted before the next
    /// call, and some file systems (NFS; others for names that do not exist) cache nothing. Callers
    /// should therefore retry two or three times per request and then set [`Lookup::is_patient`].
    ///
    /// A large directory's listing is built in parts, one per call: see [`Found::Unfinished`].
    pub fn find(&mut self, lookup: &Lookup<'_>, now: Now) -> Found {
        let dotfiles = self.resolver.options.dotfiles;
        match path::decode(lookup.path, dotfiles, &mut self.scratch) {
            Ok(path) => self.resolver.find(path, lookup, now),
            Err(PathError::NotFound) => Found::NotFound,
            Err(PathError::Malformed) => Found::Malformed,
        }
    }

    /// Removes a path from the cache. To be called by a sender that finds the file of an entry
    /// changed: the next lookup then returns the new version.
    pub fn forget(&mut self, raw_path: &[u8]) {
        let dotfiles = self.resolver.options.dotfiles;
        if let Ok(path) = path::decode(raw_path, dotfiles, &mut self.scratch) {
            self.resolver.cache.remove(path.key());
        }
    }

    /// Closes the cached open files, except those still being sent. To be called when descriptors
    /// run out and a connection needs one.
    pub fn release_descriptors(&mut self) {
        self.resolver.cache.clear_open();
    }

    /// Returns the cache counts since the store was opened.
    pub fn counts(&self) -> CacheCounts {
        self.resolver.cache.counts
    }

    /// Returns counts of the lookups and reads that would have blocked.
    pub fn cold_counts(&self) -> ColdCounts {
        self.resolver.cold
    }

    /// Returns the listing counts since the store was opened.
    pub fn listing_counts(&self) -> ListingCounts {
        self.resolver.listings.counts
    }

    /// Returns the counts of the compressed forms that the store has now.
    pub fn form_counts(&self) -> FormCounts {
        self.resolver.forms.as_deref().map(Forms::counts).unwrap_or_default()
    }

    /// Gives back at least `bytes` of what is kept in memory, or all of it: content and compressed
    /// forms, each as much as it has of the whole.
    pub fn give_back(&mut self, bytes: u64) {
        let cached_bytes = self.memory_bytes();
        let forms_bytes = self.form_counts().held_bytes;
        let all_bytes = (cached_bytes + forms_bytes).max(1);
        let part = |of: u64| {
            let share = u128::from(bytes) * u128::from(of) / u128::from(all_bytes);
            u64::try_from(share).unwrap_or(u64::MAX).saturating_add(1)
        };
        if cached_bytes > 0 {
            self.resolver.cache.give_back(part(cached_bytes));
        }
        if let Some(forms) = self.resolver.forms.as_mut().filter(|_| forms_bytes > 0) {
            forms.give_back(part(forms_bytes));
        }
    }

    /// Lets the store keep what it loads and makes from now on, or not. While it does not, all but
    /// small files are sent from their descriptor.
    pub fn set_keeping(&mut self, keeps: bool) {
        self.resolver.keeps = keeps;
    }

    /// Returns the memory used by the cache, bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.resolver.cache.memory_bytes()
    }

    /// Returns the number of files that the cache keeps open.
    pub fn open_files(&self) -> u64 {
        self.resolver.cache.open_files()
    }
}

/// The store without its scratch buffer, so that a path may be borrowed from there.
#[derive(Debug)]
struct Resolver {
    /// Shared with fetches, which resolve paths in the same way.
    tree: Arc<Tree>,
    types: MimeTypes,
    cache: Cache,
    listings: Listings,
    /// Compressed forms; `None` if nothing is compressed on the fly, or another store has them.
    forms: Option<Box<Forms>>,
    cold: ColdCounts,
    options: Options,
    waits: bool,
    /// True if what is loaded and made is cached, where that is configured.
    keeps: bool,
}

impl Resolver {
    fn find(&mut self, path: Decoded<'_>, lookup: &Lookup<'_>, now: Now) -> Found {
        let valid_ns = self.options.valid_ns;
        let stale = match self.cache.get(path.key()) {
            Some(Cached::Resource(resource)) if resource.is_fresh(now, valid_ns) => {
                let entry = represent(resource, &mut self.forms, path.key(), lookup, now);
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
        match self.advance_listing(&path, lookup) {
            Some(found) => found,
            None => self.look_up(path, stale, lookup, now),
        }
    }

    /// Looks a path up in the tree. `stale` is a cached value that has to be checked.
    fn look_up(
        &mut self,
        path: Decoded<'_>,
        stale: Option<Cached>,
        lookup: &Lookup<'_>,
        now: Now,
    ) -> Found {
        let waits = self.waits || lookup.is_patient;
        match self.tree.resolve(&path, waits) {
            Ok(ResolvedPath::File(files)) => {
                let context = LookupContext { waits, now };
                match self.resource(path.key(), stale, files, context) {
                    // One whose file has only just changed may change again and look the same.
                    Ok(resource) if !resource.is_settled(now) => {
                        Found::Entry(resource.choose(lookup.accept_encoding))
                    }
                    Ok(resource) => {
                        let forms = &mut self.forms;
                        Found::Entry(represent(&resource, forms, path.key(), lookup, now))
                    }
                    Err(ColdError::Failed(error)) => Found::Error(error),
                    Err(ColdError::Cold(files)) => self.cold_files(files),
                }
            }
            Ok(ResolvedPath::NoIndex) if self.options.listing => {
                self.list(&path, stale, lookup, now)
            }
            Ok(place) => {
                self.cache.remove(path.key());
                match place {
                    ResolvedPath::NeedsSlash => {
                        Found::Redirect(path::redirect_location(path.path(), lookup.query))
                    }
                    _ => Found::NotFound,
                }
            }
            Err(ColdError::Cold(names)) => self.cold_path(&path, names),
            Err(ColdError::Failed(error)) => stale_or_error(stale, lookup, error),
        }
    }

    /// Returns the resource for the resolved files: the cached one if it is still valid, otherwise
    /// one loaded now.
    fn resource(
        &mut self,
        key: &[u8],
        stale: Option<Cached>,
        files: ResolvedFiles,
        context: LookupContext,
    ) -> Result<Arc<Resource>, LoadError> {
        let was_kept = stale.is_some();
        if let Some(Cached::Resource(resource)) = stale
            && resource.is_same(&files)
        {
            resource.mark_checked(context.now);
            self.cache.counts.revalidations += 1;
            return Ok(resource);
        }
        let compression = self.options.compression.filter(|_| self.forms.is_some());
        let rules = LoadRules {
            types: &self.types,
            memory_file_bytes_max: match self.keeps {
                true => self.options.memory_file_bytes_max,
                false => self.options.memory_file_bytes_max.min(UNKEPT_BYTES_MAX),
            },
            compressed_file_bytes_max: compression.map_or(0, |options| options.file_bytes_max),
        };
        let loaded = Resource::load(files, rules, context.waits, context.now);
        if matches!(loaded, Err(ColdError::Cold(_))) {
            return loaded.map(Arc::new);
        }
        if was_kept {
            self.cache.remove(key);
            self.cache.counts.reloads += 1;
        } else {
            self.cache.counts.misses += 1;
        }
        let resource = Arc::new(loaded?);
        if self.options.caching && self.keeps && resource.is_settled(context.now) {
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

    /// Finds the listing of a directory without an index file: the cached one if it is still valid,
    /// otherwise one whose construction starts now.
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
            Err(error) => return stale_or_error(stale, lookup, error),
        };
        if let Some(Cached::Listing(listing)) = &stale
            && listing.is_current(&directory.status, now, self.options.valid_ns)
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
        self.advance_listing(path, lookup).unwrap_or(Found::Unfinished(waiter))
    }

    /// Builds the next part of a listing, if it is under construction.
    fn advance_listing(&mut self, path: &Decoded<'_>, lookup: &Lookup<'_>) -> Option<Found> {
        let advances = lookup.advances && !lookup.head_only;
        let made_before = self.listings.counts.made;
        let progress = match self.listings.advance(path.key(), &self.tree, advances) {
            Ok(progress) => progress?,
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(Found::NotFound),
            Err(error) => return Some(Found::Error(error)),
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
        if self.options.caching && self.keeps {
            self.cache.put(key, Cached::Listing(Arc::clone(listing)));
        }
    }
}

/// Returns the representation of a resource to send: a precompressed variant, a form that was
/// compressed on the fly, or the file as it is.
fn represent(
    resource: &Resource,
    forms: &mut Option<Box<Forms>>,
    key: &[u8],
    lookup: &Lookup<'_>,
    now: Now,
) -> Arc<Entry> {
    let lines = lookup.accept_encoding;
    let compresses = !lines.is_empty() && lookup.compress != Compress::Never;
    let plain = resource.compressible().filter(|_| compresses);
    let Some((plain, forms)) = plain.zip(forms.as_mut()) else { return resource.choose(lines) };
    let Some(preferred) = negotiate(lines, |_| true) else { return Arc::clone(plain) };
    let makes = lookup.compress == Compress::Make;
    let is_made = match forms.get(Wanted { key, plain, makes, now }, preferred) {
        Ok(Some(form)) => return form,
        Ok(None) => true,
        Err(Missing) => false,
    };
    // Until it is made, another that the client takes, if there is one.
    let known = |coding| coding != preferred && forms.peek(key, plain, coding).is_some();
    let other = negotiate(lines, known).and_then(|coding| forms.peek(key, plain, coding));
    if other.is_none() && !is_made {
        forms.count_missed();
    }
    other.unwrap_or_else(|| Arc::clone(plain))
}

/// Answers with a stale value that cannot be checked at present; without one, with the error.
fn stale_or_error(stale: Option<Cached>, lookup: &Lookup<'_>, error: io::Error) -> Found {
    match stale {
        Some(Cached::Resource(resource)) => Found::Entry(resource.choose(lookup.accept_encoding)),
        Some(Cached::Listing(listing)) => Found::Listing(listing.entry()),
        None => Found::Error(error),
    }
}

/// Size up to which files are read and sent from memory while nothing is kept, bytes.
const UNKEPT_BYTES_MAX: u64 = 64 << 10;

/// Conditions of a tree lookup.
#[derive(Clone, Copy)]
struct LookupContext {
    waits: bool,
    now: Now,
}
