//! The file tree below the root: which files a path stands for, opened and examined but not read.
//!
//! Every name is resolved by the kernel, below the root and under the operator's rule for links.
//! Nothing here reads a file or keeps one.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use weir_sys::file::{self, File, Kind, Status};

use crate::listing::Row;
use crate::path::{Decoded, is_reachable};
use crate::store::Options;
use crate::variants::Coding;

/// The tree and the rules for walking it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: File,
    symlinks: bool,
    dotfiles: bool,
    index: Vec<String>,
    codings: Vec<Coding>,
}

/// What a path stands for.
pub(crate) enum Place {
    /// A regular file, perhaps with variants.
    File(Located),
    /// A directory asked for without its slash.
    NeedsSlash,
    /// A directory without an index file, or nothing: whoever lists it will see.
    NoIndex,
    /// Nothing that is ours to serve.
    Absent,
}

/// The files behind a path.
pub(crate) struct Located {
    /// The plain file's path below the root.
    pub(crate) path: Vec<u8>,
    pub(crate) plain: Source,
    /// Variants worth serving: not older than the plain file, and smaller.
    pub(crate) variants: Vec<(Coding, Source)>,
}

/// A regular file, opened and examined.
pub(crate) struct Source {
    pub(crate) file: File,
    pub(crate) status: Status,
}

impl Tree {
    pub(crate) fn open(root: &Path, options: &Options) -> io::Result<Tree> {
        let is_name = |name: &String| is_reachable(name.as_bytes());
        if let Some(name) = options.index.iter().find(|name| !is_name(name)) {
            let message = format!("{name:?} is not the name of an index file");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Tree {
            root: file::open_root(root)?,
            symlinks: options.follow_symlinks,
            dotfiles: options.dotfiles,
            index: options.index.clone(),
            codings: options.codings.clone(),
        })
    }

    /// Finds what `path` stands for.
    ///
    /// # Errors
    /// Trouble of ours only (descriptors, memory, the disk): a name that leads nowhere, out of the
    /// root, or to something we may not read is [`Place::Absent`], all alike to the client.
    pub(crate) fn locate(&self, path: &Decoded<'_>) -> io::Result<Place> {
        let place = if path.is_directory() {
            self.locate_index(path.path())
        } else {
            self.locate_file(path.path().to_vec())
        };
        place.or_else(|error| if file::is_absent(&error) { Ok(Place::Absent) } else { Err(error) })
    }

    /// The entries of a directory, in no order, and whether there are more than are shown; `None`
    /// if there is no such directory. Left out is what could not be fetched.
    ///
    /// # Errors
    /// As for [`Tree::locate`].
    pub(crate) fn list(&self, path: &[u8]) -> io::Result<Option<(Vec<Row>, bool)>> {
        let source = match self.open_source(path) {
            Ok(source) if source.status.kind == Kind::Directory => source,
            Ok(_) => return Ok(None),
            Err(error) if file::is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (names, more) = file::list(source.file.as_fd(), LISTED_MAX)?;
        let shown =
            |name: &Vec<u8>| is_reachable(name) && (self.dotfiles || !name.starts_with(b"."));
        let row = |name| self.row(&source.file, path, name);
        Ok(Some((names.into_iter().filter(shown).filter_map(row).collect(), more)))
    }

    fn locate_file(&self, path: Vec<u8>) -> io::Result<Place> {
        let plain = self.open_source(&path)?;
        match plain.status.kind {
            Kind::File => self.with_variants(path, plain),
            Kind::Directory => Ok(Place::NeedsSlash),
            Kind::Symlink | Kind::Other => Ok(Place::Absent),
        }
    }

    /// The first index file that exists. One that exists and cannot be served hides the directory,
    /// rather than let the next name or a listing show in its place.
    fn locate_index(&self, directory: &[u8]) -> io::Result<Place> {
        for name in &self.index {
            let path = joined(directory, name.as_bytes());
            match self.open_source(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(plain) if plain.status.kind == Kind::File => {
                    return self.with_variants(path, plain);
                }
                Ok(_) => return Ok(Place::Absent),
            }
        }
        Ok(Place::NoIndex)
    }

    fn with_variants(&self, path: Vec<u8>, plain: Source) -> io::Result<Place> {
        let mut variants = Vec::new();
        for &coding in &self.codings {
            let name = [&path, coding.suffix().as_bytes()].concat();
            match self.open_source(&name) {
                Err(error) if file::is_absent(&error) => {}
                Err(error) => return Err(error),
                Ok(variant) if is_worthwhile(&variant.status, &plain.status) => {
                    variants.push((coding, variant));
                }
                Ok(_) => {}
            }
        }
        Ok(Place::File(Located { path, plain, variants }))
    }

    fn open_source(&self, path: &[u8]) -> io::Result<Source> {
        let path = if path.is_empty() { b"." } else { path };
        let file = file::open_beneath(self.root.as_fd(), path, self.symlinks)?;
        let status = file::status(file.as_fd())?;
        Ok(Source { file, status })
    }

    fn row(&self, directory: &File, path: &[u8], name: Vec<u8>) -> Option<Row> {
        let mut status = file::status_at(directory.as_fd(), &name).ok()?;
        if status.kind == Kind::Symlink && self.symlinks {
            status = self.open_source(&joined(path, &name)).ok()?.status;
        }
        let directory = match status.kind {
            Kind::Directory => true,
            Kind::File => false,
            Kind::Symlink | Kind::Other => return None,
        };
        Some(Row { name, directory, len: status.len, modified_s: seconds(status.mtime_ns) })
    }
}

fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Whether a variant is likely to be the plain file compressed, and a gain. Ages are compared in
/// seconds: that is as finely as archives and many tools copy them.
fn is_worthwhile(variant: &Status, plain: &Status) -> bool {
    variant.kind == Kind::File
        && (1..plain.len).contains(&variant.len)
        && seconds(variant.mtime_ns) >= seconds(plain.mtime_ns)
}

fn seconds(time_ns: i128) -> i64 {
    i64::try_from(time_ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX)
}

/// How many entries of a directory are looked at for a listing.
const LISTED_MAX: usize = 10_000;
